package raftnode

import (
	"bytes"

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
	attempts map[string]*modelAttempt
}

func newLogChecker(w *world) logChecker {
	l := logChecker{w: w, stamps: map[[2]uint64]int64{}, sessions: map[uint64]*modelSession{}, jobs: map[fsm.Key]*modelJob{},
		lists: map[modelList]*[]*modelJob{}, grants: map[modelGrant]*grantFact{}, attempts: map[string]*modelAttempt{}, side: sideModel{dedup: map[string]sideDedup{}, unique: map[string]*modelJob{}}}
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

// appending notes when an entry was made: the first append of it is its leader's.
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

func (le *logEntry) header() fsm.BatchHeader {
	h, _ := fsm.ReadBatchHeader(le.data)
	return h
}
