package client

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"net/url"
	"time"
)

// Repeat says whether a request may be sent again when it is not known whether
// it was applied. One that surely was not is always sent again.
type Repeat uint8

const (
	// RepeatNever: doing it twice would do harm.
	RepeatNever Repeat = iota
	// RepeatAlways: doing it twice does no more than doing it once.
	RepeatAlways
	// RepeatKeyed: the request's key makes the servers do it once; a repeat is
	// answered as the first was. Do makes a key when there is none.
	RepeatKeyed
)

// Request is one call of the REST API, for Do.
type Request struct {
	Method      string
	Path        string // escaped, begins with /
	Query       url.Values
	Body        []byte // not touched until Do returns
	ContentType string
	Accept      string // "" is JSON
	Key         string // sent as Idempotency-Key, when not empty
	Repeat      Repeat
	// Attempt is how long one node may take to answer; 0 is the client's
	// WithAttemptTimeout.
	Attempt time.Duration
	Header  http.Header // more fields, If-Match for instance

	wait time.Duration // how long the node is asked to wait
	auto bool          // its key or attempt id is the client's own
	bare Repeat        // what Repeat is without that
}

// Answer is what a node said, with a status below 300.
type Answer struct {
	Status int
	Header http.Header
	Body   []byte
	Node   string // address of the node that was asked

	unsure bool // an earlier attempt may have been applied before this one
}

// Pauses between rounds: when each node was asked and none could do it.
const (
	pauseMin = 50 * time.Millisecond
	pauseMax = 2 * time.Second
)

// slowMin is how long an answer may surely take: a node that has not answered by
// then when the caller's deadline comes is passed over for a while.
const slowMin = time.Second

// Do carries a request out on the first node that can, and goes on to others by
// the rules of the package: it is what all other calls are made of, and the way
// to routes that have no method of their own. Its error is an *Error.
func (c *Client) Do(ctx context.Context, r Request) (*Answer, error) {
	if r.Repeat == RepeatKeyed && r.Key == "" {
		r.Key = newKey()
	}
	ans, err := c.do(ctx, &r)
	if err != nil {
		return nil, err
	}
	return ans, nil
}

// do is Do with its error's type.
func (c *Client) do(ctx context.Context, r *Request) (*Answer, *Error) {
	began := c.now()
	var last, told *Error // of the last attempt; of this round's attempts, the one that says most
	unknown := false      // an attempt may have been applied
	var tried []*node
	for attempts, round := 1, 0; ; attempts++ {
		if ctx.Err() != nil {
			return nil, ended(ctx, told)
		}
		n := c.nodes.pick(tried)
		if n == nil && r.auto && !unknown && last.Code == ErrFeatureLevel {
			r, tried = c.withoutKey(r), tried[:0]
			n = c.nodes.pick(nil)
		}
		if n == nil { // a whole round failed
			pause := c.pause(round, last)
			if c.now().Add(pause).Sub(began) > c.opts.retryFor {
				return nil, told
			}
			if !sleep(ctx, pause) {
				return nil, ended(ctx, told)
			}
			round++
			tried, told = tried[:0], nil
			n = c.nodes.pick(nil)
		}
		sent := c.now()
		ans, err := c.attempt(ctx, n, r)
		if err == nil {
			c.well(n)
			ans.unsure = unknown && r.Repeat != RepeatKeyed
			if attempts > 1 {
				c.log.Debug("request went well after retries", "path", r.Path, "node", n.addr, "attempts", attempts, "took", c.now().Sub(began))
			}
			return ans, nil
		}
		again := c.judge(ctx, n, sent, r, err)
		if r.Method == http.MethodGet || r.Method == http.MethodHead {
			err.Applied = NotApplied // whatever was said: state never changes by one
		}
		unknown = unknown || err.Applied == Unknown
		if unknown && !(r.Repeat == RepeatKeyed && decided(err)) {
			err.Applied = Unknown
		}
		err.Attempts = attempts
		if !again {
			return nil, err
		}
		last, told = err, moreTelling(told, err)
		tried = append(tried, n)
	}
}

