package raftnode

import (
	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"
)

// rawNode is raft's RawNode, which remembers whether it was given anything since it
// was last asked. Asking is cheap next to a commit, and half of a turn that only
// answers a fast request.
//
// Every method that gives raft something is here; what only asks goes through.
type rawNode struct {
	*raft.RawNode
	stirred bool // role, term, leader or commit index may be others than observe has seen
	due     bool // there may be a Ready
}

func (r *rawNode) stir() { r.stirred, r.due = true, true }

// Step takes a message. A leader's own proposal changes nothing that observe sees.
func (r *rawNode) Step(m *pb.Message) error {
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
