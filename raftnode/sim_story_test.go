package raftnode

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"testing/cryptotest"

	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"
	"go.uber.org/goleak"
	"go.uber.org/zap"

	"raftq/fsm"
	"raftq/wal"
)

// The stories here are of faults that other systems have had; docs/testing.md has
// the list.

// settled waits until all nodes are at rest at the same entry with the same state.
func (s *script) settled() {
	s.t.Helper()
	s.until(20e9, "all nodes at the same entry", func() bool {
		for _, n := range s.live() {
			if !n.up || n.at != s.check.last() || len(n.core.origin.inflight) > 0 {
				return false
			}
		}
		return true
	})
	hash := s.check.refs[0].Hash()
	for _, n := range s.live() {
		if h := n.core.machine.Hash(); h != hash {
			s.failf("%s has state %x, the log's replay %x", n.name, h, hash)
		}
	}
}

// snap lets a node take a snapshot of its newest state and waits for its marker.
func (s *script) snap(n *simNode) uint64 {
	s.t.Helper()
	at := n.at
	n.post(snapshotAsked{at})
	s.until(5e9, "a snapshot with its marker", func() bool {
		k := len(n.disk.markers) - 1
		return k >= 0 && n.disk.markers[k].Index >= at && n.disk.snaps[n.disk.markers[k].Index] != nil
	})
	return n.disk.markers[len(n.disk.markers)-1].Index
}

// TestSnapshotAndLogMeet: a node that starts from a snapshot applies the log behind it
// from the very next entry: none twice, none left out. It is killed at many moments
// around the marker, and started from the newest file and from the one before.
func TestSnapshotAndLogMeet(t *testing.T) {
	for _, older := range []bool{false, true} {
		t.Run(fmt.Sprintf("older file %v", older), func(t *testing.T) {
			newScript(t, func(s *script) {
				n := s.nodes[(s.leader().i+1)%3]
				for round := range 12 {
					for range 3 {
						s.answered(s.enqueue(s.leader(), "q0"), s.dequeue(s.leader(), "q0", 0))
					}
					index := s.snap(n)
					ops := []*simOp{s.enqueue(s.leader(), "q0"), s.dequeue(s.leader(), "q0", 0)}
					s.pass(int64(round) * 200e3)
					n.kill()
					s.answered(ops...)
					if older && len(n.disk.markers) > 1 {
						delete(n.disk.snaps, index)
						n.disk.marks = 1
					}
					n.start()
					if from := n.core.machine.Position().Index; older && from == index {
						s.failf("it starts at %d, the snapshot is of %d", from, index)
					}
					s.settled()
				}
			})
		})
	}
}

// TestSecondSnapshotWhileInstalling: a follower gets a snapshot, and its disk hangs
// before that is installed; meanwhile the leader has taken another one, and let the
// log behind the first go. The second comes, once and late once more. Neither's file
// may go while it is needed, and the state is that of the newer.
func TestSecondSnapshotWhileInstalling(t *testing.T) {
	newScript(t, func(s *script) {
		lead := s.leader()
		n := s.nodes[(lead.i+1)%3]
		for _, o := range s.nodes {
			o.writer.keep = 0
		}
		fill := func() {
			for range 8 {
				s.answered(s.enqueue(lead, "q0"))
			}
			s.snap(lead)
			s.answered(s.enqueue(lead, "q0"))
			s.snap(lead) // the log reaches back to the one before the last
		}
		s.isolate(n)
		fill()
		n.disk.stalled = s.now + 8e9
		s.net.heal()
		s.until(5e9, "the first snapshot is there", func() bool { return len(n.held.n) > 0 })
		first := len(n.disk.snaps)
		fill()
		s.opt.dup = 1 // what comes from now on comes twice, late
		s.until(20e9, "the second snapshot is there", func() bool { return len(n.disk.snaps) > first })
		s.opt.dup = 0
		s.pass(10e9)
		s.settled()
		if n.core.stats.installs == 0 || len(n.held.n) > 0 {
			s.failf("%d installs, files still held: %v", n.core.stats.installs, n.held.n)
		}
		n.kill()
		n.start()
		s.settled()
	})
}

