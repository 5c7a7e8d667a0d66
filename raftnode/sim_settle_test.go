package raftnode

import (
	"raftq/fsm"
)

func (l *logChecker) settled(i uint64, le *logEntry, items []fsm.Item, res *fsm.Result, kind opKind) {
	if kind != opGiveBack {
		l.w.check.effect(l.w.check.opOfMark(items[0].Error), i, le.header(), res)
	}
	l.settledItems(i, le, items, res, kind)
}

func (l *logChecker) settledItems(i uint64, le *logEntry, items []fsm.Item, res *fsm.Result, kind opKind) {
	for k := range items {
		l.settledItem(i, le, &items[k], &res.Items[k], kind)
	}
}

// settledMixed takes a list of verbs.
func (l *logChecker) settledMixed(i uint64, le *logEntry, op *fsm.Settle, res *fsm.Result) {
	w := l.w
	w.stats.Settles++
	w.check.effect(w.check.opOfMark(op.Items[0].Error), i, le.header(), res)
	if len(res.Items) != len(op.Items) {
		w.failf("entry %d: %d items of a list are answered with %d", i, len(op.Items), len(res.Items))
	}
	for k := range op.Items {
		l.settledItem(i, le, &op.Items[k].Item, &res.Items[k], simVerbs[op.Items[k].Verb])
	}
}

var simVerbs = map[fsm.Verb]opKind{fsm.VerbAck: opAck, fsm.VerbNack: opNack, fsm.VerbRelease: opRelease, fsm.VerbReject: opReject, fsm.VerbExtend: opExtend}

func (l *logChecker) settledItem(i uint64, le *logEntry, it *fsm.Item, r *fsm.ItemResult, kind opKind) {
	w := l.w
	j := l.jobs[it.Key]
	if j == nil {
		w.failf("entry %d: item names job %v, which nobody enqueued", i, it.Key)
	}
	if kind == opGiveBack {
		l.returned(i, le, j, it, r)
	}
	loose := j.side != nil && j.side.loose // a cancelled one may still be leased
	if r.Code != fsm.CodeOK || r.Already {
		if r.Already && !j.acked && !loose { // deleted by its id is as good as acked
			w.failf("entry %d: job %v is said to be acked, and is not", i, it.Key)
		}
		if r.Code == fsm.CodeLeaseLost {
			w.stats.StaleReceipts++
		}
		return
	}
	if j.acked {
		w.failf("entry %d: %v of job %v took effect, but entry %d acked it", i, kind, it.Key, j.ackedAt)
	}
	if it.Grant != j.grant || j.fact == nil || j.fact.back || it.Tag != j.fact.d.Tag {
		w.failf("entry %d: %v with receipt %d of job %v took effect, but the last grant is %d", i, kind, it.Grant, it.Key, j.grant)
	}
	if kind != opAck && kind != opGiveBack && !j.leased && !loose {
		w.failf("entry %d: %v of job %v took effect, but its lease was given up", i, kind, it.Key)
	}
	if j.fact.over && !loose {
		w.failf("entry %d: %v of job %v took effect with receipt %d, which was given up", i, kind, it.Key, it.Grant)
	}
	if j.side != nil && j.side.gone != 0 {
		w.failf("entry %d: %v of job %v took effect after entry %d purged it", i, kind, it.Key, j.side.gone)
	}
	if (kind == opNack || kind == opRelease || kind == opExtend || kind == opReject) && le.pos.TimeMs >= j.untilMs {
		w.failf("entry %d: %v of job %v took effect after the end of its lease", i, kind, it.Key)
	}
	if kind != opExtend {
		j.settledAt = i
	}
	switch kind {
	case opAck:
		if r.Late {
			w.stats.LateAcks++
		}
		j.acked, j.ackedAt, j.leased = true, i, false
	case opReject:
		if w.stats.Rejects++; !r.Dead {
			w.failf("entry %d: job %v is rejected and not dead", i, it.Key)
		}
		j.leased, j.fact.over, j.rejectedIn = false, true, j.fact.d.Queue
		j.notMs, j.notTrue = 0, 0 // as a dead letter it is ready at once
	case opNack:
		j.leased, j.fact.over = false, true
		if it.DelayMs > 0 {
			j.notMs, j.notTrue, j.wait = le.pos.TimeMs+it.DelayMs, le.stamped+it.DelayMs*1e6, it.DelayMs*1e6
		}
		if j.side != nil {
			if j.side.fails++; r.Dead {
				j.notMs, j.notTrue = 0, 0 // as a dead letter it is ready at once
			}
		}
	case opRelease:
		j.leased, j.fact.over = false, true
	case opGiveBack:
		j.leased, j.fact.back = false, true
		j.backs++
	case opExtend:
		lease := it.LeaseMs
		if lease <= 0 {
			lease = j.lease / 1e6
		}
		j.extendedAt = i
		j.untilMs, j.lease, j.since = le.pos.TimeMs+lease, lease*1e6, le.stamped
		if r.LeaseUntil != j.untilMs {
			w.failf("entry %d: extend of job %v says until %d, not %d", i, it.Key, r.LeaseUntil, j.untilMs)
		}
	}
}
