package hangup

import (
	"net"
	"sync"
	"sync/atomic"
	"time"

	"raftq/fsm"
)

// Options say what a front end does with its connections. All are needed.
type Options struct {
	Max int // connections at once
	// Refuse answers a connection too many, if that takes no waiting, and closes it;
	// limit says which limit, for people.
	Refuse func(nc net.Conn, limit string)
	// Written counts hand-outs whose answer was begun to be written.
	Written *atomic.Uint64
	// GiveBack is called with hand-outs whose answer was not written; it may keep
	// items, and does not block.
	GiveBack func(items []fsm.Item)
}

// Conns are the open connections of a front end.
type Conns struct {
	// WriteTimeout ends a connection whose client takes no bytes for so long. It
	// is 30 s, and may be set before Listen.
	WriteTimeout time.Duration

	opts    Options
	watcher *watcher
	stalled stalled
	fds     int // descriptors of the process that connections may take: see descriptors.go

	mu sync.Mutex
	m  map[*Conn]struct{}
}

// New returns no connections yet. Stop must be called in the end.
func New(o Options) (*Conns, error) {
	w, err := newWatcher()
	if err != nil {
		return nil, err
	}
	return &Conns{WriteTimeout: 30 * time.Second, opts: o, watcher: w, stalled: stalled{max: stalledBytesMax}, fds: descriptors(), m: map[*Conn]struct{}{}}, nil
}

// Listen returns a listener whose connections are Conns, and which may be closed
// twice. TLS goes on top.
func (s *Conns) Listen(ln net.Listener) net.Listener {
	return &listener{Listener: ln, conns: s, closed: make(chan struct{})}
}

// Len is how many connections are open.
func (s *Conns) Len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.m)
}

// Close closes the connections that pick chooses.
func (s *Conns) Close(pick func(*Conn) bool) {
	s.mu.Lock()
	var chosen []*Conn
	for c := range s.m {
		if pick(c) {
			chosen = append(chosen, c)
		}
	}
	s.mu.Unlock()
	for _, c := range chosen {
		_ = c.Close() //nolint:errcheck // its own goroutine sees it
	}
}

// Leave ends all waits, now and to come: every Gone channel is closed.
func (s *Conns) Leave() { s.watcher.leave() }

// Stop ends the watching of waits. Connections are not closed.
func (s *Conns) Stop() { s.watcher.close() }

func (s *Conns) add(c *Conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.m) >= s.opts.Max {
		return false
	}
	s.m[c] = struct{}{}
	return true
}

func (s *Conns) remove(c *Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.m, c)
}

func (s *Conns) giveBack(items []fsm.Item) {
	if len(items) > 0 {
		s.opts.GiveBack(items)
	}
}
