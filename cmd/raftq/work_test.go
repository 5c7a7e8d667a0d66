package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"raftq/cluster"
)

// work runs raftq work in this process until it ends by itself.
func work(t *testing.T, c *cluster.Cluster, args ...string) (stdout, stderr string) {
	t.Helper()
	code, out, errs := raftqRun(t, "", append([]string{"work", "--endpoints", c.Endpoints()}, args...)...)
	if code != exitOK {
		t.Fatalf("work %q: exit code %d\n%s%s", args, code, out, errs)
	}
	return out, errs
}

// jobOf reads a job.
func jobOf(t *testing.T, c *cluster.Cluster, id string) (j jobView) {
	t.Helper()
	out := mustRun(t, c, "job", "show", strings.TrimSpace(id), "-o", "json")
	if err := json.Unmarshal([]byte(out), &j); err != nil {
		t.Fatalf("%v in %s", err, out)
	}
	return j
}

// queueOf reads a queue.
func queueOf(t *testing.T, c *cluster.Cluster, name string) (q queueView) {
	t.Helper()
	out := mustRun(t, c, "stats", name, "-o", "json")
	if err := json.Unmarshal([]byte(out), &q); err != nil {
		t.Fatalf("%v in %s", err, out)
	}
	return q
}

// The command finds the body on its standard input, byte by byte, and the facts in
// its environment; what an outer work left there is gone.
func TestWorkEnvironment(t *testing.T) {
	c := commonNode(t)
	t.Setenv("RAFTQ_HEADER_OLD", "of an outer job")
	body := "\x00\xff\nbytes"
	id := strings.TrimSpace(mustRunIn(t, c, body, "enqueue", "a queue", "--priority", "7", "--header", "tenant-1=t=1", "--header", "x=y"))
	script := `cat >"$0/body"; env | grep ^RAFTQ_ | sort >"$0/env"`
	dir := t.TempDir()
	work(t, c, "a queue", "--until-empty", "--", "sh", "-c", script, dir)

	got, err := os.ReadFile(filepath.Join(dir, "body"))
	if err != nil || string(got) != body {
		t.Errorf("body = %q, %v; want %q", got, err, body)
	}
	env, err := os.ReadFile(filepath.Join(dir, "env"))
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(env)), "\n")
	for _, want := range []string{
		"RAFTQ_JOB_ID=" + id, "RAFTQ_QUEUE=a queue", "RAFTQ_PRIORITY=7", "RAFTQ_DELIVERIES=1", "RAFTQ_FAILURES=0", "RAFTQ_GROUP=", "RAFTQ_WORKER=1",
		"RAFTQ_HEADER_TENANT_1=t=1", "RAFTQ_HEADER_X=y", "RAFTQ_ENDPOINTS=" + c.Endpoints(),
	} {
		if !slices.Contains(lines, want) {
			t.Errorf("no %s in\n%s", want, env)
		}
	}
	for name, prefix := range map[string]string{"receipt": "RAFTQ_RECEIPT=" + id + ".1.", "time": "RAFTQ_ENQUEUED_AT=20", "fence": "RAFTQ_FENCE="} {
		if !slices.ContainsFunc(lines, func(l string) bool { return strings.HasPrefix(l, prefix) }) {
			t.Errorf("no %s (%s…) in\n%s", name, prefix, env)
		}
	}
	if strings.Contains(string(env), "RAFTQ_HEADER_OLD") {
		t.Errorf("an outer job's header is there:\n%s", env)
	}
}

// mustRunIn is mustRun with a standard input.
func mustRunIn(t *testing.T, c *cluster.Cluster, stdin string, args ...string) string {
	t.Helper()
	code, out, errs := raftqRun(t, stdin, append(args, "--endpoints", c.Endpoints())...)
	if code != exitOK {
		t.Fatalf("raftq %s: exit code %d\n%s%s", strings.Join(args, " "), code, out, errs)
	}
	return out
}

