package fsm

import (
	"bytes"
	"fmt"
	"io"
	"runtime"
	"strconv"
	"syscall"
	"testing"
	"time"
)

// rig applies batches of one node to a machine.
type rig struct {
	m       *Machine
	self    Self
	number  uint64
	counter uint64
	request uint64
	acked   uint64
	now     int64
}

func newRig(tb testing.TB) *rig {
	r := &rig{m: New([]Member{{ID: 1 << 32, Name: "n1"}}), self: Self{Origin: 1 << 32, Epoch: 1<<32 | 7}, now: 1_700_000_000_000}
	r.apply(tb, &NodeStart{})
	return r
}

func (r *rig) encode(ops ...Op) []byte {
	h := BatchHeader{Origin: r.self.Origin, Epoch: r.self.Epoch, Number: r.number, TimeMs: r.now}
	r.number++
	return EncodeBatch(h, ops...)
}

func (r *rig) applyData(tb testing.TB, data []byte) Applied {
	a, err := r.m.Apply(r.m.Position().Index+1, 1, data, r.self)
	if err != nil {
		tb.Fatal(err)
	}
	return a
}

func (r *rig) apply(tb testing.TB, ops ...Op) Applied { return r.applyData(tb, r.encode(ops...)) }

func (r *rig) enqueue(queue string, body []byte, n int) *Enqueue {
	op := &Enqueue{First: r.counter + 1}
	for range n {
		op.Jobs = append(op.Jobs, NewJob{Queue: queue, Body: body, Priority: PriorityDefault})
		r.counter++
	}
	return op
}

func (r *rig) dequeue(queue string, n int, waitMs int64) *Dequeue {
	r.request++
	return &Dequeue{Request: r.request, Queues: []string{queue}, Max: int32(n), WaitMs: waitMs}
}

func (r *rig) fill(tb testing.TB, queue string, n int) {
	body := bytes.Repeat([]byte{'x'}, 100)
	for n > 0 {
		step := min(n, 1000)
		r.apply(tb, r.enqueue(queue, body, step))
		n -= step
	}
}

var backlogs = []int{0, 1_000_000}

