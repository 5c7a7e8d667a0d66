package bench

import (
	"cmp"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// op is a kind of measured operation.
type op int

const (
	opEnqueue op = iota
	opDequeue
	opAck
	opNack
	opExtend
	opRead
	opWait     // a dequeue that may wait for a job: its time is not the server's
	opDelivery // from the sending of an enqueue to the job in a consumer's hands
	opLag      // how late the generator itself sent, open loop
	opCount
)

var opNames = [opCount]string{"enqueue", "dequeue", "ack", "nack", "extend", "read", "wait", "delivery", "generator lag"}

// isRequest tells operations from measurements that are no request.
func (o op) isRequest() bool { return o < opDelivery }

// writes tells the operations whose answer may come before or after the commit.
// A dequeue that waited is always answered after it.
func (o op) writes() bool { return o < opRead }

// Bounds of a histogram, in nanoseconds: 64 ns steps at the low end, three
// digits above.
const (
	latencyMin    = 100
	latencyMax    = int64(10 * time.Minute)
	latencyDigits = 3
)

func newHistogram() *hdrhistogram.Histogram {
	return hdrhistogram.New(latencyMin, latencyMax, latencyDigits)
}

// failure is what an error is counted by.
type failure struct {
	op   op
	code string
}

// shard records for some of the connections, so that they do not all wait for
// one lock.
type shard struct {
	jobs   atomic.Int64 // job operations answered, warm-up included: for the progress
	errors atomic.Int64

	mu       sync.Mutex
	second   [opCount]*hdrhistogram.Histogram // since the last collect, nil when never used
	counts   [opCount]counts
	failures map[failure]int64
}

// counts are sums of one operation.
type counts struct {
	requests int64 // answered well
	jobs     int64 // job operations in them
	inWindow int64 // those of them that were answered within the measured time
	fast     int64 // requests that were answered before the commit
	empty    int64 // dequeues and fast reads that found nothing
	statuses [600]int32
}

// recorder is where all measurements of a run go.
type recorder struct {
	from, until atomic.Int64 // the measured time, ns since the run began
	shards      []*shard

	mu     sync.Mutex // the fields below
	total  [opCount]*hdrhistogram.Histogram
	spare  *hdrhistogram.Histogram
	series [opCount][]Point
	last   float64 // second of the last collect
}

func newRecorder(shards int) *recorder {
	r := &recorder{spare: newHistogram()}
	r.from.Store(math.MaxInt64)
	r.until.Store(math.MaxInt64)
	for range shards {
		r.shards = append(r.shards, &shard{failures: map[failure]int64{}})
	}
	return r
}

// answered records a request that was answered well: when it should have been
// sent and when it was answered, in ns since the run began, how many job
// operations it held, and whether the answer came before the commit.
func (r *recorder) answered(s *shard, o op, sent, done int64, jobs, status int, fast bool) {
	s.jobs.Add(int64(jobs))
	if sent < r.from.Load() || sent >= r.until.Load() {
		return
	}
	s.mu.Lock()
	c := &s.counts[o]
	c.requests++
	c.jobs += int64(jobs)
	if done < r.until.Load() {
		c.inWindow += int64(jobs)
	}
	if fast {
		c.fast++
	}
	if status >= 0 && status < len(c.statuses) {
		c.statuses[status]++
	}
	s.record(o, done-sent)
	s.mu.Unlock()
}

// measured records a duration that is no request.
func (r *recorder) measured(s *shard, o op, sent, done int64) {
	if sent < r.from.Load() || sent >= r.until.Load() {
		return
	}
	s.mu.Lock()
	s.counts[o].requests++
	if done < r.until.Load() {
		s.counts[o].inWindow++
	}
	s.record(o, done-sent)
	s.mu.Unlock()
}

// record adds to the histogram; s.mu is held.
func (s *shard) record(o op, ns int64) {
	if s.second[o] == nil {
		s.second[o] = newHistogram()
	}
	// Out of bounds is impossible after the clamp, and that is the only error.
	_ = s.second[o].RecordValue(min(max(ns, 0), latencyMax))
}

// empty counts a request that was answered well and found nothing.
func (r *recorder) empty(s *shard, o op, sent int64) {
	if sent < r.from.Load() || sent >= r.until.Load() {
		return
	}
	s.mu.Lock()
	s.counts[o].empty++
	s.mu.Unlock()
}

// failed counts errors. Those of the warm-up count too: an error is an error.
func (r *recorder) failed(s *shard, o op, code string, n int64) {
	s.errors.Add(n)
	s.mu.Lock()
	s.failures[failure{o, code}] += n
	s.mu.Unlock()
}

// collect moves what was recorded since the last time into the totals, as a
// point of the series that ends at that second.
func (r *recorder) collect(second float64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	length := second - r.last
	r.last = second
	for o := range opCount {
		r.spare.Reset()
		for _, s := range r.shards {
			s.mu.Lock()
			if h := s.second[o]; h != nil {
				r.spare.Merge(h)
				h.Reset()
			}
			s.mu.Unlock()
		}
		n := r.spare.TotalCount()
		if n == 0 && r.total[o] == nil {
			continue
		}
		if r.total[o] == nil {
			r.total[o] = newHistogram()
		}
		r.total[o].Merge(r.spare)
		r.series[o] = append(r.series[o], Point{
			Second: second, Length: length, Requests: n,
			P50: r.spare.ValueAtQuantile(50), P99: r.spare.ValueAtQuantile(99), Max: r.spare.Max(),
		})
	}
}

// progress returns the sums of all shards.
func (r *recorder) progress() (jobs, errors int64) {
	for _, s := range r.shards {
		jobs += s.jobs.Load()
		errors += s.errors.Load()
	}
	return jobs, errors
}

// sums returns the counts of one operation.
func (r *recorder) sums(o op) (sum counts) {
	for _, s := range r.shards {
		s.mu.Lock()
		c := &s.counts[o]
		sum.requests += c.requests
		sum.jobs += c.jobs
		sum.inWindow += c.inWindow
		sum.fast += c.fast
		sum.empty += c.empty
		for i, n := range c.statuses {
			sum.statuses[i] += n
		}
		s.mu.Unlock()
	}
	return sum
}

// failures returns all errors, the most frequent first.
func (r *recorder) failures() []ErrorCount {
	sum := map[failure]int64{}
	for _, s := range r.shards {
		s.mu.Lock()
		for f, n := range s.failures {
			sum[f] += n
		}
		s.mu.Unlock()
	}
	var all []ErrorCount
	for f, n := range sum {
		all = append(all, ErrorCount{Op: opNames[f.op], Code: f.code, Count: n})
	}
	slices.SortFunc(all, func(a, b ErrorCount) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Op, b.Op), cmp.Compare(a.Code, b.Code))
	})
	return all
}
