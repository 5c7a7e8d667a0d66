package httpapi

import (
	"encoding/binary"
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"

	"raftq/fsm"
)

// TestDequeueOptions proves that options reach the op from query and body.
func TestDequeueOptions(t *testing.T) {
	f := newFake()
	s := newServer(t, f, Options{})
	for _, tc := range []struct {
		path, body string
		want       fsm.Dequeue
	}{
		{dequeueQ, "", fsm.Dequeue{Queues: []string{"q"}, Max: 1}},
		{dequeueQ + "?max=10&wait=1ms&lease=2m&consumer=w%201", "", fsm.Dequeue{Queues: []string{"q"}, Max: 10, WaitMs: 1, LeaseMs: 120_000, Consumer: "w 1"}},
		{dequeueQ, `{"max":10,"wait":"1ms","lease":"2m","consumer":"w 1"}`, fsm.Dequeue{Queues: []string{"q"}, Max: 10, WaitMs: 1, LeaseMs: 120_000, Consumer: "w 1"}},
		{dequeueQ + "?max=1000", " {} ", fsm.Dequeue{Queues: []string{"q"}, Max: 1000}},
		{"/v1/dequeue?max=2", `{"queues":["b","a"],"lease":"1s"}`, fsm.Dequeue{Queues: []string{"b", "a"}, Max: 2, LeaseMs: 1000}},
		{"/v1/dequeue", `{"queues":[` + numbered(64) + `]}`, fsm.Dequeue{Queues: strings.Split(strings.ReplaceAll(numbered(64), `"`, ""), ","), Max: 1}},
	} {
		if a := ask(t, s, "POST", tc.path, tc.body); a.status != 204 || a.body != "" {
			t.Fatalf("%s: %d %s", tc.path, a.status, a.body)
		}
		if got := f.lastOp(t).(*fsm.Dequeue); !reflect.DeepEqual(*got, tc.want) {
			t.Errorf("%s %s:\n got %+v\nwant %+v", tc.path, tc.body, *got, tc.want)
		}
	}
	wantProblem(t, ask(t, s, "POST", dequeueQ, "[]"), 400, "invalid_request")
	wantProblem(t, ask(t, s, "POST", dequeueQ, `{} {}`), 400, "invalid_request")
}

// sample is a hand-out with everything.
func sample() fsm.Delivered {
	return fsm.Delivered{
		ID:    fsm.ID{Key: fsm.Key{Hi: 3, Lo: 4}, Node: 5, Minutes: 7},
		Grant: 2, Tag: 99, Queue: "a\r\nb%é", Body: "\x00\xff", Headers: []fsm.Header{{Name: "Tenant", Value: "é 1"}, {Name: "x-y", Value: ""}},
		Priority: 6, Deliveries: 2, Failures: 1, EnqueuedMs: 1_700_000_000_123, LeaseUntil: 1_700_000_060_000, ExpiresMs: 1_800_000_000_000,
		Fence: 812, LastError: `smtp "451"`,
	}
}

func handing(jobs ...fsm.Delivered) *fake {
	f := newFake()
	f.answer = func(fsm.Op) (fsm.Result, error) { return fsm.Result{Position: f.position(), Jobs: jobs}, nil }
	return f
}

const sampleFacts = `"queue":"a\r\nb%é","headers":{"Tenant":"é 1","x-y":""},"priority":6,"deliveries":2,"failures":1,` +
	`"enqueued_at":"2023-11-14T22:13:20.123Z","enqueued_at_ms":1700000000123,"lease_until":"2023-11-14T22:14:20.000Z","lease_until_ms":1700000060000,` +
	`"expires_at":"2027-01-15T08:00:00.000Z","expires_at_ms":1800000000000,"fence":812,"last_error":"smtp \"451\""`

