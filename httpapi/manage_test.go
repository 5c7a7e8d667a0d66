package httpapi

import (
	"reflect"
	"strings"
	"testing"

	"raftq/fsm"
)

func (s *Server) put(t *testing.T, path, body string) string {
	t.Helper()
	a := ask(t, s, "POST", path, body)
	if a.status != 201 {
		t.Fatalf("%s: %d %s", path, a.status, a.body)
	}
	return a.json(t)["id"].(string)
}

func (s *Server) taken(t *testing.T, queue string) (id, receipt string) {
	t.Helper()
	a := ask(t, s, "POST", "/v1/queues/"+queue+"/dequeue", "")
	if a.status != 200 {
		t.Fatalf("dequeue: %d %s", a.status, a.body)
	}
	j := a.json(t)["jobs"].([]any)[0].(map[string]any)
	return j["id"].(string), j["receipt"].(string)
}

func (s *Server) state(t *testing.T, id string) string {
	t.Helper()
	a := ask(t, s, "GET", "/v1/jobs/"+id, "")
	if a.status != 200 {
		return a.json(t)["code"].(string)
	}
	return a.json(t)["state"].(string)
}

// TestManageJobs proves what each operation makes of a job in each state, as its
// state afterwards or the code that it is refused with.
func TestManageJobs(t *testing.T) {
	s := newServer(t, newInProcess(t), Options{})
	make := map[string]func() string{
		"ready":   func() string { return s.put(t, "/v1/queues/q-ready/enqueue", "x") },
		"delayed": func() string { return s.put(t, "/v1/queues/q-delayed/enqueue?delay=1h", "x") },
		"leased": func() string {
			s.put(t, "/v1/queues/q-leased/enqueue?priority=9", "x")
			id, _ := s.taken(t, "q-leased")
			return id
		},
		"held": func() string {
			id := s.put(t, "/v1/queues/q-held/enqueue", "x")
			ask(t, s, "POST", "/v1/jobs/"+id+"/hold", "")
			return id
		},
		"dead": func() string {
			s.put(t, "/v1/queues/q-dead/enqueue?priority=9", "x")
			id, rec := s.taken(t, "q-dead")
			ask(t, s, "POST", "/v1/reject", `{"items":[{"receipt":"`+rec+`","error":"why"}]}`)
			return id
		},
		"at most once": func() string {
			s.put(t, "/v1/queues/q-once/enqueue?at_most_once=true", "x")
			id, _ := s.taken(t, "q-once")
			return id
		},
		"acked": func() string {
			id := s.put(t, "/v1/queues/q-acked/enqueue", "x")
			ask(t, s, "POST", "/v1/ack", `{"items":[{"id":"`+id+`"}]}`)
			return id
		},
		"unknown": func() string { return sampleID },
	}
	verbs := []string{"requeue", "hold", "cancel", "delete"}
	for what, want := range map[string][4]string{
		"ready":        {"ready", "held", "job_gone", "job_gone"},
		"delayed":      {"ready", "held", "job_gone", "job_gone"},
		"leased":       {"ready", "held", "leased", "job_gone"},
		"held":         {"ready", "held", "job_gone", "job_gone"},
		"dead":         {"ready", "!job_gone", "!job_gone", "job_gone"},
		"at most once": {"!at_most_once", "held", "leased", "job_gone"},
		"acked":        {"!job_gone", "!job_gone", "!job_gone", "!job_gone"},
		"unknown":      {"!job_not_found", "!job_not_found", "!job_not_found", "!job_not_found"},
	} {
		for i, verb := range verbs {
			id := make[what]()
			a := ask(t, s, "POST", "/v1/jobs/"+id+"/"+verb, "")
			if verb == "delete" {
				a = ask(t, s, "DELETE", "/v1/jobs/"+id, "")
			}
			if code, refused := strings.CutPrefix(want[i], "!"); refused {
				wantContains(t, wantProblem(t, a, a.status, code), id)
				continue
			}
			if a.status != 200 || a.json(t)["id"] != id || a.json(t)["status"] != 200.0 {
				t.Errorf("%s a job that is %s: %d %s", verb, what, a.status, a.body)
			}
			if got := s.state(t, id); got != want[i] {
				t.Errorf("%s a job that is %s: %s afterwards, want %s", verb, what, got, want[i])
			}
		}
	}
	// The worker of a cancelled job hears of it when it extends its lease.
	s.put(t, "/v1/queues/c/enqueue", "x")
	id, rec := s.taken(t, "c")
	wantContains(t, ask(t, s, "POST", "/v1/jobs/"+id+"/cancel", "").body, `"cancel":true`)
	wantContains(t, ask(t, s, "GET", "/v1/jobs/"+id, "").body, `"cancel":true`)
	wantContains(t, ask(t, s, "POST", "/v1/extend", `{"items":[{"receipt":"`+rec+`"}]}`).body, `"cancel":true`)
}

