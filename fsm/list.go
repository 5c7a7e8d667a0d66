package fsm

import (
	"cmp"
	"slices"
	"strings"
)

// JobCursor is a place in a list of jobs: the zero value is its start.
type JobCursor struct {
	Order uint64 // of the last job looked at: its sequence, or its place in the order of delivery
	Some  bool
}

// page gathers a page of a list: up to limit jobs of some states, and whether
// others follow. It looks at no more than ScanMax.
type page struct {
	m      *Machine
	states StateSet
	limit  int
	looked int
	jobs   []JobInfo
	more   bool
	last   jobItem // the last job taken, or looked at if nothing was taken since
}

func (m *Machine) newPage(states StateSet, limit int) *page {
	return &page{m: m, states: states, limit: min(max(limit, 1), m.scanMax)}
}

// look shows the page a job; false ends the page.
func (p *page) look(it jobItem) bool {
	if p.looked == p.m.scanMax {
		p.more = true
		return false
	}
	p.looked++
	q := p.m.queueOf(it.queue)
	if p.states&(1<<it.state) != 0 && !q.doomed {
		if len(p.jobs) == p.limit {
			p.more = true
			return false
		}
		p.jobs = append(p.jobs, p.m.jobInfo(q, it))
	} else if len(p.jobs) == p.limit {
		return true // only looking whether others follow
	}
	p.last = it
	return true
}

func (p *page) lookKey(_ uint64, k Key) bool {
	it, _ := p.m.jobs.Get(jobItem{key: k})
	return p.look(it)
}

// QueueJobs lists the jobs of a queue that are in one of the states: ready ones
// alone in the order of delivery (desc: from the end), else by sequence. after is
// the zero cursor at the start. It looks at no more than ScanMax jobs, so a page
// may be empty though others follow. more is false when nothing follows.
func (m *Machine) QueueJobs(queue string, states StateSet, desc bool, after JobCursor, limit int) (jobs []JobInfo, next JobCursor, more bool, code Code) {
	q := m.queueNamed(queue)
	if q == nil || !q.made {
		return nil, JobCursor{}, false, CodeQueueNotFound
	}
	p := m.newPage(states, limit)
	if states == StateReady {
		if from, ok := after.next(desc, looseMax); ok {
			merge(q.deliveryLanes(), from, desc, p.lookKey)
		}
	} else if from, ok := after.next(desc, seqMax); ok {
		merge(q.lanes(states), from, desc, p.lookKey)
	}
	if !p.more {
		return p.jobs, JobCursor{}, false, CodeOK
	}
	next = JobCursor{p.last.seq, true}
	if states == StateReady {
		next.Order = p.last.deliveryPlace()
	}
	return p.jobs, next, true, CodeOK
}

// next returns where a list goes on whose places go up to last; ok is false at its
// end.
func (c JobCursor) next(desc bool, last uint64) (from uint64, ok bool) {
	switch {
	case desc && !c.Some:
		return last, true
	case desc:
		return c.Order - 1, c.Order > 0
	case !c.Some:
		return 0, true
	}
	return c.Order + 1, c.Order < last
}

// AllJobs lists the jobs of all queues that are in one of the states, by key.
// after is the zero key at the start; otherwise it is as QueueJobs.
func (m *Machine) AllJobs(states StateSet, after Key, limit int) (jobs []JobInfo, next Key, more bool) {
	p := m.newPage(states, limit)
	m.jobs.Ascend(jobItem{key: after}, func(it jobItem) bool {
		return it.key == after || p.look(it)
	})
	if !p.more {
		return p.jobs, Key{}, false
	}
	return p.jobs, p.last.key, true
}

// ConsumerJobs lists what a consumer holds, by sequence.
func (m *Machine) ConsumerJobs(consumer string, after JobCursor, limit int) (jobs []JobInfo, next JobCursor, more bool) {
	from, ok := after.next(false, seqMax)
	if !ok {
		return nil, JobCursor{}, false
	}
	p := m.newPage(StateLeased, limit)
	// Two lanes, as consumerPlace has them.
	var held []place
	for lane := range uint64(2) {
		n := 0
		m.consumers.Ascend(aside{consumer: consumer, ord: lane<<60 | from}, func(a aside) bool {
			if a.consumer != consumer || a.ord > lane<<60|seqMax || n > m.scanMax {
				return false
			}
			n++
			held = append(held, place{a.ord & seqMax, a.key})
			return true
		})
	}
	slices.SortFunc(held, func(a, b place) int { return cmp.Compare(a.ord, b.ord) })
	for _, h := range held {
		if !p.lookKey(h.ord, h.key) {
			break
		}
	}
	if !p.more {
		return p.jobs, JobCursor{}, false
	}
	return p.jobs, JobCursor{p.last.seq, true}, true
}

// QueueFilter says which queues a list shows: those whose names begin with
// Prefix and that have so many ready jobs.
type QueueFilter struct {
	Prefix string
	MinLen int64
	MaxLen int64 // -1 = no limit
}

// Queues lists queues in the order of their names, those after cursor. It looks
// at no more than ScanMax, so a page may be empty though others follow; next is
// "" when none does.
func (m *Machine) Queues(f QueueFilter, cursor string, limit int) (queues []QueueInfo, next string) {
	limit = min(max(limit, 1), m.scanMax)
	looked, last, more := 0, "", false
	m.names.Ascend(max(f.Prefix, cursor), func(name string, number uint32) bool {
		if !strings.HasPrefix(name, f.Prefix) {
			return false
		}
		if name <= cursor && cursor != "" {
			return true
		}
		if looked == m.scanMax {
			more = true
			return false
		}
		looked++
		q := m.queueOf(number)
		n := int64(q.ready.Len())
		if q.made && n >= f.MinLen && (f.MaxLen < 0 || n <= f.MaxLen) {
			if len(queues) == limit {
				more = true
				return false
			}
			queues = append(queues, m.queueInfo(q))
		} else if len(queues) == limit {
			return true // only looking whether others follow
		}
		last = name
		return true
	})
	if !more {
		return queues, ""
	}
	return queues, last
}

// MemoryLimit is the smallest --max-memory of the members, 0 = none has one.
func (m *Machine) MemoryLimit() (limit int64) {
	m.eachMemberSession(func(s *session) {
		if n := s.start.MaxMemory; n > 0 && (limit == 0 || n < limit) {
			limit = n
		}
	})
	return limit
}

// DiskAlarm is the highest alarm of the members' disks: 0, 75, 90 or 95. That of
// a member which is away does not count: the others go on without it.
func (m *Machine) DiskAlarm() (percent uint8) {
	m.eachMemberSession(func(s *session) {
		if !s.away {
			percent = max(percent, s.disk)
		}
	})
	return percent
}

func (m *Machine) eachMemberSession(do func(*session)) {
	for _, e := range m.members {
		if s, ok := m.sessions.Get(e.ID); ok {
			do(s)
		}
	}
}
