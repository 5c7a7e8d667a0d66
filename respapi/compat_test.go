package respapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/redis/go-redis/v9"

	"raftq/cluster"
)

// compatRow is a line of the table that TestCompat prints.
type compatRow struct {
	client                         string
	calls, passed, failed, skipped int
	note                           string
}

// TestCompat lets clients of other people talk to three nodes: make compat. They
// are installed by name and version into a directory that goes with the test.
func TestCompat(t *testing.T) {
	if os.Getenv("RAFTQ_COMPAT") == "" {
		t.Skip("RAFTQ_COMPAT is not set (make compat)")
	}
	c := startCluster(t, "--resp-debug")
	secret := startCluster(t, "--resp-password", testPassword)
	var rows []compatRow
	add := func(r compatRow) {
		rows = append(rows, r)
		if r.failed > 0 {
			t.Errorf("%s: %d of %d failed", r.client, r.failed, r.calls)
		}
	}
	add(compatRedisCLI(t, c, secret))
	add(compatBenchmark(t, c, 1))
	add(compatBenchmark(t, c, 16))
	add(compatGoRedis(t, c, secret))
	if npm := npmInstall(t); npm != "" {
		for _, n := range c.Nodes {
			add(compatDisqueueNode(t, npm, n))
		}
		add(compatThunkDisque(t, npm, c))
	} else {
		rows = append(rows, compatRow{client: "disqueue-node, thunk-disque", note: "no npm here, or it installed nothing"})
	}
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "\nclient\tcalls\tpassed\tfailed\tskipped\tnote")
	for _, r := range rows {
		fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%d\t%s\n", r.client, r.calls, r.passed, r.failed, r.skipped, r.note)
	}
	w.Flush()
}

func port(addr string) string { return addr[strings.LastIndexByte(addr, ':')+1:] }

func runTool(t *testing.T, dir string, env []string, name string, args ...string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), env...)
	out, err := cmd.Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return string(out), fmt.Errorf("%w: %s%s", err, out, exit.Stderr)
	}
	return string(out), err
}

func compatRedisCLI(t *testing.T, c, secret *cluster.Cluster) compatRow {
	row := compatRow{client: "redis-cli"}
	if out, err := runTool(t, "", nil, "redis-cli", "--version"); err != nil {
		row.note = "not installed (Debian: redis-tools)"
		return row
	} else {
		row.client = strings.TrimSpace(out)
	}
	id := ""
	call := func(on string, want string, args ...string) {
		t.Helper()
		row.calls++
		out, err := runTool(t, "", nil, "redis-cli", append([]string{"-p", port(on)}, args...)...)
		out = strings.TrimSpace(out)
		m := regexp.MustCompile("(?s)^" + want + "$").FindStringSubmatch(out)
		if err != nil || m == nil {
			row.failed++
			t.Errorf("redis-cli %q: %q, %v, want %s", args, out, err, want)
			return
		}
		if len(m) > 1 {
			id = m[1]
		}
		row.passed++
	}
	one, two, three := c.Nodes[0].Resp, c.Nodes[1].Resp, c.Nodes[2].Resp
	call(one, "PONG", "PING")
	call(one, "(D-.{38})", "ADDJOB", "cli", "hello", "0", "TTL", "1000", "RETRY", "30")
	call(two, "1", "QLEN", "cli")
	call(two, "cli\n"+id+"\nhello", "QPEEK", "cli", "1")
	call(three, "cli\n"+id+"\nhello\nnacks\n0\nadditional-deliveries\n0", "GETJOB", "WITHCOUNTERS", "FROM", "cli")
	call(one, "30", "WORKING", id)
	call(one, "1", "NACK", id)
	call(two, "id\n"+id+"\nqueue\ncli\nstate\nqueued\nrepl\n3\nttl\n.*", "SHOW", id)
	call(two, "1", "DEQUEUE", id)
	call(three, "1", "ENQUEUE", id)
	call(three, "1", "ACKJOB", id)
	call(one, "", "SHOW", id)
	call(one, "(D-.{38})", "ADDJOB", "cli", "bye", "0", "ASYNC")
	call(one, "1", "FASTACK", id)
	call(one, "BADID .*", "ACKJOB", "x")
	call(one, "in", "PAUSE", "cli", "in")
	call(two, "PAUSED .*", "ADDJOB", "cli", "x", "0")
	call(two, "none", "PAUSE", "cli", "none")
	call(two, "name\ncli\nlen\n0\n.*", "QSTAT", "cli")
	call(one, "0\n.*", "QSCAN", "BUSYLOOP")
	call(one, "0.*", "JSCAN", "BUSYLOOP")
	call(one, ".* connected\n.*", "CLUSTER", "NODES")
	call(one, "1\n.*", "HELLO")
	call(one, "# Server.*", "INFO")
	call(one, "appendonly\nyes", "CONFIG", "GET", "appendonly")
	call(one, ".{10}\n.*", "TIME")
	call(one, "OK", "DEBUG", "FLUSHALL")
	call(secret.Nodes[0].Resp, "NOAUTH .*", "PING")
	call(secret.Nodes[0].Resp, "NOAUTH .*", "--no-auth-warning", "-a", "wrong", "PING")
	call(secret.Nodes[0].Resp, "PONG", "--no-auth-warning", "-a", testPassword, "PING")
	call(secret.Nodes[2].Resp, "", "--no-auth-warning", "-a", testPassword, "SHUTDOWN")
	select {
	case <-secret.Nodes[2].Ended():
	case <-time.After(30 * time.Second):
		row.failed++
		t.Error("redis-cli SHUTDOWN: the node goes on")
	}
	// Typed by people: lines of words.
	row.calls++
	out, err := runTool(t, "", nil, "bash", "-c", fmt.Sprintf("exec 3<>/dev/tcp/127.0.0.1/%s; printf 'addjob cli \"two words\" 0\\r\\nqlen cli\\r\\nquit\\r\\n' >&3; cat <&3", port(two)))
	if err != nil || !regexp.MustCompile(`^\+D-.{38}\r\n:1\r\n\+OK\r\n$`).MatchString(out) {
		row.failed++
		t.Errorf("inline: %q, %v", out, err)
	} else {
		row.passed++
	}
	return row
}

