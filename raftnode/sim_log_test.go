package raftnode

import (
	"bytes"
	"slices"

	pb "go.etcd.io/raft/v3/raftpb"

	"raftq/fsm"
)

// logEntry is one committed entry and what it did, according to the reference
// machines.
type logEntry struct {
	term     uint64
	raw      []byte // the entry's data
	data     []byte // the batch
	chain    uint64
	pos      fsm.Position
	stamped  int64 // true time of its first append; 0 = not seen
	origin   uint64
	results  []fsm.Result // of its ops, for its origin
	handouts map[uint64][]fsm.Handout
	counts   []fsm.QueueInfo // of the client queues, afterwards
	messages uint64          // of the topic, afterwards
	plain    []int           // jobs of each queue that certainly are ready: never granted, no delay, no TTL
}

// logChecker replays the committed log, as the nodes apply it, into one fresh
// machine for each origin (they must agree), and into a naive model of its own,
// which judges what the machines did.
type logChecker struct {
	w       *world
	refs    []*fsm.Machine // one for each of origins
	origins []uint64
	entries []logEntry // by index - 2
	stamps  map[[2]uint64]int64
	queues  []string

	sessions map[uint64]*modelSession
	jobs     map[fsm.Key]*modelJob
	order    []fsm.Key // of jobs
	lists    map[modelList]*[]*modelJob
	waiters  []*modelWaiter // oldest first
	grants   map[modelGrant]*grantFact
	firstOf  uint64 // index of the first stamped entry
	fast     *logEntry
	seq      int
	empties  []emptyAnswer // of the entry at hand
	side     sideModel
}

type emptyAnswer struct {
	op     *simOp
	queues []string
}

type modelSession struct {
	epoch, last uint64
	away        bool
	awayTouched uint64 // index of the last entry that changed away
}

type modelList struct {
	queue string
	prio  uint8
}

type modelJob struct {
	key      fsm.Key
	op       *simOp
	n        int // of the op's jobs
	job      *fsm.NewJob
	seq      int
	index    uint64
	born     int64 // true ns
	notMs    int64 // not before, log ms
	notTrue  int64 // and in true ns, before tolerance
	wait     int64 // ns, that led to notTrue
	expires  int64 // log ms; 0 = none
	plain    bool  // no delay, no TTL
	granted  bool
	leased   bool
	grant    uint32
	fact     *grantFact
	untilMs  int64 // log
	lease    int64 // ns
	since    int64 // true ns
	acked    bool
	ackedAt  uint64
	received int // by clients
	backs    int // hand-outs undone
	side     *sideJob
}

type modelGrant struct {
	key   fsm.Key
	grant uint32
}

// grantFact is one hand-out in the log.
type grantFact struct {
	index  uint64
	op     *simOp
	origin uint64
	d      fsm.Delivered
	back   bool // given back
}

type modelWaiter struct {
	op       *simOp
	origin   uint64
	epoch    uint64
	request  uint64
	index    uint64
	deadline int64
	queues   []string
	max      int
	gone     bool // withdrawn or of an old epoch, by the entry at hand
}

func newLogChecker(w *world) logChecker {
	l := logChecker{w: w, stamps: map[[2]uint64]int64{}, sessions: map[uint64]*modelSession{}, jobs: map[fsm.Key]*modelJob{},
		lists: map[modelList]*[]*modelJob{}, grants: map[modelGrant]*grantFact{}, side: sideModel{dedup: map[string]sideDedup{}}}
	for _, m := range w.members {
		l.refs = append(l.refs, fsm.New(w.members))
		l.origins = append(l.origins, m.ID)
	}
	for i := range w.opt.queues {
		l.queues = append(l.queues, simQueue(i))
	}
	return l
}

func (l *logChecker) last() uint64 { return uint64(len(l.entries)) + 1 }

func (l *logChecker) at(index uint64) *logEntry { return &l.entries[index-2] }

// appending notes when an entry was made: the first append of it is its leader's.
// stamping notes when a leader stamped the entries that it has taken and keeps
// back: a pause may come before they leave.
func (l *logChecker) stamping(n *simNode) {
	bound := n.core.spec.bound.all()
	for i := len(bound) - 1; i >= 0; i-- {
		k := [2]uint64{bound[i].Position.Index, bound[i].Position.Term}
		if _, ok := l.stamps[k]; ok {
			return
		}
		l.stamps[k] = l.w.now
	}
}

func (l *logChecker) appending(jobs []*appendJob) {
	for _, j := range jobs {
		if j.m == nil {
			continue
		}
		for _, e := range j.m.GetEntries() {
			k := [2]uint64{e.GetIndex(), e.GetTerm()}
			if _, ok := l.stamps[k]; !ok {
				l.stamps[k] = l.w.now
			}
		}
	}
}

