package httpapi

import (
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"raftq/fsm"
)

type counter = atomic.Uint64

// weakly is how metrics look: soon, and without asking anybody.
var weakly = fsm.ReadHow{TimeoutMs: 1000}

// stats counts what this node's front end did. Counting is a few atomic adds;
// series are made when they are scraped.
type stats struct {
	replica Replica
	routes  []string
	seconds [][statusMax]atomic.Pointer[histogram] // by route, the last for no route

	enqueued, leased, acked, nacked, released, rejected, extended, appended counter
	// Each hand-out ends in one of these.
	written, undelivered counter
}

const statusMax = 600

// histogram counts durations. Buckets are not cumulative here.
type histogram struct {
	buckets [len(bounds) + 1]atomic.Uint64
	nanos   atomic.Uint64
}

var bounds = [...]time.Duration{
	100 * time.Microsecond, 250 * time.Microsecond, 500 * time.Microsecond,
	time.Millisecond, 2500 * time.Microsecond, 5 * time.Millisecond, 10 * time.Millisecond, 25 * time.Millisecond,
	50 * time.Millisecond, 100 * time.Millisecond, 250 * time.Millisecond, 500 * time.Millisecond,
	time.Second, 2500 * time.Millisecond, 5 * time.Second, 10 * time.Second, 30 * time.Second, time.Minute,
}

func newStats(r Replica, table []route) *stats {
	s := &stats{replica: r, seconds: make([][statusMax]atomic.Pointer[histogram], len(table)+1)}
	for i := range table {
		s.routes = append(s.routes, table[i].method+" "+table[i].pattern)
	}
	s.routes = append(s.routes, "none")
	return s
}

// observe counts an answer; route is -1 when there was none.
func (s *stats) observe(route, status int, d time.Duration) {
	if route < 0 {
		route = len(s.routes) - 1
	}
	slot := &s.seconds[route][min(max(status, 0), statusMax-1)]
	h := slot.Load()
	if h == nil {
		h = new(histogram)
		if !slot.CompareAndSwap(nil, h) {
			h = slot.Load()
		}
	}
	i := 0
	for i < len(bounds) && d > bounds[i] {
		i++
	}
	h.buckets[i].Add(1)
	h.nanos.Add(uint64(d))
}

var (
	descSeconds = prometheus.NewDesc("raftq_request_seconds", "Time from a request to its answer, waits included.", []string{"route", "code"}, nil)
	descJobs    = prometheus.NewDesc("raftq_jobs", "Jobs by queue and state; the largest queues by name, the rest as one.", []string{"queue", "state"}, nil)
	descWaiters = prometheus.NewDesc("raftq_waiters", "Dequeues that wait, on all nodes.", nil, nil)
	descCounts  = []*prometheus.Desc{
		prometheus.NewDesc("raftq_enqueued_total", "Jobs enqueued through this node.", nil, nil),
		prometheus.NewDesc("raftq_leased_total", "Hand-outs to dequeues of this node, whether or not they were written.", nil, nil),
		prometheus.NewDesc("raftq_acked_total", "Jobs acked through this node.", nil, nil),
		prometheus.NewDesc("raftq_nacked_total", "Jobs nacked through this node.", nil, nil),
		prometheus.NewDesc("raftq_released_total", "Jobs released through this node.", nil, nil),
		prometheus.NewDesc("raftq_rejected_total", "Jobs rejected through this node.", nil, nil),
		prometheus.NewDesc("raftq_extended_total", "Leases extended through this node.", nil, nil),
		prometheus.NewDesc("raftq_appended_total", "Messages appended to topics through this node.", nil, nil),
		prometheus.NewDesc("raftq_answers_written_total", "Hand-outs whose answer was begun to be written.", nil, nil),
		prometheus.NewDesc("raftq_answers_undelivered_total", "Hand-outs given back because the client hung up before its answer.", nil, nil),
	}
)

// Describe implements prometheus.Collector.
func (s *stats) Describe(ch chan<- *prometheus.Desc) {
	ch <- descSeconds
	ch <- descJobs
	ch <- descWaiters
	for _, d := range descCounts {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (s *stats) Collect(ch chan<- prometheus.Metric) {
	counts := []*counter{&s.enqueued, &s.leased, &s.acked, &s.nacked, &s.released, &s.rejected, &s.extended, &s.appended, &s.written, &s.undelivered}
	for i, c := range counts {
		ch <- prometheus.MustNewConstMetric(descCounts[i], prometheus.CounterValue, float64(c.Load()))
	}
	for r := range s.seconds {
		for status := range s.seconds[r] {
			if h := s.seconds[r][status].Load(); h != nil {
				ch <- h.metric(s.routes[r], status)
			}
		}
	}
	s.collectJobs(ch)
}

func (h *histogram) metric(route string, status int) prometheus.Metric {
	buckets, count := map[float64]uint64{}, uint64(0)
	for i := range bounds {
		count += h.buckets[i].Load()
		buckets[bounds[i].Seconds()] = count
	}
	count += h.buckets[len(bounds)].Load()
	return prometheus.MustNewConstHistogram(descSeconds, count, float64(h.nanos.Load())/1e9, buckets, route, strconv.Itoa(status))
}

// collectJobs reads this node's own state, a page at a time, so that a scrape
// never holds up the machine.
func (s *stats) collectJobs(ch chan<- prometheus.Metric) {
	var total fsm.QueueInfo
	if _, err := s.replica.Read(weakly, func(m *fsm.Machine) { total = m.Totals() }); err != nil {
		return // not started: no series is better than a wrong one
	}
	var top []fsm.QueueInfo
	cursor := ""
	for seen := 0; seen < jobsGaugeScan; seen += jobsGaugePage {
		var page []fsm.QueueInfo
		_, err := s.replica.Read(weakly, func(m *fsm.Machine) {
			page, cursor = m.Queues(fsm.QueueFilter{MaxLen: -1}, cursor, jobsGaugePage)
		})
		if err != nil {
			break
		}
		top = append(top, page...)
		slices.SortStableFunc(top, func(a, b fsm.QueueInfo) int { return jobsOf(&b) - jobsOf(&a) })
		top = top[:min(len(top), jobsGaugeQueues)]
		if cursor == "" {
			break
		}
	}
	rest := total
	for i := range top {
		q := &top[i]
		sendJobs(ch, promLabel(q.Queue), q)
		rest.Ready -= q.Ready
		rest.Delayed -= q.Delayed
		rest.Leased -= q.Leased
		rest.Held -= q.Held
		rest.Dead -= q.Dead
	}
	sendJobs(ch, "$other", &rest)
	ch <- prometheus.MustNewConstMetric(descWaiters, prometheus.GaugeValue, float64(total.Waiters))
}

func jobsOf(q *fsm.QueueInfo) int { return q.Ready + q.Delayed + q.Leased + q.Held + q.Dead }

func sendJobs(ch chan<- prometheus.Metric, queue string, q *fsm.QueueInfo) {
	for _, x := range [...]struct {
		state string
		n     int
	}{{"ready", q.Ready}, {"delayed", q.Delayed}, {"leased", q.Leased}, {"held", q.Held}, {"dead", q.Dead}} {
		// The pages are read one after the other, so the rest may come out
		// below nothing for a moment.
		ch <- prometheus.MustNewConstMetric(descJobs, prometheus.GaugeValue, float64(max(0, x.n)), queue, x.state)
	}
}

// promLabel makes a queue's name valid UTF-8 without merging two names.
func promLabel(name string) string {
	if label := appendString(nil, name); string(label[1:len(label)-1]) == name {
		return name
	}
	return string(appendField(nil, name))
}
