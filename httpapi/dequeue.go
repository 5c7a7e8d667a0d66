package httpapi

import (
	"errors"
	"time"

	"raftq/fsm"
	"raftq/hangup"
)

// dequeueOne takes jobs of the path's queue.
func (c *call) dequeueOne() error {
	queue, err := c.queue()
	if err != nil {
		return err
	}
	if err := c.bodyOptions(dequeueOptions | writeOptions); err != nil {
		return err
	}
	op := &struct {
		fsm.Dequeue
		queues [1]string
	}{}
	op.queues[0] = queue
	op.Queues = op.queues[:]
	return c.dequeue(&op.Dequeue)
}

// dequeueMany takes jobs of the body's queues.
func (c *call) dequeueMany() error {
	if err := c.bodyOptions(dequeueOptions | writeOptions | setOf(optQueues)); err != nil {
		return err
	}
	if len(c.opts.queues) == 0 {
		return invalid("queues", "name 1 to %d queues", fsm.QueuesMax)
	}
	return c.dequeue(&fsm.Dequeue{Queues: c.opts.queues})
}

// bodyOptions reads options from a JSON body, if there is one.
func (c *call) bodyOptions(allowed optionSet) error {
	r := jsonReader{b: c.ctx.Request.Body()}
	if r.peek() == 0 && r.i == len(r.b) {
		return nil
	}
	if err := c.opts.object(&r, allowed); err != nil {
		return err
	}
	return r.end()
}

func (c *call) dequeue(op *fsm.Dequeue) error {
	o := &c.opts
	form := c.form()
	op.Max, op.LeaseMs, op.WaitMs, op.Consumer, op.AttemptID = max(1, o.max), o.leaseMs, o.waitMs, o.consumer, o.attemptID
	if form == formBytes && op.Max > 1 {
		return invalid("max", "raw bytes are one job's; with max=%d accept application/json, application/x-ndjson or %s", op.Max, typeFrames)
	}
	if o.fast {
		if op.WaitMs > 0 && c.wasForwarded() {
			// The node that has passed it on waits itself: what was parked is answered at
			// commit, and there a hang-up is seen.
			op.WaitMs = 0
		}
		limit := c.timeout()
		if op.WaitMs > 0 {
			limit = dequeueTimeout(0, op.WaitMs) // the client counts on no more
		}
		if done, err := c.forwardNow(limit, op.WaitMs > 0); done || err != nil {
			return err
		}
	}
	var gone <-chan struct{}
	if op.WaitMs > 0 && c.conn != nil {
		if gone = c.conn.Gone(); isClosed(gone) {
			return c.goneProblem()
		}
	}
	res, err := c.submit(op, dequeueTimeout(c.timeout(), op.WaitMs), gone)
	if err == nil && len(res.Jobs) > 0 {
		// The client may be gone by now. Write finds out: there it is decided.
		if c.conn != nil {
			c.conn.Leave(hangup.Items(res.Jobs))
		} else {
			c.s.stats.written.Add(uint64(len(res.Jobs)))
		}
		c.s.stats.leased.Add(uint64(len(res.Jobs)))
		return c.answerJobs(form, res.Jobs)
	}
	var e *fsm.Error
	switch {
	case errors.As(err, &e) && e.Unknown:
		return err // nobody knows whether something was handed out: never "not applied"
	case gone != nil && isClosed(gone):
		return c.goneProblem()
	case err != nil:
		return err
	case res.Code != fsm.CodeOK:
		return refuse(res.Code, "dequeue")
	}
	c.ctx.Response.SetStatusCode(204)
	return nil
}

// dequeueTimeout leaves a wait its time and its commit some more.
func dequeueTimeout(timeout time.Duration, waitMs int64) time.Duration {
	if waitMs == 0 {
		return timeout
	}
	return max(timeout, time.Duration(waitMs)*time.Millisecond+waitGrace)
}

// goneProblem ends a wait whose client left, or whose server does. A client that
// only closed its sending side can read the reason.
func (c *call) goneProblem() error {
	if c.s.leaving.Load() {
		return refuse(fsm.CodeLeaving, "ask another node")
	}
	return refuse(fsm.CodeInvalidRequest, "the connection was half-closed, which ends a wait; keep it open until the answer")
}

func isClosed(ch <-chan struct{}) bool {
	select {
	case <-ch:
		return true
	default:
		return false
	}
}
