package fsm

import (
	"errors"
	"fmt"
	"slices"
)

// Check verifies every invariant; for tests and after Decode. O(state).
func (m *Machine) Check() error {
	c := &checker{m: m, queues: map[uint32]*counters{}, seqs: map[uint64]bool{}, waiters: map[uint64]int{}, dead: map[uint32]int64{}}
	c.bytes = int64(m.tombOrder.Len()) * tombstoneCost
	m.keys.Scan(func(k *queueKey) bool { c.bytes += k.bytes(); return true })
	m.kept.Scan(func(k *kept) bool { c.bytes += k.bytes(); return true })
	c.checkQueues()
	c.checkJobs()
	c.checkTopics()
	c.checkWaiters()
	c.checkAttempts()
	c.checkGroups()
	c.checkSums()
	c.checkTombs()
	c.checkKeys()
	c.checkMembers()
	if len(c.errs) > 20 {
		c.errs = append(c.errs[:20], errors.New("and more"))
	}
	return errors.Join(c.errs...)
}

// checker counts again what the machine keeps as it goes.
type checker struct {
	m       *Machine
	errs    []error
	queues  map[uint32]*counters
	seqs    map[uint64]bool
	waiters map[uint64]int // by node
	listed  int            // places of waiters in queues
	forcing int            // timers
	passive int
	lapses  int
	unique  int // jobs that have their unique key
	tried   int // jobs leased under an attempt
	bytes   int64
	ready   int
	rest    int
	dead    map[uint32]int64 // bytes of dead jobs, by queue

	back, moved, consumers int // places in the indexes of few jobs
}

func (c *checker) want(ok bool, format string, args ...any) {
	if !ok {
		c.errs = append(c.errs, fmt.Errorf(format, args...))
	}
}

func (c *checker) checkQueues() {
	m := c.m
	named, doomed, defaults := 0, 0, 0
	m.queues.Scan(func(number uint32, q *queue) bool {
		c.queues[number] = &counters{}
		c.want(q.number == number, "queue %d is listed as %d", q.number, number)
		c.want(q.stamp <= m.stamp, "queue %q has stamp %d of the future, machine %d", q.name, q.stamp, m.stamp)
		c.want(!q.handable() || q.waiters.Len() == 0, "queue %q has %d ready jobs and %d waiters", q.name, q.ready.Len(), q.waiters.Len())
		c.want(q.made || q.jobs() == 0, "queue %q was never made and has %d jobs", q.name, q.jobs())
		c.want(q.made || q.waiters.Len() > 0 || m.hasDedups(q), "queue %q has no reason to be", q.name)
		c.want(!q.made || q.doomed || !q.idle() || q.timerMs != 0 || q.keeps(), "queue %q is idle without a timer", q.name)
		c.want(q.ready.Len() == q.states[stateReady], "queue %q: %d ready, counted %d", q.name, q.ready.Len(), q.states[stateReady])
		if q.doomed {
			doomed++
			_, ok := m.doomed.Get(number)
			c.want(ok && q.waiters.Len() == 0 && (q.jobs() > 0 || m.hasDedups(q)) && q.timerMs == 0, "queue %q %d is badly doomed", q.name, number)
		} else {
			named++
			n, ok := m.names.Get(q.name)
			c.want(ok && n == number, "queue %q is not named so", q.name)
		}
		c.checkSettings(q)
		if v := q.set().config.Consistency; v != 0 {
			defaults++
			listed, _ := m.consistencies.queues.Get(q.name)
			c.want(listed == v, "queue %q has consistency %d, listed is %d", q.name, v, listed)
		}
		if q.timerMs != 0 {
			_, ok := m.passive.Get(timer{q.timerMs, timerIdle.order(uint64(number)), Key{}})
			c.want(ok && q.timerMs > m.now, "queue %q has no timer at %d, now %d", q.name, q.timerMs, m.now)
			c.passive++
		}
		q.waiters.Scan(func(seq uint64, w *waiter) bool {
			p, ok := m.parked.Get(parkedItem{node: w.node, request: w.request})
			c.want(ok && p.waiter == w && w.seq == seq, "queue %q lists a waiter %d that is not parked", q.name, seq)
			c.listed++
			return true
		})
		c.ready += q.ready.Len()
		c.rest += q.rest.Len()
		c.bytes += q.cost()
		return true
	})
	c.want(named == m.names.Len(), "%d names of %d queues", m.names.Len(), named)
	c.want(defaults == m.consistencies.queues.Len(), "%d queues are listed with a consistency, %d have one", m.consistencies.queues.Len(), defaults)
	c.want(doomed == m.doomed.Len(), "%d doomed of %d queues", m.doomed.Len(), doomed)
}

