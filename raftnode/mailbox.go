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
	// lazy: nobody waits for anything, so what can wait does until the next turn.
	lazy atomic.Bool

	// What the core has taken but not packed; it publishes them after each step.
	queued      atomic.Int64
	queuedBytes atomic.Int64
}

func newMailbox() *mailbox { return &mailbox{wake: make(chan struct{}, 1)} }

// submit adds a client's request, or refuses it: nothing was applied then. After
// wake the caller sees to it that somebody looks: signal, or a turn of its own.
func (b *mailbox) submit(r *request) (wake bool, _ *fsm.Error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.closed:
		return false, fsm.Refuse(fsm.CodeLeaving, "this node has stopped; ask another one")
	case len(b.requests)+int(b.queued.Load()) >= queuedMax:
		return false, fsm.Refuse(fsm.CodeOverloaded, "%d requests wait on this node, the most it takes; slow down and try again", queuedMax)
	case b.bytes+int(b.queuedBytes.Load())+r.bytes > queuedBytesMax:
		return false, fsm.Refuse(fsm.CodeOverloaded, "requests of %d bytes wait on this node, the most it takes; slow down and try again", queuedBytesMax)
	}
	b.requests = append(b.requests, r)
	b.bytes += r.bytes
	wake, b.told = !b.told, true
	return wake, nil
}

// put adds an internal event; not ok when the core has ended. wake is as submit's.
func (b *mailbox) put(e any) (wake, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return false, false
	}
	b.events = append(b.events, e)
	if b.told || b.lazy.Load() && canWait(e) {
		return false, true
	}
	b.told = true
	return true, true
}

// post puts an event and has the core's goroutine look; false when the core has
// ended.
func (b *mailbox) post(e any) bool {
	wake, ok := b.put(e)
	if wake {
		b.signal()
	}
	return ok
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
