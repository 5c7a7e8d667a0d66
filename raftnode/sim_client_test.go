package raftnode

import (
	"bytes"
	"fmt"

	"raftq/fsm"
)

func simQueue(i int) string { return fmt.Sprintf("q%d", i) }

// simClient sends one operation after the other, mostly to its home node.
type simClient struct {
	w     *world
	id    int
	home  *simNode
	held  []heldJob // received and not settled
	old   []heldJob // settled, for receipts out of date
	burst int
	drain bool
}

type heldJob struct{ receipt fsm.Receipt }

func (w *world) startClients() {
	for i := range w.opt.clients {
		c := &simClient{w: w, id: i, home: w.nodes[i%len(w.nodes)]}
		w.clients = append(w.clients, c)
		c.soon()
	}
}

// soon goes on after a while of thinking.
func (c *simClient) soon() {
	r := c.w.clientRand
	think := between(r, 0, c.w.opt.thinkMax)
	if c.burst == 0 && r.Float64() < c.w.opt.burst {
		c.burst = 5 + r.IntN(30)
	}
	if c.burst > 0 {
		c.burst--
		think = between(r, 0, 1e6)
	}
	if c.drain {
		think = between(r, 0, 20e6)
	}
	c.w.after(think, c.next)
}

func (w *world) stopping() bool { return w.phase != "safety" }

func (c *simClient) next() {
	w := c.w
	if w.stopping() && !c.drain || w.phase == "end" {
		return
	}
	r := w.clientRand
	n := c.home
	if !c.drain && r.IntN(10) == 0 {
		all := w.live()
		n = all[r.IntN(len(all))]
	}
	if w.opt.fast > 0 && !c.drain && (r.IntN(3) == 0 || w.opt.eager) {
		// Fast answers are the leader's.
		for _, l := range w.nodes {
			if l.up && l.core.lead != nil {
				n = l
			}
		}
	}
	if !n.up {
		if r.IntN(3) == 0 {
			all := w.live()
			c.home = all[r.IntN(len(all))]
		}
		c.soon()
		return
	}
	timeout := between(r, w.opt.timeoutMax/20, w.opt.timeoutMax)
	if c.drain {
		timeout = 5000e6
	}
	switch p := r.Float64(); {
	case len(c.held) > 0 && (c.drain || p < 0.6):
		c.settle(n, timeout, nil)
	case c.drain:
		c.dequeue(n, timeout)
	case r.Float64() < w.opt.reads:
		c.read(n, timeout)
	case w.opt.side > 0 && r.Float64() < w.opt.side:
		c.side(n, timeout)
	case r.IntN(30) == 0 && len(c.old) > 0:
		c.settle(n, timeout, nil)
	case len(w.check.jobs)-w.acked() > 60:
		c.dequeue(n, timeout)
	case r.IntN(2) == 0, w.opt.eager && len(w.check.jobs)-w.acked() < 40:
		c.enqueue(n, timeout) // an eager world keeps a stock, so that fast dequeues find what is committed
	default:
		c.dequeue(n, timeout)
	}
}

// acked counts jobs that ended.
func (w *world) acked() int { return w.check.refTotalsAcked() }

func (c *simClient) send(o *simOp, n *simNode, op fsm.Op, timeout int64) *simOp {
	w := c.w
	o.client, o.node, o.life, o.boots, o.op = c.id, n, n.life, n.disk.boots, op
	fast := o.kind != opGiveBack && o.kind != opSide && !c.drain && w.clientRand.Float64() < w.opt.fast
	o.req = &request{op: op, fast: fast, timeout: timeout, bytes: fsm.Size(op), done: make(chan struct{}, 1)}
	n.open[o.req] = o
	n.reqs = append(n.reqs, o.req)
	n.wake()
	if o.ended == nil {
		o.ended = func(*simOp) { c.soon() }
	}
	w.note('c', uint64(o.id), uint64(o.kind), uint64(n.i))
	return o
}

func (c *simClient) op(k opKind) *simOp {
	o := &simOp{kind: k}
	c.w.check.add(o)
	return o
}

