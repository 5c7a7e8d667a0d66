package bench

import (
	"bytes"
	"encoding/xml"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
)

func contains(text, part string) bool { return strings.Contains(text, part) }

// testResult is a run with made-up numbers.
func testResult(name, workload, consistency string, p50 int64) *Result {
	c := Config{Name: name, Endpoints: []string{"a:1"}, Workload: workload, Consistency: consistency, Connections: 1}
	if err := c.Complete(); err != nil {
		panic(err)
	}
	op := OpResult{
		Name: "enqueue", Requests: 1000, Jobs: 1000, Rate: 12345.6, Fast: 1000, Statuses: map[int]int64{202: 1000},
		Latency: Latency{P50: p50, P90: 2 * p50, P99: 3 * p50, P999: 4 * p50, P9999: 5 * p50, Max: 6 * p50},
		Curve:   []CurvePoint{{0, p50 / 2}, {50, p50}, {99, 3 * p50}},
		Series:  []Point{{1, 1, 500, p50, 3 * p50, 6 * p50}, {2, 1, 500, p50, 3 * p50, 4 * p50}},
	}
	return &Result{
		Config: c, Seconds: 2, Ops: []OpResult{op},
		Nodes: []NodeUse{{Name: "n1", CPUSeconds: 1.5, RSSBytes: 64 << 20, Fsyncs: 400, WALBytes: 4 << 20, Batches: 100, BatchedOps: 250, Version: "v1.2"}},
	}
}

func testReport() *Report {
	strong, fast, echo := testResult("strong <1>", WorkEnqueue, Strong, 2_000_000), testResult("fast", WorkEnqueue, Fast, 500_000), testResult("echo", WorkEcho, Strong, 100_000)
	strong.Errors = []ErrorCount{{"enqueue", "no_leader", 3}}
	strong.Check = &Check{Jobs: 10, Enqueued: 10, Missing: 2}
	fast.Check = &Check{Jobs: 10, Enqueued: 10}
	fast.Tenths = []Tenths{{"fill", 1000, 2, 600, 400}}
	runs := []*Result{strong, fast, echo}
	return &Report{
		Title: "A <report>", Time: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Command: "raftq bench",
		Environment: Environment{CPU: "a CPU", CPUs: 2, Memory: 1 << 30, Kernel: "6.1", Go: "go1.26", Load: 0.5, Disk: "ext4"},
		Groups:      []Group{{Title: "Enqueue", Note: "A note.", Runs: runs}},
		Bars:        Ratios(runs),
	}
}

// Fast is compared with strong and with the echo, and only the latter is a
// promise.
func TestRatios(t *testing.T) {
	bars := testReport().Bars
	if len(bars) != 2 {
		t.Fatalf("%+v", bars)
	}
	for _, b := range bars {
		switch {
		case contains(b.What, "echo"):
			if b.Value != 5 || b.Met() || !contains(b.text(), "at most 2: NOT met") {
				t.Errorf("%+v", b)
			}
		case b.Value != 0.25 || !b.Met() || b.Want != 0:
			t.Errorf("%+v", b)
		}
	}
}

// The table shows rates, percentiles, what was used, errors, and the verdicts.
func TestTable(t *testing.T) {
	var b bytes.Buffer
	if err := testReport().WriteTable(&b); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"12,346 2.00 ms 4.00 ms 6.00 ms 8.00 ms 10.0 ms 12.0 ms 3", "12,346 500 µs 1.00 ms",
		"1.500", "64.0 MiB", "2.00 MiB", "2.5", "3 × enqueue failed: no_leader", "check failed: jobs 2 never delivered",
		"check passed: 10 jobs enqueued", "first tenth 600/s, last tenth 400/s",
	} {
		if !contains(strings.Join(strings.Fields(b.String()), " "), want) {
			t.Errorf("no %q in\n%s", want, b.String())
		}
	}
}

