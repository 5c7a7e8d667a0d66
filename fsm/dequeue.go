package fsm

import (
	"slices"
	"strings"
)

// grantee is who gets jobs: a dequeue, or a waiter.
type grantee struct {
	tag      uint64
	leaseMs  int64 // 0 = the job's
	consumer string
	wanted   bool // jobs is to be filled
	jobs     []Delivered
	attempt  string // its key, "" = none
	given    []attemptJob
}

func (m *Machine) dequeue(h BatchHeader, op *Dequeue) Code {
	r := &m.run
	if len(op.Queues) == 0 {
		return CodeInvalidRequest
	}
	limit := min(max(int(op.Max), 1), BatchItemsMax)
	attempt, seq := "", uint64(0)
	if op.AttemptID != "" {
		attempt = attemptKey(op)
		var answered bool
		if answered, seq = m.again(op, attempt); answered {
			return CodeOK
		}
	}
	if m.AnyReady(op.Queues) {
		g := grantee{tag: requestTag(h.Epoch, op.Request), leaseMs: op.LeaseMs, consumer: op.Consumer, attempt: attempt, wanted: r.result != nil}
		m.fill(op.Queues, &g, limit)
		m.begin(attempt, g.given)
		if r.result != nil {
			r.result.Jobs = g.jobs
		}
		return CodeOK
	}
	if op.WaitMs <= 0 {
		return CodeOK
	}
	code := m.park(h, op, limit, attempt, seq)
	if r.result != nil {
		r.result.Parked = code == CodeOK
	}
	return code
}

// fill hands up to limit ready jobs of the queues to g, left to right.
func (m *Machine) fill(names []string, g *grantee, limit int) {
	if g.wanted {
		n := 0
		for _, name := range names {
			if q := m.queueNamed(name); q != nil {
				n += q.handableMax()
			}
		}
		g.jobs = m.run.deliveredSlab(min(n, limit))
	}
	bytes := 0
	for _, name := range names {
		q := m.queueNamed(name)
		if q == nil || !q.handable() {
			continue
		}
		m.dependOnSettings(q)
		q = m.ownQueue(q)
		for ; limit > 0; limit-- {
			k, ok := m.next(q)
			if !ok {
				break
			}
			it, _ := m.jobs.Get(jobItem{key: k})
			// An answer that nobody can take is worth nothing: at least one job,
			// then no more than a batch's bytes.
			if bytes > 0 && bytes+len(it.body) > m.handOutMax {
				return
			}
			bytes += max(1, len(it.body))
			m.handOut(q, it, g)
		}
		if limit == 0 {
			return
		}
	}
}

// handOut leases a ready job of an owned queue to g.
func (m *Machine) handOut(q *queue, it jobItem, g *grantee) {
	m.depend(it)
	if e := q.groups.named(it.group()); e != nil {
		m.run.depends = max(m.run.depends, e.freed)
	}
	m.ownJob(&it)
	leaseMs := g.leaseMs
	if leaseMs <= 0 {
		leaseMs = int64(it.leaseMs)
	}
	if leaseMs <= 0 {
		leaseMs = q.leaseDefault()
	}
	leaseMs = min(leaseMs, LeaseMaxMs)
	it.heldMs = uint32(leaseMs)
	it.grant++
	it.deliveries++
	it.tag = g.tag
	it.flags = it.flags&^flagCancel | flagTag
	it.fence = m.index
	if it.rare.consumerName() != g.consumer {
		r := it.getRare()
		r.consumer = strings.Clone(g.consumer)
		m.setRare(q, it.job, r)
	}
	if g.attempt != "" {
		it.flags |= flagAttempt
		g.given = append(g.given, attemptJob{it.key, it.grant, 1})
	}
	m.move(q, it, stateLeased, m.now+leaseMs)
	m.takeTurn(q, it)
	q.delivered++
	m.used(q)
	m.totals.delivered++
	m.noteGrant(it.key, it.grant)
	if g.wanted {
		g.jobs = append(g.jobs, it.delivered(q))
	}
}

// depend notes that the op at hand reads a job, before it changes it.
func (m *Machine) depend(it jobItem) { m.run.depends = max(m.run.depends, it.lastIndex) }

// delivered shows the last hand-out of a job.
func (it jobItem) delivered(q *queue) Delivered {
	d := Delivered{
		ID: it.id(it.key), Grant: it.grant, Tag: it.tag, Queue: q.name, Body: it.body, Priority: it.priority,
		Deliveries: it.deliveries, Failures: it.failures, EnqueuedMs: it.enqueuedMs, LeaseUntil: it.dueMs,
		ExpiresMs: it.expiresMs, Fence: it.fence,
	}
	if it.rare != nil {
		d.Headers = slices.Clone(it.rare.headers)
		d.LastError = it.rare.lastError
		d.Group = it.rare.getMore().group
		d.Nacks = it.rare.past().nacks
	}
	return d
}
