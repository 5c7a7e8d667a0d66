package fsm

import (
	"math/rand"
	"strings"
	"testing"
	"unsafe"
)

// TestBackoff proves that a backoff lies within min and max, doubles, is the same
// for the same job and failure, and differs between jobs; and that many failures
// cost no time.
func TestBackoff(t *testing.T) {
	random := rand.New(rand.NewSource(1))
	for range 10_000 {
		c := QueueConfig{BackoffMinMs: 1 + random.Int63n(1<<uint(random.Intn(38)))}
		c.BackoffMaxMs = c.BackoffMinMs + random.Int63n(DelayMaxMs-c.BackoffMinMs+1)
		if random.Intn(4) == 0 {
			c.BackoffMaxMs = min(c.BackoffMinMs+random.Int63n(20), DelayMaxMs)
		}
		k, n := Key{random.Uint64(), random.Uint64()}, uint32(1+random.Intn(50))
		if random.Intn(10) == 0 {
			n = 1<<32 - 1
		}
		ms := c.backoff(k, n)
		if ms < c.BackoffMinMs || ms > c.BackoffMaxMs || ms != c.backoff(k, n) {
			t.Fatalf("seed 1: %+v, failure %d: %d ms", c, n, ms)
		}
		if n < 10 && c.BackoffMinMs < 1<<20 && c.BackoffMaxMs > 1<<30 {
			if base := c.BackoffMinMs << (n - 1); ms < base || ms > base+base/5 {
				t.Fatalf("seed 1: %+v, failure %d: %d ms is not within a fifth above %d", c, n, ms, base)
			}
		}
	}
	// At max as well, where all jobs of a long outage end.
	c := QueueConfig{BackoffMinMs: 1000, BackoffMaxMs: 60_000}
	seen := map[int64]bool{}
	for i := range uint64(1000) {
		seen[c.backoff(Key{1, i}, 30)] = true
	}
	if len(seen) < 900 {
		t.Errorf("%d different times of 1000 jobs", len(seen))
	}
	if ms := (&QueueConfig{}).backoff(Key{1, 1}, 5); ms != 0 {
		t.Errorf("%d ms without a backoff", ms)
	}
}

// TestValidate proves that a configuration out of range is refused by the name of
// its field.
func TestValidate(t *testing.T) {
	for name, c := range map[string]QueueConfig{
		"lease":        {LeaseMs: LeaseMaxMs + 1},
		"ttl":          {TTLMs: -1},
		"delay":        {DelayMs: DelayMaxMs + 1},
		"max_failures": {MaxFailures: -2},
		"dead_letter":  {DeadLetter: strings.Repeat("d", NameMax+1)},
		"dead_ttl":     {DeadTTLMs: TTLMaxMs + 1},
		"backoff.min":  {BackoffMinMs: -1},
		"backoff.max":  {BackoffMinMs: 2, BackoffMaxMs: 1},
		"max_len":      {MaxLen: -1},
		"max_bytes":    {MaxBytes: -1},
		"overflow":     {Overflow: overflowEnd},
		"aging":        {AgingMs: -1},
		"group_limit":  {GroupLimit: -1},
		"consistency":  {Consistency: consistencyEnd},
	} {
		if err := c.Validate(); err == nil || err.Code != CodeInvalidOption || !strings.HasPrefix(err.Detail, name+": ") {
			t.Errorf("%s: %v", name, err)
		}
	}
	c := QueueConfig{
		LeaseMs: LeaseMaxMs, TTLMs: TTLMaxMs, DelayMs: DelayMaxMs, MaxFailures: -1, DeadLetter: strings.Repeat("d", NameMax), DeadTTLMs: TTLMaxMs,
		BackoffMinMs: 1, BackoffMaxMs: DelayMaxMs, MaxLen: 1<<63 - 1, MaxBytes: 1<<63 - 1, Overflow: OverflowDropOldest, AgingMs: 1,
		GroupLimit: 1<<31 - 1, Fair: true, Consistency: ConsistencyFast,
	}
	if err := c.Validate(); err != nil {
		t.Error(err)
	}
	// Each field has its bit, and all of them make the whole.
	if c.said() != AllFields {
		t.Errorf("fields %b of a configuration that says all", c.said())
	}
	for f := FieldLease; f < fieldsEnd; f <<= 1 {
		var one QueueConfig
		if one.merge(&c, f); one.said() != f {
			t.Errorf("field %b set %b", f, one.said())
		}
		rest := c
		if rest.merge(&QueueConfig{}, f); rest.said() != AllFields&^f {
			t.Errorf("field %b cleared %b", f, AllFields&^rest.said())
		}
	}
}

