package client

import (
	"context"
	"errors"
	"net/http"
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

// DeleteJob drops a job, whatever its state; who holds it loses it.
func (c *Client) DeleteJob(ctx context.Context, id string, opts ...WriteOption) error {
	_, err := c.writeJob(ctx, http.MethodDelete, id, "", RepeatAlways, opts)
	// When an attempt's answer got lost and the next one finds nothing, it was it.
	var e *Error
	if errors.As(err, &e) && e.Applied == Unknown && (e.Code == ErrJobGone || e.Code == ErrJobNotFound) {
		return nil
	}
	return err
}

// Requeue makes a job ready now: one that is delayed, held or dead (as Redrive
// does), or leased, whose holder loses it.
func (c *Client) Requeue(ctx context.Context, id string, opts ...WriteOption) error {
	_, err := c.writeJob(ctx, http.MethodPost, id, "/requeue", RepeatKeyed, opts)
	return err
}

// Hold keeps a job from being handed out until Requeue. Who holds it loses it.
func (c *Client) Hold(ctx context.Context, id string, opts ...WriteOption) error {
	_, err := c.writeJob(ctx, http.MethodPost, id, "/hold", RepeatKeyed, opts)
	return err
}

// Cancel asks the worker that has a job to stop: it sees that when it extends its
// lease. A job that nobody has is deleted.
func (c *Client) Cancel(ctx context.Context, id string, opts ...WriteOption) error {
	_, err := c.writeJob(ctx, http.MethodPost, id, "/cancel", RepeatKeyed, opts)
	return err
}

func (c *Client) writeJob(ctx context.Context, method, id, verb string, repeat Repeat, opts []WriteOption) (*Answer, error) {
	var o call
	for _, f := range opts {
		f.writeOption(&o)
	}
	return c.send(ctx, &o, c.begin(ctx, &o, method, jobPath(id, verb), repeat), nil)
}