// TestDeadJobs proves what is shown of a dead job, and the ways back.
func TestDeadJobs(t *testing.T) {
	s := newServer(t, newInProcess(t), Options{})
	ask(t, s, "PUT", "/v1/queues/work", `{"dead_letter":"dlq"}`)
	die := func(queue, how string) string {
		s.put(t, "/v1/queues/"+queue+"/enqueue?max_failures=1&priority=9", "x")
		id, rec := s.taken(t, queue)
		if a := ask(t, s, "POST", "/v1/"+how, `{"items":[{"receipt":"`+rec+`","error":"broke"}]}`); a.status != 200 || !strings.Contains(a.body, `"dead":true`) {
			t.Fatalf("%s: %d %s", how, a.status, a.body)
		}
		return id
	}
	rejected, failed, moved := die("q", "reject"), die("q", "nack"), die("work", "nack")
	m := ask(t, s, "GET", "/v1/jobs/"+rejected, "").json(t)
	if m["state"] != "dead" || m["dead_reason"] != "rejected" || m["last_error"] != "broke" || m["dead_at_ms"] == nil || m["queue"] != "q" {
		t.Errorf("%v", m)
	}
	m = ask(t, s, "GET", "/v1/jobs/"+moved, "").json(t)
	if m["queue"] != "dlq" || m["source_queue"] != "work" || m["dead_reason"] != "max_failures" {
		t.Errorf("moved: %v", m)
	}
	redrive := func(queue, body string, want int) {
		t.Helper()
		a := ask(t, s, "POST", "/v1/queues/"+queue+"/redrive", body)
		if a.status != 200 || a.json(t)["redriven"] != float64(want) {
			t.Errorf("redrive %s %s: %d %s, want %d", queue, body, a.status, a.body, want)
		}
	}
	redrive("q", `{"reason":"max_failures"}`, 1)
	if s.state(t, failed) != "ready" || s.state(t, rejected) != "dead" {
		t.Error("the reason did not count")
	}
	m = ask(t, s, "GET", "/v1/jobs/"+failed, "").json(t)
	if m["failures"] != 0.0 || m["redriven"] != 1.0 || m["last_error"] != nil || m["dead_reason"] != nil {
		t.Errorf("redriven: %v", m)
	}
	redrive("q", `{"to":"elsewhere","max":5}`, 1)
	if m := ask(t, s, "GET", "/v1/jobs/"+rejected, "").json(t); m["queue"] != "elsewhere" || m["state"] != "ready" {
		t.Errorf("redriven elsewhere: %v", m)
	}
	redrive("dlq", "", 1)
	if m := ask(t, s, "GET", "/v1/jobs/"+moved, "").json(t); m["queue"] != "work" || m["state"] != "ready" {
		t.Errorf("redriven from the dead letters: %v", m)
	}
	for range 5 {
		die("many", "reject")
	}
	redrive("many", `{"max":2}`, 2)
	redrive("many", `{"max":9}`, 3)
	redrive("many", `{}`, 0)
}

