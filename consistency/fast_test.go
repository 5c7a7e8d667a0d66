package consistency

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"raftq/cluster"
)

// fastAnswer is an enqueue that the leader answered before commit.
type fastAnswer struct {
	body, id, batch string
	at              time.Duration
}

// fastLoad sends fast enqueues to one node, one after the other on each of n
// connections, until stop; it returns what was answered 202 after from.
func fastLoad(ctx context.Context, h *history, node int, addr, queue string, n int, stop <-chan struct{}) func() []fastAnswer {
	var mu sync.Mutex
	var all []fastAnswer
	var wg sync.WaitGroup
	for w := range n {
		c := newClient(h, node, addr)
		wg.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				body := fmt.Sprintf("fast-%d-%d", w, i)
				a, err := c.do(ctx, "POST", "/v1/queues/"+queue+"/enqueue?consistency=fast&timeout=2s", []byte(body))
				if err != nil {
					return
				}
				if a.status == http.StatusAccepted {
					var got struct{ ID string }
					json.Unmarshal(a.body, &got)
					mu.Lock()
					all = append(all, fastAnswer{body, got.ID, a.header.Get("Raftq-Batch"), h.now()})
					mu.Unlock()
				}
			}
		})
	}
	return func() []fastAnswer {
		wg.Wait()
		return all
	}
}

// start3ViaProxies is a cluster whose links can be cut.
func start3ViaProxies(t *testing.T) (*cluster.Cluster, context.Context, *faultNet) {
	t.Helper()
	c, ctx := layOut(t, 3)
	f := interpose(t, c)
	if err := c.Start(ctx); err != nil {
		t.Fatal(err)
	}
	a, err := newClient(newHistory(), 0, c.Nodes[0].Client).do(ctx, "GET", "/v1/cluster", nil)
	if err != nil {
		t.Fatal(err)
	}
	var v struct {
		Nodes []struct{ Name, ID string }
	}
	if err := json.Unmarshal(a.body, &v); err != nil {
		t.Fatal(err)
	}
	for _, n := range v.Nodes {
		for i := range c.Nodes {
			if c.Nodes[i].Name == n.Name {
				f.learn(i, n.ID)
			}
		}
	}
	return c, ctx, f
}

// content drains a queue and counts each body.
func content(t *testing.T, ctx context.Context, c *client, queue string) map[string]int {
	t.Helper()
	n := map[string]int{}
	for {
		_, ds, err := c.dequeue(ctx, queue, 1000, 0, time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range ds {
			n[d.body]++
		}
		if len(ds) == 0 {
			return n
		}
	}
}

// TestFastIsolatedLeader cuts the leader off for 3 s while clients send it fast
// enqueues: after the heal every one that it answered is in the queue once,
// because the node lives and proposes them again.
func TestFastIsolatedLeader(t *testing.T) {
	c, ctx, f := start3ViaProxies(t)
	h := newHistory()
	old := leader(t, c, ctx)
	stop := make(chan struct{})
	answers := fastLoad(ctx, h, old, c.Nodes[old].Client, "iso", 4, stop)
	other := newClient(h, (old+1)%3, c.Nodes[(old+1)%3].Client)
	eventually(t, 10*time.Second, "fast enqueues", func() bool {
		s, err := other.queue(ctx, "iso")
		return err == nil && s.Ready > 100
	})
	f.isolate(old)
	cut := h.now()
	<-time.After(3 * time.Second) // the length of the partition is the test's input
	eventually(t, 10*time.Second, "another leader", func() bool {
		v, err := other.view(ctx)
		return err == nil && v.Leader != "" && v.Leader != c.Nodes[old].Name
	})
	f.heal()
	close(stop)
	got := answers()
	during := 0
	for _, a := range got {
		if a.at > cut {
			during++
		}
	}
	// The deposed leader has proposed everything again once all is committed.
	eventually(t, 20*time.Second, "every fast answer committed", func() bool {
		a, err := other.do(ctx, "GET", "/v1/log/fate?batch="+got[len(got)-1].batch, nil)
		return err == nil && fateOf(a) == "committed"
	})
	in := content(t, ctx, other, "iso")
	lost, twice := 0, 0
	for _, a := range got {
		switch in[a.body] {
		case 0:
			lost++
		case 1:
		default:
			twice++
		}
	}
	t.Logf("%d fast enqueues answered, %d of them while the leader was cut off: %d lost, %d twice", len(got), during, lost, twice)
	if lost > 0 || twice > 0 || during == 0 {
		t.Errorf("lost %d, twice %d, answered during the cut %d (must be some)", lost, twice, during)
	}
}

func fateOf(a answer) string {
	var got struct{ Fate string }
	json.Unmarshal(a.body, &got)
	return got.Fate
}

// TestFastKilledLeader cuts the leader off, lets it answer fast enqueues, and
// kills it: what is lost is the end of its batches, and fate says "lost" for
// exactly those.
func TestFastKilledLeader(t *testing.T) {
	c, ctx, f := start3ViaProxies(t)
	h := newHistory()
	old := leader(t, c, ctx)
	stop := make(chan struct{})
	answers := fastLoad(ctx, h, old, c.Nodes[old].Client, "kill", 1, stop) // one connection: answers are in batch order
	other := newClient(h, (old+1)%3, c.Nodes[(old+1)%3].Client)
	eventually(t, 10*time.Second, "fast enqueues", func() bool {
		s, err := other.queue(ctx, "kill")
		return err == nil && s.Ready > 100
	})
	f.isolate(old)
	<-time.After(300 * time.Millisecond) // shorter than an election: it still answers fast
	c.Nodes[old].Kill9()
	close(stop)
	got := answers()
	f.heal()
	// Its next start tells the others that the old one is over.
	if err := c.Nodes[old].Start(); err != nil {
		t.Fatal(err)
	}
	if err := c.WaitReady(ctx); err != nil {
		t.Fatal(err)
	}
	fates := map[string]string{}
	for _, a := range got {
		if fates[a.batch] == "" {
			r, err := other.do(ctx, "GET", "/v1/log/fate?batch="+a.batch, nil)
			if err != nil {
				t.Fatal(err)
			}
			fates[a.batch] = fateOf(r)
		}
	}
	in := content(t, ctx, other, "kill")
	lost, over := 0, false
	for i, a := range got {
		there, fate := in[a.body], fates[a.batch]
		switch {
		case fate == "committed" && there == 1 && !over:
		case fate == "lost" && there == 0:
			lost++
			over = true
		default:
			t.Errorf("answer %d of %d (%s): fate %s, in the queue %d times, an earlier one lost: %v", i, len(got), a.batch, fate, there, over)
		}
	}
	t.Logf("%d fast enqueues answered, the last %d of them lost with their node, as their fate says", len(got), lost)
	if lost == 0 {
		t.Error("vacuous: nothing was lost")
	}
}
