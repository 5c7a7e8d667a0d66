package raftnode

import (
	"bytes"
	"errors"
	"fmt"
	"slices"

	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"

	"raftq/fsm"
	"raftq/wal"
)

// simDisk is what a node's disk holds durably. It is a logStore with the rules
// of package wal: what that would refuse to write is a failure here too.
type simDisk struct {
	n        *simNode
	term     uint64
	vote     uint64
	commit   uint64
	base     uint64 // index before the first entry
	baseTerm uint64
	ents     []*pb.Entry
	markers  []wal.Marker
	snaps    map[uint64][]byte // files, by index
	marks    int               // markers since the log began or was replaced
	note     wal.TimeBase
	noteBoot int    // boot id of note; 0 = none
	boots    uint64 // boot counter
	stalled  int64  // true ns until which writes hang
	failing  bool   // the next sync fails; of what it covers anything may be durable, of what follows nothing
}

// newSimDisk makes the genesis, as boot does.
func newSimDisk(n *simNode) simDisk {
	m := fsm.New(n.w.members)
	conf := &pb.ConfState{}
	for _, e := range n.w.members {
		conf.Voters = append(conf.Voters, e.ID)
	}
	n.bootID = 1
	return simDisk{n: n, marks: 1, term: 1, commit: 1, base: 1, baseTerm: 1,
		markers: []wal.Marker{{Index: 1, Term: 1, ConfState: conf}}, snaps: map[uint64][]byte{1: encodeMachine(m)}}
}

func encodeMachine(m *fsm.Machine) []byte {
	var b bytes.Buffer
	must(m.Encode(&b))
	return b.Bytes()
}

func decodeMachine(b []byte) *fsm.Machine {
	m, err := fsm.Decode(bytes.NewReader(b))
	must(err)
	return m
}

func (d *simDisk) stalledFor() int64 { return max(0, d.stalled-d.n.w.now) }

func (d *simDisk) last() uint64 { return d.base + uint64(len(d.ents)) }

func (d *simDisk) termAt(i uint64) uint64 {
	switch {
	case i == d.base:
		return d.baseTerm
	case i < d.base || i > d.last():
		return 0
	}
	return d.ents[i-d.base-1].GetTerm()
}

func (d *simDisk) refuse(format string, args ...any) {
	d.n.w.failf("%s: the log refuses: %s", d.n.name, fmt.Sprintf(format, args...))
}

func (d *simDisk) setState(hs *pb.HardState) {
	if raft.IsEmptyHardState(hs) {
		return
	}
	switch {
	case hs.GetTerm() < d.term:
		d.refuse("term falls from %d to %d", d.term, hs.GetTerm())
	case hs.GetTerm() == d.term && d.vote != 0 && hs.GetVote() != d.vote:
		d.refuse("second vote in term %d", d.term)
	case hs.GetCommit() < d.commit:
		d.refuse("commit falls from %d to %d", d.commit, hs.GetCommit())
	}
	d.term, d.vote, d.commit = hs.GetTerm(), hs.GetVote(), hs.GetCommit()
}

func (d *simDisk) append(ents []*pb.Entry) {
	for _, e := range ents {
		i := e.GetIndex()
		switch {
		case i <= d.commit:
			d.refuse("entry %d overwrites the committed part (commit %d)", i, d.commit)
		case i <= d.base || i > d.last()+1:
			d.refuse("entry %d, the log is %d to %d", i, d.base+1, d.last())
		case e.GetTerm() < d.termAt(i-1):
			d.refuse("entry %d of term %d after one of term %d", i, e.GetTerm(), d.termAt(i-1))
		}
		d.ents = append(d.ents[:i-d.base-1], e)
	}
}

func (d *simDisk) noted(b wal.TimeBase) {
	if b != d.note {
		d.note, d.noteBoot = b, d.n.bootID
	}
}

func (d *simDisk) Save(hs *pb.HardState, ents []*pb.Entry, base wal.TimeBase) error {
	commit := d.commit
	d.commit = min(commit, d.last()) // held back commits are checked below
	d.append(ents)
	d.commit = commit
	d.setState(hs)
	if d.commit > d.last() || d.term < d.termAt(d.last()) {
		d.refuse("hard state %d/%d with last entry %d/%d", d.term, d.commit, d.last(), d.termAt(d.last()))
	}
	d.noted(base)
	return nil
}

