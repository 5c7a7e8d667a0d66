package raftnode

import (
	"fmt"

	pb "go.etcd.io/raft/v3/raftpb"
	"go.uber.org/zap"

	"raftq/fsm"
)

// request is one operation of a client. From submit until done is signalled it
// belongs to the core.
type request struct {
	op      fsm.Op
	timeout int64 // ns
	fast    bool  // may be answered at the leader's append
	bytes   int

	deadline int64  // boot ns
	number   uint64 // dequeues: within the epoch
	waitTo   int64  // dequeues: boot ns until which the origin lets it wait
	state    reqState
	slot     int // parked: place in the heap

	res  fsm.Result
	err  *fsm.Error
	done chan struct{} // one send
}

type reqState uint8

const (
	reqWaiting reqState = iota // not packed
	reqPacked                  // in an unapplied batch
	reqParked                  // a waiter in the machine
	reqEnded                   // nobody waits any more, but hand-outs may come: they are given back
	reqAnswered
)

// batch is one numbered batch of this node, kept until applied.
type batch struct {
	number uint64
	data   []byte // addressed to term; copied when that changes, never altered
	term   uint64
	reqs   []*request // op i+lead of data
	lead   int        // ops of the node itself, before the clients'
	fast   bool       // holds a fast op
	at     []int      // where the header of each client's op is in data
	marks  []mark     // for ops answered as fast, when sent in a later term

	// Room for one op: reqs, at and marks of most fast batches.
	req1  [1]*request
	at1   [1]int
	mark1 [1]mark
}

// mark is set on an op that was answered before it was committed. The client
// has its answer: an enqueue is inserted whatever limits, pauses or keys say by
// then, and a dequeue whose entry did not survive hands nothing out again.
type mark struct {
	at   int
	flag byte
}

// origin packs this node's operations into batches and sends each until the
// node's own machine has applied it.
type origin struct {
	epoch      uint64
	registered bool   // node start is applied
	next       uint64 // number of the next batch
	requests   uint64 // dequeue numbers given
	counter    uint64 // job ids given
	waiting    []*request
	inflight   []*batch // not committed, by number
	slots      int      // those of inflight that count: at most inflightMax
	bytes      int      // of inflight
	movedAt    int64    // boot ns: sent, or progress of the oldest
	patience   int64    // ns without progress until all are sent again
	back       bool     // node back must be logged
	oldest     int64    // boot ns at which the oldest of waiting came

	queuedBytes int // of waiting
	fast        int // of waiting
}

func newOrigin(epoch uint64) origin { return origin{epoch: epoch, next: 1} }

// submit takes client requests. It refuses what the mailbox lets through while
// the node leaves.
func (c *core) submit(reqs []*request) {
	for _, r := range reqs {
		if r.state != reqWaiting {
			continue // its client left before the core saw it: hang-ups are handled first
		}
		r.deadline = c.now.boot + r.timeout
		if c.leaving {
			c.refuse(r, fsm.CodeLeaving, "this node is stopping; ask another one")
			continue
		}
		if !c.admit(r) {
			continue
		}
		if op, ok := r.op.(*fsm.Dequeue); ok {
			if op.WaitMs == 0 && !c.machine.Finds(op) {
				// Finds nothing, writes nothing: a linearizable read answers it.
				c.readEmpty(r)
				continue
			}
		}
		c.enqueueRequest(r)
	}
}

func (c *core) enqueueRequest(r *request) {
	o := &c.origin
	if len(o.waiting) == 0 {
		o.oldest = c.now.boot
	}
	r.state = reqWaiting
	o.waiting = append(o.waiting, r)
	o.queuedBytes += r.bytes
	if r.fast {
		o.fast++
	}
}

// dequeued keeps the sums of waiting for a request that leaves it.
func (o *origin) dequeued(r *request) {
	o.queuedBytes -= r.bytes
	if r.fast {
		o.fast--
	}
}

// answer ends a request with a result.
func (c *core) answer(r *request, res fsm.Result) {
	r.res, r.err, r.state = res, nil, reqAnswered
	c.out.done = append(c.out.done, r)
}

// refuse ends a request that was surely not applied.
func (c *core) refuse(r *request, code fsm.Code, format string, args ...any) {
	r.err, r.state = fsm.Refuse(code, format, args...), reqAnswered
	c.out.done = append(c.out.done, r)
}

// unknown ends the wait for a packed request; its batch goes on. A dequeue is
// kept: what it is handed later is given back.
func (c *core) unknown(r *request, why string) {
	r.err = &fsm.Error{Code: fsm.CodeCommitTimeout, Detail: why, Unknown: seeded != "unknown-is-refused"}
	c.out.done = append(c.out.done, r)
	r.state = reqEnded
}

// pack closes batches while there are places in flight, something to send and a
// leader to send it to.
func (c *core) pack() {
	o := &c.origin
	if c.leader == 0 || c.expelled {
		return
	}
	if !o.registered {
		if len(o.inflight) == 0 {
			c.launch(&batch{number: 0, lead: 1,
				data: fsm.EncodeBatch(fsm.BatchHeader{Origin: c.cfg.id, Epoch: o.epoch, Term: c.term}, &c.cfg.start)})
		}
		return
	}
	for o.slots < inflightMax || c.fastPath() {
		b := c.closeBatch()
		if b == nil {
			return
		}
		c.launch(b)
	}
}

