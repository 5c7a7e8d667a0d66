package raftnode

import (
	pb "go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"
)

// network carries messages between nodes, each way of each pair on its own: late,
// lost, twice and out of order as the options say, and not at all where a
// partition cuts.
type network struct {
	w    *world
	cut  [][]bool                                    // from, to
	last [][]int64                                   // arrival of the last message that keeps its order
	slow int64                                       // added to each delay, for a while
	hold func(from, to *simNode, m *pb.Message) bool // scripts: drops a message
}

func newNetwork(w *world) network {
	n := network{w: w}
	for range simNodesMax {
		n.cut = append(n.cut, make([]bool, simNodesMax))
		n.last = append(n.last, make([]int64, simNodesMax))
	}
	return n
}

func (t *network) heal() {
	for i := range t.cut {
		clear(t.cut[i])
	}
	t.slow = 0
}

// calm ends the faults that the options bring with every message.
func (t *network) calm() {
	o := &t.w.opt
	o.drop, o.dup, o.reorder, o.stall, o.snapStall = 0, 0, 0, 0, 0
}

func (t *network) delay() int64 {
	return between(t.w.netRand, t.w.opt.delayMin, t.w.opt.delayMax) + t.slow
}

// carry brings something from one node to another: do runs on arrival, if both
// still live the same lives and no partition came between.
func (t *network) carry(from, to *simNode, ordered bool, extra int64, do func()) {
	w := t.w
	if t.cut[from.i][to.i] {
		return
	}
	at := w.now + t.delay() + extra
	if ordered {
		at = max(at, t.last[from.i][to.i])
		t.last[from.i][to.i] = at
	}
	w.after(at-w.now, func() {
		if to.up && !t.cut[from.i][to.i] {
			do()
		}
	})
}

func (t *network) send(from *simNode, m *pb.Message) {
	w := t.w
	to := w.byID[m.GetTo()]
	if to == from {
		w.failf("%s sends %v to %x", from.name, m.GetType(), m.GetTo())
	}
	if to == nil || from.polls[m.GetTo()] == nil && !from.met[m.GetTo()] {
		return // it has not come yet; or the sender does not know its address
	}
	if (t.cut[from.i][to.i] || !to.up) && w.netRand.IntN(4) == 0 {
		from.post(unreachable{m.GetTo()})
	}
	if w.opt.wire {
		b, err := proto.Marshal(m)
		must(err)
		m = new(pb.Message)
		must(proto.Unmarshal(b, m))
	}
	if w.netRand.Float64() < w.opt.drop || t.hold != nil && t.hold(from, to, m) {
		return
	}
	deliver := func() {
		if !to.refuses(from) {
			to.met[from.id] = true // as rafthttp learns the address of who sends
			to.receive(m)
		}
	}
	late := int64(0)
	ordered := true
	if w.netRand.Float64() < w.opt.reorder {
		ordered, late = false, between(w.netRand, 0, 50e6)
	}
	t.carry(from, to, ordered, late, deliver)
	if w.netRand.Float64() < w.opt.dup {
		late = between(w.netRand, 0, 100e6)
		if w.netRand.IntN(10) == 0 {
			late = between(w.netRand, 0, 5e9)
		}
		t.carry(from, to, false, late, deliver)
	}
}

// receive does what peerRaft.Process does.
func (n *simNode) receive(m *pb.Message) {
	if m.GetType() != pb.MsgProp {
		n.post(received{m: m})
		return
	}
	data := make([][]byte, 0, len(m.GetEntries()))
	for _, ent := range m.GetEntries() {
		data = append(data, ent.GetData())
	}
	n.post(batchesCame{m.GetFrom(), data})
}

// sendSnapshot carries a MsgSnap with the file: the sender hears how it ended.
func (t *network) sendSnapshot(from *simNode, m *pb.Message) {
	w := t.w
	to := w.byID[m.GetTo()]
	if to == nil {
		w.after(1e6, func() { from.post(snapshotSent{m.GetTo(), false}) })
		return
	}
	if !inConf(m.GetSnapshot().GetMetadata().GetConfState(), to.id) {
		w.failf("%s sends %s a snapshot in which it is no member", from.name, to.name)
	}
	index := m.GetSnapshot().GetMetadata().GetIndex()
	data, ok := from.disk.snaps[index]
	if !ok {
		w.failf("%s is to send snapshot %d and has no such file", from.name, index)
	}
	from.held.hold(index)
	life := from.life
	ended := false
	end := func(ok bool) {
		if from.life != life || ended {
			return
		}
		ended = true
		from.held.drop(index)
		from.post(snapshotSent{m.GetTo(), ok})
	}
	if t.cut[from.i][to.i] || !to.up || w.netRand.Float64() < w.opt.drop {
		w.after(between(w.netRand, 1e6, 200e6), func() { end(false) })
		return
	}
	arrive := func() {
		if to.refuses(from) {
			return
		}
		if w.netRand.Float64() < w.opt.snapStall && w.now > to.disk.stalled {
			to.disk.stalled = w.now + between(w.netRand, 10e6, 3000e6) // the next snapshot may come before it is installed
		}
		to.disk.snaps[index] = data
		to.held.hold(index)
		machine := decodeMachine(data)
		if p := machine.Position(); p.Index != index || p.Term != m.GetSnapshot().GetMetadata().GetTerm() {
			w.failf("snapshot %d holds the state at %d/%d", index, p.Index, p.Term)
		}
		to.post(received{m: m, machine: machine})
		t.carry(to, from, false, 0, func() { end(true) })
	}
	late := between(w.netRand, 1e6, 100e6)
	if w.netRand.Float64() < w.opt.reorder {
		late += between(w.netRand, 0, 5e9) // the sender may have given it up, and have sent another one
	}
	t.carry(from, to, false, late, arrive)
	if w.netRand.Float64() < 8*w.opt.dup {
		w.stats.SnapTwice++
		t.carry(from, to, false, between(w.netRand, 0, 5e9), arrive)
	}
	w.after(3e9, func() { end(false) })
}

// status brings a question to a peer and its answer back.
func (t *network) status(from, to *simNode, end func(*status)) {
	t.carry(from, to, false, 0, func() {
		if to.refuses(from) {
			return
		}
		to.post(statusAsked{from.id, func(s status) {
			t.carry(to, from, false, 0, func() { end(&s) })
		}})
	})
}
