package client

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// ledger notes each handling of each job.
type ledger struct {
	mu       sync.Mutex
	handled  map[string][]handling // by body
	longest  time.Duration         // between two beginnings
	lastBeat time.Time
	gapAt    time.Time
}

type handling struct {
	began, ended time.Time
	job          *Job
}

func newLedger() *ledger { return &ledger{handled: map[string][]handling{}} }

func (l *ledger) begin(now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if gap := now.Sub(l.lastBeat); !l.lastBeat.IsZero() && gap > l.longest {
		l.longest, l.gapAt = gap, now
	}
	l.lastBeat = now
}

func (l *ledger) end(job *Job, began time.Time) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	body := string(job.Body)
	l.handled[body] = append(l.handled[body], handling{began, time.Now(), job})
	return len(l.handled)
}

// Thirty-two workers go on through a kill -9 of the leader: every job is handled,
// none twice unless its lease was over, and no error is seen.
func TestConsumerThroughLeaderKill(t *testing.T) {
	const workers, jobs, work = 32, 6000, 20 * time.Millisecond
	nodes := startCluster(t, 3)
	c := newTestClient(t, nodes.Endpoints())
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for at := 0; at < jobs; at += 500 {
		list := make([]NewJob, 500)
		for i := range list {
			list[i].Body = fmt.Appendf(nil, "job %d", at+i)
		}
		if _, err := c.EnqueueBatch(ctx, "work", list); err != nil {
			t.Fatal(err)
		}
	}
	led := newLedger()
	half := make(chan struct{})
	stop, end := context.WithCancel(ctx)
	defer end()
	var busy, most atomic.Int64
	k, err := c.NewConsumer([]string{"work"}, func(ctx context.Context, job *Job) error {
		began := time.Now()
		led.begin(began)
		n := busy.Add(1)
		defer busy.Add(-1)
		for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
		}
		time.Sleep(work) // the work
		switch led.end(job, began) {
		case jobs / 2:
			close(half)
		case jobs:
			end()
		}
		return ctx.Err()
	}, Concurrency(workers), Lease(6*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	began := time.Now()
	go func() { done <- k.Run(stop) }()
	<-half
	leader, err := nodes.Leader(ctx)
	if err != nil {
		t.Fatal(err)
	}
	nodes.Nodes[leader].Kill9()
	killed := time.Now()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	took := time.Since(began)
	s := k.Stats()
	dup := 0
	for _, h := range led.handled {
		dup += len(h) - 1
	}
	q, err := c.Queue(ctx, "work")
	t.Logf("%d of %d jobs, %d twice, in %v (%.0f/s), at most %d at once; longest pause %v, %v after the kill\n%+v\n%+v %v",
		len(led.handled), jobs, dup, took, float64(jobs)/took.Seconds(), most.Load(), led.longest, led.gapAt.Sub(killed), s, q, err)
}
