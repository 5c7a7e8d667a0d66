package httpapi

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"testing"
	"time"

	"raftq/fsm"
)

// want is a request as it travels, and what comes of it.
type want struct {
	name, text string
	status     int
	body       string // of the job that was enqueued
	queue      string // q unless said
	ends       bool   // the connection
}

// checkWire sends each text over a connection of its own.
func checkWire(t *testing.T, f *fake, addr string, cases []want) {
	t.Helper()
	for _, tc := range cases {
		c := dial(t, addr)
		before := f.opCount()
		c.send(tc.text)
		method, _, _ := strings.Cut(tc.text, " ")
		a := c.receive(method)
		if a.status != tc.status {
			t.Errorf("%s: %d %s, want %d", tc.name, a.status, a.body, tc.status)
			continue
		}
		if applied := f.opCount() - before; applied != 1 == (tc.status == 201) {
			t.Errorf("%s: %d ops reached the replica", tc.name, applied)
		}
		if tc.status == 201 {
			if job := f.lastOp(t).(*fsm.Enqueue).Jobs[0]; string(job.Body) != tc.body || job.Queue != cmpOr(tc.queue, "q") {
				t.Errorf("%s: queue %q got %q", tc.name, job.Queue, job.Body)
			}
		} else if tc.status >= 400 && method != "HEAD" && a.json(t)["code"] == nil {
			t.Errorf("%s: no problem: %s", tc.name, a.body)
		}
		if tc.ends {
			if _, err := c.br.ReadByte(); err != io.EOF {
				t.Errorf("%s: the connection stayed open: %v", tc.name, err)
			}
		} else {
			c.send(post(enqueueQ, "after"))
			if a := c.receive("POST"); a.status != 201 || bodies(f.lastOp(t))[0] != "after" {
				t.Errorf("%s: the next request: %d %s", tc.name, a.status, a.body)
			}
		}
		c.Close()
	}
}

func cmpOr(s, or string) string {
	if s == "" {
		return or
	}
	return s
}

