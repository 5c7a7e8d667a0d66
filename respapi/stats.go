package respapi

import (
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// stats counts what this front end did.
type stats struct {
	server *Server

	accepted, refused, executed, bytesIn, bytesOut counter
	ops, in, out                                   rate
	peakBytes                                      atomic.Uint64
	// Each hand-out ends in one of these.
	written, undelivered atomic.Uint64

	seconds *prometheus.HistogramVec
	errors  *prometheus.CounterVec
}

// counter goes up for ever; CONFIG RESETSTAT only moves what INFO counts from.
type counter struct {
	n, base atomic.Uint64
}

func (c *counter) add(n uint64)  { c.n.Add(n) }
func (c *counter) since() uint64 { return c.n.Load() - c.base.Load() }
func (c *counter) reset()        { c.base.Store(c.n.Load()) }

// rate counts what there was in the second at hand and in the one before.
type rate struct {
	second, count, last atomic.Int64
}

func (r *rate) add(now time.Time, n int) {
	s := now.Unix()
	if old := r.second.Load(); s > old && r.second.CompareAndSwap(old, s) {
		n := r.count.Swap(0)
		if s != old+1 {
			n = 0
		}
		r.last.Store(n)
	}
	r.count.Add(int64(n))
}

func (r *rate) perSecond(now time.Time) int64 {
	switch now.Unix() - r.second.Load() {
	case 0:
		return r.last.Load()
	case 1:
		return r.count.Load()
	}
	return 0
}

// read and wrote count bytes.
func (s *stats) read(at time.Time, n int) {
	s.bytesIn.add(uint64(n))
	s.in.add(at, n)
}

func (s *stats) wrote(at time.Time, n int) {
	s.bytesOut.add(uint64(n))
	s.out.add(at, n)
}

func newStats(s *Server) *stats {
	return &stats{
		server: s,
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "raftq_resp_seconds",
			Help:    "Time from a command to its reply, waits included; pipelined commands that shared an operation count each.",
			Buckets: []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60},
		}, []string{"command"}),
		errors: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "raftq_resp_errors_total", Help: "Error replies by their word.",
		}, []string{"word"}),
	}
}

var (
	descClients     = prometheus.NewDesc("raftq_resp_connections", "Open RESP connections.", nil, nil)
	descBlocked     = prometheus.NewDesc("raftq_resp_blocked", "RESP clients that wait in GETJOB.", nil, nil)
	descAccepted    = prometheus.NewDesc("raftq_resp_connections_total", "RESP connections accepted.", nil, nil)
	descRefused     = prometheus.NewDesc("raftq_resp_connections_refused_total", "RESP connections refused: too many at once.", nil, nil)
	descWritten     = prometheus.NewDesc("raftq_resp_answers_written_total", "Hand-outs over RESP whose answer was begun to be written.", nil, nil)
	descUndelivered = prometheus.NewDesc("raftq_resp_answers_undelivered_total", "Hand-outs over RESP given back because the client hung up before its answer.", nil, nil)
)

// Describe implements prometheus.Collector.
func (s *stats) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{descClients, descBlocked, descAccepted, descRefused, descWritten, descUndelivered} {
		ch <- d
	}
	s.seconds.Describe(ch)
	s.errors.Describe(ch)
}

// Collect implements prometheus.Collector.
func (s *stats) Collect(ch chan<- prometheus.Metric) {
	ch <- prometheus.MustNewConstMetric(descClients, prometheus.GaugeValue, float64(s.server.sessions.len()))
	ch <- prometheus.MustNewConstMetric(descBlocked, prometheus.GaugeValue, float64(s.server.sessions.blocks.Load()))
	ch <- prometheus.MustNewConstMetric(descAccepted, prometheus.CounterValue, float64(s.accepted.n.Load()))
	ch <- prometheus.MustNewConstMetric(descRefused, prometheus.CounterValue, float64(s.refused.n.Load()))
	ch <- prometheus.MustNewConstMetric(descWritten, prometheus.CounterValue, float64(s.written.Load()))
	ch <- prometheus.MustNewConstMetric(descUndelivered, prometheus.CounterValue, float64(s.undelivered.Load()))
	s.seconds.Collect(ch)
	s.errors.Collect(ch)
}

func (s *stats) fail(word string) { s.errors.WithLabelValues(word).Inc() }

// observe counts commands that were executed together.
func (c *session) observe(done []request, d time.Duration) {
	st := c.s.stats
	st.executed.add(uint64(len(done)))
	st.ops.add(c.at, len(done))
	for i := range done {
		cmd := done[i].cmd
		if cmd == nil {
			continue // unknown: a name of the client's is no label
		}
		cmd.calls.add(1)
		cmd.nanos.add(uint64(d))
		cmd.seconds.Observe(d.Seconds())
		c.s.slow.note(c.s.live.get(), &done[i], d)
	}
}

// peak notes a use of memory and returns the highest.
func (s *stats) peak(used uint64) uint64 {
	for {
		old := s.peakBytes.Load()
		if used <= old {
			return old
		}
		if s.peakBytes.CompareAndSwap(old, used) {
			return used
		}
	}
}

func (s *stats) reset() {
	for _, c := range []*counter{&s.accepted, &s.refused, &s.executed, &s.bytesIn, &s.bytesOut} {
		c.reset()
	}
	for _, cmd := range s.server.commands {
		cmd.calls.reset()
		cmd.nanos.reset()
	}
}