// TestPurge proves that a purge takes the states that it names, or ready and delayed.
func TestPurge(t *testing.T) {
	s := newServer(t, newInProcess(t), Options{})
	fill := func() {
		ask(t, s, "DELETE", "/v1/queues/q?force=true", "")
		s.put(t, enqueueQ, "leased")
		s.taken(t, "q")
		s.put(t, enqueueQ, "ready")
		s.put(t, enqueueQ+"?delay=1h", "delayed")
		ask(t, s, "POST", "/v1/jobs/"+s.put(t, enqueueQ, "held")+"/hold", "")
	}
	for query, want := range map[string]float64{"": 2, "?state=ready": 1, "?state=leased,held": 2, "?state=dead": 0, "?state=ready,delayed,leased,held,dead": 4} {
		fill()
		a := ask(t, s, "DELETE", "/v1/queues/q/jobs"+query, "")
		if a.status != 200 || a.json(t)["purged"] != want {
			t.Errorf("%q: %d %s, want %v", query, a.status, a.body, want)
		}
		m := counts(t, s, "q")
		if left := m["ready"].(float64) + m["delayed"].(float64) + m["leased"].(float64) + m["held"].(float64); left != 4-want {
			t.Errorf("%q: %v left", query, left)
		}
	}
}

// TestSweepsGoOn proves that an operation on many jobs goes on in steps, with the
// bound of the first, until nothing is left or its time is over; and what a failure
// in the middle says.
func TestSweepsGoOn(t *testing.T) {
	f := newFake()
	s := newServer(t, f, Options{})
	step := 0
	f.answer = func(op fsm.Op) (fsm.Result, error) {
		p := op.(*fsm.Purge)
		if step++; (p.UpTo == 77) != (step > 1) {
			t.Errorf("step %d is bounded by %d", step, p.UpTo)
		}
		return fsm.Result{Count: 10, More: step < 4, UpTo: 77}, nil
	}
	if a := ask(t, s, "DELETE", "/v1/queues/q/jobs", ""); a.body != `{"queue":"q","purged":40}`+"\n" {
		t.Errorf("%s", a.body)
	}
	f.answer = func(op fsm.Op) (fsm.Result, error) { return fsm.Result{Count: 1, More: true, UpTo: 77}, nil }
	a := ask(t, s, "DELETE", "/v1/queues/q/jobs?timeout=20ms", "")
	if m := a.json(t); a.status != 200 || m["more"] != true || m["purged"].(float64) < 1 {
		t.Errorf("out of time: %d %s", a.status, a.body)
	}
	step = 0
	f.answer = func(op fsm.Op) (fsm.Result, error) {
		if step++; step == 3 {
			return fsm.Result{}, fsm.Refuse(fsm.CodeNoLeader, "gone")
		}
		return fsm.Result{Count: 10, More: true, UpTo: 77}, nil
	}
	a = ask(t, s, "DELETE", "/v1/queues/q/jobs", "")
	wantContains(t, wantProblem(t, a, 504, "commit_timeout"), "20 jobs are done", "gone")
	step = 2
	wantProblem(t, ask(t, s, "DELETE", "/v1/queues/q/jobs", ""), 503, "no_leader")
}

