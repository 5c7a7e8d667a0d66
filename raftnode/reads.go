package raftnode

import (
	"encoding/binary"

	"go.etcd.io/raft/v3"

	"raftq/fsm"
)

// read is one read of the state by a client. From readAsked until done it
// belongs to the core.
type read struct {
	f   func(*fsm.Machine) // may run more than once; the last time counts
	how fsm.ReadHow

	arrived  int64 // boot ns
	deadline int64
	index    uint64   // not evaluated before the machine has reached it
	mark     uint64   // leader: an own-term entry above it proves leadership when it commits
	round    uint64   // the ReadIndex that proves it, 0 = none begun yet
	proven   bool     //
	empty    *request // a dequeue that found nothing, instead of f
	seen     bool     // evaluated at pos, which is not committed yet

	pos  fsm.Position
	age  int64 // ns, of a weak read
	at   int64 // log time of the answer, ms
	err  *fsm.Error
	done chan struct{} // one send
}

// reads are linearizable because each is evaluated at a state that contains
// everything committed when it arrived, and because leadership was proven after
// that: by a ReadIndex begun later, or, on the leader, by an entry appended later
// in this term that commits. The commit index noted is raft's own, not what was
// handed out for applying: followers may have answered from more.
type reads struct {
	list     []*read
	round    uint64 // number of the last ReadIndex begun; of one process life only
	open     bool   // it is unanswered
	began    int64
	fresh    freshness
	unmarked int // list[unmarked:] arrived in this turn
}

// freshness is the age of this node's committed state: it holds everything that
// was committed at a moment when a ReadIndex began that was answered with an
// index the state has reached. It is renewed while weak reads come.
type freshness struct {
	at     int64 // boot ns; 0 = never
	next   int64 // of the last answered round: counts once index is reached
	index  uint64
	wanted int64 // boot ns of the last weak read

	// Leader: an entry of its own, and when it was appended.
	appended, appendedTerm uint64
	appendedAt             int64
}

const freshFor = 10e9 // ns that the renewal goes on after a weak read

func (c *core) onRead(r *read) {
	r.arrived, r.deadline = c.now.boot, c.now.boot+r.how.TimeoutMs*1e6
	r.index = r.how.MinIndex
	r.mark = ^uint64(0) // none yet
	if c.leaving {
		r.err = fsm.Refuse(fsm.CodeLeaving, "this node is stopping; ask another one")
		c.out.reads = append(c.out.reads, r)
		return
	}
	if !r.how.Strong {
		r.proven = true
		if r.how.Age {
			c.reads.fresh.wanted = c.now.boot
		}
	} else if c.role == raft.StateLeader {
		r.index = max(r.index, c.rn.BasicStatus().GetCommit())
	}
	c.reads.list = append(c.reads.list, r)
}

// readEmpty answers a dequeue that found nothing by a read; if there is something
// by then it goes into a batch after all.
func (c *core) readEmpty(r *request) {
	r.state = reqWaiting
	rd := &read{how: fsm.ReadHow{Strong: true, TimeoutMs: r.timeout / 1e6}, empty: r}
	c.onRead(rd)
}

// settleReads runs at the end of each turn: new reads get their mark, what is
// proven and reached is evaluated, and a ReadIndex begins for what has none.
func (c *core) settleReads() {
	q := &c.reads
	for _, r := range q.list[q.unmarked:] {
		// After this turn's Ready, so that entries appended before the read
		// arrived cannot prove anything.
		r.mark = c.lastAppended
		if seeded == "read-proved-by-older-entry" {
			r.mark = 0
		}
	}
	if len(q.list) == 0 {
		q.unmarked = 0
		return
	}
	c.refresh()
	head := c.machine.Position()
	ownTerm := c.role == raft.StateLeader && head.Term == c.term
	keep := q.list[:0]
	need := false
	for _, r := range q.list {
		if !r.proven && ownTerm && c.confirmed.Index > r.mark {
			r.proven = true
		}
		if c.evaluate(r) {
			continue
		}
		need = need || !r.proven && r.round == 0
		keep = append(keep, r)
	}
	clear(q.list[len(keep):])
	q.list = keep
	q.unmarked = len(keep)
	if need && !q.open && c.leader != 0 {
		c.beginRound()
	}
}

// evaluate runs a read when its index is reached, and answers it when what it
// saw is committed and leadership proven; true when the read is over. A weak read
// sees only committed state; a strong one is evaluated at the head, so that it
// need not wait for a committed copy, and held until the head's entry commits.
func (c *core) evaluate(r *read) bool {
	m := c.machine
	if !r.how.Strong {
		m = c.committed()
		if !c.freshEnough(r) {
			return false // a round is on its way
		}
	}
	if !r.seen {
		// A leader's commit index means nothing before its term's first entry is
		// applied: an earlier life of it may have answered from more.
		early := c.role == raft.StateLeader && (m.Position().Term == c.term || seeded == "own-term-not-awaited")
		if m.Position().Index < r.index || !r.proven && !early {
			return false
		}
		r.seen, r.pos = true, m.Position()
		switch {
		case r.empty == nil:
			r.f(m)
		case r.empty.state != reqWaiting:
			return true // its client left
		case m.Finds(r.empty.op.(*fsm.Dequeue)):
			c.enqueueRequest(r.empty)
			return true
		}
	}
	if !r.proven && seeded != "read-without-proof" || r.pos.Index > c.confirmed.Index && seeded != "read-before-commit" {
		return false
	}
	if r.empty == nil {
		r.at = c.reckonedNow()
		c.out.reads = append(c.out.reads, r)
	} else if r.empty.state == reqWaiting {
		c.answer(r.empty, fsm.Result{Position: r.pos})
	}
	return true
}

