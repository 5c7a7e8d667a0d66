package raftnode

import (
	"encoding/binary"
	"slices"

	pb "go.etcd.io/raft/v3/raftpb"

	"raftq/fsm"
)

// fastPromise is an answer that a leader gave at its append.
type fastPromise struct {
	op    *simOp
	batch fsm.BatchRef
	res   fsm.Result
	void  bool // committed as a no-op: the answered dequeue did not survive
}

// promise takes a fast answer. It may stand only on what is committed, and is
// held against the log when its batch gets there, or does not.
func (c *checker) promise(o *simOp, res *fsm.Result) {
	w := c.w
	w.stats.Fast++
	if !o.req.fast {
		w.failf("%v did not ask for a fast answer and got one", o)
	}
	if res.Batch.Node != o.node.id || res.Batch.Number == 0 || res.Parked || res.Code != fsm.CodeOK {
		w.failf("%v: odd fast answer %+v", o, res)
	}
	if s := o.node.core.spec; !s.on {
		w.failf("%v is answered fast by a node that does not lead", o)
	}
	for k := range res.Jobs {
		d := &res.Jobs[k]
		j := c.jobs[d.ID.Key]
		switch {
		case j == nil:
			w.failf("%v is answered fast with job %v, whose enqueue is not committed", o, d.ID)
		case j.job.AtMostOnce:
			w.failf("%v is answered fast with at-most-once job %v", o, d.ID)
		case j.acked && j.ackedAt <= o.node.core.confirmed.Index: // what it cannot know yet is no breach
			w.failf("%v is answered fast with job %v, which entry %d acked", o, d.ID, j.ackedAt)
		case d.Grant == j.grant && o.family != nil: // another try of it
		case d.Grant != j.grant+1 && o.node.core.confirmed.Index == c.last():
			w.failf("%v is answered fast with grant %d of job %v, committed is %d", o, d.Grant, d.ID, j.grant)
		}
	}
	for k := range res.Items {
		if _, enqueue := o.op.(*fsm.Enqueue); !enqueue && c.jobs[res.Items[k].ID.Key] == nil {
			w.failf("%v is answered fast for job %v, whose enqueue is not committed", o, res.Items[k].ID)
		}
	}
	o.fast = &fastPromise{op: o, batch: res.Batch, res: *res}
	c.promises = append(c.promises, o.fast)
}

// kept compares a promise with what its entry did.
func (c *checker) kept(o *simOp, i uint64, h fsm.BatchHeader, res *fsm.Result) {
	w, p := c.w, o.fast
	if h.Epoch != p.batch.Epoch || h.Number != p.batch.Number {
		w.failf("entry %d: %v was answered for batch %v and is in batch %d of %x", i, o, p.batch, h.Number, h.Epoch)
	}
	same := res.Position == p.res.Position
	switch o.op.(type) {
	case *fsm.Enqueue:
		if res.Code != fsm.CodeOK || !slices.Equal(res.Items, p.res.Items) {
			w.failf("entry %d: %v was answered fast with %+v, its entry has %+v", i, o, p.res.Items, res.Items)
		}
	case *fsm.Dequeue:
		if !same || len(res.Jobs) != len(p.res.Jobs) {
			w.failf("entry %d: %v was answered fast at %v with %d jobs, its entry at %v has %d", i, o, p.res.Position, len(p.res.Jobs), res.Position, len(res.Jobs))
		}
		for k := range res.Jobs {
			if !sameDelivered(&res.Jobs[k], &p.res.Jobs[k]) {
				w.failf("entry %d: %v was answered fast with %+v, its entry has %+v", i, o, p.res.Jobs[k], res.Jobs[k])
			}
		}
	default:
		// Proposed again in a later term it may meet another state.
		if same && !slices.Equal(res.Items, p.res.Items) {
			w.failf("entry %d: %v was answered fast with %+v, its entry has %+v", i, o, p.res.Items, res.Items)
		}
	}
}

