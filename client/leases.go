package client

import (
	"context"
	"errors"
	"sync"
	"time"
)

// leases keeps the jobs of a run: those worked on are extended when a third of
// their lease is over, those not begun by then are given back, so that they do not
// wait here for a worker that others have free. One goroutine looks; another, while
// there is one, waits for an extend's answer, so that a node that hangs does not
// keep lost leases from being noticed.
type leases struct {
	r    *run
	wake chan struct{}
	done chan struct{} // closed to end the goroutine
	all  sync.WaitGroup

	mu        sync.Mutex
	held      map[*hold]struct{}
	next      time.Time // when the goroutine looks again; zero: not before it is woken
	extending bool
}

// lookPause is the least time between two looks: leases are extended together.
const lookPause = 10 * time.Millisecond

func newLeases(r *run) *leases {
	l := &leases{r: r, wake: make(chan struct{}, 1), done: make(chan struct{}), held: map[*hold]struct{}{}}
	l.all.Go(l.run)
	return l
}

// close ends the goroutines. No job is worked on any more.
func (l *leases) close() {
	close(l.done)
	l.all.Wait()
}

func (l *leases) add(h *hold) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.held[h] = struct{}{}
	if l.next.IsZero() || h.due.Before(l.next) {
		l.lookSoon()
	}
}

func (l *leases) remove(h *hold) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.held, h)
}

// begin notes that a job is worked on, and how to stop that.
func (l *leases) begin(h *hold, cancel context.CancelCauseFunc) {
	l.mu.Lock()
	defer l.mu.Unlock()
	h.cancel = cancel
	if _, ours := l.held[h]; !ours {
		cancel(ErrLeaseLost) // just now
	}
}

func (l *leases) lookSoon() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

func (l *leases) run() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-l.wake:
		case <-l.done:
			return
		}
		if wait, again := l.look(l.r.k.c.now()); again {
			timer.Reset(max(wait, lookPause))
		} else {
			timer.Stop()
		}
	}
}

// look does what is due and tells when to look again.
func (l *leases) look(now time.Time) (wait time.Duration, again bool) {
	stale, lost, due := l.sort(now)
	for _, h := range stale {
		if !l.r.giveBack(h) {
			l.lookSoon() // it was begun just now
		}
	}
	for _, h := range lost {
		l.lost(h, "no node extended it in time")
	}
	if len(due.holds) > 0 {
		l.all.Go(func() { l.extend(due) })
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.next.Sub(now), !l.next.IsZero()
}

// extension is jobs to be extended together, before the first is lost.
type extension struct {
	holds  []*hold
	before time.Time
}

// sort finds the jobs to be given back, those whose lease must be taken for lost,
// and those to be extended.
func (l *leases) sort(now time.Time) (stale, lost []*hold, due extension) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.next = time.Time{}
	for h := range l.held {
		at := h.deadline // when to look at it next
		switch isDue := !now.Before(h.due.Add(-lookPause)); {
		case h.cancel == nil && !h.job.AtMostOnce: // not begun
			if isDue {
				stale = append(stale, h)
				continue
			}
			at = h.due
		case !now.Before(h.deadline):
			lost = append(lost, h)
			delete(l.held, h)
			continue
		case h.fixed || l.extending || len(due.holds) == itemsMax:
		case isDue:
			due.holds = append(due.holds, h)
			if due.before.IsZero() || h.deadline.Before(due.before) {
				due.before = h.deadline
			}
		default:
			at = h.due
		}
		if l.next.IsZero() || at.Before(l.next) {
			l.next = at
		}
	}
	l.extending = l.extending || len(due.holds) > 0
	return stale, lost, due
}

// lost ends a job's handler, or drops the job when none has begun. It is not held
// any more.
func (l *leases) lost(h *hold, why string) {
	l.r.k.c.log.Warn("lease lost", "consumer", l.r.k.name, "queue", h.job.Queue, "job", h.job.ID, "why", why)
	if h.state.CompareAndSwap(holdQueued, holdDone) {
		l.r.stats.queued.Add(-1)
		l.r.stats.leaseLost.Add(1)
		l.r.roomMade()
		return
	}
	l.mu.Lock()
	cancel := h.cancel
	l.mu.Unlock()
	if cancel != nil {
		cancel(ErrLeaseLost)
	}
}

// extend takes new leases on jobs. Looking goes on when it is answered.
func (l *leases) extend(due extension) {
	r := l.r
	o := call{consistency: r.k.opts.consistency}
	items := make([]item, len(due.holds))
	for i, h := range due.holds {
		items[i] = item{Receipt: h.job.Receipt}
		if r.k.opts.lease > 0 {
			items[i].Lease = wireDuration(r.k.opts.lease)
		}
	}
	ctx, cancel := context.WithDeadline(r.settling, due.before)
	defer cancel()
	sent := r.k.c.now()
	all, failed, err := r.k.c.settleItems(ctx, &o, VerbExtend, items)
	if err != nil {
		r.stats.failures.Add(1)
		r.k.c.log.Warn("leases were not extended", "consumer", r.k.name, "jobs", len(items), "error", err)
	}
	lost := map[*hold]*Error{}
	var cancelled []*hold
	l.mu.Lock()
	for i, h := range due.holds {
		if _, ours := l.held[h]; !ours {
			continue // ended meanwhile
		}
		var refused *Error
		if err == nil {
			refused = failed.at(i)
		}
		switch {
		case err != nil:
			h.later(r.k.c.now())
		case refused == nil:
			r.stats.extended.Add(1)
			h.lasts(sent, all[i].Lease)
			if all[i].Cancel && !h.told && h.cancel != nil {
				h.told = true
				cancelled = append(cancelled, h)
			}
		case errors.Is(refused, ErrLeaseLost), errors.Is(refused, ErrJobGone), errors.Is(refused, ErrJobNotFound):
			delete(l.held, h)
			lost[h] = refused
		case errors.Is(refused, ErrTooLate):
			h.fixed = true // its TTL comes first; what it has it keeps
		default:
			h.later(r.k.c.now())
			r.k.c.log.Warn("a lease was not extended", "consumer", r.k.name, "queue", h.job.Queue, "job", h.job.ID, "error", refused)
		}
	}
	l.extending = false
	l.mu.Unlock()
	for h, refused := range lost {
		l.lost(h, string(refused.Code))
	}
	for _, h := range cancelled {
		r.stats.cancelled.Add(1)
		h.cancel(ErrJobCancelled)
	}
	l.lookSoon()
}

// lasts sets when to extend a lease that was new at a time, and when to take it
// for lost. A tenth is for the way of the answer and for clocks.
func (h *hold) lasts(from time.Time, lease time.Duration) {
	if lease <= 0 { // over when it came: an extend tells
		h.due, h.deadline = from, from.Add(slowMin)
		return
	}
	h.due = from.Add(lease / 3)
	h.deadline = from.Add(lease - lease/10)
}

// later sets when to try again to extend a lease.
func (h *hold) later(now time.Time) { h.due = now.Add(h.deadline.Sub(now)/4 + lookPause) }
