package check

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"raftq/fsm"
)

// hard is a window that the general search cannot decide: it tries an enqueue that
// was called first, and then all orders of the others, before it sees that this one
// came last.
func hard(t *testing.T) (s *story, late, count *Op) {
	s = newStory(t)
	late = s.op(Enqueue, "q")
	late.Jobs = []Job{{Body: "late", Priority: -1}}
	var others []*Op
	for i := range 20 {
		others = append(others, s.enqueue("q", fmt.Sprint(i)))
	}
	count = s.count("q")
	late.Made = []Made{{ID: idOf(fsm.Key{Hi: epochOne, Lo: s.first})}}
	s.end(late, s.next(&fsm.Enqueue{First: s.first, Jobs: []fsm.NewJob{{Queue: "q", Body: []byte("late"), Priority: 4}}}))
	for _, o := range others {
		o.Call, o.Ret = others[0].Call, others[19].Ret
	}
	return s, late, count
}

const shortSearch = 100 * time.Millisecond

// What the search does not decide in its time the log's order does.
func TestHardWindow(t *testing.T) {
	s, _, _ := hard(t)
	r, p := Witness(&s.h, s.log)
	windows, more := linear(&s.h, "q", r, shortSearch)
	if p = append(p, more...); len(p) > 0 || !windows[0].ByLog || windows[0].bad {
		t.Errorf("%v %+v", p, windows[0])
	}
	one := Result{h: &s.h, Windows: windows, Length: s.clock}
	const want = "1 windows with 22 operations checked (1 by the log's order"
	if line := one.Summary(); !strings.Contains(line, want) {
		t.Errorf("the summary is silent about it: %s", line)
	}
	if page := string(Page([]*Result{&one})); !strings.Contains(page, "(1 by the log&#39;s order") {
		t.Error("the page is silent about it")
	}
}

// When the log's order does not explain the answers either, the window counts as
// failed, and is kept.
func TestHardWindowBroken(t *testing.T) {
	for _, tc := range []struct {
		name, why string
		damage    func(s *story, late, count *Op)
	}{
		{"an answer", "cannot have answered so", func(_ *story, _, count *Op) { count.Count.Ready-- }},
		{"another place in the log", "cannot have answered so", func(_ *story, late, count *Op) { count.Index = late.Index }},
		{"clocks", "stands behind", func(_ *story, late, count *Op) { late.Ret = count.Call - 1 }},
		{"an entry that is not there", "is none of them, or stands there twice", nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s, late, count := hard(t)
			if tc.damage == nil {
				m := newQueueModel(s.h.Ops)
				r, _ := Witness(&s.h, s.log)
				order := m.logOrder(s.h.Ops, r)
				if err := m.certify(s.h.Ops, order); err != nil {
					t.Fatal(err)
				}
				for _, bad := range [][]*Op{append([]*Op{order[0]}, order...), append([]*Op{{}}, order...)} {
					if err := m.certify(s.h.Ops, bad); err == nil || !strings.Contains(err.Error(), tc.why) {
						t.Errorf("%v", err)
					}
				}
				if err := m.certify(s.h.Ops, order[:5]); err == nil || !strings.Contains(err.Error(), "has no place in it") {
					t.Errorf("%v", err)
				}
				return
			}
			tc.damage(s, late, count)
			r, _ := Witness(&s.h, s.log)
			windows, p := linear(&s.h, "q", r, shortSearch)
			wants(t, p, "linear: timeout")
			if len(p) == 1 && !strings.Contains(p[0].Text, tc.why) {
				t.Errorf("%v, not for %q", p[0], tc.why)
			}
			if windows[0].ByLog || !windows[0].bad {
				t.Errorf("%+v", windows[0])
			}
		})
	}
	s, _, _ := hard(t)
	_, p := linear(&s.h, "q", nil, shortSearch)
	wants(t, p, "linear: timeout") // without a log
}

// The search finds an order in windows of many clients, whose answers are lost now
// and then, and the log's order is always one.
func TestBusyWindows(t *testing.T) {
	for seed := range uint64(40) {
		b := newBusy(t, seed, 2+int(seed%4), 150, 20*time.Millisecond, int(seed%3)*3)
		r, p := Witness(&b.h, b.log)
		for _, problem := range p {
			t.Fatalf("seed %d: %v", seed, problem)
		}
		windows, p := Linear(&b.h, "q", r)
		if len(p) > 0 || windows[0].Skipped != "" || windows[0].Ops < 100 {
			t.Errorf("seed %d: %v %+v", seed, p, windows[0])
		}
		ops := new(Window).gather(&b.h, b.h.Ops, r)
		m := newQueueModel(ops)
		if err := m.certify(ops, m.logOrder(ops, r)); err != nil {
			t.Errorf("seed %d: %v", seed, err)
		}
	}
}

