package bench

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Workloads, by the names the command line uses.
const (
	WorkEnqueue = "enqueue"
	WorkDequeue = "dequeue"
	WorkCycle   = "cycle"
	WorkBatch   = "batch"
	WorkBacklog = "backlog"
	WorkWaiters = "waiters"
	WorkMixed   = "mixed"
	WorkEcho    = "echo"
	WorkCompare = "compare" // of several runs, see Comparison
)

// Workloads says what each workload does, in the order of the help.
var Workloads = []struct{ Name, Does string }{
	{WorkEnqueue, "every connection enqueues"},
	{WorkDequeue, "--jobs jobs are put in first; every connection dequeues 64 times (or for a quarter of the run), then acks those jobs, until all are gone"},
	{WorkCycle, "every connection enqueues, dequeues and acks in turn; with --producers P, P connections enqueue and the others dequeue and ack"},
	{WorkBatch, "enqueue in batches of --batch jobs (frames)"},
	{WorkBacklog, "fill a queue with --jobs jobs, then drain it; shows whether it slows down as it grows"},
	{WorkWaiters, "every connection waits for a job on an empty queue while --producers others enqueue; latency from enqueue to hand-off"},
	{WorkMixed, "70 % enqueue, dequeue and ack, 20 % reads, 10 % nack and extend"},
	{WorkEcho, "the same requests as enqueue to a bare HTTP server: what the machine and the generator can do at best"},
	{WorkCompare, "echo, enqueue and dequeue in turn, strong and fast: enqueue, dequeue and ack side by side; one connection goes to the leader"},
}

// Strong and Fast are the values of Config.Consistency.
const (
	Strong = "strong"
	Fast   = "fast"
)

// Limits of a Config. They keep a slip of the finger from eating the machine.
const (
	connectionsMax = 20_000
	pipelineMax    = 1_000
	batchMax       = 1_000    // the server's own limit
	batchBytesMax  = 8 << 20  // the server's own limit
	sizeMax        = 16 << 20 // the server's own limit
	queuesMax      = 1_000_000
	queueShareMax  = 64 // queues that one dequeue may name
	jobsMax        = 50_000_000
	durationMax    = 24 * time.Hour
)

// Duration is a time.Duration that JSON shows with its unit.
type Duration time.Duration

