package consistency

import (
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"raftq/consistency/check"
)

var jsonHeader = map[string]string{"Content-Type": "application/json"}

// problemCode is the code of a refusal.
func problemCode(a answer) string {
	var p struct{ Code string }
	if json.Unmarshal(a.body, &p) != nil {
		return ""
	}
	return p.Code
}

// read parses an answer that is to be JSON.
func (c *suiteClient) parse(o *check.Op, a answer, into any) {
	if err := json.Unmarshal(a.body, into); err != nil {
		c.w.t.Errorf("%v answered %.200q: %v", o, a.body, err)
		o.Outcome = check.Unknown
	}
}

func encode(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic("BUG: " + err.Error())
	}
	return b
}

// ask carries an operation out whose answer is all in got, which stays as it is when
// there is none.
func (c *suiteClient) ask(o *check.Op, method, path string, body []byte, got any) {
	var header map[string]string
	if body != nil {
		header = jsonHeader
	}
	c.w.rec.Begin(o)
	if a, _ := c.send(o, method, path, body, header); o.Outcome == check.OK {
		c.parse(o, a, got)
	}
	c.w.rec.End(o)
}

// append adds messages to a topic.
func (c *suiteClient) append(topic string, bodies []string, fast bool) *check.Op {
	o := c.op(check.Append, "")
	o.Topics = []check.TopicPart{{Topic: topic, Bodies: bodies}}
	var list []map[string]string
	for _, b := range bodies {
		list = append(list, map[string]string{"body": b})
	}
	c.w.rec.Begin(o)
	a, _ := c.send(o, "POST", "/v1/topics/"+topic+"/messages"+query(fast, ""), encode(list), jsonHeader)
	if o.Outcome == check.OK {
		var got struct {
			Offset *uint64
			Count  int
		}
		c.parse(o, a, &got)
		if got.Count != len(bodies) || (got.Offset == nil) != o.Fast {
			c.w.t.Errorf("an append of %d answered %q", len(bodies), a.body)
		} else if got.Offset != nil {
			o.Topics[0].Offset = *got.Offset
		}
	}
	c.w.rec.End(o)
	return o
}

// read reads a topic from an offset on; with wait it waits for the first message.
func (c *suiteClient) read(topic string, from uint64, limit int, wait time.Duration, fast bool) *check.Op {
	o := c.op(check.Read, "")
	o.Topics = []check.TopicPart{{Topic: topic, Offset: from, Limit: limit}}
	o.Wait = wait
	t := &o.Topics[0]
	more := fmt.Sprintf("&from=%d&limit=%d", from, limit)
	if wait > 0 {
		more += "&wait=" + wait.String()
	}
	c.w.rec.Begin(o)
	a, err := c.send(o, "GET", "/v1/topics/"+topic+"/messages"+query(fast, more), nil, nil)
	o.Fast = fast
	var got struct {
		Messages []struct {
			Offset uint64
			Body   string
		}
		First uint64 `json:"first_offset"`
		Next  uint64 `json:"next_offset"`
	}
	switch {
	case err != nil:
	case a.status == http.StatusNoContent:
		t.Empty = true
	case a.status == http.StatusOK || a.status == http.StatusGone:
		c.parse(o, a, &got)
		t.First, t.Next = got.First, got.Next
		if t.Trimmed = a.status == http.StatusGone; t.Trimmed {
			o.Outcome = check.OK
		}
		for _, m := range got.Messages {
			t.At, t.Bodies = append(t.At, m.Offset), append(t.Bodies, m.Body)
		}
	case problemCode(a) == "topic_not_found":
		o.Outcome, o.Missing = check.OK, true
	}
	c.w.rec.End(o)
	return o
}

// commit moves a cursor on from a version; 0 is when there is none yet.
func (c *suiteClient) commit(topic, cursor string, offset, version uint64) *check.Op {
	o := c.op(check.Commit, "")
	o.Topics = []check.TopicPart{{Topic: topic, Cursor: cursor, Offset: offset, IfMatch: version, Create: version == 0}}
	header := map[string]string{"If-None-Match": "*"}
	if version > 0 {
		header = map[string]string{"If-Match": fmt.Sprintf(`"%d"`, version)}
	}
	c.w.rec.Begin(o)
	a, err := c.send(o, "PUT", "/v1/topics/"+topic+"/cursors/"+cursor+query(false, ""), encode(map[string]uint64{"offset": offset}), header)
	switch {
	case err != nil:
	case o.Outcome == check.OK:
		c.parse(o, a, &o.Topics[0])
	case problemCode(a) == "etag_mismatch" || problemCode(a) == "topic_not_found":
		o.Outcome, o.Code = check.OK, problemCode(a)
	}
	c.w.rec.End(o)
	return o
}

