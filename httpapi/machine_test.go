package httpapi

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"raftq/fsm"
)

// inProcess is a replica without a log: one machine, an entry an op, committed
// at once. It keeps what the interface promises.
type inProcess struct {
	*fake // names and probes

	mu       sync.Mutex
	m        *fsm.Machine
	number   uint64
	request  uint64
	counter  uint64
	parked   map[uint64]chan fsm.Result
	topics   map[string]int // readers that wait
	readers  map[chan uint64]string
	handouts int // hand-outs that Do returned
}

const testOrigin, testEpoch = 9, 1<<32 | 5

func newInProcess(t testing.TB) *inProcess {
	r := &inProcess{fake: newFake(), m: fsm.New([]fsm.Member{{ID: testOrigin, Name: "n1"}}), parked: map[uint64]chan fsm.Result{}, topics: map[string]int{}, readers: map[chan uint64]string{}}
	r.mu.Lock()
	defer r.mu.Unlock()
	if res := r.apply(&fsm.NodeStart{Client: "c", Peer: "p", Version: "v"}); res.Code != fsm.CodeOK {
		t.Fatalf("node start: %v", res.Code)
	}
	return r
}

// apply is one entry. The lock is held.
func (r *inProcess) apply(op fsm.Op) fsm.Result {
	h := fsm.BatchHeader{Origin: testOrigin, Epoch: testEpoch, Number: r.number, Term: 1, TimeMs: time.Now().UnixMilli()}
	r.number++
	a, err := r.m.Apply(r.m.Position().Index+1, 1, fsm.EncodeBatch(h, op), fsm.Self{Origin: testOrigin, Epoch: testEpoch, Topics: r.topics})
	if err != nil || len(a.Results) != 1 {
		panic(fmt.Sprintf("apply %T: %v, %+v", op, err, a))
	}
	for _, out := range a.Handouts {
		r.parked[out.Request] <- out.Result
		delete(r.parked, out.Request)
	}
	for grown, topic := range r.readers {
		if slices.Contains(a.Grown, topic) {
			select {
			case <-grown:
			default:
			}
			grown <- a.Position.Index
		}
	}
	return a.Results[0]
}

func (r *inProcess) Do(op fsm.Op, fast bool, timeout time.Duration, gone <-chan struct{}) (fsm.Result, error) {
	r.mu.Lock()
	r.request++
	request := r.request
	switch o := op.(type) {
	case *fsm.Dequeue:
		o.Request = request
	}
	fsm.EachEnqueue(op, func(o *fsm.Enqueue) {
		o.First = r.counter + 1
		r.counter += uint64(len(o.Jobs))
	})
	res := r.apply(op)
	if !res.Parked {
		r.handouts += len(res.Jobs)
		r.mu.Unlock()
		return res, nil
	}
	served := make(chan fsm.Result, 1)
	r.parked[request] = served
	r.mu.Unlock()

	over := time.NewTimer(time.Duration(op.(*fsm.Dequeue).WaitMs) * time.Millisecond)
	defer over.Stop()
	left := false
	select {
	case res := <-served:
		return r.hand(res), nil
	case <-gone:
		left = true
	case <-over.C:
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, still := r.parked[request]; still {
		delete(r.parked, request)
		return fsm.Result{Position: r.apply(&fsm.Withdraw{Requests: []uint64{request}}).Position}, nil
	}
	res = <-served
	if left {
		r.apply(&fsm.GiveBack{Items: receipts(res.Jobs)})
		return fsm.Result{}, fsm.Refuse(fsm.CodeLeaving, "the client left")
	}
	r.handouts += len(res.Jobs)
	return res, nil
}

func (r *inProcess) hand(res fsm.Result) fsm.Result {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.handouts += len(res.Jobs)
	return res
}

func receipts(jobs []fsm.Delivered) (items []fsm.Item) {
	for i := range jobs {
		items = append(items, jobs[i].Receipt().Item())
	}
	return items
}

func (r *inProcess) Read(how fsm.ReadHow, f func(m *fsm.Machine)) (fsm.Seen, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if how.MinIndex > r.m.Position().Index {
		return fsm.Seen{}, fsm.Refuse(fsm.CodeLoading, "index %d is not applied here within %d ms", how.MinIndex, how.TimeoutMs)
	}
	f(r.m)
	return fsm.Seen{Position: r.m.Position()}, nil
}

func (r *inProcess) DoCopies(op fsm.Op, copies int, timeout time.Duration) (fsm.Result, error) {
	if copies > 1 {
		return fsm.Result{}, fsm.Refuse(fsm.CodeNotEnoughReplicas, "there is one")
	}
	return r.Do(op, false, timeout, nil)
}

// Await asks again and again: this replica has no watches.
func (r *inProcess) Await(key fsm.Key, timeout time.Duration, gone <-chan struct{}) (end fsm.JobEnd, seen fsm.Seen, err error) {
	var code fsm.Code
	for until := time.Now().Add(timeout); ; time.Sleep(time.Millisecond) {
		seen, _ = r.Read(fsm.ReadHow{Strong: true}, func(m *fsm.Machine) { end, code = m.JobEnd(key) })
		switch {
		case code != fsm.CodeOK:
			return end, seen, fsm.Refuse(code, "job")
		case end.End != fsm.EndNone || time.Now().After(until) || gone != nil && isClosed(gone):
			return end, seen, nil
		}
	}
}

func (r *inProcess) Growth(topic string) (<-chan uint64, func(), error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	grown := make(chan uint64, 1)
	r.readers[grown] = topic
	r.topics[topic]++
	return grown, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.readers, grown)
		if r.topics[topic]--; r.topics[topic] == 0 {
			delete(r.topics, topic)
		}
	}, nil
}

