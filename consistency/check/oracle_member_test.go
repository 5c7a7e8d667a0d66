package check

import (
	"testing"

	"raftq/fsm"
)

// A node that is removed takes its waiters along, and never comes back under its id:
// the oracle has it as the machine has.
func TestRemovedMember(t *testing.T) {
	const two, epochTwo = 0x2223f64c167aaf71, 1<<32 | 9
	m := fsm.New([]fsm.Member{{ID: nodeOne, Name: "n1", Peer: "http://a:1"}, {ID: two, Name: "n2", Peer: "http://b:1"}})
	o := newOracle()
	index, ms := uint64(1), int64(1000)
	apply := func(origin, epoch, number uint64, ops ...fsm.Op) {
		t.Helper()
		index, ms = index+1, ms+10
		data := fsm.EncodeBatch(fsm.BatchHeader{Origin: origin, Epoch: epoch, Number: number, Term: 2, TimeMs: ms}, ops...)
		if _, err := m.Apply(index, 2, data, fsm.Self{}); err != nil {
			t.Fatal(err)
		}
		if err := o.apply(Entry{Index: index, Term: 2, Data: data}); err != nil {
			t.Fatal(err)
		}
	}
	waits := &fsm.Dequeue{Request: 1, Queues: []string{"q"}, Max: 1, LeaseMs: 1000, WaitMs: 60_000, Consumer: "m1"}
	job := func(body string, first uint64) *fsm.Enqueue {
		return &fsm.Enqueue{First: first, Jobs: []fsm.NewJob{{Queue: "q", Body: []byte(body), Priority: 4}}}
	}
	same := func(what string, ready, leased, waiters int) {
		t.Helper()
		got := m.Totals()
		if int(got.Ready) != ready || int(got.Leased) != leased || int(got.Waiters) != waiters {
			t.Errorf("%s: the machine has %+v", what, got)
		}
		n := map[string]int{}
		for _, j := range o.jobs {
			n[j.state]++
		}
		if n["ready"] != ready || n["leased"] != leased || len(o.waiters) != waiters {
			t.Errorf("%s: the oracle has %v and %d waiters", what, n, len(o.waiters))
		}
	}
	apply(nodeOne, epochOne, 0, &fsm.NodeStart{})
	apply(two, epochTwo, 0, &fsm.NodeStart{})
	apply(two, epochTwo, 1, waits)
	same("a waiter of node two", 0, 0, 1)
	apply(0, 0, 0, &fsm.MemberChange{Verb: fsm.MemberRemove, Member: fsm.Member{ID: two}})
	same("node two is removed", 0, 0, 0)
	apply(nodeOne, epochOne, 1, job("a", 1))
	same("a job comes", 1, 0, 0)
	apply(two, 2<<32|9, 0, &fsm.NodeStart{})
	apply(two, 2<<32|9, 1, waits)
	apply(two, epochTwo, 2, waits)
	same("node two tries to come back", 1, 0, 0)
}
