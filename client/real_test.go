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
	if testing.Short() {
		t.Skip("real processes")
	}
	nodes := startCluster(t, 3)
	c := newTestClient(t, nodes.Endpoints())
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	t.Run("life of a job", func(t *testing.T) { lifeOfAJob(t, ctx, c) })
	t.Run("failures", func(t *testing.T) { failures(t, ctx, c) })
	t.Run("batch", func(t *testing.T) { batch(t, ctx, c) })
	t.Run("refusals", func(t *testing.T) { refusals(t, ctx, c) })
	t.Run("reads", func(t *testing.T) { reads(t, ctx, c) })
	t.Run("jobs by hand", func(t *testing.T) { jobsByHand(t, ctx, c) })
	t.Run("queues by hand", func(t *testing.T) { queuesByHand(t, ctx, c) })
	t.Run("dead jobs", func(t *testing.T) { deadJobs(t, ctx, c) })
	t.Run("consumers", func(t *testing.T) { consumers(t, ctx, c) })
	t.Run("keys", func(t *testing.T) { keys(t, ctx, c) })
	t.Run("transactions", func(t *testing.T) { transactions(t, ctx, c) })
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

func jobsByHand(t *testing.T, ctx context.Context, c *Client) {
	const queue = "by hand"
	e := must(c.Enqueue(ctx, queue, []byte("x"), Delay(time.Hour)))(t)
	state := func() State { return must(c.Job(ctx, e.ID))(t).State }
	if s := state(); s != Delayed {
		t.Error(s)
	}
	if err := c.Requeue(ctx, e.ID); err != nil || state() != Ready {
		t.Error(err, state())
	}
	if err := c.Hold(ctx, e.ID); err != nil || state() != Held {
		t.Error(err, state())
	}
	if jobs := must(c.Dequeue(ctx, queue))(t); len(jobs) != 0 {
		t.Errorf("a held job is handed out: %+v", jobs[0])
	}
	if err := c.Requeue(ctx, e.ID); err != nil || state() != Ready {
		t.Error(err, state())
	}
	job := take(t, ctx, c, queue)
	if err := c.Cancel(ctx, e.ID); err != nil {
		t.Error(err)
	}
	if x := must(c.Extend(ctx, job.Receipt, 0))(t); !x.Cancel {
		t.Errorf("%+v", x)
	}
	ended := make(chan Ending, 1)
	go func() {
		end, err := c.JobWait(ctx, e.ID)
		if err != nil {
			t.Error(err)
		}
		ended <- end
	}()
	if err := c.DeleteJob(ctx, e.ID); err != nil {
		t.Error(err)
	}
	if end := <-ended; end.ID != e.ID || end.State != EndDone {
		t.Errorf("%+v", end)
	}
	if _, err := c.Ack(ctx, job.Receipt); err != nil && !errors.Is(err, ErrJobGone) {
		t.Error(err)
	}
}

