package fsm

import (
	"fmt"
	"math/rand"
	"runtime"
	"slices"
	"strings"
	"testing"
	"unsafe"
)

// TestHotSize proves that the hot record of a job stays small, and that bodies
// behind it fill Go's size classes.
func TestHotSize(t *testing.T) {
	if n := unsafe.Sizeof(job{}); n != 120 {
		t.Errorf("job takes %d bytes, want 120", n)
	}
	for n := range 2 * bodyInlineMax {
		body := strings.Repeat("x", n)
		j := newJob([]byte(body))
		if j.body != body {
			t.Fatalf("body of %d bytes: %q", n, j.body)
		}
	}
	// What an allocation of each line of the table really takes.
	for _, line := range inline {
		class := uint64(120 + line.max)
		if class > 512 {
			class += 8
		}
		const n = 10_000
		keep := make([]*job, n)
		body := make([]byte, line.max)
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		for i := range keep {
			keep[i] = newJob(body)
		}
		runtime.ReadMemStats(&after)
		if got := (after.TotalAlloc - before.TotalAlloc) / n; got != class {
			t.Errorf("a job with a body of %d bytes takes %d, want %d", line.max, got, class)
		}
		runtime.KeepAlive(keep)
	}
}

// heap is how many bytes are in use.
func heap() uint64 {
	var s runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&s)
	return s.HeapAlloc
}

// TestBytesPerJob proves the memory that a backlog takes, and that Bytes is not
// far from the truth.
func TestBytesPerJob(t *testing.T) {
	n := 1_000_000
	if testing.Short() {
		n = 100_000
	}
	before := heap()
	r := newRig(t)
	r.fill(t, "q", n)
	took := float64(heap()-before) / float64(n)
	counted := float64(r.m.Bytes()) / float64(n)
	t.Logf("%d jobs of 100 bytes: %.0f bytes a job on the heap, %.0f counted", n, took, counted)
	if took > 400 {
		t.Errorf("%.0f bytes a job, want at most 400", took)
	}
	if counted < took || counted > 1.5*took {
		t.Errorf("%.0f bytes a job counted, %.0f taken", counted, took)
	}
	runtime.KeepAlive(r)
}

// TestCopyIsStable proves that a copy, taken at any point, hashes the same after
// 1000 more entries on the original, and that a copy can be encoded while the
// original is applied to (with -race).
func TestCopyIsStable(t *testing.T) {
	r := newRig(t)
	type kept struct {
		m    *Machine
		hash chan uint64
		want uint64
	}
	var copies []kept
	for i := range 1100 {
		r.now += 700
		ops := []Op{
			r.enqueue(fmt.Sprintf("q%d", i%5), make([]byte, i%1500), 3),
			r.dequeue(fmt.Sprintf("q%d", i%3), 2, 5000),
			r.dequeue("none", 1, 3000),
		}
		if i%50 == 49 {
			ops = append(ops, &DeleteQueue{Queue: "q1", Force: true})
		}
		a := r.apply(t, ops...)
		var items []Item
		for _, d := range append(a.Results[1].Jobs, handed(a)...) {
			items = append(items, d.Receipt().Item())
		}
		switch i % 3 {
		case 0:
			r.apply(t, &Ack{items})
		case 1:
			r.apply(t, &Nack{items})
		}
		if i%10 == 0 && i < 100 {
			c := kept{r.m.Copy(), make(chan uint64, 1), r.m.Hash()}
			copies = append(copies, c)
			go func() { c.hash <- c.m.Hash() }()
		}
	}
	for i, c := range copies {
		if got := <-c.hash; got != c.want {
			t.Errorf("copy %d hashed %x while the original went on, want %x", i, got, c.want)
		}
		if got := c.m.Hash(); got != c.want {
			t.Errorf("copy %d hashes %x in the end, want %x", i, got, c.want)
		}
		if err := c.m.Check(); err != nil {
			t.Errorf("copy %d: %v", i, err)
		}
	}
}

func handed(a Applied) (all []Delivered) {
	for _, h := range a.Handouts {
		all = append(all, h.Result.Jobs...)
	}
	return all
}

