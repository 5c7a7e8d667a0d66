package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"
)

// asked lists the nodes that were asked, in order.
func (f *fakes) asked() (all []int) {
	for _, s := range f.requests() {
		all = append(all, s.node)
	}
	return all
}

// What is tried again, and what the error says when all fails.
func TestRetryRules(t *testing.T) {
	enqueue := func(c *Client) error { _, err := c.Enqueue(t.Context(), "q", []byte("x")); return err }
	unkeyed := func(c *Client) error { c.opts.keys = false; return enqueue(c) }
	ack := func(c *Client) error { _, err := c.Ack(t.Context(), "r.1.x"); return err }
	nack := func(c *Client) error { c.opts.keys = false; _, err := c.Nack(t.Context(), "r.1.x", nil); return err }
	nackID := func(c *Client) error { c.opts.keys = false; _, err := c.Nack(t.Context(), "D-1", nil); return err }
	acked := answer{status: 200, body: `{"results":[{"id":"D-1","status":200}]}`}
	look := func(c *Client) error { _, err := c.Queue(t.Context(), "q"); return err }
	queue := answer{status: 200, body: `{"queue":"q"}`}
	drop := func(c *Client) error {
		c.opts.keys = false
		_, err := c.DeleteQueue(t.Context(), "q", false)
		return err
	}

	noLeader := problemOf(503, ErrNoLeader, NotApplied, true)
	timeout := problemOf(504, ErrCommitTimeout, Unknown, true)
	for _, tc := range []struct {
		name   string
		call   func(*Client) error
		script []answer
		asked  []int   // nodes
		code   Code    // of the error, "" for none
		what   Applied // of the error
	}{
		{"well", enqueue, []answer{created}, []int{0}, "", ""},
		{"503 goes on to the next", unkeyed, []answer{noLeader, created}, []int{0, 1}, "", ""},
		{"leaving", unkeyed, []answer{problemOf(503, ErrLeaving, NotApplied, true), created}, []int{0, 1}, "", ""},
		{"overloaded", unkeyed, []answer{problemOf(503, ErrOverloaded, NotApplied, true), created}, []int{0, 1}, "", ""},
		{"rate limited", unkeyed, []answer{problemOf(429, ErrRateLimited, NotApplied, true), created}, []int{0, 1}, "", ""},
		{"not fresh", look, []answer{problemOf(503, ErrNotFresh, NotApplied, true), queue}, []int{0, 1}, "", ""},
		{"slow to arrive", unkeyed, []answer{problemOf(408, ErrRequestTimeout, NotApplied, true), created}, []int{0, 1}, "", ""},
		{"full is the caller's to know", enqueue, []answer{problemOf(429, ErrQueueFull, NotApplied, true)}, []int{0}, ErrQueueFull, NotApplied},
		{"memory too", enqueue, []answer{problemOf(507, ErrMemoryLimit, NotApplied, true)}, []int{0}, ErrMemoryLimit, NotApplied},
		{"replicas too", enqueue, []answer{problemOf(503, ErrNotEnoughReplicas, NotApplied, true)}, []int{0}, ErrNotEnoughReplicas, NotApplied},
		{"refused", enqueue, []answer{problemOf(422, ErrInvalidOption, NotApplied, false)}, []int{0}, ErrInvalidOption, NotApplied},
		{"a bug", enqueue, []answer{problemOf(500, ErrInternal, Unknown, false)}, []int{0}, ErrInternal, Unknown},

		{"unknown with a key", enqueue, []answer{timeout, created}, []int{0, 1}, "", ""},
		{"hang-up with a key", enqueue, []answer{hangUp, created}, []int{0, 1}, "", ""},
		{"unknown without a key", unkeyed, []answer{timeout, created}, []int{0}, ErrCommitTimeout, Unknown},
		{"hang-up without a key", unkeyed, []answer{hangUp, created}, []int{0}, ErrNoAnswer, Unknown},
		{"a second delete might hit another queue", drop, []answer{hangUp, {status: 200, body: `{"queue":"q","deleted":1}`}}, []int{0}, ErrNoAnswer, Unknown},
		{"an ack is done once anyway", ack, []answer{hangUp, acked}, []int{0, 1}, "", ""},
		{"a nack by receipt too", nack, []answer{hangUp, acked}, []int{0, 1}, "", ""},
		{"but its refusal is open then", nack, []answer{hangUp, {status: 207, body: `{"results":[{"id":"D-1","status":409,"code":"lease_lost","detail":"x"}]}`}}, nil, ErrLeaseLost, Unknown},
		{"a nack by id hits whoever has the job", nackID, []answer{hangUp, acked}, []int{0}, ErrNoAnswer, Unknown},
		{"a read", look, []answer{hangUp, timeout, queue}, []int{0, 1, 2}, "", ""},
		{"a read changes nothing", look, []answer{hangUp}, nil, ErrNoAnswer, NotApplied},
		{"a proxy's 502", look, []answer{{status: 502, body: "<html>"}, queue}, []int{0, 1}, "", ""},
		{"a proxy's 502 leaves it open", unkeyed, []answer{{status: 502, body: "<html>"}, created}, []int{0}, ErrBadAnswer, Unknown},
		{"not raftq", unkeyed, []answer{{status: 404, body: "404 page not found"}, created}, []int{0}, ErrBadAnswer, NotApplied},
		{"a redirect is not followed", unkeyed, []answer{{status: 307, header: [2]string{"Location", "/x"}}, created}, []int{0}, ErrBadAnswer, Unknown},

		// What an earlier attempt left open stays open, unless the key settles it.
		{"open, then no leader", ack, []answer{hangUp, noLeader}, nil, ErrNoLeader, Unknown},
		{"open, then refused by the machine", enqueue, []answer{hangUp, problemOf(409, ErrNotUnique, NotApplied, false)}, []int{0, 1}, ErrNotUnique, NotApplied},
		{"open, then not let in", enqueue, []answer{hangUp, problemOf(401, ErrUnauthenticated, NotApplied, false)}, []int{0, 1}, ErrUnauthenticated, Unknown},
		{"open, then gone", ack, []answer{hangUp, problemOf(410, ErrJobGone, NotApplied, false)}, []int{0, 1}, ErrJobGone, Unknown},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := startFakes(t, 3, tc.script...)
			c := fakeClient(t, f)
			err := tc.call(c)
			if got := f.asked(); tc.asked != nil && !slices.Equal(got, tc.asked) {
				t.Errorf("asked nodes %v, want %v", got, tc.asked)
			}
			var e *Error
			switch {
			case tc.code == "" && err != nil:
				t.Error(err)
			case tc.code == "":
			case !errors.As(err, &e) || !errors.Is(err, tc.code) || e.Code != tc.code || e.Applied != tc.what:
				t.Errorf("%v, want %s, applied %s", err, tc.code, tc.what)
			case tc.asked != nil && e.Attempts != len(tc.asked):
				t.Errorf("%d attempts, want %d", e.Attempts, len(tc.asked))
			}
		})
	}
}