// position reads a cursor, strongly.
func (c *suiteClient) position(topic, cursor string) *check.Op {
	o := c.op(check.Position, "")
	o.Topics = []check.TopicPart{{Topic: topic, Cursor: cursor}}
	c.w.rec.Begin(o)
	a, err := c.send(o, "GET", "/v1/topics/"+topic+"/cursors/"+cursor+query(false, ""), nil, nil)
	switch {
	case err != nil:
	case o.Outcome == check.OK:
		c.parse(o, a, &o.Topics[0])
	case a.status == http.StatusNotFound:
		o.Outcome = check.OK
	}
	c.w.rec.End(o)
	return o
}

// tx acks receipts, adds jobs, appends a message (if any) and moves a cursor (if any),
// all or none.
func (c *suiteClient) tx(queue string, receipts []string, jobs []check.Job, message, cursor *check.TopicPart) *check.Op {
	o := c.op(check.Tx, queue)
	o.Jobs = jobs
	var items []map[string]any
	for _, r := range receipts {
		o.Items = append(o.Items, check.Item{Receipt: r})
		items = append(items, map[string]any{"op": "ack", "receipt": r})
	}
	for i := range jobs {
		j := map[string]any{"op": "enqueue", "queue": jobs[i].Queue, "body": jobs[i].Body}
		if jobs[i].Group != "" {
			j["group"] = jobs[i].Group
		}
		items = append(items, j)
	}
	if message != nil {
		o.Topics = append(o.Topics, *message)
		for _, b := range message.Bodies {
			items = append(items, map[string]any{"op": "append", "topic": message.Topic, "body": b})
		}
	}
	if cursor != nil {
		o.Topics = append(o.Topics, *cursor)
		items = append(items, map[string]any{"op": "cursor", "topic": cursor.Topic, "cursor": cursor.Cursor, "offset": cursor.Offset, "if_match": cursor.IfMatch})
	}
	c.w.rec.Begin(o)
	a, err := c.send(o, "POST", "/v1/tx"+query(false, ""), encode(map[string]any{"items": items}), jsonHeader)
	if err == nil && problemCode(a) == "aborted" {
		o.Outcome, o.Aborted = check.OK, true
	}
	if o.Outcome == check.OK {
		c.lines(o, a, len(items))
	}
	c.w.rec.End(o)
	return o
}

// lines takes a transaction's results.
func (c *suiteClient) lines(o *check.Op, a answer, n int) {
	var got struct {
		Results []struct {
			ID, Code        string
			Late, Already   bool
			Offset, Version uint64
		}
	}
	c.parse(o, a, &got)
	if len(got.Results) != n {
		c.w.t.Errorf("a transaction of %d items answered %q", n, a.body)
		o.Outcome = check.Unknown
		return
	}
	all := got.Results
	for i := range o.Items {
		o.Items[i].Code, o.Items[i].Late, o.Items[i].Already = all[i].Code, all[i].Late, all[i].Already
	}
	all = all[len(o.Items):]
	for i := range o.Jobs {
		o.Made = append(o.Made, check.Made{ID: all[i].ID, Code: all[i].Code})
	}
	all = all[len(o.Jobs):]
	for i := range o.Topics {
		t := &o.Topics[i]
		if len(t.Bodies) > 0 {
			t.Offset = all[0].Offset
			all = all[len(t.Bodies):]
		}
		if t.Cursor != "" {
			t.Version = all[0].Version
			all = all[1:]
		}
	}
}

// pause sets a queue's pause.
func (c *suiteClient) pause(queue string, in, out bool, untilMs int64) *check.Op {
	o := c.op(check.Pause, queue)
	o.Paused = &check.PausePart{In: in, Out: out, UntilMs: untilMs}
	body := map[string]any{"in": in, "out": out}
	if untilMs > 0 {
		body["until"] = time.UnixMilli(untilMs).UTC().Format(time.RFC3339Nano)
	}
	c.w.rec.Begin(o)
	c.send(o, "PUT", "/v1/queues/"+queue+"/pause"+query(false, ""), encode(body), jsonHeader)
	c.w.rec.End(o)
	return o
}

