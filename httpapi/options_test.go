package httpapi

import (
	"fmt"
	"net/url"
	"reflect"
	"strings"
	"testing"
	"time"

	"raftq/fsm"
)

const enqueueQ = "/v1/queues/q/enqueue"

// TestJobOptions proves that each option reaches the op with the same meaning
// from a query, an envelope and a frame's header.
func TestJobOptions(t *testing.T) {
	at := time.Now().Add(time.Hour).UTC().Truncate(time.Millisecond)
	stamp := at.Format(time.RFC3339Nano)
	for _, tc := range []struct {
		query, json string
		want        func(j *fsm.NewJob)
	}{
		{"", "", func(j *fsm.NewJob) {}},
		{"delay=250ms", `"delay":"250ms"`, func(j *fsm.NewJob) { j.DelayMs = 250 }},
		{"delay=0", `"delay":"0"`, func(j *fsm.NewJob) {}},
		{"delay=1h30m", `"delay":"1h30m"`, func(j *fsm.NewJob) { j.DelayMs = 5400_000 }},
		{"at=" + stamp, `"at":"` + stamp + `"`, func(j *fsm.NewJob) { j.AtMs = at.UnixMilli() }},
		{"lease=2m", `"lease":"2m"`, func(j *fsm.NewJob) { j.LeaseMs = 120_000 }},
		{"lease=12h", `"lease":"12h"`, func(j *fsm.NewJob) { j.LeaseMs = 12 * 3600_000 }},
		{"at_most_once=true", `"at_most_once":true`, func(j *fsm.NewJob) { j.AtMostOnce = true }},
		{"at_most_once=false", `"at_most_once":false`, func(j *fsm.NewJob) {}},
		{"ttl=7d", `"ttl":"7d"`, func(j *fsm.NewJob) { j.TTLMs = 7 * 86400_000 }},
		{"priority=0", `"priority":0`, func(j *fsm.NewJob) { j.Priority = 0 }},
		{"priority=9", `"priority":9`, func(j *fsm.NewJob) { j.Priority = 9 }},
		{"max_failures=0", `"max_failures":0`, func(j *fsm.NewJob) { j.MaxFailures = -1 }},
		{"max_failures=3", `"max_failures":3`, func(j *fsm.NewJob) { j.MaxFailures = 3 }},
		{"group=g", `"group":"g"`, func(j *fsm.NewJob) { j.Group = "g" }},
		{"dedup_id=d%201&dedup_ttl=7d", `"dedup_id":"d 1","dedup_ttl":"7d"`, func(j *fsm.NewJob) { j.DedupID, j.DedupTTLMs = "d 1", 604800_000 }},
		{"unique_key=u", `"unique_key":"u"`, func(j *fsm.NewJob) { j.UniqueKey = "u" }},
		{"max_len=1000", `"max_len":1000`, func(j *fsm.NewJob) { j.MaxLen = 1000 }},
		{"header.b=2&header.a=%C3%A9+1", `"headers":{"b":"2","a":"é 1"}`, func(j *fsm.NewJob) {
			j.Headers = []fsm.Header{{Name: "a", Value: "é 1"}, {Name: "b", Value: "2"}}
		}},
		{"&delay=1s&&priority=5&", `"delay":"1s","priority":5`, func(j *fsm.NewJob) { j.DelayMs, j.Priority = 1000, 5 }},
	} {
		f := newFake()
		s := newServer(t, f, Options{})
		want := fsm.NewJob{Queue: "q", Body: []byte("x"), Priority: fsm.PriorityDefault}
		tc.want(&want)
		check := func(form string, a *answer) {
			t.Helper()
			if a.status != 201 {
				t.Fatalf("%s %s: %d %s", form, tc.query, a.status, a.body)
			}
			if got := f.lastOp(t).(*fsm.Enqueue).Jobs[0]; !reflect.DeepEqual(got, want) {
				t.Errorf("%s %s:\n got %+v\nwant %+v", form, tc.query, got, want)
			}
		}
		check("query", ask(t, s, "POST", enqueueQ+"?"+tc.query, "x"))
		comma := ""
		if tc.json != "" {
			comma = ","
		}
		check("envelope", ask(t, s, "POST", "/v1/queues/q/jobs", `{"body":"x"`+comma+tc.json+"}"))
		check("frame", ask(t, s, "POST", "/v1/queues/q/jobs", string(frame("{"+tc.json+"}", "x")), "Content-Type", "application/vnd.raftq.frames"))
	}
}