// TestWaitJob proves what a wait says of each end, when it gives up, and that one
// whose client leaves ends.
func TestWaitJob(t *testing.T) {
	s := newServer(t, newInProcess(t), Options{})
	id := s.put(t, enqueueQ, "x")
	c := dial(t, listen(t, s))
	c.send("GET /v1/jobs/" + id + "/wait?for=done&timeout=20s HTTP/1.1\r\nHost: x\r\n\r\n")
	_, rec := s.taken(t, "q")
	ask(t, s, "POST", "/v1/ack", `{"items":[{"receipt":"`+rec+`"}]}`)
	if a := c.receive("GET"); a.status != 200 || a.body != `{"id":"`+id+`","state":"done"}`+"\n" || a.header("Raftq-Index") == "" {
		t.Errorf("%d %s", a.status, a.body)
	}
	dead := s.put(t, enqueueQ, "x")
	_, rec = s.taken(t, "q")
	ask(t, s, "POST", "/v1/reject", `{"items":[{"receipt":"`+rec+`","error":"no"}]}`)
	if a := ask(t, s, "GET", "/v1/jobs/"+dead+"/wait", ""); a.body != `{"id":"`+dead+`","state":"dead","dead_reason":"rejected","last_error":"no"}`+"\n" {
		t.Errorf("%d %s", a.status, a.body)
	}
	waiting := s.put(t, enqueueQ, "x")
	if a := ask(t, s, "GET", "/v1/jobs/"+waiting+"/wait?timeout=1ms", ""); a.status != 204 || a.body != "" {
		t.Errorf("not in time: %d %s", a.status, a.body)
	}
	wantContains(t, wantProblem(t, ask(t, s, "GET", "/v1/jobs/"+sampleID+"/wait", ""), 404, "job_not_found"), "job "+sampleID)
	wantContains(t, wantProblem(t, ask(t, s, "GET", "/v1/jobs/"+waiting+"/wait?for=ever", ""), 422, "invalid_option"), "for: want done")
	c.send("GET /v1/jobs/" + waiting + "/wait?timeout=50s HTTP/1.1\r\nHost: x\r\n\r\n")
	c.CloseWrite()
	wantContains(t, wantProblem(t, c.receive("GET"), 400, "invalid_request"), "half-closed")
}

// TestSettleMixed proves that a mixed list becomes one op, wherever each item's op
// stands, and what its results are.
func TestSettleMixed(t *testing.T) {
	f := newFake()
	f.answer = func(op fsm.Op) (fsm.Result, error) {
		return fsm.Result{Items: []fsm.ItemResult{{}, {Dead: true}, {Code: fsm.CodeLeaseLost}, {LeaseUntil: 1_700_000_060_000, Cancel: true}, {}}}, nil
	}
	s := newServer(t, f, Options{})
	d := sample()
	rec, id := d.Receipt().String(), d.ID.String()
	a := ask(t, s, "POST", "/v1/settle", `{"items":[{"op":"ack","receipt":"`+rec+`"},{"delay":"1s","error":"e","receipt":"`+rec+`","op":"nack"},`+
		`{"op":"release","id":"`+id+`"},{"id":"D-1","op":"reject"},{"lease":"2m","op":"extend","receipt":"`+rec+`"},{"op":"reject","receipt":"`+rec+`","error":"no"}]}`)
	item := fsm.Item{Key: d.ID.Key, Grant: 2, Tag: 99, DelayMs: -1}
	with := func(v fsm.Verb, change func(*fsm.Item)) fsm.SettleItem {
		i := item
		change(&i)
		return fsm.SettleItem{Verb: v, Item: i}
	}
	want := &fsm.Settle{Items: []fsm.SettleItem{
		with(fsm.VerbAck, func(*fsm.Item) {}), with(fsm.VerbNack, func(i *fsm.Item) { i.DelayMs, i.Error = 1000, "e" }),
		{Verb: fsm.VerbRelease, Item: fsm.Item{Key: d.ID.Key, ByID: true, DelayMs: -1}}, with(fsm.VerbExtend, func(i *fsm.Item) { i.LeaseMs = 120_000 }),
		with(fsm.VerbReject, func(i *fsm.Item) { i.Error = "no" }),
	}}
	if got := f.lastOp(t); !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v\nwant %+v", got, want)
	}
	if a.status != 207 || !strings.Contains(a.body, `{"status":400,"code":"bad_job_id"`) || !strings.Contains(a.body, `"status":200,"cancel":true,"lease_until"`) || strings.Count(a.body, `"status":200`) != 4 {
		t.Errorf("%d %s", a.status, a.body)
	}
	if n := [...]uint64{s.stats.acked.Load(), s.stats.nacked.Load(), s.stats.released.Load(), s.stats.rejected.Load(), s.stats.extended.Load()}; n != [...]uint64{1, 1, 0, 1, 1} {
		t.Errorf("counted %v", n)
	}
}

