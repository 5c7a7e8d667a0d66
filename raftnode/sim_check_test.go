package raftnode

import (
	"fmt"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"

	"raftq/fsm"
)

type opKind int

const (
	opEnqueue opKind = iota
	opDequeue
	opAck
	opNack
	opRelease
	opExtend
	opRead
	opGiveBack
	opSide
	opReject
	opSettle
)

var opNames = [...]string{"enqueue", "dequeue", "ack", "nack", "release", "extend", "read", "give-back", "side", "reject", "settle"}

func (k opKind) String() string { return opNames[k] }

type outcome int

const (
	pending outcome = iota
	answeredOK
	refused // surely had no effect
	unknown
)

// simOp is one operation of a client, with what is known of it.
type simOp struct {
	id       int
	kind     opKind
	client   int
	node     *simNode
	life     int
	boots    uint64     // of its node
	family   *simFamily // with an idempotency key or an attempt id
	op       fsm.Op
	req      *request
	read     *read
	strong   bool
	called   int64  // true ns
	minIndex uint64 // highest index of any answer before the call
	outcome  outcome
	left     bool            // its client hung up
	counts   []fsm.QueueInfo // of a read
	messages uint64          // the same, of the topic
	ended    func(*simOp)

	fast     *fastPromise // answered at the leader's append
	effectAt uint64       // entry; 0 = none seen
	given    []*modelJob  // handed to it first
	result   *fsm.Result
	epoch    uint64
	request  uint64
}

func (o *simOp) String() string {
	return fmt.Sprintf("%v %d (client %d, node %s, called at %s)", o.kind, o.id, o.client, o.node.name, ms(o.called))
}

// checker judges every answer against the log.
type checker struct {
	logChecker
	ops      []*simOp
	answered int
	highest  uint64 // index of any answer so far
	highs    []high // as highest grew
	fastAt   map[*simNode]uint64
	promises []*fastPromise
}

func newChecker(w *world) *checker {
	return &checker{logChecker: newLogChecker(w), fastAt: map[*simNode]uint64{}}
}

// Each op carries its number into the log: bodies begin with it, dequeues have
// it as consumer, and items as error text.
func opMark(id int) string { return fmt.Sprintf("op%d.", id) }

func (c *checker) opOfMark(s string) *simOp {
	if rest, ok := strings.CutPrefix(s, "op"); ok {
		if n, _, ok := strings.Cut(rest, "."); ok {
			if id, err := strconv.Atoi(n); err == nil && id < len(c.ops) {
				return c.ops[id]
			}
		}
	}
	c.w.failf("the log holds an operation that nobody sent, marked %q", s)
	return nil
}

func (c *checker) opOfBody(b []byte) *simOp { return c.opOfMark(string(b[:min(len(b), 20)])) }

// add registers an op that a client sends now.
func (c *checker) add(o *simOp) {
	o.id = len(c.ops)
	o.called, o.minIndex = c.w.now, c.highest
	c.ops = append(c.ops, o)
}

// stepped follows the core after each step: entries applied, chains.
func (c *checker) stepped(n *simNode) {
	to := n.core.confirmed.Index
	if k := n.core.stats.installs; k != n.installs {
		n.installs, n.restored = k, n.core.snaps.lastIndex
	}
	if to == n.at {
		return
	}
	first, _ := n.storage.FirstIndex()
	if first = max(first, n.at+1); first <= to {
		ents, err := n.storage.Entries(first, to+1, ^uint64(0))
		if err != nil {
			c.w.failf("%s has confirmed up to %d and has not the entries: %v", n.name, to, err)
		}
		for _, e := range ents {
			c.applied(n, e)
		}
	}
	if to > c.last() {
		c.w.failf("%s is at %d, but the log ends at %d", n.name, to, c.last())
	}
	m := n.core.committed()
	pos := m.Position()
	if e := c.at(pos.Index); e.chain != m.Chain() || e.pos != pos || pos.Index > to {
		c.w.failf("%s at %v has another chain than the log's replay at %v", n.name, pos, e.pos)
	}
	n.at = to
}

func (c *checker) appending(n *simNode, jobs []*appendJob) { c.logChecker.appending(jobs) }

// effect notes that an op is in the log and was not filtered out.
func (c *checker) effect(o *simOp, i uint64, h fsm.BatchHeader, res *fsm.Result) {
	if o.effectAt != 0 {
		c.w.failf("entry %d: %v takes effect a second time; the first was entry %d", i, o, o.effectAt)
	}
	if o.outcome == refused {
		c.w.failf("entry %d: %v takes effect after it was refused as not applied (%v)", i, o, o.req.err)
	}
	if h.Origin != o.node.id {
		c.w.failf("entry %d: %v is in a batch of node %x", i, o, h.Origin)
	}
	o.effectAt, o.result = i, res
	if o.fast != nil {
		c.kept(o, i, h, res)
	}
	c.w.log.Sugar().Debugf("entry %d: %v: %v", i, o, res.Code)
}