// held checks what a leader keeps back after a step: not for long, and only what
// nobody waits for.
func (c *checker) held(n *simNode, out *outputs) {
	w, b := c.w, &n.core.outbox
	if len(b.sends)+len(b.appends)+len(n.core.rn.props) == 0 {
		if out.wakeAt != 0 && n.core.spec.bound.len() == 0 {
			w.failf("%s wants to be woken, and nothing is under way", n.name)
		}
		return
	}
	now := n.core.now.boot
	if out.wakeAt <= now || out.wakeAt > now+b.patience() {
		w.failf("%s keeps what it should send, and wants to be woken in %s", n.name, ms(out.wakeAt-now))
	}
	for _, m := range b.sends {
		if m.GetType() != pb.MsgApp {
			w.failf("%s keeps a message of type %v", n.name, m.GetType())
		}
	}
	for _, a := range n.core.spec.bound.all() {
		h := a.Header
		if h.Origin != n.id {
			w.failf("%s keeps what it should send, while entry %d of %x is not committed", n.name, a.Position.Index, h.Origin)
		}
		for _, b := range n.core.origin.inflight {
			for _, r := range b.reqs {
				if b.number == h.Number && r != nil && r.state == reqPacked {
					w.failf("%s keeps what it should send, while %v waits for its commit", n.name, n.open[r])
				}
			}
		}
	}
	if len(n.core.reads.list) > 0 {
		w.failf("%s keeps what it should send, while a read waits", n.name)
	}
}

// opFlags returns the flags of a batch's ops.
func opFlags(data []byte) (flags []byte) {
	for b := data[fsm.BatchHeaderSize:]; len(b) >= 6; {
		flags = append(flags, b[1])
		b = b[6+binary.BigEndian.Uint32(b[2:]):]
	}
	return flags
}

// marked judges the mark of an op in the log; true when the op is void.
func (c *checker) marked(i uint64, flag byte, op fsm.Op) bool {
	if flag == 0 {
		return false
	}
	w := c.w
	switch op := op.(type) {
	case *fsm.Enqueue:
		if o := c.opOfBody(op.Jobs[0].Body); flag != fsm.FlagAnswered || o.fast == nil {
			w.failf("entry %d: %v has mark %d", i, o, flag)
		}
		return false
	case *fsm.Dequeue:
		o := c.opOfMark(op.Consumer)
		if flag != fsm.FlagVoid || o.fast == nil {
			w.failf("entry %d: %v has mark %d", i, o, flag)
		}
		o.fast.void = true
		w.stats.Voids++
		return true
	}
	w.failf("entry %d: op of kind %d has mark %d", i, op.Kind(), flag)
	return false
}

// promises judges all fast answers at the end: kept while their node lives; of a
// life that ended, what is lost is the end of its batches, and fate says so.
func (c *checker) finalPromises() {
	w := c.w
	for _, p := range c.promises {
		o := p.op
		there := o.effectAt != 0 || p.void
		last, known := c.refs[0].Fate(p.batch.Node, p.batch.Epoch)
		switch {
		case !there && o.node.life == o.life:
			w.failf("%v was answered fast, its node lives, and it is not in the log", o)
		case !known:
			if starts := o.node.disk.boots - p.batch.Epoch>>32; starts <= fsm.EpochsKept {
				w.failf("%v: batch %v, %d starts ago, has no fate", o, p.batch, starts)
			}
		case there != (p.batch.Number <= last):
			w.failf("%v of batch %v is in the log: %v, but fate knows batches up to %d", o, p.batch, there, last)
		case !there:
			w.stats.FastLost++
		}
	}
}

// high is the highest index of any answer at a moment.
type high struct {
	at    int64
	index uint64
}

// checkAge holds a weak read's age against true time: what was answered before
// it must be in the state.
func (c *checker) checkAge(o *simOp, r *read) {
	since := c.w.now - r.age - r.age/500 - 1 // the node's clock may drift
	k, _ := slices.BinarySearchFunc(c.highs, since, func(h high, at int64) int {
		if h.at < at {
			return -1
		}
		return 1
	})
	if k > 0 && c.highs[k-1].index > r.pos.Index {
		c.w.failf("%v says that its state at index %d is %s old, but index %d was answered before", o, r.pos.Index, ms(r.age), c.highs[k-1].index)
	}
}