// TestSizes proves that what every job and every queue takes stays small.
func TestSizes(t *testing.T) {
	if n := unsafe.Sizeof(job{}); n > 120 {
		t.Errorf("a job has %d bytes", n)
	}
	if n := unsafe.Sizeof(rare{}); n > 96 {
		t.Errorf("a rare part has %d bytes", n)
	}
	if n := unsafe.Sizeof(queue{}); n > 416 {
		t.Errorf("a queue has %d bytes", n)
	}
}

// sweep sends op until nothing is left, an entry each, and returns the counts.
func sweepAll(t *testing.T, r *rig, op func(upTo uint64) Op) (counts []int) {
	t.Helper()
	for upTo := uint64(0); ; {
		res := r.apply(t, op(upTo)).Results[0]
		if res.Code != CodeOK || len(counts) > 10 {
			t.Fatalf("%+v after %v", res, counts)
		}
		counts = append(counts, res.Count)
		if !res.More {
			return counts
		}
		upTo = res.UpTo
	}
}

// TestSweepsAreBounded proves, with the real limit, that no entry sweeps more than
// SweepMax jobs, whatever its ops ask for, and that all are swept in the end.
func TestSweepsAreBounded(t *testing.T) {
	r := newRig(t)
	want := func(what string, got []int, counts ...int) {
		t.Helper()
		if len(got) != len(counts) {
			t.Errorf("%s: %v, want %v", what, got, counts)
			return
		}
		for i := range got {
			if got[i] != counts[i] {
				t.Errorf("%s: %v, want %v", what, got, counts)
			}
		}
	}
	state := func() QueueInfo {
		t.Helper()
		if err := r.m.Check(); err != nil {
			t.Fatal(err)
		}
		q, _ := r.m.Queue("q")
		return q
	}
	const jobs = 25_000
	r.fill(t, "q", jobs)
	// A consumer takes all of them, and all of it is taken back.
	for range jobs / 1000 {
		op := r.dequeue("q", 1000, 0)
		op.Consumer = "w"
		r.apply(t, op)
	}
	want("release", sweepAll(t, r, func(upTo uint64) Op { return &ReleaseConsumer{"w", upTo} }), 10_000, 10_000, 5_000)
	if q := state(); q.Ready != jobs {
		t.Fatalf("%+v", q)
	}
	// Leases end while the queue is paused in; they come back when it is over.
	for range jobs / 1000 {
		r.apply(t, r.dequeue("q", 1000, 0))
	}
	r.apply(t, &Pause{Queue: "q", In: true})
	r.now += LeaseDefault
	for range 3 {
		r.apply(t)
	}
	if q := state(); q.Delayed != jobs {
		t.Fatalf("%+v", q)
	}
	r.apply(t, &Pause{Queue: "q"})
	for _, ready := range []int{10_000, 20_000, jobs} {
		due, ok := r.m.NextDue()
		if q := state(); q.Ready != ready || ready < jobs != (ok && due == r.m.Position().TimeMs) {
			t.Fatalf("%d ready, next due %d %v", q.Ready, due, ok)
		}
		r.apply(t)
	}
	// All die, are brought back, and are purged.
	r.apply(t, &Configure{Queue: "q", Config: QueueConfig{MaxFailures: 1}, Fields: FieldMaxFailures})
	for range jobs / 1000 {
		r.apply(t, r.dequeue("q", 1000, 0))
	}
	r.now += LeaseDefault
	for range 3 {
		r.apply(t)
	}
	if q := state(); q.Dead != jobs {
		t.Fatalf("%+v", q)
	}
	want("redrive", sweepAll(t, r, func(upTo uint64) Op { return &Redrive{Queue: "q", UpTo: upTo} }), 10_000, 10_000, 5_000)
	if q := state(); q.Ready != jobs {
		t.Fatalf("%+v", q)
	}
	// Ops of one entry share the limit.
	a := r.apply(t, &Purge{Queue: "q", States: StateAll}, &Purge{Queue: "q", States: StateAll}, &Redrive{Queue: "q"})
	want("purges of one entry", []int{a.Results[0].Count, a.Results[1].Count}, 10_000, 0)
	if !a.Results[1].More || a.Results[2].More {
		t.Errorf("%+v", a.Results)
	}
	want("purge", sweepAll(t, r, func(upTo uint64) Op { return &Purge{"q", StateAll, upTo} }), 10_000, 5_000)
	// A limit that is lowered.
	r.fill(t, "q", jobs)
	r.apply(t, &Configure{Queue: "q", Config: QueueConfig{MaxLen: 10, Overflow: OverflowDropOldest}, Fields: FieldMaxLen | FieldOverflow})
	for _, ready := range []int{jobs - 10_000, jobs - 20_000, 10} {
		r.apply(t, r.enqueue("q", nil, 1))
		if q := state(); q.Ready != ready {
			t.Errorf("%d ready, want %d", q.Ready, ready)
		}
	}
}