// TestOptionRefusals proves that what is unknown, out of range or not built
// yet is refused with 422 naming the field and the limit, and never applied.
func TestOptionRefusals(t *testing.T) {
	f := newFake()
	s := newServer(t, f, Options{})
	long := strings.Repeat("x", 300)
	for _, tc := range []struct{ path, body, names string }{
		{enqueueQ + "?dealy=5s", "x", "dealy: unknown"},
		{enqueueQ + "?delay=5", "x", "delay: \"5\" is no duration"},
		{enqueueQ + "?delay=-5s", "x", "delay"},
		{enqueueQ + "?delay=5y", "x", "delay"},
		{enqueueQ + "?delay=", "x", "delay"},
		{enqueueQ + "?delay=99999d", "x", "outside 0ms to 3650d"},
		{enqueueQ + "?delay=99999999999999d", "x", "delay"},
		{enqueueQ + "?delay=1s&delay=2s", "x", "delay: given twice"},
		{enqueueQ + "?delay=1s&at=2030-01-01T00:00:00Z", "x", "either delay or at"},
		{enqueueQ + "?at=tomorrow", "x", "RFC 3339"},
		{enqueueQ + "?at=2999-01-01T00:00:00Z", "x", "at: outside"},
		{enqueueQ + "?lease=0s", "x", "outside 1ms to 12h"},
		{enqueueQ + "?lease=13h", "x", "outside 1ms to 12h"},
		{enqueueQ + "?ttl=0s", "x", "ttl"},
		{enqueueQ + "?at_most_once=yes", "x", "at_most_once: want true or false"},
		{enqueueQ + "?priority=10", "x", "0 to 9"},
		{enqueueQ + "?priority=-1", "x", "0 to 9"},
		{enqueueQ + "?max_failures=2147483648", "x", "max_failures"},
		{enqueueQ + "?timeout=56s", "x", "outside 1ms to 55s"},
		{enqueueQ + "?consistency=weak", "x", "consistency: want strong or fast"},
		{enqueueQ + "?headers=x", "x", "headers: unknown"},
		{enqueueQ + "?header.=x", "x", "1 to 128 bytes"},
		{enqueueQ + "?header.a%20b=x", "x", "no header name"},
		{enqueueQ + "?header.a=x%0d%0aSet-Cookie:", "x", "control characters"},
		{enqueueQ + "?header.a=%ff", "x", "UTF-8"},
		{enqueueQ + "?header.a=1&header.a=2", "x", "header.a: given twice"},
		{enqueueQ + "?header.a=" + strings.Repeat("x", 16<<10), "x", "at most 16384 bytes"},
		{"/v1/queues/q/jobs", `{"body":"x","headers":{` + manyHeaders(257) + `}}`, "headers: at most 256"},
		{enqueueQ + "?group=", "x", "group: must not be empty"},
		{enqueueQ + "?group=" + long, "x", "group: at most 128 bytes, this one has 300"},
		{enqueueQ + "?dedup_id=" + long, "x", "dedup_id: at most 128 bytes"},
		{enqueueQ + "?dedup_id=d&dedup_ttl=1ms", "x", "outside 1s to 7d"},
		{enqueueQ + "?dedup_ttl=1m", "x", "dedup_ttl: goes with a dedup_id"},
		{enqueueQ + "?unique_key=" + long, "x", "unique_key: at most 128 bytes"},
		{enqueueQ + "?max_len=-1", "x", "max_len: want a whole number from 0"},
		{enqueueQ + "?replicate=0", "x", "replicate: want a whole number from 1 to 1000"},
		{enqueueQ + "?wait=3s", "x", "wait: unknown here; known are delay"},
		{enqueueQ + "?headers=3s", "x", ", replicate, header.NAME"},
		{"/v1/queues/$q/enqueue", "x", "reserved"},
		{"/v1/queues/%24q/enqueue", "x", "reserved"},
		{"/v1/queues//enqueue", "x", "at least one byte"},
		{"/v1/queues/" + long + "/enqueue", "x", "at most 255 bytes, this one 300"},
		{"/v1/queues/q/jobs", `{"body":"x","dealy":"5s"}`, "dealy: unknown here; known are body, body_base64, json, delay"},
		{"/v1/queues/q/jobs", `{"body":"x","priority":"5"}`, "priority: want a whole number"},
		{"/v1/queues/q/jobs", `{"body":"x","delay":5}`, "a duration with a unit"},
		{"/v1/queues/q/jobs", `{"body":"x","delay":null}`, "a duration with a unit"},
		{"/v1/queues/q/jobs", `{"body":"x","headers":{"a":1}}`, "object of strings"},
		{"/v1/queues/q/jobs", `{"body":"x","header.a":"1"}`, "header.a: unknown"},
		{"/v1/queues/q/jobs", `{"body":"x","json":1}`, "exactly one of"},
		{"/v1/queues/q/jobs", `{"priority":1}`, "exactly one of"},
		{"/v1/queues/q/jobs", `{"body":1}`, "body: want a string"},
		{"/v1/queues/q/jobs", `{"body_base64":"%%"}`, "standard base64"},
		{"/v1/queues/q/jobs", `[{"body":"x"},{"body":"x","ttl":"0s"}]`, "jobs[1]: ttl"},
		{"/v1/queues/q/jobs?delay=1s", `{"body":"x"}`, "delay: unknown here; known are timeout"},
		{"/v1/queues/q/jobs", "[" + strings.Repeat(`{"body":""},`, 1000) + `{"body":""}]`, "at most 1000 jobs"},
		{dequeueQ + "?max=0", "", "1 to 1000"},
		{dequeueQ + "?max=1001", "", "1 to 1000"},
		{dequeueQ + "?wait=56s", "", "outside 0ms to 55s"},
		{dequeueQ + "?lease=13h", "", "outside 1ms to 12h"},
		{dequeueQ + "?encoding=hex", "", "want base64"},
		{dequeueQ + "?attempt_id=" + long, "", "attempt_id: at most 128 bytes"},
		{dequeueQ + "?attempt_id=", "", "attempt_id: must not be empty"},
		{dequeueQ + "?consumer=" + long, "", "at most 128 bytes"},
		{dequeueQ + "?max=2", `{"max":3}`, "max: given twice"},
		{dequeueQ, `{"queues":["q"]}`, "queues: unknown"},
		{dequeueQ, `{"max":"3"}`, "max: want a whole number"},
		{"/v1/dequeue", `{}`, "queues: name 1 to 64"},
		{"/v1/dequeue", `{"queues":[]}`, "queues: name 1 to 64"},
		{"/v1/dequeue", `{"queues":"q"}`, "array of names"},
		{"/v1/dequeue", `{"queues":["a","a"]}`, "named twice"},
		{"/v1/dequeue", `{"queues":["$a"]}`, "reserved"},
		{"/v1/dequeue", `{"queues":[` + numbered(65) + `]}`, "at most 64"},
		{"/v1/ack", `{"items":[]}`, "items: name at least one"},
		{"/v1/ack", `{"itmes":[]}`, "itmes: unknown"},
		{"/v1/ack", `{"items":[{}]}`, "items[0]: receipt"},
		{"/v1/ack", `{"items":[{"id":"a","receipt":"b"}]}`, "either a receipt or an id"},
		{"/v1/ack", `{"items":[{"receipt":1}]}`, "is a string"},
		{"/v1/ack", `{"items":[{"receipt":"a","delay":"1s"}]}`, "items[0]: delay: unknown here"},
		{"/v1/ack", `{"items":[{"receipt":"a","error":"e"}]}`, "items[0]: error: unknown here"},
		{"/v1/nack", `{"items":[{"receipt":"a","lease":"1s"}]}`, "items[0]: lease: unknown here"},
		{"/v1/extend", `{"items":[{"receipt":"a","lease":"13h"}]}`, "items[0]: lease: 13h is outside"},
		{"/v1/ack", `{"items":[` + strings.Repeat(`{"id":"a"},`, 1000) + `{"id":"a"}]}`, "items: at most 1000"},
	} {
		a := ask(t, s, "POST", tc.path, tc.body)
		detail := wantProblem(t, a, 422, "invalid_option")
		if !strings.Contains(detail, tc.names) {
			t.Errorf("%s %.60s: %q does not say %q", tc.path, tc.body, detail, tc.names)
		}
		if m := a.json(t); m["applied"] != "no" || m["retryable"] != false {
			t.Errorf("%s: %s", tc.path, a.body)
		}
	}
	for i, h := range [][3]string{{enqueueQ, "Idempotency-Key", long}, {dequeueQ, "Idempotency-Key", "k"}, {enqueueQ, "Raftq-Consistency", "weak"}} {
		wantContains(t, wantProblem(t, ask(t, s, "POST", h[0], "x", h[1], h[2]), 422, "invalid_option"), []string{"at most 128 bytes", "attempt_id", "strong or fast"}[i])
	}
	if n := f.opCount(); n != 0 {
		t.Errorf("%d refused requests reached the replica", n)
	}
}

