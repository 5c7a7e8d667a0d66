package check

import (
	"fmt"
	"testing"
	"time"

	"raftq/fsm"
)

// try dequeues one or more jobs under an attempt id, with a lease of 2 s.
func (s *story) try(attempt, queue string, max int) *Op {
	o := s.op(Dequeue, queue)
	s.marks++
	o.Max, o.Lease, o.Mark, o.Attempt = max, 2*second, fmt.Sprintf("t%d", s.marks), attempt
	index := s.next(&fsm.Dequeue{Request: uint64(1000 + s.marks), Queues: []string{queue}, Max: int32(max), LeaseMs: 2000, Consumer: o.Mark, AttemptID: attempt})
	s.got(o)
	s.end(o, index)
	return o
}

// tries is a story of attempts: one whose answer got lost and that was asked for again,
// one that was answered twice, one whose lease ended.
type tries struct {
	*story
	lost, again, more, once, twice, ack *Op
}

func newTries(t testing.TB) *tries {
	s := &tries{story: newStory(t)}
	s.enqueueJobs("q", Job{Body: "one"}, Job{Body: "two"}, Job{Body: "three", AtMostOnce: true}, Job{Body: "four"})
	s.lost = s.try("a", "q", 2)
	s.lost.Outcome, s.lost.Ret, s.lost.Got = Unknown, Never, nil
	s.again = s.try("a", "q", 2)
	s.more = s.try("a", "q", 2)
	s.once = s.try("b", "q", 1)
	s.twice = s.try("b", "q", 1)
	s.ack = s.settle(Ack, s.again, 0)
	s.settle(Ack, s.twice, 0)
	first := s.try("c", "q", 1)
	s.wait(3 * second)
	if late := s.try("c", "q", 1); late.Got[0].Receipt == first.Got[0].Receipt {
		t.Error("the lease did not end")
	} else {
		s.settle(Ack, late, 0)
	}
	return s
}

// TestBrokenAttempts breaks one thing each of dequeues that come again.
func TestBrokenAttempts(t *testing.T) {
	for _, tc := range []struct {
		name, check string
		damage      func(s *tries)
	}{
		{"nothing the second time", "witness: attempt", func(s *tries) {
			o := s.op(Dequeue, "q")
			o.Mark, o.Attempt, o.Max = "none", "a", 2
			o.Call, o.Ret, o.Index = s.more.Ret+1, s.more.Ret+2, s.more.Index
		}},
		{"a job too few the second time, by the log", "witness: result", func(s *tries) { s.more.Got = s.more.Got[:1] }},
		{"another receipt the second time, by the log", "witness: result", func(s *tries) { s.more.Got[0].Receipt = s.once.Got[0].Receipt }},
		{"another hand-out's entry", "witness: result", func(s *tries) { s.more.Got[0].Fence = s.more.Index }},
		{"counted twice", "witness: result", func(s *tries) { s.more.Got[0].Deliveries++ }},
		{"under another id in the log", "witness: altered", func(s *tries) { s.again.Attempt = "z" }},
		{"a job too few the second time", "black box: attempt", func(s *tries) { s.more.Got = s.more.Got[:1] }},
		{"a new receipt the second time", "black box: attempt", func(s *tries) { s.more.Got[0].Receipt = "new" }},
		{"nothing the second time, by what clients see", "black box: attempt", func(s *tries) { s.more.Got = nil }},
		{"one receipt for two attempts", "black box: one grant", func(s *tries) { s.more.Attempt = "z" }},
		{"at most once, twice", "accounting: at most once", func(s *tries) { s.twice.Got[0].Receipt = "new" }},
		{"again after the ack", "accounting: acked and back", func(s *tries) { s.more.Call, s.more.Ret = s.ack.Ret+1, s.ack.Ret+2 }},
		{"a lease that another gets", "black box: lease", func(s *tries) {
			s.more.Attempt = "z"
			for i := range s.more.Got {
				s.more.Got[i].Receipt += "9"
				s.more.Got[i].Fence++
			}
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := newTries(t)
			tc.damage(s)
			wants(t, s.all(), tc.check)
		})
	}
}

