package fsm

// Limits of queues. They are for producers: what dead letters, redrives and
// requeues bring back is not held to them, except that a dead letter queue which
// is full and drops nothing takes no dead letter.

// length is what max_len limits.
func (q *queue) length() int64 {
	return int64(q.states[stateDelayed] + q.states[stateReady] + q.states[stateLeased] + q.states[stateHeld])
}

// liveBytes is what max_bytes limits.
func (q *queue) liveBytes() int64 { return q.bytes - q.deadBytes }

// admit tells whether a queue takes a new job; q is nil when there is none yet,
// and owned if it has settings: where it drops its oldest job, admit does that.
//
// A fast answer that this let through stands on nothing here: lost and proposed
// again, the enqueue goes in whatever the queue says by then.
func (m *Machine) admit(q *queue, n *NewJob) Code {
	switch {
	case m.run.answered || q == nil:
		return CodeOK
	case n.MaxLen > 0 && int64(q.ready.Len()) >= n.MaxLen:
		return CodeQueueFull
	case q.settings == nil:
		return CodeOK
	case q.settings.pausedIn:
		return CodeQueuePaused
	}
	bytes := int64(0)
	if q.settings.config.MaxBytes > 0 {
		bytes = n.bytes()
	}
	if !m.makeRoom(q, bytes) {
		return CodeQueueFull
	}
	return CodeOK
}

// refuses tells whether a queue may refuse a new job that says nothing of it.
func (q *queue) refuses() bool {
	s := q.set()
	return s.pausedIn || s.config.MaxLen > 0 || s.config.MaxBytes > 0
}

// makeRoom tells whether the limits of an owned queue leave room for one more job
// of so many bytes, after dropping old ones if it does that. When dropping does not
// help, nothing is dropped.
func (m *Machine) makeRoom(q *queue, bytes int64) bool {
	c := &q.set().config
	length, live := q.length()+1, q.liveBytes()+bytes
	if seeded == "max-len-off-by-one" {
		length--
	}
	over := func() bool { return c.MaxLen > 0 && length > c.MaxLen || c.MaxBytes > 0 && live > c.MaxBytes }
	switch {
	case !over():
		return true
	case c.Overflow != OverflowDropOldest || c.MaxBytes > 0 && bytes > c.MaxBytes:
		return false
	}
	// One drop is free, so that a queue does not outgrow its limit. When the limit
	// was lowered, the others are spread over entries.
	var victims []Key
	spent := false
	q.oldestReady(func(k Key) bool {
		if spent = len(victims) > m.run.sweeps; spent {
			return false
		}
		it, _ := m.jobs.Get(jobItem{key: k})
		victims = append(victims, k)
		length--
		live -= it.bytes()
		return over()
	})
	if over() && !spent {
		return false
	}
	m.run.sweeps -= max(len(victims)-1, 0)
	for _, k := range victims {
		it, _ := m.jobs.Get(jobItem{key: k})
		m.expire(q, it)
	}
	m.noteSweep(len(victims))
	return true
}

// oldestReady shows the ready jobs of the lowest priority by sequence, then those
// of the next, until look returns false.
func (q *queue) oldestReady(look func(Key) bool) {
	for p, more := uint64(0), true; more && p < 10; p++ {
		merge(q.readyLanes(p), 0, false, func(_ uint64, k Key) bool {
			more = look(k)
			return more
		})
	}
}

// bytes is what the job will cost.
func (j *NewJob) bytes() int64 {
	cost := jobCost + int64(len(j.Body))
	if j.hasRare() {
		r := j.rare()
		cost += r.bytes()
	}
	return cost
}