// All attempts of a call are alike to the byte, but for the node: else the same key
// would stand for other content.
func TestAttemptsAreAlike(t *testing.T) {
	for name, do := range map[string]func(context.Context, *Client) error{
		"enqueue": func(ctx context.Context, c *Client) error {
			_, err := c.Enqueue(ctx, "q", []byte("x"), Delay(time.Second))
			return err
		},
		"nack by id": func(ctx context.Context, c *Client) error { _, err := c.Nack(ctx, "D-1", nil); return err },
		"batch": func(ctx context.Context, c *Client) error {
			_, err := c.EnqueueBatch(ctx, "q", []NewJob{{Body: []byte("x")}})
			return err
		},
		"dequeue": func(ctx context.Context, c *Client) error {
			_, err := c.Dequeue(ctx, "q", Wait(time.Second))
			return err
		},
	} {
		f := startFakes(t, 3, problemOf(504, ErrCommitTimeout, Unknown, true), hangUp, problemOf(503, ErrNoLeader, NotApplied, true), answer{status: 200, body: `{"results":[{"status":200}]}`})
		c := fakeClient(t, f)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		err := do(ctx, c)
		if name != "dequeue" && err != nil { // its last answer is no frame
			t.Errorf("%s: %v", name, err)
		}
		got := f.requests()
		if len(got) != 4 {
			t.Fatalf("%s: %d requests", name, len(got))
		}
		for _, s := range got[1:] {
			if s.path != got[0].path || s.query != got[0].query || s.body != got[0].body || s.header.Get("Idempotency-Key") != got[0].header.Get("Idempotency-Key") {
				t.Errorf("%s:\n%+v\n%+v", name, got[0], s)
			}
		}
		hasKey, hasAttempt := got[0].header.Get("Idempotency-Key") != "", strings.Contains(got[0].query, "attempt_id=")
		if hasKey == (name == "dequeue") || hasAttempt != (name == "dequeue") {
			t.Errorf("%s: %+v", name, got[0])
		}
	}
}

