package consistency

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"raftq/cluster"
)

// newest is the last of a node's files in a directory, by name.
func newest(t *testing.T, n *cluster.Node, dir, pattern string) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(n.DataDir, dir, pattern))
	if err != nil || len(files) == 0 {
		t.Fatalf("%s has no %s/%s: %v", n.Name, dir, pattern, err)
	}
	return slices.Max(files)
}

// written is how far a segment of the log is written; zeros follow.
func written(t *testing.T, segment string) (b []byte) {
	t.Helper()
	b, err := os.ReadFile(segment)
	if err != nil {
		t.Fatal(err)
	}
	if b = bytes.TrimRight(b, "\x00"); len(b) < 8<<10 {
		t.Fatalf("%s holds only %d bytes: nothing to damage", segment, len(b))
	}
	return b
}

// TestRejoin damages the log of a node that is down: its end is lost, below what the
// node had acknowledged, or a bit has flipped. The node does not start with that.
// With --recover=rejoin it sets the log aside, whole, and is a voter again by itself,
// with another id, while jobs flow; nothing is lost.
func TestRejoin(t *testing.T) {
	cc := startChanging(t, "--snapshot-entries", "200")
	cc.grow(2)
	cc.settled("three nodes")
	for _, c := range []struct {
		what   string
		says   []string      // one of them
		victim *cluster.Node // a first member; one that joined
		do     func(segment string, written []byte) error
	}{
		{"the log's end is lost", []string{"lost tail"}, cc.c.Nodes[0], func(segment string, b []byte) error {
			return os.Truncate(segment, int64(len(b)-4<<10))
		}},
		// In a frame's length it looks like a lost end.
		{"a bit has flipped", []string{"corrupt", "lost tail"}, cc.c.Nodes[2], func(segment string, b []byte) error {
			b[len(b)/2] ^= 4
			f, err := os.OpenFile(segment, os.O_WRONLY, 0)
			if err != nil {
				return err
			}
			if _, err := f.WriteAt(b[len(b)/2:len(b)/2+1], int64(len(b)/2)); err != nil {
				return err
			}
			return f.Close()
		}},
	} {
		v, err := cc.view(c.victim)
		if err != nil {
			t.Fatal(err)
		}
		// It knows the others from its disk alone: no --join is given to a first member.
		eventually(t, 20*time.Second, "a snapshot that knows all members", func() bool {
			var index uint64
			files, _ := filepath.Glob(filepath.Join(c.victim.DataDir, "log", "snap", "*.snap.db"))
			if len(files) > 0 {
				_, err := fmt.Sscanf(filepath.Base(slices.Max(files)), "%016x", &index)
				return err == nil && index > v.CommitIndex
			}
			return false
		})
		live := cc.lose(c.victim)
		segment := newest(t, c.victim, "log/wal", "*.wal")
		if err := c.do(segment, written(t, segment)); err != nil {
			t.Fatal(err)
		}
		if err := c.victim.Start(); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(cc.ctx, 20*time.Second)
		err = c.victim.Wait(ctx)
		cancel()
		if err == nil || !slices.ContainsFunc(c.says, func(s string) bool { return strings.Contains(err.Error(), s) }) || !strings.Contains(err.Error(), "--recover=rejoin") {
			t.Fatalf("%s: %s ended with %v", c.what, c.victim.Name, err)
		}
		cc.settled(c.what + ", and it does not start")
		cc.idOf(c.victim) // which is not to come back
		damaged, err := os.ReadFile(segment)
		if err != nil {
			t.Fatal(err)
		}
		args := c.victim.Args
		c.victim.Args = append(slices.Clone(args), "--recover=rejoin")
		aside := filepath.Join(c.victim.DataDir, "damaged-1")
		if err := c.victim.Start(); err != nil {
			t.Fatal(err)
		}
		if c.victim.Joins { // this one dies on its way as well
			eventually(t, 20*time.Second, "the log is aside", func() bool {
				_, err := os.Stat(filepath.Join(aside, "log"))
				return err == nil
			})
			c.victim.Kill9()
			if err := c.victim.Start(); err != nil {
				t.Fatal(err)
			}
		}
		if err := c.victim.WaitReady(cc.ctx); err != nil {
			t.Fatal(err)
		}
		cc.live = live
		cc.voters()
		cc.settled(c.what + ", and it is back")
		if kept, err := os.ReadFile(filepath.Join(aside, "log", "wal", filepath.Base(segment))); err != nil || !bytes.Equal(kept, damaged) {
			t.Errorf("%s: the damaged log is not in %s as it was: %v", c.what, aside, err)
		}
		if said, err := os.ReadFile(c.victim.LogFile); err != nil || !bytes.Contains(said, []byte(aside)) {
			t.Errorf("the node's log does not say where it is: %v", err)
		}
	}
	// With a log that is whole the flag changes nothing.
	last := cc.c.Nodes[2]
	id := cc.member(last).ID
	live := cc.lose(last)
	if err := last.Start(); err != nil {
		t.Fatal(err)
	}
	if err := last.WaitReady(cc.ctx); err != nil {
		t.Fatal(err)
	}
	cc.live = live
	cc.voters()
	if now := cc.member(last).ID; now != id {
		t.Errorf("%s started with a log that is whole and has another id, %s, not %s", last.Name, now, id)
	}
	cc.end(0)
	sameChains(t, cc.c, cc.ctx, 20*time.Second)
}

