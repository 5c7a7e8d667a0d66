package httpapi

import (
	"context"
	"errors"
	"io"
	"runtime"
	"strings"
	"testing"
	"time"

	"raftq/fsm"
)

// TestHTTPOddities proves that what real clients and proxies send works:
// HTTP/1.0, a GET with a body, small pieces, lower-case names. What else travels
// is in wire_test.go.
func TestHTTPOddities(t *testing.T) {
	f := newFake()
	s := newServer(t, f, Options{})
	addr := listen(t, s)
	for _, tc := range []struct {
		name, text string
		status     int
		body       string // of the job
	}{
		{"HTTP/1.0", "POST /v1/queues/q/enqueue HTTP/1.0\r\nContent-Length: 1\r\n\r\nx", 201, "x"},
		{"lower case", "POST /v1/queues/q/enqueue HTTP/1.1\r\nhost: x\r\ncontent-length: 1\r\nraftq-consistency: fast\r\n\r\nz", 201, "z"},
		{"multipart as bytes", "POST /v1/queues/q/enqueue HTTP/1.1\r\nHost: x\r\nContent-Type: multipart/form-data; boundary=b\r\nContent-Length: 3\r\n\r\n--b", 201, "--b"},
	} {
		c := dial(t, addr)
		c.send(tc.text)
		a := c.receive("POST")
		if a.status != tc.status || bodies(f.lastOp(t))[0] != tc.body {
			t.Errorf("%s: %d %s", tc.name, a.status, a.body)
		}
	}

	c := dial(t, addr)
	c.send("GET /livez HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\nbodyGET /livez HTTP/1.1\r\nHost: x\r\n\r\nHEAD /livez HTTP/1.1\r\nHost: x\r\n\r\n")
	for _, m := range []string{"GET", "GET", "HEAD"} {
		if a := c.receive(m); a.status != 200 || (a.body == "") != (m == "HEAD") {
			t.Errorf("GET with a body: %d %q", a.status, a.body)
		}
	}

	c = dial(t, addr)
	for _, b := range []byte(post(enqueueQ, "xyz")) {
		c.send(string(b))
	}
	if a := c.receive("POST"); a.status != 201 || bodies(f.lastOp(t))[0] != "xyz" {
		t.Errorf("byte by byte: %d", a.status)
	}

	// Connection: close is obeyed, and HTTP/1.0 closes by itself.
	for _, text := range []string{post(enqueueQ, "x", "Connection: close"), "POST /v1/queues/q/enqueue HTTP/1.0\r\nContent-Length: 1\r\n\r\nx"} {
		c := dial(t, addr)
		c.send(text)
		if a := c.receive("POST"); a.status != 201 {
			t.Errorf("close: %d", a.status)
		}
		if _, err := c.br.ReadByte(); err != io.EOF {
			t.Errorf("the connection stayed open: %v", err)
		}
	}
}

// TestPipelining proves that many pipelined requests are answered in order.
func TestPipelining(t *testing.T) {
	f := newFake()
	s := newServer(t, f, Options{})
	c := dial(t, listen(t, s))
	const n = 100
	c.send(strings.Repeat(post(enqueueQ, "x")+post(dequeueQ, "", rawBytes)+"GET /nowhere HTTP/1.1\r\nHost: x\r\n\r\n", n))
	for range n {
		for i, want := range []int{201, 200, 404} {
			if a := c.receive([]string{"POST", "POST", "GET"}[i]); a.status != want {
				t.Fatalf("got %d, want %d", a.status, want)
			}
		}
	}
}

// TestBrokenRequests proves that what is no request is answered as a problem
// that names the limit, and that the connection ends.
func TestBrokenRequests(t *testing.T) {
	f := newFake()
	s := newServer(t, f, Options{})
	addr := listen(t, s)
	for _, tc := range []struct {
		name, text, code, names string
		status                  int
	}{
		{"garbage", "\x16\x03\x01\x00\xa5\x01\x00\r\n\r\n", "invalid_request", "", 400},
		{"large head", "GET /livez HTTP/1.1\r\nX: " + strings.Repeat("x", 20_000) + "\r\n\r\n", "headers_too_large", "16384", 431},
		{"large body", "POST /v1/queues/q/enqueue HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999\r\n\r\n" + strings.Repeat("x", 1<<20), "body_too_large", "max-body", 413},
		{"negative length", "POST /v1/queues/q/enqueue HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n", "invalid_request", "", 400},
		{"bad chunk", "POST /v1/queues/q/enqueue HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", "invalid_request", "", 400},
	} {
		c := dial(t, addr)
		c.send(tc.text)
		a := c.receive("POST")
		detail := wantProblem(t, a, tc.status, tc.code)
		wantContains(t, detail, tc.names)
		if _, err := c.br.ReadByte(); err != io.EOF {
			t.Errorf("%s: the connection stayed open: %v", tc.name, err)
		}
	}
	if f.opCount() != 0 {
		t.Error("a broken request reached the replica")
	}
	// A body over the job's limit but within a request's keeps the connection.
	c := dial(t, addr)
	c.send(post(enqueueQ, strings.Repeat("x", 1<<20+1)) + post(enqueueQ, "x"))
	wantProblem(t, c.receive("POST"), 413, "body_too_large")
	if a := c.receive("POST"); a.status != 201 {
		t.Errorf("afterwards: %d", a.status)
	}
}