func (c *checker) checkJobs() {
	m := c.m
	m.jobs.Scan(func(it jobItem) bool {
		id := ID{Key: it.key}
		q, ok := m.queues.Get(it.queue)
		if !ok {
			c.want(false, "job %v is of queue %d that is not there", id, it.queue)
			return true
		}
		c.want(!c.seqs[it.seq] && it.seq > 0 && it.seq <= m.seq, "job %v has sequence %d, the last is %d", id, it.seq, m.seq)
		c.seqs[it.seq] = true
		c.want(it.state < stateCount && it.priority <= 9 && it.flags < flagsEnd, "job %v: state %d, priority %d, flags %#x", id, it.state, it.priority, it.flags)
		c.want(it.deliveries <= it.grant && it.lastIndex <= m.index && it.fence <= m.index && it.stamp <= m.stamp, "job %v is ahead of its machine: %+v", id, *it.job)
		c.want((it.state == stateDead || it.moved()) == (it.rare != nil && it.rare.deadReason != reasonNone), "job %v in state %s: dead reason", id, stateNames[it.state])
		tree := &q.rest
		ord := it.readyOrder()
		if it.state == stateReady {
			tree = &q.ready
		} else if it.state != stateDead || it.rare != nil {
			ord = it.restOrder()
		}
		k, ok := tree.Get(ord)
		c.want(ok && k == it.key, "job %v in state %s is not in its tree", id, stateNames[it.state])
		kind, timed := it.timer()
		c.want(timed == (it.dueMs != 0) || it.state == stateReady && it.dueMs <= m.now+1, "job %v in state %s is due at %d", id, stateNames[it.state], it.dueMs)
		if timed {
			c.wantTimer(timer{it.dueMs, kind.order(it.seq), it.key})
		}
		if it.expiresMs != 0 {
			c.wantTimer(timer{it.expiresMs, timerTTL.order(it.seq), it.key})
		}
		if it.state == stateLeased {
			c.want(it.grant > 0 && it.deliveries > 0 && it.flags&flagTag != 0 && it.heldMs > 0, "job %v is leased without a grant", id)
		}
		if it.flags&flagAttempt != 0 {
			c.tried++
		}
		if it.flags&flagUnique != 0 {
			k := m.keyOf(it.queue, keyUnique, it.uniqueKey())
			c.want(k != nil && k.id == it.id(it.key) && it.state != stateDead, "job %v in state %s has not its unique key", id, stateNames[it.state])
			c.unique++
		}
		c.checkAside(it)
		n := c.queues[it.queue]
		if it.state == stateDead {
			c.dead[it.queue] += it.bytes()
		}
		n.states[it.state]++
		n.bytes += it.bytes()
		c.bytes += it.bytes()
		return true
	})
	c.want(c.ready+c.rest == m.jobs.Len(), "%d jobs, %d in queues", m.jobs.Len(), c.ready+c.rest)
	c.want(c.back == m.back.Len() && c.moved == m.moved.Len() && c.consumers == m.consumers.Len(),
		"asides %d, %d, %d; counted %d, %d, %d", m.back.Len(), m.moved.Len(), m.consumers.Len(), c.back, c.moved, c.consumers)
}

// checkAside looks for a job's places in the indexes of few jobs.
func (c *checker) checkAside(it jobItem) {
	m, id := c.m, ID{Key: it.key}
	if it.heldBack() {
		a, ok := m.back.Get(it.heldBackPlace())
		c.want(ok && a.key == it.key, "job %v is held back and not listed", id)
		c.back++
	}
	if it.state == stateLeased && it.rare != nil && it.rare.consumer != "" {
		a, ok := m.consumers.Get(it.consumerPlace())
		c.want(ok && a.key == it.key, "job %v of %q is not listed", id, it.rare.consumer)
		c.consumers++
	}
	if !it.moved() {
		return
	}
	c.wantTimer(it.keepTimer())
	c.want(it.state != stateDead && it.rare.history.source != "" && it.flags&flagAtMostOnce == 0, "job %v was moved and is %s", id, stateNames[it.state])
	if it.state != stateLeased {
		a, ok := m.moved.Get(it.movedPlace())
		c.want(ok && a.key == it.key, "job %v was moved and is not listed", id)
		c.moved++
	}
}

