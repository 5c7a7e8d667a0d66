package client

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
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

// wireCase is a call and the request that it is.
type wireCase struct {
	name   string
	call   func(*Client) error
	answer string
	method string
	path   string
	query  string // without timeout and attempt_id
	body   string
	typ    string
}

func wireCases(ctx context.Context) []wireCase {
	at := time.Date(2030, 1, 31, 12, 0, 0, 5e6, time.FixedZone("x", 3600))
	return []wireCase{
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
		{"settle mixed", func(c *Client) error {
			_, err := c.Settle(ctx, []Settlement{{Verb: VerbAck, Ref: "a.1.x"}, {Verb: VerbNack, Ref: "b.1.x", Delay: -1, Error: "e"}, {Verb: VerbExtend, Ref: "D-1", Lease: time.Second}})
			return err
		}, `{"results":[{"status":200},{"status":200},{"status":200}]}`, "POST", "/v1/settle", "",
			`{"items":[{"op":"ack","receipt":"a.1.x"},{"op":"nack","receipt":"b.1.x","delay":"0","error":"e"},{"op":"extend","id":"D-1","lease":"1000ms"}]}`, typeJSON},
		{"tx", func(c *Client) error {
			_, err := c.Tx(ctx, []TxOp{Settlement{Verb: VerbAck, Ref: "a.1.x"}, NewJob{Queue: "next", Body: []byte("\xff"), Options: []JobOption{Priority(9), Delay(time.Second)}}, NewJob{Queue: "n"}})
			return err
		}, `{"results":[{"status":200},{"status":201},{"status":201}]}`, "POST", "/v1/tx", "",
			`{"items":[{"op":"ack","receipt":"a.1.x"},{"body_base64":"/w==","delay":"1000ms","op":"enqueue","priority":9,"queue":"next"},{"body_base64":"","op":"enqueue","queue":"n"}]}`, typeJSON},
		{"delete job", func(c *Client) error { return c.DeleteJob(ctx, "D-1") }, `{}`, "DELETE", "/v1/jobs/D-1", "", "", ""},
		{"requeue", func(c *Client) error { return c.Requeue(ctx, "D-1") }, `{}`, "POST", "/v1/jobs/D-1/requeue", "", "", ""},
		{"hold", func(c *Client) error { return c.Hold(ctx, "D-1") }, `{}`, "POST", "/v1/jobs/D-1/hold", "", "", ""},
		{"cancel", func(c *Client) error { return c.Cancel(ctx, "D-1") }, `{}`, "POST", "/v1/jobs/D-1/cancel", "", "", ""},
		{"wait for a job", func(c *Client) error { _, err := c.JobWait(ctx, "D-1"); return err }, `{"id":"D-1","state":"done"}`, "GET", "/v1/jobs/D-1/wait", "for=done", "", ""},
		{"configure", func(c *Client) error {
			_, err := c.Configure(ctx, "q", QueueConfig{
				Lease: new(time.Minute), TTL: new(time.Hour), Delay: new(time.Second), MaxFailures: new(0), DeadLetter: new("d"), DeadTTL: new(time.Hour), BackoffMin: new(time.Second), BackoffMax: new(time.Minute),
				MaxLen: new(9), MaxBytes: new(int64(10)), Overflow: new(OverflowDropOldest), Aging: new(time.Hour), GroupLimit: new(2), Fair: new(true), Consistency: new(Fast),
			})
			return err
		}, `{"queue":"q","version":7}`, "PUT", "/v1/queues/q", "",
			`{"lease":"60000ms","ttl":"3600000ms","delay":"1000ms","max_failures":0,"dead_letter":"d","dead_ttl":"3600000ms","backoff":{"min":"1000ms","max":"60000ms"},` +
				`"max_len":9,"max_bytes":10,"overflow":"drop_oldest","aging":"3600000ms","group_limit":2,"fair":true,"consistency":"fast"}`, typeJSON},
		{"tune to defaults", func(c *Client) error {
			_, err := c.Tune(ctx, "q", QueueConfig{Lease: new(time.Duration(0)), DeadLetter: new(""), BackoffMin: new(time.Duration(0)), BackoffMax: new(time.Duration(0)), Consistency: new(Consistency("")), MaxLen: new(0)}, IfMatch(7))
			return err
		}, `{"queue":"q","version":8}`, "PATCH", "/v1/queues/q", "", `{"lease":null,"dead_letter":null,"backoff":null,"max_len":0,"consistency":null}`, typeJSON},
		{"pause", func(c *Client) error { return c.Pause(ctx, "q", Paused{In: true, Until: at}) }, `{}`, "PUT", "/v1/queues/q/pause", "", `{"in":true,"out":false,"until":"2030-01-31T12:00:00.005+01:00"}`, typeJSON},
		{"purge", func(c *Client) error { _, err := c.Purge(ctx, "q", []State{Ready, Dead}); return err }, `{"queue":"q","purged":7}`, "DELETE", "/v1/queues/q/jobs", "state=ready%2Cdead", "", ""},
		{"redrive", func(c *Client) error {
			_, err := c.Redrive(ctx, "q", RedriveFilter{Reason: "rejected", Max: 5, To: "r"})
			return err
		}, `{"queue":"q","redriven":5}`,
			"POST", "/v1/queues/q/redrive", "", `{"max":5,"reason":"rejected","to":"r"}`, typeJSON},
		{"redrive all", func(c *Client) error { _, err := c.Redrive(ctx, "q", RedriveFilter{}); return err }, `{"queue":"q","redriven":5}`, "POST", "/v1/queues/q/redrive", "", `{}`, typeJSON},
		{"queues", func(c *Client) error {
			_, err := all(c.Queues(ctx, QueueFilter{Prefix: "m", MinLen: 1, MaxLen: new(0)}, Fast))
			return err
		}, `{"queues":[]}`,
			"GET", "/v1/queues", "consistency=fast&limit=200&max_len=0&min_len=1&prefix=m", "", ""},
		{"jobs", func(c *Client) error {
			_, err := all(c.Jobs(ctx, "q", JobFilter{States: []State{Ready}, Newest: true}))
			return err
		}, `{"jobs":[]}`,
			"GET", "/v1/queues/q/jobs", "limit=200&order=desc&state=ready", "", ""},
		{"consumer", func(c *Client) error { _, err := all(c.ConsumerJobs(ctx, "w/1")); return err }, `{"jobs":[]}`, "GET", "/v1/consumers/w%2F1", "limit=200", "", ""},
		{"release consumer", func(c *Client) error { _, err := c.ReleaseConsumer(ctx, "w/1"); return err }, `{"consumer":"w/1","released":2}`, "DELETE", "/v1/consumers/w%2F1", "", "", ""},
		{"add a member", func(c *Client) error {
			got, err := c.AddMember(ctx, NewMember{Name: "n4", Peer: "http://h4:9080", Learner: true, Replace: true})
			if got.Member.Name != "n4" || len(got.Members) != 1 {
				return fmt.Errorf("%+v, %w", got, err)
			}
			return err
		}, `{"member":{"id":"1","name":"n4","role":"learner","peer":"p"},"already":false,"index":7,"cluster_id":"c","members":[{"name":"n4"}]}`,
			"POST", "/v1/cluster/members", "", `{"name":"n4","peer":"http://h4:9080","replace":true,"role":"learner"}`, typeJSON},
		{"remove a member", func(c *Client) error { _, err := c.RemoveMember(ctx, "n 4"); return err }, `{}`, "DELETE", "/v1/cluster/members/n%204", "", "", ""},
		{"promote a member", func(c *Client) error { _, err := c.PromoteMember(ctx, "n4"); return err }, `{}`, "POST", "/v1/cluster/members/n4/promote", "", "", ""},
		{"transfer", func(c *Client) error {
			leader, err := c.TransferLeader(ctx, "n2")
			if leader != "n2" {
				return fmt.Errorf("%q, %w", leader, err)
			}
			return err
		}, `{"leader":"n2"}`, "POST", "/v1/cluster/transfer-leader", "", `{"to":"n2"}`, typeJSON},
		{"drain", func(c *Client) error { return c.Drain(ctx, "n2") }, `{}`, "POST", "/v1/cluster/drain", "", `{"node":"n2","undo":false}`, typeJSON},
		{"undrain", func(c *Client) error { return c.Undrain(ctx, "n2") }, `{}`, "POST", "/v1/cluster/drain", "", `{"node":"n2","undo":true}`, typeJSON},
		{"cluster", func(c *Client) error { _, err := c.Cluster(ctx); return err }, `{}`, "GET", "/v1/cluster", "", "", ""},
	}
}

