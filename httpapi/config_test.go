package httpapi

import (
	"encoding/json"
	"reflect"
	"testing"

	"raftq/fsm"
)

// TestConfigFields proves that each field of a configuration reaches the op, is shown
// again as it holds, and that what is shown can be sent back.
func TestConfigFields(t *testing.T) {
	r := newInProcess(t)
	s := newServer(t, r, Options{})
	full := `{"lease":"2m","ttl":"7d","delay":"10s","max_failures":3,"dead_letter":"dlq","dead_ttl":"30d","backoff":{"min":"1s","max":"5m"},"max_len":10,` +
		`"max_bytes":1000,"overflow":"drop_oldest","aging":"1h","group_limit":2,"fair":true,"consistency":"fast"}`
	want := fsm.QueueConfig{LeaseMs: 120_000, TTLMs: 604800_000, DelayMs: 10_000, MaxFailures: 3, DeadLetter: "dlq", DeadTTLMs: 30 * 86400_000, BackoffMinMs: 1000, BackoffMaxMs: 300_000,
		MaxLen: 10, MaxBytes: 1000, Overflow: fsm.OverflowDropOldest, AgingMs: 3600_000, GroupLimit: 2, Fair: true, Consistency: fsm.ConsistencyFast}
	config := func() (c fsm.QueueConfig) {
		r.Read(fsm.ReadHow{Strong: true}, func(m *fsm.Machine) {
			q, _ := m.Queue("q")
			c = q.Config
		})
		return c
	}
	shown := func() string {
		var q struct{ Config json.RawMessage }
		if err := json.Unmarshal([]byte(ask(t, s, "GET", "/v1/queues/q?consistency=strong", "").body), &q); err != nil {
			t.Fatal(err)
		}
		return string(q.Config)
	}
	put := func(method, body string) {
		t.Helper()
		if a := ask(t, s, method, "/v1/queues/q", body); a.status != 200 {
			t.Fatalf("%s: %d %s", body, a.status, a.body)
		}
	}
	put("PUT", full)
	if got := config(); got != want {
		t.Errorf("got %+v\nwant %+v", got, want)
	}
	if got := shown(); got != full {
		t.Errorf("shown %s\nwant %s", got, full)
	}
	put("PUT", shown())
	if got := config(); got != want {
		t.Errorf("what is shown, sent back: %+v", got)
	}
	for i := range reflect.TypeOf(want).NumField() {
		if reflect.ValueOf(want).Field(i).IsZero() {
			t.Errorf("the test says nothing of %s", reflect.TypeOf(want).Field(i).Name)
		}
	}
	// PATCH changes what it names, null is a default.
	put("PATCH", `{"max_len":null,"ttl":"1d"}`)
	want.MaxLen, want.TTLMs = 0, 86400_000
	if got := config(); got != want {
		t.Errorf("patched: %+v", got)
	}
	// Each field alone, to its default.
	for _, f := range configFields {
		put("PUT", full)
		put("PATCH", `{"`+f.opt.String()+`":null}`)
	}
	put("PUT", `{"max_failures":0}`)
	if got := config(); got != (fsm.QueueConfig{MaxFailures: -1}) {
		t.Errorf("the rest of a PUT is not its default: %+v", got)
	}
	defaults := `{"lease":"1m","ttl":null,"delay":null,"max_failures":20,"dead_letter":null,"dead_ttl":"14d","backoff":null,"max_len":0,` +
		`"max_bytes":0,"overflow":"reject","aging":null,"group_limit":1,"fair":false,"consistency":null}`
	put("PUT", `{}`)
	if got := shown(); got != defaults {
		t.Errorf("defaults: %s\nwant %s", got, defaults)
	}
	put("PUT", defaults)
}

// TestConfigRefusals proves that what a configuration may not say is refused by name.
func TestConfigRefusals(t *testing.T) {
	f := newFake()
	s := newServer(t, f, Options{})
	for _, tc := range []struct{ body, names string }{
		{`{"maxlen":1}`, "maxlen: unknown here; known are delay, lease"},
		{`{"max_len":1,"max_len":2}`, "max_len: given twice"},
		{`{"max_len":1,"max_len":null}`, "max_len: given twice"},
		{`{"max_len":-1}`, "max_len: want a whole number"},
		{`{"lease":"13h"}`, "lease: 13h is outside 1ms to 12h"},
		{`{"dead_letter":"q"}`, "dead_letter: names the queue itself"},
		{`{"dead_letter":"$x"}`, "dead_letter: names that begin with $"},
		{`{"backoff":"1s"}`, `backoff: want an object such as {"min":"1s","max":"5m"}`},
		{`{"backoff":{"min":"1s"}}`, "backoff: has a min and a max"},
		{`{"backoff":{"min":"2s","max":"1s"}}`, "backoff: min is longer than max"},
		{`{"backoff":{"min":"0s","max":"1s"}}`, "backoff.min: 0s is outside 1ms"},
		{`{"backoff":{"min":"1s","max":"1s","mid":"1s"}}`, "backoff.mid: unknown here"},
		{`{"overflow":"drop"}`, "overflow: want reject or drop_oldest"},
		{`{"consistency":"weak"}`, "consistency: want strong or fast"},
		{`{"group_limit":0}`, "group_limit: want a whole number from 1"},
		{`{"fair":"yes"}`, "fair: want true or false"},
	} {
		wantContains(t, wantProblem(t, ask(t, s, "PUT", "/v1/queues/q", tc.body), 422, "invalid_option"), tc.names)
	}
	wantContains(t, wantProblem(t, ask(t, s, "PATCH", "/v1/queues/q", `{}`), 400, "invalid_request"), "at least one field")
	wantProblem(t, ask(t, s, "PUT", "/v1/queues/q", ``), 400, "invalid_request")
	wantProblem(t, ask(t, s, "PUT", "/v1/queues/q", `[]`), 400, "invalid_request")
	for _, h := range [][2]string{{"If-Match", "812"}, {"If-Match", `W/"812"`}, {"If-Match", `"a"`}, {"If-Match", `"1", "2"`}, {"If-Match", "*"}, {"If-None-Match", `"1"`}} {
		wantContains(t, wantProblem(t, ask(t, s, "PUT", "/v1/queues/q", `{}`, h[0], h[1]), 422, "invalid_option"), h[0])
	}
	wantProblem(t, ask(t, s, "PUT", "/v1/queues/q", `{}`, "If-Match", `"1"`, "If-None-Match", "*"), 422, "invalid_option")
	for _, tc := range []struct{ body, names string }{
		{`{"in":1}`, "in: want true or false"}, {`{"until":"soon","in":true}`, "until: want an RFC 3339 time"},
		{`{"until":"1970-01-01T00:00:00Z","in":true}`, "until: not after 1970"}, {`{"until":"0001-01-01T00:00:00Z","in":true}`, "until: not after 1970"},
		{`{"until":"2035-01-01T00:00:00Z"}`, "until: of no pause"}, {`{"paused":true}`, "paused: unknown here; known are in, out, until"},
	} {
		wantContains(t, wantProblem(t, ask(t, s, "PUT", "/v1/queues/q/pause", tc.body), 422, "invalid_option"), tc.names)
	}
	if f.opCount() != 0 {
		t.Error("a refused configuration reached the replica")
	}
}

