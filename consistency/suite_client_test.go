package consistency

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"raftq/consistency/check"
)

// Requests are short, so that faults leave many of them without an answer.
const (
	suiteTimeout = 700 * time.Millisecond // that the node is told
	suiteGrace   = 800 * time.Millisecond // until the client hangs up
)

// suiteHTTP sends requests and never a second time.
type suiteHTTP struct{ http *http.Client }

func newSuiteHTTP() *suiteHTTP {
	return &suiteHTTP{&http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 4, IdleConnTimeout: 5 * time.Second,
		DialContext: (&net.Dialer{Timeout: 300 * time.Millisecond}).DialContext}}}
}

func (c *suiteHTTP) do(ctx context.Context, method, url string, body []byte, header map[string]string) (answer, error) {
	// A body that cannot be read twice: the transport would send it again by itself.
	req, err := http.NewRequestWithContext(ctx, method, url, io.NopCloser(bytes.NewReader(body)))
	if err != nil {
		return answer{}, err
	}
	req.ContentLength = int64(len(body))
	if len(body) == 0 {
		req.Body = http.NoBody
	}
	for k, v := range header {
		req.Header.Set(k, v)
	}
	res, err := c.http.Do(req)
	if err != nil {
		return answer{}, err
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	return answer{res.StatusCode, b, res.Header}, err
}

// suiteClient is one user of the suite.
type suiteClient struct {
	w    *world
	id   int
	node int
	http *suiteHTTP
	loss loss // of the next answer
}

func (w *world) newClient(id, node int) *suiteClient {
	return &suiteClient{w: w, id: id, node: node, http: newSuiteHTTP()}
}

// send carries an operation out and notes what its answer says of itself.
func (c *suiteClient) send(o *check.Op, method, path string, body []byte, header map[string]string) (answer, error) {
	ctx, cancel := context.WithTimeout(c.w.ctx, min(suiteTimeout+suiteGrace+o.Wait, cmp.Or(c.loss.patience, time.Hour)))
	defer cancel()
	a, err := c.http.do(ctx, method, "http://"+c.w.address(c.node)+path, body, header)
	if c.loss.deaf && err == nil {
		a, err = answer{}, errLostAnswer
	}
	o.Outcome = suiteOutcome(a, err)
	switch {
	case err != nil:
		o.Error = err.Error()
	case o.Outcome != check.OK:
		o.Error = fmt.Sprintf("%d %.200s", a.status, a.body)
	}
	o.Index, o.Term, o.By, o.Batch = a.index(), a.term(), a.header.Get("Raftq-Node"), a.header.Get("Raftq-Batch")
	o.TimeMs = int64(a.uint("Raftq-Time"))
	o.Fast = a.status == http.StatusAccepted || o.Batch != ""
	return a, err
}

// suiteOutcome: nothing was sent, or the answer says that nothing was applied;
// done; else nobody knows.
func suiteOutcome(a answer, err error) check.Outcome {
	var dial *net.OpError
	if errors.As(err, &dial) && dial.Op == "dial" {
		return check.Failed
	}
	if err != nil {
		return check.Unknown
	}
	if a.status < 300 {
		return check.OK
	}
	var problem struct{ Applied string }
	if json.Unmarshal(a.body, &problem) == nil && problem.Applied == "no" {
		return check.Failed
	}
	return check.Unknown
}

func (c *suiteClient) op(kind check.Kind, queue string) *check.Op {
	return &check.Op{Kind: kind, Client: c.id, Node: c.node, Queue: queue}
}

// query builds a query with the timeout and, if fast, the consistency.
func query(fast bool, more string) string {
	q := "?timeout=" + suiteTimeout.String() + more
	if fast {
		q += "&consistency=fast"
	}
	return q
}

// enqueue sends jobs. With a key it sends them again, under the same key, until it
// has an answer: that is one operation.
func (c *suiteClient) enqueue(queue string, jobs []check.Job, fast bool, key string) *check.Op {
	o := c.op(check.Enqueue, queue)
	o.Jobs = jobs
	type wire map[string]any
	var list []wire
	for i := range jobs {
		j := &jobs[i]
		m := wire{"body": j.Body}
		set := func(name string, on bool, v any) {
			if on {
				m[name] = v
			}
		}
		set("priority", j.Priority >= 0, j.Priority)
		set("delay", j.Delay > 0, j.Delay.String())
		set("ttl", j.TTL > 0, j.TTL.String())
		set("lease", j.Lease > 0, j.Lease.String())
		set("at_most_once", j.AtMostOnce, true)
		set("max_failures", j.MaxFailures > 0, j.MaxFailures)
		set("dedup_id", j.DedupID != "", j.DedupID)
		set("group", j.Group != "", j.Group)
		set("unique_key", j.UniqueKey != "", j.UniqueKey)
		list = append(list, m)
	}
	body, err := json.Marshal(list)
	if err != nil {
		panic("BUG: " + err.Error())
	}
	header := map[string]string{"Content-Type": "application/json"}
	if key != "" {
		header["Idempotency-Key"] = key
	}
	c.w.rec.Begin(o)
	unknown := false
	for try := range 4 {
		if try > 0 {
			c.node = (c.node + 1) % len(c.w.c.Nodes)
		}
		a, _ := c.send(o, "POST", "/v1/queues/"+queue+"/jobs"+query(fast, ""), body, header)
		if o.Outcome == check.OK {
			c.made(o, a)
			break
		}
		unknown = unknown || o.Outcome == check.Unknown
		if key == "" || c.w.ctx.Err() != nil {
			break
		}
	}
	if unknown && o.Outcome == check.Failed {
		o.Outcome = check.Unknown
	}
	c.w.rec.End(o)
	return o
}

func (c *suiteClient) made(o *check.Op, a answer) {
	var got struct {
		Results []struct {
			ID, Code  string
			Status    int
			Duplicate bool
		}
	}
	if err := json.Unmarshal(a.body, &got); err != nil || len(got.Results) != len(o.Jobs) {
		c.w.t.Errorf("an enqueue of %d answered %q (%v)", len(o.Jobs), a.body, err)
		o.Outcome = check.Unknown
		return
	}
	for _, r := range got.Results {
		if r.Status >= 300 && r.Code != "queue_paused" && r.Code != "not_unique" {
			c.w.t.Errorf("a job was refused: %s", a.body)
		}
		o.Made = append(o.Made, check.Made{ID: r.ID, Duplicate: r.Duplicate, Code: r.Code})
	}
}

// dequeue takes up to max jobs of a queue, and of more to its right.
func (c *suiteClient) dequeue(queue string, max int, wait, lease time.Duration, fast bool, more ...string) *check.Op {
	return c.try("", queue, max, wait, lease, fast, more...)
}

// try is one of the dequeues with an attempt id, or one without.
func (c *suiteClient) try(attempt, queue string, max int, wait, lease time.Duration, fast bool, more ...string) *check.Op {
	o := c.op(check.Dequeue, queue)
	o.Attempt = attempt
	o.Max, o.Wait, o.Lease, o.Mark, o.More = max, wait, lease, fmt.Sprintf("m%d", c.w.load.marks.Add(1)), more
	options := fmt.Sprintf("&max=%d&wait=%s&lease=%s&consumer=%s", max, wait, lease, o.Mark)
	if attempt != "" {
		options += "&attempt_id=" + attempt
	}
	c.w.rec.Begin(o)
	var a answer
	if len(more) == 0 {
		a, _ = c.send(o, "POST", "/v1/queues/"+queue+"/dequeue"+query(fast, options), nil, nil)
	} else {
		a, _ = c.send(o, "POST", "/v1/dequeue"+query(fast, options), encode(map[string][]string{"queues": append([]string{queue}, more...)}), jsonHeader)
	}
	if o.Outcome == check.OK && a.status != http.StatusNoContent {
		var got struct {
			Jobs []struct {
				ID, Receipt, Queue, Body, Group string
				Priority, Deliveries, Failures  int
				Fence                           uint64
				LeaseUntil                      int64 `json:"lease_until_ms"`
			}
		}
		if err := json.Unmarshal(a.body, &got); err != nil || len(got.Jobs) == 0 {
			c.w.t.Errorf("a dequeue answered %.200q (%v)", a.body, err)
			o.Outcome = check.Unknown
		}
		for _, j := range got.Jobs {
			o.Got = append(o.Got, check.Delivery{ID: j.ID, Receipt: j.Receipt, Queue: j.Queue, Body: j.Body, Group: j.Group, Priority: j.Priority,
				Deliveries: j.Deliveries, Failures: j.Failures, Fence: j.Fence, LeaseUntilMs: j.LeaseUntil})
		}
	}
	c.w.rec.End(o)
	return o
}

// settle acks, nacks, releases or extends.
func (c *suiteClient) settle(kind check.Kind, queue string, receipts []string, delay, lease time.Duration, fast bool) *check.Op {
	o := c.op(kind, queue)
	o.Lease = lease
	var b strings.Builder
	b.WriteString(`{"items":[`)
	for i, r := range receipts {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, `{"receipt":%q`, r)
		if kind == check.Nack {
			fmt.Fprintf(&b, `,"delay":%q`, delay)
		}
		if kind == check.Extend {
			fmt.Fprintf(&b, `,"lease":%q`, lease)
		}
		b.WriteByte('}')
		o.Items = append(o.Items, check.Item{Receipt: r, Delay: delay})
	}
	b.WriteString("]}")
	c.w.rec.Begin(o)
	a, _ := c.send(o, "POST", "/v1/"+kind.String()+query(fast, ""), []byte(b.String()), map[string]string{"Content-Type": "application/json"})
	if o.Outcome == check.OK {
		var got struct {
			Results []struct {
				Status              int
				Code                string
				Late, Already, Dead bool
				Cancel              bool
			}
		}
		if err := json.Unmarshal(a.body, &got); err != nil || len(got.Results) != len(receipts) {
			c.w.t.Errorf("%v of %d answered %.200q (%v)", kind, len(receipts), a.body, err)
			o.Outcome = check.Unknown
		}
		for i, r := range got.Results {
			it := &o.Items[i]
			it.Status, it.Code, it.Late, it.Already, it.Dead, it.Cancel = r.Status, r.Code, r.Late, r.Already, r.Dead, r.Cancel
		}
	}
	c.w.rec.End(o)
	return o
}

// count is a strong read.
func (c *suiteClient) count(queue string) *check.Op {
	o := c.op(check.Count, queue)
	c.w.rec.Begin(o)
	a, err := c.send(o, "GET", "/v1/queues/"+queue+query(false, ""), nil, nil)
	if err == nil && a.status == http.StatusNotFound {
		o.Outcome, o.Missing = check.OK, true
	} else if o.Outcome == check.OK {
		if err := json.Unmarshal(a.body, &o.Count); err != nil {
			c.w.t.Errorf("queue %s answered %q", queue, a.body)
		}
	}
	c.w.rec.End(o)
	return o
}

func itoa(n int64) string { return strconv.FormatInt(n, 10) }