func (r *inProcess) GiveBack(items []fsm.Item) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.apply(&fsm.GiveBack{Items: items})
}

// TestJobsLife proves one job's way through the real machine: enqueued, seen,
// taken, extended, failed, taken again, acked, acked again, gone.
func TestJobsLife(t *testing.T) {
	r := newInProcess(t)
	s := newServer(t, r, Options{})
	body := "\x00binary\xff"
	a := ask(t, s, "POST", "/v1/queues/a%2Fb/enqueue?priority=7&header.Tenant=t1&max_failures=3&ttl=1d", body)
	if a.status != 201 {
		t.Fatalf("enqueue: %d %s", a.status, a.body)
	}
	id := a.json(t)["id"].(string)
	job := func() map[string]any {
		a := ask(t, s, "GET", "/v1/jobs/"+id, "")
		if a.status != 200 || a.header("Raftq-Index") == "" {
			t.Fatalf("get: %d %s", a.status, a.body)
		}
		return a.json(t)
	}
	if m := job(); m["state"] != "ready" || m["queue"] != "a/b" || m["priority"] != 7.0 || m["body_base64"] != "AGJpbmFyef8=" || m["receipt"] != nil || m["lease_until"] != nil {
		t.Errorf("%v", m)
	}

	take := func() *answer {
		a := ask(t, s, "POST", "/v1/queues/a%2Fb/dequeue?lease=1m&consumer=w1", "", "Accept", "application/octet-stream")
		if a.status != 200 || a.body != body || a.header("Raftq-Id") != id || a.header("Raftq-Header-Tenant") != "t1" {
			t.Fatalf("dequeue: %d %q", a.status, a.body)
		}
		return a
	}
	first := take().header("Raftq-Receipt")
	if m := job(); m["state"] != "leased" || m["consumer"] != "w1" || m["deliveries"] != 1.0 || m["lease_until_ms"] == nil {
		t.Errorf("%v", m)
	}
	item := func(verb, receipt, more string) *answer {
		return ask(t, s, "POST", "/v1/"+verb, `{"items":[{"receipt":"`+receipt+`"`+more+`}]}`)
	}
	if a := item("extend", first, `,"lease":"5m"`); a.status != 200 || !strings.Contains(a.body, "lease_until_ms") {
		t.Errorf("extend: %d %s", a.status, a.body)
	}
	if a := item("nack", first, `,"delay":"0s","error":"smtp 451"`); a.status != 200 {
		t.Errorf("nack: %d %s", a.status, a.body)
	}
	if m := job(); m["state"] != "ready" || m["failures"] != 1.0 || m["last_error"] != "smtp 451" {
		t.Errorf("%v", m)
	}
	second := take()
	if second.header("Raftq-Deliveries") != "2" || second.header("Raftq-Failures") != "1" {
		t.Error("counters")
	}
	if a := item("ack", first, ""); a.status != 207 || !strings.Contains(a.body, `"status":409,"code":"lease_lost"`) {
		t.Errorf("ack with the old receipt: %d %s", a.status, a.body)
	}
	if a := item("ack", second.header("Raftq-Receipt"), ""); a.status != 200 || a.body != `{"results":[{"id":"`+id+`","status":200}]}`+"\n" {
		t.Errorf("ack: %d %s", a.status, a.body)
	}
	if a := item("ack", second.header("Raftq-Receipt"), ""); a.status != 200 || !strings.Contains(a.body, `"already":true`) {
		t.Errorf("ack again: %d %s", a.status, a.body)
	}
	if a := ask(t, s, "GET", "/v1/jobs/"+id, ""); a.status != 410 && a.status != 404 {
		t.Errorf("after the ack: %d %s", a.status, a.body)
	}
	wantProblem(t, ask(t, s, "GET", "/v1/jobs/nonsense", ""), 400, "bad_job_id")
	wantProblem(t, ask(t, s, "GET", "/v1/jobs/"+sample().ID.String(), ""), 404, "job_not_found")
}

