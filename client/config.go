package client

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// QueueConfig is what a queue is told to do. A field that is nil is not said:
// Configure makes it the default, Tune leaves it as it is. A time of 0 and an empty
// text are the default too. new makes pointers:
//
//	client.QueueConfig{Lease: new(time.Minute), MaxFailures: new(3), DeadLetter: new("mail.dead")}
type QueueConfig struct {
	Lease       *time.Duration // of hand-outs that say none; 60 s
	TTL         *time.Duration // of jobs that say none; none
	Delay       *time.Duration // of jobs that say none; none
	MaxFailures *int           // 20; 0 is never
	DeadLetter  *string        // queue that dead jobs move to; "": they stay
	DeadTTL     *time.Duration // how long dead jobs are kept; 14 days
	BackoffMin  *time.Duration // of nacks without a delay: doubled with each failure; none
	BackoffMax  *time.Duration // and no more than that; set both or none
	MaxLen      *int           // jobs, dead ones apart; 0 is no limit
	MaxBytes    *int64         // of those; 0 is no limit
	Overflow    *Overflow      // what a full queue does; OverflowReject
	Aging       *time.Duration // a ready job's priority rises by one each time; never
	GroupLimit  *int           // jobs of one group at once; 1
	Fair        *bool          // round robin over groups
	Consistency *Consistency   // of requests that say none; the node's
}

// Overflow is what a full queue does with one job more.
type Overflow string

// Ways of a full queue.
const (
	OverflowReject     Overflow = "reject"      // refuses it with ErrQueueFull
	OverflowDropOldest Overflow = "drop_oldest" // drops its oldest ready job, of the lowest priority first
)

// configJSON is a QueueConfig on the wire.
type configJSON struct {
	Lease       *wireTime    `json:"lease,omitempty"`
	TTL         *wireTime    `json:"ttl,omitempty"`
	Delay       *wireTime    `json:"delay,omitempty"`
	MaxFailures *int         `json:"max_failures,omitempty"`
	DeadLetter  *wireText    `json:"dead_letter,omitempty"`
	DeadTTL     *wireTime    `json:"dead_ttl,omitempty"`
	Backoff     *backoffJSON `json:"backoff,omitempty"`
	MaxLen      *int         `json:"max_len,omitempty"`
	MaxBytes    *int64       `json:"max_bytes,omitempty"`
	Overflow    *wireText    `json:"overflow,omitempty"`
	Aging       *wireTime    `json:"aging,omitempty"`
	GroupLimit  *int         `json:"group_limit,omitempty"`
	Fair        *bool        `json:"fair,omitempty"`
	Consistency *wireText    `json:"consistency,omitempty"`
}

type backoffJSON struct{ Min, Max wireTime }

func (b backoffJSON) MarshalJSON() ([]byte, error) {
	if b.Max == 0 {
		return []byte("null"), nil
	}
	return fmt.Appendf(nil, `{"min":%q,"max":%q}`, wireDuration(time.Duration(b.Min)), wireDuration(time.Duration(b.Max))), nil
}

// MarshalJSON writes what is said, as the servers read it.
func (q QueueConfig) MarshalJSON() ([]byte, error) {
	c := configJSON{
		Lease: (*wireTime)(q.Lease), TTL: (*wireTime)(q.TTL), Delay: (*wireTime)(q.Delay), MaxFailures: q.MaxFailures, DeadLetter: (*wireText)(q.DeadLetter),
		DeadTTL: (*wireTime)(q.DeadTTL), MaxLen: q.MaxLen, MaxBytes: q.MaxBytes, Overflow: (*wireText)(q.Overflow), Aging: (*wireTime)(q.Aging),
		GroupLimit: q.GroupLimit, Fair: q.Fair, Consistency: (*wireText)(q.Consistency),
	}
	if q.BackoffMin != nil && q.BackoffMax != nil {
		c.Backoff = &backoffJSON{wireTime(*q.BackoffMin), wireTime(*q.BackoffMax)}
	}
	return json.Marshal(c)
}

