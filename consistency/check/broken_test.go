package check

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"raftq/fsm"
)

// TestFastHandOutAfterTheAck: a deposed leader that does not know it hands out fast
// what another one has let somebody ack. That is told to who acks it again.
func TestFastHandOutAfterTheAck(t *testing.T) {
	for _, already := range []bool{true, false} {
		w := newWhole(t)
		d := w.again.Got[0]
		d.Receipt += "z"
		fast, ack := w.op(Dequeue, "q"), w.op(Ack, "q")
		fast.Fast, fast.Got = true, []Delivery{d}
		w.end(fast, w.second.Index)
		ack.Items = []Item{{Receipt: d.Receipt, Already: already}}
		w.end(ack, w.ack.Index)
		_, found := Accounting(&w.h)
		seen := slices.ContainsFunc(found, func(p Problem) bool { return p.Check == "accounting: acked and back" })
		if seen == already {
			t.Errorf("said to be done already %v: %v", already, found)
		}
	}
}

// TestBrokenStories breaks one thing each and wants the checker that is meant for
// it to see it.
func TestBrokenStories(t *testing.T) {
	for _, tc := range []struct {
		name, check string
		damage      func(w *whole)
	}{
		// Accounting.
		{"an answered job never comes", "accounting: lost", func(w *whole) { w.enqueue("q", "four") }},
		{"a job that nobody sent", "accounting: invented", func(w *whole) { w.first.Got[0].Body = "five" }},
		{"another id than was answered", "accounting: doubled", func(w *whole) { w.b.Made[0].ID = idOf(fsm.Key{Hi: 9, Lo: 9}) }},
		{"one id with two bodies", "accounting: altered", func(w *whole) { w.second.Got[1].ID = w.second.Got[0].ID }},
		{"another queue", "accounting: altered", func(w *whole) { w.first.Got[0].Queue = "r" }},
		{"back after its ack", "accounting: acked and back", func(w *whole) { w.ack.Call, w.ack.Ret = w.second.Call, w.second.Ret; w.again.Call = w.ack.Ret + 1 }},
		{"a refused job comes", "accounting: failed took effect", func(w *whole) { w.b.Outcome = Failed }},
		{"at most once, twice", "accounting: at most once", func(w *whole) { w.a.Jobs[0].AtMostOnce = true }},

		// Witness.
		{"an answered enqueue is not in the log", "witness: lost", func(w *whole) { w.b.Jobs[0].Body = "elsewhere" }},
		{"the log has what nobody sent", "witness: invented", func(w *whole) {
			w.next(&fsm.Enqueue{First: 100, Jobs: []fsm.NewJob{{Queue: "q", Body: []byte("ghost")}}})
		}},
		{"the log has a dequeue of nobody", "witness: invented", func(w *whole) { w.next(&fsm.Dequeue{Queues: []string{"q"}, Consumer: "ghost"}) }},
		{"a wrong index", "witness: index", func(w *whole) { w.a.Index++ }},
		{"an index beyond the log", "witness: complete", func(w *whole) { w.drained.Index += 100 }},
		{"another priority in the log", "witness: altered", func(w *whole) { w.a.Jobs[1].Priority = 7 }},
		{"another delay in the log", "witness: altered", func(w *whole) { w.b.Jobs[0].Delay = second }},
		{"a batch in two entries", "witness: whole", func(w *whole) {
			o := w.op(Enqueue, "q")
			o.Jobs = []Job{{Body: "h1", Priority: -1}, {Body: "h2", Priority: -1}}
			i := w.next(&fsm.Enqueue{First: 50, Jobs: []fsm.NewJob{{Queue: "q", Body: []byte("h1"), Priority: 4}}})
			w.next(&fsm.Enqueue{First: 51, Jobs: []fsm.NewJob{{Queue: "q", Body: []byte("h2"), Priority: 4}}})
			o.Made = []Made{{ID: idOf(fsm.Key{Hi: epochOne, Lo: 50})}, {ID: idOf(fsm.Key{Hi: epochOne, Lo: 51})}}
			w.end(o, i)
		}},
		{"half a batch", "witness: whole", func(w *whole) {
			w.b.Jobs = append(w.b.Jobs, Job{Body: "missing", Priority: -1})
			w.b.Made = append(w.b.Made, w.b.Made[0])
		}},
		{"another id than the log gives", "witness: result", func(w *whole) { w.a.Made[0].ID = w.a.Made[1].ID }},
		{"said to be a duplicate", "witness: result", func(w *whole) { w.a.Made[0].Duplicate = true }},
		{"a wrong count of deliveries", "witness: result", func(w *whole) { w.again.Got[0].Deliveries = 1 }},
		{"a wrong end of the lease", "witness: result", func(w *whole) { w.first.Got[0].LeaseUntilMs += 5 }},
		{"another job than the log hands out", "witness: result", func(w *whole) { w.first.Got[0], w.second.Got[0] = w.second.Got[0], w.first.Got[0] }},
		{"a job too few", "witness: result", func(w *whole) { w.second.Got = w.second.Got[:1] }},
		{"an answer from the past", "witness: result", func(w *whole) { w.read.Count.Ready-- }},
		{"nothing there, says an answer", "witness: false empty", func(w *whole) { w.empty.Index = w.b.Index; w.empty.Call, w.empty.Ret = w.b.Call, w.b.Ret }},
		{"an ack that the log refuses", "witness: result", func(w *whole) {
			o := w.settle(Ack, w.first, 0)
			o.Items[0].Code, o.Items[0].Already = "", false
			w.first.Got = nil
		}},
		{"an ack that is not in the log", "witness: lost", func(w *whole) { w.ack.Items[0].Receipt = w.first.Got[0].Receipt }},
		{"a refused ack took effect", "witness: failed took effect", func(w *whole) { w.ack.Outcome = Failed }},
		{"a refused enqueue took effect", "witness: failed took effect", func(w *whole) { w.b.Outcome = Failed }},
		{"a write before one that had ended", "witness: order", func(w *whole) { w.a.Call, w.a.Ret = w.b.Ret+1, w.b.Ret+2 }},
		{"a stale read", "witness: order", func(w *whole) { w.read.Index = w.a.Index; w.read.Count = Counts{Ready: 2} }},
		{"log time falls", "witness: replay", func(w *whole) {
			h := fsm.BatchHeader{Origin: nodeOne, Epoch: epochOne, Number: w.batch + 1, Term: 2, TimeMs: 5}
			w.log = append(w.log, Entry{Index: uint64(len(w.log)) + 2, Term: 2, Data: fsm.EncodeBatch(h, &fsm.NodeBack{})})
		}},
		{"one dequeue, two entries", "witness: replay", func(w *whole) {
			e := Entry{Index: uint64(len(w.log)) + 2, Term: 2, Data: fsm.EncodeBatch(fsm.BatchHeader{Origin: nodeOne, Epoch: epochOne, Number: w.batch + 1, TimeMs: w.ms}, &fsm.Dequeue{Request: 900, Queues: []string{"q"}, Consumer: "m1"})}
			w.log = append(w.log, e)
		}},
		{"a lost fast enqueue before one that is there", "witness: lost", func(w *whole) { w.a.Fast, w.a.Jobs[0].Body = true, "gone" }},
		{"a lost fast enqueue of a node that lives", "witness: lost", func(w *whole) {
			o := w.enqueue("q", "fast")
			o.Fast = true
			w.log = w.log[:len(w.log)-1]
		}},
		{"a hand-out that is kept from its client", "witness: result", func(w *whole) {
			o := w.op(Dequeue, "q")
			o.Mark, o.Wait = "parked", second
			w.next(&fsm.Dequeue{Request: 77, Queues: []string{"q"}, Max: 1, WaitMs: 1000, Consumer: "parked"})
			w.enqueue("q", "hidden")
			w.end(o, uint64(len(w.log))+1)
		}},
		{"a job that was given back as not written", "witness: result", func(w *whole) {
			w.enqueue("q", "back")
			d := w.dequeue("q", 1)
			r, _ := fsm.ParseReceipt(d.Got[0].Receipt)
			w.next(&fsm.GiveBack{Items: []fsm.Item{r.Item()}})
		}},

		{"nothing in any queue, says an answer", "witness: false empty", func(w *whole) {
			w.enqueue("r", "there")
			o := w.op(Dequeue, "q")
			o.More = []string{"r"}
			w.end(o, uint64(len(w.log))+1)
		}},
		{"a dequeue of more jobs than were asked for", "witness: altered", func(w *whole) { w.second.Max = 1 }},
		{"a dequeue of another queue in the log", "witness: altered", func(w *whole) { w.second.More = []string{"r"} }},
		{"a dequeue for another time in the log", "witness: altered", func(w *whole) { w.second.Lease += second }},
		{"lost, and in the log", "witness: fate", func(w *whole) {
			o := w.op(Fate, "")
			o.Mark, o.Code = w.a.Batch, "lost"
			w.end(o, uint64(len(w.log))+1)
		}},
		{"committed, and not in the log", "witness: fate", func(w *whole) {
			o := w.op(Fate, "")
			o.Mark, o.Code = fmt.Sprintf("%x.%d.%d", uint64(nodeOne), uint64(epochOne), w.batch+1), "committed"
			w.end(o, uint64(len(w.log))+1)
		}},

		// Black box.
		{"two leases", "black box: lease", func(w *whole) { w.h.Ops = without(w.h.Ops, w.nack) }},
		{"one grant, two answers", "black box: one grant", func(w *whole) { w.again.Got[0].Fence = w.first.Got[0].Fence }},
		{"early", "black box: delay", func(w *whole) { w.b.Jobs[0].Delay = second }},
		{"early after a nack", "black box: delay", func(w *whole) { w.nack.Items[0].Delay = second }},
		{"one failure too many", "black box: max failures", func(w *whole) { w.a.Jobs[0].MaxFailures = 1 }},
		{"two jobs for a dedup id", "black box: dedup", func(w *whole) { w.a.Jobs[0].DedupID, w.b.Jobs[0].DedupID = "k", "k" }},
		{"out of order", "black box: order", func(w *whole) {
			w.enqueue("q", "x")
			w.enqueue("q", "y")
			x, y := w.dequeue("q", 1), w.dequeue("q", 1)
			x.Got, y.Got = y.Got, x.Got
		}},
		{"found nothing", "black box: false empty", func(w *whole) {
			o := w.op(Dequeue, "q")
			o.Call, o.Ret = w.b.Ret+1, w.b.Ret+2
		}},

		// Linear.
		{"out of order, by the model", "linear", func(w *whole) {
			w.enqueue("q", "x")
			w.enqueue("q", "y")
			x, y := w.dequeue("q", 1), w.dequeue("q", 1)
			x.Got, y.Got = y.Got, x.Got
		}},
		{"found nothing, by the model", "linear", func(w *whole) { w.empty.Call, w.empty.Ret = w.b.Ret+1, w.b.Ret+2 }},
		{"two leases, by the model", "linear", func(w *whole) { w.h.Ops = without(w.h.Ops, w.nack) }},
		{"a stale count, by the model", "linear", func(w *whole) { w.read.Count.Leased = 1 }},
		{"an ack without a lease, by the model", "linear", func(w *whole) { w.ack.Items[0].Receipt = "none" }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWhole(t)
			tc.damage(w)
			wants(t, w.all(), tc.check)
		})
	}
}