// TestQueueRoutes proves stats, listing by pages, and deletion.
func TestQueueRoutes(t *testing.T) {
	r := newInProcess(t)
	s := newServer(t, r, Options{})
	wantProblem(t, ask(t, s, "GET", "/v1/queues/q", ""), 404, "queue_not_found")
	wantProblem(t, ask(t, s, "DELETE", "/v1/queues/q", ""), 404, "queue_not_found")
	if a := ask(t, s, "GET", "/v1/queues", ""); a.status != 200 || a.body != `{"queues":[]}`+"\n" {
		t.Errorf("%d %s", a.status, a.body)
	}
	names := []string{"a", "b/1", "b/2", "b/3", "b/é\n", "c"}
	for _, n := range names {
		for range 2 {
			if a := ask(t, s, "POST", "/v1/queues/"+url.PathEscape(n)+"/enqueue", "x"); a.status != 201 {
				t.Fatal(a.body)
			}
		}
	}
	ask(t, s, "POST", "/v1/queues/a/dequeue", "")
	m := ask(t, s, "GET", "/v1/queues/a?consistency=fast", "").json(t)
	if m["queue"] != "a" || m["ready"] != 1.0 || m["leased"] != 1.0 || m["enqueued_total"] != 2.0 || m["delivered_total"] != 1.0 || m["oldest_ready_age_ms"] == nil {
		t.Errorf("%v", m)
	}
	for _, k := range strings.Fields("queue ready delayed leased held dead bytes waiters oldest_ready_age_ms enqueued_total delivered_total acked_total failed_total expired_total dead_total") {
		if _, ok := m[k]; !ok {
			t.Errorf("no %s", k)
		}
	}
	var got []string
	path := "/v1/queues?prefix=b%2F&limit=2"
	for pages := 0; ; pages++ {
		a := ask(t, s, "GET", path, "")
		if a.status != 200 {
			t.Fatal(a.body)
		}
		m := a.json(t)
		for _, q := range m["queues"].([]any) {
			got = append(got, q.(map[string]any)["queue"].(string))
		}
		next, ok := m["next_cursor"].(string)
		if !ok {
			if pages != 1 {
				t.Errorf("%d further pages", pages)
			}
			break
		}
		path = "/v1/queues?prefix=b%2F&limit=2&cursor=" + next
	}
	if strings.Join(got, "|") != "b/1|b/2|b/3|b/é\n" {
		t.Errorf("%q", got)
	}
	for _, bad := range []string{"limit=0", "limit=1001", "cursor=%25", "cursor=", "cursor=YWJj", "min_len=-1", "max_stale=x", "min_index=x", "order=x"} {
		wantProblem(t, ask(t, s, "GET", "/v1/queues?"+bad, ""), 422, "invalid_option")
	}
	wantProblem(t, ask(t, s, "GET", "/v1/queues/a?min_index=999999&timeout=1ms", ""), 503, "loading")

	wantContains(t, wantProblem(t, ask(t, s, "DELETE", "/v1/queues/a", ""), 409, "queue_not_empty"), "force=true")
	if a := ask(t, s, "DELETE", "/v1/queues/a?force=true", ""); a.status != 200 || a.body != `{"queue":"a","deleted":2}`+"\n" {
		t.Errorf("%d %s", a.status, a.body)
	}
	wantProblem(t, ask(t, s, "GET", "/v1/queues/a", ""), 404, "queue_not_found")
}