// threadCPU is the time that this thread spent, which other processes do not
// stretch as they do the clock on the wall.
func threadCPU() time.Duration {
	var u syscall.Rusage
	const thread = 1
	if err := syscall.Getrusage(thread, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// run applies the entries that iteration makes, built ahead in large steps:
// stopping the clock for each would cost more than what is measured.
func (r *rig) run(b *testing.B, jobs int, iteration func() [][]byte) {
	const ahead = 256
	var entries [ahead][][]byte
	i := 0
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var building time.Duration
	begin := threadCPU()
	b.ReportAllocs()
	for b.Loop() {
		if i%ahead == 0 {
			b.StopTimer()
			before := threadCPU()
			for k := range entries {
				entries[k] = iteration()
			}
			building += threadCPU() - before
			b.StartTimer()
		}
		for _, data := range entries[i%ahead] {
			r.applyData(b, data)
		}
		i++
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*jobs), "ns/job")
	b.ReportMetric(float64((threadCPU()-begin-building).Nanoseconds())/float64(b.N*jobs), "cpu-ns/job")
}

func repeat(n int, one func() Op) (ops []Op) {
	for range n {
		ops = append(ops, one())
	}
	return ops
}

// BenchmarkEnqueue applies batches of so many requests of one job of 100 bytes.
func BenchmarkEnqueue(b *testing.B) {
	for _, backlog := range backlogs {
		for _, n := range []int{1, 32} {
			b.Run(fmt.Sprintf("backlog=%d/batch=%d", backlog, n), func(b *testing.B) {
				r := newRig(b)
				r.fill(b, "q", backlog)
				body := bytes.Repeat([]byte{'x'}, 100)
				r.run(b, n, func() [][]byte {
					return [][]byte{r.encode(repeat(n, func() Op { return r.enqueue("q", body, 1) })...)}
				})
			})
		}
	}
}

// ackNext acks the next job in the order of enqueues, which was handed to the
// next request: FIFO makes the receipts known beforehand.
func (r *rig) ackNext() Op {
	r.acked++
	return &Ack{[]Item{{Key: Key{r.self.Epoch, r.acked}, Grant: 1, Tag: requestTag(r.self.Epoch, r.acked), DelayMs: -1}}}
}

// BenchmarkCycle applies batches of 32 enqueues, then 32 dequeues, then 32
// acks, as one iteration.
func BenchmarkCycle(b *testing.B) {
	for _, backlog := range backlogs {
		b.Run(fmt.Sprintf("backlog=%d", backlog), func(b *testing.B) {
			r := newRig(b)
			r.fill(b, "q", backlog)
			body := bytes.Repeat([]byte{'x'}, 100)
			const n = 32
			r.run(b, 3*n, func() [][]byte {
				r.now += 5
				return [][]byte{
					r.encode(repeat(n, func() Op { return r.enqueue("q", body, 1) })...),
					r.encode(repeat(n, func() Op { return r.dequeue("q", 1, 0) })...),
					r.encode(repeat(n, r.ackNext)...),
				}
			})
			if t := r.m.Totals(); t.Acked == 0 || t.Acked != t.Delivered {
				b.Fatalf("not what was meant: %+v", t)
			}
		})
	}
}

// BenchmarkConfigured is BenchmarkCycle on a queue that was told much, with a
// consumer that says its name.
func BenchmarkConfigured(b *testing.B) {
	r := newRig(b)
	r.apply(b, &Configure{Queue: "q", Fields: AllFields, Config: QueueConfig{
		LeaseMs: 30_000, MaxFailures: 5, DeadLetter: "dead", BackoffMinMs: 1000, BackoffMaxMs: 60_000, MaxLen: 1_000_000, MaxBytes: 1 << 40,
	}})
	body := bytes.Repeat([]byte{'x'}, 100)
	const n = 32
	r.run(b, 3*n, func() [][]byte {
		r.now += 5
		return [][]byte{
			r.encode(repeat(n, func() Op { return r.enqueue("q", body, 1) })...),
			r.encode(repeat(n, func() Op {
				op := r.dequeue("q", 1, 0)
				op.Consumer = "worker"
				return op
			})...),
			r.encode(repeat(n, r.ackNext)...),
		}
	})
	if t := r.m.Totals(); t.Acked == 0 || t.Acked != t.Delivered {
		b.Fatalf("not what was meant: %+v", t)
	}
}

// BenchmarkHandOff parks 32 waiters, then enqueues 32 jobs for them, then acks.
func BenchmarkHandOff(b *testing.B) {
	for _, backlog := range backlogs {
		b.Run(fmt.Sprintf("backlog=%d", backlog), func(b *testing.B) {
			r := newRig(b)
			r.fill(b, "other", backlog)
			r.request, r.acked = uint64(backlog), uint64(backlog)
			body := bytes.Repeat([]byte{'x'}, 100)
			const n = 32
			r.run(b, 3*n, func() [][]byte {
				r.now += 5
				return [][]byte{
					r.encode(repeat(n, func() Op { return r.dequeue("q", 1, 1000) })...),
					r.encode(repeat(n, func() Op { return r.enqueue("q", body, 1) })...),
					r.encode(repeat(n, r.ackNext)...),
				}
			})
			if t := r.m.Totals(); t.Acked == 0 || t.Acked != t.Delivered {
				b.Fatalf("not what was meant: %+v", t)
			}
		})
	}
}

// BenchmarkCopy copies a machine and applies a batch of 32 enqueues after each
// copy: what copy-on-write costs.
func BenchmarkCopy(b *testing.B) {
	r := newRig(b)
	r.fill(b, "q", 1_000_000)
	body := bytes.Repeat([]byte{'x'}, 100)
	var kept *Machine
	b.ReportAllocs()
	for b.Loop() {
		b.StopTimer()
		var ops []Op
		for range 32 {
			ops = append(ops, r.enqueue("q", body, 1))
		}
		data := r.encode(ops...)
		b.StartTimer()
		kept = r.m.Copy()
		r.applyData(b, data)
	}
	runtime.KeepAlive(kept)
}

func BenchmarkEncode(b *testing.B) {
	r := newRig(b)
	r.fill(b, "q", 200_000)
	var w bytes.Buffer
	if err := r.m.Encode(&w); err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(w.Len()))
	b.ReportAllocs()
	for b.Loop() {
		if err := r.m.Encode(io.Discard); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(w.Len())/200_000, "B/job")
}