// What attempts may do: an answer that comes again is no second delivery, and of two
// that were answered each can give back for itself alone.
func TestGoodAttempts(t *testing.T) {
	s := newTries(t)
	sum, _ := Accounting(&s.h)
	if sum.Delivered != 5 {
		t.Errorf("%d deliveries of four jobs, of which one came back", sum.Delivered)
	}
	r, _ := Witness(&s.h, s.log)
	if r.Did["lost answer had again"] != 2 || r.Did["attempt answered again"] != 3 {
		t.Errorf("%v", r.Did)
	}
	s.enqueue("r", "shared")
	first := s.try("d", "r", 1)
	second := s.try("d", "r", 1)
	item, _ := fsm.ParseReceipt(first.Got[0].Receipt)
	first.Outcome, first.Ret, first.Got = Unknown, Never, nil
	s.next(&fsm.GiveBack{Items: []fsm.Item{item.Item()}})
	s.settle(Ack, second, 0)
	s.enqueue("r", "back")
	first = s.try("e", "r", 1)
	second = s.try("e", "r", 1)
	item, _ = fsm.ParseReceipt(first.Got[0].Receipt)
	for _, o := range []*Op{first, second} {
		o.Outcome, o.Ret, o.Got = Unknown, Never, nil
		s.next(&fsm.GiveBack{Items: []fsm.Item{item.Item()}})
	}
	if third := s.try("e", "r", 1); third.Got[0].Deliveries != 1 {
		t.Errorf("%+v", third.Got)
	} else {
		s.settle(Ack, third, 0)
	}
	for _, problem := range s.all() {
		t.Error(problem)
	}
}

// A try that comes while an earlier one waits takes its place.
func TestAttemptTakesOver(t *testing.T) {
	s := newStory(t)
	wait := func(mark, attempt string) *Op {
		o := s.op(Dequeue, "q")
		s.marks++
		o.Mark, o.Attempt, o.Max, o.Lease, o.Wait, o.Outcome, o.Ret = mark, attempt, 1, 2*second, second, Unknown, Never
		s.next(&fsm.Dequeue{Request: uint64(s.marks), Queues: []string{"q"}, Max: 1, LeaseMs: 2000, WaitMs: 1000, Consumer: mark, AttemptID: attempt})
		return o
	}
	wait("first", "a")
	wait("other", "")
	again := wait("again", "a")
	at := s.enqueue("q", "one")
	again.Outcome = OK
	s.got(again)
	s.end(again, at.Index)
	s.settle(Ack, again, 0)
	if len(again.Got) != 1 {
		t.Errorf("another one was served first: %+v", s.o.dequeues["other"])
	}
	for _, problem := range s.all() {
		t.Error(problem)
	}
	m := fsm.New([]fsm.Member{{ID: nodeOne, Name: "n1", Peer: "http://h:1"}})
	for _, e := range s.log {
		if _, err := m.Apply(e.Index, e.Term, e.Data, fsm.Self{}); err != nil {
			t.Fatal(err)
		}
	}
	if info, _ := m.Queue("q"); info.Leased+info.Ready != 0 {
		t.Errorf("the machine does not serve it first: %+v", info)
	}
}

// A pause keeps no answer back that comes again: the jobs were handed out before it. A
// first try within it gets none.
func TestAttemptDuringPause(t *testing.T) {
	for from, found := range map[time.Duration]int{0: 0, 3 * second: 1} {
		lost := &Op{Kind: Dequeue, Queue: "q", Attempt: "a", Outcome: Unknown, Call: from, Ret: Never}
		pause := &Op{Kind: Pause, Queue: "q", Outcome: OK, Call: second, Ret: 2 * second, Parts: Parts{Paused: &PausePart{Out: true}}}
		again := &Op{Kind: Dequeue, Queue: "q", Attempt: "a", Outcome: OK, Call: 4 * second, Ret: 5 * second, Got: []Delivery{{Body: "one"}}}
		var p problems
		pauses(&p, &History{Ops: []*Op{lost, pause, again}})
		if len(p.all()) != found {
			t.Errorf("first try at %v: %v", from, p.all())
		}
	}
}
