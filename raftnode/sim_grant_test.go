package raftnode

import (
	"cmp"
	"slices"

	"raftq/fsm"
)

func (l *logChecker) dequeued(i uint64, le *logEntry, h fsm.BatchHeader, op *fsm.Dequeue, res *fsm.Result, granted []*modelJob) []*modelJob {
	w := l.w
	o := w.check.opOfMark(op.Consumer)
	w.check.effect(o, i, h, res)
	o.epoch, o.request = h.Epoch, op.Request
	if a := l.attempts[op.AttemptID]; a != nil {
		granted = l.servedBefore(i, le, a, granted)
		if l.again(i, le, h, o, op, res, l.attempts[op.AttemptID]) {
			return granted
		}
	}
	if res.Parked {
		v := l.waiter(i, le, h, o, op)
		l.waiters = append(l.waiters, v)
		if op.AttemptID != "" {
			l.attempts[op.AttemptID] = &modelAttempt{waiter: v}
		}
		return granted
	}
	if len(res.Jobs) == 0 {
		l.empties = append(l.empties, emptyAnswer{o, op.Queues})
	}
	return l.granting(i, le, o, h.Origin, op.Queues, int(op.Max), res.Jobs, granted)
}

func (l *logChecker) waiter(i uint64, le *logEntry, h fsm.BatchHeader, o *simOp, op *fsm.Dequeue) *modelWaiter {
	return &modelWaiter{op: o, origin: h.Origin, epoch: h.Epoch, request: op.Request, index: i, deadline: le.pos.TimeMs + op.WaitMs, queues: op.Queues, max: int(op.Max)}
}

// checkEmpty fails answers "nothing there" of entry i when there certainly was
// something from before it until after it.
func (l *logChecker) checkEmpty(i uint64) {
	for _, e := range l.empties {
		for _, q := range e.queues {
			for p := range uint8(10) {
				if list := l.waitingJobs(q, p); len(list) > 0 && list[0].index < i {
					l.w.failf("entry %d: %v found nothing, but job %v of entry %d is in %s", i, e.op, list[0].key, list[0].index, q)
				}
			}
		}
	}
	l.empties = l.empties[:0]
}

func (l *logChecker) handedOut(i uint64, le *logEntry, origin uint64, ho fsm.Handout, granted []*modelJob) []*modelJob {
	w := l.w
	at := slices.IndexFunc(l.waiters, func(v *modelWaiter) bool { return v.origin == origin && v.request == ho.Request })
	if at < 0 {
		w.failf("entry %d: jobs handed to request %d of %x, which does not wait", i, ho.Request, origin)
	}
	v := l.waiters[at]
	s := l.sessions[origin]
	if s.away && s.awayTouched != i {
		w.failf("entry %d: jobs handed to request %d of %x, which is away", i, ho.Request, origin)
	}
	l.waiters = slices.Delete(l.waiters, at, at+1)
	w.stats.Handouts++
	// The oldest first: nobody who waited longer for one of these queues may
	// still wait when the entry is over, unless its node is or was away, or it took over
	// the place of one that was, within this entry.
	for k := range ho.Result.Jobs {
		q := ho.Result.Jobs[k].Queue
		for _, older := range l.waiters[:at] {
			if so := l.sessions[older.origin]; !older.gone && older.index != i && !so.away && so.awayTouched != i && slices.Contains(older.queues, q) && !l.servedIn(le, older) {
				w.failf("entry %d: %v was handed a job of %s before %v, which has waited longer", i, v.op, q, older.op)
			}
		}
	}
	return l.granting(i, le, v.op, origin, v.queues, v.max, ho.Result.Jobs, granted)
}

func (l *logChecker) servedIn(le *logEntry, v *modelWaiter) bool {
	return slices.ContainsFunc(le.handouts[v.origin], func(h fsm.Handout) bool { return h.Request == v.request })
}

