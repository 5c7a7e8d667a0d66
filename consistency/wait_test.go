package consistency

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// park starts n waiting dequeues on a node and returns when all are waiters in
// the machine. Each result is sent to got.
func park(t *testing.T, ctx context.Context, c *client, queue string, n int, wait, lease time.Duration, got chan<- *delivery, wg *sync.WaitGroup) {
	t.Helper()
	before, err := c.queue(ctx, queue)
	if err != nil {
		t.Fatal(err)
	}
	for range n {
		one := newClient(c.h, c.node, c.addr)
		wg.Go(func() {
			_, ds, _ := one.dequeue(ctx, queue, 1, wait, lease)
			for _, d := range ds {
				got <- d
			}
		})
	}
	eventually(t, 20*time.Second, fmt.Sprintf("%d waiters", n), func() bool {
		s, err := c.queue(ctx, queue)
		return err == nil && s.Waiters >= before.Waiters+n
	})
}

// TestHandOff proves that a consumer waiting on one node gets a job enqueued on
// another in one log entry, and that the oldest of 50 waiters on three nodes is
// served first.
func TestHandOff(t *testing.T) {
	c, ctx := start(t, 3)
	h := newHistory()
	got := make(chan *delivery, 100)
	var wg sync.WaitGroup
	// A queue must exist to show its waiters.
	setup := newClient(h, 0, c.Nodes[0].Client)
	setup.enqueue(ctx, "handoff", "first")
	drain(t, ctx, setup, "handoff")

	// Waiters arrive one by one, on the nodes in turn; each is told apart by the
	// lease it asks for.
	const waiters = 50
	for i := range waiters {
		park(t, ctx, newClient(h, i%3, c.Nodes[i%3].Client), "handoff", 1, 50*time.Second, time.Minute+time.Duration(i)*time.Millisecond, got, &wg)
	}
	producer := newClient(h, 1, c.Nodes[1].Client)
	for i := range waiters {
		_, e := producer.enqueue(ctx, "handoff", fmt.Sprintf("job-%d", i))
		if e.outcome != done {
			t.Fatalf("enqueue %d failed", i)
		}
		d := <-got
		if d.body != e.body {
			t.Fatalf("enqueued %s, delivered %s", e.body, d.body)
		}
		if d.fence != e.index {
			t.Errorf("job %d: enqueued by entry %d, handed out by entry %d: not the same", i, e.index, d.fence)
		}
		if place := int((d.lease - time.Minute) / time.Millisecond); place != i {
			t.Errorf("job %d went to waiter %d", i, place)
		}
	}
	wg.Wait()
}

// TestParkedNodeKilled kills a node with 1,000 parked consumers under load: at
// most the jobs of half a second go to them and come back after their lease, and
// nothing else waits.
func TestParkedNodeKilled(t *testing.T) {
	c, ctx := start(t, 3)
	h := newHistory()
	victim := (leader(t, c, ctx) + 1) % 3 // a follower: leadership stays
	other := (victim + 1) % 3
	setup := newClient(h, other, c.Nodes[other].Client)
	setup.enqueue(ctx, "parked", "first")
	drain(t, ctx, setup, "parked")
	got := make(chan *delivery, 2000)
	var wg sync.WaitGroup
	const lease = 3 * time.Second
	for range 10 {
		park(t, ctx, newClient(h, victim, c.Nodes[victim].Client), "parked", 100, 50*time.Second, lease, got, &wg)
	}
	// Behind them wait consumers of a healthy node.
	park(t, ctx, newClient(h, other, c.Nodes[other].Client), "parked", 5, 50*time.Second, lease, got, &wg)
	c.Nodes[victim].Kill9()
	killed := h.now()

	// Jobs go in steadily; healthy consumers take what they are handed.
	var stop atomic.Bool
	var load sync.WaitGroup
	rate := time.NewTicker(2 * time.Millisecond)
	defer rate.Stop()
	load.Go(func() {
		for i := 0; !stop.Load(); i++ {
			<-rate.C
			setup.enqueue(ctx, "parked", fmt.Sprintf("job-%d", i))
		}
	})
	for range 5 {
		one := newClient(h, other, c.Nodes[other].Client)
		load.Go(func() {
			for !stop.Load() {
				_, ds, _ := one.dequeue(ctx, "parked", 5, 200*time.Millisecond, lease)
				for _, d := range ds {
					one.ack(ctx, d)
				}
			}
		})
	}
	eventually(t, 60*time.Second, "1500 jobs acked", func() bool {
		h.mu.Lock()
		defer h.mu.Unlock()
		n := 0
		for _, d := range h.deliveries {
			if d.ack == done {
				n++
			}
		}
		return n >= 1500
	})
	stop.Store(true)
	load.Wait()
	drain(t, ctx, setup, "parked")
	wg.Wait()

	h.mu.Lock()
	late, lateFirst, lateLast := 0, time.Duration(0), time.Duration(0)
	for _, d := range h.deliveries {
		e := h.enqueues[d.body]
		if e.call < killed {
			continue
		}
		if d.deliveries > 1 { // went to a dead consumer before
			if late++; lateFirst == 0 || e.ret < lateFirst {
				lateFirst = e.ret
			}
			lateLast = max(lateLast, e.ret)
			if d.ret-e.ret > lease+lease/100+2*time.Second {
				t.Errorf("job %s came back only %v after its enqueue, its lease was %v", d.id, d.ret-e.ret, lease)
			}
		} else if d.ret-e.ret > time.Second {
			t.Errorf("job %s waited %v though consumers were there", d.id, d.ret-e.ret)
		}
	}
	h.mu.Unlock()
	t.Logf("%d jobs went to dead consumers, enqueued between %v and %v after the kill", late, (lateFirst - killed).Round(time.Millisecond), (lateLast - killed).Round(time.Millisecond))
	if late > 0 && lateLast-killed > 500*time.Millisecond {
		t.Errorf("jobs went to dead consumers for %v, more than half a second", lateLast-killed)
	}
	h.judge().mustHold(t)
}
