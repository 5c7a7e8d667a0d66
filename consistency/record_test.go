package consistency

import (
	"fmt"
	"sync"
	"time"
)

// history is what all clients saw, on one monotonic clock.
type history struct {
	base time.Time

	mu         sync.Mutex
	enqueues   map[string]*enqueue // by body
	deliveries []*delivery
	errors     []clientError
}

type outcome uint8

const (
	unknown outcome = iota // may or may not have happened
	done
	refused // surely did not happen
)

type enqueue struct {
	body      string
	call, ret time.Duration
	outcome   outcome
	id        string
	index     uint64
}

type delivery struct {
	id, body, receipt string
	node              int
	call, ret         time.Duration // of the dequeue
	lease             time.Duration
	fence             uint64
	deliveries        int
	ackCall, ackRet   time.Duration
	ack               outcome // unknown with ackCall 0 = never tried
}

// clientError is an answer that a client of a healthy node must not see.
type clientError struct {
	node int
	at   time.Duration
	what string
}

func newHistory() *history { return &history{base: time.Now(), enqueues: map[string]*enqueue{}} }

func (h *history) now() time.Duration { return time.Since(h.base) }

func (h *history) startEnqueue(body string) *enqueue {
	e := &enqueue{body: body, call: h.now()}
	h.mu.Lock()
	h.enqueues[body] = e
	h.mu.Unlock()
	return e
}

func (h *history) add(d *delivery) {
	h.mu.Lock()
	h.deliveries = append(h.deliveries, d)
	h.mu.Unlock()
}

func (h *history) failed(node int, format string, args ...any) {
	h.mu.Lock()
	h.errors = append(h.errors, clientError{node, h.now(), fmt.Sprintf(format, args...)})
	h.mu.Unlock()
}

// errorsSince returns what clients of the given nodes saw from a moment on.
func (h *history) errorsSince(from time.Duration, nodes ...int) []clientError {
	h.mu.Lock()
	defer h.mu.Unlock()
	var all []clientError
	for _, e := range h.errors {
		for _, n := range nodes {
			if e.node == n && e.at >= from {
				all = append(all, e)
			}
		}
	}
	return all
}