func manyHeaders(n int) string { return strings.ReplaceAll(numbered(n), ",", `:"",`) + `:""` }

func numbered(n int) string {
	var names []string
	for i := range n {
		names = append(names, fmt.Sprintf("%q", fmt.Sprint("q", i)))
	}
	return strings.Join(names, ",")
}

// TestConsistency proves that fast is taken from query or header, and that the
// answer says which it got: a replica may answer a fast request at commit.
func TestConsistency(t *testing.T) {
	f := newFake()
	s := newServer(t, f, Options{})
	for i, a := range []*answer{
		ask(t, s, "POST", enqueueQ+"?consistency=fast", "x"),
		ask(t, s, "POST", enqueueQ, "x", "Raftq-Consistency", "fast"),
	} {
		if a.status != 201 || a.json(t)["committed"] != true || !f.asked[i] {
			t.Errorf("%d %s", a.status, a.body)
		}
	}
	f.answer = func(op fsm.Op) (fsm.Result, error) {
		return fsm.Result{Fast: true, Batch: fsm.BatchRef{Node: 0xabc, Epoch: 5, Number: 6}, Items: make([]fsm.ItemResult, 1)}, nil
	}
	// A node's default counts where the request says nothing.
	byDefault := newServer(t, f, Options{Fast: true})
	for want, path := range map[bool]string{true: enqueueQ, false: enqueueQ + "?consistency=strong"} {
		ask(t, byDefault, "POST", path, "x")
		if got := f.asked[len(f.asked)-1]; got != want {
			t.Errorf("%s is fast: %v", path, got)
		}
	}
	a := ask(t, s, "POST", enqueueQ+"?consistency=fast", "x")
	if a.status != 202 || a.json(t)["committed"] != false || a.header("Raftq-Batch") != "abc.5.6" {
		t.Errorf("%d %s", a.status, a.body)
	}
}

