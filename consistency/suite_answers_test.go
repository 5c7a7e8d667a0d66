package consistency

import (
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// lossyProxy stands between clients and a node. It passes what they send on, some of
// it late, and cuts some answers off: their clients never learn what became of what
// they asked for.
type lossyProxy struct {
	ln   net.Listener
	to   string
	quit chan struct{}
	wg   sync.WaitGroup
	cut  atomic.Int64 // answers
	late atomic.Int64 // requests passed on after their client may have left
	mu   sync.Mutex
	rng  *rand.Rand
}

const (
	cutPart, latePart = 0.3, 0.2
	lateLeast         = time.Second // and up to three times that; a client of the load leaves after 1.5 s
	answerWithin      = 4 * time.Second
)

func newLossyProxy(to string, seed uint64) (*lossyProxy, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &lossyProxy{ln: ln, to: to, quit: make(chan struct{}), rng: rand.New(rand.NewPCG(seed, 7))}
	p.wg.Go(func() {
		for {
			in, err := ln.Accept()
			if err != nil {
				return
			}
			p.wg.Go(func() { p.serve(in) })
		}
	})
	return p, nil
}

// close ends it when what is late was passed on.
func (p *lossyProxy) close() {
	close(p.quit)
	p.ln.Close()
	p.wg.Wait()
}

func (p *lossyProxy) chance(part float64) (yes bool, r float64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.rng.Float64() < part, p.rng.Float64()
}

func (p *lossyProxy) serve(in net.Conn) {
	defer in.Close()
	out, err := net.DialTimeout("tcp", p.to, time.Second)
	if err != nil {
		return
	}
	defer out.Close()
	var down sync.WaitGroup
	down.Go(func() {
		defer in.Close() // the other direction ends too
		b := make([]byte, 64<<10)
		for {
			n, err := out.Read(b)
			if n > 0 {
				if yes, _ := p.chance(cutPart); yes {
					p.cut.Add(1)
					return
				}
				if _, err := in.Write(b[:n]); err != nil {
					return
				}
			}
			if err != nil {
				return
			}
		}
	})
	b := make([]byte, 64<<10)
	for {
		n, err := in.Read(b)
		if n > 0 {
			if yes, r := p.chance(latePart); yes {
				p.late.Add(1)
				time.Sleep(lateLeast + time.Duration(2*r*float64(lateLeast))) // the fault itself
			}
			if _, err := out.Write(b[:n]); err != nil {
				break
			}
		}
		select {
		case <-p.quit:
			err = net.ErrClosed
		default:
		}
		if err != nil {
			break
		}
	}
	// The client has left; the node does not know, and answers all the same.
	_ = out.SetReadDeadline(time.Now().Add(answerWithin)) // of a connection that is open
	down.Wait()
}

// address is where clients reach a node.
func (w *world) address(node int) string {
	if via := w.via.Load(); via != nil {
		return (*via)[node]
	}
	return w.c.Nodes[node].Client
}

// cutAnswers lets clients reach the nodes through lossy proxies for a while.
func cutAnswers(w *world) {
	var proxies []*lossyProxy
	var via []string
	for i, n := range w.c.Nodes {
		p, err := newLossyProxy(n.Client, w.seed+uint64(i))
		w.must(err)
		proxies = append(proxies, p)
		via = append(via, p.ln.Addr().String())
	}
	from := w.rec.Now()
	w.via.Store(&via)
	sum := func() (cut, late int64) {
		for _, p := range proxies {
			cut, late = cut+p.cut.Load(), late+p.late.Load()
		}
		return cut, late
	}
	w.hold(2*time.Second, 3*time.Second)
	w.eventually(20*time.Second, "answers that are cut off and late requests", func() bool {
		cut, late := sum()
		return cut >= 20 && late >= 10
	})
	w.via.Store(nil)
	for _, p := range proxies {
		p.close()
	}
	cut, late := sum()
	w.during(-1, false, fmt.Sprintf("cut answers: %d, and %d late requests", cut, late), func() {})
	w.t.Logf("%d answers cut off, %d requests late, since %v", cut, late, from)
}
