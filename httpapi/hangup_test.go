package httpapi

import (
	"bufio"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"math/big"
	mrand "math/rand/v2"
	"net"
	"sync"
	"testing"
	"time"

	"raftq/fsm"
	"raftq/hangup"
)

const dequeueQ = "/v1/queues/q/dequeue"

var rawBytes = "Accept: application/octet-stream"

func fill(f *fake, n int) {
	for i := range n {
		f.Do(&fsm.Enqueue{Jobs: []fsm.NewJob{{Queue: "q", Body: fmt.Appendf(nil, "job %d", i)}}}, false, 0, nil)
	}
}

func (f *fake) waiting() int { return len(f.parked) }

// TestHangupWhileParked proves that a close, a half-close and a reset each end
// a parked dequeue, and that it takes no job afterwards.
func TestHangupWhileParked(t *testing.T) {
	for name, leave := range map[string]func(c *client){
		"close":      func(c *client) { c.Close() },
		"half-close": func(c *client) { c.CloseWrite() },
		"reset":      func(c *client) { c.SetLinger(0); c.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			f := newFake()
			s := newServer(t, f, Options{})
			c := dial(t, listen(t, s))
			c.send(post(dequeueQ+"?wait=50s", ""))
			f.await(t, "the parked dequeue", func() bool { return f.waiting() == 1 })
			leave(c)
			f.await(t, "its end", func() bool { return f.waiting() == 0 })
			if name == "half-close" {
				wantContains(t, wantProblem(t, c.receive("POST"), 400, "invalid_request"), "half-closed")
			}
			fill(f, 1)
			if f.handed != 0 {
				t.Error("a job was handed to nobody")
			}
		})
	}
}

// TestPipelinedBytesAreNoHangup proves that neither bytes of a further request
// nor a pipelined dequeue look like a hang-up, and that each answer leaves
// when it is ready instead of waiting for the next.
func TestPipelinedBytesAreNoHangup(t *testing.T) {
	f := newFake()
	s := newServer(t, f, Options{})
	c := dial(t, listen(t, s))
	c.send(post("/v1/queues/other/enqueue", "x") + post(dequeueQ+"?wait=50s", "", rawBytes) + post(dequeueQ+"?wait=50s", "", rawBytes))
	if a := c.receive("POST"); a.status != 201 {
		t.Fatalf("the enqueue's answer: %d", a.status)
	}
	for i := range 2 {
		f.await(t, "the parked dequeue", func() bool { return f.waiting() == 1 })
		fill(f, 1)
		if a := c.receive("POST"); a.status != 200 || a.body != "job 0" {
			t.Fatalf("dequeue %d: %d %q", i, a.status, a.body)
		}
	}
	closeServer(t, s) // counts come after the system call that the client saw
	if w := s.stats.written.Load(); w != 2 || f.returned != 0 {
		t.Errorf("%d written, %d returned", w, f.returned)
	}
}

// TestHangupBetweenGrantAndWrite proves that a client which left while its
// dequeue was being committed gets nothing and the jobs go back.
func TestHangupBetweenGrantAndWrite(t *testing.T) {
	for name, leave := range map[string]func(c *client){
		"close":      func(c *client) { c.Close() },
		"half-close": func(c *client) { c.CloseWrite() },
		"reset":      func(c *client) { c.SetLinger(0); c.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			f := newFake()
			fill(f, 3)
			s := newServer(t, f, Options{})
			granted, release := make(chan struct{}), make(chan struct{})
			f.answer = func(op fsm.Op) (fsm.Result, error) {
				close(granted)
				<-release
				return fsm.Result{Position: f.position(), Jobs: f.take(op.(*fsm.Dequeue))}, nil
			}
			c := dial(t, listen(t, s))
			c.send(post(dequeueQ+"?max=2", ""))
			<-granted
			leave(c)
			awaitHangup(t, s, c)
			close(release)
			f.await(t, "what comes back", func() bool { return f.returned == 2 })
			if w, u := s.stats.written.Load(), s.stats.undelivered.Load(); w != 0 || u != 2 {
				t.Errorf("%d written, %d undelivered", w, u)
			}
			if name == "half-close" {
				if _, err := c.tryReceive("POST"); err != io.ErrUnexpectedEOF && err != io.EOF {
					t.Errorf("the client read %v, want the end", err)
				}
			}
		})
	}
}

