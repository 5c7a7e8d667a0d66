package client

import (
	"context"
	"net/http"
)

// QueueInfo is a queue's counts and configuration.
type QueueInfo struct {
	Queue          string `json:"queue"`
	Ready          int    `json:"ready"`
	Delayed        int    `json:"delayed"`
	Leased         int    `json:"leased"`
	Held           int    `json:"held"`
	Dead           int    `json:"dead"`
	Bytes          int64  `json:"bytes"`
	Waiters        int    `json:"waiters"` // dequeues that wait
	OldestReadyMs  int64  `json:"oldest_ready_age_ms"`
	EnqueuedTotal  uint64 `json:"enqueued_total"`
	DeliveredTotal uint64 `json:"delivered_total"`
	AckedTotal     uint64 `json:"acked_total"`
	FailedTotal    uint64 `json:"failed_total"`
	ExpiredTotal   uint64 `json:"expired_total"`
	DeadTotal      uint64 `json:"dead_total"`
}

// Queue returns a queue. ErrQueueNotFound: there is none of this name now.
func (c *Client) Queue(ctx context.Context, queue string, opts ...ReadOption) (QueueInfo, error) {
	var o call
	r := c.read(ctx, opts, &o, queuePath(queue, ""))
	var got QueueInfo
	_, err := c.send(ctx, &o, r, &got)
	return got, err
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
	// Once only: the second time might find a queue that was made anew.
	_, err := c.send(ctx, &o, c.begin(ctx, &o, http.MethodDelete, queuePath(queue, ""), RepeatNever), &got)
	return got.Deleted, err
}
