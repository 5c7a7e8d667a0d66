package raftnode

import (
	"fmt"

	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"
)

// rawNode is raft's RawNode, which remembers whether it was given anything since it
// was last asked, and takes proposals together. Both are cheap next to a commit, and
// two thirds of a turn that only answers a fast request.
//
// Proposals are held until raft is given anything else, or settle is called. Raft
// is deterministic and sees the same entries in the same order with nothing in
// between, so it cannot tell the difference: they get the indexes that they would
// have got one by one, and are refused for no other reason.
//
// Every method that gives raft something is here; what only asks goes through.
type rawNode struct {
	*raft.RawNode
	id      uint64
	stirred bool        // role, term, leader or commit index may be others than observe has seen
	due     bool        // there may be a Ready
	props   []*pb.Entry // held
}

// calm tells whether raft has nothing to say but for held proposals, so that the
// log's end is known.
func (r *rawNode) calm() bool { return !r.stirred && !r.due }

// hold takes proposals that raft will not refuse.
func (r *rawNode) hold(ents []*pb.Entry) { r.props = append(r.props, ents...) }

// settle gives raft what is held.
func (r *rawNode) settle() {
	if len(r.props) == 0 {
		return
	}
	m := &pb.Message{Type: pb.MsgProp.Enum(), From: new(r.id), Entries: r.props}
	r.props, r.due = nil, true
	if err := r.RawNode.Step(m); err != nil {
		panic(fmt.Sprintf("BUG: raft refuses %d entries that the machine has applied: %v", len(m.GetEntries()), err))
	}
}

func (r *rawNode) stir() {
	r.settle()
	r.stirred, r.due = true, true
}

// Step takes a message. A leader's own proposal changes nothing that observe sees.
func (r *rawNode) Step(m *pb.Message) error {
	r.settle()
	if m.GetType() != pb.MsgProp {
		r.stirred = true
	}
	r.due = true
	return r.RawNode.Step(m)
}

func (r *rawNode) Tick() {
	r.stir()
	r.RawNode.Tick()
}

func (r *rawNode) Campaign() error {
	r.stir()
	return r.RawNode.Campaign()
}

func (r *rawNode) ReadIndex(ctx []byte) {
	r.stir()
	r.RawNode.ReadIndex(ctx)
}

func (r *rawNode) TransferLeader(to uint64) {
	r.stir()
	r.RawNode.TransferLeader(to)
}

func (r *rawNode) ReportUnreachable(id uint64) {
	r.stir()
	r.RawNode.ReportUnreachable(id)
}

func (r *rawNode) ReportSnapshot(id uint64, st raft.SnapshotStatus) {
	r.stir()
	r.RawNode.ReportSnapshot(id, st)
}

func (r *rawNode) ApplyConfChange(cc pb.ConfChangeI) *pb.ConfState {
	r.stir()
	return r.RawNode.ApplyConfChange(cc)
}

func (r *rawNode) HasReady() bool { return r.due && r.RawNode.HasReady() }

func (r *rawNode) Ready() raft.Ready {
	r.due = false
	return r.RawNode.Ready()
}
