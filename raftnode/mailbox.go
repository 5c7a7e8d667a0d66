package raftnode

import (
	"sync"
	"sync/atomic"

	"raftq/fsm"
)

// mailbox brings events to the core's goroutine: requests of clients, bounded,
// and internal events, which never block their sender.
type mailbox struct {
	mu       sync.Mutex
	requests []*request
	bytes    int
	events   []any
	closed   bool
	told     bool // the core's goroutine is to look; until it does nobody tells it again
	wake     chan struct{}
	// lazy: nobody waits for anything, so what can wait does until the next turn,
	// with the next tick at the latest.
	lazy atomic.Bool

	// What the core has taken but not packed; it publishes them after each step.
	queued      atomic.Int64
	queuedBytes atomic.Int64
}

func newMailbox() *mailbox { return &mailbox{wake: make(chan struct{}, 1)} }

// submit adds a client's request, or refuses it: nothing was applied then. With
// wake the core's goroutine is told; without it the caller sees to a turn.
func (b *mailbox) submit(r *request, wake bool) *fsm.Error {
	b.mu.Lock()
	switch {
	case b.closed:
		b.mu.Unlock()
		return fsm.Refuse(fsm.CodeLeaving, "this node has stopped; ask another one")
	case len(b.requests)+int(b.queued.Load()) >= queuedMax:
		b.mu.Unlock()
		return fsm.Refuse(fsm.CodeOverloaded, "%d requests wait on this node, the most it takes; slow down and try again", queuedMax)
	case b.bytes+int(b.queuedBytes.Load())+r.bytes > queuedBytesMax:
		b.mu.Unlock()
		return fsm.Refuse(fsm.CodeOverloaded, "requests of %d bytes wait on this node, the most it takes; slow down and try again", queuedBytesMax)
	}
	b.requests = append(b.requests, r)
	b.bytes += r.bytes
	wake = wake && !b.told
	b.told = b.told || wake
	b.mu.Unlock()
	if wake {
		b.signal()
	}
	return nil
}

// post adds an internal event; false when the core has ended.
func (b *mailbox) post(e any) bool {
	b.mu.Lock()
	if b.closed {
		b.mu.Unlock()
		return false
	}
	b.events = append(b.events, e)
	wake := !b.told && !(b.lazy.Load() && canWait(e))
	b.told = b.told || wake
	b.mu.Unlock()
	if wake {
		b.signal()
	}
	return true
}

func (b *mailbox) signal() {
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

func (b *mailbox) empty() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.requests)+len(b.events) == 0
}

// take returns all that waits: internal events before requests, so that a
// request meets the newest state. spare slices are reused.
func (b *mailbox) take(events []any, requests []*request) ([]any, []*request) {
	clear(events)
	clear(requests)
	b.mu.Lock()
	events, b.events = b.events, events[:0]
	requests, b.requests = b.requests, requests[:0]
	b.bytes, b.told = 0, false
	b.mu.Unlock()
	return events, requests
}

// close refuses all that comes from now on and returns what waits.
func (b *mailbox) close() ([]any, []*request) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	return b.events, b.requests
}
