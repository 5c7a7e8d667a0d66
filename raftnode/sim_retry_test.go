package raftnode

import (
	"slices"

	"raftq/fsm"
)

// simFamily is one operation that a client sends again and again, because its answer
// did not come or was lost: under one idempotency key, or as one attempt of a dequeue.
// Each time is an op of its own; the first gives the name.
type simFamily struct {
	ops    []*simOp // as they were sent
	op     fsm.Op
	result *fsm.Result // of the one that took effect, of an idempotency key
	digest [16]byte    // the same
	answer *fsm.Result // that a client got first
	done   *simOp      // that took effect, or was handed something, first
	life   int         // of its node then
	index  uint64      // its entry
	term   uint64
}

const simTries = 5 // of one family

// begin makes an op the first of a family.
func (o *simOp) begin(op fsm.Op) *simFamily {
	o.family = &simFamily{ops: []*simOp{o}, op: op}
	return o.family
}

// fresh is op for another request: a node numbers what a request brings.
func fresh(op fsm.Op) fsm.Op {
	switch op := op.(type) {
	case *fsm.Enqueue:
		return &fsm.Enqueue{Atomic: op.Atomic, Jobs: op.Jobs}
	case *fsm.Tx:
		tx := &fsm.Tx{}
		for _, part := range op.Ops {
			tx.Ops = append(tx.Ops, fresh(part))
		}
		return tx
	case *fsm.Dequeue:
		again := *op
		return &again
	}
	return op
}

// maybeAgain sends an op again, to any node, a while after it ended: most likely when
// nobody knows what became of it.
func (c *simClient) maybeAgain(f *simFamily, o *simOp, lost bool) {
	w, r := c.w, c.w.clientRand
	p := 0.15 // its answer is lost on the last part of its way
	switch {
	case o.outcome == unknown || lost:
		p = 0.9
	case o.outcome == refused:
		p = 0.4
	case o.outcome == pending:
		p = 0.1 // while it is under way
	}
	if len(f.ops) >= simTries || r.Float64() >= p*min(1, 4*w.opt.retries) {
		return
	}
	wait := between(r, 0, 60e6)
	if r.IntN(2) == 0 {
		wait = between(r, 0, 3000e6) // another one may lead by then
	}
	w.after(wait, func() { c.again(f) })
}

func (c *simClient) again(f *simFamily) {
	w := c.w
	all := w.live()
	n := all[w.clientRand.IntN(len(all))]
	if !n.up || w.stopping() || len(f.ops) >= simTries {
		return
	}
	timeout := between(w.clientRand, w.opt.timeoutMax/20, w.opt.timeoutMax)
	if d, ok := f.op.(*fsm.Dequeue); ok {
		o, op := c.op(opDequeue), fresh(d).(*fsm.Dequeue)
		o.family, op.Consumer = f, opMark(o.id)
		f.ops = append(f.ops, o)
		o.ended = func(*simOp) {}
		c.sendDequeue(o, n, op, timeout)
		return
	}
	c.sendKeyed(n, timeout, f)
}

// sendKeyed sends a family's op under its key.
func (c *simClient) sendKeyed(n *simNode, timeout int64, f *simFamily) {
	r := c.w.clientRand
	o := f.ops[0]
	if o.req != nil {
		o = c.op(opSide)
		o.family = f
		f.ops = append(f.ops, o)
		o.ended = func(o *simOp) { c.maybeAgain(f, o, false) }
	} else {
		o.ended = func(o *simOp) {
			c.maybeAgain(f, o, false)
			c.soon()
		}
	}
	op := &fsm.Keyed{Key: opMark(f.ops[0].id), Op: fresh(f.op)}
	op.Digest[0] = byte(f.ops[0].id)
	if len(f.ops) > 1 && r.IntN(12) == 0 {
		op.Digest[1] = 1 // as if it were another request
	}
	c.send(o, n, op, timeout)
	c.maybeAgain(f, o, false)
}

