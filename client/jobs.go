package client

import (
	"context"
	"iter"
	"net/http"
	"time"
)

// Job returns a job. ErrJobNotFound says that it never was, ErrJobGone that it was
// acked or dropped.
func (c *Client) Job(ctx context.Context, id string, opts ...ReadOption) (*Job, error) {
	var o call
	r := c.read(ctx, opts, &o, jobPath(id, ""))
	var got jobJSON
	if _, err := c.send(ctx, &o, r, &got); err != nil {
		return nil, err
	}
	return got.job(), nil
}

// JobFilter chooses jobs of a queue; the zero filter all of them.
type JobFilter struct {
	States []State
	Newest bool // those come first that come last
}

// Jobs goes through a queue's jobs, a page at a time: ready jobs alone in the order
// of their delivery, others by age. An error ends it.
func (c *Client) Jobs(ctx context.Context, queue string, f JobFilter, opts ...ReadOption) iter.Seq2[*Job, error] {
	set := func(o *call) {
		setStates(o, f.States)
		if f.Newest {
			o.set("order", "desc")
		}
	}
	return c.jobPages(ctx, opts, queuePath(queue, "/jobs"), set)
}

// ConsumerJobs goes through what a consumer holds, by the name that it took them
// with.
func (c *Client) ConsumerJobs(ctx context.Context, name string, opts ...ReadOption) iter.Seq2[*Job, error] {
	return c.jobPages(ctx, opts, "/v1/consumers/"+pathEscape(name), func(*call) {})
}

func (c *Client) jobPages(ctx context.Context, opts []ReadOption, path string, set func(*call)) iter.Seq2[*Job, error] {
	type page struct {
		Jobs []jobJSON `json:"jobs"`
		Next string    `json:"next_cursor"`
	}
	return pages(ctx, c, opts, path, set, func(p *page) ([]*Job, string) {
		jobs := make([]*Job, len(p.Jobs))
		for i := range p.Jobs {
			jobs[i] = p.Jobs[i].job()
		}
		return jobs, p.Next
	})
}

// ReleaseConsumer gives back all jobs that a consumer holds, by the name that it
// took them with, and returns how many. Jobs handed out at most once stay with it.
func (c *Client) ReleaseConsumer(ctx context.Context, name string, opts ...WriteOption) (int, error) {
	return c.sweep(ctx, opts, func(o *call) (*Request, error) {
		return c.begin(ctx, o, http.MethodDelete, "/v1/consumers/"+pathEscape(name), RepeatAlways), nil
	})
}

// Ending is how a job ended.
type Ending struct {
	ID         string `json:"id"`
	State      End    `json:"state"`
	DeadReason string `json:"dead_reason,omitempty"`
	LastError  string `json:"last_error,omitempty"`
}

// End is the last state of a job.
type End string

// Ends of a job.
const (
	EndDone    End = "done"    // acked, or deleted
	EndDead    End = "dead"    // failed too often, or was rejected
	EndExpired End = "expired" // its TTL was over
)

// JobWait waits until a job is done or dead, or until ctx ends.
func (c *Client) JobWait(ctx context.Context, id string) (Ending, error) {
	for {
		wait := waitMost
		if deadline, ok := ctx.Deadline(); ok {
			wait = min(wait, max(time.Millisecond, time.Until(deadline)-waitMargin))
		}
		var o call
		o.set("for", "done")
		o.set("timeout", wireDuration(wait))
		r := &Request{Method: http.MethodGet, Path: jobPath(id, "/wait"), Query: o.query, Repeat: RepeatAlways, Attempt: wait + waitGrace, wait: wait}
		var got Ending
		if _, err := c.send(ctx, &o, r, &got); err != nil {
			return Ending{}, err
		}
		if got.State != "" {
			return got, nil
		}
	}
}

// DeleteJob drops a job, whatever its state; who holds it loses it.
func (c *Client) DeleteJob(ctx context.Context, id string, opts ...WriteOption) error {
	return c.writeJob(ctx, http.MethodDelete, id, "", opts)
}

// Requeue makes a job ready now: one that is delayed, held or dead (as Redrive
// does), or leased, whose holder loses it.
func (c *Client) Requeue(ctx context.Context, id string, opts ...WriteOption) error {
	return c.writeJob(ctx, http.MethodPost, id, "/requeue", opts)
}

// Hold keeps a job from being handed out until Requeue. Who holds it loses it.
func (c *Client) Hold(ctx context.Context, id string, opts ...WriteOption) error {
	return c.writeJob(ctx, http.MethodPost, id, "/hold", opts)
}

// Cancel asks the worker that has a job to stop: it sees that when it extends its
// lease. A job that nobody has is deleted.
func (c *Client) Cancel(ctx context.Context, id string, opts ...WriteOption) error {
	return c.writeJob(ctx, http.MethodPost, id, "/cancel", opts)
}

func (c *Client) writeJob(ctx context.Context, method, id, verb string, opts []WriteOption) error {
	var o call
	for _, f := range opts {
		f.writeOption(&o)
	}
	_, err := c.send(ctx, &o, c.begin(ctx, &o, method, jobPath(id, verb), RepeatKeyed), nil)
	return err
}