func queuesByHand(t *testing.T, ctx context.Context, c *Client) {
	const queue = "hand/1"
	v := must(c.Configure(ctx, queue, QueueConfig{Lease: new(90 * time.Second), MaxLen: new(2), BackoffMin: new(time.Second), BackoffMax: new(time.Minute)}, IfNew))(t)
	if _, err := c.Configure(ctx, queue, QueueConfig{}, IfNew); !errors.Is(err, ErrETagMismatch) {
		t.Error(err)
	}
	v2 := must(c.Tune(ctx, queue, QueueConfig{MaxLen: new(3), Lease: new(time.Duration(0))}, IfMatch(v)))(t)
	if _, err := c.Tune(ctx, queue, QueueConfig{MaxLen: new(4)}, IfMatch(v)); !errors.Is(err, ErrETagMismatch) {
		t.Error(err)
	}
	q := must(c.Queue(ctx, queue))(t)
	if !q.Configured || q.Version != v2 || *q.Config.MaxLen != 3 || *q.Config.Lease != time.Minute || *q.Config.BackoffMax != time.Minute || *q.Config.MaxFailures != 20 || q.Config.TTL != nil {
		t.Errorf("%+v", q)
	}
	for i := range 3 {
		must(c.Enqueue(ctx, queue, fmt.Append(nil, i), Priority(i)))(t)
	}
	if _, err := c.Enqueue(ctx, queue, nil); !errors.Is(err, ErrQueueFull) {
		t.Error(err)
	}
	var bodies string
	for job, err := range c.Jobs(ctx, queue, JobFilter{States: []State{Ready}}) {
		if err != nil {
			t.Fatal(err)
		}
		bodies += string(job.Body)
	}
	if bodies != "210" {
		t.Errorf("in the order of delivery: %s", bodies)
	}
	if jobs := must(all(c.Jobs(ctx, queue, JobFilter{Newest: true})))(t); len(jobs) != 3 || string(jobs[0].Body) != "2" {
		t.Errorf("%+v", jobs)
	}
	if err := c.Pause(ctx, queue, Paused{Out: true}); err != nil {
		t.Error(err)
	}
	if jobs := must(c.Dequeue(ctx, queue))(t); len(jobs) != 0 {
		t.Error("a paused queue gives jobs")
	}
	if q := must(c.Queue(ctx, queue))(t); !q.Paused.Out || q.Paused.In || !q.Paused.Until.IsZero() {
		t.Errorf("%+v", q.Paused)
	}
	if err := c.Pause(ctx, queue, Paused{In: true, Until: time.Now().Add(time.Hour)}); err != nil {
		t.Error(err)
	}
	if _, err := c.Enqueue(ctx, queue, nil); !errors.Is(err, ErrQueuePaused) {
		t.Error(err)
	}
	if err := c.Pause(ctx, queue, Paused{}); err != nil {
		t.Error(err)
	}
	if n := must(c.Purge(ctx, queue, nil))(t); n != 3 {
		t.Errorf("%d jobs purged", n)
	}
	names := map[string]bool{}
	for q, err := range c.Queues(ctx, QueueFilter{Prefix: "hand/"}) {
		if err != nil {
			t.Fatal(err)
		}
		names[q.Queue] = true
	}
	if len(names) != 1 || !names[queue] {
		t.Error(names)
	}
	if len(must(all(c.Queues(ctx, QueueFilter{MinLen: 1_000_000})))(t)) != 0 {
		t.Error("queues of a million jobs")
	}
}

func deadJobs(t *testing.T, ctx context.Context, c *Client) {
	const queue = "deadly"
	for i := range 3 {
		must(c.Enqueue(ctx, queue, fmt.Append(nil, i)))(t)
		must(c.Reject(ctx, take(t, ctx, c, queue).Receipt, errors.New("bad")))(t)
	}
	jobs := must(all(c.Jobs(ctx, queue, JobFilter{States: []State{Dead}})))(t)
	if len(jobs) != 3 || jobs[0].DeadReason != "rejected" || jobs[0].LastError != "bad" || jobs[0].DeadAt.IsZero() {
		t.Errorf("%+v", jobs)
	}
	if end := must(c.JobWait(ctx, jobs[0].ID))(t); end.State != EndDead || end.DeadReason != "rejected" || end.LastError != "bad" {
		t.Errorf("%+v", end)
	}
	if n := must(c.Redrive(ctx, queue, RedriveFilter{Reason: "rejected", Max: 2}))(t); n != 2 {
		t.Errorf("%d redriven", n)
	}
	if n := must(c.Redrive(ctx, queue, RedriveFilter{To: "elsewhere"}))(t); n != 1 {
		t.Errorf("%d redriven", n)
	}
	if job := take(t, ctx, c, "elsewhere"); string(job.Body) != "2" || job.Failures != 0 {
		t.Errorf("%+v", job)
	}
}

