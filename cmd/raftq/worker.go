package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"raftq/client"
)

// worker runs the command of a plan for each job that its consumer takes. It owns
// what is written to both outputs while it works.
type worker struct {
	*session
	plan       workPlan
	command    commandLine
	stopTaking context.CancelFunc
	begun      time.Time
	numbers    chan int // of workers that are free

	started   atomic.Int64    // jobs that a command was run for
	cancelled atomic.Int64    // jobs that were cancelled meanwhile
	gaveUp    atomic.Bool     // with --until-empty: no node answered for --retry-for
	end       context.Context // ends at the second signal: commands are to end
	endNow    context.CancelFunc
	kill      chan struct{} // closed at the third: they are killed
	stdout    *shared
	stderr    *shared
}

// Why a command was ended, besides what the client tells.
var (
	errTwice   = errors.New("ended by a second signal")
	errTimeout = errors.New("took longer than --job-timeout")
)

func newWorker(s *session, p workPlan, stderr *shared) *worker {
	w := &worker{
		session: s, plan: p, begun: time.Now(), numbers: make(chan int, p.workers), kill: make(chan struct{}),
		stdout: &shared{w: s.out()}, stderr: stderr,
	}
	w.command = commandLine{argv: p.argv, grace: p.grace, spawn: newSpawner()}
	w.end, w.endNow = context.WithCancel(context.Background())
	for n := range p.workers {
		w.numbers <- n + 1
	}
	return w
}

// newConsumer makes the consumer. It waits for commands as long as they take. When
// only so many jobs are wanted, none is taken before a worker is free for it.
func (w *worker) newConsumer() (*client.Consumer, error) {
	const forever = 10 * 365 * 24 * time.Hour
	wait := workPollWait
	if w.plan.untilEmpty {
		wait = emptyPollWait
	}
	options := []client.ConsumerOption{
		client.Concurrency(w.plan.workers), client.Lease(w.plan.lease), client.DrainTimeout(forever),
		client.As(w.plan.consumer), client.Wait(wait), w.plan.consistency,
	}
	if w.plan.max > 0 {
		options = append(options, client.Prefetch(0))
	}
	return w.NewConsumer(w.plan.queues, w.handle, options...)
}

// handle runs the command for one job, and says by its error what becomes of it.
func (w *worker) handle(ctx context.Context, job *client.Job) error {
	if n := w.started.Add(1); w.plan.max > 0 && n >= int64(w.plan.max) {
		w.stopTaking()
		if n > int64(w.plan.max) && !job.AtMostOnce {
			return client.ReleaseJob(errors.New("enough jobs"))
		}
	}
	number := <-w.numbers
	defer func() { w.numbers <- number }()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(w.end, func() { cancel(errTwice) })()
	if w.plan.timeout > 0 {
		defer time.AfterFunc(w.plan.timeout, func() { cancel(errTimeout) }).Stop()
	}
	begun := time.Now()
	stdout, stderr, flush := w.outputs(number, job)
	end := w.command.run(ctx, w.kill, w.environ(number, job), job.Body, stdout, stderr)
	flush()
	v, err := w.judge(end, context.Cause(ctx))
	if v == verdictCancelled {
		w.cancelled.Add(1)
	}
	w.report(job, v, end, err, time.Since(begun))
	if end.notStarted != nil {
		w.rest(ctx)
	}
	return err
}

// rest keeps a worker from a machine that cannot start processes.
func (w *worker) rest(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	select {
	case <-ctx.Done():
	case <-w.end.Done():
	}
}

// verdict is what becomes of a job, as work tells it.
type verdict string

const (
	verdictAcked     verdict = "acked"
	verdictFailed    verdict = "failed"
	verdictRejected  verdict = "rejected"
	verdictReleased  verdict = "released"
	verdictCancelled verdict = "cancelled"
	verdictLost      verdict = "lease lost"
)

// judge turns the command's end into a verdict, and into the handler's error that
// brings it about. Cause is why the command was ended, if it was.
func (w *worker) judge(end ending, cause error) (verdict, error) {
	failure := errors.New(end.text)
	switch {
	case end.notStarted != nil:
		return verdictReleased, client.ReleaseJob(fmt.Errorf("the command could not be started: %w", end.notStarted))
	case end.stopped:
		return judgeStopped(cause, end.text)
	case end.code == 0:
		return verdictAcked, nil
	case slices.Contains(w.plan.rejectExits, end.code):
		return verdictRejected, client.RejectJob(failure)
	case slices.Contains(w.plan.releaseExits, end.code):
		return verdictReleased, client.ReleaseJob(failure)
	case w.plan.retryDelay != nil:
		return verdictFailed, client.RetryIn(*w.plan.retryDelay, failure)
	}
	return verdictFailed, failure
}

// judgeStopped is judge for a command that we ended.
func judgeStopped(cause error, text string) (verdict, error) {
	switch {
	case errors.Is(cause, client.ErrLeaseLost):
		return verdictLost, cause
	case errors.Is(cause, client.ErrJobCancelled):
		return verdictCancelled, cause
	case errors.Is(cause, errTimeout):
		if text != "" {
			return verdictFailed, fmt.Errorf("%w: %s", errTimeout, text)
		}
		return verdictFailed, errTimeout
	}
	return verdictReleased, client.ReleaseJob(cause)
}

