package raftnode

import (
	"bytes"
	"fmt"

	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"
	"go.uber.org/zap"

	"raftq/fsm"
)

// change is a change of the members that somebody asked for: a client, or the
// leader itself when a learner has caught up.
type change struct {
	verb     fsm.MemberVerb
	member   fsm.Member // MemberAdd: Name, Peer, Standby, Join; else ID, or Name where it is 0
	replace  bool       // MemberAdd: a dead member of that name is removed first
	dry      bool       // only to be judged
	begun    bool       // a part of it is in the log: it cannot be refused as not applied
	level    uint32     // MemberAdd: feature level of the node that joins, 0 = nobody knows
	timeout  int64      // ns
	asked    int64      // boot ns
	deadline int64      // boot ns
	// reply is called once, unless it is nil. It must not block.
	reply func(fsm.MembersChanged, *fsm.Error)
}

// changes are made one at a time: raft refuses a second one while the first is
// not applied, and each is judged by the table that the one before has left.
type changes struct {
	queue []*change // not proposed; on a leader only
	under *change   // in the log, at index and term, and not known to be committed; nil: none
	verb  fsm.MemberVerb
	id    uint64 // whom it is about
	data  []byte // of its entry, until raft hands that out
	index uint64 // 0 until then
	term  uint64
	again int64 // boot ns: not before
	away  int64 // boot ns: when a leader that serves nobody tries again to hand over
}

// changesMax bounds the queue.
const changesMax = 16

func (ch *change) refuse(code fsm.Code, format string, args ...any) {
	if ch.reply != nil {
		err := fsm.Refuse(code, format, args...)
		if ch.begun {
			err.Unknown, err.Detail = true, "begun, and not known to have ended; ask again: "+err.Detail
		}
		ch.reply(fsm.MembersChanged{}, err)
		ch.reply = nil
	}
}

// begun tells whether a part of a change is in the log, also when somebody else asked
// for it: a removed member that waits to be let go.
func (c *core) begun(ch *change) bool {
	m := ch.member
	if ch.verb == fsm.MemberRemove && m.ID == 0 {
		for _, o := range c.members {
			if o.Name == m.Name {
				m = o
			}
		}
	}
	under := c.changes.under != nil && c.changes.verb == fsm.MemberRemove && c.changes.id == m.ID
	return ch.begun || ch.verb == fsm.MemberRemove && m.ID != 0 && (under || c.machine.Removed(m.ID))
}

func (ch *change) unknown(why string) {
	if ch.reply != nil {
		ch.reply(fsm.MembersChanged{}, &fsm.Error{Code: fsm.CodeCommitTimeout, Detail: why, Unknown: true})
		ch.reply = nil
	}
}

func (ch *change) done(c fsm.MembersChanged) {
	if ch.reply != nil {
		ch.reply(c, nil)
		ch.reply = nil
	}
}

// onChange takes a change, if this node leads.
func (c *core) onChange(ch *change) {
	ch.asked, ch.deadline = c.now.boot, c.now.boot+ch.timeout
	switch {
	case c.role != raft.StateLeader:
		ch.refuse(fsm.CodeNoLeader, "this node does not lead; ask the leader")
	case len(c.changes.queue) >= changesMax:
		ch.refuse(fsm.CodeOverloaded, "%d changes of the members wait, the most there may be", changesMax)
	default:
		c.changes.queue = append(c.changes.queue, ch)
	}
}

// changesTick ends changes whose time is over, and asks for those that need no
// client.
func (c *core) changesTick() {
	q := &c.changes
	keep := q.queue[:0]
	for _, ch := range q.queue {
		if ch.reply != nil && c.now.boot >= ch.deadline {
			ch.begun = c.begun(ch)
			ch.refuse(fsm.CodeOverloaded, "its turn did not come within the timeout of %d ms", ch.timeout/1e6)
		} else {
			keep = append(keep, ch)
		}
	}
	clear(q.queue[len(keep):])
	q.queue = keep
	if q.under != nil && q.under.reply != nil && c.now.boot >= q.under.deadline {
		q.under.unknown(fmt.Sprintf("no commit within the timeout of %d ms; it may still happen: look at the members", q.under.timeout/1e6))
	}
	if m := c.moving; m != nil && c.now.boot >= m.deadline {
		c.moving = nil
		m.reply(&fsm.Error{Code: fsm.CodeCommitTimeout, Unknown: true, Detail: fmt.Sprintf("%s has not taken over within %d ms; it may still", c.nameOf(m.to), m.timeout/1e6)})
	}
	if l := c.lead; l != nil && c.leading() && q.under == nil && len(q.queue) == 0 {
		for _, id := range c.machine.RemovedMembers(false) {
			q.queue = append(q.queue, &change{verb: fsm.MemberRemove, member: fsm.Member{ID: id}, deadline: 1<<63 - 1})
		}
	}
	if c.leaving && c.role == raft.StateLeader && c.moving == nil && c.now.boot >= c.changes.away {
		// It serves nobody; who leads must.
		c.changes.away = c.now.boot + c.cfg.electionNs
		c.transfer()
	}
	c.watchLearners()
}

