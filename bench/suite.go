package bench

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// RunAll carries runs out, one after the other. It stops at the first that
// could not be carried out and returns what there is.
func RunAll(ctx context.Context, configs []Config, t *Teller) (results []*Result, err error) {
	defer t.End()
	for _, c := range configs {
		t.Begin(c.Name)
		c.Progress = t.Tell
		r, err := Run(ctx, c)
		if r != nil {
			results = append(results, r)
		}
		if err != nil {
			return results, fmt.Errorf("%s: %w", c.Name, err)
		}
	}
	return results, nil
}

// Comparison is the runs of WorkCompare: what a client waits for an enqueue, a
// dequeue and an ack, fast and strong, beside an echo server. All else is as in c.
func Comparison(c Config, echo string) []Config {
	c.LeaderOnly = c.LeaderOnly || c.Connections <= 1
	setDefault(&c.Jobs, 20_000)
	one := func(workload, consistency string) Config {
		c := c
		c.Workload, c.Consistency = workload, consistency
		return c
	}
	bare := one(WorkEcho, Fast)
	bare.Endpoints, bare.LeaderOnly = []string{echo}, false
	return []Config{bare, one(WorkEnqueue, Fast), one(WorkDequeue, Fast), one(WorkEnqueue, Strong), one(WorkDequeue, Strong)}
}

// SuiteGroup is a part of the standard set.
type SuiteGroup struct {
	Title, Note string
	Configs     []Config
}

// StandardSet is what the tables of docs/performance.md show: about 25 runs
// that measure for a time each. The echo server may be none.
func StandardSet(endpoints []string, echo string, measured time.Duration) []SuiteGroup {
	base := Config{Endpoints: endpoints, Duration: Duration(measured), Warmup: Duration(measured / 4), Timeout: Duration(20 * time.Second)}
	both := func(c Config) []Config {
		strong, fast := c, c
		strong.Consistency, fast.Consistency = Strong, Fast
		return []Config{strong, fast}
	}
	with := func(workload string, connections int, change func(*Config)) []Config {
		c := base
		c.Workload, c.Connections, c.LeaderOnly = workload, connections, connections == 1
		if change != nil {
			change(&c)
		}
		if workload == WorkEcho {
			c.Endpoints, c.LeaderOnly = []string{echo}, false
			return []Config{c}
		}
		return both(c)
	}
	backlog := func(c *Config) { c.Warmup, c.Duration = 0, Duration(time.Minute) }
	groups := []SuiteGroup{
		{"Enqueue", "One job of 100 bytes in a request. One connection goes to the leader's node, more are spread over all nodes.",
			slices.Concat(with(WorkEnqueue, 1, nil), with(WorkEcho, 1, nil), with(WorkEnqueue, 16, nil), with(WorkEnqueue, 64, nil), with(WorkEcho, 64, nil))},
		{"Enqueue, dequeue, ack", "Every connection does the three in turn. A fast dequeue waits here: the job that was enqueued right before is not committed yet.",
			slices.Concat(with(WorkCycle, 1, nil), with(WorkCycle, 16, nil), with(WorkCycle, 64, nil))},
		{"Dequeue and ack", "From a queue with 20,000 jobs: 64 dequeues, then 64 acks, one job in a request. A fast ack depends on nothing uncommitted then.",
			slices.Concat(with(WorkDequeue, 1, func(c *Config) { c.Jobs = 20_000 }), with(WorkEcho, 1, nil), with(WorkDequeue, 16, func(c *Config) { c.Jobs = 20_000 }))},
		{"Batches", "100 jobs in a request, as frames.", with(WorkBatch, 8, nil)},
		{"Hand-off", "64 consumers wait on an empty queue, one producer enqueues 100 jobs a second; delivery is from the sending of the enqueue to the job in the consumer's hands.",
			with(WorkWaiters, 64, func(c *Config) { c.Rate = 100 })},
		{"Open loop", "A fixed rate; latencies count from when a request should have been sent.",
			with(WorkEnqueue, 64, func(c *Config) { c.Rate = 500 })},
		{"Backlog of 100,000 jobs", "Filled, then drained, 100 jobs in a request.", with(WorkBacklog, 8, backlog)},
	}
	for i := range groups {
		groups[i].Configs = slices.DeleteFunc(groups[i].Configs, func(c Config) bool { return echo == "" && c.Workload == WorkEcho })
	}
	return groups
}