// compatBenchmark notes what redis-benchmark says of ADDJOB.
func compatBenchmark(t *testing.T, c *cluster.Cluster, pipeline int) compatRow {
	row := compatRow{client: fmt.Sprintf("redis-benchmark -P %d", pipeline)}
	if _, err := exec.LookPath("redis-benchmark"); err != nil {
		row.note = "not installed (Debian: redis-tools)"
		return row
	}
	n := 2000 * pipeline
	queue := fmt.Sprint("bench-", pipeline)
	out, err := runTool(t, "", nil, "redis-benchmark", "-p", port(c.Nodes[0].Resp), "-n", fmt.Sprint(n), "-c", "50", "-P", fmt.Sprint(pipeline), "-q", "ADDJOB", queue, strings.Repeat("x", 100), "0")
	row.calls = n
	length, _ := dialResp(t, c.Nodes[1].Resp).do("QLEN", queue).(int64)
	row.passed = int(length)
	row.failed = n - row.passed
	figure := regexp.MustCompile(`[0-9.]+ requests per second`).FindString(out)
	row.note = "ADDJOB of 100 bytes, 50 connections to one node: " + figure
	if err != nil || figure == "" {
		row.failed = max(1, row.failed)
		t.Errorf("redis-benchmark: %v\n%s", err, out)
	}
	return row
}

func compatGoRedis(t *testing.T, c, secret *cluster.Cluster) compatRow {
	row := compatRow{client: "go-redis v9"}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	check := func(what string, got any, err error, want any) {
		t.Helper()
		row.calls++
		if err != nil || fmt.Sprintf("%T %v", got, got) != fmt.Sprintf("%T %v", want, want) {
			row.failed++
			t.Errorf("go-redis %s: %T %v, %v, want %T %v", what, got, got, err, want, want)
			return
		}
		row.passed++
	}
	refused := func(what string, err error, word string) {
		t.Helper()
		row.calls++
		var e redis.Error
		if !errors.As(err, &e) || !strings.HasPrefix(e.Error(), word+" ") {
			row.failed++
			t.Errorf("go-redis %s: %v, want %s", what, err, word)
			return
		}
		row.passed++
	}
	// The default asks for RESP3 first, and goes on without.
	a := redis.NewClient(&redis.Options{Addr: c.Nodes[0].Resp, ReadTimeout: 30 * time.Second, ClientName: "go-redis"})
	defer a.Close()
	b := redis.NewClient(&redis.Options{Addr: c.Nodes[1].Resp, Protocol: 2, ReadTimeout: 30 * time.Second})
	defer b.Close()
	pong, err := a.Ping(ctx).Result()
	check("ping", pong, err, "PONG")
	id, err := a.Do(ctx, "ADDJOB", "go", "hello", 0, "RETRY", 20).Text()
	check("addjob", len(id), err, 40)
	jobs, err := b.Do(ctx, "GETJOB", "WITHCOUNTERS", "FROM", "go").Slice()
	check("getjob", jobs, err, []any{[]any{"go", id, "hello", "nacks", int64(0), "additional-deliveries", int64(0)}})
	n, err := a.Do(ctx, "WORKING", id).Int64()
	check("working", n, err, int64(20))
	n, err = a.Do(ctx, "NACK", id).Int64()
	check("nack", n, err, int64(1))
	n, err = b.Do(ctx, "QLEN", "go").Int64()
	check("qlen", n, err, int64(1))
	show, err := b.Do(ctx, "SHOW", id).Slice()
	check("show", len(show), err, 30)
	n, err = b.Do(ctx, "ACKJOB", id, id).Int64()
	check("ackjob", n, err, int64(1))
	err = b.Do(ctx, "SHOW", id).Err()
	check("show of nothing", errors.Is(err, redis.Nil), nil, true)
	err = b.Do(ctx, "GETJOB", "NOHANG", "FROM", "go").Err()
	check("getjob of nothing", errors.Is(err, redis.Nil), nil, true)
	refused("bad id", a.Do(ctx, "ACKJOB", "x").Err(), "BADID")
	refused("syntax", a.Do(ctx, "ADDJOB", "go", "x", 0, "RETRY", 0).Err(), "ERR")
	refused("no job", a.Do(ctx, "WORKING", id).Err(), "NOJOB")
	// A pipeline, its answers in order, and a client that waits for them.
	waited := make(chan error, 1)
	got := map[string]bool{}
	go func() {
		for len(got) < 200 {
			jobs, err := b.Do(ctx, "GETJOB", "COUNT", 50, "TIMEOUT", 10000, "FROM", "go-many").Slice()
			if err != nil {
				waited <- err
				return
			}
			for _, j := range jobs {
				got[j.([]any)[2].(string)] = true
			}
		}
		waited <- nil
	}()
	pipe := a.Pipeline()
	for i := range 200 {
		pipe.Do(ctx, "ADDJOB", "go-many", i, 0)
	}
	cmds, err := pipe.Exec(ctx)
	check("pipeline", len(cmds), err, 200)
	check("waiting", 0, <-waited, 0)
	// A password.
	p := redis.NewClient(&redis.Options{Addr: secret.Nodes[1].Resp, Password: testPassword})
	defer p.Close()
	pong, err = p.Ping(ctx).Result()
	check("auth", pong, err, "PONG")
	w := redis.NewClient(&redis.Options{Addr: secret.Nodes[1].Resp, Password: "wrong", MaxRetries: -1})
	defer w.Close()
	refused("wrong password", w.Ping(ctx).Err(), "ERR")
	return row
}