// applied takes an entry that a node has applied: a new one, or one that others
// have applied before it.
func (l *logChecker) applied(n *simNode, e *pb.Entry) {
	i := e.GetIndex()
	if i <= l.last() {
		was := l.at(i)
		if was.term != e.GetTerm() || !bytes.Equal(was.raw, e.GetData()) {
			l.w.failf("%s applied another entry %d than others: term %d, %d bytes; theirs is of term %d, %d bytes", n.name, i, e.GetTerm(), len(e.GetData()), was.term, len(was.raw))
		}
		return
	}
	if i != l.last()+1 {
		l.w.failf("%s applied entry %d, but nobody entry %d", n.name, i, l.last()+1)
	}
	l.replay(e)
}

func (l *logChecker) replay(e *pb.Entry) {
	w := l.w
	i := e.GetIndex()
	data, err := batchOf(e)
	if err != nil {
		w.failf("entry %d: %v", i, err)
	}
	l.entries = append(l.entries, logEntry{term: e.GetTerm(), raw: e.GetData(), data: data, stamped: l.stamps[[2]uint64{i, e.GetTerm()}], handouts: map[uint64][]fsm.Handout{}})
	le := l.at(i)
	var h fsm.BatchHeader
	var ops []fsm.Op
	if len(data) > 0 {
		if h, ops, err = fsm.DecodeOps(data); err != nil {
			w.failf("entry %d: %v", i, err)
		}
	}
	before := l.refs[0].Position()
	le.origin = h.Origin
	effect := false
	for k, ref := range l.refs {
		id := l.origins[k]
		self := fsm.Self{Origin: id, Epoch: h.Epoch}
		if h.Origin != id || h.Number == 0 {
			// A node start may hand jobs to waiters of the epoch that it ends.
			s, _ := ref.Session(id)
			self.Epoch = s.Epoch
		}
		a, err := ref.Apply(i, e.GetTerm(), data, self)
		if err != nil {
			w.failf("entry %d: %v", i, err)
		}
		effect = a.Effect
		if a.Mine {
			le.results = a.Results
		}
		if len(a.Handouts) > 0 {
			le.handouts[id] = a.Handouts
		}
		if k == 0 {
			le.chain, le.pos = ref.Chain(), ref.Position()
		} else if ref.Chain() != le.chain {
			w.failf("entry %d: machines that differ only in whose results they build have different chains", i)
		}
	}
	le.counts = make([]fsm.QueueInfo, len(l.queues))
	for q, name := range l.queues {
		le.counts[q], _ = l.refs[0].Queue(name)
	}
	if len(data) > 0 {
		l.checkTime(i, le, h, before)
		l.judge(i, le, h, ops, effect)
	}
	le.messages = uint64(len(l.side.bodies))
	le.plain = make([]int, len(l.queues))
	for q, name := range l.queues {
		for p := range uint8(10) {
			le.plain[q] += len(l.waitingJobs(name, p))
		}
	}
}

// tolerance is how much earlier than promised something may end: 1 % of slew,
// 0.1 % of drift on either side, and 50 ms.
func tolerance(ns int64) int64 { return ns*12/1000 + 50e6 }

// checkTime holds log time against true time: it never falls and, between any
// two entries, never runs faster than the tolerance.
func (l *logChecker) checkTime(i uint64, le *logEntry, h fsm.BatchHeader, before fsm.Position) {
	w := l.w
	if le.stamped == 0 {
		w.failf("entry %d of term %d was applied but never appended", i, le.term)
	}
	if h.TimeMs < before.TimeMs {
		w.failf("log time falls from %d to %d at entry %d", before.TimeMs, h.TimeMs, i)
	}
	if l.firstOf == 0 {
		l.firstOf = i
		l.fast = le
		return
	}
	// fast is the entry at which log time was farthest behind true time.
	passed, logged := le.stamped-l.fast.stamped, (le.pos.TimeMs-l.fast.pos.TimeMs)*1e6
	if logged > passed+tolerance(max(passed, 0)) {
		w.failf("log time runs early: entry %d is %s after entry %d in log time, and %s in true time", i, ms(logged), l.fast.pos.Index, ms(passed))
	}
	if logged < passed {
		l.fast = le
	}
}

// list returns the jobs of a queue and priority that were never granted, in order.
func (l *logChecker) list(queue string, prio uint8) *[]*modelJob {
	k := modelList{queue, prio}
	p := l.lists[k]
	if p == nil {
		p = &[]*modelJob{}
		l.lists[k] = p
	}
	return p
}

// waitingJobs drops those that were granted from the list's head and returns it.
func (l *logChecker) waitingJobs(queue string, prio uint8) []*modelJob {
	k := modelList{queue, prio}
	p := l.lists[k]
	if p == nil {
		return nil
	}
	for len(*p) > 0 && (*p)[0].granted {
		*p = (*p)[1:]
	}
	return *p
}

