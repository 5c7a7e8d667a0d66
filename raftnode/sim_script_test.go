package raftnode

import (
	"fmt"
	"testing"
	"testing/cryptotest"

	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"
	"go.uber.org/zap"

	"raftq/fsm"
)

// script is a quiet world of three nodes for tests that say what happens.
type script struct {
	*world
	t      *testing.T
	client *simClient
}

func newScript(t *testing.T, do func(s *script)) {
	t.Helper()
	cryptotest.SetGlobalRandom(t, 1)
	w := newWorld(1, simOptions{nodes: 3, heartbeat: 100e6, election: 1000e6, keep: 1000,
		delayMin: 200e3, delayMax: 1e6, diskMin: 100e3, diskMax: 1e6, queues: 2}, zap.NewNop())
	s := &script{world: w, t: t, client: &simClient{w: w}}
	defer func() {
		if p := recover(); p != nil {
			t.Fatal(w.describe(p))
		}
	}()
	w.start()
	s.until(20e9, "all nodes are registered and at rest", func() bool {
		for _, n := range w.nodes {
			if !n.core.origin.registered || n.at != w.check.last() || n.core.leader == 0 {
				return false
			}
		}
		return true
	})
	do(s)
}

func (s *script) until(ns int64, what string, done func() bool) {
	s.t.Helper()
	if !s.run(ns, done) {
		s.failf("not within %s: %s", ms(ns), what)
	}
}

// isolate cuts a node off.
func (s *script) isolate(n *simNode) {
	for _, o := range s.nodes {
		if o != n {
			s.net.cut[n.i][o.i], s.net.cut[o.i][n.i] = true, true
		}
	}
}

func (s *script) pass(ns int64) { s.run(ns, func() bool { return false }) }

func (s *script) call(n *simNode, k opKind, op func(o *simOp) fsm.Op) *simOp {
	o := s.client.op(k)
	o.ended = func(*simOp) {}
	return s.client.send(o, n, op(o), 30e9)
}

func (s *script) enqueue(n *simNode, queue string) *simOp {
	return s.call(n, opEnqueue, func(o *simOp) fsm.Op {
		return &fsm.Enqueue{Jobs: []fsm.NewJob{{Queue: queue, Body: fmt.Appendf(nil, "%s0", opMark(o.id))}}}
	})
}

func (s *script) dequeue(n *simNode, queue string, waitMs int64) *simOp {
	return s.call(n, opDequeue, func(o *simOp) fsm.Op {
		return &fsm.Dequeue{Queues: []string{queue}, Max: 1, LeaseMs: 5000, WaitMs: waitMs, Consumer: opMark(o.id)}
	})
}

func (s *script) strongRead(n *simNode, timeout int64) *simOp {
	o := s.client.op(opRead)
	o.strong = true
	o.ended = func(*simOp) {}
	s.client.sendRead(o, n, 0, timeout)
	return o
}

func (s *script) answered(ops ...*simOp) {
	s.t.Helper()
	s.until(10e9, "answers", func() bool {
		for _, o := range ops {
			if o.outcome == pending {
				return false
			}
		}
		return true
	})
	for _, o := range ops {
		if o.outcome != answeredOK {
			s.failf("%v: outcome %d, %v", o, o.outcome, o.err())
		}
	}
}

// TestDeposedLeaderDoesNotAnswerReads holds a leader with its followers' acks
// unread while another one is elected and commits. When the old one wakes, the
// acks commit its last entry, but they were given before the reads arrived and
// prove nothing: neither a strong read nor an empty dequeue may be answered from
// the old state.
func TestDeposedLeaderDoesNotAnswerReads(t *testing.T) {
	for _, readsFirst := range []bool{false, true} {
		t.Run(fmt.Sprintf("reads first %v", readsFirst), func(t *testing.T) {
			newScript(t, func(s *script) { deposed(s, readsFirst) })
		})
	}
}

