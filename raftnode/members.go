package raftnode

import (
	"errors"
	"fmt"
	"slices"

	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"raftq/failpoint"
	"raftq/fsm"
)

// ErrRemoved ends a replica that is no member of its cluster any more. Its data
// directory is of no use: a node may only come back as a new member.
var ErrRemoved = errors.New("this node was removed from the cluster: delete its data directory; with an empty one it can join as a new member")

// membersMax bounds a cluster, learners included.
const membersMax = 15

// The member table is in the machine, raft's configuration in raft. They are
// equal at every index, because one entry changes both: a conf change whose
// context is a batch with the change of the table. The table follows the head of
// the machine, which on a leader is ahead of the commit; raft, the transport, the
// quorum and whoever looks at core.members follow when the entry is committed.

// batchOf returns the batch that an entry brings to the machine, empty for
// raft's own entries.
func batchOf(e *pb.Entry) ([]byte, error) {
	if e.GetType() == pb.EntryNormal {
		return e.GetData(), nil
	}
	cc, err := confChangeOf(e)
	if err != nil {
		return nil, err
	}
	switch cc := cc.(type) {
	case *pb.ConfChange:
		return cc.GetContext(), nil
	case *pb.ConfChangeV2:
		return cc.GetContext(), nil
	}
	panic(fmt.Sprintf("BUG: a conf change of type %T", cc))
}

func confChangeOf(e *pb.Entry) (pb.ConfChangeI, error) {
	var cc interface {
		pb.ConfChangeI
		proto.Message
	} = &pb.ConfChangeV2{}
	if e.GetType() == pb.EntryConfChange {
		cc = &pb.ConfChange{}
	}
	if err := proto.Unmarshal(e.GetData(), cc); err != nil {
		return nil, fmt.Errorf("conf change at %d: %w", e.GetIndex(), err)
	}
	return cc, nil
}

// confEntry wraps a batch with a change of the member table into raft's entry for
// the same change.
func confEntry(op *fsm.MemberChange, batch []byte) *pb.Entry {
	cc := &pb.ConfChange{NodeId: new(op.Member.ID), Context: batch}
	switch op.Verb {
	case fsm.MemberAdd:
		cc.Type = pb.ConfChangeAddLearnerNode.Enum()
	case fsm.MemberPromote:
		cc.Type = pb.ConfChangeAddNode.Enum()
	case fsm.MemberRemove:
		cc.Type = pb.ConfChangeRemoveNode.Enum()
	default:
		return &pb.Entry{Data: batch}
	}
	data, err := proto.Marshal(cc)
	if err != nil {
		panic("BUG: a conf change that cannot be encoded: " + err.Error())
	}
	return &pb.Entry{Type: pb.EntryConfChange.Enum(), Data: data}
}

// confOf is raft's configuration of a member table.
func confOf(table []fsm.Member) *pb.ConfState {
	conf := &pb.ConfState{}
	for _, m := range table { // sorted by id, as raft's
		if m.Learner {
			conf.Learners = append(conf.Learners, m.ID)
		} else {
			conf.Voters = append(conf.Voters, m.ID)
		}
	}
	return conf
}

// checkConf tells whether raft's configuration is that of the table.
func checkConf(conf *pb.ConfState, table []fsm.Member) error {
	want := confOf(table)
	if slices.Equal(conf.GetVoters(), want.Voters) && slices.Equal(conf.GetLearners(), want.Learners) && len(conf.GetVotersOutgoing())+len(conf.GetLearnersNext()) == 0 {
		return nil
	}
	return fmt.Errorf("raft's configuration is %v, the member table's %v", conf, want)
}

func inConf(conf *pb.ConfState, id uint64) bool {
	return slices.Contains(conf.GetVoters(), id) || slices.Contains(conf.GetLearners(), id)
}

