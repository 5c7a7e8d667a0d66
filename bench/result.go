package bench

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// Report is what a command measured: groups of runs to be seen side by side.
type Report struct {
	Title       string      `json:"title"`
	Time        time.Time   `json:"time"`
	Command     string      `json:"command,omitempty"`
	Environment Environment `json:"environment"`
	Groups      []Group     `json:"groups"`
	Bars        []Bar       `json:"bars,omitempty"`
}

// Group is runs that are compared with each other.
type Group struct {
	Title string    `json:"title"`
	Note  string    `json:"note,omitempty"`
	Runs  []*Result `json:"runs"`
}

// Bar is a ratio between two runs and what it should be.
type Bar struct {
	What  string  `json:"what"`
	Value float64 `json:"value"`
	Want  float64 `json:"want,omitempty"` // at most; 0 = only told
	Note  string  `json:"note,omitempty"`
}

// Result is one run.
type Result struct {
	Config    Config       `json:"config"`
	Start     time.Time    `json:"start"`
	Seconds   float64      `json:"seconds"` // measured
	Ops       []OpResult   `json:"ops"`
	Errors    []ErrorCount `json:"errors"`
	Nodes     []NodeUse    `json:"nodes"`
	Generator Generator    `json:"generator"`
	Tenths    []Tenths     `json:"tenths,omitempty"`
	Check     *Check       `json:"check,omitempty"`
	Notes     []string     `json:"notes,omitempty"`
}

// OpResult is one operation of a run. Latencies are in nanoseconds.
type OpResult struct {
	Name     string        `json:"name"`
	Requests int64         `json:"requests"`        // answered well
	Jobs     int64         `json:"jobs"`            // job operations in them
	Rate     float64       `json:"rate"`            // job operations a second within the measured time
	Fast     int64         `json:"fast,omitempty"`  // requests that were answered before the commit
	Empty    int64         `json:"empty,omitempty"` // dequeues and fast reads that found nothing
	Statuses map[int]int64 `json:"statuses,omitempty"`
	Latency  Latency       `json:"latency_ns"`
	Curve    []CurvePoint  `json:"curve"`
	Series   []Point       `json:"series"`
}

// Latency is the percentiles that tables show.
type Latency struct {
	P50   int64   `json:"p50"`
	P90   int64   `json:"p90"`
	P99   int64   `json:"p99"`
	P999  int64   `json:"p99_9"`
	P9999 int64   `json:"p99_99"`
	Max   int64   `json:"max"`
	Mean  float64 `json:"mean"`
}

// CurvePoint is one point of the percentile curve.
type CurvePoint struct {
	Percentile float64 `json:"percentile"`
	Ns         int64   `json:"ns"`
}

// Point is about a short part of the run, of a length and up to a second.
type Point struct {
	Second   float64 `json:"second"`
	Length   float64 `json:"length"`
	Requests int64   `json:"requests"`
	P50      int64   `json:"p50_ns"`
	P99      int64   `json:"p99_ns"`
	Max      int64   `json:"max_ns"`
}

// ErrorCount is how often an operation ended with a code: one of the server's,
// "http_NNN" for an answer without, or what happened to the connection.
type ErrorCount struct {
	Op    string `json:"op"`
	Code  string `json:"code"`
	Count int64  `json:"count"`
}

// Generator is what the load generator itself used in the measured time.
type Generator struct {
	CPUSeconds       float64 `json:"cpu_seconds"`
	AllocsPerRequest float64 `json:"allocs_per_request"`
}

// Tenths are the rates of the first and the last tenth of a backlog's phase, in
// jobs a second.
type Tenths struct {
	Phase   string  `json:"phase"`
	Jobs    int64   `json:"jobs"`
	Seconds float64 `json:"seconds"`
	First   float64 `json:"first_tenth"`
	Last    float64 `json:"last_tenth"`
}

// op returns an operation's result, nil when the run has none of it.
func (r *Result) op(o op) *OpResult {
	i := slices.IndexFunc(r.Ops, func(x OpResult) bool { return x.Name == opNames[o] })
	if i < 0 {
		return nil
	}
	return &r.Ops[i]
}

// shown are the operations that tables show. How long a dequeue waited says
// more of the load than of the server, and how late the generator was belongs
// to open loops.
func (r *Result) shown() (ops []OpResult) {
	for _, o := range r.Ops {
		if o.Name != opNames[opWait] && (o.Name != opNames[opLag] || r.Config.Rate > 0) {
			ops = append(ops, o)
		}
	}
	return ops
}

// jobOps is the number of job operations that were answered well.
func (r *Result) jobOps() (n int64) {
	for _, o := range r.Ops {
		n += o.Jobs
	}
	return n
}

func (r *Result) errorCount() (n int64) {
	for _, e := range r.Errors {
		n += e.Count
	}
	return n
}

// Faulty says what is wrong with a run, if anything: errors, or a failed check.
func (r *Result) Faulty() string {
	switch {
	case r.Check != nil && r.Check.Verdict() != "":
		return r.Check.Verdict()
	case r.errorCount() > 0:
		return fmt.Sprintf("%d requests failed", r.errorCount())
	}
	return ""
}

// serverCPU is the nodes' processor time for 1000 job operations, 0 when it is
// not known.
func (r *Result) serverCPU() float64 {
	n := r.jobOps()
	if n == 0 {
		return 0
	}
	return r.use(func(u NodeUse) float64 { return u.CPUSeconds }) / float64(n) * 1000
}

// use sums something over the nodes.
func (r *Result) use(f func(NodeUse) float64) (sum float64) {
	for _, u := range r.Nodes {
		sum += f(u)
	}
	return sum
}

// rssMax is the largest memory of a node at the end.
func (r *Result) rssMax() (bytes int64) {
	for _, u := range r.Nodes {
		bytes = max(bytes, u.RSSBytes)
	}
	return bytes
}

func latencyOf(h *hdrhistogram.Histogram) Latency {
	return Latency{
		P50: h.ValueAtQuantile(50), P90: h.ValueAtQuantile(90), P99: h.ValueAtQuantile(99),
		P999: h.ValueAtQuantile(99.9), P9999: h.ValueAtQuantile(99.99), Max: h.Max(), Mean: h.Mean(),
	}
}

// curveOf samples the percentiles from 0 to 99.99 evenly on a scale of nines.
// Beyond the last request there is nothing to show: n requests reach 1-1/n.
func curveOf(h *hdrhistogram.Histogram) []CurvePoint {
	const steps = 100 // 25 for each nine
	var curve []CurvePoint
	for i := range steps + 1 {
		rest := math.Pow(10, -4*float64(i)/steps)
		if i > 0 && rest < 1/float64(h.TotalCount()) {
			break
		}
		p := 100 * (1 - rest)
		curve = append(curve, CurvePoint{Percentile: p, Ns: h.ValueAtQuantile(p)})
	}
	return curve
}

// WriteJSON writes the report as JSON.
func (rep *Report) WriteJSON(w io.Writer) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", " ")
	return enc.Encode(rep)
}

// ReadReport reads a file that WriteJSON wrote.
func ReadReport(path string) (*Report, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var rep Report
	if err := json.Unmarshal(data, &rep); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return &rep, nil
}
