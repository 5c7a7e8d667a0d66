package client

import (
	"context"
	"fmt"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"raftq/cluster"
)

// churn is producers and a consumer that go on whatever happens to the nodes.
type churn struct {
	t     *testing.T
	ctx   context.Context
	nodes *cluster.Cluster
	c     *Client
	k     *Consumer
	led   *ledger
	log   errorsOnly

	made atomic.Int64
	quit chan struct{}
	all  sync.WaitGroup
	stop context.CancelFunc
	done chan error // of the consumer
}

func startChurn(t *testing.T, nodes *cluster.Cluster, workers int, lease time.Duration) *churn {
	const producers = 8
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(cancel)
	h := &churn{t: t, ctx: ctx, nodes: nodes, led: newLedger(), quit: make(chan struct{}), done: make(chan error, 1)}
	h.c = newTestClient(t, nodes.Endpoints(), WithLogger(h.log.logger()), WithAttemptTimeout(3*time.Second))
	var err error
	h.k, err = h.c.NewConsumer([]string{"work"}, func(ctx context.Context, job *Job) error {
		began := h.led.begin()
		time.Sleep(5 * time.Millisecond) // the work
		h.led.end(job, began)
		return ctx.Err()
	}, Concurrency(workers), Lease(lease))
	if err != nil {
		t.Fatal(err)
	}
	var stop context.Context
	stop, h.stop = context.WithCancel(ctx)
	go func() { h.done <- h.k.Run(stop) }()
	ids := sync.Map{}
	for range producers {
		h.all.Go(func() {
			for {
				select {
				case <-h.quit:
					return
				default:
				}
				n := h.made.Add(1) - 1
				e, err := h.c.Enqueue(ctx, "work", fmt.Appendf(nil, "job %d", n))
				if err != nil {
					t.Errorf("job %d: %v", n, err)
					return
				}
				if _, twice := ids.LoadOrStore(e.ID, n); twice {
					t.Errorf("id %s came twice", e.ID)
				}
				time.Sleep(2 * time.Millisecond) // a bounded load
			}
		})
	}
	return h
}

// progress waits until jobs have flowed.
func (h *churn) progress(what string) {
	h.t.Helper()
	from := h.k.Stats().Acked
	eventually(h.t, 30*time.Second, "acks "+what, func() bool { return h.k.Stats().Acked > from+100 })
}

// end proves that each job was enqueued once and acked once.
func (h *churn) end() {
	h.t.Helper()
	close(h.quit)
	h.all.Wait()
	jobs := int(h.made.Load())
	eventually(h.t, 60*time.Second, "all jobs", func() bool {
		h.led.mu.Lock()
		defer h.led.mu.Unlock()
		return len(h.led.handled) >= jobs
	})
	h.stop()
	if err := <-h.done; err != nil {
		h.t.Fatal(err)
	}
	twice := h.led.check(h.t, jobs)
	h.log.check(h.t)
	q, err := h.c.Queue(h.ctx, "work")
	if err != nil || q.EnqueuedTotal != uint64(jobs) || q.AckedTotal != uint64(jobs) {
		h.t.Errorf("of %d jobs: %+v %v", jobs, q, err)
	}
	h.t.Logf("%d jobs, %d handled twice after their lease; %+v", jobs, twice, h.k.Stats())
}