// Keys differ from call to call, and the caller's own is sent as it is.
func TestKeys(t *testing.T) {
	f := startFakes(t, 1, created)
	c := fakeClient(t, f)
	for range 3 {
		if _, err := c.Enqueue(t.Context(), "q", nil); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := c.Enqueue(t.Context(), "q", nil, IdempotencyKey("mine")); err != nil {
		t.Fatal(err)
	}
	c.opts.keys = false
	if _, err := c.Enqueue(t.Context(), "q", nil); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Enqueue(t.Context(), "q", nil, IdempotencyKey("mine")); err != nil {
		t.Fatal(err)
	}
	var keys []string
	for _, s := range f.requests() {
		keys = append(keys, s.header.Get("Idempotency-Key"))
	}
	if keys[0] == keys[1] || keys[1] == keys[2] || len(keys[0]) < 20 || !slices.Equal(keys[3:], []string{"mine", "", "mine"}) {
		t.Error(keys)
	}
}

// A request of the caller's own that is to be repeated under a key gets one.
func TestDoMakesKeys(t *testing.T) {
	f := startFakes(t, 2, hangUp, created)
	r := Request{Method: "POST", Path: "/v1/queues/q/enqueue", Repeat: RepeatKeyed}
	if _, err := fakeClient(t, f).Do(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	got := f.requests()
	if k := got[0].header.Get("Idempotency-Key"); k == "" || k != got[1].header.Get("Idempotency-Key") || r.Key != "" {
		t.Errorf("%+v", got)
	}
}

// Nobody listens: nothing was done, and the error says so.
func TestUnreachable(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := ln.Addr().String()
	ln.Close()
	c := newTestClient(t, addr, WithRetryFor(0))
	_, err = c.Enqueue(t.Context(), "q", nil, IdempotencyKey("k"))
	var e *Error
	if !errors.As(err, &e) || e.Code != ErrUnreachable || e.Applied != NotApplied || !e.Retryable || e.Attempts != 1 || e.Node != addr {
		t.Errorf("%+v", e)
	}
	// A node that comes back is found again.
	c = newTestClient(t, addr, WithRetryFor(time.Minute))
	done := make(chan error, 1)
	go func() { _, err := c.Enqueue(t.Context(), "q", nil); done <- err }()
	eventually(t, 5*time.Second, "a failure", func() bool {
		c.nodes.mu.Lock()
		defer c.nodes.mu.Unlock()
		return c.nodes.all[0].fails > 1
	})
	if ln, err = net.Listen("tcp", addr); err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(201)
		_, _ = w.Write([]byte(created.body))
	})}
	go func() { _ = srv.Serve(ln) }()
	defer srv.Close()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// Of nodes that fail in different ways the error is the one that says most, wherever
// its node stands in the list, and it tells of all attempts.
func TestErrorSaysMost(t *testing.T) {
	down := func(t *testing.T) string {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		ln.Close()
		return "http://" + ln.Addr().String()
	}
	noLeader := problemOf(503, ErrNoLeader, NotApplied, true)
	for _, c := range []struct {
		name    string
		up      []answer // a node for each
		code    Code
		applied Applied
		says    string
	}{
		{"nobody is there", nil, ErrUnreachable, NotApplied, "connection refused"},
		{"one has no leader", []answer{noLeader}, ErrNoLeader, NotApplied, "D (no_leader"},
		{"one is silent", []answer{hangUp}, ErrNoAnswer, Unknown, "EOF"},
		{"one is silent, one has no leader", []answer{hangUp, noLeader}, ErrNoLeader, Unknown, "D (no_leader; it may have been done or not"},
		{"the same the other way round", []answer{noLeader, hangUp}, ErrNoLeader, Unknown, "D (no_leader; it may have been done or not"},
	} {
		for _, first := range []bool{true, false} { // a node that is down stands first, or last
			t.Run(fmt.Sprintf("%s, down first %v", c.name, first), func(t *testing.T) {
				var nodes []string
				for _, a := range c.up {
					nodes = append(nodes, startFakes(t, 1, a).endpoints())
				}
				if nodes = append(nodes, down(t)); first {
					slices.Reverse(nodes)
				}
				client := newTestClient(t, strings.Join(nodes, ","), fixed, WithRetryFor(0))
				_, err := client.Enqueue(t.Context(), "q", nil, IdempotencyKey("k"))
				var e *Error
				if !errors.As(err, &e) || e.Code != c.code || e.Applied != c.applied || e.Attempts != len(nodes) || !strings.Contains(e.Error(), c.says) {
					t.Errorf("%v: %+v", err, e)
				}
				if strings.Count(err.Error(), "127.0.0.1") > 1 {
					t.Errorf("names an address twice: %v", err)
				}
			})
		}
	}
}

