package raftnode

import (
	"slices"
	"testing"

	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"
)

// fast sends an enqueue that may be answered at the append.
func (s *script) fastEnqueue(n *simNode, queue string) *simOp {
	o := s.enqueue(n, queue)
	o.req.fast = true
	return o
}

// fastBurst answers k fast enqueues within far less than holdAddedNs and leaves them
// with the leader alone.
func (s *script) fastBurst(l *simNode, k int) []*simOp {
	s.t.Helper()
	var ops []*simOp
	for range k {
		o := s.fastEnqueue(l, "q0")
		s.until(200e3, "fast answer", func() bool { return o.outcome != pending })
		s.answered(o)
		if !o.req.res.Fast {
			s.failf("%v was not answered fast", o)
		}
		ops = append(ops, o)
	}
	if n := kept(l); n != k {
		s.failf("%d entries are kept back, not %d", n, k)
	}
	return ops
}

// kept is how many entries a leader keeps back.
func kept(l *simNode) int {
	n := len(l.core.rn.props)
	for _, j := range l.core.outbox.appends {
		n += len(j.m.GetEntries())
	}
	return n
}

// TestHeldTogether proves that entries nobody waits for share an append and a
// message to each peer, and leave within holdAddedNs on their own, or holdNs with a
// hand-out among them.
func TestHeldTogether(t *testing.T) {
	for name, want := range map[string]int64{"enqueues": holdAddedNs, "a hand-out among them": holdNs} {
		t.Run(name, func(t *testing.T) {
			newScript(t, func(s *script) { s.heldTogether(want) })
		})
	}
}

func (s *script) heldTogether(want int64) {
	l := s.leader()
	s.answered(s.enqueue(l, "q1"))
	s.pass(50e6)
	appends := map[*simNode][]int{}
	s.net.hold = func(_, to *simNode, m *pb.Message) bool {
		if m.GetType() == pb.MsgApp && len(m.GetEntries()) > 0 {
			appends[to] = append(appends[to], len(m.GetEntries()))
		}
		return false
	}
	began, entries := s.now, 8
	ops := s.fastBurst(l, entries)
	if want == holdNs {
		o := s.dequeue(l, "q1", 0)
		o.req.fast = true
		s.until(200e3, "a fast hand-out", func() bool { return o.outcome != pending && o.req.res.Fast })
		entries++
	}
	s.until(want+500e3, "what is kept back leaves", func() bool { return kept(l) == 0 })
	if kept := s.now - began; kept < want {
		s.failf("it left after %s", ms(kept))
	}
	s.until(100e6, "all nodes have applied them", func() bool {
		return !slices.ContainsFunc(s.nodes, func(n *simNode) bool { return n.at < ops[7].req.res.Position.Index })
	})
	if len(appends) != 2 {
		s.failf("%d peers were sent entries", len(appends))
	}
	for to, sizes := range appends {
		if !slices.Equal(sizes, []int{entries}) {
			s.failf("%s was sent messages of %v entries", to.name, sizes)
		}
	}
}

// TestHeldLeavesAtOnce proves that whoever needs a leader's disk or peers does not
// wait for holdNs: what is kept back leaves in the turn that brings the need.
func TestHeldLeavesAtOnce(t *testing.T) {
	peer := func(s *script, l *simNode) *simNode { return s.nodes[(l.i+1)%3] }
	for name, need := range map[string]func(s *script, l *simNode) *simOp{
		"strong op": func(s *script, l *simNode) *simOp { return s.enqueue(l, "q1") },
		"op of another node": func(s *script, l *simNode) *simOp {
			return s.enqueue(peer(s, l), "q1")
		},
		"strong read":               func(s *script, l *simNode) *simOp { return s.strongRead(l, 30e9) },
		"strong read on a follower": func(s *script, l *simNode) *simOp { return s.strongRead(peer(s, l), 30e9) },
		"fast op on uncommitted ground": func(s *script, l *simNode) *simOp {
			o := s.dequeue(l, "q0", 0)
			o.req.fast = true
			return o
		},
		"stop": func(s *script, l *simNode) *simOp {
			l.post(leaveAsked{})
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			newScript(t, func(s *script) {
				s.opt.delayMin, s.opt.delayMax = 50e3, 60e3
				l := s.leader()
				s.answered(s.enqueue(l, "q0"))
				s.pass(50e6)
				if name == "fast op on uncommitted ground" {
					s.answered(s.dequeue(l, "q0", 0))
					s.pass(50e6)
				}
				began := s.now
				s.fastBurst(l, 2)
				o := need(s, l)
				s.until(holdNs*6/10, "what is kept back leaves", func() bool { return kept(l) == 0 })
				if s.now-began >= holdNs {
					s.failf("it left when its time was over")
				}
				if o != nil {
					s.answered(o)
				}
			})
		})
	}
}

