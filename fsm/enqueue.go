package fsm

import "strings"

func (m *Machine) enqueue(h BatchHeader, op *Enqueue) Code {
	r := &m.run
	if r.result != nil {
		r.result.Items = r.itemSlab(len(op.Jobs))
	}
	if op.Atomic {
		for i := range op.Jobs {
			if m.keyUsed(Key{h.Epoch, op.First + uint64(i)}) {
				return CodeInvalidRequest
			}
		}
	}
	if op.Atomic && !m.admitsAll(op) {
		before := m.save()
		m.enqueueJobs(h, op)
		if !m.failed(before) {
			return CodeOK
		}
		m.undo(before)
		if r.result != nil {
			r.result.abort()
		}
		return CodeAborted
	}
	m.enqueueJobs(h, op)
	return CodeOK
}

// admitsAll tells whether no job of op can be refused, whatever comes before it.
func (m *Machine) admitsAll(op *Enqueue) bool {
	for i := range op.Jobs {
		n := &op.Jobs[i]
		if n.UniqueKey != "" || n.MaxLen > 0 {
			return false
		}
		if i == 0 || n.Queue != op.Jobs[i-1].Queue {
			if q := m.queueNamed(n.Queue); q != nil && q.refuses() {
				return false
			}
		}
	}
	return true
}

func (m *Machine) enqueueJobs(h BatchHeader, op *Enqueue) {
	r := &m.run
	for i := range op.Jobs {
		var item ItemResult
		item.ID.Key = Key{h.Epoch, op.First + uint64(i)}
		if n := &op.Jobs[i]; !n.keyed() || m.run.answered || !m.knownKey(n, &item) {
			m.enqueueJob(h, n, &item)
		}
		m.noteItem(&item)
		if r.result != nil {
			r.result.Items = append(r.result.Items, item)
		}
	}
}

// keyUsed is never true for the keys of a sound replica: its epochs are its
// own, and it counts.
func (m *Machine) keyUsed(k Key) bool {
	_, used := m.jobs.Get(jobItem{key: k})
	return used
}

func (m *Machine) enqueueJob(h BatchHeader, n *NewJob, item *ItemResult) {
	q := m.queueNamed(n.Queue)
	if q != nil && q.settings != nil {
		q = m.ownQueue(q) // admit may drop jobs
	}
	if item.Code = m.admit(q, n); item.Code != CodeOK {
		return
	}
	j := newJob(n.Body)
	it := jobItem{item.ID.Key, j}
	if before, used := m.jobs.SetHint(it, &m.run.lastJob); used {
		m.jobs.Set(before)
		item.Code = CodeInvalidRequest
		return
	}
	if q == nil {
		q = m.newQueue(strings.Clone(n.Queue))
	} else {
		q = m.ownQueue(q)
	}
	m.make(q)
	m.used(q)
	c := &q.set().config
	j.stamp = m.stamp
	j.seq = m.nextSeq()
	j.queue = q.number
	j.node = uint32(h.Origin >> 32)
	j.priority = min(n.Priority, 9)
	j.enqueuedMs = m.now
	j.lastIndex = m.index
	j.leaseMs = uint32(min(max(n.LeaseMs, 0), LeaseMaxMs))
	ttlMs := min(n.TTLMs, TTLMaxMs)
	if ttlMs <= 0 && c.TTLMs > 0 {
		ttlMs = c.TTLMs
		j.flags |= flagQueueTTL
	}
	if n.AtMostOnce {
		j.flags |= flagAtMostOnce
		if ttlMs <= 0 {
			ttlMs = AtMostOnceTTLMs
		}
	}
	if seeded == "ttl-cut-to-seconds" && ttlMs > 1000 {
		ttlMs -= ttlMs % 1000
	}
	if ttlMs > 0 {
		j.expiresMs = m.now + ttlMs
	}
	dueMs := int64(0)
	switch {
	case n.DelayMs > 0:
		dueMs = m.now + min(n.DelayMs, DelayMaxMs)
	case n.AtMs > m.now:
		dueMs = min(n.AtMs, m.now+DelayMaxMs)
	case n.AtMs == 0:
		dueMs = m.now + c.DelayMs
	}
	if n.hasRare() {
		r := n.rare()
		r.headers = cloneHeaders(r.headers)
		m.setRare(q, j, r)
	}
	m.addBytes(q, jobCost+int64(len(j.body)))
	if j.expiresMs != 0 {
		m.forcing.Set(timer{j.expiresMs, timerTTL.order(j.seq), it.key})
	}
	q.enqueued++
	m.totals.enqueued++
	if dueMs > m.now {
		j.dueMs = dueMs
		m.place(q, it, stateDelayed)
	} else {
		m.arrive(q, it)
	}
	item.ID = j.id(it.key)
	if n.keyed() {
		m.takeKeys(q, it, n)
	}
}

func (j *NewJob) hasRare() bool {
	return len(j.Headers) > 0 || j.MaxFailures != 0 || j.keyed() || j.Group != ""
}

// rare is the job's rare part; its headers share j's memory.
func (j *NewJob) rare() rare {
	return rare{headers: j.Headers, maxFailures: j.MaxFailures, more: j.more()}
}

// cloneHeaders copies headers with all their text in one allocation.
func cloneHeaders(headers []Header) []Header {
	if len(headers) == 0 {
		return nil
	}
	var text strings.Builder
	n := 0
	for _, h := range headers {
		n += len(h.Name) + len(h.Value)
	}
	text.Grow(n)
	for _, h := range headers {
		text.WriteString(h.Name)
		text.WriteString(h.Value)
	}
	all := text.String()
	c := make([]Header, len(headers))
	for i, h := range headers {
		c[i].Name, all = all[:len(h.Name)], all[len(h.Name):]
		c[i].Value, all = all[:len(h.Value)], all[len(h.Value):]
	}
	return c
}