// applyConfChange lets raft make the change of a committed entry, if the machine
// made it.
func (c *core) applyConfChange(e *pb.Entry, a *fsm.Applied) {
	cc, err := confChangeOf(e)
	if err != nil {
		c.halt(err)
		return
	}
	if a.Members == nil {
		cc = &pb.ConfChange{} // of nobody: raft counts it and changes nothing
	}
	if seeded == "removed-member-still-votes" && cc.AsV2().GetChanges() != nil && cc.AsV2().GetChanges()[0].GetType() == pb.ConfChangeRemoveNode {
		cc = &pb.ConfChange{}
	}
	failpoint.Hit(failpoint.ConfBeforeApply)
	c.conf = c.rn.ApplyConfChange(cc)
	failpoint.Hit(failpoint.ConfAfterApply)
	// Who starts with an older configuration may need the vote of somebody who has left.
	c.writeCommit()
}

// setMembers takes the member table as of the last committed entry.
func (c *core) setMembers(table []fsm.Member) {
	if err := checkConf(c.conf, table); err != nil {
		panic(fmt.Sprintf("BUG: at entry %d %v", c.confirmed.Index, err))
	}
	for _, was := range c.members {
		if !slices.ContainsFunc(table, func(m fsm.Member) bool { return m.ID == was.ID }) {
			delete(c.peers, was.ID)
		}
	}
	c.members, c.out.members = table, table
	self := false
	for _, m := range table {
		if m.ID == c.cfg.id {
			self = true
		} else if c.peers[m.ID] == nil {
			c.peers[m.ID] = &peerState{heard: c.now.boot}
		}
	}
	// At least the sum of all nodes' batch windows, so that a batch is never
	// dropped for want of room while the log moves.
	c.uncommittedMax = uint64(max(len(table), 1) * inflightMax * batchWindow)
	// A node that has just joined may still have to learn that it has.
	if !self && c.machine.Removed(c.cfg.id) {
		c.expel()
	}
}

// expel ends this node's service: it was removed. It goes on to vote, and to lead
// if it does, until a peer says that nobody needs it any more (MemberGone). The
// others act on the removal only once they know that it is committed; one that
// crashed before it knew needs this node's vote by the old table. A leader of two
// that ended with its own removal would leave the other one without a majority, for
// ever, if the message with the commit got lost.
func (c *core) expel() {
	if c.expelled {
		return
	}
	c.expelled = true
	c.log.Warn("this node was removed from the cluster: it serves nobody any more, and ends as soon as the others do not need it")
	c.leave()
	for len(c.origin.inflight) > 0 {
		for _, r := range c.origin.inflight[0].reqs {
			if r != nil && r.state == reqPacked {
				c.unknown(r, "this node was removed from the cluster before it knew the result")
			}
		}
		c.popInflight()
	}
}

// member returns a line of the committed table.
func (c *core) member(id uint64) (fsm.Member, bool) {
	for _, m := range c.members {
		if m.ID == id {
			return m, true
		}
	}
	return fsm.Member{}, false
}

// nameOf returns a member's name, for people.
func (c *core) nameOf(id uint64) string {
	if id == 0 {
		return ""
	}
	if m, ok := c.member(id); ok {
		return m.Name
	}
	return fmt.Sprintf("%x", id)
}

// alive tells whether a member was heard of within an election timeout.
func (c *core) alive(id uint64) bool {
	if id == c.cfg.id {
		return true
	}
	p := c.peers[id]
	return p != nil && c.now.boot-p.heard <= c.cfg.electionNs
}

// sendSnapshot lets a snapshot go to a peer, unless it is of before the peer
// became a member: raft there would ignore it. Then a new one is taken, and raft
// tries again.
func (c *core) sendSnapshot(m *pb.Message) {
	if inConf(m.GetSnapshot().GetMetadata().GetConfState(), m.GetTo()) {
		c.out.snapshots = append(c.out.snapshots, m)
		return
	}
	c.rn.ReportSnapshot(m.GetTo(), raft.SnapshotFailure)
	if !c.snaps.writing {
		c.snaps.wanted = c.confirmed.Index
	}
}
