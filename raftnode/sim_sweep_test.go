package raftnode

import "raftq/fsm"

// What one op does to many jobs of the side, and what keeps others out of it: purges,
// redrives, a consumer that gives back all it has, and unique keys. What a job is by now
// the model does not know of each (it may be dead by leases that ended); of those that
// it is sure of it demands all, and of the others it takes any.

// over tells whether a side job has ended for sure.
func (j *modelJob) over() bool { return j.acked || j.side.gone != 0 }

// mayHaveDied tells whether a side job has had as many deliveries as it may fail, or was
// rejected.
func (j *modelJob) mayHaveDied() bool {
	most := int(j.job.MaxFailures)
	if most == 0 {
		most = fsm.MaxFailuresDefault
	}
	return j.rejectedIn != "" || j.side.again || j.side.loose || int(j.grant-j.side.base) >= most
}

// purged: all jobs of the side queue are gone, whoever has them.
func (l *logChecker) purged(i uint64, le *logEntry, o *simOp, res *fsm.Result) {
	w := l.w
	sure, most := 0, 0
	for _, j := range l.side.jobs {
		if j.over() {
			continue
		}
		most++
		held := j.leased && le.pos.TimeMs < j.untilMs && j.fact.d.Queue == sideQueue
		j.leased, j.settledAt = false, i
		if !j.side.loose && (!j.granted || held) {
			sure++
			j.side.gone = i
		} else {
			j.side.loose, j.side.at = true, i // a dead letter stays
		}
	}
	if w.stats.Purged += res.Count; res.Count < sure || res.Count > most || res.More {
		w.failf("entry %d: %v drops %d jobs (more: %v), %d to %d are there", i, o, res.Count, res.More, sure, most)
	}
}

// redriven: dead jobs begin again.
func (l *logChecker) redriven(i uint64, o *simOp, res *fsm.Result) {
	w := l.w
	most := 0
	for _, j := range l.side.jobs {
		if j.over() || !j.mayHaveDied() {
			continue
		}
		if most++; res.Count > 0 {
			j.side.again, j.side.base, j.side.fails, j.rejectedIn = true, j.grant, 0, ""
			j.notMs, j.notTrue = 0, 0 // a failed dead letter does not wait for its delay
		}
	}
	if w.stats.Redriven += res.Count; res.Count > most || res.More {
		w.failf("entry %d: %v moves %d dead jobs (more: %v), at most %d can be dead", i, o, res.Count, res.More, most)
	}
}

// released: all that a dequeue was handed and still has is ready again.
func (l *logChecker) released(i uint64, le *logEntry, o *simOp, op *fsm.ReleaseConsumer, res *fsm.Result) {
	w := l.w
	by := w.check.opOfMark(op.Consumer)
	sure, most := 0, 0
	for _, j := range by.given {
		if j.fact.op != by || j.fact.back || j.acked || j.job.AtMostOnce || j.expires != 0 && le.pos.TimeMs >= j.expires {
			continue
		}
		if j.side != nil && j.side.loose {
			most++
			j.leased, j.settledAt = false, i
		} else if j.leased && le.pos.TimeMs < j.untilMs {
			sure++
			most++
			j.leased, j.fact.over, j.settledAt = false, true, i
		}
	}
	if w.stats.Released += res.Count; res.Count < sure || res.Count > most || res.More {
		w.failf("entry %d: %v gives back %d jobs of %v (more: %v), which has %d to %d", i, o, res.Count, by, res.More, sure, most)
	}
}

// takesUnique: no two jobs with one unique key are there.
func (l *logChecker) takesUnique(i uint64, o *simOp, m *modelJob) {
	k := m.job.UniqueKey
	if k == "" {
		return
	}
	if was := l.side.unique[k]; was != nil && !was.over() && !was.mayHaveDied() {
		l.w.failf("entry %d: %v adds job %v with unique key %q, which job %v of entry %d has", i, o, m.key, k, was.key, was.index)
	}
	l.side.unique[k] = m
}

// notUnique: the job that is named has the key, and is there.
func (l *logChecker) notUnique(i uint64, o *simOp, job *fsm.NewJob, res *fsm.ItemResult) {
	l.w.stats.NotUnique++
	has := l.jobs[res.ID.Key]
	if has == nil || has.job.UniqueKey != job.UniqueKey || job.UniqueKey == "" || has.over() || has.rejectedIn == sideQueue && !has.side.loose {
		l.w.failf("entry %d: %v is refused because job %v has unique key %q, and it has not", i, o, res.ID, job.UniqueKey)
	}
}

// sideRefused: an op of the side may fail as a whole for few reasons.
func (l *logChecker) sideRefused(i uint64, o *simOp, op fsm.Op, res *fsm.Result) {
	w := l.w
	switch op := op.(type) {
	case *fsm.Tx:
		if len(op.Ops) < 3 { // without an ack
			w.failf("entry %d: %v is aborted: %v", i, o, res.Code)
		}
	case *fsm.Enqueue:
		taken := false
		for k := range res.Items {
			taken = taken || res.Items[k].Code == fsm.CodeNotUnique
			if r := &res.Items[k]; r.Code == fsm.CodeNotUnique && l.jobs[r.ID.Key] != nil { // or one of its own
				l.notUnique(i, o, &op.Jobs[k], r)
			}
		}
		if !op.Atomic || !taken {
			w.failf("entry %d: %v is refused: %v", i, o, res.Code)
		}
	case *fsm.Purge, *fsm.Redrive:
		if res.Code != fsm.CodeQueueNotFound {
			w.failf("entry %d: %v is refused: %v", i, o, res.Code)
		}
	case *fsm.ReleaseConsumer, *fsm.Append, *fsm.Configure, *fsm.Pause:
		w.failf("entry %d: %v is refused: %v", i, o, res.Code)
	}
}