// awaitHangup waits until the kernel has told the server's socket.
func awaitHangup(t testing.TB, s *Server, c *client) {
	t.Helper()
	end := connFrom(s, c)
	if end == nil {
		t.Fatal("no such connection")
	}
	select {
	case <-end.Gone():
	case <-time.After(10 * time.Second):
		t.Fatal("the FIN never arrived")
	}
}

// connFrom finds the server's end of a connection, nil when it is closed.
func connFrom(s *Server, c *client) (end *hangup.Conn) {
	s.conns.Close(func(sc *hangup.Conn) bool {
		if sc.RemoteAddr().String() == c.LocalAddr().String() {
			end = sc
		}
		return false
	})
	return end
}

// TestHangupAfterAnswer proves that a client which leaves once its answer is
// written keeps the job: it may have read it.
func TestHangupAfterAnswer(t *testing.T) {
	f := newFake()
	fill(f, 1)
	s := newServer(t, f, Options{})
	c := dial(t, listen(t, s))
	c.send(post(dequeueQ, "", rawBytes))
	if _, err := c.br.ReadByte(); err != nil {
		t.Fatal(err)
	}
	c.SetLinger(0)
	c.Close()
	closeServer(t, s)
	if w := s.stats.written.Load(); w != 1 || f.returned != 0 {
		t.Errorf("%d written, %d returned", w, f.returned)
	}
}

// TestHangupWithUnknownEnd proves that a dequeue whose replica cannot say what became
// of it is never answered as not applied, though its client half-closed: the hand-out
// may be in the log.
func TestHangupWithUnknownEnd(t *testing.T) {
	f := newFake()
	s := newServer(t, f, Options{})
	parked, over := make(chan struct{}), make(chan struct{})
	f.answer = func(fsm.Op) (fsm.Result, error) {
		close(parked)
		<-over
		return fsm.Result{}, &fsm.Error{Code: fsm.CodeCommitTimeout, Detail: "the node has stopped", Unknown: true}
	}
	c := dial(t, listen(t, s))
	c.send(post(dequeueQ+"?wait=50s", ""))
	<-parked
	c.CloseWrite()
	awaitHangup(t, s, c)
	close(over)
	wantProblem(t, c.receive("POST"), 504, "commit_timeout")
}

// TestHangupAfterPipelinedEnqueue proves that a hang-up takes back the
// dequeue's answer and not the answers before it.
func TestHangupAfterPipelinedEnqueue(t *testing.T) {
	f := newFake()
	fill(f, 1)
	s := newServer(t, f, Options{})
	c := dial(t, listen(t, s))
	c.send(post("/v1/queues/other/enqueue", "x") + post(dequeueQ, ""))
	c.CloseWrite()
	if a := c.receive("POST"); a.status != 201 {
		t.Errorf("the enqueue's answer: %d", a.status)
	}
	f.await(t, "the end of the dequeue", func() bool { return f.handed == 1 })
	if a, err := c.tryReceive("POST"); err == nil {
		// The FIN may have arrived after the answer.
		closeServer(t, s)
		if a.status != 200 || s.stats.written.Load() != 1 {
			t.Errorf("got %d, %d written", a.status, s.stats.written.Load())
		}
	} else {
		f.await(t, "what comes back", func() bool { return f.returned == 1 })
	}
}

// TestLargeAnswer proves that an answer which takes many writes counts as
// written from its first byte on, even when the client never reads it.
func TestLargeAnswer(t *testing.T) {
	f := newFake()
	f.Do(&fsm.Enqueue{Jobs: []fsm.NewJob{{Queue: "q", Body: make([]byte, 16<<20)}}}, false, 0, nil)
	s := newServer(t, f, Options{})
	c := dial(t, listen(t, s))
	c.send(post(dequeueQ, "", rawBytes))
	if _, err := c.br.ReadByte(); err != nil {
		t.Fatal(err)
	}
	c.SetLinger(0)
	c.Close()
	closeServer(t, s)
	if w := s.stats.written.Load(); w != 1 || f.returned != 0 {
		t.Errorf("%d written, %d returned", w, f.returned)
	}
}

