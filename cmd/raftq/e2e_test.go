package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"raftq/cluster"
)

// beRaftq makes the test binary behave as raftq, so that these tests run real
// processes under whatever the tests run under (the race detector).
const beRaftq = "BE_RAFTQ=1"

func TestMain(m *testing.M) {
	name, value, _ := strings.Cut(beRaftq, "=")
	// A command may start its own binary again, which is this one in a test: if that
	// ran the tests, each would start the next without end.
	if os.Getenv(name) == value || len(os.Args) > 1 && !strings.HasPrefix(os.Args[1], "-test.") {
		main()
	}
	code := m.Run()
	endCommonNode()
	os.Exit(code)
}

// common is a node that tests have in common, each with queues of its own. It is
// started by the first of them.
var common struct {
	once    sync.Once
	cluster *cluster.Cluster
	dir     string
	err     error
}

func commonNode(t *testing.T) *cluster.Cluster {
	t.Helper()
	s := &common
	s.once.Do(func() {
		if s.dir, s.err = os.MkdirTemp("", "raftq-cmd-"); s.err != nil {
			return
		}
		if s.cluster, s.err = cluster.New(cluster.Options{Binary: self(t), Env: []string{beRaftq}, Dir: s.dir, Nodes: 1}); s.err != nil {
			return
		}
		ctx, cancel := context.WithTimeout(context.Background(), startMax)
		defer cancel()
		s.err = s.cluster.Start(ctx)
	})
	if s.err != nil {
		t.Fatal(s.err)
	}
	return s.cluster
}

func endCommonNode() {
	if common.cluster != nil {
		common.cluster.Close()
	}
	_ = os.RemoveAll(common.dir) // a directory of the system's for such
}