// changesLeaderChanged: what is not in the log is the next leader's to do, if its
// client asks it.
func (c *core) changesLeaderChanged() {
	if c.role != raft.StateLeader {
		for _, ch := range c.changes.queue {
			ch.begun = c.begun(ch)
			ch.refuse(fsm.CodeNoLeader, "this node does not lead any more; ask the leader")
		}
		c.changes.queue = nil
	}
	switch m := c.moving; {
	case m == nil || c.leader == 0 || c.leader == c.cfg.id:
	case c.leader == m.to:
		c.moving = nil
		m.reply(nil)
	default:
		c.moving = nil
		m.reply(fsm.Refuse(fsm.CodeNoLeader, "%s leads now, not %s; ask again", c.nameOf(c.leader), c.nameOf(m.to)))
	}
}

// proposeChange brings the next change into the log, alone in its message: raft
// says in the entry whether it took it.
func (c *core) proposeChange() {
	q := &c.changes
	if len(q.queue) == 0 || q.under != nil || c.now.boot < q.again || !c.leading() {
		return
	}
	ch := q.queue[0]
	v := c.vet(ch)
	switch {
	case v.wait:
		q.again = c.now.boot + c.cfg.heartbeatNs/2
		return
	case v.err != nil:
		ch.refuse(v.err.Code, "%s", v.err.Detail)
		q.queue = q.queue[1:]
		return
	case v.op == nil || ch.dry:
		ch.done(fsm.MembersChanged{Member: v.member, Already: v.op == nil, Index: c.confirmed.Index, Members: c.members})
		q.queue = q.queue[1:]
		return
	}
	ents := []*pb.Entry{confEntry(v.op, c.stamped(fsm.EncodeBatch(fsm.BatchHeader{Term: c.lead.term}, v.op)).GetData())}
	err := c.rn.Step(&pb.Message{Type: pb.MsgProp.Enum(), From: new(c.cfg.id), Entries: ents})
	if err != nil || len(ents[0].GetData()) == 0 {
		// Leadership is on its way elsewhere, or raft has put an empty entry in the
		// place of a change that came too early.
		q.again = c.now.boot + c.cfg.heartbeatNs/2
		c.log.Info("raft took no change of the members", zap.Error(err))
		return
	}
	if seeded == "change-answered-when-proposed" {
		ch.done(fsm.MembersChanged{Member: v.member, Index: c.machine.Position().Index, Members: c.members})
	}
	q.verb, q.id, q.data, q.index, q.term = v.op.Verb, v.op.Member.ID, ents[0].GetData(), 0, c.lead.term
	if v.first {
		ch.begun = true
		q.under = &change{verb: v.op.Verb, deadline: ch.deadline} // and then ch again
	} else {
		q.under, q.queue = ch, q.queue[1:]
	}
	c.log.Info("changing the members", zap.String("change", memberVerb(v.op.Verb)), zap.String("member", v.member.Name))
}

func memberVerb(v fsm.MemberVerb) string {
	return [...]string{fsm.MemberAdd: "add", fsm.MemberPromote: "promote", fsm.MemberRemove: "remove", fsm.MemberClaim: "claim", fsm.MemberGone: "gone"}[v]
}

// changeAppended learns where raft has put the change under way.
func (c *core) changeAppended(ents []*pb.Entry) {
	q := &c.changes
	if q.under == nil || q.index != 0 {
		return
	}
	for _, e := range ents {
		if e.GetTerm() == q.term && bytes.Equal(e.GetData(), q.data) {
			q.index, q.data = e.GetIndex(), nil
			return
		}
	}
}

