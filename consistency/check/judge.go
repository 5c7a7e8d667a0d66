package check

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"raftq/fsm"
)

// Result is a run and what the checkers say of it.
type Result struct {
	Name     string
	Seed     uint64
	Nodes    int
	Isolated bool

	Sum      Summary
	Entries  int // of the log
	Terms    int
	Chains   int
	Length   time.Duration
	Windows  []*Window
	Problems []Problem
	Took     map[string]time.Duration // by checker
	Did      map[string]int           // what happened in the log, see Replay

	h *History
}

// Judge runs every checker. logs is what each node's files show as committed;
// windowPrefix names the queues that Linear looks at.
func Judge(h *History, logs map[string]map[uint64]Entry, genesis []fsm.Member, windowPrefix string, least Least) *Result {
	r := &Result{h: h, Chains: len(h.Chains), Took: map[string]time.Duration{}}
	for _, op := range h.Ops {
		r.Length = max(r.Length, op.Call)
	}
	step := func(name string, do func() []Problem) {
		begun := time.Now()
		r.Problems = append(r.Problems, do()...)
		r.Took[name] = time.Since(begun)
	}
	var log []Entry
	step("accounting", func() (p []Problem) { r.Sum, p = Accounting(h); return p })
	step("log", func() (p []Problem) { log, p = Merge(logs); return p })
	r.Entries, r.Terms = len(log), terms(log)
	var replay *Replay
	step("witness", func() (p []Problem) { replay, p = Witness(h, log); return p })
	step("black box", func() []Problem { return append(BlackBox(h), LogTime(h)...) })
	step("topics", func() []Problem { return Topics(h) })
	step("linear", func() (p []Problem) { r.Windows, p = Linear(h, windowPrefix, replay); return p })
	step("chains", func() []Problem { return Chains(h, log, genesis) })
	if replay != nil {
		r.Did = replay.Did
	}
	step("vacuous", func() []Problem { return Vacuous(h, r.Sum, log, r.Windows, replay, least) })
	return r
}

// Summary is the run in a line.
func (r *Result) Summary() string {
	n := r.windows()
	s := &r.Sum
	return fmt.Sprintf("%s: %v, %d operations (%d ok, %d of them fast, %d unknown, %d failed), %d jobs answered, %d deliveries, %d done, %d fast ones lost, "+
		"%d messages appended, %d read, %v, %d entries, %d terms, %d chains compared, %v, %d problems; checked in %v, %v",
		r.Name, r.Length.Round(time.Second), s.Ops, s.OK, s.Fast, s.Unknown, s.Failed, s.Jobs, s.Delivered, s.Done, s.FastLost,
		s.Appended, s.Read, r.Did, r.Entries, r.Terms, r.Chains, n, len(r.Problems), r.took().Round(time.Millisecond), r.Took)
}

// took is how long all checkers took.
func (r *Result) took() (sum time.Duration) {
	for _, d := range r.Took {
		sum += d
	}
	return sum
}

// windowSum is what became of a run's windows.
type windowSum struct {
	Checked, Skipped, Ops int
	ByLog                 int // of those checked: see Window
}

func (n windowSum) String() string {
	return fmt.Sprintf("%d windows with %d operations checked (%d by the log's order, %d windows skipped)", n.Checked, n.Ops, n.ByLog, n.Skipped)
}

func (r *Result) windows() (n windowSum) {
	for _, w := range r.Windows {
		switch {
		case w.Skipped != "":
			n.Skipped++
			continue
		case w.ByLog:
			n.ByLog++
		}
		n.Checked++
		n.Ops += w.Ops
	}
	return n
}

// Keep writes what somebody needs to look into a failed run: the history as text,
// and the timelines of windows that have no order.
func (r *Result) Keep(dir string) (paths []string) {
	path := filepath.Join(dir, "history.txt")
	var b strings.Builder
	for _, p := range r.Problems {
		fmt.Fprintln(&b, p)
	}
	for _, e := range r.h.Events {
		fmt.Fprintf(&b, "%v to %v: %s\n", e.From, e.To, e.What)
	}
	ops := slices.Clone(r.h.Ops)
	slices.SortFunc(ops, func(a, b *Op) int { return int(a.Call - b.Call) })
	for _, o := range ops {
		fmt.Fprintf(&b, "%v\t%v\tclient %d\tnode %d\t%s\t%s\tfast %v\t%s\n", o.Call, o.Ret, o.Client, o.Node, o.Queue, o.describe(), o.Fast, o.Error)
	}
	if os.WriteFile(path, []byte(b.String()), 0o644) == nil {
		paths = append(paths, path)
	}
	for _, w := range r.Windows {
		if !w.bad {
			continue
		}
		path := filepath.Join(dir, w.Queue+".html")
		f, err := os.Create(path)
		if err != nil {
			continue
		}
		if w.Timeline(f) == nil && f.Close() == nil {
			paths = append(paths, path)
		}
	}
	return paths
}