// TestAppendsOfThreeTerms: the disk of a node hangs over an entry of one leader, over
// that of a second one in its place, and over the first leader's again, of a third
// term. The answer to the first write must not be taken for that of the last (raft's
// ABA of asynchronous appends).
func TestAppendsOfThreeTerms(t *testing.T) {
	cryptotest.SetGlobalRandom(t, 1)
	w := newWorld(1, simOptions{nodes: 5, heartbeat: 100e6, election: 1000e6, keep: 1000, delayMin: 200e3, delayMax: 1e6, diskMin: 100e3, diskMax: 1e6, queues: 2}, zap.NewNop())
	s := &script{world: w, t: t, client: &simClient{w: w}}
	defer func() {
		if p := recover(); p != nil {
			t.Fatal(w.describe(p))
		}
	}()
	w.start()
	s.until(20e9, "a leader, and all at rest", func() bool {
		for _, n := range s.nodes {
			if n.core.leader == 0 || !n.core.origin.registered || n.at != s.check.last() {
				return false
			}
		}
		return true
	})
	a := s.leader()
	f := s.nodes[(a.i+1)%5]
	var rest []*simNode
	for _, n := range s.nodes {
		if n != a && n != f {
			rest = append(rest, n)
		}
	}
	link := func(x, y *simNode, on bool) { s.net.cut[x.i][y.i], s.net.cut[y.i][x.i] = !on, !on }
	apart := func(with *simNode) { // with and f alone, the rest among themselves
		for _, x := range s.nodes {
			for _, y := range s.nodes {
				if x != y {
					inside := func(n *simNode) bool { return n == with || n == f }
					link(x, y, inside(x) == inside(y))
				}
			}
		}
	}
	apart(a)
	hangs := s.now + 40e9
	f.disk.stalled = hangs
	writes := func() int { return len(f.queue) + len(f.taken) + len(f.group) }
	lost := s.enqueue(a, "q0")
	s.until(5e9, "the first leader's entry waits for the disk", func() bool { return writes() > 0 })
	queued, before := writes(), f.writes-1

	// The rest elects; its leader reaches nobody but f with its first entry.
	var b *simNode
	s.net.hold = func(from, to *simNode, m *pb.Message) bool {
		return from != a && to != f && m.GetType() == pb.MsgApp && len(m.GetEntries()) > 0
	}
	s.until(20e9, "a second leader", func() bool {
		for _, n := range rest {
			if n.core.role == raft.StateLeader && n.core.term > a.core.term {
				b = n
			}
		}
		return b != nil
	})
	link(b, f, true)
	link(a, f, false)
	s.until(5e9, "its entry waits for the disk as well", func() bool { return writes() > queued && f.core.leader == b.id })
	queued = writes()

	// It is cut off; the first one comes back, leads again, and sends its entry anew.
	// (f has the newest log in memory and must not be elected for it.)
	s.net.hold = func(from, to *simNode, m *pb.Message) bool {
		return from == f && (m.GetType() == pb.MsgPreVote || m.GetType() == pb.MsgVote)
	}
	s.isolate(b)
	for _, n := range s.nodes {
		if n != b {
			for _, o := range s.nodes {
				if o != b && o != n {
					link(n, o, true)
				}
			}
		}
	}
	term := b.core.term
	s.until(15e9, "the first leader leads again", func() bool { return a.core.leading() && a.core.term > term })
	s.until(5e9, "more waits for the disk", func() bool { return writes() > queued })
	if hangs <= s.now || !a.core.leading() || f.writes != before+1 {
		s.failf("nothing is shown: the disk hung until %s, %d writes; %s", ms(hangs), f.writes-before, a.describe())
	}
	s.run(hangs-s.now, func() bool { return false })
	s.net.hold = nil
	s.net.heal()
	s.until(20e9, "the answer", func() bool { return lost.outcome != pending })
	s.answered(s.enqueue(s.leader(), "q1"))
	s.settled()
	if lost.outcome == answeredOK && lost.effectAt == 0 {
		s.failf("%v was answered and is not in the log", lost)
	}
}

