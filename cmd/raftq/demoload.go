package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"sync/atomic"
	"time"
)

const (
	producersPerNode = 4
	consumersPerNode = 2
	// awayTime is how long a client whose node failed stays with another one.
	awayTime = 300 * time.Millisecond
	// patience between tries when no node could be had.
	patience = 20 * time.Millisecond
)

// demoLoad is the load: tickets, one for each job, due at even intervals.
type demoLoad struct {
	run     *demoRun
	tickets atomic.Int64
}

func newDemoLoad(d *demoRun) *demoLoad { return &demoLoad{run: d} }

// produce sends jobs until the tickets are used up. A job whose answer got lost
// is sent again under another name, so that both can be told apart.
func (l *demoLoad) produce(ctx context.Context, home int) {
	c := newDemoClient(l.run, home)
	defer c.close()
	plan := l.run.plan
	for {
		n := int(l.tickets.Add(1)) - 1
		if n >= plan.jobs || until(ctx, l.run.start.Add(plan.duration*time.Duration(n)/time.Duration(plan.jobs))) != nil {
			return
		}
		for try := 1; ctx.Err() == nil; try++ {
			name := fmt.Sprintf("job %d, try %d", n, try)
			l.run.ledger.sending(name)
			ans, err := c.call(ctx, request{method: http.MethodPost, path: queuePath(demoQueue, "/enqueue"), body: []byte(name)})
			if isUnknown(err) {
				continue // until it is delivered, or not
			}
			if err != nil {
				l.run.ledger.notSent(name)
				return
			}
			var job struct {
				ID string `json:"id"`
			}
			if json.Unmarshal(ans.body, &job) != nil || job.ID == "" {
				l.run.ledger.fail(c.name(), "an enqueue answered %q", ans.body)
			}
			l.run.ledger.enqueued(name, job.ID)
			break
		}
	}
}

// consume takes jobs and acks them.
func (l *demoLoad) consume(ctx context.Context, home int) {
	c := newDemoClient(l.run, home)
	defer c.close()
	take := request{
		method: http.MethodPost, path: queuePath(demoQueue, "/dequeue"), repeatable: true,
		query: url.Values{"max": {"10"}, "wait": {"1s"}, "lease": {demoLease}},
	}
	for ctx.Err() == nil {
		ans, err := c.call(ctx, take)
		if err != nil || ans.status == http.StatusNoContent {
			continue
		}
		var got struct {
			Jobs []struct {
				delivered
				Fence uint64 `json:"fence"`
			} `json:"jobs"`
		}
		if err := json.Unmarshal(ans.body, &got); err != nil {
			l.run.ledger.fail(c.name(), "a dequeue answered %q", ans.body)
			continue
		}
		names := make([]string, len(got.Jobs))
		items := make([]item, len(got.Jobs))
		for i := range got.Jobs {
			body, err := got.Jobs[i].bytes()
			if err != nil {
				l.run.ledger.fail(c.name(), "a body came that cannot be read: %v", err)
			}
			names[i], items[i].Receipt = string(body), got.Jobs[i].Receipt
			l.run.ledger.delivered(names[i], got.Jobs[i].ID, got.Jobs[i].Fence)
		}
		c.ack(ctx, names, items)
	}
}

// demoClient is a client that stays with its home node as long as that works.
type demoClient struct {
	run  *demoRun
	home int
	api  *api
	away time.Time // until then it asks another node
}

func newDemoClient(d *demoRun, home int) *demoClient {
	a, err := newAPI(d.cluster.Endpoints())
	if err != nil {
		panic("BUG: " + err.Error()) // the addresses are ours
	}
	a.http.Timeout = time.Minute
	return &demoClient{run: d, home: home, api: a}
}

func (c *demoClient) name() string { return c.run.cluster.Nodes[c.home].Name }

func (c *demoClient) close() { c.api.http.CloseIdleConnections() }

// call carries a request out at home, else at another node, until it is done,
// its answer got lost, or ctx ends. Each failed try counts against its node.
func (c *demoClient) call(ctx context.Context, r request) (*answer, error) {
	node := c.home
	if time.Now().Before(c.away) {
		node = c.next(node)
	}
	for {
		begun := time.Now()
		name := c.run.cluster.Nodes[node].Name
		ans, err := c.api.sendTo(ctx, node, r)
		if err == nil {
			c.run.ledger.answered(name, r.query.Get("wait") != "", begun, time.Now())
			return ans, nil
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		c.run.ledger.fail(name, "%s: %v", r.path, err)
		c.away = time.Now().Add(awayTime)
		if !goOn(err, r.repeatable) {
			return nil, err
		}
		node = c.next(node)
		if err := until(ctx, time.Now().Add(patience)); err != nil {
			return nil, err
		}
	}
}

func (c *demoClient) next(node int) int { return (node + 1) % len(c.run.cluster.Nodes) }

// ack acks jobs until it is known what became of them. A lost lease is nobody's
// fault: the job was given to another.
func (c *demoClient) ack(ctx context.Context, names []string, items []item) {
	ans, err := c.call(ctx, request{method: http.MethodPost, path: "/v1/ack", json: map[string]any{"items": items}, repeatable: true})
	if err != nil {
		return // ctx ended; what is not acked will be missed
	}
	var got struct {
		Results []itemResult `json:"results"`
	}
	if err := json.Unmarshal(ans.body, &got); err != nil || len(got.Results) != len(items) {
		c.run.ledger.fail(c.name(), "an ack of %d answered %q", len(items), ans.body)
		return
	}
	index, _ := strconv.ParseUint(ans.header.Get("Raftq-Index"), 10, 64) // 0 would show as doubled jobs
	for i, r := range got.Results {
		switch {
		case r.Status < 300:
			c.run.ledger.acked(names[i], index)
		case r.Code != "lease_lost":
			c.run.ledger.fail(c.name(), "ack of %s: %s", names[i], r.Code)
		}
	}
}

// queueLeft returns how many jobs the demo's queue holds.
func queueLeft(ctx context.Context, a *api) (int, error) {
	ans, err := a.do(ctx, get(queuePath(demoQueue, ""), nil))
	if err != nil {
		return 0, err
	}
	var q queueStats
	if err := json.Unmarshal(ans.body, &q); err != nil {
		return 0, err
	}
	return q.Ready + q.Leased + q.Delayed + q.Held + q.Dead, nil
}