// A dedup id that is over makes another job; one that is not, gives the first.
func TestDedupWindow(t *testing.T) {
	const minute = 60 * second
	for _, tc := range []struct {
		name      string
		at        time.Duration
		duplicate bool
		found     int
	}{
		{"within the window", 4 * minute, false, 1},
		{"the answer of another job within the window", 4 * minute, true, 1},
		{"behind the window", 5 * minute, false, 0},
		{"the answer of another job behind the window", 5 * minute, true, 0},
		{"the answer of an earlier job", -second, true, 0},
	} {
		one := func(at time.Duration, id string, duplicate bool) *Op {
			return &Op{Kind: Enqueue, Outcome: OK, Queue: "q", Call: at, Ret: at + second/10, Jobs: []Job{{DedupID: "k"}}, Made: []Made{{ID: id, Duplicate: duplicate}}}
		}
		var p problems
		dedup(&p, &History{Ops: []*Op{one(second, "a", false), one(second+tc.at, "b", tc.duplicate)}})
		if len(p.all()) != tc.found {
			t.Errorf("%s: %v", tc.name, p.all())
		}
	}
}

func without(ops []*Op, gone *Op) (left []*Op) {
	for _, o := range ops {
		if o != gone {
			left = append(left, o)
		}
	}
	return left
}

