package hangup

import (
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"raftq/fsm"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// end is a front end of one connection at a time.
type end struct {
	*Conns
	written  atomic.Uint64
	returned atomic.Uint64
	refused  atomic.Uint64
	ln       net.Listener
}

func newEnd(t *testing.T, network, addr string, most int) *end {
	t.Helper()
	e := &end{}
	var err error
	e.Conns, err = New(Options{
		Max:      most,
		Refuse:   func(nc net.Conn, _ string) { e.refused.Add(1); nc.Close() },
		Written:  &e.written,
		GiveBack: func(items []fsm.Item) { e.returned.Add(uint64(len(items))) },
	})
	if err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen(network, addr)
	if err != nil {
		t.Fatal(err)
	}
	e.ln = e.Listen(ln)
	t.Cleanup(func() {
		e.ln.Close()
		e.Close(func(*Conn) bool { return true })
		e.Stop()
	})
	return e
}

func (e *end) connect(t *testing.T) (net.Conn, *Conn) {
	t.Helper()
	nc, err := net.Dial(e.ln.Addr().Network(), e.ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { nc.Close() })
	sc, err := e.ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	return nc, Of(sc)
}

var threeItems = make([]fsm.Item, 3)

func await(t *testing.T, gone <-chan struct{}) {
	t.Helper()
	select {
	case <-gone:
	case <-time.After(10 * time.Second):
		t.Fatal("the end of the client was not noticed")
	}
}

// A client that left before the first byte gives back, one that leaves later
// does not, over TCP and a unix socket, and bytes that wait are no hang-up.
func TestWrittenOrGivenBack(t *testing.T) {
	for _, network := range []string{"tcp", "unix"} {
		t.Run(network, func(t *testing.T) {
			addr := "127.0.0.1:0"
			if network == "unix" {
				addr = t.TempDir() + "/s"
			}
			e := newEnd(t, network, addr, 10)

			nc, sc := e.connect(t)
			io.WriteString(nc, "more")
			gone := sc.Gone()
			sc.Leave(threeItems)
			if _, err := sc.Write([]byte("jobs")); err != nil {
				t.Fatal(err)
			}
			if w, r := e.written.Load(), e.returned.Load(); w != 3 || r != 0 {
				t.Fatalf("%d written, %d returned", w, r)
			}
			nc.Close()
			await(t, gone)
			if n, err := io.ReadAll(sc); string(n) != "more" && err == nil {
				t.Errorf("read %q", n)
			}
			sc.Close()
			sc.Close()

			nc, sc = e.connect(t)
			nc.Close()
			await(t, sc.Gone())
			sc.Leave(threeItems)
			if _, err := sc.Write([]byte("jobs")); err == nil {
				t.Error("written to nobody")
			}
			if w, r := e.written.Load(), e.returned.Load(); w != 3 || r != 3 {
				t.Errorf("%d written, %d returned", w, r)
			}
			sc.Close()
			sc.Leave(threeItems) // after the close: nobody else would give it back
			if r := e.returned.Load(); r != 6 {
				t.Errorf("%d returned", r)
			}
			if e.Len() != 0 {
				t.Errorf("%d connections are left", e.Len())
			}
		})
	}
}

// One connection too many is refused, and the place of one that closed is free.
func TestMax(t *testing.T) {
	e := newEnd(t, "tcp", "127.0.0.1:0", 1)
	_, sc := e.connect(t)
	second, err := net.Dial("tcp", e.ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer second.Close()
	accepted := make(chan net.Conn, 1)
	go func() {
		nc, _ := e.ln.Accept()
		accepted <- nc
	}()
	if _, err := second.Read(make([]byte, 1)); err != io.EOF {
		t.Fatalf("the second was not refused: %v", err)
	}
	sc.Close()
	third, err := net.Dial("tcp", e.ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer third.Close()
	if nc := <-accepted; nc == nil || e.refused.Load() != 1 {
		t.Errorf("accepted %v, %d refused", nc, e.refused.Load())
	}
}

// Leave ends waits, now and to come.
func TestLeave(t *testing.T) {
	e := newEnd(t, "tcp", "127.0.0.1:0", 2)
	_, first := e.connect(t)
	_, second := e.connect(t)
	gone := first.Gone()
	e.Leave()
	await(t, gone)
	await(t, second.Gone())
}

// Whatever the moments: each hand-out ends in exactly one way.
func TestRandomMoments(t *testing.T) {
	e := newEnd(t, "tcp", "127.0.0.1:0", 100)
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	const rounds = 300
	var wg sync.WaitGroup
	for i := range rounds {
		nc, sc := e.connect(t)
		r := rand.New(rand.NewPCG(seed, uint64(i)))
		linger, spin := r.IntN(2), r.IntN(2000)
		wg.Go(func() {
			for range spin {
				_ = time.Now()
			}
			nc.(*net.TCPConn).SetLinger(linger - 1)
			nc.Close()
		})
		wg.Go(func() {
			sc.Leave(threeItems)
			sc.Write([]byte("jobs"))
			sc.Close()
		})
		if i%50 == 49 {
			wg.Wait()
		}
	}
	wg.Wait()
	if w, r := e.written.Load(), e.returned.Load(); w+r != 3*rounds {
		t.Errorf("%d written and %d returned of %d", w, r, 3*rounds)
	}
}
