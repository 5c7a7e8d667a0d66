package client

import (
	"context"
	"errors"
	"fmt"

	"sync"
	"sync/atomic"
	"time"
)

// run is one Run of a consumer. Its goroutines: one that takes jobs, the workers,
// one that keeps leases, one that sends acks; the ready channel carries holds from
// the first to the workers.
type run struct {
	k     *Consumer
	stats *consumerStats

	stop     context.Context // ends when no more jobs are to be taken
	cancel   context.CancelCauseFunc
	handling context.Context // parent of the handlers' contexts
	abort    context.CancelCauseFunc
	settling context.Context // of acks and extends; outlives stop

	ready    chan *hold
	leases   *leases
	settler  *settler
	workers  sync.WaitGroup
	draining atomic.Bool
	room     chan struct{} // a worker became free, or stock was taken

	mu      sync.Mutex
	average time.Duration // of a handler's time
	fatal   error         // ends the run
}

// hold is a job that is ours: queued, then running, then done.
type hold struct {
	job *Job
	// state is changed by compare and swap: a job is either begun or given back.
	state atomic.Int32

	// Guarded by the mutex of leases.
	due      time.Time               // to be extended, or given back
	deadline time.Time               // taken for lost, when no extend went well
	cancel   context.CancelCauseFunc // of its handler, once it runs
	fixed    bool                    // not to be extended any more
	told     bool                    // its cancel wish was passed on
}

const (
	holdQueued int32 = iota
	holdRunning
	holdDone
)

// settleGrace is how long acks are tried again when everything else has ended.
const settleGrace = 30 * time.Second

func newRun(k *Consumer, ctx context.Context) *run {
	r := &run{
		k: k, stats: &k.stats,
		ready: make(chan *hold, k.opts.concurrency+k.opts.prefetch),
		room:  make(chan struct{}, 1),
	}
	r.stop, r.cancel = context.WithCancelCause(ctx)
	outlives := context.WithoutCancel(ctx)
	r.handling, r.abort = context.WithCancelCause(outlives)
	return r
}

func (r *run) run() error {
	settling, endSettling := context.WithCancel(context.WithoutCancel(r.stop))
	defer endSettling()
	defer r.cancel(nil)
	defer r.abort(nil)
	r.settling = settling
	r.leases = newLeases(r)
	r.settler = newSettler(r)
	for range r.k.opts.concurrency {
		r.workers.Go(r.work)
	}

	r.take() // until stop
	r.draining.Store(true)
	r.giveBackQueued()
	close(r.ready)

	abort := time.AfterFunc(r.k.opts.drain, func() { r.abort(ErrDraining) })
	r.workers.Wait()
	abort.Stop()
	// Leases are kept until nobody works; acks go out until all are answered.
	r.leases.close()
	end := time.AfterFunc(settleGrace, endSettling)
	r.settler.close()
	end.Stop()
	r.releaseName(settling)
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.fatal
}

// end makes the run drain and return an error.
func (r *run) end(err error) {
	r.mu.Lock()
	if r.fatal == nil {
		r.fatal = err
	}
	r.mu.Unlock()
	r.cancel(err)
}

// take fetches jobs until stop.
func (r *run) take() {
	var poll *Request // the one to be made again
	var failing int   // polls in a row that failed
	for {
		n := r.waitForRoom()
		if n == 0 {
			return
		}
		if poll == nil {
			var err error
			if poll, err = r.poll(n); err != nil {
				r.end(err)
				return
			}
		}
		sent := r.k.c.now()
		jobs, err := r.fetch(poll)
		switch {
		case err == nil:
			poll = nil
			r.stats.polls.Add(1)
			if failing > 0 {
				r.k.c.log.Info("consumer takes jobs again", "consumer", r.k.name, "queues", r.k.queues, "failed", failing)
				failing = 0
			}
			r.hold(jobs)
			if len(jobs) == 0 && r.k.c.now().Sub(sent) < r.k.opts.wait/2 {
				sleep(r.stop, pauseMin) // a node that does not wait is not asked in a tight loop
			}
		case r.stop.Err() != nil:
			return
		case lasting(err):
			r.end(fmt.Errorf("consumer of %q: %w", r.k.queues, err))
			return
		default:
			// The same poll again: what an unanswered one took is answered then.
			failing++
			r.stats.failures.Add(1)
			r.k.c.log.Warn("consumer cannot take jobs", "consumer", r.k.name, "queues", r.k.queues, "error", err)
			sleep(r.stop, r.k.c.pause(failing, err))
		}
	}
}

