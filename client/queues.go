package client

import (
	"context"
	"fmt"
	"iter"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// QueueInfo is a queue: what is in it, what became of its jobs since it was made,
// and what it was told to do.
type QueueInfo struct {
	Queue          string      `json:"queue"`
	Ready          int         `json:"ready"`
	Delayed        int         `json:"delayed"`
	Leased         int         `json:"leased"`
	Held           int         `json:"held"`
	Dead           int         `json:"dead"`
	Bytes          int64       `json:"bytes"`               // of memory
	Waiters        int         `json:"waiters"`             // dequeues that wait
	OldestReadyMs  int64       `json:"oldest_ready_age_ms"` // see OldestReady
	EnqueuedTotal  uint64      `json:"enqueued_total"`
	DeliveredTotal uint64      `json:"delivered_total"`
	AckedTotal     uint64      `json:"acked_total"`
	FailedTotal    uint64      `json:"failed_total"`
	ExpiredTotal   uint64      `json:"expired_total"`
	DeadTotal      uint64      `json:"dead_total"`
	Paused         Paused      `json:"paused"`
	Configured     bool        `json:"configured"` // then it stays when it is empty
	Version        uint64      `json:"version"`    // of the configuration, for IfMatch
	Config         QueueConfig `json:"config"`
}

// OldestReady is how long the oldest ready job has been in the queue.
func (q *QueueInfo) OldestReady() time.Duration {
	return time.Duration(q.OldestReadyMs) * time.Millisecond
}

// Paused says which ways of a queue are closed.
type Paused struct {
	In    bool      `json:"in"`             // nothing is put in, and no job comes back
	Out   bool      `json:"out"`            // nothing is handed out
	Until time.Time `json:"until,omitzero"` // in log time; zero: until changed
}

// Queue returns a queue. ErrQueueNotFound: there is none of this name now.
func (c *Client) Queue(ctx context.Context, queue string, opts ...ReadOption) (QueueInfo, error) {
	var o call
	r := c.read(ctx, opts, &o, queuePath(queue, ""))
	var got QueueInfo
	_, err := c.send(ctx, &o, r, &got)
	return got, err
}

// QueueFilter chooses queues; the zero filter all of them.
type QueueFilter struct {
	Prefix string
	MinLen int  // ready jobs, at least
	MaxLen *int // and at most
}

// pageLimit is how many items of a list are asked for at once.
const pageLimit = 200

// Queues goes through the queues by name, a page at a time. An error ends it.
func (c *Client) Queues(ctx context.Context, f QueueFilter, opts ...ReadOption) iter.Seq2[QueueInfo, error] {
	set := func(o *call) {
		if f.Prefix != "" {
			o.set("prefix", f.Prefix)
		}
		if f.MinLen > 0 {
			o.set("min_len", strconv.Itoa(f.MinLen))
		}
		if f.MaxLen != nil {
			o.set("max_len", strconv.Itoa(*f.MaxLen))
		}
	}
	type page struct {
		Queues []QueueInfo `json:"queues"`
		Next   string      `json:"next_cursor"`
	}
	return pages(ctx, c, opts, "/v1/queues", set, func(p *page) ([]QueueInfo, string) { return p.Queues, p.Next })
}

// pages goes through a list.
func pages[P, T any](ctx context.Context, c *Client, opts []ReadOption, path string, set func(*call), open func(*P) ([]T, string)) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for cursor := ""; ; {
			var o call
			set(&o)
			o.set("limit", strconv.Itoa(pageLimit))
			if cursor != "" {
				o.set("cursor", cursor)
			}
			var p P
			if _, err := c.send(ctx, &o, c.read(ctx, opts, &o, path), &p); err != nil {
				var none T
				yield(none, err)
				return
			}
			list, next := open(&p)
			for _, item := range list {
				if !yield(item, nil) {
					return
				}
			}
			if next == "" {
				return
			}
			cursor = next
		}
	}
}