// Each call is one request of the interface.
func TestRequests(t *testing.T) {
	for _, tc := range wireCases(t.Context()) {
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

// all collects what an iterator gives, until an error.
func all[T any](list iter.Seq2[T, error]) (items []T, err error) {
	for item, err := range list {
		if err != nil {
			return items, err
		}
		items = append(items, item)
	}
	return items, nil
}

// A list is asked for page by page, no further than it is used, and ends at an error.
func TestPages(t *testing.T) {
	page := func(next string, names ...string) answer {
		var list []string
		for _, n := range names {
			list = append(list, fmt.Sprintf(`{"queue":%q,"ready":3}`, n))
		}
		if next != "" {
			next = fmt.Sprintf(`,"next_cursor":%q`, next)
		}
		return answer{status: 200, body: `{"queues":[` + strings.Join(list, ",") + `]` + next + `}`}
	}
	f := startFakes(t, 1, page("x/1", "a", "b"), page("y"), page("", "c"))
	got, err := all(fakeClient(t, f).Queues(t.Context(), QueueFilter{}))
	if err != nil || len(got) != 3 || got[0].Queue != "a" || got[2].Queue != "c" || got[2].Ready != 3 {
		t.Errorf("%+v %v", got, err)
	}
	for i, want := range []string{"", "x/1", "y"} {
		if q := mustURL("/?" + f.requests()[i].query).Query(); q.Get("cursor") != want {
			t.Errorf("page %d: %v", i, q)
		}
	}
	f = startFakes(t, 1, page("x", "a", "b"), page("", "c"))
	for range fakeClient(t, f).Queues(t.Context(), QueueFilter{}) {
		break
	}
	if n := len(f.requests()); n != 1 {
		t.Errorf("%d pages were asked for", n)
	}
	f = startFakes(t, 1, page("x", "a"), problemOf(422, ErrInvalidOption, NotApplied, false))
	got, err = all(fakeClient(t, f).Queues(t.Context(), QueueFilter{}))
	if len(got) != 1 || !errors.Is(err, ErrInvalidOption) {
		t.Errorf("%+v %v", got, err)
	}
}

// A queue's configuration is read as it was written.
func TestConfigRoundTrip(t *testing.T) {
	const wire = `{"lease":"1m","ttl":null,"delay":"1d2h","max_failures":20,"dead_letter":"d","dead_ttl":"14d","backoff":{"min":"1s","max":"5m"},"max_len":0,"max_bytes":5,"overflow":"reject","aging":null,"group_limit":1,"fair":true,"consistency":null}`
	var q QueueConfig
	if err := json.Unmarshal([]byte(wire), &q); err != nil {
		t.Fatal(err)
	}
	switch {
	case q.TTL != nil || q.Aging != nil || q.Consistency != nil:
		t.Errorf("null is something: %+v", q)
	case *q.Lease != time.Minute || *q.Delay != 26*time.Hour || *q.MaxFailures != 20 || *q.DeadLetter != "d" || *q.DeadTTL != 14*24*time.Hour || *q.BackoffMin != time.Second ||
		*q.BackoffMax != 5*time.Minute || *q.MaxLen != 0 || *q.MaxBytes != 5 || *q.Overflow != OverflowReject || *q.GroupLimit != 1 || !*q.Fair:
		t.Errorf("%+v", q)
	}
	b, err := json.Marshal(q)
	if err != nil {
		t.Fatal(err)
	}
	var again QueueConfig
	if err := json.Unmarshal(b, &again); err != nil || !reflect.DeepEqual(q, again) {
		t.Errorf("%s: %+v, want %+v; %v", b, again, q, err)
	}
	for _, bad := range []string{`{"lease":5}`, `{"lease":"x"}`, `{"lease":"xd"}`, `{"lease":"1d5"}`} {
		if err := json.Unmarshal([]byte(bad), &q); err == nil {
			t.Errorf("%s is read as %v", bad, *q.Lease)
		}
	}
}

// A list that is done whole or not at all says which parts were the reason.
func TestAborted(t *testing.T) {
	f := startFakes(t, 1, answer{status: 409, body: `{"title":"T","status":409,"detail":"D","code":"aborted","retryable":false,"applied":"no","results":[` +
		`{"status":409,"code":"aborted","detail":"x"},{"id":"D-2","status":409,"code":"lease_lost","detail":"The lease is lost"},{"id":"D-9","status":409,"code":"not_unique","detail":"x"}]}`})
	_, err := fakeClient(t, f).Tx(t.Context(), []TxOp{NewJob{Queue: "q"}, Settlement{Verb: VerbAck, Ref: "D-2.1.x"}, NewJob{Queue: "q"}})
	var e *Error
	if !errors.As(err, &e) || e.Code != ErrAborted || e.Applied != NotApplied || len(e.Items) != 2 || e.Items[0].Index != 1 || e.Items[0].ID != "D-2" || e.Items[1].Index != 2 {
		t.Fatalf("%+v", e)
	}
	if !errors.Is(err, ErrAborted) || !errors.Is(err, ErrLeaseLost) || !errors.Is(err, ErrNotUnique) || errors.Is(err, ErrQueueFull) {
		t.Error(err)
	}
}

// A sweep that had no time for all says so.
func TestSweepWithoutEnd(t *testing.T) {
	f := startFakes(t, 1, answer{status: 200, body: `{"queue":"q","purged":20000,"more":true}`})
	n, err := fakeClient(t, f).Purge(t.Context(), "q", nil)
	if n != 20000 || !errors.Is(err, ErrCommitTimeout) || !strings.Contains(f.requests()[0].query, "timeout=55000ms") {
		t.Errorf("%d %v", n, err)
	}
}

// Waiting for a job goes on until it is done, or the caller's time is over.
func TestJobWait(t *testing.T) {
	f := startFakes(t, 1, answer{status: 204}, answer{status: 204}, answer{status: 200, body: `{"id":"D-1","state":"dead","dead_reason":"rejected","last_error":"e"}`})
	got, err := fakeClient(t, f).JobWait(t.Context(), "D-1")
	if err != nil || got != (Ending{"D-1", EndDead, "rejected", "e"}) || len(f.requests()) != 3 {
		t.Errorf("%+v %v", got, err)
	}
	f = startFakes(t, 1, hang)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := fakeClient(t, f).JobWait(ctx, "D-1"); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
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

// A wait ends before the caller's deadline, with no job and no error, and no node is
// left while it does what it was asked.
func TestWaitEndsInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newFakeQueue(t, time.Minute)
		ctx, cancel := context.WithTimeout(context.Background(), 9*time.Second)
		defer cancel()
		jobs, err := q.client().Dequeue(ctx, "q", Wait(time.Minute), Max(1))
		if err != nil || len(jobs) != 0 || ctx.Err() != nil {
			t.Error(jobs, err, ctx.Err())
		}
		if len(q.polls) != 1 || q.polls[0].Get("wait") != "8900ms" {
			t.Error(q.polls)
		}
	})
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
