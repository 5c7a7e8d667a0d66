package raftnode

import "raftq/fsm"

// answerFast answers the fast requests of an own batch that this leader has
// just appended and applied, as far as their answers stand on committed ground;
// the others wait for commit like strong ones.
//
// From then on the batch is the only trace of the request: it is proposed again
// under every leader until it is applied, with marks for what was answered. all
// tells that nobody waits for the batch any more.
func (c *core) answerFast(a *fsm.Applied) (all bool) {
	o := &c.origin
	i := int(a.Header.Number - o.inflight[0].number)
	b := o.inflight[i]
	if !b.fast && seeded != "strong-answered-at-append" {
		return false
	}
	all = b.lead == 0
	for i, r := range b.reqs {
		if r == nil {
			continue
		}
		if !r.fast && seeded != "strong-answered-at-append" || r.state != reqPacked {
			all = false
			continue
		}
		res := &a.Results[b.lead+i]
		flag, ok := c.standsFast(r.op, res)
		if !ok {
			all = false
			continue
		}
		if flag != 0 {
			b.marks = append(b.marks, mark{b.at[i], flag})
		}
		c.outbox.soon = c.outbox.soon || !adds(r.op)
		res.Fast = r.fast
		res.Batch = fsm.BatchRef{Node: a.Header.Origin, Epoch: a.Header.Epoch, Number: a.Header.Number}
		c.stats.fast++
		c.answer(r, *res)
		b.reqs[i] = nil // its client has it; the object is used again
	}
	return all
}

// standsFast tells whether a result may be answered before its entry commits,
// and how the op is marked when it is proposed again.
func (c *core) standsFast(op fsm.Op, res *fsm.Result) (flag byte, ok bool) {
	if res.Code != fsm.CodeOK || res.Parked || res.Replay || res.Depends > c.confirmed.Index && seeded != "fast-on-uncommitted-ground" {
		return 0, false
	}
	for i := range res.Items {
		if it := &res.Items[i]; it.Code != fsm.CodeOK || it.Already || it.Late || it.Duplicate {
			return 0, false
		}
	}
	if keyed, ok := op.(*fsm.Keyed); ok {
		op = keyed.Op // the result and the mark are its
	}
	switch op := op.(type) {
	case *fsm.Enqueue:
		if op.Atomic {
			return 0, false
		}
		return fsm.FlagAnswered, true
	case *fsm.Dequeue:
		for i := range res.Jobs {
			if res.Jobs[i].ID.AtMostOnce() && seeded != "at-most-once-answered-fast" {
				return 0, false // its lease is committed before it is handed out
			}
		}
		return fsm.FlagVoid, len(res.Jobs) > 0
	case *fsm.Append:
		// Nothing refuses messages, but their offsets are known at the commit alone.
		return 0, true
	case *fsm.Ack, *fsm.Nack, *fsm.Release, *fsm.Reject, *fsm.Extend, *fsm.Settle:
		return 0, true
	}
	return 0, false
}