// DeleteQueue deletes a queue. With jobs in it, it is refused with
// ErrQueueNotEmpty unless force is set. It returns how many jobs went with it.
func (c *Client) DeleteQueue(ctx context.Context, queue string, force bool, opts ...WriteOption) (int, error) {
	var o call
	for _, f := range opts {
		f.writeOption(&o)
	}
	if force {
		o.set("force", "true")
	}
	var got struct {
		Deleted int `json:"deleted"`
	}
	// Under a key: a second time might find a queue that was made anew.
	_, err := c.send(ctx, &o, c.begin(ctx, &o, http.MethodDelete, queuePath(queue, ""), RepeatKeyed), &got)
	return got.Deleted, err
}

// Pause closes or opens a queue's ways, for the whole cluster. Acks always work.
func (c *Client) Pause(ctx context.Context, queue string, p Paused, opts ...WriteOption) error {
	var o call
	for _, f := range opts {
		f.writeOption(&o)
	}
	r := c.begin(ctx, &o, http.MethodPut, queuePath(queue, "/pause"), RepeatAlways)
	if err := r.jsonBody(p); err != nil {
		return err
	}
	_, err := c.send(ctx, &o, r, nil)
	return err
}

// Purge drops a queue's jobs that are in these states now, and returns how many.
// Without states: those that are ready or delayed.
func (c *Client) Purge(ctx context.Context, queue string, states []State, opts ...WriteOption) (int, error) {
	return c.sweep(ctx, opts, func(o *call) (*Request, error) {
		setStates(o, states)
		return c.begin(ctx, o, http.MethodDelete, queuePath(queue, "/jobs"), RepeatKeyed), nil
	})
}

func setStates(o *call, states []State) {
	var all []string
	for _, s := range states {
		all = append(all, string(s))
	}
	if len(all) > 0 {
		o.set("state", strings.Join(all, ","))
	}
}

// RedriveFilter chooses dead jobs; the zero filter all of a queue.
type RedriveFilter struct {
	Reason string // their DeadReason
	Max    int    // at most so many, the oldest first; 0: all
	To     string // the queue to go to; "": the one they died in
}

// Redrive makes dead jobs ready again, behind what waits, and returns how many.
func (c *Client) Redrive(ctx context.Context, queue string, f RedriveFilter, opts ...WriteOption) (int, error) {
	body := map[string]any{}
	if f.Reason != "" {
		body["reason"] = f.Reason
	}
	if f.Max > 0 {
		body["max"] = f.Max
	}
	if f.To != "" {
		body["to"] = f.To
	}
	return c.sweep(ctx, opts, func(o *call) (*Request, error) {
		r := c.begin(ctx, o, http.MethodPost, queuePath(queue, "/redrive"), RepeatKeyed)
		return r, r.jsonBody(body)
	})
}

// sweep carries out a request that does something with many jobs and may take long.
// It returns how many; when the node's time was over before it had all, that and
// ErrCommitTimeout.
func (c *Client) sweep(ctx context.Context, opts []WriteOption, make func(*call) (*Request, error)) (int, error) {
	o := call{timeout: timeoutMax}
	for _, f := range opts {
		f.writeOption(&o)
	}
	r, err := make(&o)
	if err != nil {
		return 0, err
	}
	var got struct {
		Purged   int  `json:"purged"`
		Redriven int  `json:"redriven"`
		Released int  `json:"released"`
		More     bool `json:"more"`
	}
	ans, err := c.send(ctx, &o, r, &got)
	if err != nil {
		return 0, err
	}
	n := got.Purged + got.Redriven + got.Released
	if got.More {
		return n, &Error{Code: ErrCommitTimeout, Applied: Unknown, Retryable: true, Node: ans.Node, Attempts: 1, Detail: fmt.Sprintf("%d jobs are done, time was over before the others", n)}
	}
	return n, nil
}
