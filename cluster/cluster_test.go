package cluster

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// The test binary plays the nodes, and a parent that is killed.
const roleEnv = "CLUSTER_TEST_ROLE"

func TestMain(m *testing.M) {
	switch os.Getenv(roleEnv) {
	case "node":
		fakeNode(os.Args[2:])
	case "broken":
		fmt.Fprintln(os.Stderr, "the disk is on fire")
		os.Exit(3)
	case "parent":
		fakeParent()
	case "dial":
		dial()
	default:
		os.Exit(m.Run())
	}
}

// fakeNode answers the two routes that this package asks for, and ends with
// status 0 on SIGTERM. n2 leads.
func fakeNode(args []string) {
	fs := flag.NewFlagSet("serve", flag.ExitOnError)
	for _, name := range []string{"name", "data-dir", "listen-resp", "listen-peer", "advertise-peer", "initial-cluster", "join"} {
		fs.String(name, "", "")
	}
	addr := fs.String("listen-client", "", "")
	fs.Bool("insecure", false, "")
	deaf := fs.Bool("deaf", false, "never ready, does not hear SIGTERM")
	_ = fs.Parse(args)
	ln, err := net.Listen("tcp", *addr)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	http.HandleFunc("/readyz", func(w http.ResponseWriter, _ *http.Request) {
		if *deaf {
			http.Error(w, "loading", http.StatusServiceUnavailable)
		}
	})
	http.HandleFunc("/v1/cluster", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `{"leader":"n2","term":7}`)
	})
	go func() { _ = http.Serve(ln, nil) }()
	term := make(chan os.Signal, 1)
	signal.Notify(term, syscall.SIGTERM)
	for range term {
		if !*deaf {
			os.Exit(0)
		}
	}
}

// fakeParent starts a cluster, prints its process ids, and waits to be killed.
func fakeParent() {
	c, err := New(Options{Binary: self(), Dir: os.Args[1], Nodes: 2, Env: []string{roleEnv + "=node"}})
	if err == nil {
		err = c.Start(context.Background())
	}
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println(c.Nodes[0].Pid(), c.Nodes[1].Pid())
	select {}
}

func self() string {
	path, err := os.Executable()
	if err != nil {
		panic(err)
	}
	return path
}