// TestRejoinNeedsOthers proves that a node whose log is damaged touches nothing as
// long as no majority is there without it: alone, and as one of two of three.
func TestRejoinNeedsOthers(t *testing.T) {
	damage := func(n *cluster.Node) {
		t.Helper()
		segment := newest(t, n, "log/wal", "*.wal")
		if err := os.Truncate(segment, int64(len(written(t, segment))-4<<10)); err != nil {
			t.Fatal(err)
		}
		n.Args = append(slices.Clone(n.Args), "--recover=rejoin")
		if err := n.Start(); err != nil {
			t.Fatal(err)
		}
	}
	ended := func(n *cluster.Node, says ...string) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		err := n.Wait(ctx)
		for _, s := range append(says, "nothing was changed", "lost tail") {
			if err == nil || !strings.Contains(err.Error(), s) {
				t.Errorf("%s ended with %v, want %q", n.Name, err, s)
			}
		}
		if _, err := os.Stat(filepath.Join(n.DataDir, "log", "wal")); err != nil {
			t.Errorf("the log is not where it was: %v", err)
		}
	}
	fill := func(c *cluster.Cluster, ctx context.Context) {
		t.Helper()
		cl := newClient(newHistory(), 0, c.Nodes[0].Client)
		for i := range 20 {
			if _, e := cl.enqueue(ctx, "q", fmt.Sprintf("%d %s", i, strings.Repeat("x", 1<<10))); e.outcome != done {
				t.Fatalf("enqueue: %+v", e)
			}
		}
	}
	c, ctx := start(t, 1)
	fill(c, ctx)
	c.Nodes[0].Kill9()
	damage(c.Nodes[0])
	ended(c.Nodes[0], "no other member is known")

	c, ctx = start(t, 3)
	fill(c, ctx)
	for _, n := range c.Nodes {
		eventually(t, 10*time.Second, "it is on the disk", func() bool {
			b, err := os.ReadFile(newest(t, n, "log/wal", "*.wal"))
			return err == nil && len(bytes.TrimRight(b, "\x00")) > 20<<10
		})
	}
	lost := c.Nodes[1:]
	for _, n := range lost {
		n.Kill9()
	}
	for _, n := range lost {
		damage(n)
	}
	for _, n := range lost {
		eventually(t, 20*time.Second, n.Name+" waits", func() bool {
			said, err := os.ReadFile(n.LogFile)
			return err == nil && bytes.Contains(said, []byte("waiting for the others"))
		})
		if err := n.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		ended(n, "terminated")
	}
}
