package raftnode

import (
	"fmt"
	"slices"

	"raftq/fsm"
)

// A dequeue with an attempt id hands out once, as long as a lease of that lives.

// modelAttempt is what an attempt was given last, or that it waits.
type modelAttempt struct {
	facts  []*grantFact
	waiter *modelWaiter
}

// holder is a request that was answered with a hand-out.
type holder struct {
	op *simOp
	d  fsm.Delivered
}

func (f *simFamily) attemptID() string { return fmt.Sprintf("a%d", f.ops[0].id) }

// heldBy tells what an op was given of a hand-out; nil when it was not.
func (f *grantFact) heldBy(o *simOp) *fsm.Delivered {
	for k := range f.holders {
		if f.holders[k].op == o {
			return &f.holders[k].d
		}
	}
	return nil
}

// lives tells whether the lease of a hand-out lives for sure in entry i, or may.
func (l *logChecker) lives(i uint64, le *logEntry, f *grantFact) (surely, perhaps bool) {
	j := l.jobs[f.d.ID.Key]
	loose := j.side != nil && j.side.loose
	if j.fact != f || j.expires != 0 && le.pos.TimeMs >= j.expires {
		return false, false
	}
	if j.settledAt == i || loose && !f.back {
		return false, true // before this dequeue or after it
	}
	leased := j.leased && !f.back && le.pos.TimeMs < j.untilMs
	return leased, leased
}

// again judges a dequeue of an attempt that is known. It is false when it is as good as
// a new one.
func (l *logChecker) again(i uint64, le *logEntry, h fsm.BatchHeader, o *simOp, op *fsm.Dequeue, res *fsm.Result, a *modelAttempt) bool {
	w := l.w
	for _, f := range a.facts {
		surely, perhaps := l.lives(i, le, f)
		at := slices.IndexFunc(res.Jobs, func(d fsm.Delivered) bool { return d.ID.Key == f.d.ID.Key && d.Grant == f.d.Grant })
		switch {
		case at < 0 && surely:
			w.failf("entry %d: %v comes again and is not given job %v, of which grant %d of entry %d lives", i, o, f.d.ID, f.d.Grant, f.index)
		case at >= 0 && !perhaps:
			w.failf("entry %d: %v comes again and is given grant %d of job %v, which is over", i, o, f.d.Grant, f.d.ID)
		case at < 0:
			continue
		}
		d, was := &res.Jobs[at], f.d
		was.LeaseUntil = d.LeaseUntil
		if !sameDelivered(d, &was) || surely && l.jobs[f.d.ID.Key].extendedAt != i && d.LeaseUntil != l.jobs[f.d.ID.Key].untilMs {
			w.failf("entry %d: %v comes again and is given %+v; entry %d gave it %+v", i, o, d, f.index, f.d)
		}
		f.holders = append(f.holders, holder{o, *d})
	}
	known := 0
	for k := range res.Jobs {
		d := &res.Jobs[k]
		if f := l.grants[modelGrant{d.ID.Key, d.Grant}]; f != nil && f.heldBy(o) != nil {
			known++
		}
	}
	if known > 0 {
		if known < len(res.Jobs) {
			w.failf("entry %d: %v comes again and is given %d jobs as before and others too", i, o, known)
		}
		w.stats.Attempts++
		if f := o.family; f.done != nil {
			f.count(o, le, &w.stats.AttemptsElsewhere, &w.stats.AttemptsLater, &w.stats.AttemptsOutlived, &w.stats.AttemptsRestored)
		}
		return true
	}
	v := a.waiter
	at := slices.Index(l.waiters, v)
	if v == nil || at < 0 || v.gone {
		return false
	}
	// It takes over the place of the one that waits.
	w.stats.WaitsTaken++
	a.waiter = nil
	if !res.Parked {
		l.waiters = slices.Delete(l.waiters, at, at+1)
		return false
	}
	a.waiter = l.waiter(i, le, h, o, op)
	l.waiters[at] = a.waiter
	return true
}

// servedBefore takes the hand-out to an attempt that waited until this entry: it came
// before the dequeue at hand, which would have taken its place.
func (l *logChecker) servedBefore(i uint64, le *logEntry, a *modelAttempt, granted []*modelJob) []*modelJob {
	v := a.waiter
	if v == nil || !l.servedIn(le, v) || !slices.Contains(l.waiters, v) {
		return granted
	}
	list := le.handouts[v.origin]
	k := slices.IndexFunc(list, func(h fsm.Handout) bool { return h.Request == v.request })
	ho := list[k]
	le.handouts[v.origin] = slices.Delete(slices.Clone(list), k, k+1)
	return l.handedOut(i, le, v.origin, ho, granted)
}

// returned follows hand-outs that come back because nobody read them: what two tries of
// an attempt were answered with comes back with the second.
func (l *logChecker) returned(i uint64, le *logEntry, j *modelJob, it *fsm.Item, r *fsm.ItemResult) {
	w := l.w
	f := l.grants[modelGrant{it.Key, it.Grant}]
	if f == nil || it.Tag != f.d.Tag {
		// A fast hand-out that was lost with its leader is given back in vain.
		if r.Code == fsm.CodeOK {
			w.failf("entry %d: grant %d of job %v is given back, which nobody has", i, it.Grant, it.Key)
		}
		return
	}
	if f.returned++; le.pos.TimeMs < j.untilMs {
		f.inTime++
	}
	switch {
	case r.Code == fsm.CodeOK && f.returned < len(f.holders):
		w.failf("entry %d: job %v is given back by %d of the %d requests that were answered with it", i, it.Key, f.returned, len(f.holders))
	case r.Code == fsm.CodeOK && len(f.holders) > 1:
		w.stats.Shared++
	case r.Code != fsm.CodeOK && f.returned == len(f.holders):
		if surely, _ := l.lives(i, le, f); surely {
			w.failf("entry %d: job %v was given back by all %d requests that were answered with it, and stays leased", i, it.Key, len(f.holders))
		}
	}
}

// nothingAgain holds "nothing there" against what the attempt has.
func (c *checker) nothingAgain(o *simOp, op *fsm.Dequeue, index uint64) {
	a := c.attempts[op.AttemptID]
	if a == nil || index != c.last() {
		return
	}
	for _, f := range a.facts {
		if surely, _ := c.lives(index, c.at(index), f); surely {
			c.w.failf("%v found nothing at index %d, but grant %d of job %v is its own and lives", o, index, f.d.Grant, f.d.ID)
		}
	}
}
