package raftnode

import (
	"cmp"
	"container/heap"
	"slices"

	"raftq/fsm"
)

// parked holds this node's dequeues that are waiters in the machine, and cleans
// up after those whose client is gone: a waiter is withdrawn, and what it was
// handed is given back, uncounted. Until its withdrawal is committed a request is
// kept, because a hand-out may be on its way in the log.
type parked struct {
	byNumber map[uint64]*request // reqParked, or reqEnded with the withdrawal under way
	waits    waitHeap            // reqParked by waitTo
	withdraw []uint64            // to be logged
	giveBack []fsm.Item          // to be logged
	leaving  map[uint64][]uint64 // batch number → withdrawals in it
}

func newParked() parked {
	return parked{byNumber: map[uint64]*request{}, leaving: map[uint64][]uint64{}}
}

const (
	giveBackMax = 1000 // items of one batch
	withdrawMax = 4000
)

// chores returns the ops that clean up, for the next batch.
func (c *core) chores(number uint64) []fsm.Op {
	p := &c.parked
	var ops []fsm.Op
	if n := min(len(p.giveBack), giveBackMax); n > 0 {
		ops = append(ops, &fsm.GiveBack{Items: p.giveBack[:n:n]})
		p.giveBack = p.giveBack[n:]
		c.stats.givenBack += uint64(n)
	}
	if n := min(len(p.withdraw), withdrawMax); n > 0 {
		ops = append(ops, &fsm.Withdraw{Requests: p.withdraw[:n:n]})
		p.leaving[number] = p.withdraw[:n:n]
		p.withdraw = p.withdraw[n:]
	}
	return ops
}

// choresDone forgets requests whose withdrawal is applied: nothing can be
// handed to them any more.
func (p *parked) choresDone(number uint64) {
	for _, n := range p.leaving[number] {
		delete(p.byNumber, n)
	}
	delete(p.leaving, number)
}

// undo gives hand-outs back that nobody will take.
func (p *parked) undo(jobs []fsm.Delivered) {
	if seeded == "hand-out-not-given-back" {
		return
	}
	for i := range jobs {
		p.giveBack = append(p.giveBack, jobs[i].Receipt().Item())
	}
}

// park notes that a request is a waiter in the machine now.
func (c *core) park(r *request) {
	p := &c.parked
	p.byNumber[r.number] = r
	if r.state == reqEnded {
		p.withdraw = append(p.withdraw, r.number)
		return
	}
	r.state = reqParked
	r.waitTo = c.now.boot + r.op.(*fsm.Dequeue).WaitMs*1e6
	if c.leaving {
		c.leaveWaiter(r)
		return
	}
	heap.Push(&p.waits, r)
}

// unpark answers a parked request without jobs and withdraws it.
func (c *core) unpark(r *request) {
	c.answer(r, fsm.Result{Position: c.confirmed})
	r.state = reqEnded
	if seeded != "wait-not-withdrawn" {
		c.parked.withdraw = append(c.parked.withdraw, r.number)
	}
}

// onHandout answers a parked request, or gives the jobs back.
func (c *core) onHandout(h *fsm.Handout) {
	p := &c.parked
	r := p.byNumber[h.Request]
	if r == nil || r.state != reqParked {
		p.undo(h.Result.Jobs)
		return
	}
	heap.Remove(&p.waits, r.slot)
	delete(p.byNumber, r.number)
	c.answer(r, h.Result)
}

// onHangup ends a request whose client is gone, wherever it is.
func (c *core) onHangup(r *request) {
	c.stats.hangups++
	switch r.state {
	case reqWaiting:
		r.state = reqAnswered // never packed
	case reqPacked:
		r.state = reqEnded
	case reqParked:
		heap.Remove(&c.parked.waits, r.slot)
		r.state = reqEnded
		c.parked.withdraw = append(c.parked.withdraw, r.number)
	case reqAnswered:
		// Answered in the moment its client left: nobody wrote that answer.
		if r.err == nil {
			c.parked.undo(r.res.Jobs)
		}
	}
}

