package raftnode

import (
	"fmt"
	"strings"
	"testing"

	pb "go.etcd.io/raft/v3/raftpb"

	"raftq/fsm"
)

// TestLogTimeRunsThroughAnOutage: nobody leads for five seconds. The next leader
// has known when the last entry was written, so leases and delays end in time.
func TestLogTimeRunsThroughAnOutage(t *testing.T) {
	newScript(t, func(s *script) {
		old := s.leader()
		s.answered(s.enqueue(old, "q0"))
		s.pass(100e6) // all have it
		was := s.check.at(s.check.last())
		other := s.nodes[(old.i+1)%3]
		old.kill()
		s.isolate(other)
		s.pass(5e9)
		s.net.heal()
		s.until(10e9, "a leader", func() bool { l := s.leader(); return l != old && l.core.leading() })
		o := s.enqueue(s.leader(), "q0")
		s.answered(o)
		now := s.check.at(o.effectAt)
		passed, logged := now.stamped-was.stamped, (now.pos.TimeMs-was.pos.TimeMs)*1e6
		if passed < 5e9 || logged < passed-tolerance(passed) {
			s.failf("%s have passed, and %s in the log", ms(passed), ms(logged))
		}
	})
}

// TestDeadNodesWaitersArePassedOver: a node dies on which the oldest consumer
// waited. The next job goes to the one that waits elsewhere, at once and not after a
// lease that nobody holds.
func TestDeadNodesWaitersArePassedOver(t *testing.T) {
	newScript(t, func(s *script) {
		lead := s.leader()
		dead, other := s.nodes[(lead.i+1)%3], s.nodes[(lead.i+2)%3]
		first := s.dequeue(dead, "q0", 60_000)
		s.until(5e9, "parked", func() bool { return first.effectAt != 0 })
		second := s.dequeue(other, "q0", 60_000)
		s.until(5e9, "parked", func() bool { return second.effectAt != 0 })
		dead.kill()
		s.pass(500e6) // more than two heartbeats
		s.answered(s.enqueue(lead, "q0"))
		s.until(1e9, "the living waiter has the job", func() bool { return second.outcome == answeredOK })
		if jobs := second.req.res.Jobs; len(jobs) != 1 || jobs[0].Deliveries != 1 {
			s.failf("the living waiter got %+v", jobs)
		}
	})
}

// TestTimersAfterARefusedProposal: raft refuses the entry that a due timer asks for,
// because leadership is on its way to a node that does not hear of it. When that is
// given up, the leader asks again though nobody writes.
func TestTimersAfterARefusedProposal(t *testing.T) {
	newScript(t, func(s *script) {
		lead := s.leader()
		s.answered(s.call(lead, opEnqueue, func(o *simOp) fsm.Op {
			return &fsm.Enqueue{Jobs: []fsm.NewJob{{Queue: "q0", DelayMs: 500, Body: fmt.Appendf(nil, "%s0", opMark(o.id))}}}
		}))
		wait := s.dequeue(lead, "q0", 60_000)
		s.until(5e9, "parked", func() bool { return wait.effectAt != 0 })
		s.pass(200e6)
		s.net.hold = func(_, _ *simNode, m *pb.Message) bool { return m.GetType() == pb.MsgTimeoutNow }
		refused := lead.core.stats.dropped
		lead.post(transferAsked{})
		s.until(10e9, "the job that was delayed", func() bool { return wait.outcome == answeredOK })
		if lead.core.stats.dropped == refused || s.leader() != lead {
			s.failf("nothing is shown: %d proposals were refused", lead.core.stats.dropped-refused)
		}
	})
}

// TestOldBootCounterIsRefused: a node starts on a data directory of before its last
// start, or on a copy. It would use an epoch's numbers again.
func TestOldBootCounterIsRefused(t *testing.T) {
	newScript(t, func(s *script) {
		n := s.nodes[(s.leader().i+1)%3]
		n.kill()
		n.start()
		s.until(10e9, "registered", func() bool { return n.core.origin.registered && n.at == s.check.last() })
		n.kill()
		n.disk.boots--
		refused := func() (why string) {
			defer func() { why = fmt.Sprint(recover()) }()
			n.start()
			s.pass(1e9)
			return ""
		}()
		if !strings.Contains(refused, "old or a copy") {
			s.failf("it starts: %s", refused)
		}
	})
}