func BenchmarkDecode(b *testing.B) {
	r := newRig(b)
	r.fill(b, "q", 200_000)
	var w bytes.Buffer
	if err := r.m.Encode(&w); err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(w.Len()))
	for b.Loop() {
		if _, err := Decode(bytes.NewReader(w.Bytes())); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkManyQueues spreads enqueues over 1000 queues.
func BenchmarkManyQueues(b *testing.B) {
	r := newRig(b)
	body := bytes.Repeat([]byte{'x'}, 100)
	const n = 32
	next := 0
	r.run(b, n, func() [][]byte {
		return [][]byte{r.encode(repeat(n, func() Op {
			next++
			return r.enqueue("queue-"+strconv.Itoa(next*7919%1000), body, 1)
		})...)}
	})
}

// BenchmarkMove acks a job and enqueues its successor, 32 times an entry: as one
// transaction each, and as two ops.
func BenchmarkMove(b *testing.B) {
	for _, tx := range []bool{false, true} {
		b.Run(fmt.Sprintf("tx=%v", tx), func(b *testing.B) {
			r := newRig(b)
			r.fill(b, "other", 1_000_000)
			r.request, r.acked = 1_000_000, 1_000_000
			body := bytes.Repeat([]byte{'x'}, 100)
			const n = 32
			r.apply(b, r.enqueue("q", body, n))
			r.run(b, n, func() [][]byte {
				r.now += 5
				var moves []Op
				for range n {
					ops := []Op{r.ackNext(), r.enqueue("q", body, 1)}
					if tx {
						ops = []Op{&Tx{ops}}
					}
					moves = append(moves, ops...)
				}
				return [][]byte{r.encode(repeat(n, func() Op { return r.dequeue("q", 1, 0) })...), r.encode(moves...)}
			})
			if t := r.m.Totals(); t.Acked == 0 || t.Acked != t.Delivered || t.Ready != 1_000_000+n {
				b.Fatalf("not what was meant: %+v", t)
			}
		})
	}
}

// BenchmarkGroups applies batches of 32 enqueues, 32 dequeues and 32 acks of jobs
// that have a group, as one iteration, beside groups that wait for their slots.
func BenchmarkGroups(b *testing.B) {
	for _, c := range []struct {
		name   string
		config QueueConfig
	}{
		{"plain", QueueConfig{}},
		{"limit=10", QueueConfig{GroupLimit: 10}},
		{"fair", QueueConfig{Fair: true}},
		{"aging", QueueConfig{AgingMs: 1000}},
		{"fair,aging", QueueConfig{Fair: true, AgingMs: 1000}},
	} {
		b.Run(c.name, func(b *testing.B) {
			r := newRig(b)
			r.apply(b, &Configure{Queue: "q", Config: c.config, Fields: AllFields})
			// 100,000 groups of two jobs, of which one is leased.
			for i := range 100 {
				op := r.enqueue("q", nil, 1000)
				again := r.enqueue("q", nil, 1000)
				for k := range op.Jobs {
					op.Jobs[k].Group = strconv.Itoa(1000*i + k)
					again.Jobs[k].Group = op.Jobs[k].Group
				}
				take := r.dequeue("q", 1000, 0)
				take.LeaseMs = LeaseMaxMs
				r.apply(b, op, take, again)
				if c.config.GroupLimit > 1 {
					r.apply(b, r.dequeue("q", 1000, 0))
				}
			}
			body := bytes.Repeat([]byte{'x'}, 100)
			const n = 32
			r.acked, r.request = r.counter, r.counter
			r.run(b, 3*n, func() [][]byte {
				return [][]byte{
					r.encode(repeat(n, func() Op {
						op := r.enqueue("q", body, 1)
						op.Jobs[0].Group = "new" + strconv.Itoa(int(r.counter))
						return op
					})...),
					r.encode(repeat(n, func() Op { return r.dequeue("q", 1, 0) })...),
					r.encode(repeat(n, r.ackNext)...),
				}
			})
			if t := r.m.Totals(); t.Acked == 0 {
				b.Fatalf("not what was meant: %+v", t)
			}
		})
	}
}

// BenchmarkKeys enqueues jobs that have keys, beside 100,000 others.
func BenchmarkKeys(b *testing.B) {
	body := bytes.Repeat([]byte{'x'}, 100)
	for _, kind := range []string{"none", "dedup", "hit", "unique", "keyed", "replay"} {
		b.Run(kind, func(b *testing.B) {
			r := newRig(b)
			make1 := func() Op {
				op := r.enqueue("q", body, 1)
				key := "key-" + strconv.Itoa(int(r.counter))
				switch kind {
				case "dedup":
					op.Jobs[0].DedupID = key
				case "hit":
					op.Jobs[0].DedupID = "key-" + strconv.Itoa(int(r.counter%1000))
				case "unique":
					op.Jobs[0].UniqueKey = key
				case "keyed":
					return &Keyed{Key: key, Op: op}
				case "replay":
					return &Keyed{Key: "key-" + strconv.Itoa(int(r.counter%1000)), Op: op}
				}
				return op
			}
			for range 100_000 / 32 {
				r.apply(b, repeat(32, make1)...)
			}
			r.run(b, 32, func() [][]byte { return [][]byte{r.encode(repeat(32, make1)...)} })
		})
	}
}