// TestHandoutLeavesAtOnce: a fast enqueue whose job goes to a consumer that waits
// on another node is not kept back; the consumer gets it at the commit.
func TestHandoutLeavesAtOnce(t *testing.T) {
	newScript(t, func(s *script) {
		l := s.leader()
		d := s.dequeue(s.nodes[(l.i+1)%3], "q0", 30_000)
		s.until(5e9, "parked", func() bool { return d.effectAt != 0 })
		s.pass(50e6)
		e := s.fastEnqueue(l, "q0")
		s.until(200e3, "fast answer", func() bool { return e.outcome != pending })
		if !e.req.res.Fast || kept(l) != 0 {
			s.failf("answered fast: %v; %d entries are kept back", e.req.res.Fast, kept(l))
		}
		s.answered(d)
		if len(d.req.res.Jobs) != 1 {
			s.failf("the consumer got %+v", d.req.res)
		}
		// With nobody waiting the next one is kept again.
		s.pass(50e6)
		s.fastBurst(l, 1)
	})
}

// TestHeldIsLostWithItsNode kills a leader that keeps fast entries back: what it
// lost is the end of its batches, fate says so, and nothing else is gone.
func TestHeldIsLostWithItsNode(t *testing.T) {
	newScript(t, func(s *script) {
		l := s.leader()
		safe := s.fastBurst(l, 3)
		s.pass(50e6)
		lost := s.fastBurst(l, 3)
		l.kill()
		s.until(10e9, "another leader", func() bool { n := s.leader(); return n.up && n.core.leading() })
		l.start()
		s.until(10e9, "the node is back", func() bool { return l.core.origin.registered && l.at == s.check.last() })
		for _, o := range safe {
			if o.effectAt == 0 {
				s.failf("%v is lost", o)
			}
		}
		for _, o := range lost {
			b := o.req.res.Batch
			if last, ok := s.check.refs[0].Fate(b.Node, b.Epoch); o.effectAt != 0 || !ok || b.Number <= last {
				s.failf("%v: entry %d, fate knows batches up to %d", o, o.effectAt, last)
			}
		}
	})
}

// TestHeldBeforeTransfer: leadership is handed on while a leader holds proposals that
// its machine has applied already. Raft takes them before it hears of the transfer,
// which it would refuse them for; what comes after goes to the next leader.
func TestHeldBeforeTransfer(t *testing.T) {
	newScript(t, func(s *script) {
		l := s.leader()
		s.answered(s.enqueue(l, "q0"))
		s.pass(50e6)
		ops := s.fastBurst(l, 3)
		if len(l.core.rn.props) == 0 {
			s.failf("no proposal is held")
		}
		l.post(transferAsked{})
		s.until(1e6, "the transfer begins", func() bool { return l.core.handing })
		if l.core.lastAppended < ops[2].req.res.Position.Index {
			s.failf("the transfer has overtaken what was held")
		}
		late := s.fastEnqueue(l, "q0")
		s.until(10e9, "another leader", func() bool { n := s.leader(); return n != l && n.core.leading() })
		s.answered(late)
		s.until(10e9, "all is in the log", func() bool { return late.effectAt != 0 && ops[2].effectAt != 0 })
		for i, o := range ops {
			if o.effectAt != ops[0].effectAt+uint64(i) || o.effectAt != o.req.res.Position.Index {
				s.failf("%v was answered at %d and is entry %d", o, o.req.res.Position.Index, o.effectAt)
			}
		}
	})
}

