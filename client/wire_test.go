package client

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
	"time"
)

// frames of some jobs' heads and bodies.
func frames(parts ...string) string {
	var b []byte
	for i := 0; i < len(parts); i += 2 {
		b = appendFrame(b, []byte(parts[i]), []byte(parts[i+1]))
	}
	return string(b)
}

const results1 = `{"results":[{"id":"D-1","status":200}]}`

// Each call is one request of the interface.
func TestRequests(t *testing.T) {
	ctx := t.Context()
	at := time.Date(2030, 1, 31, 12, 0, 0, 5e6, time.FixedZone("x", 3600))
	for _, tc := range []struct {
		name   string
		call   func(*Client) error
		answer string
		method string
		path   string
		query  string // without timeout and attempt_id
		body   string
		typ    string
	}{
		{"enqueue", func(c *Client) error { _, err := c.Enqueue(ctx, "a/b c", []byte("\x00x")); return err }, created.body,
			"POST", "/v1/queues/a%2Fb%20c/enqueue", "", "\x00x", typeBytes},
		{"dots", func(c *Client) error { _, err := c.Enqueue(ctx, "..", nil); return err }, created.body,
			"POST", "/v1/queues/%2E%2E/enqueue", "", "", typeBytes},
		{"enqueue with all", func(c *Client) error {
			_, err := c.Enqueue(ctx, "q", nil, Delay(1500*time.Microsecond), Lease(time.Minute), TTL(24*time.Hour), Priority(0), Group("g"), DedupID("d&"), DedupTTL(time.Second),
				UniqueKey("u"), MaxFailures(0), MaxLen(9), Replicate(3), AtMostOnce, Headers{"a": "1", "b": "ü"}, Fast, Timeout(time.Second), IdempotencyKey("k"))
			return err
		}, created.body, "POST", "/v1/queues/q/enqueue",
			"at_most_once=true&consistency=fast&dedup_id=d%26&dedup_ttl=1000ms&delay=2ms&group=g&header.a=1&header.b=%C3%BC&lease=60000ms&max_failures=0&max_len=9&priority=0&replicate=3&ttl=86400000ms&unique_key=u", "", typeBytes},
		{"enqueue at", func(c *Client) error { _, err := c.Enqueue(ctx, "q", nil, At(at)); return err }, created.body,
			"POST", "/v1/queues/q/enqueue", "at=2030-01-31T11%3A00%3A00.005Z", "", typeBytes},
		{"batch", func(c *Client) error {
			_, err := c.EnqueueBatch(ctx, "q", []NewJob{{Body: []byte("\xff")}, {Body: []byte("2"), Options: []JobOption{Priority(9), AtMostOnce, Headers{"a": "1"}}}})
			return err
		}, `{"results":[{"id":"D-1","status":201},{"id":"D-2","status":201}]}`,
			"POST", "/v1/queues/q/jobs", "", frames("", "\xff", `{"at_most_once":true,"headers":{"a":"1"},"priority":9}`, "2"), typeFrames},
		{"atomic", func(c *Client) error { _, err := c.EnqueueAtomic(ctx, "q", []NewJob{{}}); return err }, `{"results":[{"id":"D-1","status":201}]}`,
			"POST", "/v1/queues/q/jobs", "atomic=true", frames("", ""), typeFrames},
		{"dequeue", func(c *Client) error { _, err := c.Dequeue(ctx, "q"); return err }, "", "POST", "/v1/queues/q/dequeue", "", "", ""},
		{"dequeue with all", func(c *Client) error {
			_, err := c.Dequeue(ctx, "q", Max(7), Wait(time.Second), Lease(time.Minute), As("w 1"), Strong, AttemptID("x"))
			return err
		}, frames("{}", ""), "POST", "/v1/queues/q/dequeue", "consistency=strong&consumer=w+1&lease=60000ms&max=7&wait=1000ms", "", ""},
		{"dequeue any", func(c *Client) error { _, err := c.DequeueAny(ctx, []string{"a", "b"}, Max(2)); return err }, frames("{}", ""),
			"POST", "/v1/dequeue", "max=2", `{"queues":["a","b"]}`, typeJSON},
		{"ack", func(c *Client) error { _, err := c.Ack(ctx, "D-1.2.x"); return err }, results1, "POST", "/v1/ack", "", `{"items":[{"receipt":"D-1.2.x"}]}`, typeJSON},
		{"ack by id", func(c *Client) error { _, err := c.Ack(ctx, "D-1", Fast); return err }, results1, "POST", "/v1/ack", "consistency=fast", `{"items":[{"id":"D-1"}]}`, typeJSON},
		{"nack", func(c *Client) error { _, err := c.Nack(ctx, "D-1.2.x", errors.New("why")); return err }, results1,
			"POST", "/v1/nack", "", `{"items":[{"receipt":"D-1.2.x","error":"why"}]}`, typeJSON},
		{"nack with delay", func(c *Client) error { _, err := c.Nack(ctx, "D-1.2.x", nil, Delay(time.Second)); return err }, results1,
			"POST", "/v1/nack", "", `{"items":[{"receipt":"D-1.2.x","delay":"1000ms"}]}`, typeJSON},
		{"nack at once", func(c *Client) error { _, err := c.Nack(ctx, "D-1.2.x", nil, Delay(0)); return err }, results1,
			"POST", "/v1/nack", "", `{"items":[{"receipt":"D-1.2.x","delay":"0ms"}]}`, typeJSON},
		{"release", func(c *Client) error { _, err := c.Release(ctx, "D-1.2.x"); return err }, results1, "POST", "/v1/release", "", `{"items":[{"receipt":"D-1.2.x"}]}`, typeJSON},
		{"reject", func(c *Client) error { _, err := c.Reject(ctx, "D-1.2.x", errors.New("bad\xff")); return err }, results1,
			"POST", "/v1/reject", "", `{"items":[{"receipt":"D-1.2.x","error":"bad` + "\ufffd" + `"}]}`, typeJSON},
		{"extend", func(c *Client) error { _, err := c.Extend(ctx, "D-1.2.x", time.Minute); return err }, results1,
			"POST", "/v1/extend", "", `{"items":[{"receipt":"D-1.2.x","lease":"60000ms"}]}`, typeJSON},
		{"settle one verb", func(c *Client) error {
			_, err := c.Settle(ctx, []Settlement{{Verb: VerbAck, Ref: "a.1.x"}})
			return err
		}, results1,
			"POST", "/v1/ack", "", `{"items":[{"receipt":"a.1.x"}]}`, typeJSON},
		{"queue", func(c *Client) error {
			_, err := c.Queue(ctx, "q", Fast, MinIndex(7), MaxStale(time.Second))
			return err
		}, `{"queue":"q"}`,
			"GET", "/v1/queues/q", "consistency=fast&max_stale=1000ms&min_index=7", "", ""},
		{"delete queue", func(c *Client) error { _, err := c.DeleteQueue(ctx, "q", true); return err }, `{"queue":"q","deleted":3}`, "DELETE", "/v1/queues/q", "force=true", "", ""},
		{"job", func(c *Client) error { _, err := c.Job(ctx, "D-1"); return err }, `{"id":"D-1","queue":"q","body":"x"}`, "GET", "/v1/jobs/D-1", "", "", ""},
		{"fate", func(c *Client) error { _, err := c.Fate(ctx, "a.1.2"); return err }, `{"batch":"a.1.2","fate":"lost"}`, "GET", "/v1/log/fate", "batch=a.1.2", "", ""},
		{"cluster", func(c *Client) error { _, err := c.Cluster(ctx); return err }, `{}`, "GET", "/v1/cluster", "", "", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := startFakes(t, 1, answer{status: 200, body: tc.answer})
			if err := tc.call(fakeClient(t, f, WithUserAgent("me/2"), WithToken("tok"))); err != nil {
				t.Fatal(err)
			}
			got := f.requests()[0]
			var query []string
			for part := range strings.SplitSeq(got.query, "&") {
				if name, _, _ := strings.Cut(part, "="); name != "timeout" && name != "attempt_id" && name != "" {
					query = append(query, part)
				}
			}
			if q := strings.Join(query, "&"); got.method != tc.method || got.path != tc.path || q != tc.query || got.body != tc.body || got.header.Get("Content-Type") != tc.typ {
				t.Errorf("\n got %s %s ? %s %q %s\nwant %s %s ? %s %q %s", got.method, got.path, q, got.body, got.header.Get("Content-Type"), tc.method, tc.path, tc.query, tc.body, tc.typ)
			}
			if got.header.Get("User-Agent") != "me/2 "+userAgent || got.header.Get("Authorization") != "Bearer tok" {
				t.Errorf("%v", got.header)
			}
		})
	}
}