// redrive brings dead letters back. max is unlike any other, so that the log tells
// whose it is.
func (c *suiteClient) redrive(queue string, max int) *check.Op {
	o := c.op(check.Redrive, queue)
	o.Max = max
	var got struct{ Redriven int }
	c.ask(o, "POST", "/v1/queues/"+queue+"/redrive"+query(false, ""), encode(map[string]int{"max": max}), &got)
	o.Moved = got.Redriven
	return o
}

// purge drops a queue's ready and delayed jobs.
func (c *suiteClient) purge(queue string) *check.Op {
	o := c.op(check.Purge, queue)
	var got struct{ Purged int }
	c.ask(o, "DELETE", "/v1/queues/"+queue+"/jobs"+query(false, ""), nil, &got)
	o.Moved = got.Purged
	return o
}

// handle holds, requeues or cancels a job.
func (c *suiteClient) handle(kind check.Kind, queue, id string) *check.Op {
	o := c.op(kind, queue)
	o.Mark = id
	c.w.rec.Begin(o)
	a, err := c.send(o, "POST", "/v1/jobs/"+id+"/"+kind.String()+query(false, ""), nil, nil)
	var got struct{ Already, Cancel bool }
	switch {
	case err != nil:
	case o.Outcome == check.OK:
		c.parse(o, a, &got)
		if got.Already {
			o.Did = "already"
		} else if got.Cancel {
			o.Did = "cancel"
		}
	case problemCode(a) == "job_gone" || problemCode(a) == "job_not_found":
		o.Outcome, o.Code = check.OK, problemCode(a)
	}
	c.w.rec.End(o)
	return o
}

// configure tells a queue, or a topic, what to do.
func (c *suiteClient) configure(queue string, p check.ConfigPart) *check.Op {
	o := c.op(check.Configure, queue)
	o.Config = &p
	path, body := "/v1/queues/"+queue, map[string]any{}
	if p.MaxFailures > 0 {
		body["max_failures"] = p.MaxFailures
	}
	if p.DeadLetter != "" {
		body["dead_letter"] = p.DeadLetter
	}
	if p.Topic != "" {
		path, body = "/v1/topics/"+p.Topic, map[string]any{"max_count": p.MaxCount}
	}
	c.w.rec.Begin(o)
	c.send(o, "PUT", path+query(false, ""), encode(body), jsonHeader)
	c.w.rec.End(o)
	return o
}

// peek shows the first ready jobs of a queue, strongly.
func (c *suiteClient) peek(queue string, max int) *check.Op {
	o := c.op(check.Peek, queue)
	o.Max = max
	c.w.rec.Begin(o)
	a, err := c.send(o, "GET", "/v1/queues/"+queue+"/jobs"+query(false, fmt.Sprintf("&state=ready&limit=%d", max)), nil, nil)
	var got struct{ Jobs []struct{ ID string } }
	switch {
	case err != nil:
	case o.Outcome == check.OK:
		c.parse(o, a, &got)
		for _, j := range got.Jobs {
			o.IDs = append(o.IDs, j.ID)
		}
	case a.status == http.StatusNotFound:
		o.Outcome, o.Missing = check.OK, true
	}
	c.w.rec.End(o)
	return o
}

// show shows a job, strongly.
func (c *suiteClient) show(id string) *check.Op {
	o := c.op(check.Show, "")
	o.Mark, o.Facts = id, &check.Facts{}
	c.w.rec.Begin(o)
	a, err := c.send(o, "GET", "/v1/jobs/"+id+query(false, ""), nil, nil)
	var got struct {
		State, Queue, Body, Group      string
		Source                         string `json:"source_queue"`
		Reason                         string `json:"dead_reason"`
		Deliveries, Failures, Redriven int
	}
	switch {
	case err != nil:
	case o.Outcome == check.OK:
		c.parse(o, a, &got)
		*o.Facts = check.Facts{State: got.State, Queue: got.Queue, Source: got.Source, Reason: got.Reason, Body: got.Body, Group: got.Group,
			Deliveries: got.Deliveries, Failures: got.Failures, Redriven: got.Redriven}
	case problemCode(a) == "job_gone":
		o.Outcome, o.Facts.State = check.OK, "gone"
	case problemCode(a) == "job_not_found":
		o.Outcome, o.Facts.State = check.OK, "none"
	}
	c.w.rec.End(o)
	return o
}

// fate asks what became of a fast answer.
func (c *suiteClient) fate(batch string) *check.Op {
	o := c.op(check.Fate, "")
	o.Mark = batch
	var got struct{ Fate string }
	c.ask(o, "GET", "/v1/log/fate"+query(false, "&batch="+batch), nil, &got)
	o.Code = got.Fate
	return o
}