// A fast enqueue may be lost with the life of its node, as a suffix.
func TestLostSuffix(t *testing.T) {
	w := newWhole(t)
	o := w.enqueue("q", "fast")
	o.Fast = true
	w.log = w.log[:len(w.log)-1]
	w.h.Events = append(w.h.Events, Event{From: o.Ret, To: o.Ret + second, Node: 0, Ended: true})
	if _, p := Witness(&w.h, w.log); len(p) > 0 {
		t.Error(p)
	}
	if sum, _ := Accounting(&w.h); sum.FastLost != 1 {
		t.Errorf("%d fast ones lost", sum.FastLost)
	}
}

// When a majority lost its boot, leases and delays may end early.
func TestReboot(t *testing.T) {
	w := newWhole(t)
	w.h.Ops = without(w.h.Ops, w.nack)
	w.b.Jobs[0].Delay = second
	w.h.Events = []Event{{From: w.b.Call, To: w.drained.Ret, Reboot: true}}
	if p := BlackBox(&w.h); len(p) > 0 {
		t.Error(p)
	}
	// A window ends there, and is none if it has not begun.
	if windows, p := Linear(&w.h, "q", nil); len(p) > 0 || windows[0].Ops != 1 {
		t.Errorf("%v %+v", p, windows[0])
	}
	w.h.Events[0].From = 0
	if windows, p := Linear(&w.h, "q", nil); len(p) > 0 || windows[0].Skipped == "" {
		t.Errorf("%v %+v", p, windows[0])
	}
	w.h.Events = nil
	if windows, _ := Linear(&w.h, "q", nil); windows[0].Skipped != "" {
		t.Errorf("without a reboot: %+v", windows[0])
	}
}

