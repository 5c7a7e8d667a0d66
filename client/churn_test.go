package client

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// Producers and consumers go on while each node in turn is killed and started again,
// and one is frozen for a while; no call fails, nothing is lost or doubled.
func TestAllThroughNodeKills(t *testing.T) {
	if testing.Short() {
		t.Skip("real processes")
	}
	const producers, workers = 8, 16
	nodes := startCluster(t, 3)
	var log errorsOnly
	c := newTestClient(t, nodes.Endpoints(), WithLogger(log.logger()), WithAttemptTimeout(3*time.Second))
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()

	led := newLedger()
	stop, end := context.WithCancel(ctx)
	defer end()
	k, err := c.NewConsumer([]string{"work"}, func(ctx context.Context, job *Job) error {
		began := led.begin()
		time.Sleep(5 * time.Millisecond) // the work
		led.end(job, began)
		return ctx.Err()
	}, Concurrency(workers), Lease(10*time.Second), Wait(3*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- k.Run(stop) }()

	var made atomic.Int64
	quit := make(chan struct{})
	ids := sync.Map{}
	var all sync.WaitGroup
	for range producers {
		all.Go(func() {
			for {
				select {
				case <-quit:
					return
				default:
				}
				n := made.Add(1) - 1
				e, err := c.Enqueue(ctx, "work", fmt.Appendf(nil, "job %d", n))
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
	progress := func(what string) {
		t.Helper()
		from := k.Stats().Acked
		eventually(t, 30*time.Second, "acks "+what, func() bool { return k.Stats().Acked > from+200 })
	}
	progress("at first")
	for i, n := range nodes.Nodes {
		n.Kill9()
		progress(fmt.Sprintf("without n%d", i+1))
		if err := n.Start(); err != nil {
			t.Fatal(err)
		}
		if err := n.WaitReady(ctx); err != nil {
			t.Fatal(err)
		}
		progress(fmt.Sprintf("with n%d again", i+1))
	}
	leader, err := nodes.Leader(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := nodes.Nodes[leader].Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	progress("with a frozen leader")
	if err := nodes.Nodes[leader].Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	progress("at last")
	close(quit)
	all.Wait()
	jobs := int(made.Load())
	eventually(t, 60*time.Second, "all jobs", func() bool {
		led.mu.Lock()
		defer led.mu.Unlock()
		return len(led.handled) >= jobs
	})
	end()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	twice := led.check(t, jobs)
	log.check(t)
	q, err := c.Queue(ctx, "work")
	if err != nil || q.EnqueuedTotal != uint64(jobs) || q.AckedTotal != uint64(jobs) {
		t.Errorf("of %d jobs: %+v %v", jobs, q, err)
	}
	t.Logf("%d jobs, %d handled twice after their lease; %+v", jobs, twice, k.Stats())
}