// parkedTick ends waits that are over. The parking entry is applied, so "nothing
// came" is true at the machine's position.
func (c *core) parkedTick() {
	p := &c.parked
	for len(p.waits) > 0 && p.waits[0].waitTo <= c.now.boot {
		c.unpark(heap.Pop(&p.waits).(*request))
	}
}

func (c *core) leaveParked() {
	for len(c.parked.waits) > 0 {
		c.leaveWaiter(heap.Pop(&c.parked.waits).(*request))
	}
}

// leaveWaiter ends a wait because the node stops.
func (c *core) leaveWaiter(r *request) {
	c.refuse(r, fsm.CodeLeaving, "this node is stopping; ask another one")
	r.state = reqEnded
	c.parked.withdraw = append(c.parked.withdraw, r.number)
}

// reconcile learns from an installed snapshot what became of this node's
// batches that it covers, and of its parked requests.
func (c *core) reconcile() {
	s, ok := c.machine.Session(c.cfg.id)
	o, p := &c.origin, &c.parked
	if !ok || s.Epoch != o.epoch {
		return
	}
	if !o.registered {
		o.registered = true
		for len(o.inflight) > 0 {
			c.popInflight()
		}
	}
	// Those first that choresDone is going to forget: a hand-out may have come before
	// the withdrawal, and the snapshot may cover both.
	var asked []*request
	for _, r := range p.byNumber {
		asked = append(asked, r)
	}
	for len(o.inflight) > 0 && o.inflight[0].number <= s.LastBatch {
		b := o.inflight[0]
		c.popInflight()
		p.choresDone(b.number)
		for _, r := range b.reqs {
			if r == nil {
				continue
			}
			if r.number != 0 {
				asked = append(asked, r)
			} else if r.state == reqPacked {
				c.unknown(r, "applied or refused while this node caught up by a snapshot: the result is not known here")
			}
		}
	}
	// In order, so that a simulated run can be repeated.
	slices.SortFunc(asked, func(a, b *request) int { return cmp.Compare(a.number, b.number) })
	numbers := make([]uint64, len(asked))
	byNumber := make(map[uint64]*request, len(asked))
	for i, r := range asked {
		numbers[i], byNumber[r.number] = r.number, r
	}
	waiting := map[uint64]bool{}
	for _, n := range c.machine.Parked(c.cfg.id, o.epoch) {
		waiting[n] = true
	}
	handed := map[uint64]*fsm.Handout{}
	hs := c.machine.HandedTo(o.epoch, numbers)
	for i := range hs {
		handed[hs[i].Request] = &hs[i]
	}
	for _, r := range asked {
		h := handed[r.number]
		switch {
		case waiting[r.number] && r.state == reqPacked, waiting[r.number] && r.state == reqEnded && p.byNumber[r.number] == nil:
			c.park(r)
		case waiting[r.number]:
		case h != nil && r.state == reqParked:
			c.onHandout(h)
		case h != nil && r.state == reqPacked:
			c.answer(r, h.Result)
		case h != nil:
			p.undo(h.Result.Jobs)
			delete(p.byNumber, r.number)
		case r.state == reqParked:
			heap.Remove(&p.waits, r.slot)
			delete(p.byNumber, r.number)
			c.unknown(r, "served or dropped while this node caught up by a snapshot; an unfinished job comes back after its lease")
		case r.state == reqPacked:
			c.unknown(r, "applied while this node caught up by a snapshot; an unfinished job comes back after its lease")
		}
	}
}

// waitHeap orders parked requests by the end of their wait.
type waitHeap []*request

func (h waitHeap) Len() int           { return len(h) }
func (h waitHeap) Less(i, j int) bool { return h[i].waitTo < h[j].waitTo }
func (h waitHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].slot, h[j].slot = i, j
}
func (h *waitHeap) Push(x any) {
	r := x.(*request)
	r.slot = len(*h)
	*h = append(*h, r)
}
func (h *waitHeap) Pop() any {
	old := *h
	n := len(old) - 1
	r := old[n]
	old[n] = nil
	*h = old[:n]
	return r
}
