package raftnode

import (
	"testing"
	"time"

	"go.uber.org/goleak"

	"raftq/fsm"
)

func (tr *trio) leader() int {
	tr.t.Helper()
	leader := -1
	await(tr.t, "a leader", func() bool {
		for i, n := range tr.nodes {
			if n != nil && n.Ready() == nil && n.Leader() == n.Name() {
				leader = i
			}
		}
		return leader >= 0
	})
	return leader
}

func (tr *trio) ready3(queue string) int {
	tr.t.Helper()
	n := 0
	if _, err := tr.nodes[tr.leader()].Read(fsm.ReadHow{Strong: true, TimeoutMs: 5000}, func(m *fsm.Machine) {
		q, _ := m.Queue(queue)
		n = q.Ready
	}); err != nil {
		tr.t.Fatal(err)
	}
	return n
}

// TestCopies proves what an enqueue means that asks for a copy on each of three
// nodes: answered when they have it, whichever node is asked; refused at once when
// there are not so many; withdrawn when one is down, and tried anew when it comes
// again under its key; and not known when it was handed out meanwhile, or when it has a
// dedup id: then it stays, because others are told that it is theirs.
func TestCopies(t *testing.T) {
	defer goleak.VerifyNone(t)
	tr := newTrio(t)
	tr.openAll()
	leader := tr.leader()
	code := func(res fsm.Result, err error) fsm.Code {
		t.Helper()
		switch {
		case err != nil:
			return err.(*fsm.Error).Code
		case res.Code != fsm.CodeOK:
			return res.Code
		}
		return res.Items[0].Code
	}
	l := tr.nodes[leader]
	if c := code(l.DoCopies(newJob(1), 3, 10*time.Second)); c != fsm.CodeOK {
		t.Errorf("three of three: %v", c)
	}
	if c := code(l.DoCopies(newJob(1), 4, 10*time.Second)); c != fsm.CodeNotEnoughReplicas {
		t.Errorf("four of three: %v", c)
	}
	if n := tr.ready3("q"); n != 1 {
		t.Errorf("%d jobs, want 1", n)
	}

	down := (leader + 1) % 3
	tr.close(down)
	if c := code(l.DoCopies(newJob(1), 2, 10*time.Second)); c != fsm.CodeOK {
		t.Errorf("a majority, with one down: %v", c)
	}
	if c := code(l.DoCopies(newJob(1), 3, 300*time.Millisecond)); c != fsm.CodeNotEnoughReplicas {
		t.Errorf("three, with one down: %v", c)
	}
	keyed := func() *fsm.Keyed { return &fsm.Keyed{Key: "key", Op: newJob(1)} }
	for i := range 2 {
		if c := code(l.DoCopies(keyed(), 3, 300*time.Millisecond)); c != fsm.CodeNotEnoughReplicas {
			t.Errorf("under a key, with one down, time %d: %v", i, c)
		}
	}
	if n := tr.ready3("q"); n != 2 {
		t.Errorf("%d jobs, want 2: the others were withdrawn", n)
	}

	dedup := func(queue string, atomic bool) *fsm.Enqueue {
		return &fsm.Enqueue{Atomic: atomic, Jobs: []fsm.NewJob{{Queue: queue, DedupID: "d", Priority: 4}, {Queue: queue, Priority: 4}}}
	}
	for _, d := range []struct {
		queue  string
		atomic bool
		want   [2]fsm.Code
		ready  int
	}{
		{"each", false, [2]fsm.Code{fsm.CodeCommitTimeout, fsm.CodeNotEnoughReplicas}, 1},
		{"all", true, [2]fsm.Code{fsm.CodeCommitTimeout, fsm.CodeCommitTimeout}, 2},
	} {
		res, err := l.DoCopies(dedup(d.queue, d.atomic), 3, 300*time.Millisecond)
		if c := code(res, err); c != d.want[0] || res.Items[1].Code != d.want[1] || tr.ready3(d.queue) != d.ready {
			t.Errorf("with a dedup id, atomic %v: %v %+v, %d ready", d.atomic, err, res, tr.ready3(d.queue))
		}
	}
	one := func() *fsm.Enqueue {
		return &fsm.Enqueue{Jobs: []fsm.NewJob{{Queue: "each", DedupID: "d", Priority: 4}}}
	}
	if res := tr.do(leader, one()); !res.Items[0].Duplicate || tr.ready3("each") != 1 {
		t.Errorf("a second one with the dedup id: %+v, %d ready", res.Items, tr.ready3("each"))
	}
	if c := code(l.DoCopies(one(), 3, 300*time.Millisecond)); c != fsm.CodeCommitTimeout {
		t.Errorf("and one that asks for copies: %v", c)
	}

	// Somebody takes the job while it waits for its copies.
	other := &fsm.Enqueue{Jobs: []fsm.NewJob{{Queue: "taken", Priority: 4}}}
	got := make(chan fsm.Code, 1)
	go func() {
		res, err := l.DoCopies(other, 3, 500*time.Millisecond)
		got <- code(res, err)
	}()
	await(t, "the job", func() bool { return len(tr.do(leader, &fsm.Dequeue{Queues: []string{"taken"}, Max: 1}).Jobs) == 1 })
	if c := <-got; c != fsm.CodeCommitTimeout {
		t.Errorf("handed out meanwhile: %v", c)
	}

	tr.open(down)
	tr.ready(down)
	if res, err := l.DoCopies(one(), 3, 10*time.Second); code(res, err) != fsm.CodeOK || !res.Items[0].Duplicate {
		t.Errorf("a second one with the dedup id, with all up: %v %+v", err, res.Items)
	}
	first, err := l.DoCopies(keyed(), 3, 10*time.Second)
	if c := code(first, err); c != fsm.CodeOK || first.Replay {
		t.Errorf("under the key, with all up: %v, replay %v", c, first.Replay)
	}
	again, err := l.DoCopies(keyed(), 3, 10*time.Second)
	if c := code(again, err); c != fsm.CodeOK || !again.Replay || again.Items[0].ID != first.Items[0].ID {
		t.Errorf("and again: %v %v %+v", c, err, again)
	}
	if n := tr.ready3("q"); n != 3 {
		t.Errorf("%d jobs, want 3", n)
	}
	// A node that does not lead asks the others.
	leader = tr.leader()
	f := tr.nodes[(leader+1)%3]
	if c := code(f.DoCopies(newJob(1), 3, 10*time.Second)); c != fsm.CodeOK {
		t.Errorf("on a follower: %v", c)
	}
	tr.close((leader + 2) % 3)
	if c := code(f.DoCopies(newJob(1), 3, 300*time.Millisecond)); c != fsm.CodeNotEnoughReplicas {
		t.Errorf("on a follower, with one down: %v", c)
	}
	if n := tr.ready3("q"); n != 4 {
		t.Errorf("%d jobs, want 4", n)
	}
	tr.closeAll()
}
