package raftnode

import (
	"encoding/binary"

	"go.etcd.io/raft/v3"

	"raftq/fsm"
)

// read is one read of the state by a client. From readAsked until done it
// belongs to the core.
type read struct {
	f        func(*fsm.Machine)
	strong   bool
	minIndex uint64
	timeout  int64 // ns

	deadline int64
	index    uint64   // not evaluated before the machine has reached it
	mark     uint64   // leader: an own-term entry above it proves leadership when it commits
	round    uint64   // the ReadIndex that proves it, 0 = none begun yet
	proven   bool     //
	empty    *request // a dequeue that found nothing, instead of f

	pos  fsm.Position
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
	unmarked int // list[unmarked:] arrived in this turn
}

func (c *core) onRead(r *read) {
	r.deadline = c.now.boot + r.timeout
	r.index = r.minIndex
	r.mark = ^uint64(0) // none yet
	if c.leaving {
		r.err = fsm.Refuse(fsm.CodeLeaving, "this node is stopping; ask another one")
		c.out.reads = append(c.out.reads, r)
		return
	}
	if !r.strong {
		r.proven = true
	} else if c.role == raft.StateLeader {
		r.index = max(r.index, c.rn.BasicStatus().GetCommit())
	}
	c.reads.list = append(c.reads.list, r)
}

// readEmpty answers a dequeue that found nothing by a read; if there is something
// by then it goes into a batch after all.
func (c *core) readEmpty(r *request) {
	r.state = reqWaiting
	rd := &read{strong: true, timeout: r.timeout, empty: r}
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
	}
	if len(q.list) == 0 {
		q.unmarked = 0
		return
	}
	pos := c.machine.Position()
	ownTerm := c.role == raft.StateLeader && pos.Term == c.term
	keep := q.list[:0]
	need := false
	for _, r := range q.list {
		if !r.proven && ownTerm && pos.Index > r.mark && pos.Index >= r.index {
			r.proven = true
		}
		if r.proven && pos.Index >= r.index {
			c.evaluate(r)
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

func (c *core) evaluate(r *read) {
	r.pos = c.machine.Position()
	if r.empty == nil {
		r.f(c.machine)
		c.out.reads = append(c.out.reads, r)
		return
	}
	req := r.empty
	if req.state != reqWaiting {
		return // its client left
	}
	if c.machine.AnyReady(req.op.(*fsm.Dequeue).Queues) {
		c.enqueueRequest(req)
		return
	}
	c.answer(req, fsm.Result{Position: r.pos})
}

// beginRound starts a ReadIndex for all reads that have none. A lone voter
// answers itself from a commit index that may be old before its term's first
// entry is applied; it waits for that.
func (c *core) beginRound() {
	q := &c.reads
	if c.role == raft.StateLeader && c.machine.Position().Term != c.term {
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
	}
	for _, r := range q.list {
		if !r.proven && r.round == round {
			r.proven = true
			r.index = max(r.index, rs.Index)
		}
	}
}

// readsLeaderChanged starts over: a round may be lost with the old leader, and a
// mark means nothing in another term.
func (c *core) readsLeaderChanged() {
	q := &c.reads
	q.open = false
	for _, r := range q.list {
		if !r.proven {
			r.round = 0
			r.mark = ^uint64(0)
		}
	}
}

// readsTick gives up reads whose time is over and repeats a lost round.
func (c *core) readsTick() {
	q := &c.reads
	if len(q.list) == 0 {
		return
	}
	if q.open && c.now.boot-q.began > 5*c.cfg.heartbeatNs {
		c.readsLeaderChanged()
	}
	leaderless := c.leader == 0 && c.now.boot-c.noLead >= 10*c.cfg.electionNs
	keep, marked := q.list[:0], 0
	for i, r := range q.list {
		switch {
		case c.now.boot >= r.deadline && r.proven && r.strong == false && r.minIndex > c.machine.Position().Index:
			c.refuseRead(r, fsm.CodeNoLeader, "min_index %d is not reached here within the timeout; this node has applied %d", r.minIndex, c.machine.Position().Index)
		case c.now.boot >= r.deadline, leaderless && r.strong:
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
