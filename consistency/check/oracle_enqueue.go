package check

import (
	"fmt"

	"raftq/fsm"
)

// known refuses options that the oracle has no rules for.
func known(op *fsm.Enqueue) error {
	for i := range op.Jobs {
		if n := &op.Jobs[i]; n.AtMs != 0 || n.MaxLen != 0 {
			return fmt.Errorf("the oracle knows no job like %+v", n)
		}
	}
	return nil
}

func (o *oracle) enqueue(h fsm.BatchHeader, op *fsm.Enqueue, answered bool) (all []oResult) {
	for i := range op.Jobs {
		n := &op.Jobs[i]
		res := oResult{key: fsm.Key{Hi: h.Epoch, Lo: op.First + uint64(i)}}
		first, known := o.dedup[[2]string{n.Queue, n.DedupID}]
		holder := o.unique[[2]string{n.Queue, n.UniqueKey}]
		switch {
		case known && n.DedupID != "" && !answered:
			res = oResult{key: first, duplicate: true}
		case holder != nil && !answered:
			res = oResult{key: holder.key, code: fsm.CodeNotUnique}
			o.did["refused by a unique key"]++
		case o.queue(n.Queue).in && !answered:
			res.code = fsm.CodeQueuePaused
			o.did["refused by a pause"]++
		default:
			o.insert(n, res.key, !known)
		}
		o.made(n, res)
		all = append(all, res)
	}
	return all
}

func (o *oracle) made(n *fsm.NewJob, res oResult) {
	o.enqueues[string(n.Body)] = append(o.enqueues[string(n.Body)], oMade{index: o.index, result: res, job: n})
}

func (o *oracle) insert(n *fsm.NewJob, key fsm.Key, takeDedup bool) {
	o.seq++
	j := &oJob{key: key, queue: n.Queue, body: string(n.Body), seq: o.seq, prio: n.Priority, amo: n.AtMostOnce, lease: n.LeaseMs, maxFailures: n.MaxFailures, born: o.now, group: n.Group, unique: n.UniqueKey}
	o.jobs[key] = j
	if k := [2]string{n.Queue, n.UniqueKey}; n.UniqueKey != "" && o.unique[k] == nil {
		o.unique[k] = j
	}
	ttl := n.TTLMs
	if j.amo && ttl == 0 {
		ttl = fsm.AtMostOnceTTLMs
	}
	if ttl > 0 {
		j.expires = o.now + ttl
		o.at(oTimer{ms: j.expires, kind: 3, seq: j.seq, job: j})
	}
	if n.DelayMs > 0 {
		o.move(j, "delayed")
		o.due(j, o.now+n.DelayMs, 1)
	} else {
		o.toReady(j)
	}
	if n.DedupID != "" && takeDedup {
		k := [2]string{n.Queue, n.DedupID}
		o.dedup[k] = key
		until := n.DedupTTLMs
		if until == 0 {
			until = fsm.DedupTTLMs
		}
		o.at(oTimer{ms: o.now + until, kind: 7, seq: j.seq, dedup: k})
	}
}

// due sets the timer of a job's state: 1 = delay, 2 = lease.
func (o *oracle) due(j *oJob, ms int64, kind int) {
	j.due = ms
	o.at(oTimer{ms: ms, kind: kind, seq: j.seq, job: j, life: j.life})
}