// A fast dequeue may stand in the log for two nodes, of which the first got nothing.
func TestPassedOn(t *testing.T) {
	w := newWhole(t)
	op := &fsm.Dequeue{Request: 300, Queues: []string{"q"}, Max: 1, Consumer: "both"}
	w.next(op)
	e := Entry{Index: uint64(len(w.log)) + 2, Term: 2, Data: fsm.EncodeBatch(fsm.BatchHeader{Origin: 5, Epoch: 1<<32 | 9, TimeMs: w.ms}, &fsm.NodeStart{})}
	second := Entry{Index: e.Index + 1, Term: 2, Data: fsm.EncodeBatch(fsm.BatchHeader{Origin: 5, Epoch: 1<<32 | 9, Number: 1, TimeMs: w.ms}, op)}
	w.log = append(w.log, e, second)
	w.h.Ops = append(w.h.Ops, &Op{Kind: Dequeue, Queue: "q", Mark: "both", Max: 1, Outcome: Unknown, Ret: Never})
	if _, p := Witness(&w.h, w.log); len(p) > 0 {
		t.Error(p)
	}
	third := Entry{Index: second.Index + 1, Term: 2, Data: fsm.EncodeBatch(fsm.BatchHeader{Origin: 5, Epoch: 1<<32 | 9, Number: 2, TimeMs: w.ms}, op)}
	_, p := Witness(&w.h, append(w.log, third))
	wants(t, p, "witness: replay")
}

// What the log says of unknown outcomes counts in windows: an enqueue, a dequeue and
// TestAcksOfOneEntry: an ack without an answer and the one sent after it share an
// entry. The answer is the result of one of the two, and of nothing else.
func TestAcksOfOneEntry(t *testing.T) {
	s := newStory(t)
	s.enqueue("q", "one")
	got := s.dequeue("q", 1).Got[0]
	r, _ := fsm.ParseReceipt(got.Receipt)
	ack := &fsm.Ack{Items: []fsm.Item{r.Item()}}
	untold, again := s.op(Ack, "q"), s.op(Ack, "q")
	untold.Items = []Item{{Receipt: got.Receipt}}
	untold.Outcome, untold.Ret = Unknown, Never
	again.Items = []Item{{Receipt: got.Receipt, Already: true}}
	s.end(again, s.next(ack, ack))
	for _, already := range []bool{true, false} {
		again.Items[0].Already = already
		for _, problem := range s.all() {
			t.Errorf("already %v: %v", already, problem)
		}
	}
	again.Items[0].Dead = true
	wants(t, s.all(), "witness: result")
}