// TestWireFraming proves that where a request ends is never in doubt: what two
// readers could take for different requests is refused and ends the connection,
// or, as RFC 9112 has it, is read by its chunks alone and ends it too.
func TestWireFraming(t *testing.T) {
	f := newFake()
	addr := listen(t, newServer(t, f, Options{}))
	line := "POST " + enqueueQ + " HTTP/1.1\r\nHost: x\r\n"
	chunks := "3\r\nabc\r\n0\r\n\r\n"
	checkWire(t, f, addr, []want{
		{name: "chunks and a length", text: line + "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n" + chunks, status: 201, body: "abc", ends: true},
		{name: "length and chunks", text: line + "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n" + chunks, status: 201, body: "abc", ends: true},
		{name: "two lengths", text: line + "Content-Length: 3\r\nContent-Length: 4\r\n\r\nabcd", status: 400, ends: true},
		{name: "the same length twice", text: line + "Content-Length: 3\r\nContent-Length: 3\r\n\r\nabc", status: 400, ends: true},
		{name: "a list of lengths", text: line + "Content-Length: 3, 3\r\n\r\nabc", status: 400, ends: true},
		{name: "a length with a sign", text: line + "Content-Length: +3\r\n\r\nabc", status: 400, ends: true},
		{name: "a blank before the colon", text: line + "Content-Length : 3\r\n\r\nabc", status: 400, ends: true},
		{name: "no length", text: line + "\r\n", status: 201, body: ""},
		{name: "another coding", text: line + "Transfer-Encoding: gzip, chunked\r\n\r\n" + chunks, status: 400, ends: true},
		{name: "nearly chunked", text: line + "Transfer-Encoding: xchunked\r\nContent-Length: 3\r\n\r\nabc", status: 400, ends: true},
		{name: "chunks in HTTP/1.0", text: "POST " + enqueueQ + " HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n" + chunks, status: 400, ends: true},
		{name: "extensions and a trailer", text: line + "Transfer-Encoding: chunked\r\nTrailer: X-T\r\n\r\n3;a=b\r\nabc\r\n0\r\nX-T: 1\r\n\r\n", status: 201, body: "abc"},
		{name: "an empty body in chunks", text: line + "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n", status: 201, body: ""},
		{name: "a chunk of less than nothing", text: line + "Transfer-Encoding: chunked\r\n\r\n-3\r\nabc\r\n0\r\n\r\n", status: 400, ends: true},
		{name: "a chunk larger than any", text: line + "Transfer-Encoding: chunked\r\n\r\nffffffffffffffffff\r\nabc", status: 400, ends: true},
		{name: "a chunk longer than it says", text: line + "Transfer-Encoding: chunked\r\n\r\n3\r\nabcXX0\r\n\r\n", status: 400, ends: true},
		{name: "no host", text: "POST " + enqueueQ + " HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc", status: 400, ends: true},
		{name: "two hosts", text: line + "Host: y\r\nContent-Length: 3\r\n\r\nabc", status: 400, ends: true},
		{name: "a NUL in a field", text: line + "X: a\x00b\r\nContent-Length: 3\r\n\r\nabc", status: 400, ends: true},
		{name: "a field without a colon", text: line + "Xabc\r\nContent-Length: 3\r\n\r\nabc", status: 400, ends: true},
		{name: "empty lines before", text: "\r\n\r\n" + post(enqueueQ, "abc"), status: 201, body: "abc"},
		{name: "a coded body", text: post(enqueueQ, "abc", "Content-Encoding: gzip"), status: 400},
		{name: "a body that says it is not", text: post(enqueueQ, "abc", "Content-Encoding: Identity"), status: 201, body: "abc"},
		{name: "the preface of HTTP/2", text: "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", status: 400, ends: true},
		{name: "HTTP/0.9", text: "GET /livez\r\n\r\n", status: 400, ends: true},
	})
}

// TestWireTargets proves how a target is read: in its absolute form too, decoded
// once, never made shorter, and that methods are known by their exact names.
func TestWireTargets(t *testing.T) {
	f := newFake()
	addr := listen(t, newServer(t, f, Options{}))
	at := func(target string) string {
		return "POST " + target + " HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc"
	}
	with := func(method, target string) string {
		return method + " " + target + " HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc"
	}
	checkWire(t, f, addr, []want{
		{name: "absolute", text: at("http://other:1234/v1/queues/q/enqueue?priority=1"), status: 201, body: "abc"},
		{name: "absolute, upper case", text: at("HTTP://X/v1/queues/a%2Fb/enqueue"), status: 201, body: "abc", queue: "a/b"},
		{name: "absolute, with a bad option", text: at("http://x/v1/queues/q/enqueue?priority=10"), status: 422},
		{name: "absolute, no path", text: at("http://x"), status: 404},
		{name: "a slash in the name", text: at("/v1/queues/a%2Fb/enqueue"), status: 201, body: "abc", queue: "a/b"},
		{name: "decoded once", text: at("/v1/queues/a%252Fb/enqueue"), status: 201, body: "abc", queue: "a%2Fb"},
		{name: "a plus is a plus", text: at("/v1/queues/a+b/enqueue"), status: 201, body: "abc", queue: "a+b"},
		{name: "dots", text: at("/v1/queues/../enqueue"), status: 201, body: "abc", queue: ".."},
		{name: "dots, encoded", text: at("/v1/queues/%2e%2E/enqueue"), status: 201, body: "abc", queue: ".."},
		{name: "any bytes", text: at("/v1/queues/%00%ff/enqueue"), status: 201, body: "abc", queue: "\x00\xff"},
		{name: "UTF-8 as it is", text: at("/v1/queues/é/enqueue"), status: 201, body: "abc", queue: "é"},
		{name: "a percent sign alone", text: at("/v1/queues/100%/enqueue"), status: 400},
		{name: "two slashes", text: at("//v1/queues/q/enqueue"), status: 404},
		{name: "a slash in the path", text: at("/v1/queues/a/b/enqueue"), status: 404},
		{name: "a blank", text: at("/v1/queues/a b/enqueue"), status: 400, ends: true},
		{name: "a NUL", text: at("/v1/queues/a\x00b/enqueue"), status: 400, ends: true},
		{name: "unknown method", text: with("FROB", enqueueQ), status: 405},
		{name: "lower case", text: with("post", enqueueQ), status: 405},
		{name: "GET with a body", text: with("GET", "/livez"), status: 200},
		{name: "GET of a POST route", text: with("GET", enqueueQ), status: 405},
		{name: "HEAD", text: with("HEAD", "/livez"), status: 200},
		{name: "HEAD of nothing", text: with("HEAD", "/nowhere"), status: 404},
		{name: "HEAD of a POST route", text: with("HEAD", enqueueQ), status: 405},
		{name: "OPTIONS", text: with("OPTIONS", enqueueQ), status: 405},
		{name: "OPTIONS *", text: with("OPTIONS", "*"), status: 404},
		{name: "TRACE", text: with("TRACE", "/livez"), status: 405},
		{name: "CONNECT", text: with("CONNECT", "x:80"), status: 404},
	})
}

