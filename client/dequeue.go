package client

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"time"
)

// Job is a job as a hand-out or a read shows it; what does not apply is zero.
// Times are log time, which runs as the nodes' clocks do but may lag: compare them
// with Meta.Time, not with your own clock.
type Job struct {
	ID          string            `json:"id"`
	Receipt     string            `json:"receipt,omitempty"` // of a hand-out: the proof that the job is yours
	Queue       string            `json:"queue"`
	State       State             `json:"state,omitempty"` // of a read
	Body        []byte            `json:"-"`
	Headers     map[string]string `json:"headers,omitempty"`
	Priority    int               `json:"priority"`
	Group       string            `json:"group,omitempty"`
	Deliveries  int               `json:"deliveries"` // hand-outs, this one too
	Failures    int               `json:"failures"`   // nacks, and leases that were over
	EnqueuedAt  time.Time         `json:"enqueued_at,omitzero"`
	DeliverAt   time.Time         `json:"deliver_at,omitzero"`  // of a delayed job
	LeaseUntil  time.Time         `json:"lease_until,omitzero"` // of a leased job
	ExpiresAt   time.Time         `json:"expires_at,omitzero"`  // by its TTL
	Fence       uint64            `json:"fence,omitempty"`      // grows with each hand-out: guards what the work writes elsewhere
	Consumer    string            `json:"consumer,omitempty"`   // who has it
	LastError   string            `json:"last_error,omitempty"` // of the last nack that had one
	DeadReason  string            `json:"dead_reason,omitempty"`
	DeadAt      time.Time         `json:"dead_at,omitzero"`
	SourceQueue string            `json:"source_queue,omitempty"` // of a job in a dead-letter queue: where it died
	DedupID     string            `json:"dedup_id,omitempty"`
	UniqueKey   string            `json:"unique_key,omitempty"`
	AtMostOnce  bool              `json:"at_most_once,omitempty"`
	Cancel      bool              `json:"cancel,omitempty"` // its holder was asked to stop

	// Lease is how long a hand-out was yours when the node answered.
	Lease time.Duration `json:"-"`
}

// State is where a job is in its life.
type State string

// States of a job.
const (
	Delayed State = "delayed"
	Ready   State = "ready"
	Leased  State = "leased"
	Held    State = "held"
	Dead    State = "dead"
)

// jobJSON is a job with its body in one of two members.
type jobJSON struct {
	Job
	Text   *string `json:"body"`
	Binary []byte  `json:"body_base64"`
}

func (j *jobJSON) job() *Job {
	job := &j.Job
	if job.Body = j.Binary; j.Text != nil {
		job.Body = []byte(*j.Text)
	}
	if job.Body == nil {
		job.Body = []byte{}
	}
	return job
}

// Dequeue takes jobs of a queue: one, or as many as Max. Without Wait it returns
// at once; no job and no error means that none came. The jobs are the caller's
// until their leases end: ack them before.
func (c *Client) Dequeue(ctx context.Context, queue string, opts ...DequeueOption) ([]*Job, error) {
	return c.dequeue(ctx, queuePath(queue, "/dequeue"), nil, opts)
}

// DequeueAny is Dequeue from several queues, at most 64: a job of the first that
// has one.
func (c *Client) DequeueAny(ctx context.Context, queues []string, opts ...DequeueOption) ([]*Job, error) {
	body, err := json.Marshal(struct {
		Queues []string `json:"queues"`
	}{queues})
	if err != nil {
		return nil, refuse("queues: %v", err)
	}
	return c.dequeue(ctx, "/v1/dequeue", body, opts)
}

// waitMost is the longest wait that one request asks for; below the servers' limit,
// as common proxies end a request after 60 s.
const waitMost = 50 * time.Second

func (c *Client) dequeue(ctx context.Context, path string, body []byte, opts []DequeueOption) ([]*Job, error) {
	var o call
	for _, f := range opts {
		f.dequeueOption(&o)
	}
	c.defaultConsistency(&o)
	for left := o.wait; ; {
		wait, last := min(left, waitMost), left <= waitMost
		if deadline, ok := ctx.Deadline(); ok && wait > 0 {
			// Ask for an answer that still reaches us.
			if most := max(0, time.Until(deadline)-waitMargin); most <= wait {
				wait, last = most, true
			}
		}
		jobs, err := c.dequeueOnce(ctx, o, path, body, wait)
		if len(jobs) > 0 || err != nil || last {
			return jobs, err
		}
		left -= wait
		o.attemptID = "" // its attempt is over: nothing came
	}
}

// dequeueOnce is one dequeue, repeated under its attempt id until it is answered.
func (c *Client) dequeueOnce(ctx context.Context, o call, path string, body []byte, wait time.Duration) ([]*Job, error) {
	if wait > 0 {
		o.set("wait", wireDuration(wait))
	} else {
		o.query.Del("wait")
	}
	r := c.dequeueRequest(ctx, &o, path, wait)
	if body != nil {
		r.Body, r.ContentType = body, typeJSON
	}
	ans, err := c.send(ctx, &o, r, nil)
	if err != nil {
		return nil, err
	}
	return parseJobs(ans)
}

const attemptID = "attempt_id"

// dequeueRequest makes the request of a dequeue. Without an attempt id it is not
// repeated: what the first attempt took would stay taken until its lease ends.
func (c *Client) dequeueRequest(ctx context.Context, o *call, path string, wait time.Duration) *Request {
	repeat, auto := RepeatAlways, false
	switch {
	case o.attemptID != "":
		o.set(attemptID, o.attemptID)
	case c.known():
		o.set(attemptID, newKey())
		auto = true
	default:
		repeat = RepeatNever
	}
	r := c.begin(ctx, o, http.MethodPost, path, repeat)
	r.Accept, r.wait, r.auto, r.bare = typeFrames, wait, auto, RepeatNever
	if wait > 0 {
		r.Attempt = max(r.Attempt, wait+waitGrace)
	}
	return r
}

const (
	// waitGrace is how long a long poll's answer may take beyond its wait: an election
	// and more. The servers allow longer; by then another node is asked.
	waitGrace = 3 * time.Second
	// waitMargin is what a long poll leaves of the caller's time for its answer.
	waitMargin = 100 * time.Millisecond
)

// parseJobs reads the frames of a dequeue's answer. The bodies are slices of it.
func parseJobs(ans *Answer) ([]*Job, error) {
	if len(ans.Body) == 0 {
		return nil, nil
	}
	now := metaOf(ans).Time
	var jobs []*Job
	for b := ans.Body; len(b) > 0; {
		head, body, rest, err := cutFrame(b)
		if err != nil {
			return nil, notUnderstood(ans, err)
		}
		job := &Job{Body: body}
		if err := json.Unmarshal(head, job); err != nil {
			return nil, notUnderstood(ans, err)
		}
		job.AtMostOnce = job.AtMostOnce || onceOnly(job.ID)
		if !now.IsZero() && !job.LeaseUntil.IsZero() {
			job.Lease = job.LeaseUntil.Sub(now)
		}
		jobs = append(jobs, job)
		b = rest
	}
	return jobs, nil
}

// onceOnly reads an id: its last digit is even when its job is handed out at most
// once.
func onceOnly(id string) bool {
	return len(id) == idLen && strings.IndexByte("02468ace", id[idLen-1]) >= 0
}

const idLen = 40
