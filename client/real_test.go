package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"
	"time"
)

// The calls of everyday work, on three real nodes.
func TestCallsReal(t *testing.T) {
	nodes := startCluster(t, 3)
	c := newTestClient(t, nodes.Endpoints())
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	t.Run("life of a job", func(t *testing.T) { lifeOfAJob(t, ctx, c) })
	t.Run("failures", func(t *testing.T) { failures(t, ctx, c) })
	t.Run("batch", func(t *testing.T) { batch(t, ctx, c) })
	t.Run("refusals", func(t *testing.T) { refusals(t, ctx, c) })
	t.Run("reads", func(t *testing.T) { reads(t, ctx, c) })
}

// must returns v, or fails the test.
func must[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// take dequeues one job.
func take(t *testing.T, ctx context.Context, c *Client, queue string, opts ...DequeueOption) *Job {
	t.Helper()
	jobs := must(c.Dequeue(ctx, queue, append(opts, Wait(10*time.Second))...))(t)
	if len(jobs) != 1 {
		t.Fatalf("%d jobs", len(jobs))
	}
	return jobs[0]
}

func lifeOfAJob(t *testing.T, ctx context.Context, c *Client) {
	const queue = "a/b ü?"
	body := []byte("\x00\xff\r\nbody")
	var meta Meta
	e := must(c.Enqueue(ctx, queue, body, Priority(7), Headers{"tenant": "tü"}, TTL(time.Hour), Into(&meta)))(t)
	if e.Queue != queue || !e.Committed || e.Duplicate || meta.Index == 0 || meta.Node == "" || meta.Leader == "" || meta.Time.IsZero() || meta.Batch != "" {
		t.Errorf("%+v %+v", e, meta)
	}
	job := must(c.Job(ctx, e.ID))(t)
	if job.State != Ready || !bytes.Equal(job.Body, body) || job.ExpiresAt.IsZero() {
		t.Errorf("%+v", job)
	}
	job = take(t, ctx, c, queue, Lease(20*time.Second), As("w1"))
	if job.ID != e.ID || job.Queue != queue || !bytes.Equal(job.Body, body) || job.Priority != 7 || job.Headers["tenant"] != "tü" || job.Deliveries != 1 ||
		job.Failures != 0 || job.Fence <= meta.Index || job.AtMostOnce || job.Lease < 19*time.Second || job.Lease > 20*time.Second || job.EnqueuedAt.IsZero() {
		t.Errorf("%+v", job)
	}
	if x := must(c.Extend(ctx, job.Receipt, time.Minute))(t); x.ID != e.ID || x.Lease < 59*time.Second || x.Lease > time.Minute || x.Cancel {
		t.Errorf("%+v", x)
	}
	if got := must(c.Job(ctx, e.ID))(t); got.State != Leased || got.Consumer != "w1" || got.Receipt != "" {
		t.Errorf("%+v", got)
	}
	if s := must(c.Ack(ctx, job.Receipt))(t); s.ID != e.ID || s.Late || s.Already {
		t.Errorf("%+v", s)
	}
	if s := must(c.Ack(ctx, job.Receipt))(t); !s.Already {
		t.Errorf("%+v", s)
	}
	if _, err := c.Job(ctx, e.ID); !errors.Is(err, ErrJobGone) {
		t.Error(err)
	}
}

func failures(t *testing.T, ctx context.Context, c *Client) {
	const queue = "failing"
	e := must(c.Enqueue(ctx, queue, nil, MaxFailures(2)))(t)
	job := take(t, ctx, c, queue)
	must(c.Release(ctx, job.Receipt))(t)
	job = take(t, ctx, c, queue)
	if job.Failures != 0 || len(job.Body) != 0 {
		t.Errorf("after a release: %+v", job)
	}
	if s := must(c.Nack(ctx, job.Receipt, errors.New("smtp 451"), Delay(50*time.Millisecond)))(t); s.Dead {
		t.Errorf("%+v", s)
	}
	job = take(t, ctx, c, queue)
	if job.Failures != 1 || job.LastError != "smtp 451" {
		t.Errorf("after a nack: %+v", job)
	}
	if s := must(c.Nack(ctx, job.Receipt, nil))(t); !s.Dead {
		t.Errorf("%+v", s)
	}
	if got := must(c.Job(ctx, e.ID))(t); got.State != Dead || got.DeadReason != "max_failures" {
		t.Errorf("%+v", got)
	}
	once := must(c.Enqueue(ctx, queue, nil, AtMostOnce))(t)
	if job = take(t, ctx, c, queue); job.ID != once.ID || !job.AtMostOnce {
		t.Errorf("%+v", job)
	}
	if _, err := c.Release(ctx, job.Receipt); !errors.Is(err, ErrAtMostOnce) {
		t.Error(err)
	}
}

func batch(t *testing.T, ctx context.Context, c *Client) {
	const queue = "batch"
	list := make([]NewJob, 100)
	for i := range list {
		list[i] = NewJob{Body: fmt.Append(nil, "\xff", i), Options: []JobOption{Headers{"n": fmt.Sprint(i)}}}
	}
	made := must(c.EnqueueBatch(ctx, queue, list[:50]))(t)
	made = append(made, must(c.EnqueueAtomic(ctx, queue, list[50:]))(t)...)
	jobs := must(c.DequeueAny(ctx, []string{"nothing", queue}, Max(100)))(t)
	if len(jobs) != 100 {
		t.Fatalf("%d jobs", len(jobs))
	}
	var done []Settlement
	for i, job := range jobs {
		if job.ID != made[i].ID || !bytes.Equal(job.Body, list[i].Body) || job.Headers["n"] != fmt.Sprint(i) {
			t.Errorf("%d: %+v", i, job)
		}
		done = append(done, Settlement{Verb: VerbAck, Ref: job.Receipt})
	}
	done[7].Ref = "D-00000000-000000000000000000000000-0000.1.x"
	got, err := c.Settle(ctx, done)
	var some *BatchError
	if !errors.As(err, &some) || len(some.Items) != 1 || some.Items[0].Index != 7 || !errors.Is(err, ErrBadJobID) {
		t.Error(err)
	}
	for i, s := range got {
		if i != 7 && s.ID != jobs[i].ID {
			t.Errorf("%d: %+v", i, s)
		}
	}
	if q := must(c.Queue(ctx, queue))(t); q.AckedTotal != 99 || q.Leased != 1 {
		t.Errorf("%+v", q)
	}
}

func refusals(t *testing.T, ctx context.Context, c *Client) {
	var e *Error
	_, err := c.Enqueue(ctx, "q", nil, Priority(10))
	if !errors.Is(err, ErrInvalidOption) || !errors.As(err, &e) || e.Status != 422 || e.Applied != NotApplied || e.Retryable || e.Detail == "" || e.Attempts != 1 {
		t.Errorf("%+v", e)
	}
	for name, err := range map[Code]error{
		ErrInvalidOption: func() error { _, err := c.Enqueue(ctx, "$reserved", nil); return err }(),
		ErrQueueNotFound: func() error { _, err := c.Queue(ctx, "nothing"); return err }(),
		ErrBadJobID:      func() error { _, err := c.Job(ctx, "D-1"); return err }(),
		ErrBodyTooLarge:  func() error { _, err := c.Enqueue(ctx, "q", make([]byte, 2<<20)); return err }(),
	} {
		if !errors.Is(err, name) {
			t.Errorf("%v, want %s", err, name)
		}
	}
	must(c.Enqueue(ctx, "full", nil))(t)
	if _, err := c.DeleteQueue(ctx, "full", false); !errors.Is(err, ErrQueueNotEmpty) {
		t.Error(err)
	}
	if n := must(c.DeleteQueue(ctx, "full", true))(t); n != 1 {
		t.Errorf("%d jobs went with the queue", n)
	}
	// A consumer of a queue that no queue can be ends, and says why.
	err = c.Consume(ctx, "$reserved", func(context.Context, *Job) error { return nil })
	if !errors.Is(err, ErrInvalidOption) {
		t.Error(err)
	}
}

func reads(t *testing.T, ctx context.Context, c *Client) {
	var wrote, read Meta
	must(c.Enqueue(ctx, "reads", nil, Fast, Into(&wrote)))(t)
	if wrote.Batch != "" {
		fate := Pending
		for fate == Pending {
			fate = must(c.Fate(ctx, wrote.Batch))(t)
		}
		if fate != Committed {
			t.Error(fate)
		}
	}
	for range 3 { // nodes, one after the other
		q := must(c.Queue(ctx, "reads", Fast, MinIndex(wrote.Index), MaxStale(time.Minute), Into(&read)))(t)
		if q.Ready != 1 || read.Index < wrote.Index {
			t.Errorf("%+v of %+v", q, read)
		}
	}
	info := must(c.Cluster(ctx))(t)
	if len(info.Nodes) != 3 || info.Leader == "" || info.ClusterID == "" || info.Nodes[0].Client == "" {
		t.Errorf("%+v", info)
	}
	ans := must(c.Do(ctx, Request{Method: "GET", Path: "/version", Repeat: RepeatAlways}))(t)
	if ans.Status != 200 || !bytes.Contains(ans.Body, []byte("raftq")) || ans.Meta().Node == "" {
		t.Errorf("%+v", ans)
	}
}