// TestDequeueForms proves each form that jobs are answered in.
func TestDequeueForms(t *testing.T) {
	d := sample()
	text := d
	text.Body = "line\n"
	s := newServer(t, handing(d, text), Options{})
	ids := `{"id":"` + d.ID.String() + `","receipt":"` + d.Receipt().String() + `",`
	binaryJob := ids + sampleFacts + `,"body_base64":"AP8="}`
	textJob := ids + sampleFacts + `,"body":"line\n"}`

	for _, tc := range []struct{ name, path, accept, typ, body string }{
		{"json", dequeueQ + "?max=2", "", "application/json", `{"jobs":[` + binaryJob + "," + textJob + "]}\n"},
		{"anything", dequeueQ + "?max=2", "*/*", "application/json", `{"jobs":[` + binaryJob + "," + textJob + "]}\n"},
		{"base64", dequeueQ + "?max=2&encoding=base64", "", "application/json", `{"jobs":[` + binaryJob + "," + strings.Replace(textJob, `"body":"line\n"`, `"body_base64":"bGluZQo="`, 1) + "]}\n"},
		{"lines", dequeueQ + "?max=2", "application/x-ndjson", "application/x-ndjson", binaryJob + "\n" + textJob + "\n"},
	} {
		a := ask(t, s, "POST", tc.path, "", "Accept", tc.accept)
		if a.status != 200 || a.header("Content-Type") != tc.typ || a.body != tc.body {
			t.Errorf("%s: %d %s\n got %s\nwant %s", tc.name, a.status, a.header("Content-Type"), a.body, tc.body)
		}
	}

	a := ask(t, s, "POST", dequeueQ+"?max=2", "", "Accept", "application/vnd.raftq.frames")
	rest, got := []byte(a.body), []string{}
	for len(rest) > 0 {
		n := binary.BigEndian.Uint32(rest)
		head := rest[4 : 4+n]
		if !json.Valid(head) || string(head) != ids+sampleFacts+"}" {
			t.Errorf("head %s", head)
		}
		rest = rest[4+n:]
		n = binary.BigEndian.Uint32(rest)
		got = append(got, string(rest[4:4+n]))
		rest = rest[4+n:]
	}
	if a.status != 200 || len(got) != 2 || got[0] != "\x00\xff" || got[1] != "line\n" {
		t.Errorf("frames: %d %q", a.status, got)
	}
	wantContains(t, wantProblem(t, ask(t, s, "POST", dequeueQ+"?max=2", "", "Accept", "application/octet-stream"), 422, "invalid_option"), "max")
}

// TestDequeueBytes proves the raw form's header fields, and that a name or a
// value of a job cannot break out of them.
func TestDequeueBytes(t *testing.T) {
	d := sample()
	s := newServer(t, handing(d), Options{})
	c := dial(t, listen(t, s))
	c.send(post(dequeueQ, "", rawBytes))
	a := c.receive("POST")
	if a.status != 200 || a.body != "\x00\xff" {
		t.Fatalf("%d %q", a.status, a.body)
	}
	for k, want := range map[string]string{
		"Content-Type": "application/octet-stream", "Raftq-Receipt": d.Receipt().String(), "Raftq-Id": d.ID.String(), "Raftq-Queue": "a%0D%0Ab%25%C3%A9",
		"Raftq-Deliveries": "2", "Raftq-Failures": "1", "Raftq-Priority": "6", "Raftq-Lease-Until": "2023-11-14T22:14:20.000Z", "Raftq-Lease-Until-Ms": "1700000060000",
		"Raftq-Fence": "812", "Raftq-Header-Tenant": "é 1", "Raftq-Header-X-Y": "", "Raftq-Node": "n1", "Raftq-Leader": "n2", "Raftq-Term": "7", "Server": "",
	} {
		if got := a.header(k); got != want {
			t.Errorf("%s: %q, want %q", k, got, want)
		}
	}
}

// TestDequeueWait proves that a wait that is over answers 204 with a position,
// that a job which comes in time is handed out, and what timeout the replica
// is given.
func TestDequeueWait(t *testing.T) {
	f := newFake()
	s := newServer(t, f, Options{})
	c := dial(t, listen(t, s))
	c.send(post(dequeueQ+"?wait=1ms", ""))
	if a := c.receive("POST"); a.status != 204 || a.body != "" || a.header("Raftq-Index") == "" || a.header("Content-Length") != "" {
		t.Errorf("%d %q", a.status, a.body)
	}
	c.send(post(dequeueQ+"?wait=55s", ""))
	f.await(t, "the parked dequeue", func() bool { return f.waiting() == 1 })
	fill(f, 1)
	if a := c.receive("POST"); a.status != 200 {
		t.Errorf("%d %q", a.status, a.body)
	}
	for wait, want := range map[int64]time.Duration{0: 30 * time.Second, 1000: 30 * time.Second, 55_000: 60 * time.Second} {
		if got := dequeueTimeout(timeoutDefault, wait); got != want {
			t.Errorf("wait %d: %v, want %v", wait, got, want)
		}
	}
}