func self(t *testing.T) string {
	t.Helper()
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// cleanEnviron is our environment without settings of raftq.
func cleanEnviron() []string {
	return slices.DeleteFunc(os.Environ(), func(e string) bool { return strings.HasPrefix(e, envPrefix) })
}

// startNodes runs a cluster of real processes until the test ends.
func startNodes(t *testing.T, nodes int, args ...string) *cluster.Cluster {
	t.Helper()
	c, err := cluster.New(cluster.Options{Binary: self(t), Env: []string{beRaftq}, Dir: t.TempDir(), Nodes: nodes, Args: args})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	if err := c.Start(within(t, startMax)); err != nil {
		t.Fatal(err)
	}
	return c
}

func within(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// mustRun runs a client command that has to succeed and returns what it printed.
func mustRun(t *testing.T, c *cluster.Cluster, args ...string) string {
	t.Helper()
	code, out, errs := raftqRun(t, "", append(args, "--endpoints", c.Endpoints())...)
	if code != exitOK {
		t.Fatalf("raftq %s: exit code %d\n%s%s", strings.Join(args, " "), code, out, errs)
	}
	return out
}

// The leader is killed under load: nothing is lost or doubled, and clients of
// the other nodes see no error.
func TestDemo(t *testing.T) {
	if testing.Short() {
		t.Skip("takes 8 s")
	}
	var out bytes.Buffer
	err := demo(within(t, 2*time.Minute), demoPlan{binary: self(t), env: []string{beRaftq}, nodes: 3, jobs: 400, duration: 4 * time.Second}, &out)
	t.Log("\n" + out.String())
	if err != nil {
		t.Fatal(err)
	}
}

// A job outlives kill -9 and a polite restart of its only node; its receipt
// stays good.
func TestRestartKeepsJobs(t *testing.T) {
	c := startNodes(t, 1)
	n, ctx := c.Nodes[0], within(t, startMax)
	mustRun(t, c, "enqueue", "q", "one")
	mustRun(t, c, "enqueue", "q", "two")
	receipt, body, _ := strings.Cut(strings.TrimSpace(mustRun(t, c, "dequeue", "q")), "\t")
	if body != "one" {
		t.Fatalf("body = %q, want one", body)
	}
	n.Kill9()
	if err := errors.Join(n.Start(), n.WaitReady(ctx)); err != nil {
		t.Fatal(err)
	}
	if out := mustRun(t, c, "ack", receipt); !strings.HasSuffix(out, " acked\n") {
		t.Errorf("ack after kill -9: %q", out)
	}
	if err := n.Stop(ctx); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(n.Start(), n.WaitReady(ctx)); err != nil {
		t.Fatal(err)
	}
	if out := mustRun(t, c, "ack", receipt); !strings.HasSuffix(out, " was acked before\n") {
		t.Errorf("second ack: %q", out)
	}
	if out := mustRun(t, c, "dequeue", "q", "--ack"); out != "two\n" {
		t.Errorf("dequeue = %q, want two", out)
	}
	if code, out, _ := raftqRun(t, "", "dequeue", "q", "--endpoints", c.Endpoints()); code != exitNothing || out != "" {
		t.Errorf("dequeue of an empty queue: exit code %d, %q", code, out)
	}
}

// SIGTERM to a leader: the waiting consumer is told to go elsewhere, the
// process ends with status 0, and another node leads without an election
// timeout.
func TestGracefulStop(t *testing.T) {
	c := startNodes(t, 3, "--election-timeout", "5s")
	ctx := within(t, time.Minute)
	lead, err := c.Leader(ctx)
	if err != nil {
		t.Fatal(err)
	}
	n := c.Nodes[lead]
	mustRun(t, c, "enqueue", "q", "makes the queue")
	mustRun(t, c, "dequeue", "q", "--ack")
	parked := make(chan error, 1)
	go func() {
		resp, err := http.Post("http://"+n.Client+"/v1/queues/q/dequeue?wait=30s", "", nil)
		if err == nil {
			resp.Body.Close()
			if resp.StatusCode != http.StatusServiceUnavailable {
				err = fmt.Errorf("status %d, want 503", resp.StatusCode)
			}
		}
		parked <- err
	}()
	waitForWaiter(ctx, t, c, "q")

	begun := time.Now()
	if err := n.Stop(ctx); err != nil {
		t.Fatal(err)
	}
	stopped := time.Since(begun)
	if err := <-parked; err != nil {
		t.Errorf("parked dequeue: %v", err)
	}
	other := c.Nodes[(lead+1)%3]
	if code, _, errs := raftqRun(t, "", "enqueue", "q", "x", "--endpoints", other.Client); code != exitOK {
		t.Errorf("enqueue after the stop: exit code %d %s", code, errs)
	}
	if took := time.Since(begun); took > 4*time.Second {
		t.Errorf("stop took %v, and until the next enqueue was done %v: leadership was not handed over", stopped, took)
	}
}

// waitForWaiter waits until a consumer is parked at a queue.
func waitForWaiter(ctx context.Context, t *testing.T, c *cluster.Cluster, queue string) {
	t.Helper()
	for {
		code, out, _ := raftqRun(t, "", "stats", queue, "-o", "json", "--endpoints", c.Endpoints())
		if code == exitOK && strings.Contains(out, `"waiters":1`) {
			return
		}
		if err := until(ctx, time.Now().Add(10*time.Millisecond)); err != nil {
			t.Fatalf("no waiter at %s: %v, %d %s", queue, err, code, out)
		}
	}
}

// What stops a start: a key that does not exist, a taken port, a data directory
// in use. The exit code and the last words say so.
func TestServeRefuses(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	c := startNodes(t, 1)
	free := deadNode(t)
	for _, r := range []struct {
		name string
		args []string
		env  string
		code int
		want string
	}{
		{"unknown flag", []string{"--listen-clients", "x"}, "", exitUsage, "is --listen-client meant?"},
		{"unknown variable", nil, "RAFTQ_TICKS=1", exitUsage, "unknown key RAFTQ_TICKS"},
		{"bad value", []string{"--tick", "10"}, "", exitUsage, `tick: "10" has no unit`},
		{"taken client port", []string{"--listen-client", taken.Addr().String()}, "", exitFailed, "address already in use"},
		{"taken RESP port", []string{"--listen-client", free, "--listen-resp", taken.Addr().String()}, "", exitFailed, "listen-resp: listen tcp"},
		{"taken socket", []string{"--listen-client", free, "--listen-resp", "", "--resp-unixsocket", "/nowhere/s"}, "", exitFailed, "resp-unixsocket: "},
		{"taken peer port", []string{"--listen-client", free, "--listen-resp", "", "--listen-peer", taken.Addr().String()}, "", exitFailed, "address already in use"},
		{"directory in use", []string{"--listen-client", free, "--listen-resp", "", "--listen-peer", deadNode(t), "--data-dir", c.Nodes[0].DataDir}, "", exitFailed, "in use"},
	} {
		t.Run(r.name, func(t *testing.T) {
			cmd := exec.CommandContext(within(t, 20*time.Second), self(t), append([]string{"serve"}, r.args...)...)
			cmd.Dir = t.TempDir()
			cmd.Env = append(cleanEnviron(), beRaftq, r.env)
			out, err := cmd.CombinedOutput()
			var exit *exec.ExitError
			if !errors.As(err, &exit) || exit.ExitCode() != r.code || !strings.Contains(string(out), r.want) {
				t.Errorf("ended with %v, want exit code %d and %q in\n%s", err, r.code, r.want, out)
			}
		})
	}
}

// local prints how to use it, starts again on its directory, and stops
// everything on Ctrl-C.
func TestLocal(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "lo'c al")
	cmd, out := startLocalProcess(t, dir, 2)
	endpoints := regexp.MustCompile(`RAFTQ_ENDPOINTS=(\S+)`).FindStringSubmatch(out.String())
	if endpoints == nil {
		t.Fatalf("no endpoints in\n%s", out)
	}
	if code, id, errs := raftqRun(t, "", "enqueue", "q", "x", "--endpoints", endpoints[1]); code != exitOK || !strings.HasPrefix(id, "D-") {
		t.Errorf("enqueue: %d %s %s", code, id, errs)
	}
	port := regexp.MustCompile(`redis-cli -p (\d+) GETJOB`).FindStringSubmatch(out.String())
	if port == nil {
		t.Fatalf("no RESP port in\n%s", out)
	}
	if got := respLine(t, "127.0.0.1:"+port[1], "QLEN q"); got != ":1" {
		t.Errorf("RESP: %q", got)
	}
	byHand := restartByHand(t, dir, out)
	if code, _, errs := raftqRun(t, "", "enqueue", "q", "y", "--endpoints", endpoints[1]); code != exitOK {
		t.Errorf("enqueue with the node started by hand: %d %s", code, errs)
	}
	if err := errors.Join(cmd.Process.Signal(syscall.SIGINT), byHand.Process.Signal(syscall.SIGTERM)); err != nil {
		t.Fatal(err)
	}
	if err := byHand.Wait(); err != nil {
		t.Errorf("node started by hand ended with %v", err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("local ended with %v\n%s", err, out)
	}
	for e := range strings.SplitSeq(endpoints[1], ",") {
		if conn, err := net.Dial("tcp", e); err == nil {
			conn.Close()
			t.Errorf("somebody still listens on %s", e)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "n2.log")); err != nil {
		t.Error(err)
	}
}

// respLine sends a line to a RESP port and returns the first one of the answer.
func respLine(t *testing.T, addr, line string) string {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
	fmt.Fprintf(conn, "%s\r\n", line)
	got, err := bufio.NewReader(conn).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(got)
}

// restartByHand kills n1 of raftq local and starts it again with the command
// that was printed, until it is ready.
func restartByHand(t *testing.T, dir string, out *watchedBuffer) *exec.Cmd {
	t.Helper()
	pids, err := os.ReadFile(filepath.Join(dir, "pids"))
	if err != nil {
		t.Fatal(err)
	}
	pid := 0
	if _, err := fmt.Sscan(string(pids), &pid); err != nil {
		t.Fatalf("%v in %q", err, pids)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	ctx := within(t, startMax)
	var line []string
	for again := regexp.MustCompile(`To start it again:\n\n  (.*)\n`); line == nil; line = again.FindStringSubmatch(out.String()) {
		if err := ctx.Err(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		time.Sleep(10 * time.Millisecond)
	}
	cmd := exec.Command("sh", "-c", "exec "+line[1])
	cmd.Env = append(cleanEnviron(), beRaftq)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() }) // an error when it has ended
	client := regexp.MustCompile(`--listen-client (\S+)`).FindStringSubmatch(line[1])
	for {
		resp, err := http.Get("http://" + client[1] + "/readyz")
		if err == nil {
			resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return cmd
			}
		}
		if ctx.Err() != nil {
			t.Fatalf("%s is not ready: %v", line[1], err)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// local says what to do about a port that somebody has.
func TestLocalTakenPort(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	port := portOf(taken.Addr().String())
	code, _, errs := raftqRun(t, "", "local", "--nodes", "1", "--data-dir", t.TempDir(), "--client-port", port,
		"--resp-port", fmt.Sprint(portRange(t, 1)), "--peer-port", fmt.Sprint(portRange(t, 1)))
	if code != exitFailed || !strings.Contains(errs, port+": bind: address already in use; --client-port, ") {
		t.Errorf("exit code %d\n%s", code, errs)
	}
}

// local goes on without a node that was removed, and starts without it.
func TestLocalAfterRemoval(t *testing.T) {
	if testing.Short() {
		t.Skip("real processes")
	}
	dir := t.TempDir()
	client, resp, peer := portRange(t, 3), portRange(t, 3), portRange(t, 3)
	stop := func(cmd *exec.Cmd, out *watchedBuffer, says string) {
		t.Helper()
		for ctx := within(t, startMax); !strings.Contains(out.String(), says); time.Sleep(10 * time.Millisecond) {
			if ctx.Err() != nil {
				t.Fatalf("local does not say %q\n%s", says, out)
			}
		}
		if err := cmd.Process.Signal(os.Interrupt); err != nil {
			t.Fatal(err)
		}
		if err := cmd.Wait(); err != nil || strings.Contains(out.String(), "To start it again") {
			t.Errorf("%v\n%s", err, out)
		}
	}
	cmd, out := startLocalOn(t, dir, 3, client, resp, peer)
	if code, _, errs := raftqRun(t, "", "member", "remove", "n2", "--endpoints", fmt.Sprintf("127.0.0.1:%d,127.0.0.1:%d", client, client+2)); code != 0 {
		t.Fatalf("exit code %d\n%s", code, errs)
	}
	stop(cmd, out, "n2 was removed from the cluster; 2 of 3 nodes run")
	cmd, out = startLocalOn(t, dir, 3, client, resp, peer)
	if !strings.HasPrefix(out.String(), "2 nodes run;") {
		t.Errorf("%s", out)
	}
	stop(cmd, out, "n2 was removed from the cluster; 2 of 3 nodes run")
}

// startLocalProcess runs raftq local until it has printed how to use it.
func startLocalProcess(t *testing.T, dir string, nodes int) (*exec.Cmd, *watchedBuffer) {
	t.Helper()
	return startLocalOn(t, dir, nodes, portRange(t, nodes), portRange(t, nodes), portRange(t, nodes))
}

// startLocalOn is startLocalProcess on given ports.
func startLocalOn(t *testing.T, dir string, nodes, client, resp, peer int) (*exec.Cmd, *watchedBuffer) {
	t.Helper()
	cmd := exec.Command(self(t), "local", "--nodes", fmt.Sprint(nodes), "--data-dir", dir,
		"--client-port", fmt.Sprint(client), "--resp-port", fmt.Sprint(resp), "--peer-port", fmt.Sprint(peer))
	cmd.Env = append(os.Environ(), beRaftq)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	out := &watchedBuffer{want: "Kill one", seen: make(chan struct{})}
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() }) // an error when it has ended
	select {
	case <-out.seen:
	case <-within(t, startMax).Done():
		t.Fatalf("local is not ready\n%s", out)
	}
	return cmd, out
}
