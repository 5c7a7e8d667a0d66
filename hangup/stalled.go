package hangup

import (
	"container/list"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
)

// stalledBytesMax is for the answers that clients do not take, all together. One
// answer holds up to 8 MiB of bodies, and each connection may have one; without a
// bound on the sum some hundred idle readers take all of a machine's memory until
// WriteTimeout ends them.
const stalledBytesMax = 256 << 20

// stalled are the connections in the middle of an answer that the client does not
// take. Their answers hold no more than max bytes together, or one larger answer:
// beyond that, those that have taken nothing for longest are closed.
type stalled struct {
	max int

	mu    sync.Mutex
	bytes int
	list  list.List // of *Conn; the one that has not moved for longest first

	cut atomic.Uint64
}

// Metrics are those of the answers that clients do not take. front is the label that
// tells one front end from another.
func (s *Conns) Metrics(front string) []prometheus.Collector {
	labels := prometheus.Labels{"front": front}
	return []prometheus.Collector{
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "raftq_answers_stalled_bytes", ConstLabels: labels,
			Help: "Answers that clients do not take at the moment."}, func() float64 { return float64(s.stalled.held()) }),
		prometheus.NewCounterFunc(prometheus.CounterOpts{Name: "raftq_answers_cut_total", ConstLabels: labels,
			Help: "Connections closed in the middle of an answer, because clients did not take too many bytes at a time."}, func() float64 { return float64(s.stalled.cut.Load()) }),
	}
}

func (s *stalled) held() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.bytes
}

// enter takes a connection whose write would block, and closes others for it.
func (s *stalled) enter(c *Conn, bytes int) {
	s.mu.Lock()
	c.place, c.placeBytes = s.list.PushBack(c), bytes
	s.bytes += bytes
	var over []*Conn
	for s.bytes > s.max && s.list.Len() > 1 {
		first := s.list.Front().Value.(*Conn)
		s.remove(first)
		over = append(over, first)
	}
	s.mu.Unlock()
	for _, o := range over {
		s.cut.Add(1)
		_ = o.Close() //nolint:errcheck // its own goroutine sees it
	}
}

// moved notes that a client has taken something.
func (s *stalled) moved(c *Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.place != nil {
		s.list.MoveToBack(c.place)
	}
}

// leave forgets a connection whose write has ended.
func (s *stalled) leave(c *Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.remove(c)
}

// remove takes a connection out, if it is in. s.mu is held.
func (s *stalled) remove(c *Conn) {
	if c.place != nil {
		s.list.Remove(c.place)
		s.bytes -= c.placeBytes
		c.place = nil
	}
}
