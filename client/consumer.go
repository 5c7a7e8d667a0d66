package client

import (
	"context"
	"crypto/rand"
	"errors"
	"strings"
	"sync/atomic"
	"time"
)

// Handler works on one job. Nil means that it is done: it is acked. An error means
// that it failed: it is nacked with the error's text, unless the error says
// something else (RejectJob, ReleaseJob, RetryIn). A panic is a failure too.
//
// The context ends when the work has become pointless: context.Cause tells why
// (ErrLeaseLost, ErrJobCancelled, ErrDraining). It does not end when the consumer
// is told to stop: running jobs are finished.
type Handler func(ctx context.Context, job *Job) error

// ConsumerOption is an option of NewConsumer. A Consistency counts for hand-outs
// and acks, a Lease for each hand-out, a Wait for each long poll, and As is the
// beginning of the consumer's name, whose rest makes it unique.
type ConsumerOption interface{ consumerOption(*consumerOptions) }

type consumerOptions struct {
	concurrency int
	prefetch    int
	ahead       time.Duration
	lease       time.Duration
	wait        time.Duration
	name        string
	ackDelay    time.Duration
	drain       time.Duration
	consistency Consistency
	backoff     func(*Job, error) time.Duration
}

type (
	// Concurrency is how many jobs are worked on at once, 1 unless set.
	Concurrency int
	// Prefetch bounds how many jobs are taken before a worker is free for them; 4 for
	// each worker unless set, 0 for none.
	Prefetch int
	// Ahead is how far the consumer takes jobs in advance, within Prefetch: as many
	// as it will begin in this time, going by how long jobs took. 100 ms unless set,
	// so that jobs that take long wait for whoever is free, and short ones for
	// nobody. More than an election's second keeps workers busy through one.
	Ahead time.Duration
	// AckDelay is how long an ack waits for others to go with it, 2 ms unless set.
	AckDelay time.Duration
	// DrainTimeout is how long running jobs are let finish when the consumer stops,
	// 30 s unless set. Then their contexts end.
	DrainTimeout time.Duration
	// Backoff says how long a job that failed is to be kept back. Without it the
	// queue's backoff counts. A negative time is none.
	Backoff func(job *Job, cause error) time.Duration
)

func (n Concurrency) consumerOption(o *consumerOptions)  { o.concurrency = int(n) }
func (n Prefetch) consumerOption(o *consumerOptions)     { o.prefetch = int(n) }
func (d Ahead) consumerOption(o *consumerOptions)        { o.ahead = time.Duration(d) }
func (d AckDelay) consumerOption(o *consumerOptions)     { o.ackDelay = time.Duration(d) }
func (d DrainTimeout) consumerOption(o *consumerOptions) { o.drain = time.Duration(d) }
func (f Backoff) consumerOption(o *consumerOptions)      { o.backoff = f }
func (d Lease) consumerOption(o *consumerOptions)        { o.lease = time.Duration(d) }
func (d Wait) consumerOption(o *consumerOptions)         { o.wait = time.Duration(d) }
func (n As) consumerOption(o *consumerOptions)           { o.name = string(n) }
func (c Consistency) consumerOption(o *consumerOptions)  { o.consistency = c }

const (
	pollWaitDefault = 20 * time.Second
	aheadDefault    = 100 * time.Millisecond
	ackDelayDefault = 2 * time.Millisecond
	drainDefault    = 30 * time.Second
	concurrencyMax  = 100_000
	prefetchEach    = 4
)

// Consumer takes jobs of queues and has a handler work on several at once. It
// bears whatever passes: a node that dies, an election, a full node. What does not
// pass ends Run. Make one with NewConsumer and Run it, once.
type Consumer struct {
	c       *Client
	queues  []string
	handle  Handler
	opts    consumerOptions
	name    string
	stats   consumerStats
	started atomic.Bool
}

// NewConsumer returns a consumer of one or more queues; jobs of the first are taken
// first.
func (c *Client) NewConsumer(queues []string, handle Handler, opts ...ConsumerOption) (*Consumer, error) {
	o := consumerOptions{concurrency: 1, prefetch: -1, ahead: aheadDefault, wait: pollWaitDefault, ackDelay: ackDelayDefault, drain: drainDefault, consistency: c.opts.consistency}
	for _, f := range opts {
		f.consumerOption(&o)
	}
	if o.prefetch < 0 {
		o.prefetch = prefetchEach * o.concurrency
	}
	switch {
	case handle == nil:
		return nil, refuse("handle: none given")
	case len(queues) == 0:
		return nil, refuse("queues: none given")
	case o.concurrency < 1 || o.concurrency > concurrencyMax:
		return nil, refuse("Concurrency: want 1 to %d, not %d", concurrencyMax, o.concurrency)
	case o.wait <= 0 || o.wait > waitMost:
		return nil, refuse("Wait: a consumer's long poll takes more than 0 and at most %v, not %v", waitMost, o.wait)
	case o.ahead < 0 || o.ackDelay < 0 || o.drain < 0 || o.lease < 0:
		return nil, refuse("Ahead, AckDelay, DrainTimeout and Lease are not negative")
	}
	name := o.name
	if name != "" {
		name += "-"
	}
	name += strings.ToLower(rand.Text()[:10])
	return &Consumer{c: c, queues: queues, handle: handle, opts: o, name: name}, nil
}

// Consume runs a consumer of one queue until ctx ends; see Consumer.Run.
func (c *Client) Consume(ctx context.Context, queue string, handle Handler, opts ...ConsumerOption) error {
	k, err := c.NewConsumer([]string{queue}, handle, opts...)
	if err != nil {
		return err
	}
	return k.Run(ctx)
}

// Name is how the servers know the consumer.
func (k *Consumer) Name() string { return k.name }

// Run takes jobs and works on them until ctx ends. Then it takes no more, lets the
// running ones finish (their contexts end after DrainTimeout), gives back those
// not begun, waits until all acks are answered, and returns nil. It leaves no
// goroutine behind, so a handler that does not heed its context holds it up.
//
// It returns an error only for what will not pass by waiting, for instance a name
// that no queue may have or a missing permission, and drains before as well.
func (k *Consumer) Run(ctx context.Context) error {
	if !k.started.CompareAndSwap(false, true) {
		return refuse("Run: a consumer runs once")
	}
	r := newRun(k, ctx)
	return r.run()
}

// rejectError, releaseError and retryError tell what to do with the job.
type (
	rejectError  struct{ error }
	releaseError struct{ error }
	retryError   struct {
		error
		delay time.Duration
	}
)

func (e rejectError) Unwrap() error  { return e.error }
func (e releaseError) Unwrap() error { return e.error }
func (e retryError) Unwrap() error   { return e.error }

var errNoReason = errors.New("no reason given")

func reason(err error) error {
	if err == nil {
		return errNoReason
	}
	return err
}

// RejectJob makes a handler's error kill its job at once: it can never go well.
func RejectJob(err error) error { return rejectError{reason(err)} }

// ReleaseJob makes a handler's error give its job back without counting a failure:
// another is to have it.
func ReleaseJob(err error) error { return releaseError{reason(err)} }

// RetryIn makes a handler's error keep its job back for a time, before any Backoff.
func RetryIn(d time.Duration, err error) error { return retryError{reason(err), d} }