// A node that fails is logged once, however long it fails, and once when it is back.
func TestOutageIsLoggedOnce(t *testing.T) {
	noLeader := problemOf(503, ErrNoLeader, NotApplied, true)
	f := startFakes(t, 1, noLeader, noLeader, noLeader, noLeader, created, created)
	var log bytes.Buffer
	c, err := New(f.endpoints(), fixed, WithRetryFor(time.Minute), WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for range 2 {
		if _, err := c.Enqueue(t.Context(), "q", nil); err != nil {
			t.Fatal(err)
		}
	}
	if text := log.String(); strings.Count(text, "\n") != 2 || !strings.Contains(text, "node cannot serve") || !strings.Contains(text, "node serves again") {
		t.Errorf("logged\n%s", text)
	}
}

// A call ends with its context, says why, and whether it may have been done.
func TestContextEnds(t *testing.T) {
	f := startFakes(t, 1, hang)
	c := fakeClient(t, f, WithAttemptTimeout(30*time.Second))
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := c.Enqueue(ctx, "q", nil)
	var e *Error
	if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, ErrNoAnswer) || !errors.As(err, &e) || e.Applied != Unknown {
		t.Error(err)
	}
	why := errors.New("why")
	ctx2, cancel2 := context.WithCancelCause(t.Context())
	go func() {
		eventually(t, 5*time.Second, "the request", func() bool { return len(f.requests()) > 1 })
		cancel2(why)
	}()
	_, err = c.Enqueue(ctx2, "q", nil)
	if !errors.Is(err, context.Canceled) || !errors.Is(err, why) || !errors.Is(err, ErrNoAnswer) {
		t.Error(err)
	}
	_, err = c.Enqueue(ctx2, "q", nil)
	if !errors.Is(err, why) || !errors.Is(err, ErrUnreachable) || !errors.As(err, &e) || e.Applied != NotApplied {
		t.Errorf("over before it began: %v", err)
	}
	if n := len(f.requests()); n != 2 {
		t.Errorf("%d requests", n)
	}
	if c.nodes.all[0].fails != 0 {
		t.Error("the node is blamed for the caller's end")
	}
}

// A node that hangs is left for another within the caller's time, and passed over
// afterwards.
func TestHungNode(t *testing.T) {
	f := startFakes(t, 2, hang, created)
	c := fakeClient(t, f, WithAttemptTimeout(30*time.Second))
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second)
	defer cancel()
	began := time.Now()
	if _, err := c.Enqueue(ctx, "q", nil); err != nil {
		t.Fatal(err)
	}
	if d := time.Since(began); d < slowMin || d > 3500*time.Millisecond {
		t.Errorf("took %v", d)
	}
	if _, err := c.Enqueue(ctx, "q", nil); err != nil {
		t.Fatal(err)
	}
	if got := f.asked(); !slices.Equal(got, []int{0, 1, 1}) {
		t.Error(got)
	}
	// So it is when the call could not be made elsewhere.
	f = startFakes(t, 2, hang, created)
	c = fakeClient(t, f, WithoutKeys())
	brief, cancel := context.WithTimeout(t.Context(), slowMin+100*time.Millisecond)
	defer cancel()
	if _, err := c.Enqueue(brief, "q", nil); !errors.Is(err, ErrNoAnswer) {
		t.Error(err)
	}
	if _, err := c.Enqueue(ctx, "q", nil); err != nil {
		t.Fatal(err)
	}
	if got := f.asked(); !slices.Equal(got, []int{0, 1}) {
		t.Error(got)
	}
}