// TestETags proves the compare-and-set of configurations: with an ETag, for the first
// time only, and that a queue which was never configured has one too.
func TestETags(t *testing.T) {
	s := newServer(t, newInProcess(t), Options{})
	put := func(body string, headers ...string) *answer {
		return ask(t, s, "PUT", "/v1/queues/q", body, headers...)
	}
	etag := func() string { return ask(t, s, "GET", "/v1/queues/q", "").header("Etag") }
	ask(t, s, "POST", enqueueQ, "")
	if got := etag(); got != `"0"` {
		t.Errorf("never configured: %s", got)
	}
	first := put(`{"max_len":1}`, "If-Match", `"0"`)
	if first.status != 200 || first.header("Etag") != etag() || first.json(t)["version"] == nil {
		t.Fatalf("%d %s, ETag %s and %s", first.status, first.body, first.header("Etag"), etag())
	}
	for _, h := range [][2]string{{"If-Match", `"0"`}, {"If-None-Match", "*"}, {"If-Match", `"1"`}} {
		wantProblem(t, put(`{}`, h[0], h[1]), 412, "etag_mismatch")
	}
	second := ask(t, s, "PATCH", "/v1/queues/q", `{"max_len":2}`, "If-Match", first.header("Etag"))
	if second.status != 200 || second.header("Etag") == first.header("Etag") || second.header("Etag") != etag() {
		t.Errorf("%d %s", second.status, second.header("Etag"))
	}
	wantProblem(t, ask(t, s, "PATCH", "/v1/queues/q", `{"max_len":3}`, "If-Match", first.header("Etag")), 412, "etag_mismatch")
	if a := put(`{}`); a.status != 200 {
		t.Errorf("without a condition: %d", a.status)
	}
	if a := ask(t, s, "PUT", "/v1/queues/new", `{}`, "If-None-Match", "*"); a.status != 200 {
		t.Errorf("a new one: %d %s", a.status, a.body)
	}
}

// TestPauses proves what a pause does and shows, and that acks go on.
func TestPauses(t *testing.T) {
	s := newServer(t, newInProcess(t), Options{})
	for range 2 {
		ask(t, s, "POST", enqueueQ, "x")
	}
	rec := ask(t, s, "POST", dequeueQ, "").json(t)["jobs"].([]any)[0].(map[string]any)["receipt"].(string)
	a := ask(t, s, "PUT", "/v1/queues/q/pause", `{"in":true,"out":true,"until":"2035-01-31T12:00:00Z"}`)
	paused := `"paused":{"in":true,"out":true,"until":"2035-01-31T12:00:00.000Z","until_ms":2053857600000}`
	if a.status != 200 || a.body != `{"queue":"q",`+paused+"}\n" {
		t.Errorf("%d %s", a.status, a.body)
	}
	wantContains(t, ask(t, s, "GET", "/v1/queues/q", "").body, paused)
	wantProblem(t, ask(t, s, "POST", enqueueQ, "x"), 409, "queue_paused")
	if a := ask(t, s, "POST", dequeueQ, ""); a.status != 204 {
		t.Errorf("a dequeue: %d %s", a.status, a.body)
	}
	if a := ask(t, s, "POST", "/v1/ack", `{"items":[{"receipt":"`+rec+`"}]}`); a.status != 200 {
		t.Errorf("an ack: %d %s", a.status, a.body)
	}
	if a := ask(t, s, "PUT", "/v1/queues/q/pause", `{}`); a.body != `{"queue":"q","paused":{"in":false,"out":false}}`+"\n" {
		t.Errorf("the end: %s", a.body)
	}
	if a := ask(t, s, "POST", dequeueQ, ""); a.status != 200 {
		t.Errorf("afterwards: %d", a.status)
	}
	// One that is over when it comes is none, and ends another.
	ask(t, s, "PUT", "/v1/queues/q/pause", `{"in":true}`)
	none := `"paused":{"in":false,"out":false}`
	wantContains(t, ask(t, s, "PUT", "/v1/queues/q/pause", `{"in":true,"until":"1999-01-01T00:00:00Z"}`).body, none)
	wantContains(t, ask(t, s, "GET", "/v1/queues/q", "").body, none)
}