// Options too long for a request line go into the body.
func TestLongOptions(t *testing.T) {
	f := startFakes(t, 1, created)
	c := fakeClient(t, f)
	if _, err := c.Enqueue(t.Context(), "q", []byte("\x00\xff"), Priority(3), Headers{"long": strings.Repeat("x", 9000)}); err != nil {
		t.Fatal(err)
	}
	got := f.requests()[0]
	var in struct {
		Body     []byte            `json:"body_base64"`
		Priority int               `json:"priority"`
		Headers  map[string]string `json:"headers"`
	}
	if err := json.Unmarshal([]byte(got.body), &in); err != nil || got.path != "/v1/queues/q/jobs" || string(in.Body) != "\x00\xff" || in.Priority != 3 || len(in.Headers["long"]) != 9000 {
		t.Errorf("%+v %v %v", got, in, err)
	}
}

// A hand-out is read with all its facts, whatever bytes its body has.
func TestDequeueAnswer(t *testing.T) {
	const facts = `{"id":"` + onceID + `","receipt":"` + onceID + `.1.x","queue":"q","headers":{"a":"1"},"priority":6,"group":"g","deliveries":2,"failures":1,` +
		`"enqueued_at":"2023-11-14T22:13:20.123Z","enqueued_at_ms":1700000000123,"lease_until":"2023-11-14T22:14:20.000Z","lease_until_ms":1700000060000,"fence":812,"last_error":"e","later":true}`
	f := startFakes(t, 1, answer{status: 200, header: [2]string{"Raftq-Time", "1700000030000"}, body: frames(facts, "\x00\xff", `{"id":"D-2","lease_until":"2023-11-14T22:14:20.000Z"}`, "")})
	jobs, err := fakeClient(t, f).Dequeue(t.Context(), "q", Max(2))
	if err != nil || len(jobs) != 2 {
		t.Fatal(jobs, err)
	}
	want := &Job{
		ID: onceID, Receipt: onceID + ".1.x", Queue: "q", Body: []byte("\x00\xff"), Headers: map[string]string{"a": "1"}, Priority: 6, Group: "g", Deliveries: 2, Failures: 1,
		EnqueuedAt: time.UnixMilli(1700000000123).UTC(), LeaseUntil: time.UnixMilli(1700000060000).UTC(), Fence: 812, LastError: "e", AtMostOnce: true, Lease: 30 * time.Second,
	}
	if !reflect.DeepEqual(jobs[0], want) {
		t.Errorf("\n got %+v\nwant %+v", jobs[0], want)
	}
	if jobs[1].AtMostOnce || jobs[1].Lease != 30*time.Second || len(jobs[1].Body) != 0 {
		t.Errorf("%+v", jobs[1])
	}
	if got := f.requests()[0].header.Get("Accept"); got != typeFrames {
		t.Error(got)
	}
}

