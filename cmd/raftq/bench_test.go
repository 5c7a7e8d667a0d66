package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"raftq/bench"
)

// A real node is measured in both consistencies: no request fails, each job is
// delivered and acked once, the node's counters are read, the reports are
// written, and no queue stays behind.
func TestBench(t *testing.T) {
	c := startNodes(t, 1)
	dir := t.TempDir()
	jsonFile, htmlFile := filepath.Join(dir, "b.json"), filepath.Join(dir, "b.html")
	out := mustRun(t, c, "bench", "--workload", "mixed", "--consistency", "strong,fast", "--connections", "3", "--duration", "300ms",
		"--warmup", "50ms", "--check", "--json", jsonFile, "--html", htmlFile)
	if n := strings.Count(out, "check passed"); n != 2 {
		t.Errorf("%d checks passed, want 2\n%s", n, out)
	}
	rep, err := bench.ReadReport(jsonFile)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range rep.Groups[0].Runs {
		if len(r.Nodes) != 1 || r.Nodes[0].Fsyncs == 0 || r.Nodes[0].WALBytes == 0 || r.Nodes[0].RSSBytes == 0 {
			t.Errorf("%s: %+v", r.Config.Name, r.Nodes)
		}
	}
	if page, err := os.ReadFile(htmlFile); err != nil || !bytes.Contains(page, []byte("mixed fast, 3 connections")) {
		t.Errorf("report: %v", err)
	}
	if out := mustRun(t, c, "bench", "--workload", "batch", "--batch", "10", "--duration", "100ms", "--warmup", "0s", "--check"); !strings.Contains(out, "check passed") {
		t.Error(out)
	}
	out = mustRun(t, c, "bench", "--workload", "compare", "--duration", "100ms", "--warmup", "0s", "--jobs", "300")
	for _, want := range []string{"p50 of enqueue / echo", "p50 of dequeue / echo", "p50 of ack / echo", "p50 of enqueue / strong", "p50 of dequeue / strong", "p50 of ack / strong"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	var left struct{ Queues []struct{ Queue string } }
	if err := json.Unmarshal([]byte(mustRun(t, c, "stats", "-o", "json")), &left); err != nil || len(left.Queues) != 0 {
		t.Errorf("%v, left behind: %+v", err, left.Queues)
	}
	code, out, errs := raftqRun(t, "", "bench", "render", jsonFile, jsonFile)
	if code != exitOK || strings.Count(out, "b: mixed strong") < 2 {
		t.Errorf("render: exit code %d\n%s%s", code, out, errs)
	}
}

// The report starts its own nodes and echo server, compares what belongs
// together, fills the tables of a document, and leaves nothing behind.
func TestBenchReport(t *testing.T) {
	t.Setenv("BE_RAFTQ", "1") // for the children
	dir := t.TempDir()
	docs := filepath.Join(dir, "doc.md")
	if err := os.WriteFile(docs, []byte("head\n<!-- bench-report:begin --><!-- bench-report:end -->\ntail\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	data := filepath.Join(dir, "data")
	if err := os.Mkdir(data, 0o755); err != nil {
		t.Fatal(err)
	}
	p := reportPlan{docs: docs, dir: data, measured: 150 * time.Millisecond, limit: time.Minute}
	p.set = func(endpoints []string, echo string, measured time.Duration) []bench.SuiteGroup {
		g := bench.StandardSet(endpoints, echo, measured)[0]
		g.Configs = g.Configs[:3] // strong and fast at one connection, echo
		return []bench.SuiteGroup{g}
	}
	var out, progress bytes.Buffer
	if err := p.carryOut(within(t, 2*time.Minute), &out, &progress); err != nil {
		t.Fatalf("%v\n%s%s", err, out.String(), progress.String())
	}
	text, err := os.ReadFile(docs)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"head\n", "| echo, 1 connection | enqueue |", "| enqueue fast, 1 connection to the leader: p50 of enqueue / echo |", "\ntail\n"} {
		if !strings.Contains(string(text), want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	if left, err := os.ReadDir(data); err != nil || len(left) != 0 {
		t.Errorf("%v, left behind: %v", err, left)
	}
}

// A command line that makes no sense ends with its own exit code and the name
// of what is wrong.
func TestBenchUsage(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"--workload", "dance"}, "workload"},
		{[]string{"--consistency", "maybe"}, "consistency"},
		{[]string{"--workload", "compare", "--consistency", "fast"}, "consistency"},
		{[]string{"--connections", "-1"}, "connections"},
		{[]string{"--connections", "0"}, "connections: 0 is not above 0"},
		{[]string{"--connections", "4,0"}, "connections: 0 is not above 0"},
		{[]string{"--batch", "0"}, "batch: 0 is not above 0"},
		{[]string{"--duration", "0s"}, "duration: 0s is not above 0"},
		{[]string{"--size", "100"}, "no unit"},
		{[]string{"--size", "10B"}, "size"},
		{[]string{"--pipeline", "-1"}, "pipeline"},
		{[]string{"--duration", "1m", "--warmup", "-1s"}, "warmup"},
		{[]string{"report", "--duration", "1h"}, "duration"},
		{[]string{"--unheard-of"}, "unheard-of"},
		{[]string{"--json", "/does/not/exist.json"}, "/does/not/exist.json cannot be written: "},
		{[]string{"report", "--html", "/does/not/exist.html"}, "/does/not/exist.html cannot be written: "},
	} {
		code, out, errs := raftqRun(t, "", append([]string{"bench"}, c.args...)...)
		if code != exitUsage || !strings.Contains(errs, c.want) {
			t.Errorf("%v: exit code %d\n%s%s", c.args, code, out, errs)
		}
	}
}

// Without a cluster bench says so, and shows no empty tables.
func TestBenchWithoutCluster(t *testing.T) {
	code, out, errs := raftqRun(t, "", "bench", "--endpoints", deadNode(t), "--duration", "100ms")
	if code != exitUnavailable || out != "" || !strings.Contains(errs, "connection refused") {
		t.Errorf("exit code %d\n%s%s", code, out, errs)
	}
}