func (d *simDisk) Mark(hs *pb.HardState, m wal.Marker, base wal.TimeBase) error {
	if m.Index < d.base {
		return fmt.Errorf("%w: %d", wal.ErrOldMarker, m.Index)
	}
	if !raft.IsEmptyHardState(hs) && hs.GetCommit() < m.Index || raft.IsEmptyHardState(hs) && d.commit < m.Index {
		d.refuse("marker %d under hard state %v, commit %d", m.Index, hs, d.commit)
	}
	if d.termAt(m.Index) != m.Term {
		if m.Index <= min(d.commit, d.last()) {
			d.refuse("marker %d/%d contradicts a committed entry of term %d", m.Index, m.Term, d.termAt(m.Index))
		}
		// Another node's: it replaces everything.
		d.ents, d.base, d.baseTerm, d.markers, d.marks = nil, m.Index, m.Term, nil, 0
	}
	d.marks++
	d.setState(hs)
	d.markers = append(d.markers, m)
	d.noted(base)
	return nil
}

func (d *simDisk) Release(index uint64) error {
	if index > d.base {
		d.baseTerm = d.termAt(index)
		d.ents = slices.Clone(d.ents[index-d.base:])
		d.base = index
	}
	d.markers = slices.DeleteFunc(d.markers, func(m wal.Marker) bool { return m.Index < index })
	return nil
}

// prune does what Node.prune does.
func (d *simDisk) prune(index, oldest uint64, received bool) {
	if received {
		d.n.held.drop(index)
	}
	for i := range d.snaps {
		if i < oldest && !d.n.held.has(i) {
			delete(d.snaps, i)
		}
	}
}

// crash ends a write under way: some of its records may be durable, the hard
// state behind the entries being the last.
func (d *simDisk) crash(group []*appendJob) {
	w := d.n.w
	if len(group) == 0 || w.diskRand.Float64() >= w.opt.partial {
		return
	}
	w.stats.LostTails++
	first := group[0]
	if first.mark != nil {
		if err := d.Mark(first.mark.state, first.mark.marker, first.base); err != nil && !errors.Is(err, wal.ErrOldMarker) {
			panic(err)
		}
		return
	}
	if first.machine != nil {
		meta := first.m.GetSnapshot().GetMetadata()
		must(d.Mark(hardState(first.m), wal.Marker{Index: meta.GetIndex(), Term: meta.GetTerm(), ConfState: meta.GetConfState()}, first.base))
		d.commit = min(d.commit, d.last())
		return
	}
	var ents []*pb.Entry
	var hs *pb.HardState
	for _, j := range group {
		ents = append(ents, j.m.GetEntries()...)
		if h := hardState(j.m); !raft.IsEmptyHardState(h) {
			hs = h
		}
	}
	k := w.diskRand.IntN(len(ents) + 1)
	d.append(ents[:k])
	if k == len(ents) && w.diskRand.IntN(2) == 0 {
		d.setState(hs)
	}
	// The fold at boot: nobody was promised anything in the term of entries whose
	// hard state is missing.
	if t := d.termAt(d.last()); t > d.term {
		d.term, d.vote = t, 0
	}
}

// open says what wal.Open would find.
func (d *simDisk) open() *wal.State {
	w := d.n.w
	usable := func(m wal.Marker) bool {
		return m.Index <= d.commit && d.termAt(m.Index) == m.Term && d.snaps[m.Index] != nil
	}
	var ms []wal.Marker
	for _, m := range d.markers {
		if usable(m) {
			ms = append(ms, m)
		}
	}
	slices.SortStableFunc(ms, func(a, b wal.Marker) int { return int(a.Index) - int(b.Index) })
	if len(ms) == 0 {
		w.failf("%s has no snapshot to start from: log %d to %d, markers %v", d.n.name, d.base, d.last(), d.markers)
	}
	if d.marks >= 2 && len(ms) < 2 {
		w.failf("%s has one snapshot to start from, %d: if its file is damaged, nothing is left; log %d to %d", d.n.name, ms[0].Index, d.base, d.last())
	}
	k := len(ms) - 1
	if k > 0 && ms[k-1].Index < ms[k].Index && w.diskRand.IntN(8) == 0 {
		// The newest file is damaged.
		w.stats.OldSnapshots++
		delete(d.snaps, ms[k].Index)
		d.marks = k
		k--
	}
	m := ms[k]
	st := &wal.State{Marker: m, HardState: &pb.HardState{Term: new(d.term), Vote: new(d.vote), Commit: new(d.commit)},
		Entries: slices.Clone(d.ents[m.Index-d.base:]), Noted: true}
	if d.noteBoot != 0 {
		b := d.note
		if b.Index > 0 {
			st.Base, st.SameBoot = &b, d.noteBoot == d.n.bootID
		}
	}
	return st
}

