package client

import (
	"context"
	"fmt"
	"net/http"
)

// Enqueued is a job that was put in.
type Enqueued struct {
	ID        string `json:"id"`
	Queue     string `json:"queue"`
	Committed bool   `json:"committed"` // false: a fast answer, which may still be lost
	Duplicate bool   `json:"duplicate"` // its DedupID was seen: ID is the first job's, nothing was put in
}

// Enqueue puts one job into a queue. The queue is made by it if need be.
func (c *Client) Enqueue(ctx context.Context, queue string, body []byte, opts ...EnqueueOption) (Enqueued, error) {
	var o call
	for _, f := range opts {
		f.enqueueOption(&o)
	}
	c.defaultConsistency(&o)
	path := queuePath(queue, "/enqueue")
	envelope := o.job.size() > queryMax
	if envelope {
		path = queuePath(queue, "/jobs")
	} else {
		o.job.toQuery(&o)
	}
	r := c.begin(ctx, &o, http.MethodPost, path, RepeatKeyed)
	if envelope { // a request line of that length is refused
		m := o.job.object()
		m["body_base64"] = body
		if body == nil {
			m["body_base64"] = ""
		}
		if err := r.jsonBody(m); err != nil {
			return Enqueued{}, err
		}
	} else {
		r.Body, r.ContentType = body, typeBytes
	}
	var got Enqueued
	if _, err := c.send(ctx, &o, r, &got); err != nil {
		return Enqueued{}, err
	}
	return got, nil
}

// size is about how long the options are in a query.
func (j *jobHead) size() (n int) {
	for i, name := range j.names {
		n += len(name) + 8
		if v, ok := j.values[i].(string); ok {
			n += 3 * len(v)
		}
	}
	for name, v := range j.headers {
		n += len(headerField) + len(name) + 3*len(v) + 2
	}
	return n
}

// NewJob is one job of a batch, or of a Tx.
type NewJob struct {
	Queue   string // of a Tx; a batch has one queue for all
	Body    []byte
	Options []JobOption
}

// EnqueueBatch puts up to 1000 jobs into a queue, at most 8 MiB together. Each is
// taken or refused on its own: the results are in the order of the jobs, and when
// some were refused their result is zero and the error a *BatchError.
func (c *Client) EnqueueBatch(ctx context.Context, queue string, jobs []NewJob, opts ...WriteOption) ([]Enqueued, error) {
	return c.enqueueMany(ctx, queue, jobs, opts, false)
}

// EnqueueAtomic is EnqueueBatch, all or none. When a job was refused nothing is put in;
// the error is ErrAborted and its Items say which were refused and why.
func (c *Client) EnqueueAtomic(ctx context.Context, queue string, jobs []NewJob, opts ...WriteOption) ([]Enqueued, error) {
	return c.enqueueMany(ctx, queue, jobs, opts, true)
}

func (c *Client) enqueueMany(ctx context.Context, queue string, jobs []NewJob, opts []WriteOption, atomic bool) ([]Enqueued, error) {
	var o call
	for _, f := range opts {
		f.writeOption(&o)
	}
	c.defaultConsistency(&o)
	if atomic {
		o.set("atomic", "true")
	}
	body, err := jobFrames(jobs)
	if err != nil {
		return nil, err
	}
	r := c.begin(ctx, &o, http.MethodPost, queuePath(queue, "/jobs"), RepeatKeyed)
	r.Body, r.ContentType = body, typeFrames
	var got struct {
		Committed *bool        `json:"committed"`
		Results   []itemResult `json:"results"`
	}
	ans, err := c.send(ctx, &o, r, &got)
	if err != nil {
		return nil, err
	}
	if len(got.Results) != len(jobs) {
		return nil, notUnderstood(ans, fmt.Errorf("%d results for %d jobs", len(got.Results), len(jobs)))
	}
	all := make([]Enqueued, len(jobs))
	failed := BatchError{Total: len(jobs)}
	for i := range got.Results {
		res := &got.Results[i]
		if res.Status >= 300 {
			failed.add(i, res.ID, res.error(ans.Node))
			continue
		}
		all[i] = Enqueued{ID: res.ID, Queue: queue, Committed: got.Committed == nil || *got.Committed, Duplicate: res.Duplicate}
	}
	return all, failed.or()
}

// jobFrames writes jobs as frames.
func jobFrames(jobs []NewJob) ([]byte, error) {
	if len(jobs) == 0 || len(jobs) > itemsMax {
		return nil, refuse("jobs: a batch has 1 to %d of them, this one %d", itemsMax, len(jobs))
	}
	size, bodies := 0, 0
	heads := make([][]byte, len(jobs))
	for i := range jobs {
		var head jobHead
		for _, f := range jobs[i].Options {
			f.jobOption(&head)
		}
		var err error
		if heads[i], err = head.json(); err != nil {
			return nil, refuse("jobs[%d]: its options cannot be written as JSON: %v", i, err)
		}
		bodies += len(jobs[i].Body)
		size += 8 + len(heads[i]) + len(jobs[i].Body)
	}
	if bodies > bytesMax && len(jobs) > 1 {
		return nil, refuse("jobs: the bodies of a batch have at most %d bytes together, these %d", bytesMax, bodies)
	}
	b := make([]byte, 0, size)
	for i := range jobs {
		b = appendFrame(b, heads[i], jobs[i].Body)
	}
	return b, nil
}
