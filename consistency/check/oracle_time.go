package check

import (
	"container/heap"

	"raftq/fsm"
)

// oTimer fires at ms; kinds as in the machine: 1 delay, 2 lease, 3 TTL, 5 a waiter
// gives up, 7 a dedup id is forgotten, 14 a pause ends.
type oTimer struct {
	ms     int64
	kind   int
	seq    uint64
	job    *oJob
	life   int
	waiter *oWaiter
	dedup  [2]string
	queue  *oQueue
}

type oTimers []oTimer

func (t oTimers) Len() int      { return len(t) }
func (t oTimers) Swap(i, j int) { t[i], t[j] = t[j], t[i] }
func (t oTimers) Less(i, j int) bool {
	a, b := t[i], t[j]
	if a.ms != b.ms {
		return a.ms < b.ms
	}
	if a.kind != b.kind {
		return a.kind < b.kind
	}
	return a.seq < b.seq
}
func (t *oTimers) Push(x any) { *t = append(*t, x.(oTimer)) }
func (t *oTimers) Pop() any {
	last := (*t)[len(*t)-1]
	*t = (*t)[:len(*t)-1]
	return last
}

// at sets a timer.
func (o *oracle) at(t oTimer) { heap.Push(&o.timers, t) }

// fire moves time to ms and fires what is due. An entry fires so many timers at
// most; the log is not to come near that here.
func (o *oracle) fire(ms int64) {
	for len(o.timers) > 0 && o.timers[0].ms <= ms {
		t := heap.Pop(&o.timers).(oTimer)
		o.now = t.ms
		switch j := t.job; {
		case t.waiter != nil:
			o.leave(func(w *oWaiter) bool { return w == t.waiter })
		case t.queue != nil:
			if q := t.queue; q.pauses == t.life {
				q.in, q.out = false, false
				o.thawing = append(o.thawing, q)
			}
		case j == nil:
			delete(o.dedup, t.dedup)
		case t.kind == 3:
			if o.jobs[j.key] == j {
				o.end(j, fsm.CodeJobGone)
			}
		case j.life != t.life || o.jobs[j.key] != j:
		case t.kind == 1:
			o.toReady(j)
		case t.kind == 2:
			dead := o.failed(j)
			switch {
			case j.amo:
				j.others = o.sharedAtTheEnd(j)
				o.move(j, "held")
			case dead:
				o.bury(j, "max_failures")
			default:
				o.toReady(j)
			}
		}
	}
	o.now = ms
	for _, q := range o.thawing {
		if !q.in {
			o.letGo(q)
		}
	}
	o.thawing = o.thawing[:0]
}
