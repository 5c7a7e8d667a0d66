package check

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"
)

// windowTimeout is how long one window may be looked at. One that takes longer
// counts as failed: its clients did too much at a time.
const windowTimeout = 20 * time.Second

// Window is the outcome of one queue's check.
type Window struct {
	Queue   string
	Ops     int
	Skipped string // why it was not checked
	html    func(io.Writer) error
}

// Timeline writes the window as an interactive page.
func (w *Window) Timeline(to io.Writer) error { return w.html(to) }

// Linear hands the operations on each queue whose name has the prefix to a
// general checker of linearizability, with a model of its own. Such a queue is new,
// in use for a short time, and knows no timers: no delays, no TTLs, leases longer
// than the run; all strong.
//
// What an unknown outcome may have done makes too many cases, so the log says what
// it did, if anything, and by when: see Replay. A dequeue that was handed jobs which its
// answer does not show, for its client was gone or told that nothing came, counts as
// one that took them, and gave them back if it did. What happened behind all that was
// answered is left out: nobody saw it, and leases may be over by then. Without a replay
// a window with such operations is skipped.
func Linear(h *History, prefix string, r *Replay) (windows []*Window, found []Problem) {
	byQueue := map[string][]*Op{}
	var order []string
	for _, op := range h.Ops {
		if !strings.HasPrefix(op.Queue, prefix) || op.Client < 0 {
			continue // not of a window, or it empties the queue at the end
		}
		if byQueue[op.Queue] == nil {
			order = append(order, op.Queue)
		}
		byQueue[op.Queue] = append(byQueue[op.Queue], op)
	}
	for _, queue := range order {
		w, p := window(h, queue, byQueue[queue], r)
		if w.Ops > 0 || w.Skipped != "" {
			windows = append(windows, w)
		}
		found = append(found, p...)
	}
	return windows, found
}

func window(h *History, queue string, ops []*Op, r *Replay) (*Window, []Problem) {
	w := &Window{Queue: queue}
	var all []porcupine.Operation
	first, last, lease, end := Never, time.Duration(0), Never, uint64(0)
	for _, op := range ops {
		if op.Outcome == OK {
			end = max(end, op.Index)
		}
		first = min(first, op.Call)
		if op.Ret != Never {
			last = max(last, op.Ret)
		}
		if op.Kind == Dequeue {
			lease = min(lease, op.Lease-slack(op.Lease))
		}
	}
	if last-first > lease || h.rebooted(first, last) {
		w.Skipped = "leases may have ended in it"
		return w, nil
	}
	named := map[string]int{}
	for _, op := range ops {
		for i := range op.Items {
			named[op.Kind.String()+op.Items[i].Receipt]++
		}
	}
	add := func(op *Op) {
		all = append(all, porcupine.Operation{ClientId: op.Client, Input: op, Output: op, Call: int64(op.Call), Return: int64(op.Ret)})
	}
	for _, op := range ops {
		switch untold := r.untold(op); {
		case op.Outcome == OK && !untold:
			add(op)
			continue
		case op.Outcome == Failed && !untold:
			continue
		}
		did, ok := []*Op(nil), r != nil
		for i := range op.Items {
			ok = ok && named[op.Kind.String()+op.Items[i].Receipt] == 1
		}
		if ok {
			did, ok = r.resolve(op)
		}
		if !ok {
			w.Skipped = fmt.Sprintf("not known what it did: %v", op)
			return w, nil
		}
		for _, o := range did {
			if o.Index <= end {
				add(o)
			}
		}
	}
	w.Ops = len(all)
	if w.Ops == 0 {
		return w, nil // nothing happened in it
	}
	result, info := porcupine.CheckOperationsVerbose(queueModel, all, windowTimeout)
	w.html = func(to io.Writer) error { return porcupine.Visualize(queueModel, info, to) }
	switch result {
	case porcupine.Illegal:
		return w, []Problem{{"linear", fmt.Sprintf("the %d operations on %s have no order that explains them", w.Ops, queue)}}
	case porcupine.Unknown:
		return w, []Problem{{"linear: timeout", fmt.Sprintf("the %d operations on %s took longer than %v to check", w.Ops, queue, windowTimeout)}}
	}
	return w, nil
}

// lState is a queue without time. It is never changed, only replaced.
type lState struct {
	seq    int
	ready  []lJob // by place
	leased []lJob // by place
}

type lJob struct {
	place   int
	body    string
	receipt string // of its lease
}

var queueModel = porcupine.Model{
	Init: func() any { return lState{} },
	Step: func(state, in, _ any) (bool, any) { return state.(lState).step(in.(*Op)) },
	Equal: func(a, b any) bool {
		x, y := a.(lState), b.(lState)
		return x.seq == y.seq && slices.Equal(x.ready, y.ready) && slices.Equal(x.leased, y.leased)
	},
	DescribeOperation: func(in, _ any) string { return in.(*Op).describe() },
	DescribeState: func(s any) string {
		x := s.(lState)
		return fmt.Sprintf("ready %v, leased %v", bodies(x.ready), bodies(x.leased))
	},
}

func bodies(jobs []lJob) (all []string) {
	for _, j := range jobs {
		all = append(all, j.body)
	}
	return all
}

func (s lState) step(op *Op) (bool, lState) {
	n := lState{s.seq, slices.Clone(s.ready), slices.Clone(s.leased)}
	switch op.Kind {
	case Enqueue:
		for i := range op.Jobs {
			n.seq++
			n.ready = append(n.ready, lJob{place: n.seq, body: op.Jobs[i].Body})
		}
	case Dequeue:
		if len(op.Got) != min(op.Max, len(s.ready)) {
			return false, s
		}
		for i := range op.Got {
			j := n.ready[0]
			if j.body != op.Got[i].Body {
				return false, s
			}
			n.ready = n.ready[1:]
			j.receipt = op.Got[i].Receipt
			n.leased = put(n.leased, j)
		}
	case Ack, Nack, Release:
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
