package httpapi

import (
	"encoding/binary"
	"errors"
	"strings"
	"testing"

	"raftq/fsm"
)

var errNotYet = errors.New("not yet")

// frame is one frame as a client writes it.
func frame(head, body string) []byte {
	b := binary.BigEndian.AppendUint32(nil, uint32(len(head)))
	b = append(b, head...)
	b = binary.BigEndian.AppendUint32(b, uint32(len(body)))
	return append(b, body...)
}

func bodies(op fsm.Op) (all []string) {
	for _, j := range op.(*fsm.Enqueue).Jobs {
		all = append(all, string(j.Body))
	}
	return all
}

// TestEnqueueRaw proves that any bytes are a body, that they are a copy, and
// the answer's shape.
func TestEnqueueRaw(t *testing.T) {
	f := newFake()
	s := newServer(t, f, Options{})
	for _, body := range []string{"", "text", "\x00\xff\r\n", strings.Repeat("x", 1<<20)} {
		a := ask(t, s, "POST", enqueueQ, body, "Content-Type", "application/json")
		if a.status != 201 || bodies(f.lastOp(t))[0] != body {
			t.Fatalf("%d %s", a.status, a.body)
		}
		m := a.json(t)
		if _, ok := fsm.ParseID(m["id"].(string)); !ok || m["queue"] != "q" || m["committed"] != true || m["duplicate"] != false || len(m) != 4 {
			t.Errorf("%s", a.body)
		}
		if a.header("Raftq-Index") == "" || a.header("Raftq-Term") != "7" || a.header("Raftq-Time") == "" {
			t.Error("no position")
		}
	}
}

// TestBodyLimits proves that max-body counts for every way in, and its name
// and value in the refusal.
func TestBodyLimits(t *testing.T) {
	f := newFake()
	s := newServer(t, f, Options{MaxBody: 10})
	for _, a := range []*answer{
		ask(t, s, "POST", enqueueQ, "12345678901"),
		ask(t, s, "POST", "/v1/queues/q/jobs", `{"body":"12345678901"}`),
		ask(t, s, "POST", "/v1/queues/q/jobs", `{"json":"1234567890"}`),
		ask(t, s, "POST", "/v1/queues/q/jobs", `[{"body":"1"},{"body_base64":"MTIzNDU2Nzg5MDE="}]`),
		ask(t, s, "POST", "/v1/queues/q/jobs", string(frame("", "12345678901")), "Content-Type", "application/vnd.raftq.frames"),
	} {
		wantContains(t, wantProblem(t, a, 413, "body_too_large"), "max-body", "at most 10 bytes")
	}
	big := newServer(t, f, Options{})
	mib := strings.Repeat("x", 1<<20)
	a := ask(t, big, "POST", "/v1/queues/q/jobs", strings.Repeat(string(frame("", mib)), 9), "Content-Type", "application/vnd.raftq.frames")
	wantContains(t, wantProblem(t, a, 413, "body_too_large"), "8388608")
	if f.opCount() != 0 {
		t.Error("a refused body reached the replica")
	}
	for _, bad := range []int{-1, 16<<20 + 1} {
		s := New(f, Options{MaxBody: bad})
		if s.broken == nil {
			t.Errorf("MaxBody %d was taken", bad)
		}
		closeServer(t, s)
	}
}