// RunSuite carries groups out as far as the time allows.
func RunSuite(ctx context.Context, groups []SuiteGroup, t *Teller, rep *Report) error {
	for _, g := range groups {
		configs := slices.Clone(g.Configs)
		for i := range configs {
			if err := configs[i].Complete(); err != nil {
				return err
			}
		}
		runs, err := RunAll(ctx, configs, t)
		rep.Groups = append(rep.Groups, Group{Title: g.Title, Note: g.Note, Runs: runs})
		rep.Bars = append(rep.Bars, Ratios(runs)...)
		if err != nil {
			return err
		}
	}
	return nil
}

// echoRatioMax is the promise: a fast operation costs at most so many round trips
// to a bare HTTP server.
const echoRatioMax = 2

// Ratios compares runs that belong together: fast with strong, and with the echo at
// as many connections.
func Ratios(runs []*Result) (bars []Bar) {
	for _, fast := range runs {
		if fast.Config.Consistency != Fast {
			continue
		}
		for _, other := range runs {
			for _, o := range []op{opEnqueue, opDequeue, opAck} {
				switch {
				case echoes(other.Config, fast.Config):
					bars = addRatio(bars, o, fast, other, opEnqueue, "echo")
				case twins(fast.Config, other.Config):
					bars = addRatio(bars, o, fast, other, o, "strong")
				}
			}
		}
	}
	return bars
}

// echoes tells whether an echo is what a run is held against: one job in a request,
// and no waiting for anything but the answer.
func echoes(echo, fast Config) bool {
	return echo.Workload == WorkEcho && (fast.Workload == WorkEnqueue || fast.Workload == WorkDequeue) && fast.Batch == 1 &&
		echo.Connections == fast.Connections && echo.Pipeline == fast.Pipeline && echo.Rate == 0 && fast.Rate == 0
}

// twins tells whether two runs differ in consistency alone.
func twins(fast, strong Config) bool {
	return strong.Consistency == Strong && strong.Workload == fast.Workload && strong.Connections == fast.Connections &&
		strong.Pipeline == fast.Pipeline && strong.Batch == fast.Batch && strong.Rate == fast.Rate && strong.Size == fast.Size
}

// addRatio adds the ratio of two medians when both were measured.
func addRatio(bars []Bar, o op, fast, other *Result, with op, what string) []Bar {
	a, b := fast.op(o), other.op(with)
	if a == nil || b == nil || a.Latency.P50 == 0 || b.Latency.P50 == 0 {
		return bars
	}
	bar := Bar{
		What:  fmt.Sprintf("%s: p50 of %s / %s", fast.Config.label(), a.Name, what),
		Value: float64(a.Latency.P50) / float64(b.Latency.P50),
		Note:  fmt.Sprintf("%s / %s", formatNs(a.Latency.P50), formatNs(b.Latency.P50)),
	}
	if what == "echo" && fast.Config.Connections == 1 {
		bar.Want = echoRatioMax
	}
	if a.Fast < a.Requests/2 {
		bar.Note += "; most waited for the commit"
	}
	return append(bars, bar)
}

// Add takes the groups of another report in, each run named after where it came
// from unless that is empty. Groups of the same title become one.
func (rep *Report) Add(name string, other *Report) {
	if name != "" {
		name += ": "
	}
	if rep.Time.Before(other.Time) {
		rep.Time, rep.Environment = other.Time, other.Environment
	}
	for _, g := range other.Groups {
		for _, r := range g.Runs {
			r.Config.Name = name + r.Config.Name
		}
		i := slices.IndexFunc(rep.Groups, func(have Group) bool { return have.Title == g.Title })
		if i < 0 {
			rep.Groups = append(rep.Groups, g)
			continue
		}
		rep.Groups[i].Runs = append(rep.Groups[i].Runs, g.Runs...)
	}
	for _, b := range other.Bars {
		b.What = name + b.What
		rep.Bars = append(rep.Bars, b)
	}
}