// freshEnough notes the age of a weak read's state and tells whether it will do.
// An age that nobody knows yet is waited for, but not for long: without max_stale
// an answer of unknown age (-1) is better than none.
func (c *core) freshEnough(r *read) bool {
	f := &c.reads.fresh
	if r.age = c.now.boot - f.at; f.at == 0 {
		r.age = -1
	}
	switch {
	case !r.how.Age:
		return true
	case r.how.MaxStaleMs > 0:
		return f.at > 0 && r.age <= r.how.MaxStaleMs*1e6
	}
	return f.at > 0 || c.now.boot-r.arrived > 3*c.cfg.heartbeatNs
}

// provenBy notes that this leader has appended an entry: once it commits, the
// leader led after that, and its state is as young.
func (c *core) provenBy(index uint64) {
	if f := &c.reads.fresh; f.appended <= c.confirmed.Index || f.appendedTerm != c.term {
		f.appended, f.appendedTerm, f.appendedAt = index, c.term, c.now.boot
	}
}

// refresh lets the last answered round count once its index is reached.
func (c *core) refresh() {
	f := &c.reads.fresh
	if c.role == raft.StateLeader && f.appendedTerm == c.term && f.appended > 0 && f.appended <= c.confirmed.Index && f.appendedAt > f.next {
		f.next, f.index = f.appendedAt, f.appended
	}
	if f.next > f.at && c.committed().Position().Index >= f.index {
		f.at = f.next
	}
}

// mayAnswerReads tells whether raft may be given a ReadIndex. For a leader that is
// no member it would answer without asking anybody; and for a lone voter with a
// commit index that may be behind what an earlier life has answered, before the first
// entry of its term is committed.
func (c *core) mayAnswerReads() bool {
	alone := c.role == raft.StateLeader && len(c.conf.GetVoters()) == 1 && seeded != "lone-voter-reads-at-once"
	return !c.expelled && !(alone && c.confirmed.Term != c.term)
}

// beginRound starts a ReadIndex for all reads that have none. A new leader waits
// for its term's first entry, which proves as much.
func (c *core) beginRound() {
	q := &c.reads
	if c.role == raft.StateLeader && c.confirmed.Term != c.term {
		return
	}
	q.round++
	q.open, q.began = true, c.now.boot
	for _, r := range q.list {
		if !r.proven && r.round == 0 {
			r.round = q.round
		}
	}
	c.stats.readRounds++
	c.rn.ReadIndex(binary.BigEndian.AppendUint64(make([]byte, 0, 8), q.round))
}

// onReadState proves the reads of a round.
func (c *core) onReadState(rs raft.ReadState) {
	q := &c.reads
	if len(rs.RequestCtx) != 8 {
		return
	}
	round := binary.BigEndian.Uint64(rs.RequestCtx)
	if round == q.round {
		q.open = false
		q.fresh.next, q.fresh.index = q.began, rs.Index
		c.refresh()
	}
	for _, r := range q.list {
		if !r.proven && r.round == round {
			r.proven = true
			if r.index = max(r.index, rs.Index); r.pos.Index < r.index {
				r.seen = false // too early: it may lack what was committed
			}
		}
	}
}

// readsLeaderChanged starts over: a round may be lost with the old leader, and a
// mark means nothing in another term.
func (c *core) readsLeaderChanged() {
	q := &c.reads
	q.open = false
	for _, r := range q.list {
		if r.pos.Index > c.confirmed.Index {
			r.seen = false // that entry may never commit: f runs again
		}
		if !r.proven {
			r.round = 0
			r.mark = ^uint64(0)
		}
	}
}

// readsTick gives up reads whose time is over and repeats a lost round.
func (c *core) readsTick() {
	q := &c.reads
	if q.open && c.now.boot-q.began > 5*c.cfg.heartbeatNs {
		c.readsLeaderChanged()
	}
	c.refresh()
	if f := &q.fresh; f.wanted > 0 && c.now.boot-f.wanted < freshFor && !q.open && c.leader != 0 && c.now.boot-max(f.at, f.next) >= c.cfg.heartbeatNs {
		c.beginRound()
	}
	if len(q.list) == 0 {
		return
	}
	leaderless := c.leader == 0 && c.now.boot-c.noLead >= 10*c.cfg.electionNs
	keep, marked := q.list[:0], 0
	for i, r := range q.list {
		switch {
		case c.now.boot >= r.deadline && r.how.MinIndex > c.confirmed.Index:
			c.refuseRead(r, fsm.CodeNotFresh, "min_index %d is not reached here within the timeout; this node has applied %d", r.how.MinIndex, c.confirmed.Index)
		case c.now.boot >= r.deadline && !r.how.Strong:
			c.refuseRead(r, fsm.CodeNotFresh, "within the timeout this node could not show a state of at most %d ms (max_stale)", r.how.MaxStaleMs)
		case c.now.boot >= r.deadline, leaderless && r.how.Strong:
			c.refuseRead(r, fsm.CodeNoLeader, "no linearizable read within the timeout: a majority of the members must be up and connected")
		default:
			keep = append(keep, r)
			if i < q.unmarked {
				marked = len(keep)
			}
		}
	}
	clear(q.list[len(keep):])
	q.list, q.unmarked = keep, marked
}

func (c *core) refuseRead(r *read, code fsm.Code, format string, args ...any) {
	if r.empty != nil {
		if r.empty.state == reqWaiting {
			c.refuse(r.empty, code, format, args...)
		}
		return
	}
	r.err = fsm.Refuse(code, format, args...)
	c.out.reads = append(c.out.reads, r)
}

func (c *core) leaveReads() {
	for _, r := range c.reads.list {
		c.refuseRead(r, fsm.CodeLeaving, "this node is stopping; ask another one")
	}
	c.reads.list, c.reads.unmarked = nil, 0
}