// TestQueueNames proves that a name is decoded once and may be any bytes.
func TestQueueNames(t *testing.T) {
	f := newFake()
	s := newServer(t, f, Options{})
	for _, name := range []string{"q", "a/b", "..", ".", "a b", "%2F", "é", "\x00\xff", "a+b", "x$", "?#&", strings.Repeat("n", 255)} {
		escaped := ""
		for i := range len(name) {
			escaped += fmt.Sprintf("%%%02X", name[i])
		}
		if name == url.PathEscape(name) || name == "a+b" {
			escaped = name
		}
		a := ask(t, s, "POST", "/v1/queues/"+escaped+"/enqueue", "x")
		if a.status != 201 {
			t.Fatalf("%q: %d %s", name, a.status, a.body)
		}
		if got := f.lastOp(t).(*fsm.Enqueue).Jobs[0].Queue; got != name {
			t.Errorf("%q became %q", name, got)
		}
	}
	wantProblem(t, ask(t, s, "POST", "/v1/queues/a%2/enqueue", "x"), 400, "invalid_request")
}

// TestDurations proves the forms of durations and that they never round down.
func TestDurations(t *testing.T) {
	for in, want := range map[string]int64{
		"0": 0, "0s": 0, "1ms": 1, "250ms": 250, "30s": 30_000, "5m": 300_000, "2h": 7200_000, "7d": 604800_000,
		"1h30m": 5400_000, "1.5s": 1500, "0.0001s": 1, "1.0001s": 1001, "0.5ms": 1, "1d2h3m4s5ms": 93784_005, "1.5d": 129600_000,
	} {
		if got, ok := parseDuration([]byte(in)); !ok || got != want {
			t.Errorf("%s: %d %v, want %d", in, got, ok, want)
		}
	}
	for _, in := range []string{"", "5", "s", "-1s", "+1s", "1 s", "1S", "1us", "1w", "1.s", ".5s", "1s5", "00", "9999999999999999s", "1e3s", "1s\x00"} {
		if got, ok := parseDuration([]byte(in)); ok {
			t.Errorf("%q was read as %d", in, got)
		}
	}
}