// TestHangupTLS proves the rule for TLS: records in the socket are no hang-up,
// a FIN is one.
func TestHangupTLS(t *testing.T) {
	f := newFake()
	s := newServer(t, f, Options{TLS: testTLS(t)})
	addr := listen(t, s)
	tc, err := tls.Dial("tcp", addr, &tls.Config{InsecureSkipVerify: true})
	if err != nil {
		t.Fatal(err)
	}
	defer tc.Close()
	fmt.Fprint(tc, post(dequeueQ+"?wait=50s", "", rawBytes))
	f.await(t, "the parked dequeue", func() bool { return f.waiting() == 1 })
	fmt.Fprint(tc, post(dequeueQ+"?wait=50s", "", rawBytes)) // a record while it waits
	fill(f, 1)
	f.await(t, "the second dequeue", func() bool { return f.waiting() == 1 && f.handed == 1 })
	tc.NetConn().Close()
	f.await(t, "its end", func() bool { return f.waiting() == 0 })
	closeServer(t, s)
	if w := s.stats.written.Load(); w != 1 || f.returned != 0 {
		t.Errorf("%d written, %d returned", w, f.returned)
	}
}

func testTLS(t *testing.T) *tls.Config {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	tmpl := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	return &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}
}

// TestRandomHangups proves over many connections, pipelined or not, leaving at
// random moments in random ways, that each hand-out is either given back or
// counted as written, and that whatever a client read was counted as written.
func TestRandomHangups(t *testing.T) {
	const conns = 1000
	f := newFake()
	s := newServer(t, f, Options{})
	addr := listen(t, s)
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	var wg sync.WaitGroup
	var mu sync.Mutex
	read := 0
	slots := make(chan struct{}, 50)
	for i := range conns {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			n := randomClient(t, addr, mrand.New(mrand.NewPCG(seed, uint64(i))))
			mu.Lock()
			read += n
			mu.Unlock()
		})
		fill(f, 1)
	}
	wg.Wait()
	closeServer(t, s)
	f.mu.Lock()
	defer f.mu.Unlock()
	written, undelivered := s.stats.written.Load(), s.stats.undelivered.Load()
	t.Logf("%d handed, %d written, %d given back, %d read", f.handed, written, undelivered, read)
	if uint64(f.handed) != written+undelivered || uint64(f.returned) != undelivered {
		t.Errorf("%d handed out, but %d written and %d given back (%d at the replica)", f.handed, written, undelivered, f.returned)
	}
	if uint64(read) > written {
		t.Errorf("clients read %d, only %d counted", read, written)
	}
	if written == 0 || undelivered == 0 {
		t.Errorf("the test reached only one side: %d written, %d undelivered", written, undelivered)
	}
}

// randomClient sends some requests, reads some answers, and leaves. It returns
// how many jobs it read.
func randomClient(t *testing.T, addr string, rnd *mrand.Rand) (read int) {
	nc, err := net.Dial("tcp", addr)
	if err != nil {
		t.Error(err)
		return 0
	}
	defer nc.Close()
	c := &client{TCPConn: nc.(*net.TCPConn), t: t}
	c.br = bufio.NewReader(nc)
	nc.SetDeadline(time.Now().Add(20 * time.Second))
	text, n := "", 1+rnd.IntN(3)
	for range n {
		switch rnd.IntN(4) {
		case 0:
			text += post("/v1/queues/other/enqueue", "x")
		case 1:
			text += post(dequeueQ, "", rawBytes)
		default:
			text += post(fmt.Sprintf("%s?wait=%dms", dequeueQ, 1+rnd.IntN(20)), "", rawBytes)
		}
	}
	if _, err := io.WriteString(nc, text); err != nil {
		return 0
	}
	for range rnd.IntN(n + 1) {
		a, err := c.tryReceive("POST")
		if err != nil {
			return read
		}
		if a.status == 200 {
			read++
		}
	}
	switch rnd.IntN(3) {
	case 0:
		c.SetLinger(0)
	case 1:
		c.CloseWrite()
		for {
			a, err := c.tryReceive("POST")
			if err != nil {
				return read
			}
			if a.status == 200 {
				read++
			}
		}
	}
	return read
}
