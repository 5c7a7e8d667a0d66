package client

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"
	"unicode/utf8"
)

// Settled is what became of a job that was acked, nacked, released, rejected or
// extended.
type Settled struct {
	ID         string        `json:"id"`
	Late       bool          `json:"late,omitempty"`       // acked after its lease; nobody else had it
	Already    bool          `json:"already,omitempty"`    // acked before
	Dead       bool          `json:"dead,omitempty"`       // this failure was its last
	Cancel     bool          `json:"cancel,omitempty"`     // extended, but somebody wants the work to stop
	LeaseUntil time.Time     `json:"lease_until,omitzero"` // extended until then, in log time
	Lease      time.Duration `json:"-"`                    // how long that was when the node answered
}

// itemResult is a line of a batch's answer.
type itemResult struct {
	Settled
	Status       int    `json:"status"`
	Code         Code   `json:"code"`
	Detail       string `json:"detail"`
	Duplicate    bool   `json:"duplicate"`
	Offset       uint64 `json:"offset"`
	Version      uint64 `json:"version"`
	Retryable    bool   `json:"retryable"`
	RetryAfterMs int64  `json:"retry_after_ms"`
}

// error is a refused item's.
func (r *itemResult) error(node string) *Error {
	e := &Error{
		Code: r.Code, Status: r.Status, Detail: r.Detail, Applied: NotApplied, Retryable: r.Retryable || retryable(r.Status),
		RetryAfter: time.Duration(r.RetryAfterMs) * time.Millisecond, Node: node, Attempts: 1,
	}
	if e.Code == "" {
		e.Code = ErrBadAnswer
	}
	return e
}

// retryable tells whether a status is one of those that pass.
func retryable(status int) bool {
	switch status {
	case http.StatusTooManyRequests, http.StatusServiceUnavailable, http.StatusGatewayTimeout, http.StatusInsufficientStorage:
		return true
	}
	return false
}

// Verb is what is done with a job that was handed out.
type Verb string

// Verbs of Settle.
const (
	VerbAck     Verb = "ack"     // done: the job is gone
	VerbNack    Verb = "nack"    // failed: counted and given back
	VerbRelease Verb = "release" // given back, not counted
	VerbReject  Verb = "reject"  // dead at once
	VerbExtend  Verb = "extend"  // a new lease from now
)

// Settlement is what to do with one job.
type Settlement struct {
	Verb Verb
	// Ref is the job's receipt. An id works too, but says nothing of who holds the
	// job by now.
	Ref   string
	Delay time.Duration // of a nack: not again before; 0 = the queue's backoff, negative = at once
	Error string        // of a nack or reject: what went wrong; cut to 1 KiB
	Lease time.Duration // of an extend: the new length; 0 = the one it had
}

// item is a settlement on the wire.
type item struct {
	Op      Verb   `json:"op,omitempty"`
	Receipt string `json:"receipt,omitempty"`
	ID      string `json:"id,omitempty"`
	Delay   string `json:"delay,omitempty"`
	Error   string `json:"error,omitempty"`
	Lease   string `json:"lease,omitempty"`
}

func (s *Settlement) item() item {
	it := item{Error: cutText(s.Error)}
	if strings.Contains(s.Ref, ".") { // an id has no dots
		it.Receipt = s.Ref
	} else {
		it.ID = s.Ref
	}
	switch {
	case s.Delay > 0:
		it.Delay = wireDuration(s.Delay)
	case s.Delay < 0:
		it.Delay = "0"
	}
	if s.Lease > 0 {
		it.Lease = wireDuration(s.Lease)
	}
	return it
}

// cutText keeps the beginning of a long text, whole characters.
func cutText(s string) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	if len(s) <= errorMax {
		return s
	}
	s = s[:errorMax]
	for !utf8.ValidString(s) {
		s = s[:len(s)-1]
	}
	return s
}

// Ack says that a job is done. Ref is its receipt.
func (c *Client) Ack(ctx context.Context, ref string, opts ...WriteOption) (Settled, error) {
	return c.settleOne(ctx, Settlement{Verb: VerbAck, Ref: ref}, opts)
}

// Nack says that a job failed: it is given back, after a Delay if there is one,
// or it is dead when it failed too often. Cause is kept with it, and may be nil.
func (c *Client) Nack(ctx context.Context, ref string, cause error, opts ...NackOption) (Settled, error) {
	var o call
	for _, f := range opts {
		f.nackOption(&o)
	}
	s := Settlement{Verb: VerbNack, Ref: ref}
	if cause != nil {
		s.Error = cause.Error()
	}
	it := s.item()
	it.Delay = o.delay
	return c.settleItem(ctx, &o, VerbNack, it)
}

// Release gives a job back that was not worked on. No failure is counted.
func (c *Client) Release(ctx context.Context, ref string, opts ...WriteOption) (Settled, error) {
	return c.settleOne(ctx, Settlement{Verb: VerbRelease, Ref: ref}, opts)
}

