package consistency

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"
)

// timed is a delay, lease or TTL on its way.
type timed struct {
	what  string
	after time.Duration
	begun time.Time // the request that began it was sent
	dueMs int64     // in log time
}

// lateness gathers how late each came.
type lateness struct {
	lock  sync.Mutex
	early int
	late  map[string][]time.Duration
}

// over says that a timer ended with an answer that shows this log time.
func (l *lateness) over(t *testing.T, e timed, logMs int64) {
	late := time.Since(e.begun.Add(e.after))
	l.lock.Lock()
	defer l.lock.Unlock()
	l.late[e.what] = append(l.late[e.what], late)
	if logMs < e.dueMs {
		l.early++
		t.Errorf("a %s of %v ended at log time %d, %d ms early", e.what, e.after, logMs, e.dueMs-logMs)
	}
}

// TestTimers proves on real nodes that of random delays, leases and TTLs none ends
// early in log time, and that on nodes with nothing else to do none is seen late: its
// end is counted where a waiting client of another node sees it. RAFTQ_TIMERS sets how
// many; 10,000 by hand.
func TestTimers(t *testing.T) {
	n := env("RAFTQ_TIMERS", 300)
	c, ctx := start(t, 3)
	h := newHistory()
	lead := leader(t, c, ctx)
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))

	// All begin before the first ends, at a rate that leaves the nodes at rest.
	const rate = 200 // a second
	least := max(15*time.Second, time.Duration(n)*time.Second/rate)
	span := max(3*time.Second, time.Duration(n)*time.Second/rate)
	type begun struct {
		lock sync.Mutex
		all  map[string]timed // by id
	}
	jobs := begun{all: map[string]timed{}}
	lates := &lateness{late: map[string][]time.Duration{}}
	var workers, ttls sync.WaitGroup
	stop := make(chan struct{})

	// consume takes what becomes ready in a queue and acks it, at every node.
	consume := func(queue string, node int) {
		u := &api{t, ctx, newClient(h, node, c.Nodes[node].Client)}
		for {
			select {
			case <-stop:
				return
			default:
			}
			a, err := u.c.do(ctx, "POST", "/v1/queues/"+queue+"/dequeue?wait=1s&max=1", nil)
			if err != nil || a.status != 200 && a.status != 204 {
				t.Errorf("dequeue: %v %d %s", err, a.status, a.body)
				return
			}
			if a.status == 204 {
				continue
			}
			var got struct {
				Jobs []struct{ ID, Receipt string }
			}
			if err := json.Unmarshal(a.body, &got); err != nil || len(got.Jobs) != 1 {
				t.Errorf("%v: %s", err, a.body)
				return
			}
			jobs.lock.Lock()
			e, ok := jobs.all[got.Jobs[0].ID]
			delete(jobs.all, got.Jobs[0].ID)
			jobs.lock.Unlock()
			if !ok {
				t.Errorf("%s of %s came twice, or unasked", got.Jobs[0].ID, queue)
				return
			}
			lates.over(t, e, int64(a.uint("Raftq-Time")))
			u.settle("ack", got.Jobs[0].Receipt, "")
		}
	}
	// add enqueues a job, and keeps what is timed about it.
	begin := func(u *api, kind int, after time.Duration) {
		e := timed{after: after}
		ms := after.Milliseconds()
		options := ""
		queue := [...]string{"delays", "leases", "ttls"}[kind]
		switch kind {
		case 0:
			e.what, options = "delay", fmt.Sprintf("delay=%dms", ms)
		case 1:
			e.what = "lease"
		case 2:
			e.what, options = "ttl", fmt.Sprintf("ttl=%dms", ms)
		}
		e.begun = time.Now()
		jobs.lock.Lock() // a job may come before its enqueue is answered
		defer jobs.lock.Unlock()
		a, err := u.c.do(ctx, "POST", "/v1/queues/"+queue+"/enqueue?"+options, []byte("x"))
		var got struct{ ID string }
		if err != nil || a.status != 201 || json.Unmarshal(a.body, &got) != nil {
			t.Errorf("enqueue: %v %d %s", err, a.status, a.body)
			return
		}
		e.dueMs = int64(a.uint("Raftq-Time")) + ms
		id := got.ID
		if kind == 1 {
			e.begun = time.Now()
			a, err := u.c.do(ctx, "POST", fmt.Sprintf("/v1/queues/leases/dequeue?lease=%dms", ms), nil)
			var got struct{ Jobs []struct{ ID string } }
			if err != nil || a.status != 200 || json.Unmarshal(a.body, &got) != nil || len(got.Jobs) != 1 {
				t.Errorf("dequeue: %v %d %s", err, a.status, a.body)
				return
			}
			id, e.dueMs = got.Jobs[0].ID, int64(a.uint("Raftq-Time"))+ms
		}
		if kind != 2 {
			jobs.all[id] = e
			return
		}
		node := random.IntN(3)
		ttls.Go(func() {
			u := &api{t, ctx, newClient(h, node, c.Nodes[node].Client)}
			defer u.c.http.CloseIdleConnections()
			var a answer
			for got := (object{}); got.text("state") == ""; {
				var err error
				a, err = u.c.do(ctx, "GET", "/v1/jobs/"+id+"/wait?for=done&timeout=50s", nil)
				if err != nil || a.status != 200 && a.status != 204 {
					t.Errorf("wait: %v %d %s", err, a.status, a.body)
					return
				}
				if a.status == 200 {
					if err := json.Unmarshal(a.body, &got); err != nil {
						t.Error(err)
						return
					}
				}
			}
			lates.over(t, e, int64(a.uint("Raftq-Time")))
		})
	}

	follower := (lead + 1) % 3
	u := &api{t, ctx, newClient(h, follower, c.Nodes[follower].Client)}
	first := time.Now()
	for i := range n {
		begin(u, i%3, least+time.Duration(random.Int64N(int64(span))))
	}
	if took := time.Since(first); took > least {
		t.Fatalf("seed %d: it took %v to begin %d timers: the first were over by then", seed, took, n)
	}
	for _, queue := range []string{"delays", "leases"} {
		for node := range 3 {
			for range 4 {
				workers.Go(func() { consume(queue, node) })
			}
		}
	}
	ttls.Wait()
	eventually(t, least+span+10*time.Second, "all are over", func() bool {
		jobs.lock.Lock()
		defer jobs.lock.Unlock()
		return len(jobs.all) == 0
	})
	close(stop)
	workers.Wait()

	lates.lock.Lock()
	defer lates.lock.Unlock()
	// A disk that others use makes some late; the bar is for machines at rest.
	most := 5 * time.Second
	if n >= 10_000 {
		most = 100 * time.Millisecond
	}
	for what, l := range lates.late {
		slices.Sort(l)
		t.Logf("%s: %d, %d early; late by %v (median), %v (p99), %v (worst)", what, len(l), lates.early, l[len(l)/2], l[len(l)*99/100], l[len(l)-1])
		if worst := l[len(l)-1]; worst > most {
			t.Errorf("seed %d: a %s was %v late, want at most %v", seed, what, worst, most)
		}
		if median := l[len(l)/2]; median > 100*time.Millisecond {
			t.Errorf("seed %d: half of all came %v late, want at most 100 ms", seed, median)
		}
	}
	if len(lates.late) != 3 {
		t.Errorf("seed %d: %d kinds of timers were seen", seed, len(lates.late))
	}
}
