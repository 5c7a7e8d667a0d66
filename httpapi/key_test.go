package httpapi

import (
	"fmt"
	"strings"
	"testing"

	"raftq/fsm"
)

// counts reads a queue's counts.
func counts(t *testing.T, s *Server, queue string) map[string]any {
	t.Helper()
	a := ask(t, s, "GET", "/v1/queues/"+queue, "")
	if a.status != 200 {
		t.Fatalf("queue %s: %d %s", queue, a.status, a.body)
	}
	return a.json(t)
}

// TestIdempotencyKey proves that each kind of write takes effect once under its key
// and is answered again as it was, also when it was refused; that a key belongs to
// its route and queue; and that other content is refused.
func TestIdempotencyKey(t *testing.T) {
	s := newServer(t, newInProcess(t), Options{})
	key := []string{"Idempotency-Key", "k"}
	twice := func(method, path, body string) *answer {
		t.Helper()
		first := ask(t, s, method, path, body, key...)
		again := ask(t, s, method, path, body, key...)
		if first.header("Idempotent-Replay") != "" || again.header("Idempotent-Replay") != "true" {
			t.Errorf("%s %s: replays %q, %q", method, path, first.header("Idempotent-Replay"), again.header("Idempotent-Replay"))
		}
		if again.status != first.status || again.body != first.body {
			t.Errorf("%s %s: %d %s\nand then %d %s", method, path, first.status, first.body, again.status, again.body)
		}
		return first
	}
	twice("POST", "/v1/queues/q/enqueue?priority=7", "one")
	twice("POST", "/v1/queues/q/jobs", `[{"body":"two"},{"body":"three"}]`)
	// Another queue, another route: other requests.
	twice("POST", "/v1/queues/r/enqueue?priority=7", "one")
	if n := counts(t, s, "q")["enqueued_total"]; n != 3.0 {
		t.Errorf("%v jobs, want 3", n)
	}
	if n := s.stats.enqueued.Load(); n != 4 {
		t.Errorf("%d jobs counted, want 4", n)
	}
	// What counts is what it does: not its spelling, timeout or consistency.
	a := ask(t, s, "POST", "/v1/queues/q/jobs?timeout=5s&consistency=fast", ` [ {"body":"two"} , {"body_base64":"dGhyZWU="}]`, key...)
	if a.status != 201 || a.header("Idempotent-Replay") != "true" {
		t.Errorf("spelled differently: %d %s", a.status, a.body)
	}
	for _, body := range []string{`[{"body":"two"}]`, `[{"body":"two"},{"body":"other"}]`, `[{"body":"two"},{"body":"three","ttl":"1d"}]`} {
		wantProblem(t, ask(t, s, "POST", "/v1/queues/q/jobs", body, key...), 422, "idempotency_mismatch")
	}

	rec := ask(t, s, "POST", "/v1/queues/r/dequeue", "").json(t)["jobs"].([]any)[0].(map[string]any)["receipt"].(string)
	twice("POST", "/v1/nack", `{"items":[{"receipt":"`+rec+`","delay":"0s"}]}`)
	twice("POST", "/v1/release", `{"items":[{"receipt":"`+rec+`"}]}`) // refused: the lease is lost
	twice("POST", "/v1/tx", `{"items":[{"op":"enqueue","queue":"t","body":"x"}]}`)
	ask(t, s, "PUT", "/v1/queues/full", `{"max_len":1}`)
	ask(t, s, "POST", "/v1/queues/full/enqueue", "")
	if a := twice("POST", "/v1/queues/full/enqueue", "x"); a.status != 429 {
		t.Errorf("a full queue: %d %s", a.status, a.body)
	}
	ask(t, s, "DELETE", "/v1/queues/full/jobs", "")
	if a := ask(t, s, "POST", "/v1/queues/full/enqueue", "x", key...); a.status != 429 {
		t.Errorf("a refusal is replayed too: %d %s", a.status, a.body)
	}
	twice("PUT", "/v1/queues/c", `{"max_len":7}`)
	twice("PUT", "/v1/queues/c/pause", `{"in":true}`)
	twice("DELETE", "/v1/queues/c", "")
	if a := ask(t, s, "GET", "/v1/queues/c", ""); a.status != 404 {
		t.Errorf("a replay made the queue again: %d", a.status)
	}
}