// UnmarshalJSON reads what a server wrote.
func (q *QueueConfig) UnmarshalJSON(b []byte) error {
	var c configJSON
	if err := json.Unmarshal(b, &c); err != nil {
		return err
	}
	*q = QueueConfig{
		Lease: (*time.Duration)(c.Lease), TTL: (*time.Duration)(c.TTL), Delay: (*time.Duration)(c.Delay), MaxFailures: c.MaxFailures, DeadLetter: (*string)(c.DeadLetter),
		DeadTTL: (*time.Duration)(c.DeadTTL), MaxLen: c.MaxLen, MaxBytes: c.MaxBytes, Overflow: (*Overflow)(c.Overflow), Aging: (*time.Duration)(c.Aging),
		GroupLimit: c.GroupLimit, Fair: c.Fair, Consistency: (*Consistency)(c.Consistency),
	}
	if c.Backoff != nil {
		q.BackoffMin, q.BackoffMax = (*time.Duration)(&c.Backoff.Min), (*time.Duration)(&c.Backoff.Max)
	}
	return nil
}

// wireTime is a duration on the wire: "30s", "7d".
type wireTime time.Duration

func (d wireTime) MarshalJSON() ([]byte, error) {
	if d == 0 {
		return []byte("null"), nil
	}
	return json.Marshal(wireDuration(time.Duration(d)))
}

func (d *wireTime) UnmarshalJSON(b []byte) error {
	var s string
	if err := json.Unmarshal(b, &s); err != nil {
		return err
	}
	v, err := parseDuration(s)
	*d = wireTime(v)
	return err
}

// wireText is a text on the wire, null when there is none.
type wireText string

func (t wireText) MarshalJSON() ([]byte, error) {
	if t == "" {
		return []byte("null"), nil
	}
	return json.Marshal(string(t))
}

// parseDuration is time.ParseDuration with days, which come first.
func parseDuration(s string) (time.Duration, error) {
	days, rest, ok := strings.Cut(s, "d")
	if !ok {
		return time.ParseDuration(s)
	}
	n, err := strconv.ParseFloat(days, 64)
	if err != nil {
		return 0, fmt.Errorf("%q is no duration", s)
	}
	d := time.Duration(n * float64(24*time.Hour))
	if rest == "" {
		return d, nil
	}
	more, err := time.ParseDuration(rest)
	return d + more, err
}

// ConfigOption is an option of Configure and Tune.
type ConfigOption interface{ configOption(*configCall) }

type configCall struct {
	call
	header http.Header
}

// IfMatch changes a queue's configuration only if it is still the one with this
// QueueInfo.Version; else ErrETagMismatch.
type IfMatch uint64

func (v IfMatch) configOption(o *configCall) {
	o.header.Set("If-Match", `"`+strconv.FormatUint(uint64(v), 10)+`"`)
}

// IfNew configures a queue only if nobody did before; else ErrETagMismatch.
var IfNew ConfigOption = ifNew{}

type ifNew struct{}

func (ifNew) configOption(o *configCall) { o.header.Set("If-None-Match", "*") }

func (t Timeout) configOption(o *configCall)    { t.writeOption(&o.call) }
func (i intoOption) configOption(o *configCall) { i.writeOption(&o.call) }

// Configure gives a queue this configuration; what it does not say is the default.
// The queue is made by it if need be, and stays when it is empty. It returns the
// configuration's new version.
func (c *Client) Configure(ctx context.Context, queue string, config QueueConfig, opts ...ConfigOption) (uint64, error) {
	return c.configure(ctx, http.MethodPut, queue, config, opts)
}

// Tune changes what is said in a queue's configuration, and returns its new version.
func (c *Client) Tune(ctx context.Context, queue string, config QueueConfig, opts ...ConfigOption) (uint64, error) {
	return c.configure(ctx, http.MethodPatch, queue, config, opts)
}

func (c *Client) configure(ctx context.Context, method, queue string, config QueueConfig, opts []ConfigOption) (uint64, error) {
	o := configCall{header: http.Header{}}
	for _, f := range opts {
		f.configOption(&o)
	}
	r := c.begin(ctx, &o.call, method, queuePath(queue, ""), RepeatKeyed)
	r.Header = o.header
	if err := r.jsonBody(config); err != nil {
		return 0, err
	}
	var got struct {
		Version uint64 `json:"version"`
	}
	_, err := c.send(ctx, &o.call, r, &got)
	return got.Version, err
}
