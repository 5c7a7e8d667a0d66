package check

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"
)

// queueModel is a queue without time, for one window.
//
// Jobs of a queue are handed out for the first time in the order in which they came.
// So the model looks ahead to who was handed out when, and refuses an enqueue behind a
// job that it cannot stand behind. Else a search that has guessed the order of two
// enqueues wrong sees it at their dequeues only, after it has guessed all that is
// between, and tries all that again and again.
type queueModel struct {
	jobs map[string]*lFirst // by body
}

// lFirst is what a window says of how a job was handed out for the first time.
type lFirst struct {
	n        uint64
	times    int           // it was handed out
	from, to time.Duration // not before and not after; both Never if it was not at all
	// Of one that was handed out once: what came right before it and right behind it
	// in the same answer, nil if that is not known or nothing; and whether it was the
	// last of an answer that shows fewer jobs than were asked for.
	before, behind *lFirst
	last           bool
}

func newQueueModel(ops []*Op) *queueModel {
	m := &queueModel{map[string]*lFirst{}}
	for _, op := range ops {
		for i := range op.Jobs {
			m.jobs[op.Jobs[i].Body] = &lFirst{n: uint64(len(m.jobs)), from: Never, to: Never}
		}
	}
	for _, op := range ops {
		for i := range op.Got {
			if f := m.jobs[op.Got[i].Body]; f != nil {
				f.times++
				f.from, f.to = min(f.from, op.Call), min(f.to, op.Ret)
			}
		}
	}
	once := func(got []Delivery, i int) *lFirst {
		if f := m.jobs[got[i].Body]; f != nil && f.times == 1 {
			return f
		}
		return nil
	}
	for _, op := range ops {
		for i := range op.Got {
			f := once(op.Got, i)
			if f == nil {
				continue
			}
			// What was handed out before comes first, so behind f everything is new.
			if i > 0 {
				f.before = once(op.Got, i-1)
			}
			if i+1 < len(op.Got) {
				f.behind = m.jobs[op.Got[i+1].Body]
			} else {
				f.last = len(op.Got) < op.Max
			}
		}
	}
	return m
}

// mayFollow tells whether a job may come behind those that are ready, as far as its
// window shows.
func (f *lFirst) mayFollow(ready []lJob) bool {
	for i := range ready {
		if !ready[i].again && f.to < ready[i].first.from {
			return false // it was handed out before that one
		}
	}
	if len(ready) == 0 || ready[len(ready)-1].again {
		return f.before == nil
	}
	end := ready[len(ready)-1].first
	return (end.behind == nil || end.behind == f) && (f.before == nil || f.before == end) && !end.last
}

// lState is a queue. It is never changed, only replaced.
type lState struct {
	seq    int
	ready  []lJob // by place
	leased []lJob // by place
}

type lJob struct {
	place   int
	body    string
	first   *lFirst
	again   bool   // it was handed out before
	receipt string // of its lease
}

func (m *queueModel) porcupine() porcupine.Model {
	return porcupine.Model{
		Init: func() any { return lState{} },
		Step: func(state, in, _ any) (bool, any) { return m.step(state.(lState), in.(*Op)) },
		Equal: func(a, b any) bool {
			x, y := a.(lState), b.(lState)
			return x.seq == y.seq && slices.Equal(x.ready, y.ready) && slices.Equal(x.leased, y.leased)
		},
		// Orders of the same operations differ in the places of jobs alone.
		Hash: func(s any) uint64 {
			x := s.(lState)
			h := uint64(x.seq)
			for _, jobs := range [][]lJob{x.ready, x.leased} {
				for i := range jobs {
					h = (h^jobs[i].first.n)*0x9e3779b97f4a7c15 + uint64(jobs[i].place)
				}
			}
			return h
		},
		DescribeOperation: func(in, _ any) string { return in.(*Op).describe() },
		DescribeState: func(s any) string {
			x := s.(lState)
			return fmt.Sprintf("ready %v, leased %v", bodies(x.ready), bodies(x.leased))
		},
	}
}

func bodies(jobs []lJob) (all []string) {
	for _, j := range jobs {
		all = append(all, j.body)
	}
	return all
}

func (m *queueModel) step(s lState, op *Op) (bool, lState) {
	n := s
	switch op.Kind {
	case Enqueue:
		n.ready = slices.Grow(slices.Clone(s.ready), len(op.Jobs))
		for i := range op.Jobs {
			j := lJob{body: op.Jobs[i].Body, first: m.jobs[op.Jobs[i].Body]}
			if !j.first.mayFollow(n.ready) {
				return false, s
			}
			n.seq++
			j.place = n.seq
			n.ready = append(n.ready, j)
		}
	case Dequeue:
		if len(op.Got) != min(op.Max, len(s.ready)) {
			return false, s
		}
		for i := range op.Got {
			if s.ready[i].body != op.Got[i].Body {
				return false, s
			}
		}
		n.ready = s.ready[len(op.Got):]
		n.leased = slices.Clone(s.leased)
		for i := range op.Got {
			j := s.ready[i]
			j.again, j.receipt = true, op.Got[i].Receipt
			n.leased = put(n.leased, j)
		}
	case Ack, Nack, Release:
		n.ready, n.leased = slices.Clone(s.ready), slices.Clone(s.leased)
		for i := range op.Items {
			it := &op.Items[i]
			at := slices.IndexFunc(n.leased, func(j lJob) bool { return j.receipt == it.Receipt })
			if (at >= 0) != (it.Code == "" && !it.Already) {
				return false, s
			}
			if at < 0 {
				continue
			}
			j := n.leased[at]
			n.leased = slices.Delete(n.leased, at, at+1)
			if op.Kind != Ack {
				j.receipt = ""
				n.ready = put(n.ready, j)
			}
		}
	case Count:
		return op.Count.Ready == len(s.ready) && op.Count.Leased == len(s.leased), s
	}
	return true, n
}

// put inserts a job in its place.
func put(jobs []lJob, j lJob) []lJob {
	at, _ := slices.BinarySearchFunc(jobs, j, func(a, b lJob) int { return cmp.Compare(a.place, b.place) })
	return slices.Insert(jobs, at, j)
}

func (o *Op) describe() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%v", o.Kind)
	for i := range o.Jobs {
		fmt.Fprintf(&b, " %.40q", o.Jobs[i].Body)
	}
	for i := range o.Items {
		fmt.Fprintf(&b, " %s %s", o.Items[i].Receipt, o.Items[i].Code)
	}
	switch o.Kind {
	case Dequeue:
		fmt.Fprintf(&b, " %d →", o.Max)
		for i := range o.Got {
			fmt.Fprintf(&b, " %.40q", o.Got[i].Body)
		}
	case Count:
		fmt.Fprintf(&b, " → %+v", o.Count)
	}
	fmt.Fprintf(&b, " (%v, index %d)", o.Outcome, o.Index)
	return b.String()
}
