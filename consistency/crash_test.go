package consistency

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"raftq/cluster"
)

// load is 12 clients on three nodes: two producers and two consumers on each.
type load struct {
	h       *history
	c       *cluster.Cluster
	queue   string
	stop    chan struct{}
	wg      sync.WaitGroup
	firstIn sync.Map // term → time of the first answer in it
	lease   time.Duration
	answers atomic.Int64
}

// await waits until the load has got n more answers.
func (l *load) await(t *testing.T, n int64) {
	t.Helper()
	n += l.answers.Load()
	eventually(t, 30*time.Second, "answers under load", func() bool { return l.answers.Load() >= n })
}

func startLoad(h *history, c *cluster.Cluster, ctx context.Context, queue string) *load {
	l := &load{h: h, c: c, queue: queue, stop: make(chan struct{}), lease: 5 * time.Second}
	for i := range 12 {
		node := i % len(c.Nodes)
		cl := newClient(h, node, c.Nodes[node].Client)
		if i < 6 {
			l.wg.Go(func() { l.produce(ctx, cl, i) })
		} else {
			l.wg.Go(func() { l.consume(ctx, cl) })
		}
	}
	return l
}

func (l *load) stopped() bool {
	select {
	case <-l.stop:
		return true
	default:
		return false
	}
}

// saw notes an answer of a write.
func (l *load) saw(a answer) {
	if a.status != 0 && a.status < 300 && a.term() > 0 {
		l.answers.Add(1)
		l.firstIn.LoadOrStore(a.term(), l.h.now())
	}
}

func (l *load) produce(ctx context.Context, c *client, who int) {
	for n := 0; !l.stopped(); n++ {
		a, e := c.enqueue(ctx, l.queue, fmt.Sprintf("p%d-%d", who, n))
		if e.outcome == done {
			l.saw(a)
		} else {
			l.backoff(ctx)
		}
	}
}

func (l *load) consume(ctx context.Context, c *client) {
	for !l.stopped() {
		_, ds, err := c.dequeue(ctx, l.queue, 3, 500*time.Millisecond, l.lease)
		if err != nil {
			l.backoff(ctx)
		}
		for _, d := range ds {
			l.saw(c.ack(ctx, d))
		}
	}
}

// backoff keeps a client of a dead node from spinning.
func (l *load) backoff(ctx context.Context) {
	select {
	case <-time.After(20 * time.Millisecond):
	case <-ctx.Done():
	case <-l.stop:
	}
}

// end stops the clients and drains the queue: what is leased comes back after
// its lease.
func (l *load) end(t *testing.T, ctx context.Context) {
	t.Helper()
	close(l.stop)
	l.wg.Wait()
	drain(t, ctx, newClient(l.h, 0, l.c.Nodes[0].Client), l.queue)
}

func drain(t *testing.T, ctx context.Context, c *client, queue string) {
	t.Helper()
	eventually(t, 60*time.Second, "an empty queue", func() bool {
		_, ds, err := c.dequeue(ctx, queue, 500, 0, 5*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range ds {
			c.ack(ctx, d)
		}
		if len(ds) > 0 {
			return false
		}
		s, err := c.queue(ctx, queue)
		if err != nil {
			t.Fatal(err)
		}
		return s.Ready+s.Delayed+s.Leased == 0
	})
}

// TestCrash kills the leader under load, round after round, then all nodes at
// once. Nothing acknowledged is lost or doubled; clients of the other nodes see
// no error; the first answer of a new leader comes within 2.5 election timeouts
// in the median and 5 in the worst round.
func TestCrash(t *testing.T) {
	rounds := env("RAFTQ_CRASH_ROUNDS", 3)
	c, ctx := start(t, 3)
	h := newHistory()
	l := startLoad(h, c, ctx, "crash")
	var failovers []time.Duration
	kill := func(round int) {
		victim := leader(t, c, ctx)
		v, err := newClient(h, victim, c.Nodes[victim].Client).view(ctx)
		if err != nil {
			t.Fatal(err)
		}
		l.await(t, 500) // under load, in this term
		var others []int
		for i := range c.Nodes {
			if i != victim {
				others = append(others, i)
			}
		}
		from := h.now()
		c.Nodes[victim].Kill9()
		var took time.Duration
		eventually(t, 30*time.Second, "an answer of a new leader", func() bool {
			found := false
			l.firstIn.Range(func(k, at any) bool {
				if k.(uint64) > v.Term {
					took, found = at.(time.Duration)-from, true
				}
				return !found
			})
			return found
		})
		failovers = append(failovers, took)
		if err := c.Nodes[victim].Start(); err != nil {
			t.Fatal(err)
		}
		if err := c.WaitReady(ctx); err != nil {
			t.Fatal(err)
		}
		if errs := h.errorsSince(from, others...); len(errs) > 0 {
			t.Errorf("round %d: clients of nodes that were not killed saw %d errors, the first: %+v", round, len(errs), errs[0])
		}
		t.Logf("round %d: killed %s, first answer after %v", round, c.Nodes[victim].Name, took.Round(time.Millisecond))
	}
	for round := range rounds {
		kill(round)
	}
	slices.Sort(failovers)
	median, worst := failovers[len(failovers)/2], failovers[len(failovers)-1]
	t.Logf("failover over %d rounds: median %v, worst %v (election timeout %v)", rounds, median.Round(time.Millisecond), worst.Round(time.Millisecond), electionTimeout)
	if median > electionTimeout*5/2 || worst > electionTimeout*5 {
		t.Errorf("failover too slow: median %v, worst %v", median, worst)
	}
	for _, n := range c.Nodes {
		n.Kill9()
	}
	from := h.now()
	if err := c.Start(ctx); err != nil {
		t.Fatal(err)
	}
	t.Logf("all killed, all ready again after %v", (h.now() - from).Round(time.Millisecond))
	l.await(t, 500)
	l.end(t, ctx)
	v := h.judge()
	t.Log(v)
	v.mustHold(t)
	sameChains(t, c, ctx, 20*time.Second)
}