// an ack that happened, and ones that did not. Without it the window is skipped.
func TestUnknownsInWindows(t *testing.T) {
	w := newWhole(t)
	w.enqueue("q", "four")
	held := w.dequeue("q", 1)
	w.dequeue("q", 1) // finds nothing
	for _, op := range []*Op{w.b, held, w.drainAck, w.nack} {
		op.Outcome, op.Ret, op.Got = Unknown, Never, nil
	}
	lost := w.op(Dequeue, "q") // that never came into the log
	lost.Outcome, lost.Ret, lost.Mark, lost.Max, lost.Lease = Unknown, Never, "lost", 3, 2*second
	if windows, _ := Linear(&w.h, "q", nil); windows[0].Skipped == "" {
		t.Error("not skipped, though nobody knows what happened")
	}
	r, _ := Witness(&w.h, w.log)
	windows, p := Linear(&w.h, "q", r)
	if len(p) > 0 || windows[0].Skipped != "" {
		t.Errorf("%v %+v", p, windows[0])
	}
	// What is resolved is held to what it did.
	w.again.Got[0].Body = w.second.describe()
	_, p = Linear(&w.h, "q", r)
	wants(t, p, "linear")
}

// What happened behind all that was answered is nothing to a window: leases may be
// over by then.
func TestLateUnknownInWindows(t *testing.T) {
	s := newStory(t)
	s.enqueue("q", "a")
	s.dequeue("q", 1)
	late := s.op(Dequeue, "q")
	late.Outcome, late.Ret, late.Mark, late.Max, late.Lease = Unknown, Never, "late", 1, 2*second
	s.wait(3 * second)
	s.next(&fsm.Dequeue{Request: 500, Queues: []string{"q"}, Max: 1, LeaseMs: 2000, Consumer: "late"})
	if len(s.o.dequeues["late"].jobs) != 1 {
		t.Fatal("the lease is not over")
	}
	r, _ := Witness(&s.h, s.log)
	if windows, p := Linear(&s.h, "q", r); len(p) > 0 || windows[0].Skipped != "" {
		t.Errorf("%v %+v", p, windows[0])
	}
}

// A dequeue that was told that nothing came, or was refused, may hold a job that its
// node could not give back.
func TestUntoldInWindows(t *testing.T) {
	for _, outcome := range []Outcome{OK, Failed} {
		s := newStory(t)
		o := s.op(Dequeue, "q")
		o.Mark, o.Max, o.Lease, o.Wait = "untold", 1, 2*second, second
		at := s.next(&fsm.Dequeue{Request: 700, Queues: []string{"q"}, Max: 1, LeaseMs: 2000, WaitMs: 1000, Consumer: "untold"})
		s.enqueue("q", "a")
		s.end(o, at)
		o.Outcome = outcome
		s.count("q")
		r, _ := Witness(&s.h, s.log)
		if windows, p := Linear(&s.h, "q", r); len(p) > 0 || windows[0].Skipped != "" {
			t.Errorf("%v: %v %+v", outcome, p, windows[0])
		}
		_, p := Linear(&s.h, "q", nil)
		wants(t, p, "linear")
	}
}

// A dequeue that passed jobs on took them for a moment.
func TestPassedOnInWindows(t *testing.T) {
	w := newWhole(t)
	w.enqueue("q", "back")
	o := w.op(Dequeue, "q")
	o.Mark, o.Max, o.Lease = "gone", 1, 2*second
	w.next(&fsm.Dequeue{Request: 400, Queues: []string{"q"}, Max: 1, LeaseMs: 2000, Consumer: "gone"})
	empty := w.dequeue("q", 1) // while it is held
	g := w.o.dequeues["gone"].jobs[0]
	back := w.next(&fsm.GiveBack{Items: []fsm.Item{{Key: g.key, Grant: g.grant, Tag: g.tag}}})
	w.end(o, back) // and is told that nothing came
	w.settle(Ack, w.dequeue("q", 1), 0)
	if len(empty.Got) > 0 {
		t.Fatal("the job was not held")
	}
	r, p := Witness(&w.h, w.log)
	windows, more := Linear(&w.h, "q", r)
	if p = append(p, more...); len(p) > 0 || windows[0].Skipped != "" {
		t.Errorf("%v %+v", p, windows[0])
	}
	_, p = Linear(&w.h, "q", nil)
	wants(t, p, "linear")
}

