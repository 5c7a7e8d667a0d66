package respapi

import (
	"bufio"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"testing"
	"time"
)

// TestHangUps proves that a close, a half-close and a reset each end a waiting
// GETJOB, which takes no job afterwards.
func TestHangUps(t *testing.T) {
	for name, leave := range map[string]func(c *respClient){
		"close":      func(c *respClient) { c.Close() },
		"half-close": func(c *respClient) { c.Conn.(*net.TCPConn).CloseWrite() },
		"reset":      func(c *respClient) { c.Conn.(*net.TCPConn).SetLinger(0); c.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			r := newInProcess(t)
			s := newServer(t, r, Options{})
			c := dialResp(t, listen(t, s))
			c.send("GETJOB", "FROM", "q")
			r.await(t, "the waiting GETJOB", func() bool { return len(r.parked) == 1 })
			leave(c)
			r.await(t, "its end", func() bool { return len(r.parked) == 0 })
			if name == "half-close" {
				if v := text(c.receive()); !strings.Contains(v, "half-closed") {
					t.Error(v)
				}
			}
			other := dialResp(t, c.RemoteAddr().String())
			other.do("ADDJOB", "q", "x", 0)
			if v := other.do("QLEN", "q"); v != int64(1) {
				t.Errorf("%v jobs are there", v)
			}
		})
	}
}

// TestRandomHangUps proves over many connections, pipelined or not, leaving at
// random moments in random ways, that each hand-out is either given back or
// counted as written, and that whatever a client read was counted as written.
func TestRandomHangUps(t *testing.T) {
	r := newInProcess(t)
	s := newServer(t, r, Options{})
	addr := listen(t, s)
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	producer := dialResp(t, addr)
	var wg sync.WaitGroup
	var mu sync.Mutex
	read := 0
	slots := make(chan struct{}, 30)
	for i := range 500 {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			n := randomClient(t, addr, rand.New(rand.NewPCG(seed, uint64(i))))
			mu.Lock()
			read += n
			mu.Unlock()
		})
		producer.do("ADDJOB", "q", i, 0)
	}
	wg.Wait()
	closeServer(t, s)
	r.mu.Lock()
	defer r.mu.Unlock()
	written, undelivered := int(s.stats.written.Load()), int(s.stats.undelivered.Load())
	t.Logf("%d handed, %d written, %d given back, %d read", r.handed, written, undelivered, read)
	if r.handed != written+undelivered || r.returned != undelivered {
		t.Errorf("%d handed out, but %d written and %d given back (%d at the replica)", r.handed, written, undelivered, r.returned)
	}
	if read > written {
		t.Errorf("clients read %d, only %d counted", read, written)
	}
	if written == 0 {
		t.Error("nothing was written")
	}
	if err := r.m.Check(); err != nil {
		t.Error(err)
	}
}

func randomClient(t *testing.T, addr string, rnd *rand.Rand) (read int) {
	nc, err := net.Dial("tcp", addr)
	if err != nil {
		t.Error(err)
		return 0
	}
	defer nc.Close()
	nc.SetDeadline(time.Now().Add(20 * time.Second))
	br := bufio.NewReader(nc)
	var train []byte
	n := 1 + rnd.IntN(4)
	for range n {
		switch rnd.IntN(4) {
		case 0:
			train = append(train, packed("PING")...)
		case 1:
			train = append(train, packed("GETJOB", "NOHANG", "COUNT", 2, "FROM", "q")...)
		default:
			train = append(train, packed("GETJOB", "TIMEOUT", 1+rnd.IntN(20), "FROM", "q")...)
		}
	}
	if _, err := nc.Write(train); err != nil {
		return 0
	}
	receive := func() bool {
		v, err := receiveResp(br)
		if jobs, ok := v.([]any); ok && err == nil {
			read += len(jobs)
		}
		return err == nil
	}
	for range rnd.IntN(n + 1) {
		if !receive() {
			return read
		}
	}
	switch rnd.IntN(3) {
	case 0:
		nc.(*net.TCPConn).SetLinger(0)
	case 1:
		nc.(*net.TCPConn).CloseWrite()
		for receive() {
		}
	}
	return read
}