// ofEntry finds which op of a family is in a batch: a node packs them in the order in
// which they were sent to it.
func (f *simFamily) ofEntry(w *world, i uint64, h fsm.BatchHeader) (o *simOp) {
	for _, x := range f.ops {
		if x.node.id != h.Origin || x.boots != h.Epoch>>32 || x.effectAt != 0 {
			continue
		}
		if x.outcome != refused {
			return x
		}
		o = x // which is wrong
	}
	if o == nil {
		w.failf("entry %d: a batch of %x holds %v once more than it was sent there", i, h.Origin, f.ops[0])
	}
	return o
}

// keyed takes an op under a key: it is one of the side's. The first with its key takes
// effect, and all others are answered as that one was, or refused when they ask for
// something else.
func (l *logChecker) keyed(i uint64, le *logEntry, h fsm.BatchHeader, op *fsm.Keyed, res *fsm.Result) {
	w := l.w
	f := w.check.opOfMark(op.Key).family
	o := f.ofEntry(w, i, h)
	w.check.effect(o, i, h, res)
	switch {
	case f.done == nil:
		if res.Replay || res.Code == fsm.CodeIdempotencyMismatch {
			w.failf("entry %d: %v is answered with what a key holds (%v), and it is the first with it", i, o, res.Code)
		}
		f.took(o, i, le)
		f.result, f.digest = res, op.Digest
	case op.Digest != f.digest:
		if res.Code != fsm.CodeIdempotencyMismatch || res.Replay || len(res.Items)+len(res.Parts)+res.Count > 0 {
			w.failf("entry %d: %v is another request under the key of entry %d and is answered %+v", i, o, f.index, res)
		}
		w.stats.Mismatches++
		return
	default:
		if !res.Replay || !sameKept(res, f.result) {
			w.failf("entry %d: %v comes again and is answered %+v; entry %d answered %+v", i, o, res, f.index, f.result)
		}
		w.stats.Replays++
		f.count(o, le, &w.stats.ReplaysElsewhere, &w.stats.ReplaysLater, &w.stats.ReplaysOutlived, &w.stats.ReplaysRestored)
		return
	}
	if w.stats.Side++; res.Code != fsm.CodeOK {
		w.stats.SideRefused++
		l.sideRefused(i, o, op.Op, res)
		return // and nothing has changed: later offsets and hand-outs show it
	}
	l.sideOp(i, le, o, op.Op, res)
}

func (f *simFamily) took(o *simOp, i uint64, le *logEntry) {
	f.done, f.life, f.index, f.term = o, o.node.life, i, le.term
}

// count counts what came between the first time and this one.
func (f *simFamily) count(o *simOp, le *logEntry, elsewhere, later, outlived, restored *int) {
	if o.node != f.done.node {
		*elsewhere++
	}
	if le.term != f.term {
		*later++
	}
	if f.done.node.life != f.life {
		*outlived++
	}
	if slices.ContainsFunc(o.node.w.nodes, func(n *simNode) bool { return n.up && n.restored >= f.index }) {
		*restored++
	}
}

// sameKept compares what is kept of an answer.
func sameKept(a, b *fsm.Result) bool {
	return a.Code == b.Code && a.Count == b.Count && a.UpTo == b.UpTo && a.More == b.More && a.Offset == b.Offset && a.Version == b.Version &&
		slices.Equal(a.Items, b.Items) && slices.EqualFunc(a.Parts, b.Parts, func(a, b fsm.Result) bool { return sameKept(&a, &b) })
}

// answered holds what a client is told against what it, or another try, was told before.
func (f *simFamily) answered(w *world, o *simOp, res *fsm.Result) {
	switch {
	case res.Code == fsm.CodeIdempotencyMismatch:
	case f.answer == nil:
		f.answer = res
	case !sameKept(res, f.answer):
		w.failf("%v is answered %+v, another try of it %+v", o, res, f.answer)
	}
}
