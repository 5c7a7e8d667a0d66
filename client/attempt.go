package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// answerMax bounds what is read of one answer: the largest batch as base64.
	answerMax = 64 << 20
	// attemptGrace is how much longer than the node's own time for a request the
	// client waits for the answer, which says more than a broken connection.
	attemptGrace = time.Second
	// detailMax bounds what is shown of an answer that is not understood.
	detailMax = 200
)

// errAttemptOver: the node took too long.
var errAttemptOver = errors.New("no answer in time")

// attempt sends a request to one node. An error that it returns says of this
// attempt alone whether it may have been applied.
func (c *Client) attempt(caller context.Context, n *node, r *Request) (*Answer, *Error) {
	ctx, cancel := context.WithTimeoutCause(caller, c.attemptTime(caller, r), errAttemptOver)
	defer cancel()
	if r.wait > watchEvery {
		var watching sync.WaitGroup
		defer watching.Wait()
		watched, stop := context.WithCancelCause(ctx)
		defer stop(nil)
		ctx = watched
		watching.Go(func() { c.watch(watched, n, stop) })
	}
	// Whether some byte of it may have reached the node. A transport of the caller's
	// need not tell, and is believed only when it says that it could not connect.
	var sent atomic.Bool
	trace := &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { sent.Store(true) }}
	req, err := http.NewRequestWithContext(httptrace.WithClientTrace(ctx, trace), r.Method, n.base+r.Path, bytes.NewReader(r.Body))
	if err != nil {
		return nil, &Error{Code: ErrInvalidRequest, Applied: NotApplied, Node: n.addr, cause: err}
	}
	if len(r.Query) > 0 {
		req.URL.RawQuery = r.Query.Encode()
	}
	h := req.Header
	for name, v := range r.Header {
		h[name] = v
	}
	c.sign(h)
	if r.ContentType != "" {
		h["Content-Type"] = []string{r.ContentType}
	}
	if r.Accept != "" {
		h["Accept"] = []string{r.Accept}
	}
	if r.Key != "" {
		h["Idempotency-Key"] = []string{r.Key}
	}
	// RoundTrip, not a http.Client: a redirect or a cookie is none of raftq's.
	resp, err := c.transport.RoundTrip(req)
	if err != nil {
		var dial *net.OpError
		connected := sent.Load() || c.own == nil && !(errors.As(err, &dial) && dial.Op == "dial")
		return nil, lost(caller, ctx, n, connected, err)
	}
	defer resp.Body.Close()
	body, err := readAll(resp)
	if err != nil {
		return nil, lost(caller, ctx, n, true, err)
	}
	if resp.StatusCode >= 200 && resp.StatusCode < 300 {
		return &Answer{Status: resp.StatusCode, Header: resp.Header, Body: body, Node: n.addr}, nil
	}
	return nil, parseProblem(n, r, resp, body)
}

// sign says who asks.
func (c *Client) sign(h http.Header) {
	h["User-Agent"] = c.userAgent
	if c.authorization != nil {
		h["Authorization"] = c.authorization
	}
}

// attemptTime is how long an attempt may take. One that may be repeated leaves
// time for another node before the caller's deadline, unless it is to wait.
func (c *Client) attemptTime(ctx context.Context, r *Request) time.Duration {
	d := r.Attempt
	if d == 0 {
		d = c.opts.attempt + attemptGrace
	}
	if deadline, ok := ctx.Deadline(); ok && r.Repeat != RepeatNever && r.wait == 0 && len(c.nodes.all) > 1 {
		d = min(d, max(time.Until(deadline)*2/3, slowMin))
	}
	return d
}

// lost is the error of a request without an answer.
func lost(caller, attempt context.Context, n *node, sent bool, err error) *Error {
	switch {
	case caller.Err() != nil:
		err = endOf(caller)
	case attempt.Err() != nil:
		err = context.Cause(attempt) // its time is over, or the node does not serve
	}
	e := &Error{Code: ErrNoAnswer, Applied: Unknown, Retryable: true, Node: n.addr, cause: err}
	if !sent || seeded == "lost-answer-is-not-applied" {
		e.Code, e.Applied = ErrUnreachable, NotApplied
	}
	e.Detail = fmt.Sprintf("%s: %v", n.addr, withoutAddress(err, n))
	return e
}

// withoutAddress is an error of a connection without the node's address, which stands
// in front of it already.
func withoutAddress(err error, n *node) error {
	var op *net.OpError
	if errors.As(err, &op) && op.Addr != nil && op.Addr.String() == n.addr {
		return op.Err
	}
	return err
}

func readAll(resp *http.Response) ([]byte, error) {
	if resp.ContentLength > answerMax {
		return nil, fmt.Errorf("an answer of %d bytes, more than %d", resp.ContentLength, answerMax)
	}
	if resp.ContentLength >= 0 {
		b := make([]byte, resp.ContentLength)
		_, err := io.ReadFull(resp.Body, b)
		return b, err
	}
	b, err := io.ReadAll(io.LimitReader(resp.Body, answerMax+1))
	if err == nil && len(b) > answerMax {
		err = fmt.Errorf("an answer of more than %d bytes", answerMax)
	}
	return b, err
}

// problem is an error as problem+json has it.
type problem struct {
	Results      []itemResult `json:"results"` // of a list of which nothing was done
	Code         Code         `json:"code"`
	Status       int          `json:"status"`
	Title        string       `json:"title"`
	Detail       string       `json:"detail"`
	Retryable    bool         `json:"retryable"`
	Applied      Applied      `json:"applied"`
	RetryAfterMs int64        `json:"retry_after_ms"`
	FirstOffset  uint64       `json:"first_offset"`
}

// parseProblem reads an answer that is an error.
func parseProblem(n *node, r *Request, resp *http.Response, body []byte) *Error {
	var p problem
	if json.Unmarshal(body, &p) != nil || p.Code == "" || p.Applied == "" {
		return notOurs(n, r, resp, body)
	}
	e := &Error{
		Code: p.Code, Status: resp.StatusCode, Title: p.Title, Detail: p.Detail, Retryable: p.Retryable, Applied: Unknown,
		RetryAfter: time.Duration(p.RetryAfterMs) * time.Millisecond, Node: n.addr, FirstOffset: p.FirstOffset,
	}
	if p.Applied == NotApplied {
		e.Applied = NotApplied
	}
	for i := range p.Results {
		if res := &p.Results[i]; res.Status >= 300 && res.Code != ErrAborted {
			e.Items = append(e.Items, &ItemError{Index: i, ID: res.ID, Err: res.error(n.addr)})
		}
	}
	if s, err := strconv.Atoi(resp.Header.Get("Retry-After")); err == nil && e.RetryAfter == 0 {
		e.RetryAfter = time.Duration(s) * time.Second
	}
	return e
}

// notOurs is an answer of something else than a raftq node: a peer port, a proxy,
// another service. What a proxy did with a request nobody knows.
func notOurs(n *node, r *Request, resp *http.Response, body []byte) *Error {
	e := &Error{Code: ErrBadAnswer, Status: resp.StatusCode, Applied: Unknown, Node: n.addr}
	text := strings.TrimSpace(string(body[:min(len(body), detailMax)]))
	e.Detail = fmt.Sprintf("%s answered %s, which is not raftq's: %q", n.addr, resp.Status, text)
	switch resp.StatusCode {
	case http.StatusNotFound:
		e.Applied = NotApplied
		e.Detail = fmt.Sprintf("%s does not know %s; is this the peer port?", n.addr, r.Path)
	case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		e.Retryable = true
	}
	return e
}
