package consistency

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"raftq/cluster"
)

// api is a user of the REST interface of one node.
type api struct {
	t   *testing.T
	ctx context.Context
	c   *client
}

// object is a JSON object of an answer.
type object map[string]any

func (o object) text(name string) string {
	s, _ := o[name].(string)
	return s
}

func (o object) num(name string) float64 {
	n, _ := o[name].(float64)
	return n
}

func (o object) list(name string) (all []object) {
	l, _ := o[name].([]any)
	for _, e := range l {
		all = append(all, e.(map[string]any))
	}
	return all
}

// ask sends a request and wants a status; the answer must be JSON, if there is one.
func (u *api) ask(want int, method, path, body string) object {
	u.t.Helper()
	a, err := u.c.do(u.ctx, method, path, []byte(body))
	if err != nil {
		u.t.Fatalf("%s %s: %v", method, path, err)
	}
	if a.status != want {
		u.t.Fatalf("%s %s %s: %d %s, want %d", method, path, body, a.status, a.body, want)
	}
	o := object{}
	if len(a.body) > 0 {
		if err := json.Unmarshal(a.body, &o); err != nil {
			u.t.Fatalf("%s %s: %v in %s", method, path, err, a.body)
		}
	}
	return o
}

// code asks for something that is refused, and returns the refusal's code.
func (u *api) code(status int, method, path, body string) string {
	u.t.Helper()
	return u.ask(status, method, path, body).text("code")
}

// put enqueues and returns the id.
func (u *api) put(queue, options, body string) string {
	u.t.Helper()
	return u.ask(201, "POST", "/v1/queues/"+queue+"/enqueue?"+options, body).text("id")
}

// take dequeues: nil when nothing is there.
func (u *api) take(queue, options string) []object {
	u.t.Helper()
	path := "/v1/queues/" + queue + "/dequeue?" + options
	a, err := u.c.do(u.ctx, "POST", path, nil)
	if err != nil || a.status != 200 && a.status != 204 {
		u.t.Fatalf("POST %s: %v %d %s", path, err, a.status, a.body)
	}
	o := object{}
	if a.status == 200 {
		if err := json.Unmarshal(a.body, &o); err != nil {
			u.t.Fatal(err)
		}
	}
	return o.list("jobs")
}

// one dequeues a job that must be there, or come within 5 s.
func (u *api) one(queue, options string) object {
	u.t.Helper()
	jobs := u.take(queue, "wait=5s&"+options)
	if len(jobs) != 1 {
		u.t.Fatalf("%s: no job", queue)
	}
	return jobs[0]
}

// settle does something with a job and returns its line.
func (u *api) settle(verb, ref, more string) object {
	u.t.Helper()
	kind := "id"
	if strings.Contains(ref, ".") {
		kind = "receipt"
	}
	a, err := u.c.do(u.ctx, "POST", "/v1/"+verb, []byte(`{"items":[{"`+kind+`":"`+ref+`"`+more+`}]}`))
	if err != nil || a.status != 200 && a.status != 207 {
		u.t.Fatalf("%s: %v %d %s", verb, err, a.status, a.body)
	}
	o := object{}
	if err := json.Unmarshal(a.body, &o); err != nil {
		u.t.Fatal(err)
	}
	return o.list("results")[0]
}

func (u *api) job(id string) object {
	u.t.Helper()
	return u.ask(200, "GET", "/v1/jobs/"+id, "")
}

func (u *api) queue(name string) object {
	u.t.Helper()
	return u.ask(200, "GET", "/v1/queues/"+name, "")
}

func (u *api) want(ok bool, format string, args ...any) {
	u.t.Helper()
	if !ok {
		u.t.Errorf(format, args...)
	}
}

// awaitState waits until a job is in a state.
func (u *api) awaitState(id, state string) object {
	u.t.Helper()
	var o object
	eventually(u.t, 20*time.Second, "a job that is "+state, func() bool {
		a, err := u.c.do(u.ctx, "GET", "/v1/jobs/"+id, nil)
		if err != nil {
			return false
		}
		o = object{}
		if json.Unmarshal(a.body, &o) != nil {
			return false
		}
		return o.text("state") == state || o.text("code") == state
	})
	return o
}