func hash(m *fsm.Machine) string { return fmt.Sprintf("%016x", m.Chain()) }

func TestChains(t *testing.T) {
	members := []fsm.Member{{ID: nodeOne, Name: "n1", Peer: "http://h:1"}}
	m := fsm.New(members)
	w := newWhole(t)
	for _, e := range w.log {
		if _, err := m.Apply(e.Index, e.Term, e.Data, fsm.Self{}); err != nil {
			t.Fatal(err)
		}
		w.h.Chains = append(w.h.Chains, Chain{"n1", e.Index, hash(m)}, Chain{"n2", e.Index, hash(m)})
	}
	if p := Chains(&w.h, w.log, members); len(p) > 0 {
		t.Error(p)
	}
	w.h.Chains[3].Hash = "0"
	wants(t, Chains(&w.h, w.log, nil), "chain: nodes")
	for i := range w.h.Chains {
		w.h.Chains[i].Hash = "0"
	}
	wants(t, Chains(&w.h, w.log, members), "chain: replay")
}

func TestMerge(t *testing.T) {
	e := func(i, term uint64) Entry { return Entry{Index: i, Term: term} }
	log, p := Merge(map[string]map[uint64]Entry{"n1": {2: e(2, 1), 3: e(3, 1)}, "n2": {3: e(3, 1), 4: e(4, 2)}})
	if len(p) > 0 || len(log) != 3 {
		t.Errorf("%v %v", log, p)
	}
	_, p = Merge(map[string]map[uint64]Entry{"n1": {2: e(2, 1)}, "n2": {2: e(2, 2)}})
	wants(t, p, "log: one entry")
	log, p = Merge(map[string]map[uint64]Entry{"n1": {2: e(2, 1), 7: e(7, 1)}, "n2": {2: e(2, 1), 3: e(3, 1)}, "n3": {6: e(6, 1), 9: e(9, 1)}})
	wants(t, p, "log: complete")
	for i, says := range []string{
		"no node has entries 4 to 5 of 9: before it n2 ends at 3, n1 ends at 2; behind it n3 begins at 6, n1 begins at 7",
		"no node has entries 8 to 8 of 9: before it n1 ends at 7, n3 ends at 6, n2 ends at 3; behind it n3 begins at 9",
	} {
		if len(p) != 2 || p[i].Text != says || len(log) != 2 {
			t.Errorf("%v %v", log, p)
		}
	}
}

func TestVacuous(t *testing.T) {
	w := newWhole(t)
	sum, _ := Accounting(&w.h)
	windows, _ := Linear(&w.h, "q", nil)
	replay, _ := Witness(&w.h, w.log)
	replay.Did["tx"] = 1
	w.h.Events = []Event{{What: "kill -9 of n1"}}
	enough := Least{Ops: 5, Kinds: map[Kind]int{Enqueue: 2}, Terms: 1, Events: []string{"kill"}, Windows: 1, Jobs: 3, Did: map[string]int{"tx": 1}}
	if p := Vacuous(&w.h, sum, w.log, windows, replay, enough); len(p) > 0 {
		t.Error(p)
	}
	for _, more := range []Least{{Ops: 50}, {Kinds: map[Kind]int{Extend: 1}}, {Terms: 2}, {Events: []string{"power cut"}}, {Windows: 2}, {Jobs: 4}, {Chains: 1},
		{Appended: 1}, {Read: 1}, {Did: map[string]int{"dead letter": 1}}} {
		wants(t, Vacuous(&w.h, sum, w.log, windows, replay, more), "vacuous")
	}
	skipped := make([]*Window, 30)
	for i := range skipped {
		skipped[i] = &Window{}
	}
	for i := range 4 {
		skipped[i].Skipped = "nobody knows"
	}
	wants(t, Vacuous(&w.h, sum, w.log, skipped, replay, Least{}), "vacuous")
}
