package raftnode

import (
	"fmt"
	"testing"

	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"

	"raftq/fsm"
)

// changed asks a node for a change and waits for its answer.
func (s *script) changed(n *simNode, ch *change) (c fsm.MembersChanged) {
	s.t.Helper()
	answered := false
	ch.timeout = 5e9
	ch.reply = func(got fsm.MembersChanged, err *fsm.Error) {
		if err != nil {
			s.failf("%s refuses: %v", n.name, err)
		}
		c, answered = got, true
	}
	n.post(changeAsked{ch})
	s.until(10e9, "the change", func() bool { return answered })
	return c
}

// pair shrinks the script's three nodes to a leader and a follower.
func (s *script) pair() (lead, other *simNode) {
	s.t.Helper()
	lead = s.leader()
	gone := s.nodes[(lead.i+1)%3]
	other = s.nodes[(lead.i+2)%3]
	s.changed(lead, &change{verb: fsm.MemberRemove, member: fsm.Member{Name: gone.name}})
	s.until(10e9, "the removed node has ended", func() bool { return gone.gone })
	return lead, other
}

func (s *script) removal(n, of *simNode) {
	n.post(changeAsked{&change{verb: fsm.MemberRemove, member: fsm.Member{ID: of.id}, timeout: 5e9, reply: func(fsm.MembersChanged, *fsm.Error) {}}})
}

// TestRemovedFollowerStillVotes removes one of two nodes and kills the other one
// right after the commit, before it has that on its disk. It starts with the old
// table and needs the removed node's vote, which knows by then that it was removed.
func TestRemovedFollowerStillVotes(t *testing.T) {
	newScript(t, func(s *script) {
		lead, other := s.pair()
		job := s.enqueue(lead, "q0")
		s.answered(job)
		before := lead.at
		s.removal(lead, other)
		s.until(5e9, "the removed node knows", func() bool { return other.core.expelled })
		lead.kill()
		// Nobody syncs a hard state that only moves the commit index.
		lead.disk.commit = min(lead.disk.commit, before)
		s.pass(3e9)
		if other.gone {
			s.failf("the removed node has ended while nobody else could go on")
		}
		refused := s.strongRead(other, 1e9)
		s.until(5e9, "an answer", func() bool { return refused.outcome != pending })
		if refused.err() == nil || refused.err().Code != fsm.CodeLeaving {
			s.failf("a removed node answers: %v", refused.err())
		}
		lead.start()
		s.until(1e9, "the log up to the old commit", func() bool { return len(lead.core.conf.GetVoters()) == 2 })
		s.until(10e9, "the removed node has ended", func() bool { return other.gone })
		s.answered(s.enqueue(lead, "q0"), s.strongRead(lead, 5e9))
	})
}

// TestRemovedFollowerGetsNoMore removes one of two nodes while the other one's disk
// hangs, and lets that one crash before it has more than the removal on its disk. It
// starts with the old table and needs the vote of the removed node, which must not
// have what came behind its removal and is lost now.
func TestRemovedFollowerGetsNoMore(t *testing.T) {
	for _, alone := range []bool{false, true} {
		t.Run(fmt.Sprintf("told alone %v", alone), func(t *testing.T) {
			newScript(t, func(s *script) { getsNoMore(s, alone) })
		})
	}
}

func getsNoMore(s *script, alone bool) {
	lead, other := s.pair()
	s.answered(s.enqueue(lead, "q0"))
	s.net.hold = func(from, to *simNode, m *pb.Message) bool {
		return from == other && m.GetType() == pb.MsgAppResp || alone && from == lead && len(m.GetEntries()) > 0 && lead.disk.stalled > 0
	}
	s.removal(lead, other)
	var entry uint64
	s.until(5e9, "the removal on both disks", func() bool {
		entry = lead.core.changes.index
		return entry != 0 && lead.disk.last() == entry && other.disk.last() == entry
	})
	lead.disk.stalled = s.now + 60e9
	for range 3 {
		s.enqueue(lead, "q0")
		s.pass(10e6)
	}
	if last := lead.core.lastAppended; last != entry+3 || lead.disk.last() != entry {
		s.failf("nothing is shown: the log ends at %d, on the disk at %d, and the removal is %d", last, lead.disk.last(), entry)
	}
	s.net.hold = nil
	s.until(5e9, "the removed node knows", func() bool { return other.core.expelled })
	if last := other.core.lastAppended; last != entry {
		s.failf("the removed node's log ends at %d, and its removal is %d", last, entry)
	}
	lead.kill()
	lead.disk.stalled = 0
	if lead.disk.commit >= entry {
		s.failf("nothing is shown: the commit of the removal is on the disk")
	}
	lead.start()
	s.until(10e9, "the removed node has ended", func() bool { return other.gone })
	s.answered(s.enqueue(lead, "q0"), s.strongRead(lead, 5e9))
}