func newTest(t *testing.T, role string, nodes int) *Cluster {
	t.Helper()
	c, err := New(Options{Binary: self(), Dir: t.TempDir(), Nodes: nodes, Env: []string{roleEnv + "=" + role}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func within(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// A node is killed, its port refuses connections and stays its own, and it
// comes back; a polite stop ends with status 0.
func TestKillAndRestart(t *testing.T) {
	c := newTest(t, "node", 3)
	ctx := within(t, 20*time.Second)
	if err := c.Start(ctx); err != nil {
		t.Fatal(err)
	}
	lead, err := c.Leader(ctx)
	if err != nil || lead != 1 {
		t.Fatalf("leader = %d, %v; want 1", lead, err)
	}
	n := c.Nodes[lead]
	pid := n.Pid()
	if err := n.Start(); err == nil {
		t.Fatal("a second process was started on one data directory")
	}
	n.Kill9()
	if n.Running() || n.Pid() != 0 || startTime(pid) != "" {
		t.Fatal("the process is still there after Kill9")
	}
	if conn, err := net.Dial("tcp", n.Client); err == nil {
		conn.Close()
		t.Fatal("somebody answers on the port of a killed node")
	}
	for range 300 { // the port is not given to whoever asks for any
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer ln.Close()
		if a := ln.Addr().String(); a == n.Client || a == n.Peer {
			t.Fatalf("the reserved port %s was given away", a)
		}
	}
	if err := n.Start(); err != nil {
		t.Fatal(err)
	}
	if err := n.WaitReady(ctx); err != nil {
		t.Fatal(err)
	}
	if n.Pid() == pid {
		t.Fatal("same process")
	}
	if err := c.Stop(ctx); err != nil {
		t.Fatal(err)
	}
	for _, n := range c.Nodes {
		if n.Running() {
			t.Errorf("%s runs after Stop", n.Name)
		}
	}
}

// The pids file lists what runs, and keeps a second cluster off the directory.
func TestPids(t *testing.T) {
	c := newTest(t, "node", 2)
	ctx := within(t, 20*time.Second)
	if err := c.Start(ctx); err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprintf("%d %s n1\n%d %s n2\n", c.Nodes[0].Pid(), startTime(c.Nodes[0].Pid()), c.Nodes[1].Pid(), startTime(c.Nodes[1].Pid()))
	got, err := os.ReadFile(c.Dir() + "/pids")
	if err != nil || string(got) != want {
		t.Fatalf("pids = %q, %v; want %q", got, err, want)
	}
	if _, err := New(Options{Binary: self(), Dir: c.Dir(), Nodes: 2}); err == nil || !strings.Contains(err.Error(), "in use") {
		t.Fatalf("second cluster on the directory: %v", err)
	}
	c.Close()
	again, err := New(Options{Binary: self(), Dir: c.Dir(), Nodes: 2})
	if err != nil {
		t.Fatal(err)
	}
	again.Close()
}

// A node that ends at once is reported with what it said; so is one that never
// gets ready, and one that does not listen to SIGTERM.
func TestErrorsShowTheLog(t *testing.T) {
	c := newTest(t, "broken", 1)
	err := c.Start(within(t, 20*time.Second))
	if err == nil || !strings.Contains(err.Error(), "exit status 3") || !strings.Contains(err.Error(), "the disk is on fire") {
		t.Fatalf("error = %v", err)
	}

	c = newTest(t, "node", 1)
	c.Nodes[0].Args = []string{"-deaf"}
	if err := c.Start(within(t, time.Second)); err == nil || !strings.Contains(err.Error(), "503 loading") {
		t.Fatalf("error = %v", err)
	}
	if err := c.Nodes[0].Stop(within(t, 100*time.Millisecond)); err == nil || !strings.Contains(err.Error(), "was killed") {
		t.Fatalf("error = %v", err)
	}
}

// A port that somebody else has is an error, whoever answers there.
func TestTakenPort(t *testing.T) {
	other := newTest(t, "node", 1)
	if err := other.Start(within(t, 20*time.Second)); err != nil {
		t.Fatal(err)
	}
	_, port, err := net.SplitHostPort(other.Nodes[0].Client)
	if err != nil {
		t.Fatal(err)
	}
	first, err := strconv.Atoi(port)
	if err != nil {
		t.Fatal(err)
	}
	c, err := New(Options{Binary: self(), Dir: t.TempDir(), Nodes: 1, ClientPort: first, Env: []string{roleEnv + "=node"}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.Start(within(t, 20*time.Second)); err == nil || !strings.Contains(err.Error(), "address already in use") {
		t.Fatalf("error = %v", err)
	}
}

// Nothing outlives a parent that is killed.
func TestChildrenDieWithParent(t *testing.T) {
	cmd := exec.Command(self(), t.TempDir())
	cmd.Env = append(os.Environ(), roleEnv+"=parent")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	_ = cmd.Process.Kill() // whatever it printed
	_ = cmd.Wait()         // killed: always an error
	f := strings.Fields(line)
	if err != nil || len(f) != 2 {
		t.Fatalf("parent said %q, %v", line, err)
	}
	ctx := within(t, 10*time.Second)
	for _, s := range f {
		pid, err := strconv.Atoi(s)
		if err != nil {
			t.Fatal(err)
		}
		for alive(pid) {
			select {
			case <-ctx.Done():
				t.Fatalf("process %d outlives its parent", pid)
			case <-time.After(pollEvery):
			}
		}
	}
}

// alive is false for a process that is gone or waits to be reaped.
func alive(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	rest := string(stat[strings.LastIndexByte(string(stat), ')')+1:])
	return !strings.HasPrefix(rest, " Z")
}

// TestAdd proves that a node that is added joins the others that run, and that the
// first members stay the first members.
func TestAdd(t *testing.T) {
	c := newTest(t, "node", 2)
	ctx := within(t, 20*time.Second)
	if err := c.Start(ctx); err != nil {
		t.Fatal(err)
	}
	n, err := c.Add()
	if err != nil {
		t.Fatal(err)
	}
	c.Nodes[1].Kill9()
	if got := strings.Join(n.flags(), " "); !strings.Contains(got, "--join "+c.Nodes[0].Client) || strings.Contains(got, c.Nodes[1].Client) || strings.Contains(got, "--initial-cluster") {
		t.Errorf("the added one: %s", got)
	}
	if got := strings.Join(c.Nodes[0].flags(), " "); strings.Contains(got, "n3=") || strings.Contains(got, "--join") || !strings.Contains(got, "n2=") {
		t.Errorf("a first member: %s", got)
	}
	if err := n.Start(); err != nil {
		t.Fatal(err)
	}
	if err := n.WaitReady(ctx); err != nil {
		t.Fatal(err)
	}
}