// A long wait is several requests, each an attempt of its own.
func TestLongWait(t *testing.T) {
	f := startFakes(t, 1, answer{status: 204}, answer{status: 204}, answer{status: 200, body: frames(`{"id":"D-1"}`, "x")})
	jobs, err := fakeClient(t, f).Dequeue(t.Context(), "q", Wait(3*time.Minute), AttemptID("mine"))
	if err != nil || len(jobs) != 1 {
		t.Fatal(jobs, err)
	}
	var ids []string
	for _, s := range f.requests() {
		q := (&http.Request{URL: mustURL("/?" + s.query)}).URL.Query()
		if q.Get("wait") != "50000ms" {
			t.Error(s.query)
		}
		ids = append(ids, q.Get("attempt_id"))
	}
	if len(ids) != 3 || ids[0] != "mine" || ids[1] == "mine" || ids[1] == ids[2] || ids[2] == "" {
		t.Error(ids)
	}
}

// A wait ends before the caller's deadline, with no job and no error.
func TestWaitEndsInTime(t *testing.T) {
	var asked string
	f := startFakes(t, 1, answer{do: func(w http.ResponseWriter, r *http.Request) {
		asked = r.URL.Query().Get("wait")
		d, err := time.ParseDuration(asked)
		if err == nil {
			time.Sleep(d) // as a node does
		}
		w.WriteHeader(204)
	}})
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	jobs, err := fakeClient(t, f).Dequeue(ctx, "q", Wait(time.Minute))
	if err != nil || len(jobs) != 0 || ctx.Err() != nil || len(f.requests()) > 3 {
		t.Errorf("%v %v, asked %q, %d requests", jobs, err, asked, len(f.requests()))
	}
}