func (c *simClient) enqueue(n *simNode, timeout int64) {
	w, r := c.w, c.w.clientRand
	opt := &w.opt
	o := c.op(opEnqueue)
	jobs := 1
	if r.IntN(4) == 0 {
		jobs = 1 + r.IntN(5)
	}
	op := &fsm.Enqueue{Atomic: r.IntN(4) == 0}
	queue := simQueue(r.IntN(opt.queues))
	for k := range jobs {
		j := fsm.NewJob{Queue: queue, Body: fmt.Appendf(nil, "%s%d", opMark(o.id), k), Priority: fsm.PriorityDefault}
		if r.IntN(8) == 0 {
			j.Queue = simQueue(r.IntN(opt.queues))
		}
		if r.IntN(4) == 0 {
			j.Body = append(j.Body, bytes.Repeat([]byte{byte(r.IntN(256))}, r.IntN(1500))...)
		}
		if r.IntN(10) == 0 {
			j.Headers = []fsm.Header{{Name: "a", Value: fmt.Sprint(o.id)}}
		}
		if r.Float64() < opt.prios {
			j.Priority = uint8(r.IntN(10))
		}
		if r.Float64() < opt.delays {
			j.DelayMs = between(r, 1, 3000)
		}
		if r.Float64() < opt.ttls {
			j.TTLMs = between(r, 500, 20000)
		}
		if r.IntN(6) == 0 {
			j.LeaseMs = between(r, 300, 5000)
		}
		if r.IntN(10) == 0 {
			j.MaxFailures = int32(1 + r.IntN(3))
		}
		j.AtMostOnce = r.Float64() < opt.once
		op.Jobs = append(op.Jobs, j)
	}
	c.send(o, n, op, timeout)
}

func (c *simClient) dequeue(n *simNode, timeout int64) { c.dequeueFrom(n, timeout, nil) }

// dequeueFrom takes jobs of certain queues, without a wait; of any if there are none.
func (c *simClient) dequeueFrom(n *simNode, timeout int64, queues []string) {
	w, r := c.w, c.w.clientRand
	opt := &w.opt
	o := c.op(opDequeue)
	op := &fsm.Dequeue{Max: int32(1 + r.IntN(5)), LeaseMs: between(r, 300, 5000), Consumer: opMark(o.id)}
	op.Queues = []string{simQueue(r.IntN(opt.queues))}
	if r.IntN(3) == 0 {
		for i := range opt.queues {
			if q := simQueue(i); q != op.Queues[0] && r.IntN(2) == 0 {
				op.Queues = append(op.Queues, q)
			}
		}
	}
	if r.Float64() < opt.waits {
		op.WaitMs = between(r, 20, 3000)
	}
	if queues != nil {
		op.Queues, op.WaitMs = queues, 0
	}
	if c.drain {
		op.Max = 10
		op.Queues = nil
		for i := range opt.queues {
			op.Queues = append(op.Queues, simQueue(i))
		}
		op.WaitMs = 200 * int64(r.IntN(2))
		if opt.side > 0 && r.IntN(2) == 0 {
			op.Queues, op.WaitMs = []string{sideDead, sideQueue}, 0
		}
	} else if r.Float64() < opt.retries {
		op.AttemptID = o.begin(op).attemptID()
	}
	o.ended = func(*simOp) { c.soon() }
	c.sendDequeue(o, n, op, timeout)
}

