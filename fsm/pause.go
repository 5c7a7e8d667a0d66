package fsm

// A pause keeps jobs from becoming ready in a queue (in), or from being handed
// out of it (out). What becomes ready meanwhile is held back: delayed, without a
// time, and listed in Machine.back. When the pause ends, these jobs become ready;
// if they are many, the queue is listed in Machine.thaw meanwhile, and the next
// entries make so many ready each.

func (m *Machine) pause(op *Pause) Code {
	over := op.UntilMs != 0 && op.UntilMs <= m.now
	in, out := op.In && !over, op.Out && !over
	if q := m.queueNamed(op.Queue); (q == nil || !q.made) && !in && !out {
		return CodeOK // there is no pause to end
	}
	q := m.openQueue(op.Queue)
	m.make(q)
	m.setPause(q, in, out, op.UntilMs)
	if _, thawing := m.thaw.Get(q.number); thawing {
		n := m.letGo(q, m.run.sweeps)
		m.run.sweeps -= n
		m.noteSweep(n)
	}
	return CodeOK
}

func (m *Machine) setPause(q *queue, in, out bool, untilMs int64) {
	s := *q.set()
	s.pausedIn, s.pausedOut, s.untilMs = in, out, 0
	if in || out {
		s.untilMs = max(untilMs, 0)
	}
	m.setSettings(q, s)
	if in {
		m.thaw.Delete(q.number)
	} else if m.holdsBack(q) {
		m.thaw.Set(q.number, struct{}{})
	}
	m.touch(q)
	m.rested(q)
}

// holdsBack tells whether jobs of q are held back.
func (m *Machine) holdsBack(q *queue) (some bool) {
	m.back.Ascend(aside{queue: q.number}, func(a aside) bool {
		some = a.queue == q.number
		return false
	})
	return some
}

// thawing makes up to budget jobs ready that were held back by pauses which are
// over.
func (m *Machine) thawing(budget int) {
	n := 0
	for n < budget {
		number, _, ok := m.thaw.Min()
		if !ok {
			break
		}
		n += m.letGo(m.ownQueue(m.queueOf(number)), budget-n)
	}
	if n > 0 {
		m.noteSweep(n)
	}
}

// letGo makes up to budget jobs of an owned queue ready that were held back, in
// the order of delivery.
func (m *Machine) letGo(q *queue, budget int) int {
	var keys []Key
	m.back.Ascend(aside{queue: q.number}, func(a aside) bool {
		if a.queue != q.number || len(keys) >= budget {
			return false
		}
		keys = append(keys, a.key)
		return true
	})
	for _, k := range keys {
		it, _ := m.jobs.Get(jobItem{key: k})
		m.ownJob(&it)
		m.move(q, it, stateReady, 0)
	}
	return len(keys)
}

// The timer of a pause forces an entry only while something waits for its end:
// jobs that are held back, or waiters in front of ready jobs.

func (q *queue) pauseTimer() timer {
	return timer{q.settings.untilMs, timerPause.order(uint64(q.number)), Key{}}
}

func (m *Machine) pauseForces(q *queue) bool {
	s := q.settings
	return s.pausedOut && q.ready.Len() > 0 && q.waiters.Len() > 0 || s.pausedIn && m.holdsBack(q)
}

func (m *Machine) setPauseTimer(q *queue) {
	if q.settings.untilMs == 0 {
		return
	}
	if q.forces = m.pauseForces(q); q.forces {
		m.forcing.Set(q.pauseTimer())
	} else {
		m.passive.Set(q.pauseTimer())
	}
}

func (m *Machine) clearPauseTimer(q *queue) {
	if q.settings == nil || q.settings.untilMs == 0 {
		return
	}
	if q.forces {
		m.forcing.Delete(q.pauseTimer())
	} else {
		m.passive.Delete(q.pauseTimer())
	}
}

// retime moves the timer of q's pause to where it belongs, after jobs or waiters
// came or left.
func (m *Machine) retime(q *queue) {
	if q.settings == nil || q.settings.untilMs == 0 || q.forces == m.pauseForces(q) {
		return
	}
	m.clearPauseTimer(q)
	m.setPauseTimer(q)
}