// The exit code decides what becomes of a job, and what the command said last
// becomes its error.
func TestWorkVerdicts(t *testing.T) {
	c := commonNode(t)
	const script = `read -r code; echo "out $code"; echo "words of $code" >&2; exit $code`
	for _, r := range []struct {
		code string // the body, too
		args []string
		say  string // in the summary
		left queueView
		last string // error of the job
	}{
		{code: "0", say: "1 done"},
		{code: "3", args: []string{"--max", "1", "--retry-delay", "1h"}, say: "0 done, 1 failed", left: leftOf("delayed"), last: "words of 3 (exit status 3)"},
		{code: "65", args: []string{"--max", "1", "--reject-exit", "65,66"}, say: "0 done, 1 rejected", left: leftOf("dead"), last: "words of 65 (exit status 65)"},
		{code: "75", args: []string{"--max", "1", "--release-exit", "75"}, say: "0 done, 1 given back", left: leftOf("ready")},
	} {
		t.Run("exit "+r.code, func(t *testing.T) {
			queue := "exit" + r.code
			id := mustRun(t, c, "enqueue", queue, r.code)
			args := append([]string{queue}, r.args...)
			if r.args == nil {
				args = append(args, "--until-empty")
			}
			out, errs := work(t, c, append(args, "--", "sh", "-c", script)...)
			if out != "out "+r.code+"\n" || !strings.Contains(errs, "words of "+r.code) || !strings.Contains(errs, "raftq: "+r.say+" in ") {
				t.Errorf("printed %q and\n%s", out, errs)
			}
			q := queueOf(t, c, queue)
			if q.Ready != r.left.Ready || q.Delayed != r.left.Delayed || q.Dead != r.left.Dead || q.Leased != 0 {
				t.Errorf("queue = %+v", q.QueueInfo)
			}
			if r.last != "" {
				if j := jobOf(t, c, id); j.LastError != r.last || j.Deliveries != 1 {
					t.Errorf("last error %q, want %q; %d deliveries", j.LastError, r.last, j.Deliveries)
				}
			}
		})
	}
}

func leftOf(state string) (q queueView) {
	switch state {
	case "delayed":
		q.Delayed = 1
	case "dead":
		q.Dead = 1
	case "ready":
		q.Ready = 1
	}
	return q
}

// A job that fails comes again until it may not fail any more.
func TestWorkRetries(t *testing.T) {
	c, q := commonNode(t), t.Name()
	id := mustRun(t, c, "enqueue", q, "x", "--max-failures", "3")
	out, errs := work(t, c, q, "--until-empty", "--", "sh", "-c", `echo "try $RAFTQ_DELIVERIES, $RAFTQ_FAILURES failures"; exit 1`)
	if want := "try 1, 0 failures\ntry 2, 1 failures\ntry 3, 2 failures\n"; out != want {
		t.Errorf("printed %q, want %q\n%s", out, want, errs)
	}
	if j := jobOf(t, c, id); j.State != "dead" || j.DeadReason != "max_failures" || j.LastError != "exit status 1" {
		t.Errorf("job = %+v", j.Job)
	}
}

// A command that takes longer than its lease keeps its job: it runs once.
func TestWorkExtends(t *testing.T) {
	c, q := commonNode(t), t.Name()
	mustRun(t, c, "enqueue", q, "x")
	begun := time.Now()
	out, errs := work(t, c, q, "--lease", "500ms", "--until-empty", "--", "sh", "-c", `echo begin; sleep 2; echo end`)
	if out != "begin\nend\n" || !strings.Contains(errs, "1 done") || time.Since(begun) < 2*time.Second {
		t.Errorf("printed %q\n%s", out, errs)
	}
	if info := queueOf(t, c, q); info.DeliveredTotal != 1 || info.AckedTotal != 1 || info.FailedTotal != 0 {
		t.Errorf("queue = %+v", info.QueueInfo)
	}
}

