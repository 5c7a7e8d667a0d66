package client

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"raftq/cluster"
)

// ledger notes each handling of each job.
type ledger struct {
	mu       sync.Mutex
	handled  map[string][]handling // by body
	busy     int
	idleFrom time.Time     // nobody works since then
	idle     time.Duration // the longest time that nobody worked
	gap      time.Duration // the longest time in which no handler began
	last     time.Time
}

type handling struct {
	began, ended time.Time
	job          *Job
}

func newLedger() *ledger { return &ledger{handled: map[string][]handling{}} }

func (l *ledger) begin() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	if !l.last.IsZero() {
		l.gap = max(l.gap, now.Sub(l.last))
	}
	l.last = now
	if l.busy == 0 && !l.idleFrom.IsZero() {
		l.idle = max(l.idle, now.Sub(l.idleFrom))
	}
	l.busy++
	return now
}

// end notes that a job was handled and returns how many different ones were.
func (l *ledger) end(job *Job, began time.Time) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	body := string(job.Body)
	l.handled[body] = append(l.handled[body], handling{began, now, job})
	if l.busy--; l.busy == 0 {
		l.idleFrom = now
	}
	return len(l.handled)
}

// check proves that all jobs were handled, and those handled twice only after
// their lease: it is the server that counted that as a failure of the job.
func (l *ledger) check(t *testing.T, jobs int) (twice int) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range jobs {
		all := l.handled[fmt.Sprintf("job %d", i)]
		if len(all) == 0 {
			t.Errorf("job %d was not handled", i)
		}
		for n := 1; n < len(all); n++ {
			twice++
			was, is := all[n-1].job, all[n].job
			if is.Failures <= was.Failures || is.Deliveries <= was.Deliveries || is.Fence <= was.Fence {
				t.Errorf("job %d was handled again, and its lease was not over:\n%+v\n%+v", i, was, is)
			}
		}
	}
	if len(l.handled) != jobs {
		t.Errorf("%d different jobs were handled, there are %d", len(l.handled), jobs)
	}
	return twice
}

// fill enqueues "job 0" to "job n-1".
func fill(t *testing.T, ctx context.Context, c *Client, queue string, n int) {
	t.Helper()
	for at := 0; at < n; at += itemsMax {
		list := make([]NewJob, min(itemsMax, n-at))
		for i := range list {
			list[i].Body = fmt.Appendf(nil, "job %d", at+i)
		}
		if _, err := c.EnqueueBatch(ctx, queue, list); err != nil {
			t.Fatal(err)
		}
	}
}

// errorsOnly keeps what a logger is told at level Error.
type errorsOnly struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (e *errorsOnly) Write(p []byte) (int, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.buf.Write(p)
}

func (e *errorsOnly) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(e, &slog.HandlerOptions{Level: slog.LevelError}))
}

func (e *errorsOnly) check(t *testing.T) {
	t.Helper()
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.buf.Len() > 0 {
		t.Errorf("logged as errors:\n%s", &e.buf)
	}
}

func killLeader(t *testing.T, ctx context.Context, nodes *cluster.Cluster) int {
	t.Helper()
	i, err := nodes.Leader(ctx)
	if err != nil {
		t.Fatal(err)
	}
	nodes.Nodes[i].Kill9()
	return i
}

// Thirty-two workers stay busy through a kill -9 of the leader, since jobs are taken
// in advance; every job is handled, none twice unless its lease was over, and nobody
// sees an error.
func TestConsumerThroughLeaderKill(t *testing.T) {
	if testing.Short() {
		t.Skip("real processes")
	}
	const workers, jobs, work = 32, 9000, 20 * time.Millisecond
	nodes := startCluster(t, 3)
	var log errorsOnly
	c := newTestClient(t, nodes.Endpoints(), WithLogger(log.logger()))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	fill(t, ctx, c, "work", jobs)

	led := newLedger()
	third := make(chan struct{})
	stop, end := context.WithCancel(ctx)
	defer end()
	var busy, most atomic.Int64
	k, err := c.NewConsumer([]string{"work"}, func(ctx context.Context, job *Job) error {
		began := led.begin()
		most.Store(max(most.Load(), busy.Add(1)))
		defer busy.Add(-1)
		time.Sleep(work) // the work
		switch led.end(job, began) {
		case jobs / 3:
			close(third)
		case jobs:
			end()
		}
		return ctx.Err()
	}, Concurrency(workers), Lease(15*time.Second), Ahead(3*time.Second), Prefetch(jobs))
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	began := time.Now()
	go func() { done <- k.Run(stop) }()
	<-third
	killLeader(t, ctx, nodes)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	took := time.Since(began)
	twice := led.check(t, jobs)
	log.check(t)
	s := k.Stats()
	if s.Acked+s.Released < jobs || s.Unsettled != 0 || s.Queued+s.Running+s.Settling != 0 {
		t.Errorf("%+v", s)
	}
	q, err := c.Queue(ctx, "work")
	if err != nil || q.Ready+q.Leased+q.Dead != 0 || q.AckedTotal != jobs {
		t.Errorf("%+v %v", q, err)
	}
	if s.Polls < 3 || led.gap > 800*time.Millisecond { // an election takes more than a second
		t.Errorf("after %d polls no handler began for %v", s.Polls, led.gap)
	}
	t.Logf("%d jobs by %d workers in %v (%.0f/s of %.0f/s); %d handled twice; longest time without a beginning %v, without work %v\n%+v",
		jobs, most.Load(), took, jobs/took.Seconds(), workers/work.Seconds(), twice, led.gap, led.idle, s)
}
