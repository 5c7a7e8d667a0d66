package fsm

import (
	"slices"
	"strings"

	"github.com/tidwall/btree"
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
	return &page{m: m, states: states, limit: min(max(limit, 1), ScanMax)}
}

// look shows the page a job; false ends the page.
func (p *page) look(it jobItem) bool {
	if p.looked == ScanMax {
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
		scanKeys(&q.ready, desc, after, p.lookKey)
	} else if states&StateReady == 0 {
		scanKeys(&q.rest, desc, after, p.lookKey)
	} else {
		scanBySeq(q, desc, after, p.lookKey)
	}
	if !p.more {
		return p.jobs, JobCursor{}, false, CodeOK
	}
	next = JobCursor{p.last.seq, true}
	if states == StateReady {
		next.Order = p.last.order()
	}
	return p.jobs, next, true, CodeOK
}

func scanKeys(t *btree.Map[uint64, Key], desc bool, after JobCursor, look func(uint64, Key) bool) {
	switch {
	case desc && !after.Some:
		t.Reverse(look)
	case desc && after.Order == 0:
	case desc:
		t.Descend(after.Order-1, look)
	case !after.Some:
		t.Scan(look)
	default:
		t.Ascend(after.Order+1, look)
	}
}

// scanBySeq merges the ready jobs of each priority and the others.
func scanBySeq(q *queue, desc bool, after JobCursor, look func(uint64, Key) bool) {
	type run struct {
		it   btree.MapIter[uint64, Key]
		base uint64 // of the orders of this run
		some bool
	}
	from := uint64(0)
	switch {
	case !desc && after.Some:
		from = after.Order + 1
	case desc && !after.Some:
		from = seqMax
	case desc && after.Order == 0:
		return
	case desc:
		from = after.Order - 1
	}
	if from > seqMax {
		return
	}
	var runs [11]run
	settle := func(r *run) {
		if r.some {
			order := r.it.Key()
			r.some = order >= r.base && order-r.base <= seqMax
		}
	}
	for i := range runs {
		r := &runs[i]
		if i < 10 {
			r.it, r.base = q.ready.Iter(), uint64(i)<<60
		} else {
			r.it = q.rest.Iter()
		}
		r.some = r.it.Seek(r.base | from)
		if desc {
			// Seek goes to the first that is not before; the run ends at from.
			if !r.some {
				r.some = r.it.Last()
			} else if r.it.Key() > r.base|from {
				r.some = r.it.Prev()
			}
		}
		settle(r)
	}
	for {
		var best *run
		for i := range runs {
			r := &runs[i]
			if !r.some {
				continue
			}
			seq := r.it.Key() & seqMax
			if best == nil || desc && seq > best.it.Key()&seqMax || !desc && seq < best.it.Key()&seqMax {
				best = r
			}
		}
		if best == nil || !look(best.it.Key(), best.it.Value()) {
			return
		}
		if desc {
			best.some = best.it.Prev()
		} else {
			best.some = best.it.Next()
		}
		settle(best)
	}
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
	var held []jobItem
	m.forcing.Scan(func(t timer) bool {
		if timerKind(t.ord>>60) == timerLease {
			it, q := m.find(t.key)
			if q != nil && it.rare != nil && it.rare.consumer == consumer && (!after.Some || it.seq > after.Order) {
				held = append(held, it)
			}
		}
		return true
	})
	slices.SortFunc(held, func(a, b jobItem) int {
		if a.seq < b.seq {
			return -1
		}
		return 1
	})
	p := m.newPage(StateLeased, limit)
	for _, it := range held {
		if !p.look(it) {
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
	limit = min(max(limit, 1), ScanMax)
	looked, last, more := 0, "", false
	m.names.Ascend(max(f.Prefix, cursor), func(name string, number uint32) bool {
		if !strings.HasPrefix(name, f.Prefix) {
			return false
		}
		if name <= cursor && cursor != "" {
			return true
		}
		if looked == ScanMax {
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