// TestRemovedLeaderHandsOver: a node is elected with the entry in its log that
// removes it, and commits it. The message that would tell the other one of two gets
// lost, and so do all for a while. It must not end before the other one knows, and
// must answer no read in the meantime: the other one may lead already.
func TestRemovedLeaderHandsOver(t *testing.T) {
	newScript(t, func(s *script) {
		lead, other := s.pair()
		// The removal is in both logs and not committed: the follower's acks get lost.
		s.net.hold = func(from, to *simNode, m *pb.Message) bool { return from == other && m.GetType() == pb.MsgAppResp }
		s.removal(lead, other)
		var entry uint64
		s.until(5e9, "the removal in both logs", func() bool {
			entry = lead.core.changes.index
			last, _ := other.storage.LastIndex()
			return lead.core.changes.under != nil && entry != 0 && last >= entry
		})
		// The one that is to go takes over.
		old := lead.core.term
		other.receive(&pb.Message{Type: pb.MsgTimeoutNow.Enum(), From: new(lead.id), To: new(other.id), Term: new(old)})
		s.net.hold = func(from, to *simNode, m *pb.Message) bool {
			acks := m.GetType() == pb.MsgAppResp && m.GetTerm() == old
			commits := m.GetCommit() >= entry && (m.GetType() == pb.MsgApp || m.GetType() == pb.MsgHeartbeat)
			return from == other && (acks || commits || m.GetType() == pb.MsgTimeoutNow)
		}
		s.until(5e9, "the removed one leads", func() bool { return other.core.role == raft.StateLeader })
		s.until(5e9, "it knows that it was removed", func() bool { return other.core.expelled })
		if lead.at >= entry {
			s.failf("nothing is shown: %s", lead.describe())
		}
		rd := s.strongRead(lead, 30e9) // asks the removed leader for its index
		s.pass(2e9)
		if other.gone {
			s.failf("the removed leader has ended while the other could not go on")
		}
		s.net.hold = nil
		s.until(10e9, "the removed leader has ended", func() bool { return other.gone })
		s.answered(rd, s.enqueue(lead, "q0"))
	})
}

// TestRemovalCutShort lets the time of a removal end between its commit and the commit
// of what lets the removed node go. The leader does not know then whether that comes,
// and says so: never that nothing was done. Asked again by the id, it goes on, and
// answers it as done ever after; by the name nobody is known.
func TestRemovalCutShort(t *testing.T) {
	newScript(t, func(s *script) {
		lead := s.leader()
		gone := s.nodes[(lead.i+1)%3]
		var said *fsm.Error
		ask := func(m fsm.Member, timeout int64) {
			said = nil
			lead.post(changeAsked{&change{verb: fsm.MemberRemove, member: m, timeout: timeout, reply: func(c fsm.MembersChanged, err *fsm.Error) {
				if err == nil {
					s.failf("answered as done: %+v", c)
				}
				said = err
			}}})
			s.until(10e9, "an answer", func() bool { return said != nil })
		}
		last := lead.core.lastAppended
		s.net.hold = func(from, to *simNode, m *pb.Message) bool {
			return to == lead && m.GetType() == pb.MsgAppResp && m.GetIndex() > last+1
		}
		ask(fsm.Member{ID: gone.id}, 1e9)
		if _, there := lead.core.member(gone.id); there || !said.Unknown {
			s.failf("member: %v, and told as %v", there, said)
		}
		ask(fsm.Member{ID: gone.id}, 1e9)
		if !said.Unknown {
			s.failf("asked again while it is under way: %v", said)
		}
		s.net.hold = nil
		for i := range 2 {
			c := s.changed(lead, &change{verb: fsm.MemberRemove, member: fsm.Member{ID: gone.id}})
			if c.Member.ID != gone.id || i == 1 && !c.Already {
				s.failf("asked again: %+v", c)
			}
		}
		s.until(10e9, "the removed node has ended", func() bool { return gone.gone })
		ask(fsm.Member{Name: gone.name}, 1e9)
		if said.Code != fsm.CodeMemberNotFound {
			s.failf("by the name: %v", said)
		}
	})
}