// done takes an answered request of a node.
func (c *checker) done(n *simNode, r *request) {
	w := c.w
	o := n.open[r]
	if o == nil {
		w.failf("%s answers a request that it does not have (twice?): %T", n.name, r.op)
	}
	delete(n.open, r)
	w.note('d', uint64(o.id), r.res.Position.Index)
	if o.left {
		// Do has returned before; the answer goes nowhere.
		return
	}
	switch {
	case r.err == nil && r.res.Fast:
		c.promise(o, &r.res)
		c.finish(o, answeredOK)
	case r.err == nil:
		c.checkOK(o, &r.res)
		c.finish(o, answeredOK)
	case r.err.Unknown:
		c.finish(o, unknown)
	default:
		// A node that stops refuses parked dequeues; what they are handed later is
		// given back.
		if o.effectAt != 0 && !(r.err.Code == fsm.CodeLeaving && o.kind == opDequeue && o.result.Parked) {
			w.failf("%v was refused as not applied (%v), but entry %d holds it", o, r.err, o.effectAt)
		}
		c.finish(o, refused)
	}
}

func (c *checker) finish(o *simOp, out outcome) {
	w := c.w
	if o.outcome != pending {
		w.failf("%v is answered twice", o)
	}
	o.outcome = out
	c.answered++
	w.stats.Ops++
	switch out {
	case answeredOK:
		w.stats.OK++
	case refused:
		w.stats.Refused++
	default:
		w.stats.Unknown++
	}
	if e := w.log.Check(-1, "answer"); e != nil {
		w.log.Sugar().Debugf("%v: outcome %d, position %v, err %v", o, out, o.position(), o.err())
	}
	if o.ended != nil {
		o.ended(o)
	}
}

func (o *simOp) position() fsm.Position {
	if o.read != nil {
		return o.read.pos
	}
	return o.req.res.Position
}

func (o *simOp) err() *fsm.Error {
	if o.read != nil {
		return o.read.err
	}
	return o.req.err
}

// position checks where an answer says it is: in the log, and not before what
// was answered before the call.
func (c *checker) position(o *simOp, p fsm.Position) *logEntry {
	w := c.w
	if p.Index > c.last() || p.Index < 1 {
		w.failf("%v is answered at index %d, the log ends at %d", o, p.Index, c.last())
	}
	if p.Index < o.minIndex {
		w.failf("stale: %v is answered at index %d, but an answer of index %d came before its call", o, p.Index, o.minIndex)
	}
	if p.Index == 1 {
		return &logEntry{counts: make([]fsm.QueueInfo, len(c.queues)), plain: make([]int, len(c.queues))}
	}
	e := c.at(p.Index)
	if e.pos != p {
		w.failf("%v is answered at %v, the log has %v", o, p, e.pos)
	}
	if p.Index > c.highest {
		c.highest = p.Index
		c.highs = append(c.highs, high{w.now, p.Index})
	}
	return e
}

func (c *checker) checkOK(o *simOp, res *fsm.Result) {
	w := c.w
	e := c.position(o, res.Position)
	op, dequeue := o.op.(*fsm.Dequeue)
	switch {
	case !dequeue:
		if o.effectAt != res.Position.Index {
			w.failf("%v is answered at index %d, but its effect is in entry %d", o, res.Position.Index, o.effectAt)
		}
		if res.Code != o.result.Code || !slices.Equal(res.Items, o.result.Items) || !sameSide(res, o.result) {
			w.failf("%v has result %+v, the log's replay %+v", o, res, o.result)
		}
		if o.family != nil {
			o.family.answered(w, o, res)
		}
	case len(res.Jobs) > 0:
		c.delivered(o, res)
	case o.effectAt == 0:
		w.stats.EmptyReads++
		if op.WaitMs > 0 {
			w.failf("%v has not waited and is answered with nothing", o)
		}
		c.nothingAgain(o, op, res.Position.Index)
		for _, q := range op.Queues {
			k := slices.Index(c.queues, q)
			if k < 0 {
				continue // one of the side's
			}
			if e.counts[k].Ready > 0 || e.plain[k] > 0 {
				w.failf("%v found nothing at index %d, but %d jobs are ready in %s", o, res.Position.Index, e.counts[k].Ready, q)
			}
		}
	case o.result.Parked:
		if w.now < o.called+op.WaitMs*1e6*98/100 && !o.node.core.leaving {
			w.failf("%v gave up waiting after %s, not %d ms", o, ms(w.now-o.called), op.WaitMs)
		}
		if res.Position.Index < o.effectAt {
			w.failf("%v gave up waiting at index %d, before it began in entry %d", o, res.Position.Index, o.effectAt)
		}
	case o.effectAt != res.Position.Index || len(o.result.Jobs) > 0:
		w.failf("%v is answered with nothing at index %d, but entry %d gave it %d jobs", o, res.Position.Index, o.effectAt, len(o.result.Jobs))
	}
}