// The page is well-formed, needs nothing from elsewhere, escapes names, and has
// a chart for everything.
func TestHTML(t *testing.T) {
	var b bytes.Buffer
	if err := testReport().WriteHTML(&b); err != nil {
		t.Fatal(err)
	}
	page := b.String()
	for _, want := range []string{
		"<title>A &lt;report&gt;</title>", "strong &lt;1&gt;", `<h2 id="g1">Enqueue</h2>`, "A note.", "12,346", "a CPU",
		`data-x="nines"`, `data-x="time"`, ">p99.99<", "at most 2: not met", "3 × enqueue failed: no_leader", "v1.2", "prefers-color-scheme: dark",
	} {
		if !contains(page, want) {
			t.Errorf("no %q in the page", want)
		}
	}
	for _, bad := range []string{"http://", "https://", "<link", "src=", "@import", "NaN", "Inf", "ZgotmplZ"} {
		if contains(page, bad) {
			t.Errorf("%q in the page", bad)
		}
	}
	if n := strings.Count(page, "<svg"); n != 2+3 {
		t.Errorf("%d charts, want throughput, percentiles and 3 runs over time", n)
	}
	for rest := page; ; {
		_, after, ok := strings.Cut(rest, "<svg")
		if !ok {
			break
		}
		svg, after, _ := strings.Cut(after, "</svg>")
		wellFormed(t, "<svg"+svg+"</svg>")
		rest = after
	}
}

func wellFormed(t *testing.T, text string) {
	t.Helper()
	for d := xml.NewDecoder(strings.NewReader(text)); ; {
		if _, err := d.Token(); err == io.EOF {
			return
		} else if err != nil {
			t.Fatalf("%v in %.300s", err, text)
		}
	}
}

// A report without a single measurement is shown all the same.
func TestEmptyReport(t *testing.T) {
	r := testResult("nothing", WorkEnqueue, Strong, 1)
	r.Ops = nil
	for _, rep := range []*Report{{}, {Groups: []Group{{Runs: []*Result{r}}}}} {
		if err := rep.WriteHTML(io.Discard); err != nil {
			t.Error(err)
		}
		if err := rep.WriteTable(io.Discard); err != nil {
			t.Error(err)
		}
		rep.WriteMarkdown(io.Discard)
	}
}

// Axes end at round numbers that hold all points, and a nine is as wide as the
// next.
func TestChartScales(t *testing.T) {
	c := chart{x: xNines, logY: true, format: tickNs, lines: []line{{points: []point{{0, 120_000}, {99, 3_300_000}}}}}
	c.fitY()
	if c.yMin != 100_000 || c.yMax != 5_000_000 {
		t.Errorf("%v to %v", c.yMin, c.yMax)
	}
	if a, b := c.px(99)-c.px(90), c.px(99.9)-c.px(99); a-b > 0.01 || b-a > 0.01 {
		t.Errorf("nines are %v and %v wide", a, b)
	}
	for _, p := range []float64{c.px(0), c.px(100), c.px(99.99)} {
		if p < marginLeft || p > chartWidth-marginRight+0.01 {
			t.Errorf("%v is off the chart", p)
		}
	}
	lin := chart{x: xTime, xMax: 10, format: formatRate, lines: []line{{points: []point{{1, 940}, {2, 0}}}}}
	lin.fitY()
	if ticks := lin.yTicks(); ticks[0] != 0 || ticks[len(ticks)-1] < 940 || len(ticks) > 8 {
		t.Errorf("%v", ticks)
	}
}