// A command that takes too long is ended; that is a failure of the job.
func TestWorkJobTimeout(t *testing.T) {
	c, q := commonNode(t), t.Name()
	id := mustRun(t, c, "enqueue", q, "x", "--max-failures", "1")
	begun := time.Now()
	_, errs := work(t, c, q, "--job-timeout", "300ms", "--until-empty", "--", "sh", "-c", `echo hm >&2; exec sleep 300`)
	if took := time.Since(begun); took > 20*time.Second || !strings.Contains(errs, "0 done, 1 failed") {
		t.Errorf("took %v\n%s", took, errs)
	}
	if j := jobOf(t, c, id); j.State != "dead" || j.LastError != "took longer than --job-timeout: hm (signal: terminated)" {
		t.Errorf("state %s, last error %q", j.State, j.LastError)
	}
}

// --max is exact: what was taken beyond it is given back, uncounted.
func TestWorkMax(t *testing.T) {
	c, q := commonNode(t), t.Name()
	mustRunIn(t, c, strings.Repeat("x\n", 20), "enqueue", q, "--lines")
	out, errs := work(t, c, q, "--max", "7", "--workers", "4", "--prefix=false", "--", "sh", "-c", `echo ran; sleep 0.05`)
	info := queueOf(t, c, q)
	if strings.Count(out, "ran\n") != 7 || info.AckedTotal != 7 || info.Ready != 13 || info.Leased != 0 || info.FailedTotal != 0 {
		t.Errorf("queue = %+v, printed %q\n%s", info.QueueInfo, out, errs)
	}
}

// With several workers each line says whose it is; with -o json a line stands for
// each job, and the commands' output is elsewhere.
func TestWorkOutput(t *testing.T) {
	c, q := commonNode(t), t.Name()
	ids := strings.Fields(mustRunIn(t, c, "0\n1\n", "enqueue", q, "--lines"))
	out, _ := work(t, c, q, "--workers", "2", "--max", "2", "--", "sh", "-c", `read -r n; echo "a $n"; echo "b $n"; exit $n`)
	lines := strings.Split(strings.TrimSpace(out), "\n")
	slices.SortFunc(lines, func(a, b string) int { return strings.Compare(a[len(a)-3:], b[len(b)-3:]) })
	if len(lines) != 4 {
		t.Fatalf("printed %q", out)
	}
	for i, want := range []string{shortID(ids[0]) + " | a 0", shortID(ids[1]) + " | a 1", shortID(ids[0]) + " | b 0", shortID(ids[1]) + " | b 1"} {
		if !strings.HasSuffix(lines[i], " "+want) || lines[i][0] != '1' && lines[i][0] != '2' {
			t.Errorf("line %q, want … %q", lines[i], want)
		}
	}

	// The failed one is there again.
	out, errs := work(t, c, q, "-o", "json", "--max", "1", "--", "sh", "-c", `echo mine; echo why >&2; exit 9`)
	var r jobReport
	if err := json.Unmarshal([]byte(out), &r); err != nil || strings.Count(out, "\n") != 1 {
		t.Fatalf("%v in %q", err, out)
	}
	if r.ID != ids[1] || r.Queue != q || r.Outcome != verdictFailed || r.ExitCode == nil || *r.ExitCode != 9 || r.Error != "why (exit status 9)" || r.Deliveries != 2 {
		t.Errorf("report = %+v", r)
	}
	if !strings.Contains(errs, "mine\n") || !strings.Contains(errs, "why\n") {
		t.Errorf("the command's output is not on standard error: %q", errs)
	}
}