// delivered checks jobs that reach a client.
func (c *checker) delivered(o *simOp, res *fsm.Result) {
	w := c.w
	for k := range res.Jobs {
		d := &res.Jobs[k]
		f := c.grants[modelGrant{d.ID.Key, d.Grant}]
		var given *fsm.Delivered
		if f != nil {
			given = f.heldBy(o)
		}
		if given == nil || f.d.Tag != d.Tag {
			w.failf("%v is answered with grant %d of job %v, which the log does not give it", o, d.Grant, d.ID)
		}
		if f.index > res.Position.Index {
			w.failf("%v is answered at index %d with job %v, granted in entry %d", o, res.Position.Index, d.ID, f.index)
		}
		if was := *given; o.family != nil && res.Position.Index > o.effectAt && d.LeaseUntil > was.LeaseUntil {
			was.LeaseUntil = d.LeaseUntil // learnt of from a snapshot: another try has extended it
			given = &was
		}
		if !sameDelivered(d, given) {
			w.failf("%v is answered with %+v, the log gives it %+v", o, d, *given)
		}
		if f.back {
			w.failf("%v is answered with grant %d of job %v, which was given back", o, d.Grant, d.ID)
		}
	}
	if o.family == nil && res.Position.Index != c.grants[modelGrant{res.Jobs[0].ID.Key, res.Jobs[0].Grant}].index {
		// After a snapshot install: what the request holds there.
		w.stats.FromSnapshot++
	}
}

func sameDelivered(a, b *fsm.Delivered) bool {
	if a.ID.Minutes%2 == 0 && a.Failures == b.Failures+1 && a.LeaseUntil >= b.LeaseUntil {
		// At most once, and learnt of from a snapshot when its lease was over.
		late := *b
		late.Failures, late.LeaseUntil = a.Failures, a.LeaseUntil
		b = &late
	}
	return a.ID == b.ID && a.Grant == b.Grant && a.Tag == b.Tag && a.Queue == b.Queue && a.Body == b.Body && slices.Equal(a.Headers, b.Headers) &&
		a.Priority == b.Priority && a.Deliveries == b.Deliveries && a.Failures == b.Failures && a.EnqueuedMs == b.EnqueuedMs &&
		a.LeaseUntil == b.LeaseUntil && a.ExpiresMs == b.ExpiresMs && a.Fence == b.Fence && a.LastError == b.LastError
}

// received counts deliveries that a client has seen.
func (c *checker) received(o *simOp, res *fsm.Result) {
	for k := range res.Jobs {
		d := &res.Jobs[k]
		j := c.jobs[d.ID.Key]
		if o.family != nil && j.receivedBy == o.family {
			continue // the same client, that asked again
		}
		j.receivedBy = o.family
		if j.received++; j.job.AtMostOnce && j.received > 1 {
			c.w.failf("%v is the second client to receive at-most-once job %v", o, d.ID)
		}
	}
}

// nodeDied ends what was open on a node: outcomes are not known.
func (c *checker) nodeDied(n *simNode) {
	delete(c.fastAt, n)
	for _, o := range c.ops {
		if o.node == n && o.outcome == pending && o.life == n.life-1 {
			c.finish(o, unknown)
		}
	}
	n.open, n.reading = nil, nil
}

// describe makes the message of a failed run.
func (w *world) describe(p any) string {
	text := ""
	switch p := p.(type) {
	case *simFailure:
		text = p.text
	default:
		text = fmt.Sprintf("%s at %s: panic: %v\n%s", w.phase, ms(w.now), p, debug.Stack())
	}
	return fmt.Sprintf("seed %d: %s\n  nodes %d, faults %v, %d entries\n  replay: %s",
		w.seed, text, w.opt.nodes, w.opt.faults, len(w.check.entries), simRun{w.seed, w.opt.ops, w.cut}.command())
}
