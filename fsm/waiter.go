package fsm

import (
	"slices"
	"strings"
)

// waiter is a dequeue that found nothing and waits. It never changes.
type waiter struct {
	seq        uint64 // its place: the oldest is served first
	node       uint64
	epoch      uint64
	request    uint64
	deadlineMs int64
	leaseMs    int64
	max        int
	queues     []string // unique
	consumer   string
	attempt    string // its key, "" = none
}

// parkedItem lists waiters by node and request. Only the current epoch of a
// node has waiters.
type parkedItem struct {
	node, request uint64
	waiter        *waiter
}

func parkedLess(a, b parkedItem) bool {
	return a.node < b.node || a.node == b.node && a.request < b.request
}

func (w *waiter) bytes() int64 {
	n := waiterCost + len(w.consumer) + len(w.attempt)
	for _, q := range w.queues {
		n += 16 + len(q)
	}
	return int64(n)
}

func (w *waiter) timer() timer {
	return timer{w.deadlineMs, timerWaiter.order(w.seq), Key{w.node, w.request}}
}

// park makes a waiter of a dequeue, with the key of its attempt. seq is its place;
// 0 is behind all others.
func (m *Machine) park(h BatchHeader, op *Dequeue, limit int, attempt string, seq uint64) Code {
	if _, taken := m.parked.Get(parkedItem{node: h.Origin, request: op.Request}); taken {
		return CodeInvalidRequest
	}
	s := m.ownSession(h.Origin)
	if seq == 0 {
		seq = m.nextSeq()
	}
	w := &waiter{
		seq: seq, attempt: attempt, node: h.Origin, epoch: h.Epoch, request: op.Request,
		deadlineMs: m.now + min(op.WaitMs, DelayMaxMs), leaseMs: op.LeaseMs, max: limit,
		consumer: strings.Clone(op.Consumer),
	}
	w.queues = make([]string, 0, len(op.Queues))
	for _, name := range op.Queues {
		if slices.Contains(w.queues, name) {
			continue
		}
		if q := m.queueNamed(name); q != nil {
			name = q.name
		} else {
			name = strings.Clone(name)
		}
		w.queues = append(w.queues, name)
	}
	m.keep(s, w)
	if !s.away {
		m.list(w)
	}
	return CodeOK
}

// keep adds a waiter to its owned session and to the timers.
func (m *Machine) keep(s *session, w *waiter) {
	s.waiters++
	m.parked.Set(parkedItem{w.node, w.request, w})
	m.passive.Set(w.timer())
	m.bytes += w.bytes()
	if w.attempt != "" {
		m.attempts.Set(w.attempt, &attempt{stamp: m.stamp, key: w.attempt, waiter: w})
	}
}

// list puts a waiter into its queues, in its old place.
func (m *Machine) list(w *waiter) {
	for _, name := range w.queues {
		q := m.openQueue(name)
		q.waiters.Set(w.seq, w)
		m.touch(q)
		m.retime(q)
	}
}

// unlist takes a waiter out of its queues.
func (m *Machine) unlist(w *waiter) {
	for _, name := range w.queues {
		q := m.queueNamed(name)
		if q == nil {
			continue
		}
		q = m.ownQueue(q)
		if _, ok := q.waiters.Delete(w.seq); ok {
			m.retime(q)
			m.rested(q)
		}
	}
}

// unpark removes a waiter for good.
func (m *Machine) unpark(w *waiter) {
	s := m.ownSession(w.node)
	s.waiters--
	m.parked.Delete(parkedItem{node: w.node, request: w.request})
	m.passive.Delete(w.timer())
	m.bytes -= w.bytes()
	if w.attempt != "" {
		m.attempts.Delete(w.attempt)
	}
	if !s.away {
		m.unlist(w)
	}
}

// eachParked calls do with the waiters of a node, by request; do may remove it.
func (m *Machine) eachParked(node uint64, do func(*waiter)) {
	var all []*waiter
	m.parked.Ascend(parkedItem{node: node}, func(p parkedItem) bool {
		if p.node == node {
			all = append(all, p.waiter)
		}
		return p.node == node
	})
	for _, w := range all {
		do(w)
	}
}

func (m *Machine) withdraw(h BatchHeader, op *Withdraw) Code {
	for _, request := range op.Requests {
		if p, ok := m.parked.Get(parkedItem{node: h.Origin, request: request}); ok {
			m.unpark(p.waiter)
		}
	}
	return CodeOK
}