// MarshalText writes it like 1m30s.
func (d Duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

// UnmarshalText reads what MarshalText wrote.
func (d *Duration) UnmarshalText(text []byte) error {
	v, err := time.ParseDuration(string(text))
	*d = Duration(v)
	return err
}

// Config is one run.
type Config struct {
	Name        string   `json:"name"` // what the reports call it; made up when empty
	Endpoints   []string `json:"endpoints"`
	LeaderOnly  bool     `json:"leader_only,omitempty"` // all connections to the leader's node
	Workload    string   `json:"workload"`
	Consistency string   `json:"consistency"`
	Connections int      `json:"connections"`
	Producers   int      `json:"producers,omitempty"` // cycle and waiters
	Pipeline    int      `json:"pipeline"`            // requests written together on a connection
	Batch       int      `json:"batch"`               // jobs in a request
	Size        int      `json:"size"`                // bytes of a body
	Queues      int      `json:"queues"`
	Rate        float64  `json:"rate,omitempty"` // requests a second, open loop; 0 = closed loop
	Cap         int      `json:"cap,omitempty"`  // unacked jobs at most, cycle with producers
	Jobs        int      `json:"jobs,omitempty"` // dequeue and backlog
	Requests    int64    `json:"requests,omitempty"`
	Warmup      Duration `json:"warmup"`
	Duration    Duration `json:"duration"` // measured, after the warm-up
	Timeout     Duration `json:"timeout"`  // for one answer
	Check       bool     `json:"check,omitempty"`
	Keep        bool     `json:"keep,omitempty"` // leave the queues in place

	// Progress is called several times a second, from one goroutine.
	Progress func(Progress) `json:"-"`
}

// Progress is how far a run is.
type Progress struct {
	Phase  string
	Part   float64 // 0 to 1
	Jobs   int64   // job operations answered, since the start of the phase
	Rate   float64 // of them a second, lately
	Errors int64
}

// Complete fills in what is not set and checks the rest.
func (c *Config) Complete() error {
	if c.Workload == "" {
		c.Workload = WorkEnqueue
	}
	if !slices.ContainsFunc(Workloads, func(w struct{ Name, Does string }) bool { return w.Name == c.Workload }) {
		return fmt.Errorf("workload: %q is not one of %s", c.Workload, workloadNames())
	}
	if c.Workload == WorkCompare {
		return fmt.Errorf("workload: %s is several runs, not one", WorkCompare)
	}
	setDefault(&c.Consistency, Strong)
	if c.Consistency != Strong && c.Consistency != Fast {
		return fmt.Errorf("consistency: %q is neither strong nor fast", c.Consistency)
	}
	setDefault(&c.Connections, 1)
	setDefault(&c.Pipeline, 1)
	setDefault(&c.Queues, 1)
	setDefault(&c.Size, 100)
	setDefault(&c.Duration, Duration(10*time.Second))
	setDefault(&c.Timeout, Duration(30*time.Second))
	switch c.Workload {
	case WorkBatch, WorkBacklog:
		setDefault(&c.Batch, 100)
	case WorkWaiters:
		setDefault(&c.Producers, 1)
	}
	setDefault(&c.Batch, 1)
	switch c.Workload {
	case WorkDequeue:
		setDefault(&c.Jobs, 50_000)
	case WorkBacklog:
		setDefault(&c.Jobs, 100_000)
	}
	if c.Name == "" {
		c.Name = c.label()
	}
	return c.check()
}

func setDefault[T comparable](p *T, v T) {
	var zero T
	if *p == zero {
		*p = v
	}
}

func workloadNames() string {
	var names []string
	for _, w := range Workloads {
		names = append(names, w.Name)
	}
	return strings.Join(names, ", ")
}

func (c *Config) check() error {
	if len(c.Endpoints) == 0 {
		return fmt.Errorf("endpoints: none given")
	}
	for _, b := range []struct {
		name     string
		v        int
		min, max int
	}{
		{"connections", c.Connections, 1, connectionsMax},
		{"producers", c.Producers, 0, connectionsMax},
		{"pipeline", c.Pipeline, 1, pipelineMax},
		{"batch", c.Batch, 1, batchMax},
		{"size", c.Size, bodyHeadSize, sizeMax},
		{"queues", c.Queues, 1, queuesMax},
		{"jobs", c.Jobs, 0, jobsMax},
		{"cap", c.Cap, 0, jobsMax},
	} {
		if b.v < b.min || b.v > b.max {
			return fmt.Errorf("%s: %d is not within %d to %d", b.name, b.v, b.min, b.max)
		}
	}
	switch {
	case c.Rate < 0 || c.Rate > 1e7:
		return fmt.Errorf("rate: %v is not within 0 to 10000000", c.Rate)
	case c.Requests < 0:
		return fmt.Errorf("requests: %d is negative", c.Requests)
	case c.Duration <= 0 || time.Duration(c.Duration) > durationMax:
		return fmt.Errorf("duration: %v is not within 0s to 24h", time.Duration(c.Duration))
	case c.Warmup < 0 || time.Duration(c.Warmup) > durationMax:
		return fmt.Errorf("warmup: %v is not within 0s to 24h", time.Duration(c.Warmup))
	case time.Duration(c.Timeout) < time.Millisecond || time.Duration(c.Timeout) > time.Hour:
		return fmt.Errorf("timeout: %v is not within 1ms to 1h", time.Duration(c.Timeout))
	case c.Batch > 1 && c.Batch*(c.Size+8) > batchBytesMax:
		return fmt.Errorf("batch: %d bodies of %d bytes are more than %d bytes", c.Batch, c.Size, batchBytesMax)
	case c.Workload == WorkCycle && c.Producers >= c.Connections && c.Producers > 0:
		return fmt.Errorf("producers: %d of %d connections leave no consumer", c.Producers, c.Connections)
	case c.Check && c.Workload == WorkEcho:
		return fmt.Errorf("check: an echo keeps no jobs")
	}
	if share := c.queueShare(c.consumers()); share > queueShareMax {
		return fmt.Errorf("queues: %d for each consumer, at most %d", share, queueShareMax)
	}
	return nil
}

// consumers is how many connections dequeue.
func (c *Config) consumers() int {
	switch {
	case c.Workload == WorkEnqueue || c.Workload == WorkBatch || c.Workload == WorkEcho:
		return 0
	case c.Workload == WorkCycle && c.Producers > 0:
		return c.Connections - c.Producers
	}
	return c.Connections
}

// queueShare is how many queues one of n connections has at most.
func (c *Config) queueShare(n int) int {
	if n == 0 || c.Queues <= n {
		return 1
	}
	return (c.Queues + n - 1) / n
}

// label names a run by what sets it apart.
func (c *Config) label() string {
	if c.Workload == WorkEcho {
		return fmt.Sprintf("echo, %s", plural(c.Connections, "connection"))
	}
	s := fmt.Sprintf("%s %s, %s", c.Workload, c.Consistency, plural(c.Connections, "connection"))
	if c.Pipeline > 1 {
		s += fmt.Sprintf(", pipeline %d", c.Pipeline)
	}
	if c.Batch > 1 {
		s += fmt.Sprintf(", batch %d", c.Batch)
	}
	if c.LeaderOnly {
		s += " to the leader"
	}
	if c.Rate > 0 {
		s += fmt.Sprintf(", %g/s", c.Rate)
	}
	return s
}

func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
