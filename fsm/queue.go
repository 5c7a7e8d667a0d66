package fsm

import (
	"fmt"
	"strings"

	"github.com/tidwall/btree"
)

// counters are those of a queue, and their sums over all queues. In the sums
// the totals go on counting for queues that are gone.
type counters struct {
	states                                                 [stateCount]int
	bytes                                                  int64
	enqueued, delivered, acked, failed, expired, deadTotal uint64
}

// queue is one life of a queue name. It is changed only by the machine whose
// stamp it carries (ownQueue). A new life has a new number.
type queue struct {
	counters
	stamp  uint64
	name   string
	number uint32
	// made: by an enqueue. Otherwise only waiters name it, or it was idle and has
	// dedup ids left: reads do not see it, and it goes with the last of them.
	made bool
	// doomed: deleted; out of the names, its jobs are invisible and are reaped
	// by later entries. It has no waiters.
	doomed bool
	// forces: the timer of its pause lies in Machine.forcing, not in passive.
	forces bool
	// idleMs is when the queue became empty and without waiters; it means
	// nothing while the queue is not. timerMs is when its idle timer fires, 0 =
	// none. The timer is not moved when the queue is used: when it fires early
	// it is set again.
	idleMs, timerMs int64
	// createdMs is when it was made, usedMs when it last got or gave a job by a
	// client. Machines of state version 1 do not know.
	createdMs, usedMs int64
	// freed is the index of the last entry that freed a unique key of the queue
	// other than by time, or made the queue. It is not part of the state: after a
	// restore all that is committed.
	freed uint64

	settings  *settings // nil when it was told nothing
	groups    *groups   // nil while no job with a group is ready or keeps a slot
	deadBytes int64     // of its dead jobs, part of bytes

	ready   btree.Map[uint64, Key]     // by job.readyOrder
	rest    btree.Map[uint64, Key]     // all other jobs, by job.restOrder
	waiters btree.Map[uint64, *waiter] // by seq; those of sessions that are away are not here
}

// handable tells whether a dequeue would find a job.
func (q *queue) handable() bool {
	if q.ready.Len() == 0 || q.set().pausedOut && seeded != "pause-ignored" {
		return false
	}
	return q.groups == nil || q.ready.Len() > q.groups.ready || q.groups.free(q.groupLimit())
}

// handableMax is an upper bound of the jobs that a dequeue would find.
func (q *queue) handableMax() int {
	if q.groups == nil {
		return q.ready.Len()
	}
	return min(q.ready.Len(), q.ready.Len()-q.groups.ready+q.groups.firsts.Len()*q.groupLimit())
}

func (q *queue) jobs() int { return q.ready.Len() + q.rest.Len() }

func (q *queue) idle() bool { return q.ready.Len() == 0 && q.rest.Len() == 0 && q.waiters.Len() == 0 }

// fresh returns a map with t's content that shares nodes until written. It
// leaves t itself alone: other machines may be doing the same.
func fresh[K interface{ uint32 | uint64 | string }, V any](t btree.Map[K, V]) btree.Map[K, V] {
	return *t.IsoCopy()
}

// queueNamed returns the queue of a name, made or not, for reading.
func (m *Machine) queueNamed(name string) *queue {
	number, ok := m.names.Get(name)
	if !ok {
		return nil
	}
	return m.queueOf(number)
}

func (m *Machine) queueOf(number uint32) *queue {
	q, ok := m.queues.Get(number)
	if !ok {
		panic(fmt.Sprintf("BUG: no queue of number %d", number))
	}
	return q
}

// ownQueue returns q safe to change: itself, or a copy that takes its place.
func (m *Machine) ownQueue(q *queue) *queue {
	if q.stamp == m.stamp {
		return q
	}
	c := *q
	c.stamp = m.stamp
	c.ready = fresh(q.ready)
	c.rest = fresh(q.rest)
	c.waiters = fresh(q.waiters)
	c.groups = q.groups.fresh()
	m.queues.Set(c.number, &c)
	return &c
}

// openQueue returns the queue of a name to change, new when there is none. name
// may be a view.
func (m *Machine) openQueue(name string) *queue {
	if q := m.queueNamed(name); q != nil {
		return m.ownQueue(q)
	}
	return m.newQueue(strings.Clone(name))
}

func (m *Machine) newQueue(name string) *queue {
	// Numbers come round after 2³² queues; one in use is passed over.
	for {
		m.queueNumber++
		if _, used := m.queues.Get(m.queueNumber); !used && m.queueNumber != 0 {
			break
		}
	}
	q := &queue{stamp: m.stamp, name: name, number: m.queueNumber, freed: m.index}
	m.queues.Set(q.number, q)
	m.names.Set(name, q.number)
	m.bytes += q.cost()
	return q
}