// TestHeldByDeposedLeader: a leader that was cut off hears of its successor while it
// holds proposals. It goes back to what is committed, and they are proposed again.
func TestHeldByDeposedLeader(t *testing.T) {
	newScript(t, func(s *script) {
		l := s.leader()
		s.answered(s.enqueue(l, "q0"))
		s.pass(50e6)
		s.isolate(l)
		s.until(10e9, "another leader", func() bool { n := s.leader(); return n != l && n.core.leading() })
		if l.core.role != raft.StateLeader {
			s.failf("the old leader knows already: %s", l.describe())
		}
		ops := s.fastBurst(l, 3)
		s.pass(50e6) // these are in its log
		n := s.leader()
		var app *pb.Message
		s.net.hold = func(from, to *simNode, m *pb.Message) bool {
			if from == n && to != l && m.GetType() == pb.MsgHeartbeat {
				app = m
			}
			return false
		}
		s.until(1e9, "a heartbeat of the new leader", func() bool { return app != nil })
		ops = append(ops, s.fastBurst(l, 3)...)
		beat := &pb.Message{Type: pb.MsgHeartbeat.Enum(), From: app.From, To: new(l.id), Term: app.Term, Commit: new(uint64(0))}
		l.receive(beat)
		s.until(200e3, "the old leader steps down", func() bool { return l.core.role != raft.StateLeader })
		if i := l.core.machine.Position().Index; i != l.core.confirmed.Index || kept(l) != 0 {
			s.failf("its machine is at %d, committed is %d, and %d entries are kept back", i, l.core.confirmed.Index, kept(l))
		}
		s.net.heal()
		s.until(10e9, "all is in the log", func() bool {
			return !slices.ContainsFunc(ops, func(o *simOp) bool { return o.effectAt == 0 })
		})
	})
}

// TestOutboxJoinsMessages proves what makes one message of two, and that raft's own
// slices are left alone.
func TestOutboxJoinsMessages(t *testing.T) {
	log := make([]*pb.Entry, 10)
	for i := range log {
		log[i] = &pb.Entry{Index: new(uint64(i)), Data: make([]byte, 100)}
	}
	app := func(to, term, prev uint64, ents []*pb.Entry, commit uint64) *pb.Message {
		return &pb.Message{Type: pb.MsgApp.Enum(), To: new(to), Term: new(term), Index: new(prev), Entries: ents, Commit: new(commit)}
	}
	var b outbox
	b.send(app(2, 5, 0, log[1:2:2], 0))
	b.send(app(3, 5, 0, log[1:2:2], 0))
	b.send(app(2, 5, 1, log[2:4:4], 1)) // goes on
	b.send(app(2, 5, 3, nil, 3))        // only a commit index
	b.send(app(3, 5, 4, log[5:6:6], 3)) // a gap
	b.send(app(2, 6, 3, log[4:5:5], 3)) // another term
	b.send(&pb.Message{Type: pb.MsgHeartbeat.Enum(), To: new(uint64(3)), Term: new(uint64(5))})
	b.send(app(3, 5, 5, log[6:7:7], 3)) // not the last to that peer
	type sent struct{ to, term, prev, entries, commit uint64 }
	var got []sent
	for _, m := range b.sends {
		got = append(got, sent{m.GetTo(), m.GetTerm(), m.GetIndex(), uint64(len(m.GetEntries())), m.GetCommit()})
	}
	want := []sent{{2, 5, 0, 3, 3}, {3, 5, 0, 1, 0}, {3, 5, 4, 1, 3}, {2, 6, 3, 1, 3}, {3, 5, 0, 0, 0}, {3, 5, 5, 1, 3}}
	if !slices.Equal(got, want) {
		t.Errorf("sent\n%v, want\n%v", got, want)
	}
	for i, e := range log {
		if e.GetIndex() != uint64(i) {
			t.Errorf("entry %d of raft's log is %d now", i, e.GetIndex())
		}
	}
	big := outbox{}
	ents := []*pb.Entry{{Data: make([]byte, holdBytesMax-50)}}
	big.send(app(2, 5, 0, ents, 0))
	big.send(app(2, 5, 1, log[2:3:3], 0))
	if len(big.sends) != 2 {
		t.Errorf("a message of %d bytes was joined with one of 100", holdBytesMax-50)
	}
}

// TestCommitIsWrittenLater proves that a commit index alone costs no write: an
// entry is written once on each node, and the commit index follows with the next
// one, or a while later.
func TestCommitIsWrittenLater(t *testing.T) {
	newScript(t, func(s *script) {
		l := s.leader()
		s.answered(s.enqueue(l, "q0"))
		s.pass(500e6)
		writes := func() (n []int) {
			for _, x := range s.nodes {
				n = append(n, x.writes)
			}
			return n
		}
		before := writes()
		o := s.enqueue(l, "q0")
		s.answered(o)
		s.until(20e6, "all nodes have applied it", func() bool {
			return !slices.ContainsFunc(s.nodes, func(n *simNode) bool { return n.at < o.effectAt })
		})
		for i, n := range writes() {
			if n != before[i]+1 {
				s.failf("%s has written %d times", s.nodes[i].name, n-before[i])
			}
		}
		s.until(commitLagNs+50e6, "the commit index is written", func() bool {
			return !slices.ContainsFunc(s.nodes, func(n *simNode) bool { return n.disk.commit < o.effectAt })
		})
	})
}