// fastPath tells whether a batch may close although no place is free: a
// leader's that holds a fast op does, because it is answered when it is
// appended. Half of what raft takes uncommitted bounds it.
func (c *core) fastPath() bool {
	return c.origin.fast > 0 && c.spec.on && c.origin.bytes < int(c.uncommittedMax/2)
}

// closeBatch encodes what waits, up to a batch's size; nil when nothing does.
func (c *core) closeBatch() *batch {
	o := &c.origin
	var own []fsm.Op
	if o.back {
		own, o.back = append(own, &fsm.NodeBack{}), false
	}
	own = append(own, c.chores(o.next)...)
	if op := c.alarmOp(); op != nil {
		own = append(own, op)
	}
	size := fsm.BatchHeaderSize
	for _, op := range own {
		size += fsm.Size(op)
	}
	n := 0
	for _, r := range o.waiting {
		if r.state == reqWaiting {
			if n > 0 && size+r.bytes > batchBytesMax {
				break
			}
			size += r.bytes
		}
		n++
	}
	if len(own) == 0 && n == 0 {
		return nil
	}
	b := &batch{number: o.next}
	b.reqs, b.at, b.marks = b.req1[:0], b.at1[:0], b.mark1[:0]
	b.data = fsm.AppendBatchHeader(make([]byte, 0, size), fsm.BatchHeader{Origin: c.cfg.id, Epoch: o.epoch, Number: o.next, Term: c.term})
	if seeded == "log-time-of-origin" {
		fsm.SetBatchTime(b.data, c.now.wall)
	}
	for _, op := range own {
		b.data = fsm.AppendOp(b.data, op)
	}
	b.lead = len(own)
	for _, r := range o.waiting[:n] {
		o.dequeued(r)
		if r.state != reqWaiting {
			continue // its client left, or its time was over, before it was packed
		}
		c.numberOp(r)
		b.at = append(b.at, len(b.data))
		b.fast = b.fast || r.fast
		b.data = fsm.AppendOp(b.data, r.op)
		b.reqs = append(b.reqs, r)
		r.state = reqPacked
	}
	clear(o.waiting[:n])
	if n < len(o.waiting) {
		o.waiting = o.waiting[n:]
	} else if o.waiting = o.waiting[:0]; cap(o.waiting) > fifoKept {
		o.waiting = nil
	}
	o.oldest = c.now.boot
	if len(own) == 0 && len(b.reqs) == 0 {
		return nil
	}
	o.next++
	c.stats.batches++
	c.stats.ops += uint64(len(b.reqs))
	return b
}

// numberOp gives ids to new jobs and a number to a dequeue.
func (c *core) numberOp(r *request) {
	o := &c.origin
	if op, ok := r.op.(*fsm.Dequeue); ok {
		o.requests++
		op.Request, r.number = o.requests, o.requests
		return
	}
	fsm.EachEnqueue(r.op, func(op *fsm.Enqueue) {
		op.First = o.counter
		o.counter += uint64(len(op.Jobs))
	})
}

// launch sends a new batch for the first time.
func (c *core) launch(b *batch) {
	o := &c.origin
	if len(o.inflight) == 0 {
		o.movedAt, o.patience = c.now.boot, 2*c.cfg.heartbeatNs
	}
	o.inflight = append(o.inflight, b)
	o.bytes += len(b.data)
	// A place is for batches that are answered at commit.
	if b.fast = b.fast && c.spec.on; !b.fast {
		o.slots++
	}
	b.term = c.term
	c.deliver(b)
}

// deliver brings a batch to the leader of its term: this node, or by message.
func (c *core) deliver(b *batch) {
	if c.leader == c.cfg.id {
		c.takeBatch(b.data)
		return
	}
	if n := len(c.outbox.sends); n > 0 {
		// Batches that leave together travel in one message.
		if m := c.outbox.sends[n-1]; m.GetType() == pb.MsgProp && m.GetTo() == c.leader {
			m.Entries = append(m.Entries, &pb.Entry{Data: b.data})
			return
		}
	}
	c.send(&pb.Message{Type: pb.MsgProp.Enum(), To: new(c.leader), From: new(c.cfg.id), Entries: []*pb.Entry{{Data: b.data}}})
}

// resend sends all unapplied batches again, in order, addressed to the current
// term. Within a term the bytes stay the same.
func (c *core) resend() {
	o := &c.origin
	if c.leader == 0 || len(o.inflight) == 0 {
		return
	}
	for _, b := range o.inflight {
		if b.term != c.term {
			// A copy: the old bytes may be in a log or on their way.
			b.data = append([]byte(nil), b.data...)
			fsm.SetBatchTerm(b.data, c.term)
			for _, m := range b.marks {
				if seeded == "answered-ops-not-marked" {
					break
				}
				fsm.MarkOp(b.data[m.at:], m.flag)
			}
			b.term = c.term
		}
		c.deliver(b)
	}
	c.stats.resent += uint64(len(o.inflight))
	o.movedAt = c.now.boot
}