// TestBodiesAreCopied proves that an op keeps its bytes while the connection
// reads further requests into the same buffers.
func TestBodiesAreCopied(t *testing.T) {
	f := newFake()
	s := newServer(t, f, Options{})
	c := dial(t, listen(t, s))
	text := post(enqueueQ+"?header.name=first", "first") + post("/v1/queues/q/jobs", `[{"body":"fi\u0072st"},{"body":"first","headers":{"name":"first"}}]`) +
		post("/v1/dequeue", `{"queues":["first"],"consumer":"first"}`) + post("/v1/nack", `{"items":[{"id":"`+sample().ID.String()+`","error":"first"}]}`)
	// A long one before them all, so that all lie in the same buffer.
	c.send(post(enqueueQ, strings.Repeat("-", 4096)) + text + strings.ReplaceAll(text, "first", "XXXXX"))
	for range 9 {
		c.receive("POST")
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	one, two := f.ops[1].(*fsm.Enqueue).Jobs[0], f.ops[2].(*fsm.Enqueue).Jobs
	take, nack := f.ops[3].(*fsm.Dequeue), f.ops[4].(*fsm.Nack)
	for _, got := range []string{string(one.Body), one.Headers[0].Value, string(two[0].Body), string(two[1].Body), two[1].Headers[0].Value, take.Queues[0], take.Consumer, nack.Items[0].Error} {
		if got != "first" {
			t.Errorf("%q", got)
		}
	}
}

// TestTooManyConnections proves that one connection too many is refused with a
// problem and takes none of the others' places.
func TestTooManyConnections(t *testing.T) {
	s := newServer(t, newFake(), Options{MaxConns: 2})
	addr := listen(t, s)
	var kept []*client
	for range 2 {
		c := dial(t, addr)
		c.send(post(enqueueQ, "x"))
		c.receive("POST")
		kept = append(kept, c)
	}
	wantContains(t, wantProblem(t, dial(t, addr).receive("POST"), 503, "overloaded"), "at most 2 connections")
	kept[0].Close()
	spin(t, "the free place", func() bool {
		return s.conns.Len() == 1
	})
	c := dial(t, addr)
	c.send(post(enqueueQ, "x"))
	if a := c.receive("POST"); a.status != 201 {
		t.Errorf("afterwards: %d", a.status)
	}
}

// TestSlowRequest proves that a request which does not arrive in time is
// answered 408, even though deadlines are handed to the socket lazily.
func TestSlowRequest(t *testing.T) {
	s := newServer(t, newFake(), Options{})
	s.http.ReadTimeout = 50 * time.Millisecond
	c := dial(t, listen(t, s))
	c.send(post(enqueueQ, "x"))
	c.receive("POST")
	c.send("POST /v1/queues/q/enqueue HTTP/1.1\r\nHost: x\r\n")
	wantProblem(t, c.receive("POST"), 408, "request_timeout")
	s = newServer(t, newFake(), Options{})
	s.http.IdleTimeout = 50 * time.Millisecond
	c = dial(t, listen(t, s))
	c.send(post(enqueueQ, "x"))
	c.receive("POST")
	if _, err := c.br.ReadByte(); err != io.EOF {
		t.Errorf("an idle connection: %v", err)
	}
}

// TestCloseInTime proves that Close gives up waiting when its context is over,
// cuts connections, and gives back what was not written.
func TestCloseInTime(t *testing.T) {
	f := newFake()
	fill(f, 1)
	s := newServer(t, f, Options{})
	entered, release := make(chan struct{}), make(chan struct{})
	f.answer = func(op fsm.Op) (fsm.Result, error) {
		close(entered)
		<-release
		return fsm.Result{Position: f.position(), Jobs: f.take(op.(*fsm.Dequeue))}, nil
	}
	c := dial(t, listen(t, s))
	c.send(post(dequeueQ, ""))
	<-entered
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := s.Close(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("close: %v", err)
	}
	if _, err := c.br.ReadByte(); err == nil {
		t.Error("the connection was not cut")
	}
	close(release)
	f.await(t, "what comes back", func() bool { return f.returned == 1 })
}

// TestClose proves that Close ends waiting dequeues with leaving, lets other
// requests finish, and closes idle connections.
func TestClose(t *testing.T) {
	f := newFake()
	s := newServer(t, f, Options{})
	addr := listen(t, s)
	idle, waiting, busy := dial(t, addr), dial(t, addr), dial(t, addr)
	idle.send(post(enqueueQ+"x", ""))
	idle.receive("POST")
	waiting.send(post(dequeueQ+"?wait=55s", ""))
	f.await(t, "the parked dequeue", func() bool { return f.waiting() == 1 })
	entered, release := make(chan struct{}), make(chan struct{})
	f.mu.Lock()
	f.answer = func(op fsm.Op) (fsm.Result, error) {
		close(entered)
		<-release
		return fsm.Result{Items: []fsm.ItemResult{{}}}, nil
	}
	f.mu.Unlock()
	busy.send(post(enqueueQ, "x"))
	<-entered
	closed := make(chan struct{})
	start := time.Now()
	go func() { closeServer(t, s); close(closed) }()
	for !s.leaving.Load() {
		runtime.Gosched() // nothing announces it
	}
	close(release)
	wantProblem(t, waiting.receive("POST"), 503, "leaving")
	if a := busy.receive("POST"); a.status != 201 {
		t.Errorf("the request under way: %d", a.status)
	}
	if _, err := idle.br.ReadByte(); err != io.EOF {
		t.Errorf("the idle connection: %v", err)
	}
	<-closed
	if d := time.Since(start); d > 3*time.Second {
		t.Errorf("it took %v", d)
	}
	wantProblem(t, ask(t, s, "GET", "/readyz", ""), 503, "leaving")
}
