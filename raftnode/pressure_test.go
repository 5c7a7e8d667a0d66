package raftnode

import (
	"math"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"raftq/fsm"
)

// TestSteps proves where the steps are and that one which is left behind does not
// come back at once.
func TestSteps(t *testing.T) {
	for _, c := range []struct {
		used, of int64
		want     uint8
	}{{0, 100, 0}, {74, 100, 0}, {75, 100, 75}, {89, 100, 75}, {90, 100, 90}, {95, 100, 95}, {200, 100, 95}, {5, 0, 0}, {math.MaxInt64, math.MaxInt64, 95}, {math.MaxInt64 / 2, math.MaxInt64, 0}} {
		if got := stepOf(c.used, c.of); got != c.want {
			t.Errorf("%d of %d: %d, want %d", c.used, c.of, got, c.want)
		}
	}
	step := uint8(0)
	for _, c := range []struct {
		percent float64
		want    uint8
	}{{74.9, 0}, {75, 75}, {74.5, 75}, {73.9, 0}, {96, 95}, {94.5, 95}, {93.9, 90}, {89.5, 90}, {50, 0}} {
		if step = diskStep(step, c.percent); step != c.want {
			t.Errorf("at %v %%: %d, want %d", c.percent, step, c.want)
		}
	}
}

func doCode(t *testing.T, n *Node, op fsm.Op, fast bool) fsm.Code {
	t.Helper()
	_, err := n.Do(op, fast, 10*time.Second, nil)
	if err == nil {
		return fsm.CodeOK
	}
	e := err.(*fsm.Error)
	if e.Unknown {
		t.Errorf("%T: unknown: %v", op, e)
	}
	return e.Code
}

func newJob(bytes int) *fsm.Enqueue {
	return &fsm.Enqueue{Jobs: []fsm.NewJob{{Queue: "q", Body: make([]byte, bytes), Priority: 4}}}
}

// TestMemoryLadder proves that the smallest limit of the members holds for all:
// first fast enqueues are refused, then all of them and all that carries one; what
// makes room always works, and with room they are taken again.
func TestMemoryLadder(t *testing.T) {
	defer goleak.VerifyNone(t)
	tr := newTrio(t)
	tr.cfg[1].MaxMemory, tr.cfg[2].MaxMemory = 1<<20, 8<<20
	tr.openAll()
	all := func() *Node { return tr.nodes[0] }
	refusedFast, refusedAll := false, false
	for range 2000 {
		if code := doCode(t, all(), newJob(1000), true); code == fsm.CodeMemoryLimit {
			refusedFast = true
		} else if code != fsm.CodeOK {
			t.Fatal(code)
		}
		if code := doCode(t, all(), newJob(1000), false); code == fsm.CodeMemoryLimit {
			refusedAll = true
			break
		} else if code != fsm.CodeOK {
			t.Fatal(code)
		}
	}
	if !refusedFast || !refusedAll {
		t.Fatalf("fast refused: %v, all refused: %v", refusedFast, refusedAll)
	}
	var bytes int64
	if _, err := all().Read(fsm.ReadHow{Strong: true, TimeoutMs: 5000}, func(m *fsm.Machine) { bytes = m.Bytes() }); err != nil || bytes < 1<<20*9/10 || bytes > 1<<20 {
		t.Errorf("refused at %d bytes of %d: %v", bytes, 1<<20, err)
	}
	tx := &fsm.Tx{Ops: []fsm.Op{newJob(1000)}}
	keyed := &fsm.Keyed{Key: "k", Op: newJob(1000)}
	for i, n := range tr.nodes {
		for _, op := range []fsm.Op{newJob(1000), tx, keyed, &fsm.Append{Topic: "t", Messages: []fsm.NewMessage{{Body: make([]byte, 1000)}}}} {
			// A node refuses once it has applied what the others have.
			await(t, "a refusal", func() bool { return doCode(t, n, op, false) == fsm.CodeMemoryLimit })
		}
		jobs := tr.do(i, &fsm.Dequeue{Queues: []string{"q"}, Max: 1}).Jobs
		if len(jobs) != 1 {
			t.Fatalf("node %d hands out %d jobs", i, len(jobs))
		}
		tr.do(i, &fsm.Ack{Items: []fsm.Item{jobs[0].Receipt().Item()}})
	}
	tr.do(0, &fsm.Purge{Queue: "q", States: fsm.StateReady})
	for _, n := range tr.nodes {
		await(t, "room", func() bool { return doCode(t, n, newJob(1000), true) == fsm.CodeOK })
	}
	tr.closeAll()
}