// Reject makes a job dead at once: it can never go well. Cause is kept with it, and
// may be nil.
func (c *Client) Reject(ctx context.Context, ref string, cause error, opts ...WriteOption) (Settled, error) {
	s := Settlement{Verb: VerbReject, Ref: ref}
	if cause != nil {
		s.Error = cause.Error()
	}
	return c.settleOne(ctx, s, opts)
}

// Extend takes a new lease on a job, from now; with lease 0 of the length it had.
// Settled.Cancel says that somebody wants the work to stop.
func (c *Client) Extend(ctx context.Context, ref string, lease time.Duration, opts ...WriteOption) (Settled, error) {
	return c.settleOne(ctx, Settlement{Verb: VerbExtend, Ref: ref, Lease: lease}, opts)
}

func (c *Client) settleOne(ctx context.Context, s Settlement, opts []WriteOption) (Settled, error) {
	var o call
	for _, f := range opts {
		f.writeOption(&o)
	}
	return c.settleItem(ctx, &o, s.Verb, s.item())
}

// settleItem settles one job; its refusal is the error.
func (c *Client) settleItem(ctx context.Context, o *call, verb Verb, it item) (Settled, error) {
	all, failed, err := c.settleItems(ctx, o, verb, []item{it})
	switch {
	case err != nil:
		return Settled{}, err
	case len(failed.Items) > 0:
		return Settled{ID: failed.Items[0].ID}, failed.Items[0].Err
	}
	return all[0], nil
}

// Settle does several things at once, up to 1000, each on its own: the results are
// in the order of the list, and when some were refused the error is a *BatchError.
func (c *Client) Settle(ctx context.Context, list []Settlement, opts ...WriteOption) ([]Settled, error) {
	if len(list) == 0 || len(list) > itemsMax {
		return nil, refuse("list: 1 to %d settlements, not %d", itemsMax, len(list))
	}
	var o call
	for _, f := range opts {
		f.writeOption(&o)
	}
	verb := list[0].Verb
	for i := range list {
		if list[i].Verb != verb {
			verb = verbMixed
		}
	}
	items := make([]item, len(list))
	for i := range list {
		items[i] = list[i].item()
		if verb == verbMixed {
			items[i].Op = list[i].Verb
		}
	}
	all, failed, err := c.settleItems(ctx, &o, verb, items)
	if err != nil {
		return nil, err
	}
	return all, failed.or()
}

// verbMixed is the route of items with verbs of their own.
const verbMixed = Verb("settle")

// settleItems posts items. It is the caller who says what is wrong with those that
// failed.
func (c *Client) settleItems(ctx context.Context, o *call, verb Verb, items []item) ([]Settled, *BatchError, error) {
	c.defaultConsistency(o)
	r, err := c.settleRequest(ctx, o, verb, items)
	if err != nil {
		return nil, nil, err
	}
	var got settleAnswer
	ans, err := c.send(ctx, o, r, &got)
	if err != nil {
		return nil, nil, err
	}
	return got.results(ans, len(items))
}

// settleRequest makes the request of settlements. What names a job by its receipt is
// safe to repeat, and so are acks and extends by id; others by id might hit whoever
// has the job by then.
func (c *Client) settleRequest(ctx context.Context, o *call, verb Verb, items []item) (*Request, error) {
	repeat := RepeatAlways
	for i := range items {
		v := verb
		if verb == verbMixed {
			v = items[i].Op
		}
		if items[i].ID != "" && v != VerbAck && v != VerbExtend {
			repeat = RepeatKeyed
		}
	}
	r := c.begin(ctx, o, http.MethodPost, "/v1/"+string(verb), repeat)
	return r, r.jsonBody(struct {
		Items []item `json:"items"`
	}{items})
}

// settleAnswer is the answer to settlements.
type settleAnswer struct {
	Results []itemResult `json:"results"`
}

// results sorts what became of n items. A refusal after an attempt whose answer got
// lost may be because of that attempt: then its error says Unknown.
func (a *settleAnswer) results(ans *Answer, n int) ([]Settled, *BatchError, error) {
	if len(a.Results) != n {
		return nil, nil, notUnderstood(ans, fmt.Errorf("%d results for %d items", len(a.Results), n))
	}
	now := metaOf(ans).Time
	all := make([]Settled, n)
	failed := &BatchError{Total: n}
	for i := range a.Results {
		res := &a.Results[i]
		if res.Status >= 300 {
			err := res.error(ans.Node)
			if ans.unsure {
				err.Applied = Unknown
			}
			failed.add(i, res.ID, err)
			continue
		}
		all[i] = res.Settled
		if !now.IsZero() && !res.LeaseUntil.IsZero() {
			all[i].Lease = res.LeaseUntil.Sub(now)
		}
	}
	return all, failed, nil
}
