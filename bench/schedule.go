package bench

import (
	"sync/atomic"
	"syscall"
	"time"
)

// schedule gives out sending times at even intervals to whichever connection
// is free (open loop). The times do not depend on how fast anybody answers: a
// late request keeps the time at which it should have been sent.
type schedule struct {
	base  int64   // when it begins, ns since the run began
	perNs float64 // requests a nanosecond
	taken atomic.Int64
}

func newSchedule(base int64, ratePerSecond float64) *schedule {
	return &schedule{base: base, perNs: ratePerSecond / 1e9}
}

// at is when request n should be sent, in nanoseconds since the run began.
func (s *schedule) at(n int64) int64 { return s.base + int64(float64(n)/s.perNs) }

// take takes the next sending time.
func (s *schedule) take() int64 { return s.at(s.taken.Add(1) - 1) }

// takeDue takes the next sending time only if it is not after now.
func (s *schedule) takeDue(now int64) (at int64, ok bool) {
	for {
		n := s.taken.Load()
		if at = s.at(n); at > now {
			return 0, false
		}
		if s.taken.CompareAndSwap(n, n+1) {
			return at, true
		}
	}
}

// timerSlack is how late Go's timers may be: the runtime's poller counts
// milliseconds.
const timerSlack = 1500 * time.Microsecond

// sleep waits more exactly than time.Sleep does, which would add a millisecond
// to every latency of an open loop.
func sleep(d time.Duration, stop <-chan struct{}) {
	if d > timerSlack {
		timer := time.NewTimer(d - timerSlack)
		defer timer.Stop()
		begun := time.Now()
		select {
		case <-timer.C:
		case <-stop:
			return
		}
		d -= time.Since(begun)
	}
	if d > 0 {
		ts := syscall.NsecToTimespec(int64(d))
		_ = syscall.Nanosleep(&ts, nil) // woken early, the request goes out early by that much
	}
}
