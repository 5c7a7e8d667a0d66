package check

import "strings"

// Least is what a run must have done to count.
type Least struct {
	Ops     int          // with an OK answer
	Kinds   map[Kind]int // of them
	Terms   int          // with entries in the log: a leader each
	Events  []string     // words that must stand in some event
	Windows int          // checked
	Chains  int          // claims that were compared
	Jobs    int          // delivered and acked

	Appended, Read int            // messages, with an OK answer
	Did            map[string]int // in the log: see Replay.Did
}

// skippedMax is how many of ten windows may be skipped.
const skippedMax = 1

// Vacuous says in what a run tested too little.
func Vacuous(h *History, s Summary, log []Entry, windows []*Window, replay *Replay, least Least) []Problem {
	var p problems
	short := func(what string, got, want int) {
		if got < want {
			p.add("vacuous", "%s: %d, at least %d are needed", what, got, want)
		}
	}
	short("operations", s.OK, least.Ops)
	for k := range kindEnd {
		short(k.String()+" operations", s.Kinds[k], least.Kinds[k])
	}
	short("terms", terms(log), least.Terms)
	short("chains", len(h.Chains), least.Chains)
	short("jobs done", s.Done, least.Jobs)
	checked := 0
	for _, w := range windows {
		if w.Skipped == "" {
			checked++
		}
	}
	short("windows", checked, least.Windows)
	if n := len(windows); n >= 30 {
		short("windows that are not skipped", checked, n-n*skippedMax/10)
	}
	short("messages appended", s.Appended, least.Appended)
	short("messages read", s.Read, least.Read)
	for what, n := range least.Did {
		if replay != nil {
			short(what, replay.Did[what], n)
		}
	}
	for _, word := range least.Events {
		n := 0
		for _, e := range h.Events {
			if strings.Contains(e.What, word) {
				n++
			}
		}
		short("faults like "+word, n, 1)
	}
	return p.all()
}

// terms counts those whose leader's entries are in the log. Nodes that are asked who
// leads show no term that is over soon.
func terms(log []Entry) int {
	n, last := 0, uint64(0)
	for _, e := range log {
		if e.Term != last {
			n, last = n+1, e.Term
		}
	}
	return n
}