// Items that fail are told by place, id and code; the others are done.
func TestBatchErrors(t *testing.T) {
	f := startFakes(t, 1, answer{status: 207, body: `{"results":[{"id":"D-1","status":201,"duplicate":true},{"status":429,"code":"queue_full","detail":"The queue is full"},{"id":"D-9","status":409,"code":"not_unique","detail":"x"}]}`})
	c := fakeClient(t, f)
	got, err := c.EnqueueBatch(t.Context(), "q", make([]NewJob, 3))
	var batch *BatchError
	var item *ItemError
	var e *Error
	switch {
	case !errors.As(err, &batch) || batch.Total != 3 || len(batch.Items) != 2:
		t.Fatal(err)
	case !errors.Is(err, ErrQueueFull) || !errors.Is(err, ErrNotUnique) || errors.Is(err, ErrNoLeader):
		t.Error(err)
	case !errors.As(err, &item) || item.Index != 1 || !errors.As(err, &e) || e.Code != ErrQueueFull || !e.Retryable || e.Applied != NotApplied || e.Status != 429:
		t.Errorf("%+v %+v", item, e)
	case batch.Items[1].Index != 2 || batch.Items[1].ID != "D-9" || batch.Items[1].Err.Retryable:
		t.Errorf("%+v", batch.Items[1])
	case batch.at(0) != nil || batch.at(1) == nil || batch.at(2) == nil || batch.at(3) != nil:
		t.Error("places")
	}
	if !reflect.DeepEqual(got, []Enqueued{{ID: "D-1", Queue: "q", Committed: true, Duplicate: true}, {}, {}}) {
		t.Errorf("%+v", got)
	}
	if want := "raftq: 2 of 3 items failed; item 1: raftq: The queue is full (queue_full)"; err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
	f = startFakes(t, 1, answer{status: 207, body: `{"results":[{"id":"D-1","status":409,"code":"lease_lost","detail":"x"}]}`})
	if s, err := fakeClient(t, f).Ack(t.Context(), "D-1.1.x"); !errors.Is(err, ErrLeaseLost) || errors.As(err, &batch) && batch.Total == 1 || s.ID != "D-1" {
		t.Errorf("%+v %v", s, err)
	}
}

// What is no answer of raftq is an error, and a success that makes no sense may
// have been applied.
func TestBadAnswers(t *testing.T) {
	for _, tc := range []struct {
		call func(*Client) error
		a    answer
	}{
		{func(c *Client) error { _, err := c.Enqueue(t.Context(), "q", nil); return err }, answer{status: 201, body: "<html>"}},
		{func(c *Client) error { _, err := c.EnqueueBatch(t.Context(), "q", make([]NewJob, 2)); return err }, answer{status: 201, body: results1}},
		{func(c *Client) error { _, err := c.Ack(t.Context(), "a.1.x"); return err }, answer{status: 200, body: `{"results":[]}`}},
		{func(c *Client) error { _, err := c.Dequeue(t.Context(), "q"); return err }, answer{status: 200, body: "\x00\x00\x00\x09x"}},
		{func(c *Client) error { _, err := c.Dequeue(t.Context(), "q"); return err }, answer{status: 200, body: frames("[]", "")}},
		{func(c *Client) error { _, err := c.Dequeue(t.Context(), "q"); return err }, answer{status: 200, body: "\xff\xff\xff\xff"}},
	} {
		err := tc.call(fakeClient(t, startFakes(t, 1, tc.a)))
		var e *Error
		if !errors.As(err, &e) || e.Code != ErrBadAnswer || e.Applied != Unknown {
			t.Errorf("%q: %v", tc.a.body, err)
		}
	}
}

