package check

import (
	"fmt"
	"testing"

	"raftq/fsm"
)

// What two tries of an attempt were answered with comes back as the machine has it: with
// both of them while the lease lives; behind it with the only one that is left, and with
// neither of two, if all nodes know that rule.
func TestSharedHandouts(t *testing.T) {
	for _, level := range []uint32{2, 3} {
		for before := range 3 {
			for after := range 3 - before {
				t.Run(fmt.Sprintf("level %d, %d before the end, %d after", level, before, after), func(t *testing.T) {
					sharedHandout(t, level, before, after)
				})
			}
		}
	}
}

func sharedHandout(t *testing.T, level uint32, before, after int) {
	m := fsm.New([]fsm.Member{{ID: nodeOne, Name: "n1", Peer: "http://a:1"}})
	o := newOracle()
	index, ms, number := uint64(1), int64(1000), uint64(0)
	entry := func(number uint64, ops ...fsm.Op) {
		t.Helper()
		index, ms = index+1, ms+10
		data := fsm.EncodeBatch(fsm.BatchHeader{Origin: nodeOne, Epoch: epochOne, Number: number, Term: 2, TimeMs: ms}, ops...)
		if _, err := m.Apply(index, 2, data, fsm.Self{}); err != nil {
			t.Fatal(err)
		}
		if err := o.apply(Entry{Index: index, Term: 2, Data: data}); err != nil {
			t.Fatal(err)
		}
	}
	next := func(ops ...fsm.Op) {
		t.Helper()
		number++
		entry(number, ops...)
	}
	try := func(request uint64) *fsm.Dequeue {
		return &fsm.Dequeue{Request: request, Queues: []string{"q"}, Max: 1, LeaseMs: 1000, Consumer: fmt.Sprint("m", request), AttemptID: "a"}
	}
	entry(0, &fsm.NodeStart{FeatureLevel: level})
	next(&fsm.Enqueue{First: 1, Jobs: []fsm.NewJob{{Queue: "q", Body: []byte("a"), Priority: 4, AtMostOnce: true}}})
	next(try(1))
	next(try(2))
	var j *oJob
	for _, j = range o.jobs {
		break // the only one
	}
	item := fsm.Item{Key: j.key, Grant: j.grant, Tag: j.tag, DelayMs: -1}
	giveBack := func(times int) {
		for range times {
			next(&fsm.GiveBack{Items: []fsm.Item{item}})
			got := m.Totals()
			want := map[string]int64{"ready": int64(got.Ready), "leased": int64(got.Leased), "held": int64(got.Held)}
			if want[j.state] != 1 {
				t.Errorf("the oracle has it %s, the machine %v", j.state, want)
			}
		}
	}
	giveBack(before)
	ms += 2000
	next(&fsm.NodeBack{})
	giveBack(after)
	want := "held"
	if before == 2 || before == 1 && after == 1 || level == 2 && after > 0 {
		want = "ready"
	}
	if j.state != want {
		t.Errorf("it is %s, not %s", j.state, want)
	}
}