// TestEnqueueForms proves that envelope, array, NDJSON and frames carry the
// same bytes, and when an answer is one job's or a list.
func TestEnqueueForms(t *testing.T) {
	f := newFake()
	s := newServer(t, f, Options{})
	const path = "/v1/queues/q/jobs"
	for _, tc := range []struct {
		name, typ, body string
		want            []string
	}{
		{"envelope", "application/json", ` {"body":"a\u0000é"} `, []string{"a\x00é"}},
		{"base64", "application/json", `{"body_base64":"AP8="}`, []string{"\x00\xff"}},
		{"json", "application/json", `{"json": {"a": [1, 2]} }`, []string{`{"a": [1, 2]}`}},
		{"no type", "", `{"body":"x"}`, []string{"x"}},
		{"form type of curl", "application/x-www-form-urlencoded", `{"body":"x"}`, []string{"x"}},
		{"array", "application/json", `[{"body":"1"},{"body":"2\n"}, {"body":"3"}]`, []string{"1", "2\n", "3"}},
		{"array of one", "application/json; charset=utf-8", `[{"body":"1"}]`, []string{"1"}},
		{"lines", "application/x-ndjson", "{\"body\":\"1\"}\n\n{\"body\":\"2\"}\r\n  {\"json\":3}", []string{"1", "2", "3"}},
		{"frames", "application/vnd.raftq.frames", string(frame("", "\xff1")) + string(frame(`{"priority":3}`, "")) + string(frame(" ", "3")), []string{"\xff1", "", "3"}},
	} {
		a := ask(t, s, "POST", path, tc.body, "Content-Type", tc.typ)
		if a.status != 201 {
			t.Fatalf("%s: %d %s", tc.name, a.status, a.body)
		}
		if got := bodies(f.lastOp(t)); strings.Join(got, "|") != strings.Join(tc.want, "|") {
			t.Errorf("%s: %q, want %q", tc.name, got, tc.want)
		}
		results, batch := a.json(t)["results"].([]any)
		if single := strings.HasPrefix(strings.TrimSpace(tc.body), "{") && !strings.Contains(tc.typ, "ndjson"); single == batch || batch && len(results) != len(tc.want) {
			t.Errorf("%s: %s", tc.name, a.body)
		}
		if batch && results[0].(map[string]any)["status"] != float64(201) {
			t.Errorf("%s: %s", tc.name, a.body)
		}
	}
}

// TestEnqueueMalformed proves that a malformed batch is refused whole and says
// where.
func TestEnqueueMalformed(t *testing.T) {
	f := newFake()
	s := newServer(t, f, Options{})
	for _, tc := range []struct{ typ, body, names string }{
		{"", "", "want an envelope"},
		{"", "body", "want an envelope"},
		{"", `{"body":"x"} {"body":"y"}`, "nothing may follow"},
		{"", `{"body":"x"`, "want , or }"},
		{"", "{\"body\":\"\xff\"}", "body_base64"},
		{"", `{"body":"\ud800"}`, "surrogate"},
		{"", `[]`, "no jobs"},
		{"", `[{"body":"x"},5]`, "jobs[1]"},
		{"application/x-ndjson", "", "no jobs"},
		{"application/x-ndjson", `{"body":"1"} {"body":"2"}`, "one envelope a line"},
		{"application/x-ndjson", "{\"body\":\"1\"}\nx", "jobs[1]"},
		{"application/vnd.raftq.frames", "", "no jobs"},
		{"application/vnd.raftq.frames", "\x00\x00", "jobs[0]: the frame is cut short"},
		{"application/vnd.raftq.frames", string(frame("", "x")) + "\xff\xff\xff\xff", "jobs[1]: the frame is cut short"},
		{"application/vnd.raftq.frames", string(frame("", "xyz"))[:10], "jobs[0]: the frame is cut short"},
		{"application/vnd.raftq.frames", string(frame("[]", "x")), "jobs[0]"},
	} {
		a := ask(t, s, "POST", "/v1/queues/q/jobs", tc.body, "Content-Type", tc.typ)
		wantContains(t, wantProblem(t, a, 400, "invalid_request"), tc.names)
	}
	if f.opCount() != 0 {
		t.Error("a malformed batch reached the replica")
	}
}

// TestAtomic proves that atomic reaches the op and that a refusal names the job.
func TestAtomic(t *testing.T) {
	f := newFake()
	s := newServer(t, f, Options{})
	ask(t, s, "POST", "/v1/queues/q/jobs?atomic=true", `[{"body":"1"}]`)
	if !f.lastOp(t).(*fsm.Enqueue).Atomic {
		t.Error("not atomic")
	}
	f.answer = func(fsm.Op) (fsm.Result, error) {
		return fsm.Result{Code: fsm.CodeAborted, Items: []fsm.ItemResult{{Code: fsm.CodeAborted}, {Code: fsm.CodeQueueFull}}}, nil
	}
	a := ask(t, s, "POST", "/v1/queues/q/jobs?atomic=true", `[{"body":"1"},{"body":"2"}]`)
	wantContains(t, wantProblem(t, a, 409, "aborted"), "jobs[1]: queue_full")
	wantContains(t, a.body, `"results":[{"status":409,"code":"aborted"`, `{"status":429,"code":"queue_full"`)
}