// TestWireTypes proves that media types are compared without regard to case and
// parameters, and that any other type is read as what the route takes.
func TestWireTypes(t *testing.T) {
	f := newFake()
	s := newServer(t, f, Options{})
	for typ, body := range map[string]string{
		"":                                  `{"body":"x"}`,
		";;; garbage, / \xff":               `{"body":"x"}`,
		"application/xml":                   `{"body":"x"}`,
		"Application/JSON; charset=latin-1": `{"body":"x"}`,
		"Application/X-NDJSON":              "{\"body\":\"x\"}\n{\"body\":\"y\"}",
		"application/x-ndjson ; a=b":        "{\"body\":\"x\"}\n{\"body\":\"y\"}",
		"APPLICATION/vnd.raftq.FRAMES":      string(frame("", "x")),
	} {
		a := ask(t, s, "POST", "/v1/queues/q/jobs", body, "Content-Type", typ)
		if a.status != 201 || bodies(f.lastOp(t))[0] != "x" {
			t.Errorf("%q: %d %s", typ, a.status, a.body)
		}
	}
	fill(f, 3)
	for accept, typ := range map[string]string{
		"Application/Octet-Stream": "application/octet-stream", "text/html, APPLICATION/x-ndjson;q=0.5": "application/x-ndjson",
		"application/VND.raftq.frames": "application/vnd.raftq.frames", "text/html": "application/json", "\xff": "application/json",
	} {
		if a := ask(t, s, "POST", dequeueQ, "", "Accept", accept); a.status != 200 || a.header("Content-Type") != typ {
			t.Errorf("%q: %d %s", accept, a.status, a.header("Content-Type"))
		}
		fill(f, 1)
	}
}