// make makes an owned queue one that reads see.
func (m *Machine) make(q *queue) {
	if q.made {
		return
	}
	q.made = true
	if m.version >= 2 {
		q.createdMs, q.usedMs = m.now, m.now
	}
}

// used notes that a client put a job into an owned queue, or took one.
func (m *Machine) used(q *queue) {
	if q.createdMs != 0 {
		q.usedMs = m.now
	}
}

func (q *queue) cost() int64 { return queueCost + 2*int64(len(q.name)) + q.settings.bytes() }

// rested looks whether q became idle: it goes, now or by its timer. Call it
// after the last of jobs or waiters may have left.
func (m *Machine) rested(q *queue) {
	if !q.idle() {
		return
	}
	if !q.made {
		if !m.hasDedups(q) {
			m.removeQueue(q)
		}
		return
	}
	q.idleMs = m.now
	if q.timerMs == 0 && !q.keeps() {
		m.setIdleTimer(q)
	}
}

func (m *Machine) setIdleTimer(q *queue) {
	q.timerMs = q.idleMs + QueueIdleMs
	m.passive.Set(timer{q.timerMs, timerIdle.order(uint64(q.number)), Key{}})
}

// idleOver fires q's idle timer.
func (m *Machine) idleOver(q *queue) {
	q.timerMs = 0
	switch {
	case !q.idle() || q.keeps():
	case q.idleMs+QueueIdleMs > m.now:
		m.setIdleTimer(q)
	case m.hasDedups(q):
		m.bytes -= q.settings.bytes()
		q.made, q.idleMs, q.counters, q.settings = false, 0, counters{}, nil
		q.createdMs, q.usedMs = 0, 0
	default:
		m.removeQueue(q)
	}
}

// forget takes q out of what reads see: its name, its timers, its settings, and
// the sums.
func (m *Machine) forget(q *queue) {
	m.clearPauseTimer(q)
	m.bytes -= q.settings.bytes()
	q.settings = nil
	m.noteConsistency(q.name, 0)
	m.thaw.Delete(q.number)
	if q.timerMs != 0 {
		m.passive.Delete(timer{q.timerMs, timerIdle.order(uint64(q.number)), Key{}})
		q.timerMs = 0
	}
	for s, n := range q.states {
		m.totals.states[s] -= n
	}
	m.totals.bytes -= q.bytes
	m.names.Delete(q.name)
}

func (m *Machine) removeQueue(q *queue) {
	m.forget(q)
	m.queues.Delete(q.number)
	m.bytes -= q.cost()
}

// deleteQueue is O(1) in the number of jobs: it leaves them to reap.
func (m *Machine) deleteQueue(op *DeleteQueue) Code {
	q := m.queueNamed(op.Queue)
	if q == nil || !q.made {
		return CodeQueueNotFound
	}
	if q.jobs() > 0 && !op.Force {
		return CodeQueueNotEmpty
	}
	if r := m.run.result; r != nil {
		r.Count = q.jobs()
	}
	q = m.ownQueue(q)
	name, waiters := q.name, q.waiters
	q.waiters = btree.Map[uint64, *waiter]{}
	if q.jobs() == 0 && !m.hasDedups(q) {
		m.removeQueue(q)
	} else {
		m.forget(q)
		q.doomed = true
		m.doomed.Set(q.number, struct{}{})
	}
	if waiters.Len() > 0 {
		// They go on waiting for the next life of the name.
		m.newQueue(name).waiters = waiters
	}
	return CodeOK
}

// reap removes up to budget jobs and dedup ids of deleted queues, and returns what
// is left of the budget.
func (m *Machine) reap(budget int) int {
	before := budget
	for budget > 0 {
		number, _, ok := m.doomed.Min()
		if !ok {
			break
		}
		q := m.ownQueue(m.queueOf(number))
		for ; budget > 0 && q.ready.Len() > 0; budget-- {
			_, k, _ := q.ready.Min()
			m.reapJob(q, k)
		}
		jobs, _ := sweep(q.lanes(StateAll&^StateReady), seqMax, budget)
		for _, p := range jobs {
			m.reapJob(q, p.key)
		}
		budget -= len(jobs)
		if q.jobs() == 0 {
			budget -= m.reapKeys(q, budget)
		}
		m.reaped(q)
	}
	if n := before - budget; n > 0 {
		m.noteReap(n)
	}
	return budget
}

func (m *Machine) reapJob(q *queue, k Key) {
	it, _ := m.jobs.Get(jobItem{key: k})
	m.drop(q, it)
}

// reaped removes a deleted queue of which nothing is left.
func (m *Machine) reaped(q *queue) {
	if q.jobs() == 0 && !m.hasDedups(q) {
		m.doomed.Delete(q.number)
		m.queues.Delete(q.number)
		m.bytes -= q.cost()
	}
}
