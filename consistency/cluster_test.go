package consistency

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"raftq/cluster"
)

var (
	binary   string
	binaries string // where it lies, and others that tests build
)

// binaryWith builds raftq with a tag, once, or takes what RAFTQ_BINARY_TAG names.
var binaryWith = func() func(t *testing.T, tag string) string {
	var mu sync.Mutex
	built := map[string]bool{}
	return func(t *testing.T, tag string) string {
		t.Helper()
		mu.Lock()
		defer mu.Unlock()
		if given := os.Getenv("RAFTQ_BINARY_" + strings.ToUpper(tag)); given != "" {
			return given
		}
		path := filepath.Join(binaries, "raftq-"+tag)
		if !built[tag] {
			if text, err := exec.Command("go", "build", "-tags", tag, "-o", path, "raftq/cmd/raftq").CombinedOutput(); err != nil {
				t.Fatalf("build with %s: %v\n%s", tag, err, text)
			}
			built[tag] = true
		}
		return path
	}
}()

// TestMain builds the binary once, or takes the one that RAFTQ_BINARY names.
func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "raftq-consistency-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	binaries = dir
	binary = filepath.Join(dir, "raftq")
	build := exec.Command("go", "build", "-o", binary, "raftq/cmd/raftq")
	if given := os.Getenv("RAFTQ_BINARY"); given != "" {
		binary, build = given, exec.Command("true")
	}
	build.Stdout, build.Stderr = os.Stdout, os.Stderr
	code := 1
	if err := build.Run(); err != nil {
		fmt.Fprintln(os.Stderr, "build raftq:", err)
	} else {
		code = m.Run()
		if err := reports.write(); err != nil {
			fmt.Fprintln(os.Stderr, "write the report:", err)
			code = 1
		}
	}
	os.RemoveAll(dir)
	os.Exit(code)
}

// env reads a number from the environment.
func env(name string, def int) int {
	if v, err := strconv.Atoi(os.Getenv(name)); err == nil {
		return v
	}
	return def
}

const electionTimeout = time.Second

// start runs a ready cluster that ends with the test; on failure its directory
// stays for a look.
func start(t *testing.T, nodes int, args ...string) (*cluster.Cluster, context.Context) {
	t.Helper()
	c, ctx := layOut(t, nodes, args...)
	if err := c.Start(ctx); err != nil {
		t.Fatal(err)
	}
	return c, ctx
}

// layOut is start without starting.
func layOut(t *testing.T, nodes int, args ...string) (*cluster.Cluster, context.Context) {
	t.Helper()
	dir, err := os.MkdirTemp("", "raftq-"+t.Name()+"-")
	if err != nil {
		t.Fatal(err)
	}
	c, err := cluster.New(cluster.Options{Binary: binary, Dir: dir, Nodes: nodes, Args: args})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(func() {
		cancel()
		c.Close()
		if t.Failed() {
			t.Log("data and logs stay in", dir)
		} else {
			os.RemoveAll(dir)
		}
	})
	return c, ctx
}

// eventually polls until ok, or fails the test.
func eventually(t *testing.T, within time.Duration, what string, ok func() bool) {
	t.Helper()
	end := time.Now().Add(within)
	for !ok() {
		if time.Now().After(end) {
			t.Fatalf("not within %v: %s", within, what)
		}
		time.Sleep(5 * time.Millisecond) // between polls of a condition
	}
}

// leader returns the leader's place.
func leader(t *testing.T, c *cluster.Cluster, ctx context.Context) int {
	t.Helper()
	i, err := c.Leader(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return i
}

// sameChains waits until all nodes have applied the same index with the same
// running hash.
func sameChains(t *testing.T, c *cluster.Cluster, ctx context.Context, within time.Duration) uint64 {
	t.Helper()
	h := newHistory()
	var last string
	var at uint64
	eventually(t, within, "nodes with equal state", func() bool {
		seen := map[string]bool{}
		last = ""
		for i, n := range c.Nodes {
			v, err := newClient(h, i, n.Client).view(ctx)
			if err != nil {
				return false
			}
			for _, m := range v.Nodes {
				if m.Name == n.Name {
					last = fmt.Sprintf("%d/%s", m.Chain.Index, m.Chain.Hash)
					at = m.Chain.Index
					seen[last] = true
				}
			}
		}
		return len(seen) == 1
	})
	return at
}