func deposed(s *script, readsFirst bool) {
	old := s.leader()
	var others []*simNode
	for _, n := range s.nodes {
		if n != old {
			others = append(others, n)
		}
	}
	first := s.enqueue(old, "q0")
	entry := old.core.lastAppended + 1
	s.until(1e9, "the old leader sends its entry", func() bool { return old.core.lastAppended == entry })
	s.until(1e9, "its own disk has it", func() bool { last, _ := old.storage.LastIndex(); return last == entry })
	old.asleep = true
	s.until(1e9, "the others have it", func() bool {
		for _, n := range others {
			if last, _ := n.storage.LastIndex(); last != entry {
				return false
			}
		}
		return true
	})
	s.pass(5e6) // their acks arrive, and wait
	if len(old.box) == 0 || first.outcome != pending {
		s.failf("the old leader has no unread acks")
	}
	for _, n := range others {
		s.net.cut[n.i][old.i], s.net.cut[old.i][n.i] = true, true
	}
	s.until(10e9, "another leader", func() bool { l := s.leader(); return l != old && l.core.leading() })
	now := s.leader()
	second := s.enqueue(now, "q1")
	s.answered(second)

	held := old.box
	if readsFirst {
		old.box = nil
	}
	rd, empty := s.strongRead(old, 30e9), s.dequeue(old, "q1", 0)
	old.asleep = false
	old.step()
	if readsFirst {
		for _, e := range held {
			old.post(e)
		}
	}
	s.pass(300e6)
	if old.core.role != raft.StateLeader || old.core.term >= now.core.term {
		s.failf("the old leader knows already: %s", old.describe())
	}
	if first.outcome != answeredOK || old.at != entry {
		s.failf("the acks did not commit entry %d: %s", entry, old.describe())
	}
	if rd.outcome != pending || empty.outcome != pending {
		s.failf("answered by a deposed leader: read %d at %v, dequeue %d at %v", rd.outcome, rd.position(), empty.outcome, empty.position())
	}
	s.net.heal()
	s.answered(rd, empty)
	if rd.counts[1].Enqueued != 1 {
		s.failf("the read does not see what was answered before it: %+v", rd.counts)
	}
	if len(empty.req.res.Jobs) != 1 {
		s.failf("the dequeue does not get the job that was there before it")
	}
}

// TestReadBesideAnExpiredOne: on a leader that is cut off, one read's time is
// over in the turn in which another arrives. The new one must not be taken for an
// older, marked one and answered from a state that nobody vouches for.
func TestReadBesideAnExpiredOne(t *testing.T) {
	newScript(t, func(s *script) {
		old := s.leader()
		for _, n := range s.nodes {
			s.net.cut[n.i][old.i], s.net.cut[old.i][n.i] = true, true
		}
		s.until(10e9, "another leader", func() bool { l := s.leader(); return l != old && l.core.leading() })
		s.answered(s.enqueue(s.leader(), "q0"))
		if old.core.role != raft.StateLeader {
			s.failf("the old leader knows already: %s", old.describe())
		}
		s.strongRead(old, 20e6)
		s.pass(5e6)
		// A pause lets that read's time pass; the next turn takes it out and the new
		// ones in.
		old.asleep = true
		s.pass(30e6)
		s.strongRead(old, 30e9)
		s.strongRead(old, 30e9)
		old.asleep = false
		old.step()
		s.pass(50e6) // an answer now would be stale: the checkers see it
		s.net.heal()
		s.pass(5e9)
	})
}