// granting takes hand-outs of one entry to one request.
func (l *logChecker) granting(i uint64, le *logEntry, o *simOp, origin uint64, queues []string, most int, jobs []fsm.Delivered, granted []*modelJob) []*modelJob {
	w := l.w
	var a *modelAttempt
	if id := o.op.(*fsm.Dequeue).AttemptID; id != "" && len(jobs) > 0 {
		a = &modelAttempt{}
		l.attempts[id] = a
		if o.family.done == nil {
			o.family.took(o, i, le)
		}
	}
	if len(jobs) > max(most, 1) {
		w.failf("entry %d: %v was handed %d jobs", i, o, len(jobs))
	}
	for k := range jobs {
		d := &jobs[k]
		j := l.jobs[d.ID.Key]
		if j == nil {
			w.failf("entry %d: %v was handed job %v, which nobody enqueued", i, o, d.ID)
		}
		if d.Queue != j.job.Queue && !(j.side != nil && d.Queue == sideDead) || d.Body != string(j.job.Body) || d.Priority != j.job.Priority || !slices.Equal(d.Headers, j.job.Headers) || !slices.Contains(queues, d.Queue) {
			w.failf("entry %d: %v was handed job %v with another queue, body, header or priority", i, o, d.ID)
		}
		switch {
		case j.acked:
			w.failf("entry %d: %v was handed job %v, which entry %d acked", i, o, d.ID, j.ackedAt)
		case d.Grant != j.grant+1:
			w.failf("entry %d: %v was handed job %v with grant %d after %d", i, o, d.ID, d.Grant, j.grant)
		case le.pos.TimeMs < j.notMs:
			w.failf("entry %d: %v was handed job %v %d ms before its delay was over", i, o, d.ID, j.notMs-le.pos.TimeMs)
		case j.notTrue != 0 && le.stamped < j.notTrue-tolerance(j.wait):
			w.failf("entry %d: %v was handed job %v %s of true time before its delay of %s was over", i, o, d.ID, ms(j.notTrue-le.stamped), ms(j.wait))
		case j.expires != 0 && le.pos.TimeMs >= j.expires:
			w.failf("entry %d: %v was handed job %v after its TTL", i, o, d.ID)
		case j.leased && le.pos.TimeMs < j.untilMs:
			w.failf("entry %d: two leases on job %v: %v was handed it while grant %d lives %d ms more", i, d.ID, o, j.grant, j.untilMs-le.pos.TimeMs)
		case j.leased && le.stamped < j.since+j.lease-tolerance(j.lease):
			w.failf("entry %d: two leases on job %v in true time: grant %d of %s was %s old", i, d.ID, j.grant, ms(j.lease), ms(le.stamped-j.since))
		case j.job.AtMostOnce && j.granted && !j.fact.back:
			w.failf("entry %d: at-most-once job %v is handed out again", i, d.ID)
		case j.rejectedIn == d.Queue && (j.side == nil || !j.side.loose):
			w.failf("entry %d: %v was handed job %v, which was rejected there", i, o, d.ID)
		case j.side != nil && j.side.gone != 0 && j.side.gone < i:
			w.failf("entry %d: %v was handed job %v, which entry %d purged", i, o, d.ID, j.side.gone)
		case d.Fence != i:
			w.failf("entry %d: job %v handed out with fence %d", i, d.ID, d.Fence)
		case int(d.Deliveries) != int(d.Grant)-j.backs && j.side == nil:
			w.failf("entry %d: job %v says %d deliveries, grant %d, %d given back", i, d.ID, d.Deliveries, d.Grant, j.backs)
		}
		lease := o.op.(*fsm.Dequeue).LeaseMs
		if lease <= 0 {
			lease = j.job.LeaseMs
		}
		if lease <= 0 {
			lease = fsm.LeaseDefault
		}
		if d.LeaseUntil != le.pos.TimeMs+lease {
			w.failf("entry %d: %v was handed job %v until %d, not %d", i, o, d.ID, d.LeaseUntil, le.pos.TimeMs+lease)
		}
		if j.side != nil {
			l.sideGranted(i, le, o, j, d)
		} else if !j.granted {
			granted = append(granted, j)
		}
		f := &grantFact{index: i, op: o, origin: origin, d: *d, holders: []holder{{o, *d}}}
		if a != nil {
			a.facts = append(a.facts, f)
		}
		j.granted, j.leased, j.grant, j.fact = true, true, d.Grant, f
		if j.side != nil && (j.side.at == i || j.side.gone == i) {
			j.leased = false // it may have been requeued after that, within this entry
		}
		o.given = append(o.given, j)
		j.untilMs, j.lease, j.since = d.LeaseUntil, lease*1e6, le.stamped
		j.notMs, j.notTrue = 0, 0
		l.grants[modelGrant{d.ID.Key, d.Grant}] = f
	}
	// In one answer: queues as asked for, then priority, then enqueue order. (Groups and
	// dead letters have orders of their own, which the machine's model knows.)
	jobs = slices.DeleteFunc(slices.Clone(jobs), func(d fsm.Delivered) bool { return l.jobs[d.ID.Key].side != nil })
	if !slices.IsSortedFunc(jobs, func(a, b fsm.Delivered) int {
		return cmp.Or(cmp.Compare(slices.Index(queues, a.Queue), slices.Index(queues, b.Queue)), cmp.Compare(b.Priority, a.Priority),
			cmp.Compare(l.jobs[a.ID.Key].seq, l.jobs[b.ID.Key].seq))
	}) {
		w.failf("entry %d: %v was handed jobs out of order", i, o)
	}
	return granted
}

// checkOrder: first deliveries follow enqueue order within a priority, and no
// higher priority is passed over.
func (l *logChecker) checkOrder(i uint64, granted []*modelJob) {
	for _, j := range granted {
		for p := j.job.Priority; p < 10; p++ {
			for _, x := range l.waitingJobs(j.job.Queue, p) {
				if x.granted {
					continue
				}
				if x.seq < j.seq || x.index < i && p > j.job.Priority {
					l.w.failf("entry %d: job %v of entry %d, priority %d, was handed out before job %v of entry %d, priority %d, both in %s", i, j.key, j.index, j.job.Priority, x.key, x.index, p, j.job.Queue)
				}
				break
			}
		}
	}
}

// checkWaiters: nobody waits for what is there, and the machine knows the same
// waiters as the model.
func (l *logChecker) checkWaiters(i uint64, le *logEntry) {
	n := map[uint64]int{}
	for _, v := range l.waiters {
		n[v.origin]++
		if l.sessions[v.origin].away {
			continue
		}
		for _, q := range v.queues {
			if k := slices.Index(l.queues, q); le.counts[k].Ready > 0 {
				l.w.failf("entry %d: %v waits for %s, where %d jobs are ready", i, v.op, q, le.counts[k].Ready)
			}
		}
	}
	for _, id := range l.origins {
		if s, ok := l.refs[0].Session(id); ok && s.Waiters != n[id] {
			l.w.failf("entry %d: node %x has %d waiters, the model %d", i, id, s.Waiters, n[id])
		}
	}
}