// semantics has a test for each line of docs/semantics.md. Each has queues of its own,
// so they run beside each other.
var semantics = map[string]func(u *api){
	"redelivery": func(u *api) {
		first := u.put("redelivery", "", "1")
		u.put("redelivery", "", "2")
		u.put("redelivery", "priority=9", "urgent")
		urgent := u.one("redelivery", "")
		old := u.one("redelivery", "")
		u.want(old.text("id") == first, "the first of two is not handed out first")
		u.settle("nack", old.text("receipt"), `,"delay":"0s"`)
		u.settle("nack", urgent.text("receipt"), `,"delay":"0s"`)
		u.want(u.one("redelivery", "").text("body") == "urgent", "a job with a higher priority comes back first")
		u.want(u.one("redelivery", "").text("id") == first, "what comes back does not take its old place")
	},
	"lease": func(u *api) {
		length := func(job object) float64 { return job.num("lease_until_ms") - job.num("enqueued_at_ms") }
		u.put("lease", "", "")
		ms := length(u.one("lease", ""))
		u.want(ms >= 60_000 && ms < 65_000, "nobody says: %v ms", ms)
		u.ask(200, "PUT", "/v1/queues/lease", `{"lease":"10m"}`)
		u.put("lease", "", "")
		ms = length(u.one("lease", ""))
		u.want(ms >= 600_000 && ms < 605_000, "the queue says 10m: %v ms", ms)
		u.put("lease", "lease=20m", "")
		ms = length(u.one("lease", ""))
		u.want(ms >= 1200_000 && ms < 1205_000, "the job says 20m: %v ms", ms)
		u.put("lease", "lease=20m", "")
		ms = length(u.one("lease", "lease=30m"))
		u.want(ms >= 1800_000 && ms < 1805_000, "the call says 30m: %v ms", ms)
		u.want(u.code(422, "POST", "/v1/queues/lease/dequeue?lease=13h", "") == "invalid_option", "more than 12 h")
	},
	"extend": func(u *api) {
		u.put("extend", "", "")
		j := u.one("extend", "lease=1m")
		r := u.settle("extend", j.text("receipt"), `,"lease":"1h"`)
		u.want(r.num("lease_until_ms")-j.num("lease_until_ms") > 3500_000, "a new lease from now: %v", r)
		u.put("extend", "ttl=1s", "")
		j = u.one("extend", "lease=10s")
		<-time.After(700 * time.Millisecond) // past half of the TTL
		r = u.settle("extend", j.text("receipt"), `,"lease":"1h"`)
		u.want(r.text("code") == "too_late", "past half of the TTL: %v", r)
	},
	"counters": func(u *api) {
		id := u.put("counters", "", "")
		j := u.one("counters", "")
		u.settle("nack", j.text("receipt"), `,"delay":"0s"`)
		j = u.one("counters", "")
		u.settle("release", j.text("receipt"), "")
		u.one("counters", "lease=50ms")
		u.awaitState(id, "ready")
		o := u.job(id)
		u.want(o.num("deliveries") == 3 && o.num("failures") == 2 && o.num("nacks") == 1, "a nack, a release and a lease that is over: %v", o)
	},
	"poison": func(u *api) {
		id := u.put("poison", "max_failures=2", "bad")
		for i := range 2 {
			j := u.one("poison", "")
			r := u.settle("nack", j.text("receipt"), fmt.Sprintf(`,"delay":"0s","error":"time %d"`, i+1))
			u.want((r["dead"] == true) == (i == 1), "nack %d: %v", i+1, r)
		}
		o := u.job(id)
		u.want(o.text("state") == "dead" && o.text("dead_reason") == "max_failures" && o.text("last_error") == "time 2" && o.text("body") == "bad" && o.text("queue") == "poison", "%v", o)
		// In the same entry into the queue that is set for it.
		u.ask(200, "PUT", "/v1/queues/poison", `{"dead_letter":"poison-dead","max_failures":1}`)
		id = u.put("poison", "", "worse")
		j := u.one("poison", "")
		u.settle("nack", j.text("receipt"), "")
		o = u.job(id)
		u.want(o.text("queue") == "poison-dead" && o.text("source_queue") == "poison" && o.text("dead_reason") == "max_failures", "moved: %v", o)
		u.want(u.one("poison-dead", "").text("id") == id, "what was moved cannot be worked on")
		u.want(u.queue("poison")["config"].(map[string]any)["dead_ttl"] == "14d", "dead jobs are kept for 14 days")
		u.want(u.put("poison", "max_failures=0", "") != "", "never")
	},
	"backoff": func(u *api) {
		u.ask(200, "PUT", "/v1/queues/backoff", `{"backoff":{"min":"800ms","max":"4s"}}`)
		id := u.put("backoff", "", "")
		wait := func() float64 {
			u.settle("nack", u.one("backoff", "").text("receipt"), "")
			o := u.job(id)
			return o.num("deliver_at_ms") - o.num("enqueued_at_ms")
		}
		first := wait()
		u.want(first >= 800 && first < 4000, "first: %v ms", first)
		second := wait() - first
		u.want(second >= 1600, "the second is twice as long: %v ms more", second)
		// An explicit delay wins, nothing set is at once.
		u.settle("nack", u.one("backoff", "").text("receipt"), `,"delay":"1h"`)
		u.want(u.job(id).text("state") == "delayed", "with a delay")
		u.put("backoff-none", "", "")
		u.settle("nack", u.one("backoff-none", "").text("receipt"), "")
		u.want(len(u.take("backoff-none", "")) == 1, "without a backoff it is back at once")
	},
	"late-ack": func(u *api) {
		id := u.put("late", "", "")
		old := u.one("late", "lease=50ms").text("receipt")
		u.awaitState(id, "ready")
		r := u.settle("ack", old, "")
		u.want(r.num("status") == 200 && r["late"] == true, "nobody else has it: %v", r)
		r = u.settle("ack", old, "")
		u.want(r.num("status") == 200 && r["already"] == true, "acked before: %v", r)
		id = u.put("late", "", "")
		old = u.one("late", "lease=50ms").text("receipt")
		u.awaitState(id, "ready")
		now := u.one("late", "").text("receipt")
		r = u.settle("ack", old, "")
		u.want(r.num("status") == 409 && r.text("code") == "lease_lost", "somebody else has it: %v", r)
		r = u.settle("ack", now, "")
		u.want(r.num("status") == 200 && r["late"] == nil, "the holder: %v", r)
	},
	"priority": func(u *api) {
		for _, p := range []string{"priority=0", "", "priority=9", "priority=4", "priority=5"} {
			u.put("priority", p, p)
		}
		got := ""
		for _, j := range u.take("priority", "max=5") {
			got += j.text("body") + ";"
		}
		u.want(got == "priority=9;priority=5;;priority=4;priority=0;", "order: %s", got)
		u.want(u.code(422, "POST", "/v1/queues/priority/enqueue?priority=10", "") == "invalid_option", "above 9")
	},
	"group": func(u *api) {
		u.put("group", "group=a", "a1")
		u.put("group", "group=a", "a2")
		u.put("group", "group=b", "b1")
		jobs := u.take("group", "max=3")
		u.want(len(jobs) == 2 && jobs[0].text("body") == "a1" && jobs[1].text("body") == "b1" && jobs[0].text("group") == "a", "one of each group: %v", jobs)
		u.want(len(u.take("group", "")) == 0, "a2 while a1 is out")
		u.settle("ack", jobs[0].text("receipt"), "")
		u.want(u.one("group", "").text("body") == "a2", "the next after the ack")
		u.ask(200, "PUT", "/v1/queues/group-2", `{"group_limit":2}`)
		for range 3 {
			u.put("group-2", "group=a", "")
		}
		u.want(len(u.take("group-2", "max=3")) == 2, "group_limit 2")
		u.ask(200, "PUT", "/v1/queues/group-fair", `{"fair":true,"group_limit":9}`)
		for _, g := range []string{"a", "a", "a", "b"} {
			u.put("group-fair", "group="+g, g)
		}
		fair := u.take("group-fair", "max=2")
		u.want(len(fair) == 2 && fair[0].text("body") != fair[1].text("body"), "fair: %v", fair)
	},
	"dedup": func(u *api) {
		first := u.ask(201, "POST", "/v1/queues/dedup/enqueue?dedup_id=x&dedup_ttl=1s", "")
		u.want(first["duplicate"] == false, "the first: %v", first)
		u.settle("ack", u.one("dedup", "").text("receipt"), "")
		again := u.ask(201, "POST", "/v1/queues/dedup/enqueue?dedup_id=x", "")
		u.want(again["duplicate"] == true && again.text("id") == first.text("id"), "again, after the ack: %v", again)
		u.want(u.ask(201, "POST", "/v1/queues/dedup-2/enqueue?dedup_id=x", "")["duplicate"] == false, "another queue")
		eventually(u.t, 20*time.Second, "the end of the window", func() bool {
			o := u.ask(201, "POST", "/v1/queues/dedup/enqueue?dedup_id=x", "")
			return o["duplicate"] == false
		})
	},
	"unique-key": func(u *api) {
		id := u.put("unique", "unique_key=x", "")
		o := u.ask(409, "POST", "/v1/queues/unique/enqueue?unique_key=x", "")
		u.want(o.text("code") == "not_unique" && strings.Contains(o.text("detail"), id), "%v", o)
		u.settle("ack", u.one("unique", "").text("receipt"), "")
		u.put("unique", "unique_key=x", "")
	},
	"ttl": func(u *api) {
		o := u.job(u.put("ttl", "", ""))
		u.want(o["expires_at"] == nil, "none unless set: %v", o)
		u.take("ttl", "")
		id := u.put("ttl", "ttl=300ms", "")
		j := u.one("ttl", "lease=1h")
		u.awaitState(id, "job_gone")
		r := u.settle("ack", j.text("receipt"), "")
		u.want(r.num("status") == 410 && r.text("code") == "job_gone", "it dies while leased: %v", r)
		u.ask(200, "PUT", "/v1/queues/ttl-queue", `{"ttl":"1h"}`)
		u.want(u.job(u.put("ttl-queue", "", ""))["expires_at"] != nil, "the queue's")
	},
	"at-most-once": func(u *api) {
		id := u.put("once", "at_most_once=true", "")
		j := u.one("once", "lease=50ms&consistency=fast")
		u.awaitState(id, "held")
		u.want(len(u.take("once", "")) == 0, "handed out again")
		u.want(u.code(409, "POST", "/v1/jobs/"+id+"/requeue", "") == "at_most_once", "requeue")
		u.want(u.settle("release", j.text("receipt"), "").text("code") != "", "release")
		u.want(u.settle("ack", j.text("receipt"), "").num("status") == 200, "ack")
		id = u.put("once", "at_most_once=true", "")
		j = u.one("once", "")
		u.want(u.settle("release", j.text("receipt"), "").text("code") == "at_most_once", "release while it is leased")
		u.want(u.settle("nack", j.text("receipt"), "")["dead"] == true && u.job(id).text("dead_reason") == "at_most_once", "a nack makes it dead")
		// Its lease is committed before it is handed out, even if fast was asked.
		u.put("once", "at_most_once=true", "")
		path := "/v1/queues/once/dequeue?consistency=fast"
		a, err := u.c.do(u.ctx, "POST", path, nil)
		u.want(err == nil && a.status == 200 && a.header.Get("Raftq-Batch") == "", "fast: %v %d", err, a.status)
	},
	"queues": func(u *api) {
		u.want(u.code(404, "GET", "/v1/queues/made-by-nobody", "") == "queue_not_found", "a read")
		u.take("made-by-nobody", "")
		u.want(u.code(404, "GET", "/v1/queues/made-by-nobody", "") == "queue_not_found", "a dequeue makes no queue")
		u.put("made", "", "")
		u.want(u.queue("made")["configured"] == false, "made by an enqueue")
		u.ask(200, "PUT", "/v1/queues/configured", "{}")
		u.want(u.queue("configured")["configured"] == true, "configured")
	},
	"full-queue": func(u *api) {
		u.ask(200, "PUT", "/v1/queues/full", `{"max_len":2}`)
		u.put("full", "", "1")
		u.put("full", "delay=1h", "2")
		u.want(u.code(429, "POST", "/v1/queues/full/enqueue", "3") == "queue_full", "max_len")
		u.ask(200, "PATCH", "/v1/queues/full", `{"overflow":"drop_oldest"}`)
		u.put("full", "", "4")
		u.want(u.one("full", "").text("body") == "4", "drop_oldest")
		u.ask(200, "PUT", "/v1/queues/full-bytes", `{"max_bytes":2000}`)
		u.put("full-bytes", "", "")
		u.want(u.code(429, "POST", "/v1/queues/full-bytes/enqueue", strings.Repeat("x", 3000)) == "queue_full", "max_bytes")
		u.put("full-call", "max_len=1", "")
		u.want(u.code(429, "POST", "/v1/queues/full-call/enqueue?max_len=1", "") == "queue_full", "max_len of the call")
		u.put("full-call", "", "")
	},
	"pause": func(u *api) {
		u.put("pause", "", "")
		j := u.one("pause", "")
		u.put("pause", "", "")
		u.ask(200, "PUT", "/v1/queues/pause/pause", `{"in":true,"out":true}`)
		u.want(u.code(409, "POST", "/v1/queues/pause/enqueue", "") == "queue_paused", "in")
		u.want(len(u.take("pause", "")) == 0, "out")
		u.settle("nack", j.text("receipt"), `,"delay":"0s"`)
		u.want(u.job(j.text("id")).text("state") == "delayed", "a retry is held back")
		u.ask(200, "PUT", "/v1/queues/pause/pause", `{"out":true}`)
		u.want(len(u.take("pause", "")) == 0, "out alone")
		u.want(u.settle("ack", j.text("id"), "").num("status") == 200, "acks always work")
		until := time.UnixMilli(int64(u.now()) + 500).UTC().Format(time.RFC3339Nano)
		u.ask(200, "PUT", "/v1/queues/pause/pause", `{"out":true,"until":"`+until+`"}`)
		u.one("pause", "")
	},
	"hold": func(u *api) {
		id := u.put("hold", "", "")
		u.ask(200, "POST", "/v1/jobs/"+id+"/hold", "")
		u.want(u.job(id).text("state") == "held" && len(u.take("hold", "")) == 0, "held")
		u.ask(200, "POST", "/v1/jobs/"+id+"/requeue", "")
		u.want(u.one("hold", "").text("id") == id, "requeued")
	},
	"redrive": func(u *api) {
		dead := u.put("redrive", "max_failures=1", "dead")
		u.settle("nack", u.one("redrive", "").text("receipt"), `,"error":"e"`)
		u.put("redrive", "", "waits")
		u.want(u.ask(200, "POST", "/v1/queues/redrive/redrive", `{"reason":"rejected"}`).num("redriven") == 0, "another reason")
		u.want(u.ask(200, "POST", "/v1/queues/redrive/redrive", "{}").num("redriven") == 1, "redrive")
		jobs := u.take("redrive", "max=2")
		u.want(len(jobs) == 2 && jobs[1].text("id") == dead && jobs[1].num("failures") == 0, "behind what waits, counters reset: %v", jobs)
		u.want(u.job(dead).num("redriven") == 1, "history kept")
	},
	"delayed": func(u *api) {
		id := u.put("delayed", "delay=400ms", "")
		o := u.job(id)
		j := u.one("delayed", "")
		u.want(j.num("lease_until_ms")-60_000 >= o.num("deliver_at_ms"), "handed out %v ms before its time", o.num("deliver_at_ms")-j.num("lease_until_ms")+60_000)
		at := time.UnixMilli(int64(u.now()) + 400).UTC().Format(time.RFC3339Nano)
		u.put("delayed", "at="+url.QueryEscape(at), "at")
		u.want(u.one("delayed", "").text("body") == "at", "at")
	},
	"attempt": func(u *api) {
		u.put("attempt", "", "")
		u.put("attempt", "", "")
		first, again := u.one("attempt", "attempt_id=a"), u.one("attempt", "attempt_id=a")
		u.want(first.text("receipt") == again.text("receipt"), "the same attempt: %v, %v", first, again)
		u.want(u.one("attempt", "attempt_id=b").text("id") != first.text("id"), "another attempt")
	},
	"topics": func(u *api) {
		u.ask(200, "PUT", "/v1/topics/kept", `{"max_count":3}`)
		for i := range 5 {
			if at := u.ask(201, "POST", "/v1/topics/kept", fmt.Sprint("m", i)); at.num("offset") != float64(i) {
				u.t.Errorf("message %d: %v", i, at)
			}
		}
		page := u.ask(200, "GET", "/v1/topics/kept/messages", "")
		list := page.list("messages")
		if len(list) != 3 || list[0].num("offset") != 2 || list[2].text("body") != "m4" || page.num("next") != 5 {
			u.t.Errorf("%v", page)
		}
		if gone := u.ask(410, "GET", "/v1/topics/kept/messages?from=1", ""); gone.text("code") != "offset_trimmed" || gone.num("first_offset") != 2 {
			u.t.Errorf("%v", gone)
		}
		if end := u.ask(200, "GET", "/v1/topics/kept/messages?from=5", ""); len(end.list("messages")) != 0 || end.num("next") != 5 {
			u.t.Errorf("%v", end)
		}
		u.ask(200, "PUT", "/v1/topics/aging", `{"max_age":"1s"}`)
		u.ask(201, "POST", "/v1/topics/aging", "old")
		eventually(u.t, 20*time.Second, "a message that is too old goes", func() bool {
			return u.ask(200, "GET", "/v1/topics/aging", "").num("first_offset") == 1
		})
	},
	"cursors": func(u *api) {
		u.ask(201, "POST", "/v1/topics/read/messages", `[{"body":"0"},{"body":"1"}]`)
		const cursor = "/v1/topics/read/cursors/w"
		if code := u.code(404, "GET", cursor, ""); code != "cursor_not_found" {
			u.t.Error(code)
		}
		first := u.ask(200, "PUT", cursor, `{"offset":1}`)
		if got := u.ask(200, "GET", cursor, ""); got.num("offset") != 1 || got.num("version") != first.num("version") {
			u.t.Errorf("%v", got)
		}
		if code := u.code(422, "PUT", cursor, `{"offset":3}`); code != "invalid_option" {
			u.t.Error(code)
		}
		move := fmt.Sprintf(`{"items":[{"op":"append","topic":"out","body":"x"},{"op":"cursor","topic":"read","cursor":"w","offset":2,"if_match":%.0f}]}`, first.num("version"))
		u.ask(200, "POST", "/v1/tx", move)
		if code := u.code(409, "POST", "/v1/tx", move); code != "aborted" {
			u.t.Error(code)
		}
		if out := u.ask(200, "GET", "/v1/topics/out", ""); out.num("next_offset") != 1 {
			u.t.Errorf("half of a transaction: %v", out)
		}
	},
	"wait-for-done": func(u *api) {
		id := u.put("done", "", "")
		got := make(chan answer, 1)
		other := newClient(u.c.h, u.c.node, u.c.addr)
		go func() {
			a, _ := other.do(u.ctx, "GET", "/v1/jobs/"+id+"/wait?for=done&timeout=20s", nil)
			got <- a
		}()
		u.settle("ack", u.one("done", "").text("receipt"), "")
		a := <-got
		u.want(a.status == 200 && strings.Contains(string(a.body), `"state":"done"`), "%d %s", a.status, a.body)
	},
}