// The node is told how long it has: the caller's time, the call's, or the client's.
func TestTimeoutIsSent(t *testing.T) {
	f := startFakes(t, 1, created)
	c := fakeClient(t, f, WithAttemptTimeout(7*time.Second))
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	for _, do := range []func() error{
		func() error { _, err := c.Enqueue(t.Context(), "q", nil); return err },
		func() error { _, err := c.Enqueue(t.Context(), "q", nil, Timeout(time.Second)); return err },
		func() error { _, err := c.Enqueue(t.Context(), "q", nil, Timeout(time.Hour)); return err },
		func() error { _, err := c.Enqueue(ctx, "q", nil); return err },
	} {
		if err := do(); err != nil {
			t.Fatal(err)
		}
	}
	got := f.requests()
	for i, want := range []string{"timeout=7000ms", "timeout=1000ms", "timeout=55000ms"} {
		if got[i].query != want {
			t.Errorf("%q, want %q", got[i].query, want)
		}
	}
	if q := got[3].query; q != "timeout=5000ms" && !strings.HasPrefix(q, "timeout=4") || len(q) != len("timeout=4999ms") {
		t.Errorf("%q of 5 s", q)
	}
}

// Answers are bounded, whether or not they say how long they are.
func TestAnswerIsBounded(t *testing.T) {
	long := func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(200)
		block := make([]byte, 1<<20)
		for range answerMax>>20 + 1 {
			if _, err := w.Write(block); err != nil {
				return
			}
		}
	}
	f := startFakes(t, 1, answer{do: long})
	c := fakeClient(t, f, WithRetryFor(0))
	if _, err := c.Queue(t.Context(), "q"); !errors.Is(err, ErrNoAnswer) || !strings.Contains(err.Error(), "more than") {
		t.Error(err)
	}
}

// A cluster that knows no keys yet takes what needs none, and is asked again later
// whether it does.
func TestKeysNotKnown(t *testing.T) {
	old := problemOf(503, ErrFeatureLevel, NotApplied, true)
	f := startFakes(t, 2, old, old, created, created, hangUp)
	c := fakeClient(t, f)
	for range 2 {
		if _, err := c.Enqueue(t.Context(), "q", nil); err != nil {
			t.Fatal(err)
		}
	}
	var e *Error
	if _, err := c.Enqueue(t.Context(), "q", nil); !errors.As(err, &e) || e.Applied != Unknown || e.Attempts != 1 {
		t.Errorf("without a key it is not repeated: %v", err)
	}
	var keyed []bool
	for _, s := range f.requests() {
		keyed = append(keyed, s.header.Get("Idempotency-Key") != "")
	}
	if !slices.Equal(keyed, []bool{true, true, false, false, false}) {
		t.Error(keyed)
	}
	c.keyless.Store(0)
	if !c.known() {
		t.Error("no keys any more")
	}

	f = startFakes(t, 2, old, old, answer{status: 200, body: frames("{}", "")})
	if jobs, err := fakeClient(t, f).Dequeue(t.Context(), "q", Max(3)); err != nil || len(jobs) != 1 {
		t.Error(jobs, err)
	}
	if q := f.requests()[2].query; strings.Contains(q, "attempt_id") || !strings.Contains(q, "max=3") {
		t.Error(q)
	}
	// What may have been applied under a key is not sent without it, nor is a key
	// of the caller's taken away.
	f = startFakes(t, 2, hangUp, old)
	if _, err := fakeClient(t, f).Enqueue(t.Context(), "q", nil); !errors.Is(err, ErrFeatureLevel) || !errors.As(err, &e) || e.Applied != Unknown {
		t.Error(err)
	}
	for _, s := range f.requests() {
		if s.header.Get("Idempotency-Key") == "" {
			t.Errorf("%+v", s)
		}
	}
	f = startFakes(t, 2, old)
	if _, err := fakeClient(t, f).Enqueue(t.Context(), "q", nil, IdempotencyKey("k")); !errors.Is(err, ErrFeatureLevel) || !errors.As(err, &e) || e.Applied != NotApplied {
		t.Error(err)
	}
	for _, s := range f.requests() {
		if s.header.Get("Idempotency-Key") != "k" {
			t.Errorf("%+v", s)
		}
	}
	// A node that does not know yet what the others are is not the last word.
	f = startFakes(t, 2, old, created)
	if _, err := fakeClient(t, f).Enqueue(t.Context(), "q", nil); err != nil || f.requests()[1].header.Get("Idempotency-Key") == "" {
		t.Error(err)
	}
}
