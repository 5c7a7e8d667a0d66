package check

import (
	"testing"

	"raftq/fsm"
)

// handle holds, requeues or cancels a job.
func (s *story) handle(kind Kind, id string) *Op {
	o := s.op(kind, "h")
	o.Mark = id
	parsed, _ := fsm.ParseID(id)
	keys := []fsm.Key{parsed.Key}
	var op fsm.Op
	switch kind {
	case Hold:
		op = &fsm.Hold{Keys: keys}
	case Requeue:
		op = &fsm.Requeue{Keys: keys}
	case Cancel:
		op = &fsm.Cancel{Keys: keys}
	}
	index := s.next(op)
	told := s.o.told[o.key()]
	o.Did, o.Code = told[len(told)-1].did, codeText(told[len(told)-1].code)
	s.end(o, index)
	return o
}

// jobs is a story of jobs that are held, requeued and cancelled.
type jobs struct {
	*story
	made, first, second, last              *Op
	hold, requeue, cancel, ask, gone, tell *Op
}

func newJobs(t testing.TB) *jobs {
	s := &jobs{story: newStory(t)}
	s.made = s.enqueue("h", "one", "two", "three")
	one, two := s.made.Made[0].ID, s.made.Made[1].ID
	s.hold = s.handle(Hold, one)
	s.handle(Hold, one)
	s.cancel = s.handle(Cancel, two)
	s.first = s.dequeue("h", 3)
	s.ask = s.handle(Cancel, s.made.Made[2].ID)
	s.tell = s.settle(Extend, s.first, 0)
	s.tell.Items[0].Cancel = true
	s.settle(Ack, s.first, 0)
	s.requeue = s.handle(Requeue, one)
	s.second = s.dequeue("h", 3)
	s.handle(Requeue, one) // its holder loses it
	s.last = s.dequeue("h", 3)
	s.settle(Ack, s.last, 0)
	s.gone = s.handle(Hold, one)
	return s
}

func TestGoodJobs(t *testing.T) {
	s := newJobs(t)
	if s.ask.Did != "cancel" || s.gone.Code != "job_gone" || len(s.first.Got) != 1 || len(s.last.Got) != 1 {
		t.Fatalf("not the story that was meant: %+v %+v %v %v", s.ask, s.gone, s.first.Got, s.last.Got)
	}
	for _, problem := range s.all() {
		t.Error(problem)
	}
	for _, o := range []*Op{s.hold, s.requeue, s.cancel} {
		o.Outcome, o.Ret = Unknown, Never
	}
	for _, problem := range s.all() {
		t.Error("without answers: ", problem)
	}
	// Who was handed a job knows its id, though its enqueue had no answer.
	s = newJobs(t)
	s.made.Outcome, s.made.Ret, s.made.Made = Unknown, Never, nil
	for _, problem := range s.all() {
		t.Error("without an answer to the enqueue: ", problem)
	}
}

// TestBrokenJobs breaks one thing each of what is done to jobs by id.
func TestBrokenJobs(t *testing.T) {
	for _, tc := range []struct {
		name, check string
		damage      func(s *jobs)
	}{
		{"a hold that is not in the log", "witness: lost", func(s *jobs) { s.hold.Mark = s.made.Made[1].ID }},
		{"a hold that had happened", "witness: lost", func(s *jobs) { s.hold.Did = "already" }},
		{"a hold of a job that is gone", "witness: lost", func(s *jobs) { s.gone.Code = "" }},
		{"deleted, though somebody had it", "witness: lost", func(s *jobs) { s.ask.Did = "" }},
		{"a holder who is not asked to stop", "witness: result", func(s *jobs) { s.tell.Items[0].Cancel = false }},
		{"a cancel of nobody", "witness: invented", func(s *jobs) {
			s.next(&fsm.Cancel{Keys: []fsm.Key{{Hi: 9, Lo: 9}}})
		}},
		{"a refused cancel took effect", "witness: failed took effect", func(s *jobs) { s.cancel.Outcome = Failed }},
		{"gone without a cancel", "accounting: lost", func(s *jobs) { s.h.Ops = without(s.h.Ops, s.cancel) }},
		{"gone, though its holder was asked alone", "accounting: lost", func(s *jobs) { s.cancel.Did = "cancel" }},
		{"there after its cancel", "black box: cancel", func(s *jobs) { s.second.Got[0].Body = "two" }},
		{"there while it is held", "black box: hold", func(s *jobs) { s.first.Got[0].Body = "one" }},
		{"two holders", "black box: lease", func(s *jobs) {
			for _, o := range s.h.Ops {
				if o.Kind == Requeue && o != s.requeue {
					o.Outcome = Failed
				}
			}
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := newJobs(t)
			tc.damage(s)
			wants(t, s.all(), tc.check)
		})
	}
}
