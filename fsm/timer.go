package fsm

import "fmt"

// timerKind orders timers of the same ms.
type timerKind uint8

const (
	timerDelay  timerKind = 1  // a delayed job becomes ready
	timerLease  timerKind = 2  // a lease is over
	timerTTL    timerKind = 3  // a job reached its TTL
	timerDead   timerKind = 4  // a dead job goes
	timerWaiter timerKind = 5  // a waiter gives up
	timerIdle   timerKind = 6  // an empty queue goes
	timerDedup  timerKind = 7  // a dedup id is forgotten
	timerKept   timerKind = 8  // a kept result is forgotten
	timerPause  timerKind = 14 // a pause ends
	timerTopic  timerKind = 15 // messages grow too old; forces an entry
)

// timer fires at ms. Those of jobs and topics force an entry and live in
// Machine.forcing; that of a pause does while something waits for it (retime).
// The others wait for an entry, in Machine.passive or, those of keys, in
// Machine.lapses. All that are in the trees after an entry are later than the
// machine's time.
type timer struct {
	ms  int64
	ord uint64 // kind<<60 | seq of the job or waiter, number of the queue
	key Key    // the job's key; a waiter's node and request
}

func (k timerKind) order(seq uint64) uint64 { return uint64(k)<<60 | seq }

func timerLess(a, b timer) bool { return a.ms < b.ms || a.ms == b.ms && a.ord < b.ord }

// fireTimers moves the machine's time to at most t and fires what is due, in
// order. When more than TimersPerEntry are due, time stops 1 ms before the next
// of them: no op sees a due timer unfired.
func (m *Machine) fireTimers(t int64) (fired int) {
	for ; ; fired++ {
		next, ok := m.forcing.Min()
		if p, ok2 := m.passive.Min(); ok2 && (!ok || timerLess(p, next)) {
			next, ok = p, true
		}
		l, some := m.lapses.Min()
		if some && (!ok || timerLess(l.timer(), next)) {
			next, ok = l.timer(), true
		}
		if !ok || next.ms > t {
			m.now = t
			return fired
		}
		if next.ms < m.now {
			panic(fmt.Sprintf("BUG: timer of %d ms unfired at %d ms", next.ms, m.now))
		}
		if fired == m.timersMax {
			// What fired in this entry may have fired at next.ms as well.
			m.now = next.ms - 1
			return fired
		}
		if seeded == "timers-in-map-order" && m.stamp%2 == 1 { // not that of other nodes
			m.forcing.Descend(timer{next.ms, 1<<64 - 1, Key{}}, func(t timer) bool { next = t; return false })
		}
		m.now = next.ms
		m.noteTimer(next)
		if some && next == l.timer() {
			m.lapseOver(l)
		} else {
			m.fire(next)
		}
	}
}

// fire does what a timer is for, and takes it out of its tree.
func (m *Machine) fire(t timer) {
	kind := timerKind(t.ord >> 60)
	switch kind {
	case timerWaiter:
		w, _ := m.parked.Get(parkedItem{node: t.key.Hi, request: t.key.Lo})
		m.unpark(w.waiter)
		return
	case timerIdle:
		m.passive.Delete(t)
		m.idleOver(m.ownQueue(m.queueOf(uint32(t.ord))))
		return
	case timerPause:
		m.setPause(m.ownQueue(m.queueOf(uint32(t.ord))), false, false, 0)
		return
	case timerTopic:
		m.forcing.Delete(t)
		m.topicTimer(m.ownTopic(m.topicOf(uint32(t.ord))))
		return
	}
	it, _ := m.jobs.Get(jobItem{key: t.key})
	q := m.ownQueue(m.queueOf(it.queue))
	if q.doomed {
		m.drop(q, it)
		m.reaped(q)
		return
	}
	m.ownJob(&it)
	switch kind {
	case timerDelay:
		m.toReady(q, it)
	case timerLease:
		m.leaseOver(q, it)
	case timerTTL, timerDead:
		m.expire(q, it)
		m.rested(q)
	}
}

// leaseOver ends an owned job's lease by time. The tag stays: the holder may
// still ack, as long as nobody else is given the job.
func (m *Machine) leaseOver(q *queue, it jobItem) {
	dead := m.fail(q, it.job)
	switch {
	case it.flags&flagAtMostOnce != 0 && seeded != "at-most-once-after-lease":
		if m.others(it) && m.FeatureLevel() >= 3 && seeded != "given-back-by-one-of-two" {
			it.heldMs = heldByOthers
		}
		m.move(q, it, stateHeld, 0)
	case dead:
		m.bury(q, it, reasonMaxFailures)
	default:
		m.toReady(q, it)
	}
}

// NextDue is the log time in ms at which the next timer that forces an entry
// fires (delay, lease, TTL, a pause that something waits for; now, when jobs of
// deleted queues wait to be reaped, or jobs that were held back to be ready). ok
// is false when there is none. Waiters never force one.
func (m *Machine) NextDue() (ms int64, ok bool) {
	if m.doomed.Len() > 0 || m.thaw.Len() > 0 {
		return m.now, true
	}
	t, ok := m.forcing.Min()
	return t.ms, ok
}