// TestOldReadIndexAnswer: the answer to a ReadIndex of a node's earlier process
// comes to the next one, which has asked again. It proves nothing about reads that
// came after it was given.
func TestOldReadIndexAnswer(t *testing.T) {
	newScript(t, func(s *script) {
		leader := s.leader()
		n := s.nodes[(leader.i+1)%3]
		var late []*pb.Message
		s.net.hold = func(from, to *simNode, m *pb.Message) bool {
			if to == n && m.GetType() == pb.MsgReadIndexResp {
				late = append(late, m)
			}
			return to == n && m.GetType() == pb.MsgReadIndexResp
		}
		n.kill()
		n.start()
		s.until(10e9, "leader known", func() bool { return n.core.leader == leader.id && n.core.origin.registered && n.at == s.check.last() })
		for range 5 {
			s.strongRead(n, 30e9)
			s.pass(600e6)
		}
		n.kill()
		// What is answered now is not yet on n, and the old answers do not know it.
		s.net.hold = func(from, to *simNode, m *pb.Message) bool {
			return to == n && (m.GetType() == pb.MsgApp || m.GetType() == pb.MsgReadIndexResp)
		}
		s.answered(s.enqueue(leader, "q0"))
		n.start()
		s.until(10e9, "leader known", func() bool { return n.core.leader == leader.id })
		rd := s.strongRead(n, 30e9)
		s.pass(600e6)
		for _, m := range late {
			n.receive(m)
		}
		s.pass(50e6)
		s.net.hold = nil
		s.answered(rd)
	})
}

// TestWaitersAreServedOldestFirst parks a dequeue on each node. Jobs go to them in
// the order in which they came, whichever node they wait on, and each hand-off
// takes one log entry: the enqueue's.
func TestWaitersAreServedOldestFirst(t *testing.T) {
	for first := range 3 {
		t.Run(fmt.Sprintf("first on node %d", first), func(t *testing.T) {
			newScript(t, func(s *script) {
				var waits []*simOp
				for i := range 3 {
					o := s.dequeue(s.nodes[(first+i)%3], "q0", 30_000)
					s.until(5e9, "parked", func() bool { return o.effectAt != 0 })
					waits = append(waits, o)
				}
				s.pass(50e6)
				for i := range 3 {
					before := s.check.last()
					e := s.enqueue(s.nodes[i], "q0")
					s.answered(e, waits[i])
					s.pass(50e6)
					if s.check.last() != before+1 {
						s.failf("hand-off %d took %d entries", i, s.check.last()-before)
					}
					jobs := waits[i].req.res.Jobs
					if len(jobs) != 1 || jobs[0].Body != opMark(e.id)+"0" || waits[i].req.res.Position.Index != before+1 {
						s.failf("waiter %d got %+v", i, waits[i].req.res)
					}
					for _, later := range waits[i+1:] {
						if later.outcome != pending {
							s.failf("waiter %v was answered before its turn", later)
						}
					}
				}
			})
		})
	}
}

// TestNewLeaderKnowsNoCommit kills all nodes right after an answer, so that
// their logs' commit indexes are behind it. A read at the next leader, before its
// term's first entry commits, must not be answered from a state that ends at its
// own commit index: an earlier life has answered from more.
func TestNewLeaderKnowsNoCommit(t *testing.T) {
	newScript(t, func(s *script) {
		s.answered(s.enqueue(s.leader(), "q0"))
		for _, n := range s.nodes {
			n.kill()
			// Nobody syncs a hard state that only moves the commit index.
			n.disk.commit = min(n.disk.commit, s.check.highest-1)
		}
		s.pass(100e6) // what is on its way finds nobody
		for _, n := range s.nodes {
			n.start()
		}
		var l *simNode
		s.until(10e9, "a leader", func() bool {
			for _, n := range s.nodes {
				if n.core.role == raft.StateLeader {
					l = n
				}
			}
			return l != nil
		})
		if l.core.machine.Position().Term == l.core.term || l.core.commit >= s.check.highest {
			s.failf("nothing is shown: %s; highest answer %d", l.describe(), s.check.highest)
		}
		// An empty queue, so that the dequeue is a read.
		for _, n := range s.nodes {
			s.net.cut[n.i][l.i], s.net.cut[l.i][n.i] = n != l, n != l // so that nothing commits yet
		}
		rd, empty := s.strongRead(l, 30e9), s.dequeue(l, "q1", 0)
		s.pass(20e6)
		// The ReadIndex that would correct it is lost on its way; an entry proves
		// leadership first.
		l.core.reads.open, l.core.reads.began = true, l.core.now.boot
		s.net.heal()
		s.answered(rd, empty) // the checkers see a stale one
		if rd.counts[0].Enqueued != 1 {
			s.failf("the read does not see what was answered before it: %+v", rd.counts)
		}
	})
}
