package hangup

import (
	"bytes"
	"io"
	"net"
	"testing"
	"time"
)

// reader is a client that takes its answer when the test does.
type reader struct {
	nc   net.Conn
	sc   *Conn
	done chan error // of the write
}

// Readers that take nothing hold no more than the bound together: who has not moved
// for longest is closed first, and who reads, however slowly, gets all of it.
func TestStalledBytesAreBounded(t *testing.T) {
	e := newEnd(t, "tcp", "127.0.0.1:0", 20)
	answer := bytes.Repeat([]byte("an answer that fits no buffer\n"), 300_000)
	e.stalled.max = 3 * len(answer)
	spin := func(what string, ok func() bool) {
		t.Helper()
		for end := time.Now().Add(10 * time.Second); !ok(); {
			if time.Now().After(end) {
				t.Fatalf("%s never came", what)
			}
			time.Sleep(time.Millisecond) // between polls of a condition
		}
	}
	first := func() (c *Conn, waiting int) {
		e.stalled.mu.Lock()
		defer e.stalled.mu.Unlock()
		if f := e.stalled.list.Front(); f != nil {
			c = f.Value.(*Conn)
		}
		return c, e.stalled.list.Len()
	}
	begin := func(waiting int) *reader {
		t.Helper()
		nc, sc := e.connect(t)
		r := &reader{nc, sc, make(chan error, 1)}
		go func() {
			_, err := sc.Write(answer)
			r.done <- err
		}()
		spin("a write that waits", func() bool {
			e.stalled.mu.Lock()
			defer e.stalled.mu.Unlock()
			return sc.place != nil && e.stalled.list.Len() == waiting
		})
		return r
	}
	ended := func(r *reader) {
		t.Helper()
		if err := <-r.done; err == nil {
			t.Error("a connection that was to be closed has written its answer")
		}
	}
	whole := func(r *reader, taken int64) {
		t.Helper()
		n, err := io.CopyN(io.Discard, r.nc, int64(len(answer))-taken)
		if err != nil || <-r.done != nil {
			t.Errorf("a reader got %d of %d bytes: %v", taken+n, len(answer), err)
		}
	}

	a, b, c := begin(1), begin(2), begin(3)
	taken := int64(0)
	spin("a moved reader", func() bool {
		n, _ := io.CopyN(io.Discard, a.nc, 1<<16)
		taken += n
		f, _ := first()
		return f == b.sc
	})
	d := begin(3)
	ended(b)
	whole(a, taken)
	spin("the end of a whole answer", func() bool { f, n := first(); return f == c.sc && n == 2 })
	if held, want := e.stalled.held(), 2*len(answer); held != want {
		t.Errorf("%d bytes are held, want %d", held, want)
	}
	e.stalled.max = 1
	alone := begin(1)
	ended(c)
	ended(d)
	whole(alone, 0)
	spin("nothing held", func() bool { return e.stalled.held() == 0 })
	if n := e.stalled.cut.Load(); n != 3 {
		t.Errorf("%d connections were closed for others, want 3", n)
	}
}