func (c *core) originLeaderChanged() {
	c.origin.patience = 2 * c.cfg.heartbeatNs
	c.resend()
}

// originTick sends again what does not move, and ends requests whose time is
// over: refused when not packed, unknown when packed.
func (c *core) originTick() {
	o := &c.origin
	if len(o.inflight) > 0 && c.leader != 0 && c.now.boot-o.movedAt >= o.patience && seeded != "batch-sent-once" {
		o.patience = min(2*o.patience, c.cfg.electionNs)
		c.resend()
	}
	leaderless := c.leader == 0 && c.now.boot-c.noLead >= 10*c.cfg.electionNs
	if len(o.waiting) > 0 && (leaderless || c.now.boot-o.oldest > 10*c.cfg.tickNs) {
		o.oldest = c.now.boot
		keep := o.waiting[:0]
		for _, r := range o.waiting {
			o.dequeued(r)
			switch {
			case r.state != reqWaiting:
			case leaderless:
				c.refuse(r, fsm.CodeNoLeader, "no leader for %d election timeouts: a majority of the members must be up and connected", 10)
			case c.now.boot >= r.deadline:
				c.refuse(r, fsm.CodeNoLeader, "not taken by a leader within the request's timeout of %d ms", r.timeout/1e6)
			default:
				o.queuedBytes += r.bytes
				if r.fast {
					o.fast++
				}
				keep = append(keep, r)
			}
		}
		clear(o.waiting[len(keep):])
		o.waiting = keep
	}
	if len(o.inflight) > 0 && c.now.boot-o.movedAt > 5*c.cfg.tickNs {
		for _, b := range o.inflight {
			for _, r := range b.reqs {
				if r != nil && r.state == reqPacked && c.now.boot >= r.deadline {
					c.unknown(r, fmt.Sprintf("no commit within the request's timeout of %d ms; it may still happen", r.timeout/1e6))
				}
			}
		}
	}
}

// settled tells whether nothing of this node's own is unapplied.
func (c *core) settled() bool {
	return len(c.origin.inflight) == 0 && len(c.origin.waiting) == 0 && len(c.parked.giveBack) == 0 && len(c.parked.withdraw) == 0
}

// leave refuses what waits and ends parked requests: the node stops.
func (c *core) leave() {
	c.leaving = true
	for _, r := range c.origin.waiting {
		if r.state == reqWaiting {
			c.refuse(r, fsm.CodeLeaving, "this node is stopping; ask another one")
		}
	}
	c.origin.waiting, c.origin.queuedBytes, c.origin.fast = nil, 0, 0
	c.leaveParked()
	c.leaveReads()
	c.watches.all()
	c.growths.all()
}

// onOwnBatch answers the requests of a batch that this node's machine applied.
func (c *core) onOwnBatch(a *fsm.Applied) {
	o := &c.origin
	if a.Header.Number == 0 {
		c.onNodeStart(a)
		return
	}
	if len(o.inflight) == 0 || o.inflight[0].number != a.Header.Number {
		panic(fmt.Sprintf("BUG: applied own batch %d, but it is not the oldest in flight", a.Header.Number))
	}
	b := o.inflight[0]
	c.popInflight()
	lead := b.lead
	if seeded == "answers-by-place-alone" {
		lead = 0
	}
	for i, r := range b.reqs {
		if r != nil {
			c.finish(r, a.Results[lead+i])
		}
	}
	if b.lead > 0 {
		c.parked.choresDone(b.number)
	}
}

func (c *core) popInflight() {
	o := &c.origin
	b := o.inflight[0]
	o.bytes -= len(b.data)
	if !b.fast {
		o.slots--
	}
	o.inflight[0] = nil
	o.inflight = o.inflight[1:]
	if len(o.inflight) == 0 {
		o.inflight = nil
	}
	o.movedAt, o.patience = c.now.boot, 2*c.cfg.heartbeatNs
}

// finish gives an applied op's result to its request.
func (c *core) finish(r *request, res fsm.Result) {
	switch {
	case res.Parked:
		c.park(r)
	case r.state == reqEnded:
		c.parked.undo(res.Jobs)
	case r.state == reqPacked:
		c.answer(r, res)
	}
}

// onNodeStart registers the epoch, or draws another one when it was refused.
func (c *core) onNodeStart(a *fsm.Applied) {
	o := &c.origin
	if len(o.inflight) != 1 || o.inflight[0].number != 0 {
		panic("BUG: node start applied twice")
	}
	c.popInflight()
	if a.Results[0].Code != fsm.CodeOK {
		o.epoch = o.epoch&^(1<<32-1) | uint64(c.cfg.random32())
		c.log.Warn("epoch refused, drawing another one", zap.Stringer("code", a.Results[0].Code))
		return
	}
	o.registered = true
	c.log.Info("epoch registered", zap.Uint64("counter", o.epoch>>32), zap.Uint64("index", a.Position.Index))
}
