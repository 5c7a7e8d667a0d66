package consistency

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"raftq/cluster"
)

// fastAnswer is an enqueue that the leader answered before commit.
type fastAnswer struct {
	body, id, batch string
	by              string // name of the node that answered: a follower passes it on
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
					all = append(all, fastAnswer{body, got.ID, a.header.Get("Raftq-Batch"), a.header.Get("Raftq-Node"), h.now()})
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
	for range 3 {
		if fastKilled(t) {
			return
		}
		t.Log("leadership moved before the cut; once more")
	}
	t.Error("leadership never stayed for a moment")
}

// fastKilled is false when leadership had moved before the cut, so that another
// node answered.
func fastKilled(t *testing.T) bool {
	c, ctx, f := start3ViaProxies(t)
	h := newHistory()
	old := leader(t, c, ctx)
	name := c.Nodes[old].Name
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
	if slices.ContainsFunc(got, func(a fastAnswer) bool { return a.by != name }) {
		return false
	}
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
	return true
}

// TestNobodySeesUncommitted lets a leader that is cut off answer fast enqueues,
// and reads everything, everywhere: no trace of them is seen before they commit.
func TestNobodySeesUncommitted(t *testing.T) {
	for range 3 {
		if nobodySees(t) {
			return
		}
		t.Log("leadership moved before the cut; once more")
	}
	t.Error("leadership never stayed for a moment")
}

func nobodySees(t *testing.T) bool {
	c, ctx, f := start3ViaProxies(t)
	h := newHistory()
	old := leader(t, c, ctx)
	on := newClient(h, old, c.Nodes[old].Client)
	_, before := on.enqueue(ctx, "seen", "committed before")
	f.isolate(old)
	a, err := on.do(ctx, "POST", "/v1/queues/seen/enqueue?consistency=fast", []byte("not committed"))
	if err == nil && a.header.Get("Raftq-Node") != c.Nodes[old].Name {
		return false
	}
	if err != nil || a.status != http.StatusAccepted {
		t.Fatalf("fast enqueue on a leader just cut off: %d %s %v", a.status, a.body, err)
	}
	var got struct{ ID string }
	json.Unmarshal(a.body, &got)
	batch := a.header.Get("Raftq-Batch")
	a2, _ := on.do(ctx, "POST", "/v1/queues/new/enqueue?consistency=fast", []byte("a new queue"))
	if a2.status != http.StatusAccepted {
		t.Fatalf("second fast enqueue: %d %s", a2.status, a2.body)
	}
	look := func(node int, path string) answer {
		a, err := newClient(h, node, c.Nodes[node].Client).do(ctx, "GET", path, nil)
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	for node := range c.Nodes {
		for _, how := range []string{"consistency=fast&timeout=1s", "timeout=300ms"} {
			if a := look(node, "/v1/jobs/"+got.ID+"?"+how); a.status == 200 {
				t.Errorf("node %d, %s: the job is seen: %s", node, how, a.body)
			}
			if a := look(node, "/v1/queues/new?"+how); a.status == 200 {
				t.Errorf("node %d, %s: the new queue is seen: %s", node, how, a.body)
			}
			if a := look(node, "/v1/queues?"+how); a.status == 200 && strings.Contains(string(a.body), `"new"`) {
				t.Errorf("node %d, %s: the new queue is listed: %s", node, how, a.body)
			}
			var q queueState
			if a := look(node, "/v1/queues/seen?"+how); a.status == 200 && (json.Unmarshal(a.body, &q) != nil || q.Ready != 1) {
				t.Errorf("node %d, %s: %s", node, how, a.body)
			}
			if a := look(node, "/v1/log/fate?batch="+batch+"&"+how); a.status == 200 && fateOf(a) != "pending" {
				t.Errorf("node %d, %s: fate %s", node, how, a.body)
			}
		}
		if a := look(node, "/metrics"); strings.Contains(string(a.body), `queue="new"`) {
			t.Errorf("node %d: the new queue is in the metrics", node)
		}
	}
	// A dequeue hands out the committed job alone, wherever it is asked.
	other := newClient(h, (old+1)%3, c.Nodes[(old+1)%3].Client)
	eventually(t, 20*time.Second, "another leader", func() bool {
		v, err := other.view(ctx)
		return err == nil && v.Leader != "" && v.Leader != c.Nodes[old].Name
	})
	_, ds, err := other.dequeue(ctx, "seen", 10, 0, time.Minute)
	if err != nil || len(ds) != 1 || ds[0].id != before.id {
		t.Errorf("dequeue: %v %+v", err, ds)
	}
	f.heal()
	eventually(t, 20*time.Second, "the fast enqueues committed", func() bool {
		return fateOf(look((old+1)%3, "/v1/log/fate?batch="+batch)) == "committed"
	})
	_, ds, err = other.dequeue(ctx, "seen", 10, 0, time.Minute)
	if err != nil || len(ds) != 1 || ds[0].id != got.ID {
		t.Errorf("dequeue after the heal: %v %+v", err, ds)
	}
	return true
}