// Numbers are short and keep three digits.
func TestFormats(t *testing.T) {
	for ns, want := range map[int64]string{0: "0", 999: "999 ns", 1500: "1.50 µs", 99_960: "100 µs", 1_000_000: "1.00 ms", 12_345_678: "12.3 ms", 2_500_000_000: "2.50 s"} {
		if got := formatNs(ns); got != want {
			t.Errorf("%d: %q, want %q", ns, got, want)
		}
	}
	for v, want := range map[float64]string{0: "0", 1.5: "1.50", 42: "42", 999.6: "1,000", 1234567: "1,234,567"} {
		if got := formatRate(v); got != want {
			t.Errorf("%v: %q, want %q", v, got, want)
		}
	}
	if got := tickNs(500_000); got != "500 µs" {
		t.Errorf("%q", got)
	}
	if got := tickNs(2_000_000); got != "2 ms" {
		t.Errorf("%q", got)
	}
}

// The tables of a document are replaced between the markers, and nothing else.
func TestReplaceTables(t *testing.T) {
	rep := testReport()
	doc := "# Title\n\n" + markBegin + "\nold\n" + markEnd + "\n\nThe rest.\n"
	got, err := rep.ReplaceTables([]byte(doc))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"# Title\n\n" + markBegin + "\nMeasured on 2026-01-02", "| fast | enqueue | 12,346 | 500 µs |", markEnd + "\n\nThe rest.\n", "**not met**"} {
		if !contains(string(got), want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
	if contains(string(got), "old") {
		t.Error("the old tables are still there")
	}
	again, err := rep.ReplaceTables(got)
	if err != nil || !bytes.Equal(again, got) {
		t.Errorf("replacing twice differs: %v", err)
	}
	if _, err := rep.ReplaceTables([]byte("no markers")); err == nil {
		t.Error("a document without markers is taken")
	}
}

// JSON keeps everything, and reports of several files are put side by side.
func TestJSONAndAdd(t *testing.T) {
	rep := testReport()
	path := filepath.Join(t.TempDir(), "r.json")
	var b bytes.Buffer
	if err := rep.WriteJSON(&b); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, b.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	back, err := ReadReport(path)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(rep, back) {
		t.Errorf("read back:\n%+v\nwritten:\n%+v", back, rep)
	}
	sum := &Report{}
	sum.Add("a", rep)
	sum.Add("b", back)
	if len(sum.Groups) != 1 || len(sum.Groups[0].Runs) != 6 || sum.Groups[0].Runs[3].Config.Name != "b: strong <1>" {
		t.Errorf("%+v", sum.Groups)
	}
}

// The standard set holds valid runs with names of their own in each group.
func TestStandardSet(t *testing.T) {
	runs := 0
	for _, g := range StandardSet([]string{"a:1", "b:1"}, "e:1", time.Second) {
		seen := map[string]bool{}
		for _, c := range g.Configs {
			if err := c.Complete(); err != nil {
				t.Errorf("%s: %v", g.Title, err)
			}
			if seen[c.Name] {
				t.Errorf("%s: two runs named %s", g.Title, c.Name)
			}
			seen[c.Name] = true
			runs++
		}
	}
	if runs < 20 || runs > 30 {
		t.Errorf("%d runs", runs)
	}
	for _, g := range StandardSet([]string{"a:1"}, "", time.Second) {
		for _, c := range g.Configs {
			if c.Workload == WorkEcho {
				t.Error("an echo without a server")
			}
		}
	}
}

// The comparison holds enqueue, dequeue and ack against strong and against the echo,
// at as many connections.
func TestComparison(t *testing.T) {
	var runs []*Result
	for _, c := range Comparison(Config{Endpoints: []string{"a:1", "b:1"}, Connections: 1}, "e:1") {
		if err := c.Complete(); err != nil {
			t.Fatal(err)
		}
		if c.LeaderOnly != (c.Workload != WorkEcho) {
			t.Errorf("%s: leader only %v", c.Name, c.LeaderOnly)
		}
		r := &Result{Config: c, Ops: []OpResult{{Name: opNames[opEnqueue], Requests: 1, Fast: 1, Latency: Latency{P50: 100}}}}
		if c.Workload == WorkDequeue {
			r.Ops = []OpResult{{Name: opNames[opDequeue], Requests: 1, Fast: 1, Latency: Latency{P50: 150}}, {Name: opNames[opAck], Requests: 1, Fast: 1, Latency: Latency{P50: 300}}}
		}
		runs = append(runs, r)
	}
	held := map[string]bool{}
	for _, b := range Ratios(runs) {
		held[b.text()] = true
	}
	for _, want := range []string{
		"enqueue fast, 1 connection to the leader: p50 of enqueue / echo: 1.00 (at most 2: met); 100 ns / 100 ns",
		"dequeue fast, 1 connection to the leader: p50 of dequeue / echo: 1.50 (at most 2: met); 150 ns / 100 ns",
		"dequeue fast, 1 connection to the leader: p50 of ack / echo: 3.00 (at most 2: NOT met); 300 ns / 100 ns",
		"enqueue fast, 1 connection to the leader: p50 of enqueue / strong: 1.00; 100 ns / 100 ns",
		"dequeue fast, 1 connection to the leader: p50 of dequeue / strong: 1.00; 150 ns / 150 ns",
		"dequeue fast, 1 connection to the leader: p50 of ack / strong: 1.00; 300 ns / 300 ns",
	} {
		if !held[want] {
			t.Errorf("no %q in %v", want, held)
		}
	}
	if len(held) != 6 {
		t.Errorf("%v", held)
	}
}

// A configuration that makes no sense is refused by the name of what is wrong.
func TestConfigRefuses(t *testing.T) {
	for want, change := range map[string]func(*Config){
		"workload: \"": func(c *Config) { c.Workload = "dance" },
		"workload: c":  func(c *Config) { c.Workload = WorkCompare },
		"consistency":  func(c *Config) { c.Consistency = "maybe" },
		"endpoints":    func(c *Config) { c.Endpoints = nil },
		"connections":  func(c *Config) { c.Connections = -1 },
		"size":         func(c *Config) { c.Size = bodyHeadSize - 1 },
		"batch":        func(c *Config) { c.Batch = batchMax + 1 },
		"producers":    func(c *Config) { c.Workload, c.Producers = WorkCycle, 1 },
		"rate":         func(c *Config) { c.Rate = -1 },
		"duration":     func(c *Config) { c.Duration = Duration(25 * time.Hour) },
		"warmup":       func(c *Config) { c.Warmup = -1 },
		"timeout":      func(c *Config) { c.Timeout = 1 },
		"check":        func(c *Config) { c.Workload, c.Check = WorkEcho, true },
		"queues":       func(c *Config) { c.Workload, c.Queues = WorkDequeue, 65 },
		"requests":     func(c *Config) { c.Requests = -1 },
	} {
		c := Config{Endpoints: []string{"a:1"}}
		change(&c)
		if err := c.Complete(); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}

// On a terminal the bar is drawn over itself; elsewhere there are plain lines,
// one in five seconds.
func TestTeller(t *testing.T) {
	var b bytes.Buffer
	now := time.Unix(0, 0)
	plain := NewTeller(&b)
	plain.now = func() time.Time { return now }
	plain.Begin("a run")
	for range 60 { // 12 s
		now = now.Add(200 * time.Millisecond)
		plain.Tell(Progress{Phase: "x", Part: 0.5, Jobs: 10, Rate: 1000, Errors: 2})
	}
	plain.End()
	if want := "a run\n" + strings.Repeat("   50 %  x  10 ops  1,000/s  2 errors\n", 2); b.String() != want {
		t.Errorf("%q, want %q", b.String(), want)
	}
	b.Reset()
	bar := &Teller{w: &b, terminal: true, now: time.Now}
	bar.Begin("r")
	bar.Tell(Progress{Phase: "x", Part: 0.5})
	bar.End()
	if out := b.String(); !contains(out, strings.Repeat("█", barWidth/2)+"░") || contains(out, "\n") || !strings.HasSuffix(out, " \r") {
		t.Errorf("%q", out)
	}
}
