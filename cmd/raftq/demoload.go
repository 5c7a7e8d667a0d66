package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"sync/atomic"
	"time"

	"raftq/client"
)

const (
	producersPerNode = 4
	consumersPerNode = 2
	// awayTime is how long a client whose node failed stays with another one.
	awayTime = 300 * time.Millisecond
	// demoAttempt is longer than anything that the nodes take.
	demoAttempt = 50 * time.Second
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
			ans, err := c.call(ctx, client.Request{Method: http.MethodPost, Path: queuePath(demoQueue, "/enqueue"), Body: []byte(name), ContentType: "application/octet-stream"})
			if isUnknown(err) {
				continue // until it is delivered, or not
			}
			if err != nil {
				l.run.ledger.notSent(name)
				return
			}
			var job client.Enqueued
			if json.Unmarshal(ans.Body, &job) != nil || job.ID == "" {
				l.run.ledger.fail(c.name(), "an enqueue answered %q", ans.Body)
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
	take := client.Request{
		Method: http.MethodPost, Path: queuePath(demoQueue, "/dequeue"), Repeat: client.RepeatAlways,
		Query: url.Values{"max": {"10"}, "wait": {"1s"}, "lease": {demoLease}},
	}
	for ctx.Err() == nil {
		ans, err := c.call(ctx, take)
		if err != nil || ans.Status == http.StatusNoContent {
			continue
		}
		var got jobList
		if err := json.Unmarshal(ans.Body, &got); err != nil {
			l.run.ledger.fail(c.name(), "a dequeue answered %q", ans.Body)
			continue
		}
		names := make([]string, len(got.Jobs))
		items := make([]item, len(got.Jobs))
		for i := range got.Jobs {
			names[i], items[i].Receipt = string(got.Jobs[i].body()), got.Jobs[i].Receipt
			l.run.ledger.delivered(names[i], got.Jobs[i].ID, got.Jobs[i].Fence)
		}
		c.ack(ctx, names, items)
	}
}

// isUnknown tells whether an error leaves open if the request was carried out.
func isUnknown(err error) bool {
	var e *client.Error
	return errors.As(err, &e) && e.Applied == client.Unknown
}

// demoClient is a client that stays with its home node as long as that works. It
// chooses nodes by itself, so that each try counts for or against its node.
type demoClient struct {
	run   *demoRun
	home  int
	nodes []*client.Client // of each node alone
	away  time.Time        // until then it asks another node
}

func newDemoClient(d *demoRun, home int) *demoClient {
	c := &demoClient{run: d, home: home}
	for _, n := range d.cluster.Nodes {
		one, err := client.New(n.Client, client.WithRetryFor(0), client.WithAttemptTimeout(demoAttempt))
		if err != nil {
			panic("BUG: " + err.Error()) // the addresses are ours
		}
		c.nodes = append(c.nodes, one)
	}
	return c
}

func (c *demoClient) name() string { return c.run.cluster.Nodes[c.home].Name }

func (c *demoClient) close() {
	for _, n := range c.nodes {
		n.Close()
	}
}

// call carries a request out at home, else at another node, until it is done,
// its answer got lost, or ctx ends. Each failed try counts against its node.
func (c *demoClient) call(ctx context.Context, r client.Request) (*client.Answer, error) {
	node := c.home
	if time.Now().Before(c.away) {
		node = c.next(node)
	}
	for {
		begun := time.Now()
		name := c.run.cluster.Nodes[node].Name
		ans, err := c.nodes[node].Do(ctx, r)
		if err == nil {
			c.run.ledger.answered(name, r.Query.Get("wait") != "", begun, time.Now())
			return ans, nil
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		c.run.ledger.fail(name, "%s: %v", r.Path, err)
		c.away = time.Now().Add(awayTime)
		if !goOn(err, r.Repeat) {
			return nil, err
		}
		node = c.next(node)
		if err := until(ctx, time.Now().Add(patience)); err != nil {
			return nil, err
		}
	}
}

// goOn tells whether the next node may be asked.
func goOn(err error, repeat client.Repeat) bool {
	var e *client.Error
	switch {
	case isUnknown(err):
		return repeat == client.RepeatAlways
	case errors.As(err, &e):
		return e.Code == client.ErrUnreachable || e.Status == http.StatusServiceUnavailable
	}
	return false
}

func (c *demoClient) next(node int) int { return (node + 1) % len(c.run.cluster.Nodes) }

// ack acks jobs until it is known what became of them. A lost lease is nobody's
// fault: the job was given to another.
func (c *demoClient) ack(ctx context.Context, names []string, items []item) {
	ack := client.Request{Method: http.MethodPost, Path: "/v1/ack", Repeat: client.RepeatAlways}
	ans, err := c.call(ctx, withJSON(ack, map[string]any{"items": items}))
	if err != nil {
		return // ctx ended; what is not acked will be missed
	}
	var got struct {
		Results []itemResult `json:"results"`
	}
	if err := json.Unmarshal(ans.Body, &got); err != nil || len(got.Results) != len(items) {
		c.run.ledger.fail(c.name(), "an ack of %d answered %q", len(items), ans.Body)
		return
	}
	index := ans.Meta().Index
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
func queueLeft(ctx context.Context, c *client.Client) (int, error) {
	q, err := c.Queue(ctx, demoQueue)
	return q.Ready + q.Leased + q.Delayed + q.Held + q.Dead, err
}