func (d *simDisk) load(index uint64) *fsm.Machine {
	m := decodeMachine(d.snaps[index])
	if p := m.Position(); p.Index != index {
		d.n.w.failf("%s: snapshot file %d holds the state at %d", d.n.name, index, p.Index)
	}
	return m
}

// promised holds what a message promises against the disk of the node that sends
// it: its vote, its term, the entries that it has. What a later term has overwritten
// is no promise any more.
func (c *checker) promised(n *simNode, m *pb.Message) {
	d := &n.disk
	if t := m.GetType(); m.GetReject() || t != pb.MsgVoteResp && t != pb.MsgAppResp || d.term > m.GetTerm() {
		return
	}
	switch {
	case d.term < m.GetTerm():
		c.w.failf("%s sends %v of term %d, and its disk knows term %d", n.name, m.GetType(), m.GetTerm(), d.term)
	case m.GetType() == pb.MsgVoteResp && d.vote != m.GetTo():
		c.w.failf("%s votes for %x in term %d, and its disk has a vote for %x", n.name, m.GetTo(), m.GetTerm(), d.vote)
	case m.GetType() == pb.MsgAppResp && d.last() < m.GetIndex():
		c.w.failf("%s confirms entry %d, and its disk ends at %d", n.name, m.GetIndex(), d.last())
	}
}

// write starts the next group of the log writer's queue.
func (n *simNode) write() {
	w := n.w
	if n.busy || n.jammed {
		return
	}
	if len(n.taken) == 0 {
		n.taken, n.queue = n.queue, nil
	}
	if len(n.taken) == 0 {
		return
	}
	k := groupLen(n.taken)
	n.group, n.taken, n.busy = n.taken[:k:k], n.taken[k:], true
	n.writes++
	took := between(w.diskRand, w.opt.diskMin, w.opt.diskMax)
	if w.diskRand.Float64() < w.opt.stall {
		took = between(w.diskRand, 50e6, 2000e6)
		w.stats.Stalls++
	}
	n.completeAt(n.life, w.now+took+n.disk.stalledFor())
}

// completeAt ends the write under way, not before the stall of the disk and the
// pause of the process are over.
func (n *simNode) completeAt(life int, at int64) {
	w := n.w
	w.after(at-w.now, func() {
		if n.life != life {
			return
		}
		if later := max(n.paused, n.disk.stalled); later > w.now {
			n.completeAt(life, later+between(w.diskRand, 0, 1e6))
			return
		}
		jobs := n.group
		if n.disk.failing {
			n.jam(jobs)
			return
		}
		n.group, n.busy = nil, false
		if err := n.writer.write(jobs); err != nil {
			w.failf("%s: the log writer fails: %v", n.name, err)
		}
		n.post(appended{jobs})
		n.write()
	})
}

// jam is a sync that fails. The next one would succeed and lie, so there must be none:
// the node ends.
func (n *simNode) jam(jobs []*appendJob) {
	w := n.w
	w.stats.DiskErrors++
	n.disk.failing, n.jammed, n.group = false, true, nil
	n.disk.crash(jobs)
	n.post(failed{errFsync})
	life := n.life
	w.after(100e6, func() {
		if n.life == life && !n.stopped() {
			w.failf("%s goes on after an fsync error", n.name)
		}
	})
}

var errFsync = errors.New("fsync: input/output error")
