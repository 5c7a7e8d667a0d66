package client

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"
)

// The calls that a queue lives of work on three real nodes.
func TestCallsReal(t *testing.T) {
	nodes := startCluster(t, 3)
	c := newTestClient(t, nodes.Endpoints())
	ctx := t.Context()
	var meta Meta
	e, err := c.Enqueue(ctx, "a/b ü", []byte("\x00\xffbody"), Priority(7), Headers{"tenant": "t1"}, Into(&meta))
	if err != nil || !e.Committed || meta.Index == 0 || meta.Node == "" {
		t.Fatal(e, meta, err)
	}
	jobs, err := c.Dequeue(ctx, "a/b ü", Max(10), Wait(time.Second), Lease(30*time.Second), As("w"))
	if err != nil || len(jobs) != 1 {
		t.Fatal(jobs, err)
	}
	t.Logf("%+v", jobs[0])
	x, err := c.Extend(ctx, jobs[0].Receipt, time.Minute)
	t.Logf("%+v %v", x, err)
	_, err = c.Ack(ctx, jobs[0].Receipt)
	if err != nil {
		t.Fatal(err)
	}
	_, err = c.Job(ctx, e.ID)
	if !errors.Is(err, ErrJobGone) {
		t.Fatal(err)
	}
	info, err := c.Cluster(ctx)
	t.Logf("%+v %v", info, err)
	list := make([]NewJob, 3)
	for i := range list {
		list[i].Body = fmt.Append(nil, i)
	}
	got, err := c.EnqueueBatch(ctx, "b", list)
	t.Logf("%+v %v", got, err)
	q, err := c.Queue(ctx, "b")
	t.Logf("%+v %v", q, err)

	seen := 0
	kctx, cancel := context.WithCancel(ctx)
	err = c.Consume(kctx, "b", func(ctx context.Context, job *Job) error {
		seen++
		if seen == 3 {
			cancel()
		}
		return nil
	})
	if err != nil || seen != 3 {
		t.Fatal(seen, err)
	}
	q, err = c.Queue(ctx, "b")
	t.Logf("%+v %v", q, err)
}
