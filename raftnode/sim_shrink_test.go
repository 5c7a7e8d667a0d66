package raftnode

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// simRun is one run of the simulator: a seed, how many operations, and what of that
// seed's run is left out.
type simRun struct {
	seed uint64
	ops  int
	cut  simCut
}

// simCut leaves out parts of a run. The rest is drawn as before, so that a failure
// has a chance to stay.
type simCut struct {
	skip    []int    // faults, in the order in which they come
	off     []string // options, see simOff
	clients int      // at most so many; 0 = as drawn
}

// simOff are the options that a run can do without.
var simOff = []struct {
	name string
	set  func(o *simOptions)
}{
	{"changes", func(o *simOptions) { o.changeEvery = 0 }},
	{"five", func(o *simOptions) { o.nodes = min(o.nodes, 3) }},
	{"drop", func(o *simOptions) { o.drop = 0 }},
	{"dup", func(o *simOptions) { o.dup = 0 }},
	{"reorder", func(o *simOptions) { o.reorder = 0 }},
	{"stall", func(o *simOptions) { o.stall = 0 }},
	{"partial", func(o *simOptions) { o.partial = 0 }},
	{"snapstall", func(o *simOptions) { o.snapStall = 0 }},
	{"side", func(o *simOptions) { o.side = 0 }},
	{"edges", func(o *simOptions) { o.edges = 0 }},
	{"wire", func(o *simOptions) { o.wire = false }},
	{"epochs", func(o *simOptions) { o.sameEpochs = false }},
	{"drift", func(o *simOptions) { o.drift = false }},
	{"fast", func(o *simOptions) { o.fast, o.eager = 0, false }},
	{"burst", func(o *simOptions) { o.burst = 0 }},
	{"delays", func(o *simOptions) { o.delays = 0 }},
	{"ttls", func(o *simOptions) { o.ttls = 0 }},
	{"prios", func(o *simOptions) { o.prios = 0 }},
	{"once", func(o *simOptions) { o.once = 0 }},
	{"waits", func(o *simOptions) { o.waits = 0 }},
	{"hangups", func(o *simOptions) { o.hangups = 0 }},
	{"reads", func(o *simOptions) { o.reads = 0 }},
	{"retries", func(o *simOptions) { o.retries = 0 }},
}

func (r simRun) options() simOptions {
	o := drawOptions(r.seed, r.ops)
	for _, f := range simOff {
		if slices.Contains(r.cut.off, f.name) {
			f.set(&o)
		}
	}
	if r.cut.clients > 0 {
		o.clients = min(o.clients, r.cut.clients)
	}
	o.skip = r.cut.skip
	return o
}

func (c simCut) String() string {
	var parts []string
	if c.clients > 0 {
		parts = append(parts, fmt.Sprintf("clients=%d", c.clients))
	}
	if len(c.off) > 0 {
		parts = append(parts, "off="+strings.Join(c.off, "+"))
	}
	if len(c.skip) > 0 {
		parts = append(parts, "skip="+ranges(c.skip))
	}
	return strings.Join(parts, ",")
}

func ranges(sorted []int) string {
	var parts []string
	for i := 0; i < len(sorted); {
		j := i
		for j+1 < len(sorted) && sorted[j+1] == sorted[j]+1 {
			j++
		}
		if i == j {
			parts = append(parts, strconv.Itoa(sorted[i]))
		} else {
			parts = append(parts, fmt.Sprintf("%d-%d", sorted[i], sorted[j]))
		}
		i = j + 1
	}
	return strings.Join(parts, "+")
}

func parseCut(s string) (c simCut, err error) {
	for part := range strings.SplitSeq(s, ",") {
		k, v, _ := strings.Cut(part, "=")
		switch k {
		case "":
		case "clients":
			c.clients, err = strconv.Atoi(v)
		case "off":
			c.off = strings.Split(v, "+")
			for _, name := range c.off {
				if !slices.ContainsFunc(simOff, func(f struct {
					name string
					set  func(o *simOptions)
				}) bool {
					return f.name == name
				}) {
					return c, fmt.Errorf("no option %q", name)
				}
			}
		case "skip":
			for r := range strings.SplitSeq(v, "+") {
				var from, to int
				if n, _ := fmt.Sscanf(r, "%d-%d", &from, &to); n == 1 {
					to = from
				} else if n == 0 || to-from > 1e6 {
					return c, fmt.Errorf("no range of faults: %q", r)
				}
				for ; from <= to; from++ {
					c.skip = append(c.skip, from)
				}
			}
		default:
			err = fmt.Errorf("no %q to cut", k)
		}
		if err != nil {
			return c, err
		}
	}
	return c, nil
}

func (r simRun) command() string {
	cut := r.cut.String()
	if cut != "" {
		cut = " RAFTQ_SIM_CUT=" + cut
	}
	return fmt.Sprintf("RAFTQ_SIM_SEED=%d RAFTQ_SIM_OPS=%d%s go test ./raftnode -run 'TestSim$' -v", r.seed, r.ops, cut)
}

// simTry is how a run went: how much of it happened.
type simTry struct {
	failed           bool
	answered, faults int
}