func (c *checker) checkSettings(q *queue) {
	m, s := c.m, q.set()
	_, thawing := m.thaw.Get(q.number)
	c.want(thawing == (!q.doomed && !s.pausedIn && m.holdsBack(q)), "queue %q thaws: %v", q.name, thawing)
	c.want(q.settings == nil || q.made && !q.doomed, "queue %q has settings", q.name)
	c.want(s.changed <= m.index && s.config.Validate() == nil, "queue %q: settings %+v", q.name, *s)
	if s.untilMs == 0 {
		return
	}
	c.want(s.untilMs > m.now && (s.pausedIn || s.pausedOut), "queue %q is paused until %d, now %d", q.name, s.untilMs, m.now)
	c.want(q.forces == m.pauseForces(q), "queue %q: forces %v", q.name, q.forces)
	if q.forces {
		c.wantTimer(q.pauseTimer())
		return
	}
	_, ok := m.passive.Get(q.pauseTimer())
	c.want(ok, "queue %q has no timer of its pause", q.name)
	c.passive++
}

func (c *checker) wantTimer(t timer) {
	_, ok := c.m.forcing.Get(t)
	c.want(ok, "timer %+v is missing", t)
	c.want(t.ms > c.m.now, "timer %+v is due at %d", t, c.m.now)
	c.forcing++
}

func (c *checker) checkWaiters() {
	m := c.m
	listed := 0
	m.parked.Scan(func(p parkedItem) bool {
		w := p.waiter
		s, ok := m.sessions.Get(w.node)
		c.want(ok && s.epoch == w.epoch && p.node == w.node && p.request == w.request, "waiter %d of node %d has no session", w.seq, w.node)
		c.want(!c.seqs[w.seq] && w.seq > 0 && w.seq <= m.seq, "waiter has sequence %d, the last is %d", w.seq, m.seq)
		c.seqs[w.seq] = true
		_, timed := m.passive.Get(w.timer())
		c.want(timed && w.deadlineMs > m.now, "waiter %d of %d ms has no timer at %d", w.seq, w.deadlineMs, m.now)
		c.passive++
		c.waiters[w.node]++
		c.bytes += w.bytes()
		if w.attempt != "" {
			a := m.attemptOf(w.attempt)
			c.want(a != nil && a.waiter == w, "waiter %d has no attempt", w.seq)
		}
		if ok && s.away {
			return true
		}
		for _, name := range w.queues {
			listed++
			q := m.queueNamed(name)
			if q == nil {
				c.want(false, "waiter %d waits for no queue %q", w.seq, name)
				continue
			}
			e, _ := q.waiters.Get(w.seq)
			c.want(e == w, "waiter %d is not listed in %q", w.seq, name)
		}
		return true
	})
	c.want(listed == c.listed, "%d places of waiters, %d in queues", listed, c.listed)
	c.want(c.forcing == m.forcing.Len() && c.passive == m.passive.Len(), "timers: %d of %d, %d of %d", m.forcing.Len(), c.forcing, m.passive.Len(), c.passive)
	m.sessions.Scan(func(node uint64, s *session) bool {
		c.want(s.node == node && s.waiters == c.waiters[node] && len(s.past) <= EpochsKept, "session %d: %d waiters, counted %d", node, s.waiters, c.waiters[node])
		c.want(m.isMember(node), "session of %d, which is no member", node)
		c.bytes += sessionCost + (&session{}).startBytes(&s.start)
		return true
	})
}

func (c *checker) checkSums() {
	m := c.m
	var sum counters
	m.queues.Scan(func(number uint32, q *queue) bool {
		n := c.queues[number]
		c.want(q.deadBytes == c.dead[number], "queue %q: %d bytes of dead jobs, counted %d", q.name, q.deadBytes, c.dead[number])
		c.want(q.states == n.states && q.bytes == n.bytes, "queue %q: %v, %d bytes; counted %v, %d", q.name, q.states, q.bytes, n.states, n.bytes)
		if !q.doomed {
			sum.bytes += n.bytes
			for s := range sum.states {
				sum.states[s] += n.states[s]
			}
		}
		return true
	})
	c.want(sum.states == m.totals.states && sum.bytes == m.totals.bytes, "totals %v, %d bytes; counted %v, %d", m.totals.states, m.totals.bytes, sum.states, sum.bytes)
	c.want(c.bytes == m.bytes, "%d bytes, counted %d", m.bytes, c.bytes)
}