// moreTelling returns which of a round's errors the caller is to see: what a node said
// tells more than silence, and that more than a closed port, which the death of one
// node alone explains. It tells of all attempts so far. a may be nil.
func moreTelling(a, b *Error) *Error {
	if a == nil || says(b) >= says(a) {
		return b
	}
	e := *a
	e.Applied, e.Attempts = b.Applied, b.Attempts
	return &e
}

func says(e *Error) int {
	switch {
	case e.Status != 0:
		return 2
	case e.Code == ErrNoAnswer:
		return 1
	}
	return 0
}

// withoutKey returns a request without the key that the client gave it. A cluster of
// which a member has never been started, or is older, knows no keys, and is to work
// all the same.
func (c *Client) withoutKey(r *Request) *Request {
	c.keyless.Store(c.now().Add(keylessFor).UnixNano())
	bare := *r
	bare.Key, bare.Repeat, bare.auto = "", r.bare, false
	if bare.Query.Has(attemptID) {
		bare.Query = maps.Clone(r.Query)
		bare.Query.Del(attemptID)
	}
	return &bare
}

// keylessFor is how long no keys are tried after no node knew them.
const keylessFor = time.Second

// known tells whether the servers know keys and attempt ids, as far as is known.
func (c *Client) known() bool { return c.now().UnixNano() >= c.keyless.Load() }

// judge notes what an error says of its node, and tells whether the request may
// be sent again.
func (c *Client) judge(ctx context.Context, n *node, sent time.Time, r *Request, err *Error) bool {
	rest, first := time.Duration(0), false
	again := false
	switch {
	case err.Status == 0 && ctx.Err() != nil && (errors.Is(ctx.Err(), context.Canceled) || c.now().Sub(sent) < r.wait+slowMin):
		return false // the caller's end says nothing of the node
	case err.Status == 0: // unreachable, or no answer
		rest, first = c.nodes.failed(n, sent)
		again = true
	case err.Code == ErrOverloaded, err.Code == ErrRateLimited:
		c.nodes.busy(n, err.RetryAfter)
		again = true
	case err.Code == ErrNotFresh, err.Code == ErrRequestTimeout:
		again = true
	case err.Code == ErrFeatureLevel:
		c.well(n)
		again = true // a node that has just started knows the others' levels last
	case err.Code == ErrNotEnoughReplicas:
		c.well(n) // the cluster's state, on every node
	case err.Status == http.StatusServiceUnavailable, err.Status == http.StatusGatewayTimeout:
		rest, first = c.nodes.failed(n, sent) // no leader, leaving, loading; cut off from the leader
		again = true
	case err.Code == ErrInternal: // a bug, which every node has
	case err.Applied == Unknown:
		again = true
	default:
		c.well(n) // it works, and refused
	}
	if err.Applied == Unknown && r.Repeat == RepeatNever && seeded != "retry-without-key" {
		again = false
	}
	switch {
	case first: // an outage is told once, however long it lasts
		c.log.Info("node cannot serve", "node", n.addr, "error", err)
	case rest > 0:
		c.log.Debug("node still cannot serve", "node", n.addr, "rests", rest, "error", err)
	}
	return again
}

// well notes that a node answered.
func (c *Client) well(n *node) {
	if c.nodes.well(n) {
		c.log.Info("node serves again", "node", n.addr)
	}
}

// decided tells whether a refusal of a request with a key also says what became
// of earlier attempts under it: the machine keeps what it answers, and a request
// that is malformed was so the first time.
func decided(err *Error) bool {
	switch err.Status {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusRequestTimeout:
		return false
	}
	return err.Status >= 400 && err.Status < 500 && err.Code != ErrRateLimited && err.Code != ErrBadAnswer
}

// pause is how long to wait after a round that failed.
func (c *Client) pause(round int, last *Error) time.Duration {
	d := min(pauseMin<<min(round, 16), pauseMax)
	if last != nil {
		d = max(d, min(last.RetryAfter, pauseMax))
	}
	return d
}

// sleep waits, and tells whether the context lasted.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