// judge runs the naive model over one entry. Within an entry what is settled
// comes before what is granted: nobody can settle what the same entry grants.
func (l *logChecker) judge(i uint64, le *logEntry, h fsm.BatchHeader, ops []fsm.Op, effect bool) {
	w := l.w
	l.session(i, h, ops, effect)
	// Waiters give up by log time, before the entry's ops.
	l.waiters = slices.DeleteFunc(l.waiters, func(v *modelWaiter) bool { return v.deadline <= le.pos.TimeMs })
	var granted []*modelJob
	if effect {
		if h.Number != 0 {
			flags := opFlags(le.data)
			for k, op := range ops {
				if w.check.marked(i, flags[k], op) {
					ops[k] = nil // void
				}
			}
		}
		for k, op := range ops {
			var res *fsm.Result
			if h.Number != 0 {
				res = &le.results[k]
			}
			l.settling(i, le, h, op, res)
		}
		for k, op := range ops {
			if op, ok := op.(*fsm.Dequeue); ok {
				granted = l.dequeued(i, le, h, op, &le.results[k], granted)
			}
		}
	}
	for _, id := range l.origins {
		for _, ho := range le.handouts[id] {
			granted = l.handedOut(i, le, id, ho, granted)
		}
	}
	l.waiters = slices.DeleteFunc(l.waiters, func(v *modelWaiter) bool { return v.gone })
	l.checkEmpty(i)
	l.checkOrder(i, granted)
	l.checkWaiters(i, le)
}

func (l *logChecker) session(i uint64, h fsm.BatchHeader, ops []fsm.Op, effect bool) {
	w := l.w
	if h.Origin == 0 {
		if !effect {
			w.failf("entry %d: a batch of the leader without effect", i)
		}
		return
	}
	s := l.sessions[h.Origin]
	if s == nil {
		s = &modelSession{}
		l.sessions[h.Origin] = s
	}
	next := h.Epoch == s.epoch && h.Number == s.last+1 && h.Number > 0
	if h.Number > 0 && effect != next {
		w.failf("entry %d: batch %d of epoch %x of %x has effect %v, but the last one was %d of %x", i, h.Number, h.Epoch, h.Origin, effect, s.last, s.epoch)
	}
	if !effect {
		w.stats.Filtered++
		w.failf("entry %d: batch %d of epoch %x of %x got into the log though its turn was not there (last %d of %x)", i, h.Number, h.Epoch, h.Origin, s.last, s.epoch)
	}
	if next {
		s.last = h.Number
	}
}

// settling takes the ops that make jobs or give them up.
func (l *logChecker) settling(i uint64, le *logEntry, h fsm.BatchHeader, op fsm.Op, res *fsm.Result) {
	w := l.w
	switch op := op.(type) {
	case *fsm.NodeStart:
		if s, _ := l.refs[0].Session(h.Origin); s.Epoch != h.Epoch {
			w.stats.EpochsRefused++
			return
		}
		*l.sessions[h.Origin] = modelSession{epoch: h.Epoch, awayTouched: i}
		l.leave(func(v *modelWaiter) bool { return v.origin == h.Origin })
	case *fsm.NodeAway:
		w.stats.Away++
		if s := l.sessions[op.Node]; s != nil && s.epoch == op.Epoch {
			s.away, s.awayTouched = true, i
		}
	case *fsm.NodeBack:
		s := l.sessions[h.Origin]
		s.away, s.awayTouched = false, i
	case *fsm.MemberChange:
		l.memberChanged(i, op)
	case *fsm.Withdraw:
		l.leave(func(v *modelWaiter) bool { return v.origin == h.Origin && slices.Contains(op.Requests, v.request) })
	case *fsm.Enqueue:
		l.enqueued(i, le, h, op, res)
	case *fsm.Ack:
		l.settled(i, le, op.Items, res, opAck)
	case *fsm.Nack:
		l.settled(i, le, op.Items, res, opNack)
	case *fsm.Release:
		l.settled(i, le, op.Items, res, opRelease)
	case *fsm.Extend:
		l.settled(i, le, op.Items, res, opExtend)
	case *fsm.GiveBack:
		l.settled(i, le, op.Items, res, opGiveBack)
	case *fsm.Keyed:
		l.keyed(i, le, h, op, res)
	}
}

// leave marks waiters that the entry drops: its timers may have served them before.
func (l *logChecker) leave(which func(*modelWaiter) bool) {
	for _, v := range l.waiters {
		v.gone = v.gone || which(v)
	}
}