// TestTx proves that a transaction is done whole or not at all, keeps the order of its
// items, and says of each why.
func TestTx(t *testing.T) {
	r := newInProcess(t)
	s := newServer(t, r, Options{})
	s.put(t, enqueueQ, "step 1")
	id, rec := s.taken(t, "q")
	tx := func(items string) *answer { return ask(t, s, "POST", "/v1/tx", `{"items":[`+items+`]}`) }
	step := `{"op":"enqueue","queue":"next","body":"step 2","priority":7,"headers":{"a":"b"}}`
	before := r.m.Position().Index
	a := tx(`{"op":"enqueue","queue":"first","json":{"n":1}},{"op":"ack","receipt":"` + rec + `"},` + step)
	results := a.json(t)["results"].([]any)
	if a.status != 200 || len(results) != 3 || r.m.Position().Index != before+1 {
		t.Fatalf("%d %s, %d entries", a.status, a.body, r.m.Position().Index-before)
	}
	for i, want := range []struct {
		status float64
		state  string
	}{{201, "ready"}, {200, "job_gone"}, {201, "ready"}} {
		m := results[i].(map[string]any)
		if m["status"] != want.status || s.state(t, m["id"].(string)) != want.state {
			t.Errorf("item %d: %v, state %s", i, m, s.state(t, m["id"].(string)))
		}
	}
	if results[1].(map[string]any)["id"] != id || counts(t, s, "next")["ready"] != 1.0 {
		t.Errorf("%s", a.body)
	}
	// The first ack is fine, the second one is not: nothing happens.
	s.put(t, enqueueQ, "again")
	fine, fineRec := s.taken(t, "q")
	s.put(t, enqueueQ, "lost")
	_, lost := s.taken(t, "q")
	ask(t, s, "POST", "/v1/nack", `{"items":[{"receipt":"`+lost+`","delay":"0s"}]}`)
	ask(t, s, "POST", dequeueQ, "")
	a = tx(`{"op":"ack","receipt":"` + fineRec + `"},` + step + `,{"op":"nack","receipt":"` + lost + `"}`)
	wantContains(t, wantProblem(t, a, 409, "aborted"), "items[2]: lease_lost")
	m := a.json(t)
	results = m["results"].([]any)
	for i, want := range []string{"aborted", "aborted", "lease_lost"} {
		if got := results[i].(map[string]any)["code"]; got != want {
			t.Errorf("item %d: %v, want %s", i, got, want)
		}
	}
	if m["applied"] != "no" || s.state(t, fine) != "leased" || counts(t, s, "next")["ready"] != 1.0 {
		t.Errorf("an aborted transaction did something: %s", a.body)
	}
	wantContains(t, wantProblem(t, tx(`{"op":"ack","id":"D-1"}`), 400, "bad_job_id"), "items[0]")
	wantContains(t, wantProblem(t, tx(step+`,{"op":"enqueue","queue":"q","body":"x","ttl":"0s"}`), 422, "invalid_option"), "items[1]: ttl")
	for items, twice := range map[string]string{
		`{"op":"ack","op":"enqueue","queue":"q","body":"x"}`:            "op: given twice",
		`{"op":"enqueue","op":"ack","receipt":"x"}`:                     "op: given twice",
		`{"op":"enqueue","queue":"q","queue":"r","body":"x"}`:           "queue: given twice",
		`{"op":"enqueue","queue":"q","body":"x","ttl":"1s","ttl":"1s"}`: "ttl: given twice",
	} {
		wantContains(t, wantProblem(t, tx(items), 422, "invalid_option"), "items[0]: "+twice)
	}
	// A full queue aborts it all.
	ask(t, s, "PUT", "/v1/queues/next", `{"max_len":1}`)
	wantContains(t, wantProblem(t, tx(`{"op":"ack","receipt":"`+fineRec+`"},`+step), 409, "aborted"), "items[1]: queue_full")
	if s.state(t, fine) != "leased" {
		t.Error("the ack of an aborted transaction stands")
	}
}
