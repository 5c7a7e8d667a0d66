package fsm

// Which job of a queue is handed out next: of the highest priority the one with
// the lowest sequence. Aging, groups and fairness change that, at a cost that does
// not depend on the number of jobs or groups.

// looseMax is the highest key of the tree of ready jobs of a job without group.
const looseMax = groupLane<<readyShift - 1

// next returns the job of an unpaused queue that is handed out next; ok is false
// when there is none.
func (m *Machine) next(q *queue) (k Key, ok bool) {
	if q.groups == nil && q.set().config.AgingMs == 0 {
		_, k, ok = q.ready.Min()
		return k, ok
	}
	return m.choose(q)
}

// level is what can be handed out of one priority.
type level struct {
	first place // of the lowest sequence
	next  place // first, or of a fair queue the first job of the group whose turn it is
	turn  uint64
	some  bool
}

// choose looks at the first job without group and the first jobs of groups with a
// free slot, of each priority: only of the highest when priorities do not age.
func (m *Machine) choose(q *queue) (k Key, ok bool) {
	c := &q.set().config
	fair := c.Fair && q.groups != nil
	var levels [10]level
	for n := uint64(0); n < 10; n++ {
		found := false
		q.ready.Ascend(n<<readyShift, func(order uint64, k Key) bool {
			if found = order <= looseMax; found {
				n = order >> readyShift
				p := place{order & seqMax, k}
				levels[n] = level{first: p, next: p, some: true}
			}
			return false
		})
		if !found || c.AgingMs == 0 {
			break
		}
	}
	if fair {
		for i := range levels {
			levels[i].turn = q.groups.loose
		}
	}
	if q.groups != nil {
		q.groups.offer(&levels, q.groupLimit(), c.AgingMs != 0, fair)
	}
	best, bestPriority := -1, int64(0)
	for i := range levels {
		l := &levels[i]
		if !l.some {
			continue
		}
		priority := m.aged(9-int64(i), l.first.key, c.AgingMs)
		if best < 0 || priority > bestPriority || priority == bestPriority && l.before(&levels[best]) {
			best, bestPriority = i, priority
		}
	}
	if best < 0 {
		return Key{}, false
	}
	return levels[best].next.key, true
}

// before tells which of two levels that have aged to the same priority comes
// first; turns are 0 in a queue that is not fair.
func (l *level) before(o *level) bool {
	return l.turn < o.turn || l.turn == o.turn && l.next.ord < o.next.ord
}

// offer offers the first jobs of groups that have fewer slots taken than limit,
// for each number of slots taken.
func (g *groups) offer(levels *[10]level, limit int, all, fair bool) {
	from := groupPlace{}
	for {
		var at groupPlace
		found := false
		g.firsts.Ascend(from, func(p groupPlace) bool {
			at, found = p, p.busy < limit
			return false
		})
		if !found {
			return
		}
		l := &levels[at.level]
		first := g.firstOf(at)
		was := *l
		if !was.some || first.ord < was.first.ord {
			l.first, l.some = first, true
			if !fair {
				l.next = first
			}
		}
		if fair {
			g.turns.Ascend(groupPlace{busy: at.busy, level: at.level}, func(p groupPlace) bool {
				if !was.some || p.rank < was.turn {
					l.next, l.turn = g.firstOf(p), p.rank
				}
				return false
			})
		}
		if from = (groupPlace{busy: at.busy, level: at.level + 1}); !all {
			from = groupPlace{busy: at.busy + 1}
		}
	}
}

func (g *groups) firstOf(p groupPlace) place {
	e, _ := g.byNumber.Get(p.group)
	return place{e.first.order & seqMax, e.first.key}
}

// aged is what a priority has risen to by the age of its first job. The age counts
// from when that job became ready; from its enqueue, if that was before the queue
// was told to let priorities age.
func (m *Machine) aged(priority int64, first Key, agingMs int64) int64 {
	if agingMs == 0 {
		return priority
	}
	it, _ := m.jobs.Get(jobItem{key: first})
	since := it.dueMs
	if since == 0 {
		since = it.enqueuedMs
	}
	return min(9, priority+(m.now-since)/agingMs)
}
