package raftnode

import (
	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"
)

// hardStates is what the core knows of raft's hard state on its way to the log. Term
// and vote are promises and are synced before anybody hears of them. A new commit
// index alone is none: the log has the entries, and a node that starts again learns
// it from the leader. So it waits for the next append, or a while; without that each
// entry would cost every node a second write and two more turns.
type hardStates struct {
	term, vote uint64        // of the last that was handed to the log writer
	late       *pb.HardState // a commit index that waits
	since      int64         // boot ns
}

// commitLagNs is how long a commit index waits at the most.
const commitLagNs = 100e6

// needsNoWrite tells whether the answers to a MsgStorageAppend may be given at once:
// there is nothing in it that must be durable before them, and nothing before it is
// still being written.
func (c *core) needsNoWrite(m *pb.Message) bool {
	if len(c.appends) > 0 || len(m.GetEntries()) > 0 || !raft.IsEmptySnap(m.GetSnapshot()) {
		return false
	}
	hs := hardState(m)
	if raft.IsEmptyHardState(hs) {
		return true
	}
	h := &c.hard
	if (hs.GetTerm() != h.term || hs.GetVote() != h.vote) && seeded != "vote-not-written" {
		return false
	}
	if h.late == nil {
		h.since = c.now.boot
	}
	h.late = hs
	return true
}

// write notes the hard state that goes to the log with m: m's own, or one that waits.
func (h *hardStates) write(m *pb.Message) {
	if hs := hardState(m); !raft.IsEmptyHardState(hs) {
		h.term, h.vote = hs.GetTerm(), hs.GetVote()
	} else if h.late != nil {
		m.Term, m.Vote, m.Commit = h.late.Term, h.late.Vote, h.late.Commit
	}
	h.late = nil
}

// hardTick writes a commit index that has waited long enough.
func (c *core) hardTick() {
	if c.hard.late != nil && c.now.boot-c.hard.since >= commitLagNs {
		c.writeCommit()
	}
}

// writeCommit writes a commit index that waits.
func (c *core) writeCommit() {
	if c.hard.late == nil {
		return
	}
	m := &pb.Message{Type: pb.MsgStorageAppend.Enum()}
	c.hard.write(m)
	j := &appendJob{m: m, base: c.clock.base.TimeBase, began: c.now.boot}
	c.appends = append(c.appends, j)
	c.outbox.add(j)
}