// changeCommitted ends the change under way when an entry at its index is
// committed: it or, after a change of leader, another one. was is the member's
// line before.
func (c *core) changeCommitted(e *pb.Entry, a *fsm.Applied, was fsm.Member) {
	q := &c.changes
	// An entry that raft never handed out is not in a log in which a later term
	// has begun.
	if q.under == nil || q.index != 0 && e.GetIndex() < q.index || q.index == 0 && e.GetTerm() <= q.term {
		return
	}
	ch := q.under
	q.under = nil
	switch {
	case e.GetIndex() != q.index || e.GetTerm() != q.term:
		ch.refuse(fsm.CodeNoLeader, "the leader changed before the change was committed, and it is not in the log; ask again")
	case a.Members == nil && a.Gone == 0:
		ch.refuse(fsm.CodeInvalidRequest, "the change was refused; look at the members")
	case q.verb == fsm.MemberRemove && seeded != "removed-before-all-know":
		// Not done before a majority of the others knows it for good.
		ch.member, ch.begun = was, true
		if c.role == raft.StateLeader {
			q.queue = append([]*change{ch}, q.queue...)
		} else {
			ch.refuse(fsm.CodeNoLeader, "%s is removed, but the leader changed before all knew it; ask by the id", was.Name)
		}
	default:
		member, ok := c.member(q.id)
		if !ok {
			member = ch.member
		}
		ch.done(fsm.MembersChanged{Member: member, Index: e.GetIndex(), Members: c.members})
	}
}

// removing tells whether the entry that removes a member is on its way: what
// comes after it has no effect.
func (c *core) removing(id uint64) bool {
	q := &c.changes
	return q.under != nil && q.verb == fsm.MemberRemove && q.id == id && q.term == c.term
}

// endAtRemoval ends a MsgApp for a member that is being removed with the entry that
// removes it. What comes behind is none of its business, and it must not have it:
// once it knows that it was removed it does not stand for election, and those who do
// not know yet need its vote, which it has only for a log that is as long as its own.
func (c *core) endAtRemoval(m *pb.Message) {
	at := c.changes.index
	switch n := len(m.GetEntries()); {
	case at == 0 || m.GetIndex()+uint64(n) <= at:
	case m.GetIndex() <= at:
		m.Entries = m.Entries[:at-m.GetIndex()]
	default:
		// It still tells what is committed.
		m.Index, m.LogTerm, m.Entries = new(at), new(c.changes.term), nil
	}
}

// endChanges answers who still waits when the replica ends.
func (c *core) endChanges() {
	for _, ch := range c.changes.queue {
		ch.begun = c.begun(ch)
		ch.refuse(fsm.CodeLeaving, "%v; ask another one", errStopped)
	}
	if ch := c.changes.under; ch != nil {
		ch.unknown(errStopped.Error() + "; look at the members")
	}
	if c.moving != nil {
		c.moving.reply(&fsm.Error{Code: fsm.CodeCommitTimeout, Detail: errStopped.Error(), Unknown: true})
	}
}

// move is a transfer of leadership that somebody waits for.
type move struct {
	to       uint64
	name     string // of to; "" = whoever is fit
	timeout  int64
	deadline int64
	reply    func(*fsm.Error)
}

// onMove hands leadership to a voter.
func (c *core) onMove(m *move) {
	m.deadline = c.now.boot + m.timeout
	if c.role != raft.StateLeader {
		m.reply(fsm.Refuse(fsm.CodeNoLeader, "this node does not lead; ask the leader"))
		return
	}
	if c.moving != nil {
		m.reply(fsm.Refuse(fsm.CodeOverloaded, "leadership is being moved to %s", c.nameOf(c.moving.to)))
		return
	}
	if m.name == "" {
		if m.to = c.successor(); m.to == 0 {
			m.reply(fsm.Refuse(fsm.CodeQuorumAtRisk, "no other voter is alive"))
			return
		}
	} else {
		to, ok := c.named(fsm.Member{Name: m.name})
		switch {
		case !ok:
			m.reply(fsm.Refuse(fsm.CodeMemberNotFound, "no member is named %q; there are %s", m.name, c.describe()))
			return
		case to.Learner:
			m.reply(fsm.Refuse(fsm.CodeQuorumAtRisk, "%s is a learner: only a voter can lead", to.Name))
			return
		case to.ID == c.cfg.id:
			m.reply(nil)
			return
		case !c.alive(to.ID):
			m.reply(fsm.Refuse(fsm.CodeQuorumAtRisk, "%s is not alive", to.Name))
			return
		}
		m.to = to.ID
	}
	c.moving = m
	c.log.Info("transferring leadership", zap.String("to", c.nameOf(m.to)))
	c.rn.TransferLeader(m.to)
}