// TestWireBodies proves that bodies of every kind and size up to the hard limit
// arrive and leave byte for byte, whole or in chunks.
func TestWireBodies(t *testing.T) {
	f := newFake()
	addr := listen(t, newServer(t, f, Options{MaxBody: fsm.BodyMax}))
	c := dial(t, addr)
	random := make([]byte, fsm.BodyMax)
	rnd := rand.NewChaCha8([32]byte{1})
	rnd.Read(random) // never fails
	for _, body := range []string{"", "\x00", "\x00\x00\xff\xfe", "\xed\xa0\x80", "a\r\n\r\nGET / HTTP/1.1\r\n\r\n", strings.Repeat("\x00", 4096), string(random[:1<<20+1]), string(random)} {
		for _, chunked := range []bool{false, true} {
			if chunked {
				c.send("POST " + enqueueQ + " HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
				for rest := body; len(rest) > 0; {
					n := min(len(rest), 1<<18)
					c.send(fmt.Sprintf("%x\r\n%s\r\n", n, rest[:n]))
					rest = rest[n:]
				}
				c.send("0\r\n\r\n")
			} else {
				c.send(post(enqueueQ, body))
			}
			if a := c.receive("POST"); a.status != 201 || bodies(f.lastOp(t))[0] != body {
				t.Fatalf("%d bytes, chunked %v: %d %.200s", len(body), chunked, a.status, a.body)
			}
			c.send(post(dequeueQ, "", rawBytes))
			if a := c.receive("POST"); a.status != 200 || a.body != body {
				t.Errorf("%d bytes, chunked %v: they came back changed", len(body), chunked)
			}
		}
	}
	c.send(post(enqueueQ, string(random)+"x"))
	wantContains(t, wantProblem(t, c.receive("POST"), 413, "body_too_large"), "16777216")
}

// TestWireContinue proves that a client which asks first is told to go on, that
// one which does not wait is understood too, and that a body too large is refused.
func TestWireContinue(t *testing.T) {
	f := newFake()
	addr := listen(t, newServer(t, f, Options{}))
	ask := "POST " + enqueueQ + " HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\n"
	for name, parts := range map[string][2]string{
		"length":      {"Content-Length: 4\r\n\r\n", "late"},
		"chunks":      {"Transfer-Encoding: chunked\r\n\r\n", "4\r\nlate\r\n0\r\n\r\n"},
		"no patience": {"Content-Length: 4\r\n\r\nlate", ""},
	} {
		c := dial(t, addr)
		c.send(ask + parts[0])
		if a := c.receive("POST"); a.status != 100 {
			t.Errorf("%s: want 100, got %d", name, a.status)
		}
		c.send(parts[1])
		if a := c.receive("POST"); a.status != 201 || bodies(f.lastOp(t))[0] != "late" {
			t.Errorf("%s: %d", name, a.status)
		}
	}
	c := dial(t, addr)
	c.send(ask + "Content-Length: 99999999\r\n\r\n")
	a := c.receive("POST")
	if a.status == 100 {
		a = c.receive("POST")
	}
	wantProblem(t, a, 413, "body_too_large")
}

// TestWireHeadLimit proves the limit of a request's head, however it is filled,
// and that what is just below it passes.
func TestWireHeadLimit(t *testing.T) {
	f := newFake()
	addr := listen(t, newServer(t, f, Options{}))
	head := func(n int) string {
		text := "GET /livez HTTP/1.1\r\nHost: x\r\nX: "
		return text + strings.Repeat("x", n-len(text)-4) + "\r\n\r\n"
	}
	for name, tc := range map[string]struct {
		text   string
		status int
	}{
		"just below":       {head(headBytesMax), 200},
		"just above":       {head(headBytesMax + 1), 431},
		"many fields":      {"GET /livez HTTP/1.1\r\nHost: x\r\n" + strings.Repeat("X: y\r\n", 4000) + "\r\n", 431},
		"a long target":    {"GET /livez?" + strings.Repeat("x", headBytesMax) + " HTTP/1.1\r\nHost: x\r\n\r\n", 431},
		"a head to no end": {"GET /livez HTTP/1.1\r\nHost: x\r\n" + strings.Repeat("X: y\r\n", 4000), 431},
		"no line to end":   {strings.Repeat("G", headBytesMax+1), 431},
	} {
		c := dial(t, addr)
		c.send(tc.text)
		a := c.receive("GET")
		if a.status != tc.status {
			t.Errorf("%s: %d %s", name, a.status, a.body)
		}
		if a.status == 431 {
			wantContains(t, wantProblem(t, a, 431, "headers_too_large"), "16384")
		}
	}
}

// TestWireSlow proves that a client which writes and reads in small pieces gets
// what any other gets, while others are served; and that one which stops reading
// is let go of.
func TestWireSlow(t *testing.T) {
	f := newFake()
	s := newServer(t, f, Options{MaxBody: fsm.BodyMax})
	s.conns.WriteTimeout = 200 * time.Millisecond
	addr := listen(t, s)
	big := strings.Repeat("0123456789abcdef", fsm.BodyMax/16)
	fast := dial(t, addr)
	fast.send(post(enqueueQ, big) + post(enqueueQ, big))
	fast.receive("POST")
	fast.receive("POST")

	slow := dial(t, addr)
	for _, b := range []byte(post(dequeueQ, "", rawBytes)) {
		slow.send(string(b))
	}
	// Its answer does not fit in any buffer: it is on its way while others are served.
	if _, err := slow.br.Peek(1); err != nil {
		t.Fatal(err)
	}
	fast.send(post("/v1/queues/other/enqueue", "x"))
	if a := fast.receive("POST"); a.status != 201 {
		t.Errorf("beside a slow reader: %d", a.status)
	}
	// It takes its bytes with pauses shorter than the timeout, longer in sum.
	slow.br.Reset(&pausing{r: slow.TCPConn, head: peeked(t, slow), every: 1 << 20, pause: 60 * time.Millisecond})
	if a := slow.receive("POST"); a.status != 200 || a.body != big {
		t.Errorf("a slow reader: %d, %d bytes", a.status, len(a.body))
	}
	stuck := dial(t, addr)
	stuck.send(post(dequeueQ, "", rawBytes))
	if _, err := stuck.br.ReadByte(); err != nil {
		t.Fatal(err)
	}
	spin(t, "the end of a stuck connection", func() bool {
		return connFrom(s, stuck) == nil
	})
}

// peeked takes what the client's reader has buffered.
func peeked(t *testing.T, c *client) string {
	t.Helper()
	b, err := c.br.Peek(c.br.Buffered())
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// pausing is a reader that rests now and then.
type pausing struct {
	r     net.Conn
	head  string
	every int
	pause time.Duration
	n     int
}

func (p *pausing) Read(b []byte) (int, error) {
	if p.head != "" {
		n := copy(b, p.head)
		p.head = p.head[n:]
		return n, nil
	}
	if p.n >= p.every {
		p.n = 0
		time.Sleep(p.pause) // the slowness is the test's input
	}
	n, err := p.r.Read(b)
	p.n += n
	return n, err
}

// TestWireHalfClosed proves that each request but a dequeue is answered when its
// client has closed its sending side, pipelined ones in order, and that a dequeue
// then hands nothing out.
func TestWireHalfClosed(t *testing.T) {
	f := newFake()
	s := newServer(t, f, Options{})
	addr := listen(t, s)
	c := dial(t, addr)
	id := sample().ID.String()
	c.send(post(enqueueQ, "x") + post("/v1/queues/q/jobs", `[{"body":"x"}]`) + post("/v1/ack", `{"items":[{"id":"`+id+`"}]}`) +
		"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n" + "GET /nowhere HTTP/1.1\r\nHost: x\r\n\r\n")
	c.CloseWrite()
	for i, want := range []int{201, 201, 200, 200, 404} {
		if a := c.receive("POST"); a.status != want {
			t.Errorf("request %d: %d", i, a.status)
		}
	}
	if _, err := c.br.ReadByte(); err != io.EOF {
		t.Errorf("afterwards: %v", err)
	}
	// Parked, so that the FIN is there before any job.
	c = dial(t, addr)
	c.send(post("/v1/queues/empty/dequeue?wait=50s", ""))
	f.await(t, "the parked dequeue", func() bool { return f.waiting() == 1 })
	c.CloseWrite()
	wantContains(t, wantProblem(t, c.receive("POST"), 400, "invalid_request"), "half-closed")
	if f.handed != 0 {
		t.Error("a job was handed out")
	}
}
