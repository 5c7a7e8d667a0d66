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
	if op.Atomic && !m.sure(op) {
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

// sure tells whether no job of op can be refused, whatever comes before it.
func (m *Machine) sure(op *Enqueue) bool {
	for i := range op.Jobs {
		if op.Jobs[i].UniqueKey != "" {
			return false
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
	j := newJob(n.Body)
	it := jobItem{item.ID.Key, j}
	if before, used := m.jobs.SetHint(it, &m.run.lastJob); used {
		m.jobs.Set(before)
		item.Code = CodeInvalidRequest
		return
	}
	q := m.openQueue(n.Queue)
	q.made = true
	j.stamp = m.stamp
	j.seq = m.nextSeq()
	j.queue = q.number
	j.node = uint32(h.Origin >> 32)
	j.priority = min(n.Priority, 9)
	j.enqueuedMs = m.now
	j.lastIndex = m.index
	j.leaseMs = uint32(min(max(n.LeaseMs, 0), LeaseMaxMs))
	ttlMs := min(n.TTLMs, TTLMaxMs)
	if n.AtMostOnce {
		j.flags |= flagAtMostOnce
		if ttlMs <= 0 {
			ttlMs = AtMostOnceTTLMs
		}
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
	}
	if len(n.Headers) > 0 || n.MaxFailures != 0 || n.keyed() || n.Group != "" {
		m.setRare(q, j, rare{headers: cloneHeaders(n.Headers), maxFailures: n.MaxFailures, more: n.more()})
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
		m.place(q, it, stateReady)
	}
	item.ID = j.id(it.key)
	if n.keyed() {
		m.takeKeys(q, it, n)
	}
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