// shrink makes a failing run smaller, as long as more says so: faults go first, then
// options and clients, then operations; what a smaller run does not need is dropped
// for good. first is how the run went.
func shrink(run simRun, first simTry, try func(simRun) simTry, more func() bool) simRun {
	last := first
	attempt := func(smaller simRun) bool {
		if !more() {
			return false
		}
		got := try(smaller)
		if got.failed {
			run, last = smaller, got
			run.ops = min(run.ops, max(got.answered, 1))
		}
		return got.failed
	}
	cutOps := func(to int) bool {
		smaller := run
		smaller.ops = to
		return attempt(smaller)
	}
	skip := func(faults []int) bool {
		smaller := run
		smaller.cut.skip = slices.Clone(run.cut.skip)
		for _, k := range faults {
			if !slices.Contains(smaller.cut.skip, k) {
				smaller.cut.skip = append(smaller.cut.skip, k)
			}
		}
		slices.Sort(smaller.cut.skip)
		return len(smaller.cut.skip) == len(run.cut.skip) || attempt(smaller)
	}
	off := func(names ...string) bool {
		smaller := run
		smaller.cut.off = slices.Clone(run.cut.off)
		for _, name := range names {
			if !slices.Contains(smaller.cut.off, name) {
				smaller.cut.off = append(smaller.cut.off, name)
			}
		}
		return len(smaller.cut.off) == len(run.cut.off) || attempt(smaller)
	}
	clients := func(n int) bool {
		smaller := run
		smaller.cut.clients = n
		return attempt(smaller)
	}
	if first.answered > 0 && first.answered < run.ops {
		cutOps(first.answered) // what came later was not needed
	}
	for round := 0; round < 4 && more(); round++ {
		before := run.command()
		left := func() (ks []int) {
			for k := range last.faults {
				if !slices.Contains(run.cut.skip, k) {
					ks = append(ks, k)
				}
			}
			return ks
		}
		for size := len(left()); size > 0; size /= 2 {
			ks := left()
			for from := 0; from < len(ks); from += size {
				skip(ks[from:min(from+size, len(ks))])
			}
		}
		var names []string
		for _, f := range simOff {
			names = append(names, f.name)
		}
		if !off(names...) {
			for _, name := range names {
				off(name)
			}
		}
		most := run.cut.clients
		if most == 0 {
			most = run.options().clients
		}
		for lo, hi := 1, most; lo < hi; {
			if mid := (lo + hi) / 2; clients(mid) {
				hi = mid
			} else {
				lo = mid + 1
			}
		}
		for lo, hi := 1, run.ops; lo < hi; {
			if mid := (lo + hi) / 2; cutOps(mid) {
				hi = min(mid, run.ops)
			} else {
				lo = mid + 1
			}
		}
		if run.command() == before {
			break
		}
	}
	return run
}

// shrunk makes a failed run smaller, for a while, and says how it is repeated.
func shrunk(t *testing.T, run simRun, first simTry) string {
	limit := time.Duration(envInt("RAFTQ_SIM_SHRINK", 60)) * time.Second
	began, tries := time.Now(), 0
	why := ""
	small := shrink(run, first, func(r simRun) simTry {
		tries++
		st, _, failure := runWorld(t, r, nil)
		if failure != "" {
			why, _, _ = strings.Cut(failure, "\n")
		}
		return simTry{failure != "", st.Ops, st.Faults}
	}, func() bool { return time.Since(began) < limit })
	if why == "" {
		return ""
	}
	o := small.options()
	return fmt.Sprintf("\n  smallest that fails, of %d tried in %.0f s: %d operations of %d clients\n  %s\n  replay: %s", tries, time.Since(began).Seconds(), small.ops, o.clients, why, small.command())
}

// TestShrink gives the shrinker a failure that needs two of many faults, an option,
// two clients and thirty operations, and wants just these left; then one that real
// worlds show.
func TestShrink(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 1))
	for range 50 {
		a, b, need := r.IntN(40), r.IntN(40), simOff[r.IntN(len(simOff))].name
		clients, ops, tries := 1+r.IntN(4), 1+r.IntN(100), 0
		try := func(run simRun) simTry {
			tries++
			lacks := slices.Contains(run.cut.skip, a) || slices.Contains(run.cut.skip, b) || slices.Contains(run.cut.off, need) || run.options().clients < clients || run.ops < ops
			return simTry{!lacks, run.ops, 40}
		}
		run := simRun{seed: r.Uint64N(1000), ops: 2000}
		got := shrink(run, try(run), try, func() bool { return tries < 1000 })
		if got.ops != ops || got.options().clients != clients || slices.Contains(got.cut.off, need) || len(got.cut.off) != len(simOff)-1 ||
			slices.Contains(got.cut.skip, a) || slices.Contains(got.cut.skip, b) || len(got.cut.skip) != 40-len(slices.Compact(slices.Sorted(slices.Values([]int{a, b})))) {
			t.Fatalf("faults %d and %d, option %s, %d clients, %d operations; shrunk to %s", a, b, need, clients, ops, got.command())
		}
		again, err := parseCut(got.cut.String())
		if err != nil || again.String() != got.cut.String() {
			t.Fatalf("%q reads as %q: %v", got.cut.String(), again.String(), err)
		}
	}
	// A run is bad if a node was killed and another one paused in it.
	try := func(run simRun) simTry {
		st, _, failure := runWorld(t, run, nil)
		if failure != "" {
			t.Fatal(failure)
		}
		return simTry{st.Kills > 0 && st.Pauses > 0, st.Ops, st.Faults}
	}
	for seed := uint64(7); ; seed++ {
		run := simRun{seed: seed, ops: 300}
		first := try(run)
		if !first.failed || first.faults < 4 {
			continue
		}
		tries := 0
		small := shrink(run, first, try, func() bool { tries++; return tries < 250 })
		last := try(small)
		t.Logf("of %d faults and %d operations: %s", first.faults, first.answered, small.command())
		left := 0
		for k := range last.faults {
			if !slices.Contains(small.cut.skip, k) {
				left++
			}
		}
		if !last.failed || left > first.faults/2 || small.options().clients > run.options().clients/2 {
			t.Errorf("%d faults and %d clients are left of %d and %d", left, small.options().clients, first.faults, run.options().clients)
		}
		break
	}
}