// TestCopiesApplyApart proves that a machine and its copies, each with a
// goroutine of its own, apply, copy and encode without touching each other
// (with -race), and come to what one machine alone comes to.
func TestCopiesApplyApart(t *testing.T) {
	r := newRig(t)
	r.fill(t, "q", 500)
	var entries [][]byte
	for i := range 200 {
		r.now += 100
		entries = append(entries, r.encode(r.enqueue("q", []byte("x"), 1), r.dequeue("q", 1, 1000), r.ackNext(), r.enqueue(fmt.Sprint("q", i%7), nil, 2)))
	}
	hashes := make(chan uint64, 4)
	for range 4 {
		m := r.m.Copy()
		go func() {
			for i, data := range entries {
				if i%10 == 0 {
					m = m.Copy()
				}
				if _, err := m.Apply(m.Position().Index+1, 1, data, r.self); err != nil {
					t.Error(err)
				}
			}
			hashes <- m.Hash()
		}()
	}
	for _, data := range entries {
		r.applyData(t, data)
	}
	want := r.m.Hash()
	for range 4 {
		if got := <-hashes; got != want {
			t.Errorf("a copy came to %x, want %x", got, want)
		}
	}
}

// TestTimerFlood proves that more due timers than one entry may fire are fired
// by the next entries, with the real limit, and never seen unfired.
func TestTimerFlood(t *testing.T) {
	r := newRig(t)
	var jobs int
	for range 25 {
		op := r.enqueue("q", []byte("x"), 1000)
		for i := range op.Jobs {
			op.Jobs[i].DelayMs = 1000
		}
		r.apply(t, op)
		jobs += 1000
	}
	due := r.now + 1000
	r.now += 5000
	for _, want := range []struct {
		fired int
		time  int64
	}{{10_000, due - 1}, {10_000, due - 1}, {5_000, r.now}, {0, r.now}} {
		a := r.apply(t)
		if a.Fired != want.fired || a.Position.TimeMs != want.time {
			t.Fatalf("fired %d at %d, want %+v", a.Fired, a.Position.TimeMs, want)
		}
	}
	if q, _ := r.m.Queue("q"); q.Ready != jobs {
		t.Errorf("%d ready, want %d", q.Ready, jobs)
	}
}

// TestTombstonesMax proves the real limit of tombstones, and that they do not
// outgrow it.
func TestTombstonesMax(t *testing.T) {
	r := newRig(t)
	bytes := r.m.Bytes()
	for range 101 {
		op := r.enqueue("q", nil, 1000)
		ack := &Ack{}
		for i := range op.Jobs {
			ack.Items = append(ack.Items, Item{Key: Key{r.self.Epoch, op.First + uint64(i)}, ByID: true})
		}
		r.apply(t, op, ack)
	}
	for _, c := range []struct {
		lo   uint64
		want Code
	}{{1000, CodeJobNotFound}, {1001, CodeJobGone}, {101_000, CodeJobGone}, {101_001, CodeJobNotFound}} {
		if _, code := r.m.Job(Key{r.self.Epoch, c.lo}); code != c.want {
			t.Errorf("job %d: %v, want %v", c.lo, code, c.want)
		}
	}
	r.now += QueueIdleMs
	r.apply(t)
	if got, want := r.m.Bytes()-bytes, int64(TombstonesMax*tombstoneCost); got != want {
		t.Errorf("%d bytes of tombstones, want %d", got, want)
	}
	if err := r.m.Check(); err != nil {
		t.Error(err)
	}
}

// TestDeleteIsCheap proves that deleting a queue of many jobs is not done in
// one entry, and that they are all gone in the end.
func TestDeleteIsCheap(t *testing.T) {
	r := newRig(t)
	before := r.m.Bytes()
	r.fill(t, "q", 35_000)
	if a := r.apply(t, &DeleteQueue{Queue: "q", Force: true}); a.Results[0].Count != 35_000 {
		t.Fatalf("%+v", a.Results[0])
	}
	for i := range 4 {
		if due, ok := r.m.NextDue(); !ok || due != r.m.Position().TimeMs {
			t.Fatalf("next due %d %v before entry %d", due, ok, i)
		}
		r.apply(t)
	}
	if due, ok := r.m.NextDue(); ok {
		t.Errorf("next due %d after the last is reaped", due)
	}
	if r.m.Bytes() != before || r.m.jobs.Len() != 0 {
		t.Errorf("%d bytes left", r.m.Bytes()-before)
	}
}

// TestEpochsKept proves that the numbers of the last epochs are kept, and no more.
func TestEpochsKept(t *testing.T) {
	r := newRig(t)
	for boot := range uint64(40) {
		r.self.Epoch = (boot+2)<<32 | 7
		r.number = 0
		r.apply(t, &NodeStart{})
		for range boot {
			r.apply(t)
		}
	}
	for boot := range uint64(40) {
		last, ok := r.m.Fate(r.self.Origin, (boot+2)<<32|7)
		if want := boot >= 39-EpochsKept; ok != want || ok && last != boot {
			t.Errorf("epoch of boot %d: %d %v", boot+2, last, ok)
		}
	}
}