// now is log time as a read tells it.
func (u *api) now() float64 {
	u.t.Helper()
	id := u.put("now", "", "")
	return u.job(id).num("enqueued_at_ms")
}

// TestSemantics holds three real nodes against docs/semantics.md, a test for each
// line, all requests through a follower. They share one cluster.
func TestSemantics(t *testing.T) {
	c, ctx := start(t, 3, "--max-memory", "24MiB")
	h := newHistory()
	lead := leader(t, c, ctx)
	follower := (lead + 1) % 3
	user := func(t *testing.T) *api {
		return &api{t, ctx, newClient(h, follower, c.Nodes[follower].Client)}
	}
	// These two are about the nodes, so they come first, one by one.
	t.Run("memory-full", func(t *testing.T) { memoryFull(user(t)) })
	t.Run("replicate", func(t *testing.T) { replicate(user(t), c, (lead+2)%3) })
	for name, test := range semantics {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(user(t))
		})
	}
}

// memoryFull fills the memory: enqueues are refused, what makes room works, and with
// room they are taken again.
func memoryFull(u *api) {
	body := strings.Repeat("x", 1<<20)
	status := func(options string) int {
		u.t.Helper()
		a, err := u.c.do(u.ctx, "POST", "/v1/queues/memory/enqueue?"+options, []byte(body))
		if err != nil {
			u.t.Fatal(err)
		}
		if a.status == 507 && !strings.Contains(string(a.body), `"code":"memory_limit"`) || a.status == 507 && a.header.Get("Retry-After") == "" {
			u.t.Errorf("refused without a reason: %s", a.body)
		}
		return a.status
	}
	fastRefused := -1
	for n := 0; ; n++ {
		if n > 40 {
			u.t.Fatal("40 MiB were taken, at most 24 MiB are allowed")
		}
		if fast := status("consistency=fast"); fast == 507 && fastRefused < 0 {
			fastRefused = n
		}
		if status("") == 507 {
			u.want(fastRefused >= 0 && n >= 10, "all are refused after %d MiB, fast ones after %d", 2*n, fastRefused)
			break
		}
	}
	j := u.one("memory", "")
	u.settle("ack", j.text("receipt"), "")
	u.ask(200, "DELETE", "/v1/queues/memory/jobs?state=ready", "")
	eventually(u.t, 20*time.Second, "room again", func() bool { return status("") == 201 })
	u.ask(200, "DELETE", "/v1/queues/memory?force=true", "")
}