// TestDiskLadder proves that each node raises and clears the alarm of its own disk
// in the log, that all of them refuse by the highest, and that acks work.
func TestDiskLadder(t *testing.T) {
	defer goleak.VerifyNone(t)
	tr := newTrio(t)
	var used [3]atomic.Int64
	for i := range tr.cfg {
		tr.cfg[i].DiskUsed = func(string) (float64, error) { return float64(used[i].Load()), nil }
		tr.cfg[i].diskEvery = 5 * time.Millisecond
	}
	tr.openAll()
	id := enqueueOn(t, tr.nodes[0], "a job")
	expect := func(what string, strong, fast fsm.Code) {
		t.Helper()
		for _, n := range tr.nodes {
			await(t, what, func() bool {
				return doCode(t, n, newJob(1), false) == strong && doCode(t, n, newJob(1), true) == fast
			})
		}
	}
	expect("room", fsm.CodeOK, fsm.CodeOK)
	used[2].Store(80)
	await(t, "an alarm", func() bool {
		var step uint8
		_, err := tr.nodes[0].Read(fsm.ReadHow{Strong: true, TimeoutMs: 5000}, func(m *fsm.Machine) { step = m.DiskAlarm() })
		return err == nil && step == 75
	})
	expect("a warning only", fsm.CodeOK, fsm.CodeOK)
	used[2].Store(91)
	expect("no fast ones", fsm.CodeOK, fsm.CodeDiskLimit)
	used[1].Store(96)
	expect("none", fsm.CodeDiskLimit, fsm.CodeDiskLimit)
	used[2].Store(10)
	expect("none while one is full", fsm.CodeDiskLimit, fsm.CodeDiskLimit)
	tr.do(2, &fsm.Ack{Items: []fsm.Item{{Key: id.Key, ByID: true}}})
	tr.close(1)
	for _, n := range []*Node{tr.nodes[0], tr.nodes[2]} {
		await(t, "jobs without the node whose disk is full", func() bool { return doCode(t, n, newJob(1), true) == fsm.CodeOK })
	}
	tr.open(1)
	tr.ready(1)
	expect("none since it is back", fsm.CodeDiskLimit, fsm.CodeDiskLimit)
	used[1].Store(10)
	expect("room again", fsm.CodeOK, fsm.CodeOK)
	tr.closeAll()
}

// TestFeatureLevel proves that an op which a member may not know is refused before
// it is packed, and taken as soon as all know it.
func TestFeatureLevel(t *testing.T) {
	l := newLoneCore(t) // its node start says level 0
	ask := func(op fsm.Op) *request {
		r := &request{op: op, timeout: 1e12, bytes: fsm.Size(op), done: make(chan struct{}, 1)}
		l.step([]any{submitted{[]*request{r}}})
		return r
	}
	named := newJob(1)
	named.Jobs[0].DedupID = "d"
	for _, op := range []fsm.Op{named, &fsm.Reject{}, &fsm.Keyed{Key: "k", Op: newJob(1)}, &fsm.Pause{Queue: "q"}, &fsm.Dequeue{Queues: []string{"q"}, Max: 1, AttemptID: "a"}} {
		if r := ask(op); r.err == nil || r.err.Code != fsm.CodeFeatureLevel || r.err.Unknown {
			t.Errorf("%T: %v", op, r.err)
		}
	}
	if r := ask(newJob(1)); r.err != nil || r.res.Code != fsm.CodeOK {
		t.Errorf("an op of level 1: %v %v", r.err, r.res.Code)
	}
}
