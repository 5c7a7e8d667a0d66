package client

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"raftq/cluster"
)

// scratch is gone when the tests end.
var scratch string

func TestMain(m *testing.M) {
	var err error
	if scratch, err = os.MkdirTemp("", "raftq-client-"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	endExamples()
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.RemoveAll(scratch)
	os.Exit(code)
}

// raftqBin builds the binary, once, and returns its path.
var raftqBin = sync.OnceValues(func() (string, error) {
	path := filepath.Join(scratch, "raftq")
	if out, err := exec.Command("go", "build", "-o", path, "raftq/cmd/raftq").CombinedOutput(); err != nil {
		return "", fmt.Errorf("build raftq: %w\n%s", err, out)
	}
	return path, nil
})

// startCluster runs nodes that end with the test.
func startCluster(t testing.TB, nodes int, args ...string) *cluster.Cluster {
	t.Helper()
	bin, err := raftqBin()
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "raftq-client-")
	if err != nil {
		t.Fatal(err)
	}
	c, err := cluster.New(cluster.Options{Binary: bin, Dir: dir, Nodes: nodes, Args: args})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.Close()
		if t.Failed() {
			t.Log("data and logs stay in", dir)
		} else {
			os.RemoveAll(dir)
		}
	})
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := c.Start(ctx); err != nil {
		t.Fatal(err)
	}
	return c
}

// newTestClient returns a client that ends with the test and logs to it.
func newTestClient(t testing.TB, endpoints string, opts ...Option) *Client {
	t.Helper()
	log := &testLog{t: t}
	t.Cleanup(log.end)
	c, err := New(endpoints, append([]Option{WithLogger(slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug})))}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// testLog writes to a test's log while the test runs.
type testLog struct {
	mu    sync.Mutex
	t     testing.TB
	ended bool
}

func (l *testLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.ended {
		l.t.Logf("%s", p)
	}
	return len(p), nil
}

func (l *testLog) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ended = true
}

// eventually polls until ok, or fails the test.
func eventually(t testing.TB, within time.Duration, what string, ok func() bool) {
	t.Helper()
	end := time.Now().Add(within)
	for !ok() {
		if time.Now().After(end) {
			t.Fatalf("not within %v: %s", within, what)
		}
		time.Sleep(2 * time.Millisecond) // between polls of a condition
	}
}