// TestTransferWithPendingProposals: leadership moves again and again while every node
// has requests under way. Each is answered once, with its effect; none is lost with a
// proposal that raft dropped.
func TestTransferWithPendingProposals(t *testing.T) {
	newScript(t, func(s *script) {
		var ops []*simOp
		for round := range 10 {
			l := s.leader()
			for _, n := range s.nodes {
				for range 4 {
					ops = append(ops, s.enqueue(n, "q0"))
				}
			}
			s.pass(int64(round) * 150e3) // some on their way, some in the log, some committed
			l.post(transferAsked{})
			for _, n := range s.nodes {
				ops = append(ops, s.enqueue(n, "q1"))
			}
			s.until(10e9, "another leader", func() bool { n := s.leader(); return n != l && n.core.leading() })
		}
		s.answered(ops...)
		s.settled()
		if jobs := len(s.check.jobs); jobs != len(ops) {
			s.failf("%d jobs of %d", jobs, len(ops))
		}
	})
}

// TestReadAfterPause: a leader is paused, another one is elected and answers, and the
// old one wakes with requests that came before, during and after its pause, on itself and
// passed on by a follower that still follows it. None sees the old state.
func TestReadAfterPause(t *testing.T) {
	newScript(t, func(s *script) {
		for round := range 5 {
			old := s.leader()
			before := s.strongRead(old, 30e9)
			old.paused = s.now + 5e9
			s.until(10e9, "another leader", func() bool { l := s.leader(); return l != old && l.core.leading() })
			during := s.strongRead(old, 30e9)
			s.answered(s.enqueue(s.leader(), "q0"))
			rd := s.strongRead(old, 30e9)
			s.until(6e9, "it wakes", func() bool { return s.now >= old.paused })
			old.step()
			after := s.strongRead(old, 30e9)
			s.answered(before, during, rd, after) // the checkers see a stale one
			for _, o := range []*simOp{rd, after} {
				if o.counts[0].Enqueued != uint64(round+1) {
					s.failf("%v does not see what was answered before it: %+v", o, o.counts[0])
				}
			}
			s.settled()
		}
	})
}

// TestLostTailElectsNobody: a job was answered when two of three nodes had it; one
// of these loses the end of its log, below what it had promised. It must not start, so
// that the third, which never had the job, finds no majority to go on without it. With
// the other one back the job is there.
func TestLostTailElectsNobody(t *testing.T) {
	defer goleak.VerifyNone(t)
	tr := newTrio(t)
	tr.openAll()
	enqueueOn(t, tr.nodes[0], "known to all")
	tr.close(2)
	tr.ready(0)
	id := enqueueOn(t, tr.nodes[0], "known to two")
	tr.close(0)
	tr.close(1)
	segments, err := filepath.Glob(filepath.Join(tr.cfg[1].DataDir, "log", "wal", "*.wal"))
	if err != nil || len(segments) == 0 {
		t.Fatal(segments, err)
	}
	last := segments[len(segments)-1]
	b, err := os.ReadFile(last)
	if err != nil {
		t.Fatal(err)
	}
	all := frames(b)
	if err := os.Truncate(last, int64(all[len(all)-4][0])); err != nil { // whole records: as a lost write leaves it
		t.Fatal(err)
	}
	var lost *wal.LostTailError
	if _, err := Open(tr.cfg[1]); !errors.As(err, &lost) {
		t.Fatalf("a log that lost its end: %v", err)
	}
	third := tr.open(2)
	if third.Ready() == nil {
		t.Error("one of three is ready")
	}
	tr.open(0)
	tr.ready(0)
	tr.ready(2)
	if _, err := third.Read(fsm.ReadHow{Strong: true, TimeoutMs: 5000}, func(m *fsm.Machine) {
		if j, code := m.Job(id.Key); code != fsm.CodeOK || j.Body != "known to two" {
			t.Errorf("the job: %v %+v", code, j)
		}
	}); err != nil {
		t.Error(err)
	}
	tr.closeAll()
}
