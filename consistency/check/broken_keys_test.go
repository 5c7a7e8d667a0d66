package check

import (
	"testing"

	"raftq/fsm"
)

func (s *story) purge(queue string) *Op {
	o := s.op(Purge, queue)
	index := s.next(&fsm.Purge{Queue: queue, States: fsm.StateReady | fsm.StateDelayed})
	told := s.o.told[o.key()]
	o.Moved = told[len(told)-1].count
	s.end(o, index)
	return o
}

// keys is a story of unique keys and of a purge.
type keys struct {
	*story
	holder, refused, first, ack, next *Op
	gone, kept, held, purge, late     *Op
}

func newKeys(t testing.TB) *keys {
	s := &keys{story: newStory(t)}
	s.configure("p", 0, "")
	s.holder = s.enqueueJobs("u", Job{Body: "one", UniqueKey: "k"})
	s.refused = s.enqueueJobs("u", Job{Body: "two", UniqueKey: "k"}, Job{Body: "other", UniqueKey: "l"})
	s.first = s.dequeue("u", 1)
	s.ack = s.settle(Ack, s.first, 0)
	s.next = s.enqueueJobs("u", Job{Body: "three", UniqueKey: "k"})
	s.settle(Ack, s.dequeue("u", 3), 0)

	s.kept = s.enqueue("p", "kept")
	s.held = s.dequeue("p", 1)
	s.gone = s.enqueueJobs("p", Job{Body: "ready"}, Job{Body: "delayed", Delay: second})
	s.purge = s.story.purge("p")
	s.dequeue("p", 1)
	s.settle(Release, s.held, 0)
	s.settle(Ack, s.dequeue("p", 1), 0)
	s.late = s.enqueue("p", "late")
	s.settle(Ack, s.dequeue("p", 1), 0)
	return s
}

func TestGoodKeys(t *testing.T) {
	s := newKeys(t)
	if s.refused.Made[0].Code != "not_unique" || s.refused.Made[1].Code != "" || s.next.Made[0].Code != "" || s.purge.Moved != 2 {
		t.Fatalf("not the story that was meant: %+v %+v, %d purged", s.refused.Made, s.next.Made, s.purge.Moved)
	}
	for _, problem := range s.all() {
		t.Error(problem)
	}
	r, _ := Witness(&s.h, s.log)
	if r.Did["refused by a unique key"] != 1 || r.Did["purged"] != 2 {
		t.Errorf("%v", r.Did)
	}
	s.purge.Outcome, s.purge.Ret = Unknown, Never
	for _, problem := range s.all() {
		t.Error("without an answer to the purge: ", problem)
	}
}

// TestPurgesOfOneEntry: two of one queue may share an entry, and nothing but their
// results tells them apart.
func TestPurgesOfOneEntry(t *testing.T) {
	s := newStory(t)
	s.enqueue("p", "one")
	purge := &fsm.Purge{Queue: "p", States: fsm.StateReady | fsm.StateDelayed}
	for i, moved := range [][2]int{{1, 0}, {0, 1}} {
		a, b := s.op(Purge, "p"), s.op(Purge, "p")
		index := s.next(purge, purge)
		a.Moved, b.Moved = moved[0], moved[1]
		s.end(a, index)
		s.end(b, index)
		s.enqueue("p", []string{"two", "three"}[i])
	}
	s.settle(Ack, s.dequeue("p", 1), 0)
	for _, problem := range s.all() {
		t.Error(problem)
	}
	s.h.Ops[1].Moved = 0 // as the other one
	wants(t, s.all(), "witness: result")
}

// TestBrokenKeys breaks one thing each of unique keys and purges.
func TestBrokenKeys(t *testing.T) {
	for _, tc := range []struct {
		name, check string
		damage      func(s *keys)
	}{
		{"taken, though the log refuses it", "witness: result", func(s *keys) { s.refused.Made[0].Code = "" }},
		{"refused, though the log takes it", "witness: result", func(s *keys) { s.next.Made[0].Code = "not_unique" }},
		{"refused for another job than the log's", "witness: result", func(s *keys) { s.refused.Made[0].ID = s.refused.Made[1].ID }},
		{"another key in the log", "witness: altered", func(s *keys) { s.holder.Jobs[0].UniqueKey = "m" }},
		{"two live jobs with a key", "black box: unique key", func(s *keys) { s.refused.Made[0].Code = "" }},
		{"refused for a job that is done", "black box: unique key", func(s *keys) { s.next.Made[0] = Made{ID: s.holder.Made[0].ID, Code: "not_unique"} }},
		{"refused for a job with another key", "black box: unique key", func(s *keys) { s.refused.Made[0].ID = s.refused.Made[1].ID }},
		{"a refused job comes", "accounting: failed took effect", func(s *keys) { s.first.Got[0].Body = "two" }},

		{"a purge of another number", "witness: result", func(s *keys) { s.purge.Moved++ }},
		{"a purge that is not in the log", "witness: lost", func(s *keys) { s.purge.Queue = "u" }},
		{"a purge of nobody", "witness: invented", func(s *keys) { s.story.next(&fsm.Purge{Queue: "u", States: fsm.StateReady | fsm.StateDelayed}) }},
		{"a purge twice", "witness: twice", func(s *keys) { s.story.next(&fsm.Purge{Queue: "p", States: fsm.StateReady | fsm.StateDelayed}) }},
		{"a refused purge took effect", "witness: failed took effect", func(s *keys) { s.purge.Outcome = Failed }},
		{"gone without a purge", "accounting: lost", func(s *keys) { s.h.Ops = without(s.h.Ops, s.purge) }},
		{"gone, though it was sent after the purge", "accounting: lost", func(s *keys) {
			s.h.Ops = s.h.Ops[:len(s.h.Ops)-2]
		}},
		{"purged, and there", "black box: purge", func(s *keys) { s.late.Call, s.late.Ret = s.gone.Call, s.gone.Ret }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := newKeys(t)
			tc.damage(s)
			wants(t, s.all(), tc.check)
		})
	}
}
