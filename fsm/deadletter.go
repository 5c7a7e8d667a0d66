package fsm

import "strings"

// bury makes an owned job dead, or moves it to the dead letter queue of its own.
func (m *Machine) bury(q *queue, it jobItem, reason uint8) {
	q.deadTotal++
	m.totals.deadTotal++
	m.ended(it.key)
	if to := m.deadLetterQueue(q, it); to != nil {
		m.deadLetter(q, to, it, reason)
		return
	}
	if seeded == "dead-letter-dropped" && q.set().config.DeadLetter != "" { // it is full
		m.drop(q, it)
		return
	}
	m.take(q, it)
	m.freeUnique(q, it)
	it.flags &^= flagUnique
	if it.moved() {
		m.forcing.Delete(it.keepTimer())
	}
	r := it.getRare()
	r.deadReason = reason
	if m.version >= 2 {
		h := r.past()
		h.deadMs, h.keepMs = m.now, 0
		r.setPast(h)
	}
	m.setRare(q, it.job, r)
	it.dueMs = m.now + q.deadTTL()
	it.lastIndex = m.index
	m.place(q, it, stateDead)
}

// deadLetterQueue returns the queue that a job which dies in q moves to, owned;
// nil when it stays: q has none or is its own, the job was moved once already (so
// no job goes round), or there is no room.
func (m *Machine) deadLetterQueue(q *queue, it jobItem) *queue {
	name := q.set().config.DeadLetter
	if name == "" || name == q.name || it.rare.past().source != "" {
		return nil
	}
	to := m.queueNamed(name)
	if to == nil {
		to = m.newQueue(name)
	}
	if to = m.ownQueue(to); !m.makeRoom(to, it.bytes()) {
		return nil
	}
	m.make(to)
	return to
}

// deadLetter moves a job that died in q to another queue, where it can be worked
// on as any other: it begins anew there, with the reason and the time of its
// death, and is removed after the dead TTL of that queue. An at-most-once job is
// dead there, because nobody may get it again.
func (m *Machine) deadLetter(q, to *queue, it jobItem, reason uint8) {
	m.take(q, it)
	m.freeUnique(q, it)
	it.flags &^= flagUnique
	r := it.getRare()
	r.deadReason = reason
	h := r.past()
	h.deadMs, h.source = m.now, q.name
	until := m.now + to.deadTTL()
	again := it.flags&flagAtMostOnce == 0
	if again {
		it.failures, h.nacks = 0, 0
		h.keepMs = until
	}
	r.setPast(h)
	m.setRare(q, it.job, r)
	m.relocate(q, to, it)
	if again {
		m.forcing.Set(it.keepTimer())
		m.arrive(to, it)
	} else {
		it.dueMs = until
		m.place(to, it, stateDead)
	}
	m.rested(q)
}

// keepTimer is the timer of a moved job that nobody works on.
func (it jobItem) keepTimer() timer {
	return timer{it.rare.history.keepMs, timerDead.order(it.seq), it.key}
}

// relocate gives a job that was taken out of its places a new sequence, and
// another queue or the same.
func (m *Machine) relocate(from, to *queue, it jobItem) {
	m.addBytes(from, -it.bytes())
	if it.expiresMs != 0 {
		m.forcing.Delete(timer{it.expiresMs, timerTTL.order(it.seq), it.key})
	}
	it.queue = to.number
	it.flags &^= flagSlot
	if name := it.group(); name != "" && from != to {
		m.restGroup(from, name)
	}
	it.seq = m.nextSeq()
	it.lastIndex = m.index
	if it.expiresMs != 0 {
		m.forcing.Set(timer{it.expiresMs, timerTTL.order(it.seq), it.key})
	}
	m.addBytes(to, it.bytes())
	m.noteMoved(it)
}

// arrive places a job that was taken out of its places: ready, or held back while
// its queue takes none.
func (m *Machine) arrive(q *queue, it jobItem) {
	it.dueMs = 0
	if q.set().pausedIn {
		m.place(q, it, stateDelayed)
		return
	}
	m.place(q, it, stateReady)
}

// revive brings an owned job back that is dead or was moved by dead_letter: into
// the queue of that name, or where it died when to is "". Its counters begin anew.
// When another job there has its unique key, it returns that job's id.
func (m *Machine) revive(q *queue, it jobItem, to string) (holder ID, ok bool) {
	r := it.getRare()
	h := r.past()
	switch {
	case to != "":
	case h.source != "":
		to = h.source
	default:
		to = q.name
	}
	if t, text := m.queueNamed(to), it.uniqueKey(); t != nil && text != "" {
		if k := m.keyOf(t.number, keyUnique, text); k != nil {
			return k.id, false
		}
	}
	m.take(q, it)
	if it.moved() {
		m.forcing.Delete(it.keepTimer())
	}
	r.lastError, r.deadReason = "", reasonNone
	r.setPast(history{redriven: h.redriven + 1})
	m.setRare(q, it.job, r)
	it.failures = 0
	it.flags &^= flagTag | flagCancel
	target := m.openQueue(to)
	m.make(target)
	m.relocate(q, target, it)
	m.takeUnique(target, it)
	m.arrive(target, it)
	m.rested(q)
	return ID{}, true
}

// reasonNamed returns the dead reason of a name.
func reasonNamed(name string) (reason uint8, ok bool) {
	for reason := uint8(reasonNone + 1); reason < reasonCount; reason++ {
		if reasonNames[reason] == name {
			return reason, true
		}
	}
	return reasonNone, false
}

func (m *Machine) redrive(op *Redrive) Code {
	q := m.queueNamed(op.Queue)
	if q == nil || !q.made {
		return CodeQueueNotFound
	}
	var reasons []uint8
	if op.Reason == "" {
		reasons = []uint8{reasonMaxFailures, reasonRejected}
	} else if reason, ok := reasonNamed(op.Reason); !ok {
		return CodeInvalidOption
	} else if reason == reasonAtMostOnce {
		return CodeAtMostOnce
	} else {
		reasons = []uint8{reason}
	}
	limit := m.run.sweeps
	if op.Max > 0 {
		limit = min(limit, int(op.Max))
	}
	upTo := m.sweepUpTo(op.UpTo)
	// Jobs whose unique key is taken stay. So many are passed over, no more.
	keys, more := m.redrivable(q, reasons, upTo, limit+m.sweepMax)
	q = m.ownQueue(q)
	to := strings.Clone(op.To)
	n := 0
	for i, k := range keys {
		if n == limit {
			more = more || i < len(keys)
			break
		}
		it, _ := m.jobs.Get(jobItem{key: k})
		m.ownJob(&it)
		if _, ok := m.revive(q, it, to); ok {
			n++
		}
	}
	// Without a step ahead another op would do no better, except in another entry.
	m.swept(n, more && (n > 0 || limit == 0), upTo)
	return CodeOK
}
