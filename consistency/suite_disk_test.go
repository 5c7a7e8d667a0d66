package consistency

import (
	"context"
	"errors"
	"os/exec"
	"strings"
	"testing"
	"time"

	"raftq/cluster"
	"raftq/consistency/check"
)

// failedWrite lets the writes of a node's disk fail: fsync says so once and would
// succeed the next time. The process must end at the first error and say why. It
// is started on what it left, and then its power is cut as well: what it may have
// read from memory alone is gone then.
func (w *world) failedWrite(i int) {
	n := w.c.Nodes[i]
	if !n.Disk.CanStarve() {
		w.t.Log("no disks in memory here, so no failed writes")
		return
	}
	w.ended("failed write", []int{i}, func() {
		w.must(n.Disk.Starve())
		w.endsBy(n, 1, "the log is unusable; the process must end")
		w.must(n.Disk.Feed())
		w.must(n.Start())
		w.serves(i)
	})
	w.powerCut(i)
}

// endsBy waits until a node's process ends by itself, and wants its status and what
// it says.
func (w *world) endsBy(n *cluster.Node, status int, says string) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.ctx, 30*time.Second)
	defer cancel()
	err := n.Wait(ctx)
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != status || !strings.Contains(err.Error(), says) {
		w.t.Errorf("%s should end with status %d and %q: %v", n.Name, status, says, err)
		n.Kill9()
	}
}

// serves waits until a node answers.
func (w *world) serves(i int) {
	w.t.Helper()
	w.eventually(20*time.Second, w.c.Nodes[i].Name+" serves", func() bool { return w.metric(i, "raftq_raft_applied_index") > 0 })
}

// slowDisk lets each fsync of a node take up to two seconds, now and then. All
// heartbeats go on; that leadership moves is allowed.
func slowDisk(w *world) {
	i := w.pick(w.others())
	n := w.c.Nodes[i]
	w.during(i, false, "slow disk of "+n.Name, func() {
		for _, most := range []time.Duration{20, 50, 200, 500, 2000} {
			most *= time.Millisecond
			w.must(n.Disk.Freeze())
			w.hold(most/2, most)
			w.must(n.Disk.Thaw())
			w.hold(10*time.Millisecond, 100*time.Millisecond)
		}
	})
}

// stuckFor is how long a disk is stuck.
func (w *world) stuckFor() (least, most time.Duration) {
	if suiteMode() == "long" {
		return 4 * time.Second, 30 * time.Second
	}
	return 2500 * time.Millisecond, 3 * time.Second
}

// stuckLeader freezes the leader's disk: another one must lead, and take strong
// writes, while it is stuck.
func stuckLeader(w *world) {
	l := w.leader()
	n := w.c.Nodes[l]
	w.during(l, false, "stuck disk of the leader "+n.Name, func() {
		w.must(n.Disk.Freeze())
		w.eventually(10*time.Second, "another leader than the one whose disk is stuck", func() bool {
			now := w.leaderOr(l)
			return now != l && w.metric(l, "raftq_raft_is_leader") == 0
		})
		for _, i := range w.others(l) {
			w.writes(i)
		}
		w.hold(w.stuckFor())
		w.must(n.Disk.Thaw())
	})
}

// stuckFollower freezes a follower's disk: the others go on, with the same leader,
// and hear of it all the time.
func stuckFollower(w *world) {
	l := w.leader()
	i := w.pick(w.others(l))
	n := w.c.Nodes[i]
	w.during(i, false, "stuck disk of the follower "+n.Name, func() {
		before, err := w.view(w.ctx, l)
		w.must(err)
		w.must(n.Disk.Freeze())
		w.hold(w.stuckFor())
		for _, j := range w.others(i) {
			w.writes(j)
		}
		after, err := w.view(w.ctx, l)
		w.must(err)
		if after.Term == before.Term && !after.alive(n.Name) {
			w.t.Errorf("the leader hears nothing of %s, whose disk is stuck", n.Name)
		}
		w.must(n.Disk.Thaw())
	})
}

// TestFailedWriteOfALoneNode lets the fsync of a lone node fail. What was read after
// its restart must outlive a power cut: pages whose write failed stay in the
// kernel's memory, as if they were on the disk.
func TestFailedWriteOfALoneNode(t *testing.T) {
	w := newWorld(t, 1)
	if w.c.Net == nil || !w.c.Nodes[0].Disk.CanStarve() {
		t.Skip("no disks here whose writes can be made to fail")
	}
	w.load = &suiteLoad{w: w} // of bodies and marks alone
	n, c := w.c.Nodes[0], w.newClient(0, 0)
	read := func() (o *check.Op) {
		w.eventually(10*time.Second, "a strong read", func() bool {
			o = c.count("lone")
			return o.Outcome == check.OK
		})
		return o
	}
	send := func() *check.Op {
		return c.enqueue("lone", []check.Job{{Body: w.load.body() + strings.Repeat(" ", 3000), Priority: -1}}, false, "")
	}
	for range byMode(1, 1, 3, 10) {
		for range 20 {
			send()
		}
		w.must(n.Disk.Starve())
		for tries := 0; n.Running() && tries < 1000; tries++ {
			send()
		}
		w.endsBy(n, 1, "the log is unusable; the process must end")
		w.must(n.Disk.Feed())
		w.must(n.Start())
		w.serves(0)
		before := read()
		if lost, err := w.c.PowerCut(0); err != nil || !lost[0] {
			t.Fatal(lost, err)
		}
		w.must(n.Start())
		w.serves(0)
		after := read()
		if after.Count != before.Count {
			t.Errorf("a strong read said %+v, and after a power cut %+v", before.Count, after.Count)
		}
		t.Logf("%+v", after.Count)
	}
}
