package client

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"
)

// work is a worker: it handles jobs until there are no more.
func (r *run) work() {
	ended := false // by the loop, and not by a handler that ended the goroutine
	defer func() {
		if !ended {
			r.workers.Go(r.work)
		}
	}()
	for h := range r.ready {
		if r.draining.Load() && !h.job.AtMostOnce {
			r.giveBack(h)
			continue
		}
		r.handleHold(h)
	}
	ended = true
}

// handleHold runs the handler and settles the job by what it says.
func (r *run) handleHold(h *hold) {
	if !h.state.CompareAndSwap(holdQueued, holdRunning) {
		return // given back
	}
	ctx, cancel := context.WithCancelCause(r.handling)
	defer cancel(nil)
	r.leases.begin(h, cancel)
	r.stats.running.Add(1)
	r.stats.queued.Add(-1)
	r.roomMade() // stock was taken
	began := time.Now()
	err := errGoexit
	defer func() {
		h.state.Store(holdDone)
		r.leases.remove(h)
		r.took(time.Since(began))
		r.stats.handled.Add(1)
		r.stats.running.Add(-1)
		r.settle(h, err, context.Cause(ctx))
		r.roomMade()
	}()
	err = r.call(ctx, h.job)
}

var errGoexit = errors.New("the handler ended its goroutine")

// call runs the handler; a panic is an error.
func (r *run) call(ctx context.Context, job *Job) (err error) {
	returned := false
	defer func() {
		if returned {
			return
		}
		if p := recover(); p != nil {
			r.stats.panics.Add(1)
			r.k.c.log.Error("handler panicked", "consumer", r.k.name, "queue", job.Queue, "job", job.ID, "panic", p, "stack", string(debug.Stack()))
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	err = r.k.handle(ctx, job)
	returned = true
	return err
}

// settle says to the servers what became of a job. Cause is why the handler's
// context ended, if it did.
func (r *run) settle(h *hold, err, cause error) {
	var (
		reject  rejectError
		release releaseError
		retry   retryError
		verb    = VerbNack
		s       = Settlement{Ref: h.job.Receipt}
	)
	switch {
	case err == nil:
		verb = VerbAck
	case errors.Is(cause, ErrLeaseLost):
		// Nothing to say: the job is somebody else's, or will be.
		r.stats.leaseLost.Add(1)
		return
	case errors.As(err, &reject):
		verb, s.Error = VerbReject, err.Error()
	case errors.As(err, &release):
		verb = VerbRelease
	case errors.Is(cause, ErrJobCancelled):
		verb = VerbAck // nobody wants it done any more
	case errors.Is(cause, ErrDraining):
		verb = VerbRelease // it did not fail, it was cut off
	default:
		s.Error = err.Error()
		if errors.As(err, &retry) {
			s.Delay = noneIsAtOnce(retry.delay)
		} else if r.k.opts.backoff != nil {
			s.Delay = noneIsAtOnce(r.k.opts.backoff(h.job, err))
		}
	}
	if verb == VerbRelease && h.job.AtMostOnce {
		verb, s.Error = VerbNack, err.Error() // it cannot be given back; dead is where it is seen
	}
	s.Verb = verb
	r.settler.add(h, verb, s.item())
}

// noneIsAtOnce makes a delay of nothing one that is not the queue's backoff.
func noneIsAtOnce(d time.Duration) time.Duration {
	if d <= 0 {
		return -1
	}
	return d
}
