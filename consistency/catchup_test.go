package consistency

import (
	"testing"
	"time"
)

// TestCatchUpBySnapshot stops a node while the others compact their logs, under
// load: it comes back by a streamed snapshot, and the nodes' states are equal.
func TestCatchUpBySnapshot(t *testing.T) {
	c, ctx := start(t, 3, "--snapshot-bytes", "256KiB", "--snapshot-entries", "300")
	h := newHistory()
	l := startLoad(h, c, ctx, "catchup")
	down := (leader(t, c, ctx) + 1) % 3
	c.Nodes[down].Kill9()
	up := newClient(h, (down+1)%3, c.Nodes[(down+1)%3].Client)
	// Two snapshots later the others' logs in memory still hold entries for slow
	// followers; enough load moves past those too.
	eventually(t, 120*time.Second, "compacted logs", func() bool {
		n, err := up.metric(ctx, "raftq_log_first_index")
		return err == nil && n > 500
	})
	if err := c.Nodes[down].Start(); err != nil {
		t.Fatal(err)
	}
	if err := c.WaitReady(ctx); err != nil {
		t.Fatal(err)
	}
	back := newClient(h, down, c.Nodes[down].Client)
	eventually(t, 30*time.Second, "an installed snapshot", func() bool {
		n, err := back.metric(ctx, "raftq_snapshots_installed_total")
		return err == nil && n > 0
	})
	l.await(t, 500)
	l.end(t, ctx)
	v := h.judge()
	t.Log(v)
	v.mustHold(t)
	at := sameChains(t, c, ctx, 20*time.Second)
	t.Logf("equal state on all nodes at entry %d", at)
}