// TestIdempotencyKeyIsOne proves that what is no key is not taken for one: the request
// is refused, not done without.
func TestIdempotencyKeyIsOne(t *testing.T) {
	f := newFake()
	s := newServer(t, f, Options{})
	c := dial(t, listen(t, s))
	for fields, names := range map[string]string{
		"Idempotency-Key:\r\n":                                           "must not be empty",
		"Idempotency-Key: a\r\nidempotency-key: a\r\n":                   "given twice",
		"Idempotency-Key: " + strings.Repeat("k", fsm.KeyMax+1) + "\r\n": "at most 128 bytes",
	} {
		c.send("POST " + enqueueQ + " HTTP/1.1\r\nHost: x\r\n" + fields + "Content-Length: 1\r\n\r\nx")
		wantContains(t, wantProblem(t, c.receive("POST"), 422, "invalid_option"), "Idempotency-Key: "+names)
	}
	if f.opCount() != 0 {
		t.Error("a refused request reached the replica")
	}
}

// TestIdempotencyKeyOfSweeps proves that a request of several ops is replayed whole.
func TestIdempotencyKeyOfSweeps(t *testing.T) {
	r := newInProcess(t)
	s := newServer(t, r, Options{})
	for range 25 {
		ask(t, s, "POST", "/v1/queues/q/jobs", "["+strings.TrimSuffix(strings.Repeat(`{"body":""},`, 1000), ",")+"]")
	}
	for i := range 2 {
		a := ask(t, s, "DELETE", "/v1/queues/q/jobs", "", "Idempotency-Key", "k")
		if a.status != 200 || a.body != `{"queue":"q","purged":25000}`+"\n" || (a.header("Idempotent-Replay") == "true") != (i == 1) {
			t.Errorf("time %d: %d %s", i, a.status, a.body)
		}
		ask(t, s, "POST", "/v1/queues/q/enqueue", "later")
	}
	if n := counts(t, s, "q")["ready"]; n != 2.0 {
		t.Errorf("%v ready, want the two that came later", n)
	}
}

// TestAttemptID proves that the same dequeue again gets the same jobs and receipts
// while a lease lives, whatever its max, and new ones under another id.
func TestAttemptID(t *testing.T) {
	s := newServer(t, newInProcess(t), Options{})
	for i := range 4 {
		ask(t, s, "POST", enqueueQ, fmt.Sprint(i))
	}
	take := func(options string) string { return ask(t, s, "POST", dequeueQ+"?"+options, "").body }
	first := take("max=2&attempt_id=a")
	if again := take("max=2&attempt_id=a"); again != first || strings.Count(first, "receipt") != 2 {
		t.Errorf("first %s\nagain %s", first, again)
	}
	if other := take("max=2&attempt_id=b"); other == first || strings.Count(other, "receipt") != 2 {
		t.Errorf("another attempt: %s", other)
	}
	if n := counts(t, s, "q")["delivered_total"]; n != 4.0 {
		t.Errorf("%v hand-outs, want 4", n)
	}
}