// lasting tells whether an error will not pass by waiting.
func lasting(err *Error) bool {
	return !err.Retryable && err.Status >= 400 && err.Status < 500 || err.Code == ErrInvalidRequest
}

// poll makes the request for up to n jobs.
func (r *run) poll(n int) (*Request, error) {
	k := r.k
	o := call{consistency: k.opts.consistency}
	Max(min(n, itemsMax)).dequeueOption(&o)
	o.set("wait", wireDuration(k.opts.wait))
	o.set("consumer", k.name)
	if k.opts.lease > 0 {
		Lease(k.opts.lease).dequeueOption(&o)
	}
	path := "/v1/dequeue"
	if len(k.queues) == 1 {
		path = queuePath(k.queues[0], "/dequeue")
	}
	p := k.c.dequeueRequest(context.Background(), &o, path, k.opts.wait)
	if len(k.queues) > 1 {
		if err := p.jsonBody(map[string]any{"queues": k.queues}); err != nil {
			return nil, err
		}
	}
	return p, nil
}

func (r *run) fetch(p *Request) ([]*Job, *Error) {
	ans, err := r.k.c.do(r.stop, p)
	if err != nil {
		return nil, err
	}
	jobs, perr := parseJobs(ans)
	if perr != nil {
		var e *Error
		errors.As(perr, &e)
		return nil, e
	}
	return jobs, nil
}

// hold puts jobs before the workers.
func (r *run) hold(jobs []*Job) {
	now := r.k.c.now()
	r.stats.taken.Add(uint64(len(jobs)))
	for _, job := range jobs {
		if job.Deliveries > 1 {
			r.stats.redelivered.Add(1)
		}
		h := &hold{job: job}
		h.lasts(now, job.Lease)
		r.leases.add(h)
		r.stats.queued.Add(1)
		r.ready <- h
	}
}

// waitForRoom waits until jobs are wanted and returns how many, 0 at stop.
func (r *run) waitForRoom() int {
	for r.stop.Err() == nil {
		queued, running := int(r.stats.queued.Load()), int(r.stats.running.Load())
		stock := r.stock()
		// When jobs are in stock, the next are fetched together once half is used.
		if n := r.k.opts.concurrency + stock - queued - running; n > 0 && queued <= stock/2 {
			return n
		}
		select {
		case <-r.room:
		case <-r.stop.Done():
		}
	}
	return 0
}

// stock is how many jobs to take before a worker is free for them.
func (r *run) stock() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.average <= 0 {
		return 0 // not known yet
	}
	n := int64(r.k.opts.concurrency) * int64(r.k.opts.ahead) / int64(r.average)
	return int(min(n, int64(r.k.opts.prefetch)))
}

func (r *run) took(d time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	d = max(d, time.Microsecond)
	if r.average == 0 {
		r.average = d
	} else {
		r.average += (d - r.average) / 8
	}
}

func (r *run) roomMade() {
	select {
	case r.room <- struct{}{}:
	default:
	}
}

// giveBackQueued releases what no worker began, at the end. Jobs that are handed
// out only once cannot be given back: workers finish them.
func (r *run) giveBackQueued() {
	var kept []*hold
	for {
		select {
		case h := <-r.ready:
			if h.job.AtMostOnce {
				kept = append(kept, h)
			} else {
				r.giveBack(h)
			}
			continue
		default:
		}
		break
	}
	for _, h := range kept {
		r.ready <- h // there is room: they came from there
	}
}

// giveBack releases a job that no worker began; false when one did.
func (r *run) giveBack(h *hold) bool {
	if !h.state.CompareAndSwap(holdQueued, holdDone) {
		return false
	}
	r.stats.queued.Add(-1)
	r.leases.remove(h)
	r.settler.add(h, VerbRelease, item{Receipt: h.job.Receipt})
	r.roomMade()
	return true
}

// releaseName gives back whatever the servers still count as this consumer's: what
// a long poll was handed while it was broken off at the end.
func (r *run) releaseName(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, slowMin)
	defer cancel()
	if _, err := r.k.c.ReleaseConsumer(ctx, r.k.name); err != nil && !errors.Is(err, ErrRouteNotFound) {
		r.k.c.log.Debug("consumer's rest was not released", "consumer", r.k.name, "error", err)
	}
}
