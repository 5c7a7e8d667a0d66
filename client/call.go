package client

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

const (
	typeJSON   = "application/json"
	typeFrames = "application/vnd.raftq.frames"
	typeBytes  = "application/octet-stream"
)

// begin makes the request of a call. With RepeatKeyed it gets a key, if it has
// none, or is not repeated.
func (c *Client) begin(ctx context.Context, o *call, method, path string, repeat Repeat) *Request {
	if o.consistency != "" {
		o.set("consistency", string(o.consistency))
	}
	r := &Request{Method: method, Path: path, Repeat: repeat, Key: o.key}
	switch {
	case r.Key != "":
		r.Repeat = RepeatKeyed
	case repeat == RepeatKeyed && c.opts.keys && c.known():
		r.Key, r.auto, r.bare = newKey(), true, RepeatNever
	case repeat == RepeatKeyed:
		r.Repeat = RepeatNever
	}
	c.limit(ctx, o, r)
	r.Query = o.query
	return r
}

// newKey makes a key that nobody made before: 26 letters and digits.
func newKey() string { return rand.Text() }

// limit tells the node how long it has, so that it can say what became of the
// request before the client gives up. It is said once for all attempts: under one
// key they must be alike.
func (c *Client) limit(ctx context.Context, o *call, r *Request) {
	d := o.timeout
	if d == 0 {
		d = c.opts.attempt
	}
	if deadline, ok := ctx.Deadline(); ok {
		d = min(d, time.Until(deadline))
	}
	d = min(max(d, time.Millisecond), timeoutMax)
	o.set("timeout", wireDuration(d))
	r.Attempt = d + attemptGrace
}

// defaultConsistency fills in what the client was made with.
func (c *Client) defaultConsistency(o *call) {
	if o.consistency == "" {
		o.consistency = c.opts.consistency
	}
}

// send carries a request out, fills in the call's Meta and decodes the answer
// into out, unless it is nil.
func (c *Client) send(ctx context.Context, o *call, r *Request, out any) (*Answer, error) {
	ans, err := c.do(ctx, r)
	if err != nil {
		return nil, err
	}
	if o.meta != nil {
		*o.meta = metaOf(ans)
	}
	if out != nil && len(ans.Body) > 0 {
		if err := json.Unmarshal(ans.Body, out); err != nil {
			return nil, notUnderstood(ans, err)
		}
	}
	return ans, nil
}

// notUnderstood is the error of a success whose content makes no sense.
func notUnderstood(ans *Answer, err error) *Error {
	return &Error{
		Code: ErrBadAnswer, Status: ans.Status, Applied: Unknown, Node: ans.Node, Attempts: 1, cause: err,
		Detail: fmt.Sprintf("the answer of %s is not understood: %v", ans.Node, err),
	}
}

func metaOf(ans *Answer) Meta {
	number := func(name string) (uint64, bool) {
		n, err := strconv.ParseUint(ans.Header.Get(name), 10, 64)
		return n, err == nil
	}
	m := Meta{
		Node:   ans.Header.Get("Raftq-Node"),
		Leader: ans.Header.Get("Raftq-Leader"),
		Batch:  ans.Header.Get("Raftq-Batch"),
		Replay: ans.Header.Get("Idempotent-Replay") == "true",
		Stale:  -1,
	}
	m.Index, _ = number("Raftq-Index") // 0 when the answer reflects nothing
	m.Term, _ = number("Raftq-Term")
	if ms, ok := number("Raftq-Time"); ok {
		m.Time = time.UnixMilli(int64(ms)).UTC()
	}
	if ms, ok := number("Raftq-Stale-Ms"); ok {
		m.Stale = time.Duration(ms) * time.Millisecond
	}
	return m
}

// Meta returns what the answer says beside its content.
func (a *Answer) Meta() Meta { return metaOf(a) }

// read makes the request of a read.
func (c *Client) read(ctx context.Context, opts []ReadOption, o *call, path string) *Request {
	for _, f := range opts {
		f.readOption(o)
	}
	c.defaultConsistency(o)
	return c.begin(ctx, o, http.MethodGet, path, RepeatAlways)
}

// jsonBody gives a request a body.
func (r *Request) jsonBody(v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return refuse("the request cannot be written as JSON: %v", err)
	}
	r.Body, r.ContentType = b, typeJSON
	return nil
}

func queuePath(queue, rest string) string { return "/v1/queues/" + pathEscape(queue) + rest }

func jobPath(id, rest string) string { return "/v1/jobs/" + pathEscape(id) + rest }

// pathEscape makes any bytes one path segment. "." and ".." are ones that some
// proxies take out.
func pathEscape(s string) string {
	switch s {
	case ".":
		return "%2E"
	case "..":
		return "%2E%2E"
	}
	return url.PathEscape(s)
}