// Batches that the servers would refuse are refused here.
func TestBatchLimits(t *testing.T) {
	c := fakeClient(t, startFakes(t, 1, created))
	big := []NewJob{{Body: make([]byte, bytesMax)}, {Body: []byte("x")}}
	for name, jobs := range map[string][]NewJob{"1 to 1000": nil, "this one 1001": make([]NewJob, 1001), "at most 8388608 bytes": big} {
		if _, err := c.EnqueueBatch(t.Context(), "q", jobs); !errors.Is(err, ErrInvalidOption) || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := c.Settle(t.Context(), nil); !errors.Is(err, ErrInvalidOption) {
		t.Error(err)
	}
}

func TestMeta(t *testing.T) {
	f := startFakes(t, 1, answer{do: func(w http.ResponseWriter, _ *http.Request) {
		h := w.Header()
		for name, v := range map[string]string{"Raftq-Index": "18446744073709551615", "Raftq-Term": "3", "Raftq-Time": "1700000000123", "Raftq-Node": "n1", "Raftq-Leader": "n2", "Raftq-Batch": "a.1.2", "Raftq-Stale-Ms": "14", "Idempotent-Replay": "true"} {
			h.Set(name, v)
		}
		w.WriteHeader(202)
		fmt.Fprint(w, `{"id":"D-1","queue":"q","committed":false,"duplicate":false}`)
	}})
	var m Meta
	e, err := fakeClient(t, f).Enqueue(t.Context(), "q", nil, Fast, Into(&m))
	want := Meta{Index: 1<<64 - 1, Term: 3, Time: time.UnixMilli(1700000000123).UTC(), Node: "n1", Leader: "n2", Batch: "a.1.2", Stale: 14 * time.Millisecond, Replay: true}
	if err != nil || e.Committed || m != want {
		t.Errorf("%+v %+v %v", e, m, err)
	}
	f = startFakes(t, 1, created)
	if _, err := fakeClient(t, f).Enqueue(t.Context(), "q", nil, Into(&m)); err != nil || m != (Meta{Stale: -1}) {
		t.Errorf("%+v %v", m, err)
	}
}

// The client's consistency holds for calls that name none.
func TestDefaultConsistency(t *testing.T) {
	f := startFakes(t, 1, created)
	c := fakeClient(t, f, WithConsistency(Fast))
	for _, o := range [][]EnqueueOption{nil, {Strong}} {
		if _, err := c.Enqueue(t.Context(), "q", nil, o...); err != nil {
			t.Fatal(err)
		}
	}
	got := f.requests()
	if !strings.Contains(got[0].query, "consistency=fast") || !strings.Contains(got[1].query, "consistency=strong") {
		t.Errorf("%s, %s", got[0].query, got[1].query)
	}
}

func TestTLS(t *testing.T) {
	srv := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(201)
		fmt.Fprint(w, created.body)
	}))
	defer srv.Close()
	addr := srv.Listener.Addr().String()
	roots := x509.NewCertPool()
	roots.AddCert(srv.Certificate())
	c := newTestClient(t, addr, WithTLS(&tls.Config{RootCAs: roots}))
	if _, err := c.Enqueue(t.Context(), "q", nil); err != nil {
		t.Error(err)
	}
	// Who is not who it should be gets nothing.
	c = newTestClient(t, "https://"+addr, WithRetryFor(0))
	var e *Error
	if _, err := c.Enqueue(t.Context(), "q", nil); !errors.As(err, &e) || e.Code != ErrUnreachable || e.Applied != NotApplied {
		t.Error(err)
	}
}

func TestClientOptionsAreChecked(t *testing.T) {
	for name, opts := range map[string][]Option{
		"WithAttemptTimeout": {WithAttemptTimeout(time.Minute)},
		"WithRetryFor":       {WithRetryFor(-1)},
		"WithConsistency":    {WithConsistency("fats")},
		"WithTLS":            {WithTLS(&tls.Config{}), WithTransport(http.DefaultTransport)},
	} {
		if _, err := New("h:1", opts...); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// No bytes that a server may send make the client panic.
func FuzzFrames(f *testing.F) {
	f.Add([]byte(frames("{}", "x", `{"id":"a"}`, "")))
	f.Add([]byte("\x00\x00\x00\x01"))
	f.Add([]byte("\xff\xff\xff\xff\xff\xff\xff\xff"))
	f.Fuzz(func(t *testing.T, b []byte) {
		jobs, err := parseJobs(&Answer{Header: http.Header{}, Body: b})
		if err != nil {
			return
		}
		total := 0
		for _, j := range jobs {
			total += 8 + len(j.Body)
		}
		if total > len(b) {
			t.Errorf("%d bytes of jobs out of %d", total, len(b))
		}
		if len(jobs) == 0 && len(bytes.TrimSpace(b)) > 0 {
			t.Error("bytes and no job")
		}
	})
}