// npmInstall installs the node clients, and returns where; "" = there is no npm.
func npmInstall(t *testing.T) string {
	if _, err := exec.LookPath("npm"); err != nil {
		return ""
	}
	dir := t.TempDir()
	if out, err := runTool(t, dir, nil, "npm", "install", "--no-audit", "--no-fund", "--prefix", dir, "disqueue-node@2.0.2", "thunk-disque@0.5.13", "mocha@5.2.0", "should@7.1.1"); err != nil {
		t.Logf("npm install: %v\n%s", err, out)
		return ""
	}
	return dir
}

// compatDisqueueNode runs the client's own tests against a node.
func compatDisqueueNode(t *testing.T, npm string, n *cluster.Node) compatRow {
	row := compatRow{client: "disqueue-node 2.0.2, its own tests, " + n.Name}
	patch, err := filepath.Abs("testdata/compat/default-port.js")
	if err != nil {
		t.Fatal(err)
	}
	out, err := runTool(t, npm, []string{"RESP_PORT=" + port(n.Resp)}, "node", "node_modules/mocha/bin/_mocha",
		"--require", patch, "--reporter", "json", "--exit", "--recursive", "node_modules/disqueue-node/test")
	var report struct {
		Stats    struct{ Tests, Passes, Failures, Pending int }
		Failures []struct {
			FullTitle string
			Err       struct{ Message string }
		}
	}
	if i := strings.IndexByte(out, '{'); i < 0 || json.Unmarshal([]byte(out[i:]), &report) != nil {
		row.failed = 1
		t.Errorf("mocha: %v\n%s", err, out)
		return row
	}
	for _, f := range report.Failures {
		t.Logf("disqueue-node on %s: %s: %s", n.Name, f.FullTitle, f.Err.Message)
	}
	row.calls, row.passed, row.failed, row.skipped = report.Stats.Tests, report.Stats.Passes, report.Stats.Failures, report.Stats.Pending
	row.note = "calls are tests of its own"
	return row
}

func compatThunkDisque(t *testing.T, npm string, c *cluster.Cluster) compatRow {
	row := compatRow{client: "thunk-disque 0.5.13"}
	script, err := os.ReadFile("testdata/compat/thunk-disque.js")
	if err == nil {
		err = os.WriteFile(filepath.Join(npm, "compat.js"), script, 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
	args := []string{"compat.js"}
	for _, n := range c.Nodes {
		args = append(args, n.Resp)
	}
	out, err := runTool(t, npm, nil, "node", args...)
	var report struct {
		Calls, Passed   int
		Failed, Skipped []string
	}
	if json.Unmarshal([]byte(out), &report) != nil {
		row.failed = 1
		t.Errorf("thunk-disque: %v\n%s", err, out)
		return row
	}
	for _, f := range report.Failed {
		t.Errorf("thunk-disque: %s", f)
	}
	row.calls, row.passed, row.failed, row.skipped = report.Calls, report.Passed, len(report.Failed), len(report.Skipped)
	row.note = strings.Join(report.Skipped, "; ")
	return row
}
