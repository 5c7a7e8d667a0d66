package consistency

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"time"
)

// client is one connection's worth of user, pinned to a node. It never retries by
// itself: each request is recorded with what came of it.
type client struct {
	h    *history
	node int
	addr string
	http *http.Client
	// fleet, if set, is where it goes on when its node says that nothing was done.
	fleet *fleet
}

func newClient(h *history, node int, addr string) *client {
	return &client{h: h, node: node, addr: addr, http: &http.Client{
		Timeout: 90 * time.Second,
		Transport: &http.Transport{MaxIdleConnsPerHost: 1,
			DialContext: (&net.Dialer{Timeout: time.Second}).DialContext},
	}}
}

type answer struct {
	status int
	body   []byte
	header http.Header
}

func (a answer) index() uint64 { return a.uint("Raftq-Index") }
func (a answer) term() uint64  { return a.uint("Raftq-Term") }
func (a answer) uint(name string) uint64 {
	n, _ := strconv.ParseUint(a.header.Get(name), 10, 64)
	return n
}

// outcome says what an answer promises about the operation.
func (a answer) outcome(err error) outcome {
	switch {
	case err != nil || a.status == http.StatusGatewayTimeout:
		return unknown
	case a.status < 300:
		return done
	default:
		return refused
	}
}

// do sends one request. Answers that a client of a healthy node must not see are
// recorded as errors.
func (c *client) do(ctx context.Context, method, path string, body []byte) (answer, error) {
	a, err := c.send(ctx, method, path, body)
	for end := time.Now().Add(roamMax); c.fleet != nil && nothingDone(a, err) && time.Now().Before(end) && ctx.Err() == nil; {
		c.node, c.addr = c.fleet.next(c.node)
		a, err = c.send(ctx, method, path, body)
	}
	switch {
	case err != nil && ctx.Err() == nil:
		c.h.failed(c.node, "%s %s: %v", method, path, err)
	case err == nil && a.status >= 500:
		c.h.failed(c.node, "%s %s: %d %s", method, path, a.status, a.body)
	}
	return a, err
}

func (c *client) send(ctx context.Context, method, path string, body []byte) (answer, error) {
	req, err := http.NewRequestWithContext(ctx, method, "http://"+c.addr+path, bytes.NewReader(body))
	if err != nil {
		return answer{}, err
	}
	if len(body) > 0 && body[0] == '{' {
		req.Header.Set("Content-Type", "application/json")
	}
	res, err := c.http.Do(req)
	if err != nil {
		return answer{}, err
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		return answer{}, err
	}
	return answer{res.StatusCode, b, res.Header}, nil
}

// enqueue sends one job and returns its answer.
func (c *client) enqueue(ctx context.Context, queue, body string) (answer, *enqueue) {
	e := c.h.startEnqueue(body)
	a, err := c.do(ctx, "POST", "/v1/queues/"+queue+"/enqueue", []byte(body))
	e.ret, e.outcome, e.index = c.h.now(), a.outcome(err), a.index()
	if e.outcome == done {
		var got struct{ ID string }
		if err := json.Unmarshal(a.body, &got); err != nil || got.ID == "" {
			c.h.failed(c.node, "enqueue answered %q", a.body)
		}
		e.id = got.ID
	}
	return a, e
}

// dequeue takes up to max jobs; jobs it got are in the history.
func (c *client) dequeue(ctx context.Context, queue string, max int, wait, lease time.Duration) (answer, []*delivery, error) {
	call := c.h.now()
	a, err := c.do(ctx, "POST", fmt.Sprintf("/v1/queues/%s/dequeue?max=%d&wait=%dms&lease=%dms", queue, max, wait.Milliseconds(), lease.Milliseconds()), nil)
	if err != nil || a.status != http.StatusOK {
		return a, nil, err
	}
	var got struct {
		Jobs []struct {
			ID, Receipt, Body string
			Fence             uint64
			Deliveries        int
		}
	}
	if err := json.Unmarshal(a.body, &got); err != nil {
		c.h.failed(c.node, "dequeue answered %q: %v", a.body, err)
		return a, nil, err
	}
	var ds []*delivery
	for _, j := range got.Jobs {
		d := &delivery{id: j.ID, body: j.Body, receipt: j.Receipt, node: c.node, call: call, ret: c.h.now(), lease: lease, fence: j.Fence, deliveries: j.Deliveries}
		c.h.add(d)
		ds = append(ds, d)
	}
	return a, ds, nil
}

// ack ends a delivery.
func (c *client) ack(ctx context.Context, d *delivery) answer {
	d.ackCall = c.h.now()
	a, err := c.do(ctx, "POST", "/v1/ack", fmt.Appendf(nil, `{"items":[{"receipt":%q}]}`, d.receipt))
	d.ackRet = c.h.now()
	d.ack = a.outcome(err)
	if a.status == http.StatusMultiStatus {
		// 409 and the like: the lease was lost.
		d.ack = refused
	}
	return a
}

// state is a strong read of a queue's counts.
type queueState struct{ Ready, Delayed, Leased, Held, Dead, Waiters int }

func (c *client) queue(ctx context.Context, queue string) (s queueState, err error) {
	a, err := c.do(ctx, "GET", "/v1/queues/"+queue, nil)
	if err != nil {
		return s, err
	}
	if a.status == http.StatusNotFound {
		return s, nil
	}
	if a.status != http.StatusOK {
		return s, fmt.Errorf("queue %s: %d %s", queue, a.status, a.body)
	}
	return s, json.Unmarshal(a.body, &s)
}

// view is GET /v1/cluster.
type clusterView struct {
	Leader string
	Term   uint64
	Nodes  []struct {
		Name    string
		Applied uint64 `json:"applied_index"`
		Alive   bool
		Chain   struct {
			Index uint64
			Hash  string
		}
	}
}

func (c *client) view(ctx context.Context) (v clusterView, err error) {
	a, err := c.do(ctx, "GET", "/v1/cluster", nil)
	if err != nil {
		return v, err
	}
	return v, json.Unmarshal(a.body, &v)
}

// metric reads one figure of /metrics.
func (c *client) metric(ctx context.Context, name string) (float64, error) {
	a, err := c.do(ctx, "GET", "/metrics", nil)
	if err != nil {
		return 0, err
	}
	for line := range bytes.Lines(a.body) {
		if v, ok := bytes.CutPrefix(bytes.TrimSpace(line), []byte(name+" ")); ok {
			return strconv.ParseFloat(string(v), 64)
		}
	}
	return 0, fmt.Errorf("no metric %s", name)
}
