package fsm

import (
	"bytes"
	"runtime"
	"strconv"
	"testing"
)

// TestBytesOfMany proves what an empty queue, a job that is alone in its queue and a
// waiter take, and that Bytes counts no less than that and not far more.
func TestBytesOfMany(t *testing.T) {
	const queues, waiters = 100_000, 10_000
	name := func(i int) string { return "queue-" + strconv.Itoa(i) }
	r := newRig(t)
	body := bytes.Repeat([]byte{'x'}, 100)
	taken, counted := int64(heap()), r.m.Bytes()
	measure := func(what string, n int, most float64) {
		now := int64(heap())
		took, bytes := float64(now-taken)/float64(n), float64(r.m.Bytes()-counted)/float64(n)
		t.Logf("%d times %s: %.0f bytes each on the heap, %.0f counted", n, what, took, bytes)
		if took > most {
			t.Errorf("%s takes %.0f bytes, want at most %.0f", what, took, most)
		}
		if bytes < took || bytes > 2*took {
			t.Errorf("%s is counted as %.0f bytes and takes %.0f", what, bytes, took)
		}
		taken, counted = now, r.m.Bytes()
	}

	for i := range queues {
		r.apply(t, &Configure{Queue: name(i), Create: true})
	}
	measure("an empty queue", queues, 800)

	for i := range queues {
		r.apply(t, r.enqueue(name(i), body, 1))
	}
	measure("a job of 100 bytes in a queue of its own", queues, 450)

	// Waiters of other queues, on a third of them more than one.
	for i := range waiters {
		r.apply(t, r.dequeue("empty-"+strconv.Itoa(i*2/3), 1, WaitMaxMs))
	}
	if got := r.m.parked.Len(); got != waiters {
		t.Fatalf("%d wait, want %d", got, waiters)
	}
	measure("a waiter", waiters, 900)

	if err := r.m.Check(); err != nil {
		t.Error(err)
	}
	runtime.KeepAlive(r)
}

// TestBytesPerMessage bounds what a message of 100 bytes takes on the heap, whatever
// the size of the entries that brought it, and holds what is counted against it.
func TestBytesPerMessage(t *testing.T) {
	n := 1_000_000
	if testing.Short() {
		n = 100_000
	}
	for _, batch := range []int{1000, 10} {
		before := heap()
		r := newRig(t)
		op := &Append{Topic: "t", Messages: make([]NewMessage, batch)}
		for i := range op.Messages {
			op.Messages[i].Body = make([]byte, 100)
		}
		for range n / batch {
			r.applyData(t, r.encode(op))
		}
		took := float64(heap()-before) / float64(n)
		counted := float64(r.m.Bytes()) / float64(n)
		t.Logf("%d messages of 100 bytes, %d an entry: %.0f bytes a message on the heap, %.0f counted", n, batch, took, counted)
		if took > 150 || counted < took/1.2 {
			t.Errorf("%.0f bytes a message, %.0f counted", took, counted)
		}
		runtime.KeepAlive(r)
	}
}