// Producers and consumers go on while each node in turn is killed and started again,
// and one is frozen for a while; no call fails, nothing is lost or doubled.
func TestAllThroughNodeKills(t *testing.T) {
	if testing.Short() {
		t.Skip("real processes")
	}
	nodes := startCluster(t, 3)
	h := startChurn(t, nodes, 16, 5*time.Second)
	h.progress("at first")
	for i, n := range nodes.Nodes {
		n.Kill9()
		h.progress(fmt.Sprintf("without n%d", i+1))
		if err := n.Start(); err != nil {
			t.Fatal(err)
		}
		if err := n.WaitReady(h.ctx); err != nil {
			t.Fatal(err)
		}
		h.progress(fmt.Sprintf("with n%d again", i+1))
	}
	leader, err := nodes.Leader(h.ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := nodes.Nodes[leader].Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	h.progress("with a frozen leader")
	if err := nodes.Nodes[leader].Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	h.progress("at last")
	h.end()
}

// A consumer with 32 workers goes on while a node joins, the leader is removed by
// the client itself, another node is killed, and a new one takes its place: nothing
// is lost, and until the kill no lease has to end for that.
func TestConsumerThroughMemberChanges(t *testing.T) {
	if testing.Short() {
		t.Skip("real processes")
	}
	nodes := startCluster(t, 3)
	fourth, err := nodes.Add()
	if err != nil {
		t.Fatal(err)
	}
	h := startChurn(t, nodes, 32, 5*time.Second)
	h.progress("at first")
	voter := func(name string, want bool) {
		t.Helper()
		eventually(t, 30*time.Second, fmt.Sprintf("%s a voter: %v", name, want), func() bool {
			cl, err := h.c.Cluster(h.ctx)
			return err == nil && want == slices.ContainsFunc(cl.Nodes, func(m Member) bool { return m.Name == name && m.Role == "voter" })
		})
	}
	join := func(n *cluster.Node) {
		t.Helper()
		if err := n.Start(); err != nil {
			t.Fatal(err)
		}
		if err := n.WaitReady(h.ctx); err != nil {
			t.Fatal(err)
		}
		voter(n.Name, true)
	}
	join(fourth)
	h.progress("with four")
	i, err := nodes.Leader(h.ctx)
	if err != nil {
		t.Fatal(err)
	}
	lead := nodes.Nodes[i]
	if _, err := h.c.RemoveMember(h.ctx, lead.Name); err != nil {
		t.Fatal(err)
	}
	voter(lead.Name, false)
	h.progress("without the leader")
	h.led.mu.Lock()
	for body, all := range h.led.handled {
		if len(all) > 1 {
			t.Errorf("%s was handled %d times, and nobody was killed", body, len(all))
		}
	}
	h.led.mu.Unlock()
	victim := nodes.Nodes[(i+1)%3]
	victim.Kill9()
	h.progress("without one of three")
	if err := os.RemoveAll(victim.DataDir); err != nil {
		t.Fatal(err)
	}
	victim.Joins, victim.Args = true, append(slices.Clone(victim.Args), "--replace")
	join(victim)
	h.progress("with it again")
	h.end()
}

// Consumers that come and go all the time leave nothing behind: every job is handled
// once, and no lease had to end for that.
func TestConsumersComeAndGo(t *testing.T) {
	if testing.Short() {
		t.Skip("real processes")
	}
	const jobs = 800
	nodes := startCluster(t, 3)
	c := newTestClient(t, nodes.Endpoints())
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	led := newLedger()
	handle := func(ctx context.Context, job *Job) error {
		led.end(job, led.begin())
		return nil
	}
	done := make(chan struct{})
	go func() { // one at a time, so that polls are parked when they are broken off
		defer close(done)
		for i := range jobs {
			if _, err := c.Enqueue(ctx, "work", fmt.Appendf(nil, "job %d", i)); err != nil {
				t.Errorf("job %d: %v", i, err)
				return
			}
		}
	}()
	comeAndGo := func(stay time.Duration) {
		stop, end := context.WithTimeout(ctx, stay)
		defer end()
		if err := c.Consume(stop, "work", handle, Concurrency(4), Lease(time.Hour)); err != nil {
			t.Error(err)
		}
	}
	rounds := 0
	for enqueued := false; !enqueued; rounds++ {
		comeAndGo(time.Duration(5+rounds%20) * time.Millisecond)
		select {
		case <-done:
			enqueued = true
		default:
		}
	}
	eventually(t, 30*time.Second, "all jobs", func() bool {
		comeAndGo(20 * time.Millisecond)
		led.mu.Lock()
		defer led.mu.Unlock()
		return len(led.handled) == jobs
	})
	if twice := led.check(t, jobs); twice != 0 {
		t.Errorf("%d were handled twice", twice)
	}
	q, err := c.Queue(ctx, "work")
	if err != nil || q.Ready+q.Leased+q.Dead != 0 || q.FailedTotal != 0 || q.AckedTotal != jobs {
		t.Errorf("%+v %v", q, err)
	}
	t.Logf("%d consumers", rounds)
}