// replicate asks for copies on all nodes, with all of them up and with one down.
func replicate(u *api, c *cluster.Cluster, victim int) {
	u.put("copies", "replicate=3", "on all")
	o := u.ask(503, "POST", "/v1/queues/copies/enqueue?replicate=4", "")
	u.want(o.text("code") == "not_enough_replicas" && o.text("applied") == "no", "four of three: %v", o)
	c.Nodes[victim].Kill9()
	u.put("copies", "replicate=2", "on a majority")
	o = u.ask(503, "POST", "/v1/queues/copies/enqueue?replicate=3&timeout=500ms", "withdrawn")
	u.want(o.text("code") == "not_enough_replicas" && o.text("applied") == "no", "three with one down: %v", o)
	u.want(u.queue("copies").num("ready") == 2, "it was not withdrawn")
	// Handed out before it is withdrawn: nobody can say that it was not done.
	got := make(chan answer, 1)
	other := newClient(u.c.h, u.c.node, u.c.addr)
	go func() {
		a, _ := other.do(u.ctx, "POST", "/v1/queues/taken/enqueue?replicate=3&timeout=1s", []byte("x"))
		got <- a
	}()
	u.one("taken", "")
	if a := <-got; a.status != 504 || !strings.Contains(string(a.body), `"applied":"unknown"`) {
		u.t.Errorf("handed out meanwhile: %d %s", a.status, a.body)
	}
	if err := c.Nodes[victim].Start(); err != nil {
		u.t.Fatal(err)
	}
	if err := c.WaitReady(u.ctx); err != nil {
		u.t.Fatal(err)
	}
	u.put("copies", "replicate=3", "on all again")
}

// TestSemanticsDoc proves that docs/semantics.md and the tests have the same lines.
func TestSemanticsDoc(t *testing.T) {
	text, err := os.ReadFile("../docs/semantics.md")
	if err != nil {
		t.Fatal(err)
	}
	named := map[string]bool{}
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(line, "|")
		if len(cells) != 5 || strings.Contains(line, "---") || strings.Contains(line, "| question |") {
			continue
		}
		name, _, _ := strings.Cut(strings.TrimPrefix(strings.TrimSpace(cells[3]), "`"), "`")
		if named[name] {
			t.Errorf("%s is there twice", name)
		}
		named[name] = true
		if _, ok := semantics[name]; !ok && name != "memory-full" && name != "replicate" {
			t.Errorf("there is no test %q", name)
		}
	}
	for name := range semantics {
		if !named[name] {
			t.Errorf("docs/semantics.md does not name %q", name)
		}
	}
	if len(named) != len(semantics)+2 {
		t.Errorf("%d lines, %d tests", len(named), len(semantics)+2)
	}
}