// outputs returns where the command writes to. flush is called when it has ended.
func (w *worker) outputs(number int, job *client.Job) (stdout, stderr io.Writer, flush func()) {
	stdout, stderr = w.stdout, w.stderr
	if w.json {
		stdout = stderr
	}
	if !w.plan.prefix {
		if f, ok := w.out().(*os.File); ok && !w.json {
			stdout = f // as if it was run by hand: a terminal stays one
		}
		return stdout, stderr, func() {}
	}
	prefix := fmt.Sprintf("%d %s | ", number, shortID(job.ID))
	out, errs := &prefixer{w: stdout, prefix: prefix}, &prefixer{w: stderr, prefix: prefix}
	return out, errs, func() {
		_ = errors.Join(out.Close(), errs.Close()) // our own output; there is nobody else to tell
	}
}

// shortID is enough of an id to tell jobs of one screen apart: the end of its
// random part.
func shortID(id string) string {
	const from, to = 29, 36 // of D-xxxxxxxx-(24 digits)-xxxx
	if len(id) < to {
		return id
	}
	return id[from:to]
}

// say tells something about the work itself.
func (w *worker) say(format string, args ...any) {
	if !w.plan.quiet {
		fmt.Fprintf(w.stderr, "raftq: "+format+"\n", args...)
	}
}

// jobReport is a line of -o json.
type jobReport struct {
	ID         string  `json:"id"`
	Queue      string  `json:"queue"`
	Outcome    verdict `json:"outcome"`
	ExitCode   *int    `json:"exit_code,omitempty"`
	Error      string  `json:"error,omitempty"`
	Deliveries int     `json:"deliveries"`
	TookMs     int64   `json:"took_ms"`
}

// report tells how a job ended: with -o json of each, else of what did not go well.
func (w *worker) report(job *client.Job, v verdict, end ending, err error, took time.Duration) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	if w.json {
		r := jobReport{ID: job.ID, Queue: job.Queue, Outcome: v, Error: text, Deliveries: job.Deliveries, TookMs: took.Milliseconds()}
		if end.notStarted == nil && end.code >= 0 {
			r.ExitCode = &end.code
		}
		_ = json.NewEncoder(w.stdout).Encode(r) // our own output; there is nobody else to tell
		return
	}
	if err != nil {
		w.say("%s %s after %s: %s", job.ID, v, formatAge(took), text)
	}
}

// summary says what was done.
func (w *worker) summary(s client.ConsumerStats) {
	took := time.Since(w.begun)
	cancelled := min(uint64(w.cancelled.Load()), s.Acked) // which are acked, too
	parts := []string{fmt.Sprintf("%d done", s.Acked-cancelled)}
	for _, p := range []struct {
		n    uint64
		what string
	}{
		{s.Nacked, "failed"}, {s.Rejected, "rejected"}, {s.Released, "given back"}, {cancelled, "cancelled"},
		{s.LeaseLost, "with a lost lease"}, {s.Unsettled, "not answered for"},
	} {
		if p.n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", p.n, p.what))
		}
	}
	w.say("%s in %s (%s a second)", strings.Join(parts, ", "), formatAge(took), formatRate(float64(s.Handled)/took.Seconds()))
}

// heed turns signals into ends: of taking jobs, of commands, and for good.
func (w *worker) heed(signals <-chan os.Signal, ended <-chan struct{}) {
	for n := 1; ; n++ {
		select {
		case <-ended:
			return
		case <-signals:
		}
		switch n {
		case 1:
			w.stopTaking()
			switch n := w.plan.workers - len(w.numbers); n {
			case 0:
				w.say("taking no more jobs")
			case 1:
				w.say("taking no more jobs; 1 command runs and is awaited. Ctrl-C again ends it")
			default:
				w.say("taking no more jobs; %d commands run and are awaited. Ctrl-C again ends them", n)
			}
		case 2:
			w.say("ending commands; their jobs are given back. Ctrl-C again kills them")
			w.endNow()
		case 3:
			close(w.kill)
		}
	}
}

// stopWhenEmpty stops taking jobs when a long poll found none, and none is worked
// on, or when no node has answered for --retry-for: a batch has an end. Of two polls that were answered since all was idle, what the first one brought
// would be seen: one alone may not have been counted in yet.
func (w *worker) stopWhenEmpty(ctx context.Context, c *client.Consumer) {
	tick := time.NewTicker(emptyPollWait / 4)
	defer tick.Stop()
	before := c.Stats()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		now := c.Stats()
		if now.Failures > 0 {
			w.gaveUp.Store(true)
			w.stopTaking()
			return
		}
		idle := now.Queued+now.Running+now.Settling == 0
		if idle && now.Taken == before.Taken && now.Polls >= before.Polls+2 {
			w.stopTaking()
			return
		}
		if !idle || now.Taken != before.Taken {
			before = now
		}
	}
}

// nameList is names for a sentence.
func nameList(names []string) string {
	quoted := make([]string, len(names))
	for i, n := range names {
		quoted[i] = printable([]byte(n))
	}
	return strings.Join(quoted, ", ")
}
