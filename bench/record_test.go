package bench

import (
	"math"
	"slices"
	"sync"
	"testing"
	"time"
)

// The schedule's times are even, shared by all who take, and do not depend on
// when they are taken.
func TestSchedule(t *testing.T) {
	s := newSchedule(1000, 1e6) // each microsecond
	if a, b, c := s.take(), s.take(), s.take(); a != 1000 || b != 2000 || c != 3000 {
		t.Errorf("%d %d %d", a, b, c)
	}
	if _, ok := s.takeDue(3999); ok {
		t.Error("a time that is not due was given out")
	}
	if at, ok := s.takeDue(9000); !ok || at != 4000 {
		t.Errorf("%d %v: a late request loses its time", at, ok)
	}
	var mu sync.Mutex
	var all []int64
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 100 {
				at := s.take()
				mu.Lock()
				all = append(all, at)
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	slices.Sort(all)
	for i, at := range all {
		if want := int64(5000 + 1000*i); at != want {
			t.Fatalf("time %d is %d, want %d", i, at, want)
		}
	}
}

// sleep waits about as long as asked, and no longer than the run goes on.
func TestSleep(t *testing.T) {
	stop := make(chan struct{})
	for _, d := range []time.Duration{0, 200 * time.Microsecond, 5 * time.Millisecond} {
		begun := time.Now()
		sleep(d, stop)
		if got := time.Since(begun); got < d-timerSlack/10 {
			t.Errorf("slept %v of %v", got, d)
		}
	}
	close(stop)
	begun := time.Now()
	sleep(time.Hour, stop)
	if time.Since(begun) > time.Minute {
		t.Error("slept on")
	}
}

// Latencies recorded by several shards come together: percentiles, sums, and
// the course over time.
func TestRecorderMerges(t *testing.T) {
	r := newRecorder(3)
	r.from.Store(1000)
	r.until.Store(1e12)
	for i := range 1000 {
		sent := int64(1000 + i)
		r.answered(r.shards[i%3], opEnqueue, sent, sent+int64(i+1)*1000, 2, 201, i%2 == 0)
		if i == 499 {
			r.collect(1)
		}
	}
	r.collect(2)
	r.collect(3)
	sum, h := r.sums(opEnqueue), r.total[opEnqueue]
	if sum.requests != 1000 || sum.jobs != 2000 || sum.inWindow != 2000 || sum.statuses[201] != 1000 || sum.fast != 500 || h.TotalCount() != 1000 {
		t.Errorf("%d requests, %d jobs, %d in the window, %d in the histogram", sum.requests, sum.jobs, sum.inWindow, h.TotalCount())
	}
	l := latencyOf(h)
	for _, c := range []struct{ got, want int64 }{{l.P50, 500_000}, {l.P90, 900_000}, {l.P99, 990_000}, {l.P999, 999_000}, {l.Max, 1_000_000}} {
		if math.Abs(float64(c.got-c.want)) > float64(c.want)/500 {
			t.Errorf("%d, want about %d", c.got, c.want)
		}
	}
	s := r.series[opEnqueue]
	if len(s) != 3 || s[0].Requests != 500 || s[1].Requests != 500 || s[2].Requests != 0 || s[1].Length != 1 {
		t.Errorf("%+v", s)
	}
	if s[0].Max > 501_000 || s[1].P50 < 740_000 {
		t.Errorf("a second has the latencies of another: %+v", s)
	}
}

// The warm-up does not count but for its errors, and what is answered after the
// measured time counts for latency and not for the rate.
func TestRecorderWindow(t *testing.T) {
	r := newRecorder(1)
	s := r.shards[0]
	r.answered(s, opAck, 5, 6, 1, 200, false) // before anything is measured
	r.from.Store(100)
	r.until.Store(200)
	r.answered(s, opAck, 99, 150, 1, 200, false)
	r.answered(s, opAck, 100, 150, 1, 200, false)
	r.answered(s, opAck, 150, 900, 1, 200, false)
	r.answered(s, opAck, 200, 201, 1, 200, false)
	r.failed(s, opAck, "timeout", 2)
	r.failed(s, opAck, "eof", 3)
	r.collect(1)
	if sum := r.sums(opAck); sum.requests != 2 || sum.inWindow != 1 || r.total[opAck].Max() < 700 {
		t.Errorf("%d requests, %d in the window", sum.requests, sum.inWindow)
	}
	if f := r.failures(); len(f) != 2 || f[0] != (ErrorCount{"ack", "eof", 3}) {
		t.Errorf("%+v", f)
	}
	if jobs, errors := r.progress(); jobs != 5 || errors != 5 {
		t.Errorf("progress %d %d", jobs, errors)
	}
}

// The percentile curve rises and ends where the requests end.
func TestCurve(t *testing.T) {
	h := newHistogram()
	for i := range int64(1000) {
		if err := h.RecordValue((i + 1) * 1000); err != nil {
			t.Fatal(err)
		}
	}
	c := curveOf(h)
	if last := c[len(c)-1].Percentile; last < 99.8 || last > 99.91 {
		t.Errorf("1000 requests reach p%v", last)
	}
	if !slices.IsSortedFunc(c, func(a, b CurvePoint) int { return int(a.Ns - b.Ns) }) {
		t.Errorf("%+v", c)
	}
}

// A clock of tenths tells a queue that slows down from one that does not.
func TestTenths(t *testing.T) {
	c := newTenthClock(0, 100)
	now := int64(0)
	for i := range 100 {
		now += int64(1+i/50) * int64(time.Millisecond) // half as fast in the second half
		c.count(1, now)
	}
	got := c.tenths("fill")
	if got.Jobs != 100 || math.Round(got.First) != 1000 || math.Round(got.Last) != 500 || got.Seconds != 0.15 {
		t.Errorf("%+v", got)
	}
	var none *tenthClock
	none.count(1, 1)
	if half := newTenthClock(0, 100); half.seconds() != 0 || half.tenths("x").Last != 0 {
		t.Error("a clock that never ran tells a rate")
	}
}

// The ledger's verdict is silent for a job's normal life, and names each way in
// which it can go wrong.
func TestLedger(t *testing.T) {
	job := func(seq int64) []held { return []held{{seq: seq}} }
	for want, live := range map[string]func(*ledger){
		"": func(l *ledger) {
			l.enqueued(0, 1)
			l.delivered(0)
			l.nacked(job(0))
			l.delivered(0)
			l.acked(job(0))
		},
		"1 never delivered":                  func(l *ledger) { l.enqueued(0, 1) },
		"1 not acked":                        func(l *ledger) { l.enqueued(0, 1); l.delivered(0) },
		"1 delivered again":                  func(l *ledger) { l.enqueued(0, 1); l.delivered(0); l.delivered(0); l.acked(job(0)) },
		"1 delivered after":                  func(l *ledger) { l.enqueued(0, 1); l.delivered(0); l.acked(job(0)); l.delivered(0) },
		"1 acked twice":                      func(l *ledger) { l.enqueued(0, 1); l.delivered(0); l.acked(job(0)); l.acked(job(0)) },
		"1 refused and delivered all the sa": func(l *ledger) { l.refused(0, 1); l.delivered(0); l.acked(job(0)) },
		"1 not checked":                      func(l *ledger) { l.enqueued(ledgerBlock*ledgerBlocks, 1); l.refused(0, 1) },
	} {
		l := newLedger()
		l.sending(0, 1)
		live(l)
		got := l.sum(1).Verdict()
		if want == "" && got != "" || want != "" && !contains(got, want) {
			t.Errorf("want %q, got %q", want, got)
		}
	}
	lost := newLedger()
	lost.enqueued(0, 2)
	for seq := range int64(2) {
		lost.delivered(seq)
		lost.unsettled(job(seq), seq == 1)
	}
	lost.delivered(1) // after a nack whose answer was lost
	if c := lost.sum(2); c.Unsettled != 2 || c.Verdict() != "" {
		t.Errorf("%+v", c)
	}
	l := newLedger()
	l.sending(ledgerBlock-1, 2) // over the edge of a block; no answer
	if c := l.sum(ledgerBlock + 1); c.Unknown != ledgerBlock+1 || c.Verdict() != "" {
		t.Errorf("%+v", c)
	}
}