// What cannot work is refused before a job is taken.
func TestWorkRefuses(t *testing.T) {
	node, calls := fakeNode(t, answerJSON(500, "{}"))
	for want, args := range map[string][]string{
		"want QUEUE... -- COMMAND":    {"q", "cat"},
		"want QUEUE... -- COMMAND [":  {"--", "cat"},
		"COMMAND [ARG...]":            {"q", "--"},
		"the command cannot be run: ": {"q", "--", "/does/not/exist"},
		"executable file not found":   {"q", "--", "no-such-command-anywhere"},
		"lease: \"5\" has no unit":    {"q", "--lease", "5", "--", "cat"},
		"at least one worker":         {"q", "--workers", "0", "--", "cat"},
	} {
		code, _, errs := raftqRun(t, "", append([]string{"work", "--endpoints", node}, args...)...)
		if code != exitUsage || !strings.Contains(errs, want) {
			t.Errorf("%q: exit code %d, %s", args, code, errs)
		}
	}
	if n := calls.Load(); n != 0 {
		t.Errorf("%d requests were sent", n)
	}
	// What will not pass ends it; so does a name that no queue may have.
	refusing, _ := fakeNode(t, problemAnswer(422, "invalid_option", false, "no"))
	if code, _, errs := raftqRun(t, "", "work", "$q", "--endpoints", refusing, "--", "cat"); code != exitRefused || !strings.Contains(errs, "the detail") {
		t.Errorf("exit code %d, %s", code, errs)
	}
}

// While no node answers work goes on trying, but with --until-empty it has an end. An
// outage is told once for each node.
func TestWorkWithoutCluster(t *testing.T) {
	noLeader, _ := fakeNode(t, problemAnswer(503, "no_leader", true, "no"))
	down := deadNode(t)
	code, _, errs := raftqRun(t, "", "work", "q", "--until-empty", "--retry-for", "1s", "--endpoints", down+","+noLeader, "--", "cat")
	if code != exitUnavailable || !strings.Contains(errs, "no node could give jobs for 1s") || !strings.Contains(errs, "the detail (no_leader") {
		t.Errorf("exit code %d\n%s", code, errs)
	}
	if strings.Count(errs, down) != 1 {
		t.Errorf("names %s more than once\n%s", down, errs)
	}
	if n := strings.Count(errs, "node cannot serve"); n != 2 {
		t.Errorf("told %d times of 2 nodes\n%s", n, errs)
	}
}

// A queue of a step is worked through while its leader is killed: every job is done
// once, and the command learns nothing of it.
func TestWorkThroughLeaderKill(t *testing.T) {
	if testing.Short() {
		t.Skip("takes some seconds")
	}
	const jobs = 200
	c := startNodes(t, 3)
	ctx := within(t, time.Minute)
	lead, err := c.Leader(ctx)
	if err != nil {
		t.Fatal(err)
	}
	var lines strings.Builder
	for i := range jobs {
		fmt.Fprintf(&lines, "job %d\n", i)
	}
	mustRunIn(t, c, lines.String(), "enqueue", "q", "--lines")
	file := filepath.Join(t.TempDir(), "done")
	done := make(chan string, 1)
	go func() {
		code, out, errs := raftqRun(t, "", "work", "q", "--endpoints", c.Endpoints(), "--workers", "4", "--max", fmt.Sprint(jobs), "--", "sh", "-c", `sleep 0.02; echo "$(cat)" >>"$0"`, file)
		done <- fmt.Sprintf("exit code %d\n%s%s", code, out, errs)
	}()
	for lineCount(file) < jobs/4 {
		if err := until(ctx, time.Now().Add(5*time.Millisecond)); err != nil {
			t.Fatal(err)
		}
	}
	c.Nodes[lead].Kill9()
	var said string
	select {
	case said = <-done:
	case <-ctx.Done():
		t.Fatalf("work does not end; %d of %d jobs are done", lineCount(file), jobs)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	got := strings.Split(strings.TrimSpace(string(text)), "\n")
	slices.Sort(got)
	if n := len(slices.Compact(slices.Clone(got))); len(got) != jobs || n != jobs {
		t.Errorf("%d jobs were run %d times, want each of %d once\n%s", n, len(got), jobs, said)
	}
	if !strings.Contains(said, "exit code 0\n") || !strings.Contains(said, fmt.Sprintf("%d done in ", jobs)) {
		t.Error(said)
	}
	if q := queueOf(t, c, "q"); q.AckedTotal != jobs || q.Ready+q.Leased+q.Delayed+q.Dead != 0 {
		t.Errorf("queue = %+v", q.QueueInfo)
	}
}

func lineCount(path string) int {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0
	}
	return strings.Count(string(text), "\n")
}