func (c *checker) checkKeys() {
	m := c.m
	m.keys.Scan(func(k *queueKey) bool {
		c.want(k.text != "" && len(k.text) <= KeyMax && k.index <= m.index, "key %+v", k)
		if k.kind == keyDedup {
			_, timed := m.lapses.Get(k.lapse())
			c.want(timed && k.untilMs > m.now, "dedup id %q of %d ms has no timer at %d", k.text, k.untilMs, m.now)
			c.want(!c.seqs[k.seq] && k.seq > 0 && k.seq <= m.seq, "dedup id has sequence %d, the last is %d", k.seq, m.seq)
			c.seqs[k.seq] = true
			c.lapses++
		}
		return true
	})
	m.kept.Scan(func(k *kept) bool {
		_, timed := m.lapses.Get(k.lapse())
		c.want(timed && k.untilMs > m.now, "kept result %q of %d ms has no timer at %d", k.key, k.untilMs, m.now)
		c.want(!c.seqs[k.seq] && k.seq > 0 && k.seq <= m.seq, "kept result has sequence %d, the last is %d", k.seq, m.seq)
		c.seqs[k.seq] = true
		c.lapses++
		return true
	})
	c.want(c.unique+c.lapses == m.keys.Len()+m.kept.Len(), "%d keys, counted %d and %d", m.keys.Len(), c.unique, c.lapses-m.kept.Len())
	c.want(c.lapses == m.lapses.Len(), "%d lapses, counted %d", m.lapses.Len(), c.lapses)
}

func (c *checker) checkAttempts() {
	m := c.m
	named := map[string]int{}
	m.tried.Scan(func(t tried) bool {
		it, _ := m.jobs.Get(jobItem{key: t.key})
		a := m.attemptOf(t.attempt)
		c.want(it.job != nil && it.state == stateLeased && a != nil && slices.ContainsFunc(a.jobs, func(j attemptJob) bool {
			return j.key == t.key && j.under(it) && j.holders > 0
		}), "job %v is not leased under attempt %q", ID{Key: t.key}, t.attempt)
		named[t.attempt]++
		return true
	})
	c.want(c.tried == m.tried.Len(), "%d jobs are leased under attempts, %d listed", c.tried, m.tried.Len())
	m.attempts.Scan(func(key string, a *attempt) bool {
		c.want(a.key == key && a.stamp <= m.stamp && a.live == named[key] && (a.live > 0) != (a.waiter != nil), "attempt %q of %d jobs, %d name it", key, a.live, named[key])
		if w := a.waiter; w != nil {
			p, ok := m.parked.Get(parkedItem{node: w.node, request: w.request})
			c.want(ok && p.waiter == w && w.attempt == key, "attempt %q has a waiter that is not parked", key)
		}
		c.bytes += a.bytes()
		return true
	})
}

func (c *checker) checkTombs() {
	m := c.m
	c.want(m.tombs.Len() == m.tombOrder.Len() && m.tombs.Len() <= m.tombsMax, "%d tombstones, %d in order", m.tombs.Len(), m.tombOrder.Len())
	m.tombs.Scan(func(t tomb) bool {
		k, ok := m.tombOrder.Get(t.ord)
		c.want(ok && k == t.key && t.ord <= m.tombNumber && (t.kind == tombAcked || t.kind == tombExpired), "tombstone %+v", t)
		return true
	})
}

func (c *checker) checkMembers() {
	m := c.m
	for i, e := range m.members {
		c.want(i == 0 || m.members[i-1].ID < e.ID, "member %x after %x", e.ID, m.members[max(i, 1)-1].ID)
		c.want(!m.Removed(e.ID), "member %x was removed", e.ID)
		c.want(m.version >= 2 || !e.Standby && e.Join == 0, "member %+v in a state of version %d", e, m.version)
	}
	c.want(m.version >= 2 || len(m.removed) == 0, "%d removed members in a state of version %d", len(m.removed), m.version)
}