func consumers(t *testing.T, ctx context.Context, c *Client) {
	const queue, name = "consumed", "host/1 ü"
	for range 3 {
		must(c.Enqueue(ctx, queue, nil))(t)
	}
	if jobs := must(c.Dequeue(ctx, queue, Max(3), As(name)))(t); len(jobs) != 3 {
		t.Fatal(jobs)
	}
	if jobs := must(all(c.ConsumerJobs(ctx, name)))(t); len(jobs) != 3 || jobs[0].Consumer != name || jobs[0].State != Leased {
		t.Errorf("%+v", jobs)
	}
	if n := must(c.ReleaseConsumer(ctx, name))(t); n != 3 {
		t.Errorf("%d released", n)
	}
	if q := must(c.Queue(ctx, queue))(t); q.Ready != 3 || q.FailedTotal != 0 {
		t.Errorf("%+v", q)
	}
}

func keys(t *testing.T, ctx context.Context, c *Client) {
	const queue = "keyed"
	var first, second Meta
	a := must(c.Enqueue(ctx, queue, []byte("x"), IdempotencyKey("k1"), Into(&first)))(t)
	b := must(c.Enqueue(ctx, queue, []byte("x"), IdempotencyKey("k1"), Into(&second)))(t)
	if a.ID != b.ID || first.Replay || !second.Replay {
		t.Errorf("%+v %+v, %+v %+v", a, first, b, second)
	}
	if _, err := c.Enqueue(ctx, queue, []byte("y"), IdempotencyKey("k1")); !errors.Is(err, ErrIdempotency) {
		t.Error(err)
	}
	jobs := must(c.Dequeue(ctx, queue, Max(9), AttemptID("a1")))(t)
	again := must(c.Dequeue(ctx, queue, Max(9), AttemptID("a1")))(t)
	if len(jobs) != 1 || len(again) != 1 || jobs[0].Receipt != again[0].Receipt {
		t.Errorf("%+v %+v", jobs, again)
	}
	d := must(c.Enqueue(ctx, queue, nil, DedupID("d")))(t)
	if dup := must(c.Enqueue(ctx, queue, nil, DedupID("d")))(t); !dup.Duplicate || dup.ID != d.ID || d.Duplicate {
		t.Errorf("%+v %+v", d, dup)
	}
	must(c.Enqueue(ctx, queue, nil, UniqueKey("u")))(t)
	if _, err := c.Enqueue(ctx, queue, nil, UniqueKey("u")); !errors.Is(err, ErrNotUnique) {
		t.Error(err)
	}
}

func transactions(t *testing.T, ctx context.Context, c *Client) {
	must(c.Enqueue(ctx, "step 1", nil))(t)
	job := take(t, ctx, c, "step 1")
	next := NewJob{Queue: "step 2", Body: []byte("\x00next"), Options: []JobOption{Priority(9), UniqueKey("tx")}}
	got := must(c.Tx(ctx, []TxOp{Settlement{Verb: VerbAck, Ref: job.Receipt}, next}))(t)
	if len(got) != 2 || got[0].ID != job.ID || got[1].ID == "" {
		t.Errorf("%+v", got)
	}
	must(c.Enqueue(ctx, "step 1", nil))(t)
	job = take(t, ctx, c, "step 1")
	_, err := c.Tx(ctx, []TxOp{Settlement{Verb: VerbAck, Ref: job.Receipt}, next})
	var e *Error
	if !errors.Is(err, ErrAborted) || !errors.Is(err, ErrNotUnique) || !errors.As(err, &e) || len(e.Items) != 1 || e.Items[0].Index != 1 {
		t.Errorf("%v", err)
	}
	if q := must(c.Queue(ctx, "step 1"))(t); q.Leased != 1 {
		t.Errorf("half of it was done: %+v", q)
	}
	if done := take(t, ctx, c, "step 2"); string(done.Body) != "\x00next" || done.Priority != 9 {
		t.Errorf("%+v", done)
	}
	_, err = c.EnqueueAtomic(ctx, "step 2", []NewJob{{}, {Options: []JobOption{UniqueKey("a")}}, {Options: []JobOption{UniqueKey("a")}}})
	if !errors.Is(err, ErrNotUnique) || !errors.As(err, &e) || e.Applied != NotApplied {
		t.Error(err)
	}
}
