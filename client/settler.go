package client

import (
	"errors"
	"sync"
	"time"
)

// settler sends acks and the like of a run, those that come within a few
// milliseconds together. What cannot be sent is tried again until the lease is
// long over; a bounded number waits for that, then workers wait.
type settler struct {
	r     *run
	in    chan settling
	slots chan struct{} // one for each request under way
	all   sync.WaitGroup
}

// settling is one job to be settled.
type settling struct {
	h    *hold
	verb Verb
	item item
}

const (
	settleRequests = 4 // under way at once
	settlingMin    = 4096
	// settleAfter is how long after its lease a job's ack is still tried: nobody may
	// have taken the job.
	settleAfter = time.Minute
)

func newSettler(r *run) *settler {
	s := &settler{
		r:     r,
		in:    make(chan settling, max(settlingMin, 2*cap(r.ready))),
		slots: make(chan struct{}, settleRequests),
	}
	s.all.Go(s.run)
	return s
}

// close returns when everything is settled, or given up. Nothing is added any more.
func (s *settler) close() {
	close(s.in)
	s.all.Wait()
}

func (s *settler) add(h *hold, verb Verb, it item) {
	s.r.stats.settling.Add(1)
	s.in <- settling{h, verb, it}
}

// run gathers, and sends what has gathered.
func (s *settler) run() {
	for first := range s.in {
		byVerb := map[Verb][]settling{first.verb: {first}}
		for n, timer := 1, time.NewTimer(s.r.k.opts.ackDelay); n < itemsMax; n++ {
			next, ok := s.next(timer)
			if !ok {
				break
			}
			byVerb[next.verb] = append(byVerb[next.verb], next)
		}
		for verb, list := range byVerb {
			s.slots <- struct{}{}
			s.all.Go(func() {
				defer func() { <-s.slots }()
				s.send(verb, list)
			})
		}
	}
}

// next returns what comes before the timer.
func (s *settler) next(timer *time.Timer) (settling, bool) {
	select {
	case x, ok := <-s.in:
		return x, ok
	case <-timer.C:
		return settling{}, false
	}
}

// send settles jobs by one request, made again however long it takes, within reason.
func (s *settler) send(verb Verb, list []settling) {
	r, c := s.r, s.r.k.c
	defer r.stats.settling.Add(-int64(len(list)))
	items := make([]item, len(list))
	var last time.Time
	r.leases.mu.Lock()
	for i := range list {
		items[i] = list[i].item
		if d := list[i].h.deadline; d.After(last) {
			last = d
		}
	}
	r.leases.mu.Unlock()
	o := call{consistency: r.k.opts.consistency}
	req, err := c.settleRequest(r.settling, &o, verb, items)
	unsure := false // a try may have been applied
	for tries := 0; err == nil; tries++ {
		var all []Settled
		var failed *BatchError
		if all, failed, err = s.try(req, len(items), unsure); err == nil {
			s.count(verb, list, all, failed)
			return
		}
		var e *Error
		errors.As(err, &e)
		unsure = unsure || e.Applied == Unknown
		r.stats.failures.Add(1)
		c.log.Warn("jobs are not settled yet", "consumer", r.k.name, "as", verb, "jobs", len(list), "error", err)
		if !lasting(e) && c.now().Before(last.Add(settleAfter)) && sleep(r.settling, c.pause(tries, e)) {
			err = nil
		}
	}
	r.stats.unsettled.Add(uint64(len(list)))
	c.log.Error("jobs were not settled", "consumer", r.k.name, "as", verb, "jobs", len(list), "error", err)
}

func (s *settler) try(req *Request, n int, unsure bool) ([]Settled, *BatchError, error) {
	var o call
	var got settleAnswer
	ans, err := s.r.k.c.send(s.r.settling, &o, req, &got)
	if err != nil {
		return nil, nil, err
	}
	ans.unsure = ans.unsure || unsure
	return got.results(ans, n)
}

// count counts what became of jobs.
func (s *settler) count(verb Verb, list []settling, all []Settled, failed *BatchError) {
	stats := s.r.stats
	done := uint64(len(list))
	for _, f := range failed.Items {
		if verb != VerbAck && f.Err.Applied == Unknown {
			continue // a receipt is worth nothing once it was used: by a try without an answer
		}
		done--
		stats.leaseLost.Add(1)
		job := list[f.Index].h.job
		s.r.k.c.log.Warn("a job was not settled", "consumer", s.r.k.name, "as", verb, "queue", job.Queue, "job", job.ID, "error", f.Err)
	}
	switch verb {
	case VerbAck:
		stats.acked.Add(done)
	case VerbNack:
		stats.nacked.Add(done)
	case VerbRelease:
		stats.released.Add(done)
	case VerbReject:
		stats.rejected.Add(done)
	}
	for i := range all {
		if all[i].Late {
			stats.late.Add(1)
		}
	}
}
