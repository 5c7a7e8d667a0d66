package check

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"
)

// windowTimeout is how long the general search may look at one window. What it has
// not decided by then the log's order decides, see certify.
const windowTimeout = 20 * time.Second

// Window is the outcome of one queue's check.
type Window struct {
	Queue   string
	Ops     int
	Skipped string // why it was not checked
	ByLog   bool   // the search took too long, and the log's order explains the answers
	bad     bool   // nothing explains them
	html    func(io.Writer) error
}

// Timeline writes the window as an interactive page.
func (w *Window) Timeline(to io.Writer) error { return w.html(to) }

// Linear hands the operations on each queue whose name has the prefix to a
// general checker of linearizability, with a model of its own. Such a queue is new,
// in use for a short time, and knows no timers and attempts: no delays, no TTLs, and it
// is looked at until the first lease may be over, for its length or because a majority
// lost its boot; all strong.
//
// What an unknown outcome may have done makes too many cases, so the log says what
// it did, if anything, and by when: see Replay. A dequeue that was handed jobs which its
// answer does not show, for its client was gone or told that nothing came, counts as
// one that took them, and gave them back if it did. What happened behind all that was
// answered is left out: nobody saw it, and leases may be over by then. Without a replay
// a window with such operations, or with some that end behind its end, is skipped.
//
// The search is general: it does not ask where the log has what. When it takes too
// long, the order of the log is tried, which is one order of the many; it counts only
// if clocks allow it and the model gives every answer in it.
func Linear(h *History, prefix string, r *Replay) (windows []*Window, found []Problem) {
	return linear(h, prefix, r, windowTimeout)
}

func linear(h *History, prefix string, r *Replay, timeout time.Duration) (windows []*Window, found []Problem) {
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
		w, p := window(h, queue, byQueue[queue], r, timeout)
		if w.Ops > 0 || w.Skipped != "" {
			windows = append(windows, w)
		}
		found = append(found, p...)
	}
	return windows, found
}

// gather makes the operations that are checked of those that were called: what has no
// answer, or not all of it, is what the log says of it.
func (w *Window) gather(h *History, ops []*Op, r *Replay) (all []*Op) {
	first, until := h.span(ops)
	if until <= first {
		w.Skipped = "leases may have ended in it"
		return nil
	}
	// What was answered by then has the entries up to end. Of the rest only what is
	// among these took effect by then, as far as anybody knows.
	end := uint64(0)
	for _, op := range ops {
		if op.Outcome == OK && op.Ret <= until {
			end = max(end, op.Index)
		}
	}
	named := map[string]int{}
	for _, op := range ops {
		if op.Attempt != "" {
			w.Skipped = "the model knows no attempts"
			return nil
		}
		for i := range op.Items {
			named[op.Kind.String()+op.Items[i].Receipt]++
		}
	}
	for _, op := range ops {
		switch untold := r.untold(op); {
		case op.Call >= until:
			continue
		case op.Outcome == OK && !untold:
			if op.Ret > until && r == nil {
				w.Skipped = fmt.Sprintf("not known when it took effect: %v", op)
				return nil
			}
			if op.Ret <= until || r.at(op) <= end {
				all = append(all, op)
			}
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
			return nil
		}
		for _, o := range did {
			if o.Index <= end {
				all = append(all, o)
			}
		}
	}
	w.Ops = len(all)
	return all
}

// span is when a window begins, and until when none of its leases can be over.
func (h *History) span(ops []*Op) (first, until time.Duration) {
	first, until = Never, Never
	for _, op := range ops {
		first = min(first, op.Call)
	}
	for _, op := range ops {
		if op.Kind == Dequeue {
			until = min(until, first+op.Lease-slack(op.Lease))
		}
	}
	for _, e := range h.Events {
		if e.Reboot && e.To > first {
			until = min(until, e.From)
		}
	}
	return first, until
}

func window(h *History, queue string, ops []*Op, r *Replay, timeout time.Duration) (*Window, []Problem) {
	w := &Window{Queue: queue}
	all := w.gather(h, ops, r)
	if len(all) == 0 {
		return w, nil // nothing happened in it, or nobody knows what
	}
	history := make([]porcupine.Operation, len(all))
	for i, op := range all {
		history[i] = porcupine.Operation{ClientId: op.Client, Input: op, Output: op, Call: int64(op.Call), Return: int64(op.Ret)}
	}
	m := newQueueModel(all)
	model := m.porcupine()
	result, info := porcupine.CheckOperationsVerbose(model, history, timeout)
	w.html = func(to io.Writer) error { return porcupine.Visualize(model, info, to) }
	switch result {
	case porcupine.Illegal:
		w.bad = true
		return w, []Problem{{"linear", fmt.Sprintf("the %d operations on %s have no order that explains them", w.Ops, queue)}}
	case porcupine.Unknown:
		if err := m.certify(all, m.logOrder(all, r)); err != nil {
			w.bad = true
			return w, []Problem{{"linear: timeout", fmt.Sprintf("the %d operations on %s took longer than %v to check, and the log's order does not explain them: %v", w.Ops, queue, timeout, err)}}
		}
		w.ByLog = true
	}
	return w, nil
}