// TestChangeThatRaftRefuses: raft puts an empty entry in the place of a change
// that it does not take. That is noticed, and the change made later.
func TestChangeThatRaftRefuses(t *testing.T) {
	newScript(t, func(s *script) {
		lead := s.leader()
		other := s.nodes[(lead.i+1)%3]
		// A change of somebody else is under way in raft, behind the core's back.
		ents := []*pb.Entry{confEntry(&fsm.MemberChange{Verb: fsm.MemberPromote, Member: fsm.Member{ID: other.id}},
			lead.core.stamped(fsm.EncodeBatch(fsm.BatchHeader{Term: lead.core.lead.term}, &fsm.MemberChange{Verb: fsm.MemberPromote, Member: fsm.Member{ID: other.id}})).GetData())}
		if err := lead.core.rn.Step(&pb.Message{Type: pb.MsgProp.Enum(), From: new(lead.id), Entries: ents}); err != nil {
			s.failf("%v", err)
		}
		c := s.changed(lead, &change{verb: fsm.MemberAdd, member: fsm.Member{Name: "new", Peer: "http://new", Join: 7}})
		if c.Member.Name != "new" || !c.Member.Learner || len(c.Members) != 4 {
			s.failf("added: %+v", c)
		}
		empty := 0
		for _, e := range s.check.entries {
			if len(e.data) == 0 && e.term == lead.core.term {
				empty++
			}
		}
		if empty < 2 { // the first is that of the term
			s.failf("nothing is shown: raft refused no change")
		}
	})
}

// TestLoneVoterKnowsNoCommit: a lone voter starts again with a commit index behind
// what it answered in its last life, leads, and its disk takes long over its term's
// first entry. Raft would answer the ReadIndex of another member with that commit
// index, because a lone voter asks nobody.
func TestLoneVoterKnowsNoCommit(t *testing.T) {
	newScript(t, func(s *script) {
		lone, other := s.pair()
		s.changed(lone, &change{verb: fsm.MemberRemove, member: fsm.Member{ID: other.id}})
		s.until(10e9, "the removed node has ended", func() bool { return other.gone })
		s.join("j1", nil, true)
		learner := func() *simNode { return s.nodes[len(s.nodes)-1] }
		s.until(20e9, "a learner that is at rest", func() bool {
			return learner().name == "j1" && learner().core.leader == lone.id && learner().at == lone.at
		})
		j := learner()
		s.net.cut[lone.i][j.i] = true
		s.answered(s.enqueue(lone, "q0"))
		lone.kill()
		lone.disk.commit = min(lone.disk.commit, s.check.highest-1)
		s.pass(100e6)
		lone.start()
		s.until(10e9, "a leader", func() bool { return lone.core.role == raft.StateLeader })
		lone.disk.stalled = s.now + 2e9
		if lone.core.confirmed.Term == lone.core.term || lone.core.commit >= s.check.highest {
			s.failf("nothing is shown: %s; highest answer %d", lone.describe(), s.check.highest)
		}
		s.net.heal()
		rd, empty := s.strongRead(j, 30e9), s.dequeue(j, "q1", 0)
		s.pass(1e9)
		s.answered(rd, empty) // the checkers see a stale one
		if rd.counts[0].Enqueued != 1 {
			s.failf("the read does not see what was answered before it: %+v", rd.counts)
		}
	})
}