// TestBugs proves that a log out of order ends the process.
func TestBugs(t *testing.T) {
	r := newRig(t)
	for _, at := range []struct{ index, term uint64 }{{1, 1}, {2, 1}, {4, 1}, {3, 0}} {
		func() {
			defer func() {
				if e := recover(); e == nil || !strings.HasPrefix(fmt.Sprint(e), "BUG: ") {
					t.Errorf("entry %v: %v", at, e)
				}
			}()
			r.m.Apply(at.index, at.term, nil, r.self)
		}()
	}
}

// TestResultsAreOwn proves that results share no memory that the machine, or
// another result, would write.
func TestResultsAreOwn(t *testing.T) {
	r := newRig(t)
	op := r.enqueue("q", []byte("body"), 1)
	op.Jobs[0].Headers = []Header{{"a", "1"}}
	data := r.encode(op, r.dequeue("q", 1, 0), r.enqueue("q", []byte("more"), 1), r.dequeue("q", 1, 0))
	a := r.applyData(t, data)
	for i := range data {
		data[i] = 0xee
	}
	d := a.Results[1].Jobs[0]
	if d.Body != "body" || d.Queue != "q" || d.Headers[0] != (Header{"a", "1"}) {
		t.Fatalf("%+v", d)
	}
	d.Headers[0].Name = "changed"
	items := append(a.Results[0].Items, ItemResult{Code: CodeTooLate})
	jobs := append(a.Results[1].Jobs, Delivered{})
	if j, _ := r.m.Job(d.ID.Key); j.Headers[0].Name != "a" {
		t.Errorf("the machine's headers changed")
	}
	if items[1].Code != CodeTooLate || jobs[1].Body != "" || a.Results[2].Items[0].Code != CodeOK || a.Results[3].Jobs[0].Body != "more" {
		t.Errorf("results share memory")
	}
}

// TestNoGarbage proves how little an entry allocates: the job and what the
// caller gets.
func TestNoGarbage(t *testing.T) {
	r := newRig(t)
	r.fill(t, "q", 1000)
	body := make([]byte, 100)
	var entries [][]byte
	for range 300 {
		entries = append(entries, r.encode(repeat(32, func() Op { return r.enqueue("q", body, 1) })...))
	}
	i := 0
	r.self.Origin++ // nobody wants results
	got := testing.AllocsPerRun(200, func() { r.applyData(t, entries[i]); i++ })
	// 32 jobs, and the trees' growth.
	if got > 32+8 {
		t.Errorf("%.1f allocations for 32 jobs", got)
	}
	entries = entries[:0]
	i = 0
	r.self.Origin--
	for range 300 {
		entries = append(entries, r.encode(r.dequeue("other", 1, 0)))
	}
	got = testing.AllocsPerRun(200, func() { r.applyData(t, entries[i]); i++ })
	if got > 1 {
		t.Errorf("%.1f allocations for a dequeue that finds nothing", got)
	}
}

// TestTurns proves that waiters' turns come in their order.
func TestTurns(t *testing.T) {
	random := rand.New(rand.NewSource(1))
	var h turns
	var want []uint64
	for range 1000 {
		seq := random.Uint64() >> 40
		h.push(turn{seq, 1})
		want = append(want, seq)
		if random.Intn(3) == 0 {
			slices.Sort(want)
			if got := h.pop(); got.seq != want[0] {
				t.Fatalf("turn %d, want %d", got.seq, want[0])
			}
			want = want[1:]
		}
	}
}

// TestMembers proves that genesis is the same whatever order the members come
// in, and that the table is the caller's to change.
func TestMembers(t *testing.T) {
	members := []Member{{ID: 3, Name: "c"}, {ID: 1, Name: "a", Peer: "http://a"}, {ID: 2, Learner: true}}
	a := New(members)
	slices.Reverse(members)
	b := New(members)
	if a.Hash() != b.Hash() || a.Chain() != b.Chain() || a.Position() != (Position{1, 1, 0}) {
		t.Errorf("two geneses")
	}
	got := a.Members()
	if got[0].Peer != "http://a" || !got[1].Learner || got[2].Name != "c" {
		t.Errorf("%+v", got)
	}
	got[0].Name = "changed"
	if a.Members()[0].Name != "a" {
		t.Errorf("the table is shared")
	}
}
