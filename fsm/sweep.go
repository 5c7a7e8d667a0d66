package fsm

import (
	"cmp"
	"slices"
)

// Ops that go through many jobs do so in steps: the ops of one entry take SweepMax
// together and say whether others are left; who sent an op sends another.

// sweepUpTo is the sequence that bounds a sweep: what comes later is spared.
func (m *Machine) sweepUpTo(upTo uint64) uint64 {
	if upTo == 0 {
		return m.seq
	}
	return upTo
}

// swept ends a sweep of n jobs.
func (m *Machine) swept(n int, more bool, upTo uint64) {
	m.run.sweeps -= n
	m.noteSweep(n)
	if r := m.run.result; r != nil {
		r.Count, r.More, r.UpTo = n, more, upTo
	}
}

func (m *Machine) purge(op *Purge) Code {
	q := m.queueNamed(op.Queue)
	if q == nil || !q.made {
		return CodeQueueNotFound
	}
	upTo := m.sweepUpTo(op.UpTo)
	jobs, more := sweep(q.lanes(op.States), upTo, m.run.sweeps)
	q = m.ownQueue(q)
	for _, p := range jobs {
		it, _ := m.jobs.Get(jobItem{key: p.key})
		m.drop(q, it)
	}
	m.rested(q)
	m.swept(len(jobs), more, upTo)
	return CodeOK
}

// redrivable returns the first jobs of q by sequence that died for one of the
// reasons: dead ones, and those that dead_letter moved here and nobody holds.
func (m *Machine) redrivable(q *queue, reasons []uint8, upTo uint64, limit int) (keys []Key, more bool) {
	var lanes []lane
	for _, reason := range reasons {
		lanes = append(lanes, q.deadLane(reason))
	}
	jobs, more := sweep(lanes, upTo, limit)
	for _, reason := range reasons {
		n := 0
		m.moved.Ascend(aside{queue: q.number, ord: uint64(reason) << 60}, func(a aside) bool {
			if a.queue != q.number || a.ord > uint64(reason)<<60|upTo {
				return false
			}
			if n == limit {
				more = true
				return false
			}
			n++
			jobs = append(jobs, place{a.ord & seqMax, a.key})
			return true
		})
	}
	slices.SortFunc(jobs, func(a, b place) int { return cmp.Compare(a.ord, b.ord) })
	if len(jobs) > limit {
		jobs, more = jobs[:limit], true
	}
	for _, p := range jobs {
		keys = append(keys, p.key)
	}
	return keys, more
}

// releaseConsumer bounds itself by the index of hand-outs, not by sequence: what
// the consumer is given meanwhile is spared. Jobs that are looked at in vain, because
// they are spared or their queue is deleted, are bounded too: others may follow them.
func (m *Machine) releaseConsumer(op *ReleaseConsumer) Code {
	upTo := op.UpTo
	if upTo == 0 {
		upTo = m.index
	}
	var held []jobItem
	more, looked := false, 0
	m.consumers.Ascend(aside{consumer: op.Consumer}, func(a aside) bool {
		if a.consumer != op.Consumer || a.ord > seqMax {
			return false
		}
		if more = looked == 2*m.sweepMax; more {
			return false
		}
		looked++
		it, q := m.find(a.key)
		if q == nil || it.fence > upTo {
			return true
		}
		if more = len(held) == m.run.sweeps; !more {
			held = append(held, it)
		}
		return !more
	})
	for _, it := range held {
		q := m.ownQueue(m.queueOf(it.queue))
		m.ownJob(&it)
		it.flags &^= flagTag
		m.toReady(q, it)
	}
	m.swept(len(held), more, upTo)
	return CodeOK
}