// sendDequeue sends a dequeue whose client may hang up, not see the answer, or ask again.
func (c *simClient) sendDequeue(o *simOp, n *simNode, op *fsm.Dequeue, timeout int64) {
	w, r := c.w, c.w.clientRand
	opt := &w.opt
	cut := 0 // answers that are not read
	if !c.drain && r.Float64() < opt.hangups {
		if cut = 1 + r.IntN(4); cut == 4 {
			// Gone at some moment, seen at once.
			w.after(between(r, 0, op.WaitMs*1e6+50e6), func() { c.hangUp(o) })
		}
	}
	then := o.ended
	o.ended = func(o *simOp) {
		defer then(o)
		if o.family != nil {
			defer func() { c.maybeAgain(o.family, o, o.left || cut != 0) }()
		}
		if o.outcome != answeredOK {
			return
		}
		res := &o.req.res
		switch {
		case len(res.Jobs) == 0:
			return
		case cut == 1 && n.up && n.life == o.life:
			// Gone in the moment of the answer.
			o.left = true
			n.post(hungup{o.req})
			return
		case cut == 2 && n.up && n.life == o.life:
			// Found to be gone when the answer was written.
			var items []fsm.Item
			for k := range res.Jobs {
				items = append(items, res.Jobs[k].Receipt().Item())
			}
			o.left = true
			n.post(undelivered{items})
			return
		case cut == 3:
			return // the answer is lost, and nobody knows
		}
		w.check.received(o, res)
		for k := range res.Jobs {
			h := heldJob{res.Jobs[k].Receipt()}
			if !c.drain && r.Float64() < opt.edges {
				w.after(op.LeaseMs*1e6+between(r, -40e6, 40e6), func() { c.settleAtEdge(h) })
				continue
			}
			c.held = append(c.held, h)
		}
	}
	c.send(o, n, op, timeout)
	if o.family != nil {
		c.maybeAgain(o.family, o, false)
	}
}

// hangUp leaves an unanswered dequeue.
func (c *simClient) hangUp(o *simOp) {
	if o.outcome != pending {
		return
	}
	o.left = true
	o.node.post(hungup{o.req})
	c.w.check.finish(o, unknown)
}

// settleAtEdge settles a job when its lease ends, or is about to: beside what else the
// client does.
func (c *simClient) settleAtEdge(h heldJob) {
	w := c.w
	all := w.live()
	if n := all[w.clientRand.IntN(len(all))]; n.up && !w.stopping() {
		w.stats.Edges++
		c.held = append([]heldJob{h}, c.held...)
		c.settle(n, 2000e6, func(*simOp) {})
		return
	}
	c.old = append(c.old, h)
}

// settle ends what the client holds, or tries to with an old receipt. then is what
// comes afterwards; nil: the client goes on.
func (c *simClient) settle(n *simNode, timeout int64, then func(*simOp)) {
	w, r := c.w, c.w.clientRand
	from := &c.held
	if len(c.held) == 0 {
		from = &c.old
	}
	kind := opAck
	if !c.drain {
		switch p := r.IntN(100); {
		case p < 8:
			kind = opNack
		case p < 14:
			kind = opRelease
		case p < 22:
			kind = opExtend
		case p < 25:
			kind = opReject
		case p < 35:
			kind = opSettle
		case p < 38 && then == nil:
			// Forgotten: the lease runs out.
			c.old = append(c.old, c.held...)
			c.held = nil
			c.soon()
			return
		}
	}
	o := c.op(kind)
	o.ended = then
	k := 1 + r.IntN(len(*from))
	var items []fsm.Item
	for _, h := range (*from)[:k] {
		it := h.receipt.Item()
		it.Error = opMark(o.id)
		switch kind {
		case opNack:
			if r.IntN(2) == 0 {
				it.DelayMs = between(r, 0, 2000)
			}
		case opExtend:
			if r.IntN(2) == 0 {
				it.LeaseMs = between(r, 300, 5000)
			}
		}
		items = append(items, it)
	}
	if from == &c.held && kind != opExtend {
		c.old = append(c.old, c.held[:k]...)
		c.held = c.held[k:]
		if len(c.old) > 30 {
			c.old = c.old[10:]
		}
	}
	var op fsm.Op
	switch kind {
	case opAck:
		op = &fsm.Ack{Items: items}
	case opNack:
		op = &fsm.Nack{Items: items}
	case opRelease:
		op = &fsm.Release{Items: items}
	case opReject:
		op = &fsm.Reject{Items: items}
	case opSettle:
		mixed := &fsm.Settle{}
		for _, it := range items {
			verb := fsm.VerbAck
			if r.IntN(2) == 0 {
				verb = fsm.Verb(r.IntN(len(simVerbs)))
			}
			mixed.Items = append(mixed.Items, fsm.SettleItem{Verb: verb, Item: it})
		}
		op = mixed
	default:
		op = &fsm.Extend{Items: items}
	}
	c.send(o, n, op, timeout)
	_ = w
}