// A window is checked until the first of its leases may be over. What was answered
// later counts if it is in the log before what was answered by then.
func TestWindowUntilLease(t *testing.T) {
	s := newStory(t)
	s.enqueue("q", "a")
	d := s.dequeue("q", 1)
	late := s.op(Enqueue, "q")
	late.Jobs = []Job{{Body: "late", Priority: -1}}
	index := s.next(&fsm.Enqueue{First: 100, Jobs: []fsm.NewJob{{Queue: "q", Body: []byte("late"), Priority: 4}}})
	count := s.count("q")
	later := s.op(Dequeue, "q") // of what is there, and of the job whose lease is over
	later.Max, later.Lease, later.Mark = 2, 2*second, "later"
	s.wait(3 * second)
	late.Made = []Made{{ID: idOf(fsm.Key{Hi: epochOne, Lo: 100})}}
	s.end(late, index)
	at := s.next(&fsm.Dequeue{Request: 500, Queues: []string{"q"}, Max: 2, LeaseMs: 2000, Consumer: "later"})
	s.got(later)
	s.end(later, at)
	s.count("q")
	if d.Got[0].Body != "a" || later.Got[0].Body != "a" || count.Count.Ready != 1 {
		t.Fatalf("%+v, then %+v", d.Got, later.Got)
	}
	replay, p := Witness(&s.h, s.log)
	windows, more := Linear(&s.h, "q", replay)
	if p = append(p, more...); len(p) > 0 || windows[0].Ops != 4 {
		t.Errorf("%v %+v", p, windows[0])
	}
	if windows, _ := Linear(&s.h, "q", nil); windows[0].Skipped == "" {
		t.Errorf("nobody knows what was done by the end, and it counts: %+v", windows[0])
	}
	count.Count.Ready = 2
	_, p = Linear(&s.h, "q", replay)
	wants(t, p, "linear")
}

// A window is checked until a majority loses its boot. What does not add up by then is
// found, and what was answered behind it does not count.
func TestWindowUntilReboot(t *testing.T) {
	s := newStory(t)
	s.enqueue("q", "a", "b")
	d := s.dequeue("q", 1)
	count := s.count("q")
	s.h.Events = []Event{{From: s.clock, To: s.clock + second, Reboot: true}}
	s.wait(second)
	behind := s.count("q")
	behind.Count.Ready++ // the lease may be over
	replay, _ := Witness(&s.h, s.log)
	windows, p := Linear(&s.h, "q", replay)
	if len(p) > 0 || windows[0].Ops != 3 {
		t.Errorf("%v %+v", p, windows[0])
	}
	for what, damage := range map[string]func() (mend func()){
		"a job that nobody sees": func() func() { count.Count.Ready--; return func() { count.Count.Ready++ } },
		"out of order": func() func() {
			d.Got[0].Body = "b"
			return func() { d.Got[0].Body = "a" }
		},
	} {
		mend := damage()
		if _, p := Linear(&s.h, "q", replay); len(p) != 1 || p[0].Check != "linear" {
			t.Errorf("%s: %v", what, p)
		}
		mend()
	}
}

// blind is the model without its look ahead.
func blind(ops []*Op) *queueModel {
	m := newQueueModel(ops)
	for _, f := range m.jobs {
		*f = lFirst{n: f.n, from: Never, to: Never}
	}
	return m
}

func (m *queueModel) check(ops []*Op) porcupine.CheckResult {
	var history []porcupine.Operation
	for _, op := range ops {
		history = append(history, porcupine.Operation{Input: op, Output: op, Call: int64(op.Call), Return: int64(op.Ret)})
	}
	return porcupine.CheckOperationsTimeout(m.porcupine(), history, 5*time.Second)
}

// The look ahead refuses no order that a model without it takes, and the log's order
// explains nothing that has none: in small windows, most of them broken.
func TestLookAhead(t *testing.T) {
	verdicts := map[porcupine.CheckResult]int{}
	for seed := range uint64(1500) {
		b := newBusy(t, seed, 3, 14, 20*time.Millisecond, 0)
		r, _ := Witness(&b.h, b.log)
		ops := new(Window).gather(&b.h, b.h.Ops, r)
		rng := rand.New(rand.NewPCG(seed, 2))
		for range rng.IntN(3) {
			x, y := ops[rng.IntN(len(ops))], ops[rng.IntN(len(ops))]
			switch rng.IntN(4) {
			case 0: // an answer of another one
				if x.Kind == Dequeue && y.Kind == Dequeue {
					x.Got, y.Got, x.Max, y.Max = y.Got, x.Got, y.Max, x.Max
				}
			case 1: // other times
				x.Call, x.Ret, y.Call, y.Ret = y.Call, y.Ret, x.Call, x.Ret
			case 2:
				x.Ret = x.Call + (x.Ret-x.Call)/4
			case 3:
				x.Count.Ready++
			}
		}
		m := newQueueModel(ops)
		got, want := m.check(ops), blind(ops).check(ops)
		verdicts[want]++
		if got != want {
			t.Errorf("seed %d: %v, without the look ahead %v", seed, got, want)
		}
		if err := m.certify(ops, m.logOrder(ops, r)); err == nil && want == porcupine.Illegal {
			t.Errorf("seed %d: the log's order explains what has no order", seed)
		}
	}
	if verdicts[porcupine.Ok] < 250 || verdicts[porcupine.Illegal] < 250 {
		t.Errorf("tested too little: %v", verdicts)
	}
}