func (l *logChecker) enqueued(i uint64, le *logEntry, h fsm.BatchHeader, op *fsm.Enqueue, res *fsm.Result) {
	w := l.w
	o := w.check.opOfBody(op.Jobs[0].Body)
	w.check.effect(o, i, h, res)
	want := o.op.(*fsm.Enqueue)
	if len(want.Jobs) != len(op.Jobs) || len(res.Items) != len(op.Jobs) {
		w.failf("entry %d: %v enqueues %d jobs, the client asked for %d", i, o, len(op.Jobs), len(want.Jobs))
	}
	for k := range op.Jobs {
		j, asked := &op.Jobs[k], &want.Jobs[k]
		if !sameJob(j, asked) {
			w.failf("entry %d: %v: job %d is not what the client asked for", i, o, k)
		}
		if res.Items[k].Code != fsm.CodeOK {
			w.failf("entry %d: %v: job %d refused: %v", i, o, k, res.Items[k].Code)
		}
		key := res.Items[k].ID.Key
		if l.jobs[key] != nil {
			w.failf("entry %d: %v: id %v was given before", i, o, res.Items[k].ID)
		}
		l.seq++
		m := &modelJob{key: key, op: o, n: k, job: asked, seq: l.seq, index: i, born: le.stamped, plain: j.DelayMs == 0 && j.TTLMs == 0}
		if j.DelayMs > 0 {
			m.notMs, m.notTrue, m.wait = le.pos.TimeMs+j.DelayMs, le.stamped+j.DelayMs*1e6, j.DelayMs*1e6
		}
		if j.TTLMs > 0 {
			m.expires = le.pos.TimeMs + j.TTLMs
		}
		l.jobs[key] = m
		l.order = append(l.order, key)
		if m.plain {
			p := l.list(j.Queue, j.Priority)
			*p = append(*p, m)
		}
	}
}

func sameJob(a, b *fsm.NewJob) bool {
	return a.Queue == b.Queue && bytes.Equal(a.Body, b.Body) && slices.Equal(a.Headers, b.Headers) && a.Priority == b.Priority &&
		a.AtMostOnce == b.AtMostOnce && a.DelayMs == b.DelayMs && a.LeaseMs == b.LeaseMs && a.TTLMs == b.TTLMs && a.MaxFailures == b.MaxFailures
}

func (l *logChecker) settled(i uint64, le *logEntry, items []fsm.Item, res *fsm.Result, kind opKind) {
	if kind != opGiveBack {
		l.w.check.effect(l.w.check.opOfMark(items[0].Error), i, le.header(), res)
	}
	l.settledItems(i, le, items, res, kind)
}

func (l *logChecker) settledItems(i uint64, le *logEntry, items []fsm.Item, res *fsm.Result, kind opKind) {
	w := l.w
	for k := range items {
		it, r := &items[k], &res.Items[k]
		j := l.jobs[it.Key]
		if j == nil {
			w.failf("entry %d: item names job %v, which nobody enqueued", i, it.Key)
		}
		loose := j.side != nil && j.side.loose // a cancelled one may still be leased
		if r.Code != fsm.CodeOK || r.Already {
			if r.Already && !j.acked && !loose { // deleted by its id is as good as acked
				w.failf("entry %d: job %v is said to be acked, and is not", i, it.Key)
			}
			if r.Code == fsm.CodeLeaseLost {
				w.stats.StaleReceipts++
			}
			continue
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
		if (kind == opNack || kind == opRelease || kind == opExtend) && le.pos.TimeMs >= j.untilMs {
			w.failf("entry %d: %v of job %v took effect after the end of its lease", i, kind, it.Key)
		}
		switch kind {
		case opAck:
			if r.Late {
				w.stats.LateAcks++
			}
			j.acked, j.ackedAt, j.leased = true, i, false
		case opNack:
			j.leased = false
			if it.DelayMs > 0 {
				j.notMs, j.notTrue, j.wait = le.pos.TimeMs+it.DelayMs, le.stamped+it.DelayMs*1e6, it.DelayMs*1e6
			}
			if j.side != nil {
				if j.side.fails++; r.Dead {
					j.notMs, j.notTrue = 0, 0 // as a dead letter it is ready at once
				}
			}
		case opRelease:
			j.leased = false
		case opGiveBack:
			j.leased, j.fact.back = false, true
			j.backs++
		case opExtend:
			lease := it.LeaseMs
			if lease <= 0 {
				lease = j.lease / 1e6
			}
			j.untilMs, j.lease, j.since = le.pos.TimeMs+lease, lease*1e6, le.stamped
			if r.LeaseUntil != j.untilMs {
				w.failf("entry %d: extend of job %v says until %d, not %d", i, it.Key, r.LeaseUntil, j.untilMs)
			}
		}
	}
}

func (le *logEntry) header() fsm.BatchHeader {
	h, _ := fsm.ReadBatchHeader(le.data)
	return h
}