// TestQueueDefaultConsistency proves which consistency holds: the request's, else
// its queue's, else the node's.
func TestQueueDefaultConsistency(t *testing.T) {
	f := newFake()
	f.defaults = map[string]uint8{"fast": fsm.ConsistencyFast, "strong": fsm.ConsistencyStrong}
	for _, node := range []bool{false, true} {
		s := newServer(t, f, Options{Fast: node})
		for _, tc := range []struct {
			path string
			want bool
		}{
			{"/v1/queues/fast/enqueue", true}, {"/v1/queues/strong/enqueue", false}, {"/v1/queues/other/enqueue", node},
			{"/v1/queues/fast/enqueue?consistency=strong", false}, {"/v1/queues/strong/enqueue?consistency=fast", true},
			{"/v1/queues/fast/dequeue", true}, {"/v1/queues/%66ast/jobs", true},
		} {
			ask(t, s, "POST", tc.path, `{"body":"x"}`[:len(`{"body":"x"}`)*b2i(!strings.Contains(tc.path, "dequeue"))])
			if got := f.asked[len(f.asked)-1]; got != tc.want {
				t.Errorf("%s on a node with fast %v: fast is %v", tc.path, node, got)
			}
		}
		if a := ask(t, s, "POST", "/v1/queues/fast/enqueue", "x", "Raftq-Consistency", "strong"); a.status != 201 || f.asked[len(f.asked)-1] {
			t.Errorf("the header does not win over the queue's default: %d", a.status)
		}
	}
}

func b2i(v bool) int {
	if v {
		return 1
	}
	return 0
}

// TestReplicate proves that a number of copies reaches the replica from each way in,
// the highest of a batch, and what its refusals look like.
func TestReplicate(t *testing.T) {
	f := newFake()
	s := newServer(t, f, Options{})
	for want, a := range map[int]func() *answer{
		3: func() *answer { return ask(t, s, "POST", enqueueQ+"?replicate=3", "x") },
		4: func() *answer { return ask(t, s, "POST", "/v1/queues/q/jobs", `{"body":"x","replicate":4}`) },
		5: func() *answer {
			return ask(t, s, "POST", "/v1/queues/q/jobs", `[{"body":"x"},{"body":"y","replicate":5},{"body":"z","replicate":2}]`)
		},
		6: func() *answer { return ask(t, s, "POST", "/v1/queues/q/enqueue?replicate=6&consistency=fast", "x") },
	} {
		if got := a(); got.status != 201 || f.copies != want {
			t.Errorf("%d copies: %d asked for, %d %s", want, f.copies, got.status, got.body)
		}
	}
	before := f.copies
	if ask(t, s, "POST", enqueueQ+"?replicate=1", "x"); f.copies != before {
		t.Error("one copy is what every enqueue has")
	}
	for code, want := range map[fsm.Code]struct {
		status  int
		applied string
	}{fsm.CodeNotEnoughReplicas: {503, "no"}, fsm.CodeCommitTimeout: {504, "unknown"}} {
		f.answer = func(fsm.Op) (fsm.Result, error) { return fsm.Result{Items: []fsm.ItemResult{{Code: code}}}, nil }
		a := ask(t, s, "POST", enqueueQ+"?replicate=3", "x")
		wantProblem(t, a, want.status, code.String())
		if m := a.json(t); m["applied"] != want.applied {
			t.Errorf("%v: %s", code, a.body)
		}
	}
	// How many copies is part of the content: without them, what the first answered
	// says nothing.
	digest := func(path string) (d [16]byte) {
		f.answer = func(op fsm.Op) (fsm.Result, error) {
			d = op.(*fsm.Keyed).Digest
			return fsm.Result{Items: make([]fsm.ItemResult, 1)}, nil
		}
		ask(t, s, "POST", path, "x", "Idempotency-Key", "k")
		return d
	}
	if one, three := digest(enqueueQ), digest(enqueueQ+"?replicate=3"); one != digest(enqueueQ+"?replicate=1") || one == three || three == digest(enqueueQ+"?replicate=2") {
		t.Error("the digest does not tell how many copies were asked for")
	}
	// A follower passes it on, like a fast one.
	leader := newFake()
	f.answer, f.leader = nil, listening(t, leader, Options{})
	if a := ask(t, s, "POST", enqueueQ+"?replicate=3", "x"); a.status != 201 || leader.copies != 3 || leader.asked[0] {
		t.Errorf("through a follower: %d %s, %d copies", a.status, a.body, leader.copies)
	}
}
