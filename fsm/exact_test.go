package fsm

import (
	"math/rand"
	"os"
	"slices"
	"strconv"
	"testing"
)

// TestTimersExact proves that of many delays, leases, TTLs, waits and dedup ids none
// ends a millisecond of log time early or late, and that the machine says beforehand
// when the next one is due. RAFTQ_TIMERS sets how many.
func TestTimersExact(t *testing.T) {
	n := 10_000
	if text := os.Getenv("RAFTQ_TIMERS"); text != "" {
		var err error
		if n, err = strconv.Atoi(text); err != nil {
			t.Fatal(err)
		}
	}
	const seed = 1
	random := rand.New(rand.NewSource(seed))
	r := newRig(t)
	type event struct {
		ms      int64
		what    string
		forcing bool
		over    func() bool // tells whether it has happened
	}
	var events []event
	state := func(k Key) func() string {
		return func() string {
			j, code := r.m.Job(k)
			if code != CodeOK {
				return code.String()
			}
			return j.State
		}
	}
	// All are longer than this takes, so that nothing ends while they are made.
	const shortest = 1_000_000
	span := func(longest int64) int64 {
		switch random.Intn(3) {
		case 0:
			return shortest + random.Int63n(1000) // many in one ms
		case 1:
			return shortest + random.Int63n(shortest)
		}
		return shortest + random.Int63n(longest-shortest)
	}
	for i := range n {
		r.now += random.Int63n(2)
		queue := "q" + strconv.Itoa(i)
		op := r.enqueue(queue, nil, 1)
		job := &op.Jobs[0]
		k := Key{r.self.Epoch, op.First}
		is := state(k)
		switch i % 5 {
		case 0:
			job.DelayMs = span(DelayMaxMs)
			if random.Intn(2) == 0 {
				job.DelayMs, job.AtMs = 0, r.now+job.DelayMs
			}
			ms := r.now + max(job.DelayMs, job.AtMs-r.now)
			events = append(events, event{ms, "delay", true, func() bool { return is() == "ready" }})
			r.apply(t, op)
		case 1:
			job.TTLMs = span(TTLMaxMs)
			events = append(events, event{r.now + job.TTLMs, "ttl", true, func() bool { return is() != "ready" }})
			r.apply(t, op)
		case 2:
			take := r.dequeue(queue, 1, 0)
			take.LeaseMs = span(LeaseMaxMs)
			ms := r.now + take.LeaseMs
			a := r.apply(t, op, take)
			if got := a.Results[1].Jobs[0].LeaseUntil; got != ms {
				t.Fatalf("leased until %d, want %d", got, ms)
			}
			if random.Intn(2) == 0 {
				it := a.Results[1].Jobs[0].Receipt().Item()
				it.LeaseMs = span(LeaseMaxMs)
				r.now += random.Int63n(3)
				ms = r.now + it.LeaseMs
				r.apply(t, &Extend{[]Item{it}})
			}
			events = append(events, event{ms, "lease", true, func() bool { return is() == "ready" }})
		case 3:
			wait := r.dequeue(queue, 1, span(3*shortest))
			parked := parkedItem{node: r.self.Origin, request: wait.Request}
			events = append(events, event{r.now + wait.WaitMs, "wait", false, func() bool {
				_, waits := r.m.parked.Get(parked)
				return !waits
			}})
			r.apply(t, wait)
		case 4:
			job.DedupID, job.DedupTTLMs = "d", span(DedupTTLMaxMs)
			events = append(events, event{r.now + job.DedupTTLMs, "dedup id", false, func() bool {
				number, _ := r.m.names.Get(queue)
				return r.m.keyOf(number, keyDedup, "d") == nil
			}})
			r.apply(t, op)
		}
	}
	slices.SortStableFunc(events, func(a, b event) int {
		if a.ms < b.ms {
			return -1
		} else if a.ms > b.ms {
			return 1
		}
		return 0
	})
	for i := 0; i < len(events); {
		ms := events[i].ms
		end := i
		for end < len(events) && events[end].ms == ms {
			end++
		}
		r.now = ms - 1
		r.apply(t)
		forcing := slices.ContainsFunc(events[i:end], func(e event) bool { return e.forcing })
		if due, ok := r.m.NextDue(); forcing && (!ok || due != ms) {
			t.Fatalf("seed %d: next due %d %v, want %d", seed, due, ok, ms)
		}
		for _, e := range events[i:end] {
			if e.over() {
				t.Fatalf("seed %d: a %s of %d ms was over at %d", seed, e.what, ms, r.m.Position().TimeMs)
			}
		}
		r.now = ms
		if a := r.apply(t); a.Position.TimeMs != ms {
			t.Fatalf("seed %d: time is held at %d, want %d", seed, a.Position.TimeMs, ms)
		}
		for _, e := range events[i:end] {
			if !e.over() {
				t.Fatalf("seed %d: a %s of %d ms was not over then", seed, e.what, ms)
			}
		}
		i = end
	}
	if err := r.m.Check(); err != nil {
		t.Error(err)
	}
}