// TestMetrics proves that the counters count jobs, that the largest queues have
// series of their own and the rest one together.
func TestMetrics(t *testing.T) {
	r := newInProcess(t)
	s := newServer(t, r, Options{})
	for i := range 120 {
		n := 2
		if i == 60 {
			n = 5
		}
		ask(t, s, "POST", fmt.Sprintf("/v1/queues/q%03d/jobs", i), "["+strings.TrimSuffix(strings.Repeat(`{"body":""},`, n), ",")+"]")
	}
	a := ask(t, s, "POST", "/v1/queues/q060/dequeue?max=3", "")
	rec := a.json(t)["jobs"].([]any)[0].(map[string]any)["receipt"].(string)
	ask(t, s, "POST", "/v1/ack", `{"items":[{"receipt":"`+rec+`"}]}`)
	ask(t, s, "POST", "/nowhere", "")
	page := ask(t, s, "GET", "/metrics", "").body
	wantContains(t, page,
		"raftq_enqueued_total 243\n", "raftq_leased_total 3\n", "raftq_acked_total 1\n", "raftq_nacked_total 0\n", "raftq_waiters 0\n",
		"raftq_answers_written_total 3\n", "raftq_answers_undelivered_total 0\n",
		`raftq_jobs{queue="q060",state="ready"} 2`, `raftq_jobs{queue="q060",state="leased"} 2`, `raftq_jobs{queue="$other",state="ready"} 40`,
		`raftq_request_seconds_count{code="201",route="POST /v1/queues/{q}/jobs"} 120`, `raftq_request_seconds_bucket{code="404",route="none",le="+Inf"} 1`)
	if n := strings.Count(page, `state="dead"`); n != 101 {
		t.Errorf("%d queues have series", n)
	}
}

// TestWaitOnMachine proves a long poll over the real machine and a socket, and
// that a hang-up leaves the job for the next, uncounted.
func TestWaitOnMachine(t *testing.T) {
	r := newInProcess(t)
	s := newServer(t, r, Options{})
	addr := listen(t, s)
	first, second := dial(t, addr), dial(t, addr)
	waiters := func() int {
		n := 0
		r.Read(fsm.ReadHow{Strong: true}, func(m *fsm.Machine) { n = m.Totals().Waiters })
		return n
	}
	first.send(post(dequeueQ+"?wait=55s", "", rawBytes))
	spin(t, "the first waiter", func() bool { return waiters() == 1 })
	second.send(post(dequeueQ+"?wait=55s", "", rawBytes))
	spin(t, "the second waiter", func() bool { return waiters() == 2 })
	first.SetLinger(0)
	first.Close()
	spin(t, "the first waiter's end", func() bool { return waiters() == 1 })
	ask(t, s, "POST", enqueueQ, "job")
	if a := second.receive("POST"); a.status != 200 || a.body != "job" || a.header("Raftq-Deliveries") != "1" {
		t.Errorf("%d %q, deliveries %s", a.status, a.body, a.header("Raftq-Deliveries"))
	}
}

func spin(t testing.TB, what string, cond func() bool) {
	t.Helper()
	for start := time.Now(); !cond(); {
		if time.Since(start) > 10*time.Second {
			t.Fatalf("%s never came", what)
		}
	}
}

// TestFate proves what is said of a fast answer's batch: committed up to the last
// that had effect; above it pending while its node lives, and then lost.
func TestFate(t *testing.T) {
	r := newInProcess(t)
	s := newServer(t, r, Options{})
	fate := func(number int) string {
		t.Helper()
		a := ask(t, s, "GET", fmt.Sprintf("/v1/log/fate?batch=%x.%d.%d", testOrigin, testEpoch, number), "")
		_, rest, _ := strings.Cut(a.body, `"fate":"`)
		said, _, _ := strings.Cut(rest, `"`)
		return said
	}
	ask(t, s, "POST", enqueueQ, "x") // batch 1
	if one, two := fate(1), fate(2); one != "committed" || two != "pending" {
		t.Errorf("while the node lives: %q, %q", one, two)
	}
	r.mu.Lock()
	h := fsm.BatchHeader{Origin: testOrigin, Epoch: testEpoch + 1<<32, Term: 1, TimeMs: time.Now().UnixMilli()}
	_, err := r.m.Apply(r.m.Position().Index+1, 1, fsm.EncodeBatch(h, &fsm.NodeStart{Client: "c", Peer: "p", Version: "v"}), fsm.Self{})
	r.mu.Unlock()
	if err != nil {
		t.Fatal(err)
	}
	if one, two := fate(1), fate(2); one != "committed" || two != "lost" {
		t.Errorf("after its next start: %q, %q", one, two)
	}
}
