package bench

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// worker is a client and what it does.
type worker struct {
	client *client
	loop   func(*client)
}

// phase is a time in which all clients do the same: connect, warm up, be
// measured, stop.
type phase struct {
	run              *run
	name             string
	warmup, measured time.Duration
	goal             int64         // job operations, 0 when the time decides
	stall            time.Duration // give up when nothing was answered for so long; 0: never
	clients          []worker
	atStart          func() // right before the measured time
}

const progressEvery = 200 * time.Millisecond

// carryOut returns when all clients are done. It is bounded: warm-up, measured
// time, and the time for the last answers.
func (p *phase) carryOut(ctx context.Context) error {
	p.connect()
	defer func() {
		for _, w := range p.clients {
			w.client.hangUp()
		}
	}()
	r := p.run
	if p.warmup == 0 {
		p.begin()
	}
	started := time.Now()
	if r.cfg.Rate > 0 {
		r.sched = newSchedule(r.now(), r.cfg.Rate)
	}
	var wg sync.WaitGroup
	for _, w := range p.clients {
		wg.Go(func() { w.loop(w.client) })
	}
	done := make(chan struct{})
	go func() {
		wg.Wait()
		close(done)
	}()
	err := p.watch(ctx, started, done)
	r.stop()
	p.finish(ctx, done)
	if now := r.now(); now < r.rec.until.Load() { // ended before its time
		r.rec.until.Store(now)
	}
	r.rec.collect(p.second())
	return errors.Join(ctx.Err(), err)
}

// connect opens all connections, some at a time. Who cannot tries again by
// itself, and counts an error.
func (p *phase) connect() {
	var wg sync.WaitGroup
	next := atomic.Int64{}
	for range min(len(p.clients), 32) {
		wg.Go(func() {
			for i := int(next.Add(1)) - 1; i < len(p.clients); i = int(next.Add(1)) - 1 {
				_ = p.clients[i].client.dial() // it will try again, and count it
			}
		})
	}
	wg.Wait()
}

// begin starts the measured time.
func (p *phase) begin() {
	if p.run.rec.from.Load() < p.run.now() { // the phase before has begun it
		p.run.rec.until.Store(p.run.now() + int64(p.measured))
		return
	}
	p.atStart()
	now := p.run.now()
	p.run.rec.until.Store(now + int64(p.measured))
	p.run.rec.from.Store(now)
}

// second is the point of the series at which the run is.
func (p *phase) second() float64 { return float64(p.run.now()-p.run.rec.from.Load()) / 1e9 }

// watch waits until the time is over, all clients are done, or ctx ends.
// Meanwhile it collects what is recorded and tells the progress. It returns an
// error when the phase stalls.
func (p *phase) watch(ctx context.Context, started time.Time, done <-chan struct{}) error {
	ticker := time.NewTicker(progressEvery)
	defer ticker.Stop()
	begun := p.warmup == 0
	limit := time.NewTimer(p.warmup + p.measured)
	defer limit.Stop()
	warm := time.NewTimer(p.warmup)
	defer warm.Stop()
	interval := p.interval()
	collect := time.NewTicker(interval)
	defer collect.Stop()
	meter := rateMeter{last: started}
	answered, lately := int64(0), started
	for {
		select {
		case <-warm.C:
			if !begun {
				begun = true
				p.begin()
				limit.Reset(p.measured)
				collect.Reset(interval)
			}
		case <-limit.C:
			return nil
		case <-done:
			return nil
		case <-ctx.Done():
			return nil
		case <-collect.C:
			if begun {
				p.run.rec.collect(p.second())
			}
		case now := <-ticker.C:
			if jobs, _ := p.run.rec.progress(); jobs != answered {
				answered, lately = jobs, now
			} else if p.stall > 0 && now.Sub(lately) > p.stall {
				return fmt.Errorf("%s: nothing was answered for %v", p.name, p.stall)
			}
			p.tell(&meter, started, now)
		}
	}
}

// interval is the length of a point of the series: a second, less in a short
// run, more in one so long that there would be too many. A phase with a goal is
// short, whatever time it may take.
func (p *phase) interval() time.Duration {
	const least = 250 * time.Millisecond
	if p.goal > 0 {
		return least
	}
	return max(min(max(p.measured/40, least), time.Second), p.measured/600)
}

// rateMeter turns a count into a rate.
type rateMeter struct {
	last time.Time
	jobs int64
	rate float64
}

func (p *phase) tell(m *rateMeter, started, now time.Time) {
	if p.run.cfg.Progress == nil {
		return
	}
	jobs, errors := p.run.rec.progress()
	if d := now.Sub(m.last).Seconds(); d > 0 {
		lately := float64(jobs-m.jobs) / d
		if m.rate == 0 {
			m.rate = lately
		}
		m.rate += (lately - m.rate) / 3
		m.last, m.jobs = now, jobs
	}
	part := float64(now.Sub(started)) / float64(p.warmup+p.measured)
	if p.goal > 0 {
		part = float64(jobs) / float64(p.goal)
	}
	p.run.cfg.Progress(Progress{Phase: p.name, Part: min(part, 1), Jobs: jobs, Rate: m.rate, Errors: errors})
}

// patienceInterrupted is how long an interrupted phase waits for answers that
// are on their way.
const patienceInterrupted = 500 * time.Millisecond

// finish waits for the last answers, at most as long as one may take.
func (p *phase) finish(ctx context.Context, done <-chan struct{}) {
	patience := time.NewTimer(time.Duration(p.run.cfg.Timeout) + time.Second)
	defer patience.Stop()
	select {
	case <-done:
		return
	case <-ctx.Done():
		soon := time.NewTimer(patienceInterrupted)
		defer soon.Stop()
		select {
		case <-done:
			return
		case <-soon.C:
		}
	case <-patience.C:
	}
	p.run.cutAll()
	<-done
}
