package httpapi

import (
	"fmt"
	"strings"
	"time"

	"raftq/fsm"
)

// generic provokes what many routes can answer: by a broken request where the
// front end answers it, and by a replica that refuses where that does.
var generic = map[string]func(w *walk, s *sent) *answer{
	"invalid_option": func(w *walk, s *sent) *answer { s.query.Set("bogus", "1"); return w.do(s) },
	"invalid_request": func(w *walk, s *sent) *answer {
		s.header = map[string]string{"Content-Encoding": "gzip"}
		return w.do(s)
	},
	"headers_too_large": func(w *walk, s *sent) *answer { return w.raw(s, "X: "+strings.Repeat("x", headBytesMax)+"\r\n\r\n") },
	"body_too_large":    func(w *walk, s *sent) *answer { return w.raw(s, "Content-Length: 99999999\r\n\r\n") },
	"request_timeout":   func(w *walk, s *sent) *answer { return w.with(w.fake("slow", nil, 20*time.Millisecond), s, "X: ") },
	"internal": func(w *walk, s *sent) *answer {
		return w.with(w.fake("bug", func() *fsm.Error { panic("bug") }, 0), s, "Content-Length: "+fmt.Sprint(len(s.body))+"\r\n\r\n"+s.body)
	},
	"no_leader":        refusedBy(fsm.CodeNoLeader),
	"overloaded":       refusedBy(fsm.CodeOverloaded),
	"leaving":          refusedBy(fsm.CodeLeaving),
	"loading":          refusedBy(fsm.CodeLoading),
	"not_fresh":        refusedBy(fsm.CodeNotFresh),
	"commit_timeout":   refusedBy(fsm.CodeCommitTimeout),
	"memory_limit":     refusedBy(fsm.CodeMemoryLimit),
	"disk_limit":       refusedBy(fsm.CodeDiskLimit),
	"feature_level":    refusedBy(fsm.CodeFeatureLevel),
	"member_exists":    refusedBy(fsm.CodeMemberExists),
	"member_not_found": refusedBy(fsm.CodeMemberNotFound),
	"quorum_at_risk":   refusedBy(fsm.CodeQuorumAtRisk),
	"idempotency_mismatch": func(w *walk, s *sent) *answer {
		s.header = map[string]string{"Idempotency-Key": w.name()}
		f := newFake()
		f.answer = func(op fsm.Op) (fsm.Result, error) {
			if _, ok := op.(*fsm.Keyed); !ok {
				w.t.Errorf("%s: the key did not reach the replica", s.name())
			}
			return fsm.Result{Code: fsm.CodeIdempotencyMismatch}, nil
		}
		there := *w
		there.addr = listen(w.t, newServer(w.t, f, Options{}))
		return there.do(s)
	},
}

// provoked are the errors of one route, against the real node.
var provoked = func() map[string]func(w *walk, s *sent) *answer {
	badID := func(w *walk, s *sent) *answer { s.params["id"] = "D-1"; return w.do(s) }
	gone := func(w *walk, s *sent) *answer { s.params["id"] = w.acked(); return w.do(s) }
	single := func(s *sent) {
		if strings.HasSuffix(s.path, "/jobs") && !s.query.Has("atomic") {
			s.body = `{"body":"x"}`
		}
	}
	asItIs := func(w *walk, s *sent) *answer { return w.do(s) }
	noQueue := func(w *walk, s *sent) *answer { s.params["q"] = "none"; return w.do(s) }
	full := func(w *walk, s *sent) *answer {
		single(s)
		s.params["q"] = w.name()
		w.enqueue(s.params["q"], "")
		w.call("PATCH", "/v1/queues/"+s.params["q"], `{"max_len":1}`)
		return w.do(s)
	}
	paused := func(w *walk, s *sent) *answer {
		single(s)
		s.params["q"] = w.name()
		w.call("PUT", "/v1/queues/"+s.params["q"]+"/pause", `{"in":true}`)
		return w.do(s)
	}
	notUnique := func(w *walk, s *sent) *answer {
		s.params["q"] = w.name()
		w.enqueue(s.params["q"], "unique_key=k")
		if strings.HasSuffix(s.path, "/jobs") {
			s.body = `{"body":"x","unique_key":"k"}`
		} else {
			s.query.Set("unique_key", "k")
		}
		return w.do(s)
	}
	fewCopies := func(w *walk, s *sent) *answer {
		if strings.HasSuffix(s.path, "/jobs") {
			s.body = `{"body":"x","replicate":7}`
		} else {
			s.query.Set("replicate", "7")
		}
		return w.do(s)
	}
	old := func(w *walk, s *sent) *answer { s.header = map[string]string{"If-Match": `"1"`}; return w.do(s) }
	all := map[string]func(w *walk, s *sent) *answer{
		"GET /v1/queues/{q} queue_not_found":          noQueue,
		"DELETE /v1/queues/{q} queue_not_found":       noQueue,
		"GET /v1/queues/{q}/jobs queue_not_found":     noQueue,
		"DELETE /v1/queues/{q}/jobs queue_not_found":  noQueue,
		"POST /v1/queues/{q}/redrive queue_not_found": noQueue,
		"DELETE /v1/queues/{q} queue_not_empty":       func(w *walk, s *sent) *answer { w.enqueue("mail", ""); return w.do(s) },
		"PUT /v1/queues/{q} etag_mismatch":            old,
		"PATCH /v1/queues/{q} etag_mismatch":          old,
		"POST /v1/queues/{q}/jobs aborted": func(w *walk, s *sent) *answer {
			s.query.Set("atomic", "true")
			s.body = `[{"body":"x"},{"body":"y"}]`
			return full(w, s)
		},
		"POST /v1/cluster/drain member_not_found": func(w *walk, s *sent) *answer { s.body = `{"node":"nobody"}`; return w.do(s) },
		"POST /v1/tx aborted":                     asItIs,
		"POST /v1/tx bad_job_id":                  func(w *walk, s *sent) *answer { s.body = `{"items":[{"op":"ack","id":"D-1"}]}`; return w.do(s) },
		"POST /v1/jobs/{id}/requeue at_most_once": func(w *walk, s *sent) *answer {
			s.params["id"], _ = w.lease("at_most_once=true")
			return w.do(s)
		},
	}
	for _, r := range []string{"GET /v1/jobs/{id}", "DELETE /v1/jobs/{id}", "POST /v1/jobs/{id}/requeue", "POST /v1/jobs/{id}/hold", "POST /v1/jobs/{id}/cancel", "GET /v1/jobs/{id}/wait"} {
		all[r+" bad_job_id"], all[r+" job_not_found"], all[r+" job_gone"] = badID, asItIs, gone
	}
	for _, r := range []string{"GET /v1/topics/{t}", "DELETE /v1/topics/{t}", "GET /v1/topics/{t}/messages", "DELETE /v1/topics/{t}/messages", "GET /v1/topics/{t}/cursors",
		"GET /v1/topics/{t}/cursors/{cursor}", "PUT /v1/topics/{t}/cursors/{cursor}", "DELETE /v1/topics/{t}/cursors/{cursor}"} {
		all[r+" topic_not_found"] = func(w *walk, s *sent) *answer { s.params["t"] = "none"; return w.do(s) }
	}
	all["PUT /v1/topics/{t} etag_mismatch"] = old
	for _, r := range []string{"PUT", "DELETE"} {
		all[r+" /v1/topics/{t}/cursors/{cursor} etag_mismatch"] = func(w *walk, s *sent) *answer { freshTopic(w, s); return old(w, s) }
	}
	all["GET /v1/topics/{t}/cursors/{cursor} cursor_not_found"] = func(w *walk, s *sent) *answer { freshTopic(w, s); return w.do(s) }
	all["GET /v1/topics/{t}/messages offset_trimmed"] = func(w *walk, s *sent) *answer {
		freshTopic(w, s)
		w.call("DELETE", "/v1/topics/"+s.params["t"]+"/messages?before=1", "")
		s.query.Set("from", "0")
		return w.do(s)
	}
	for _, r := range []string{"POST /v1/queues/{q}/enqueue", "POST /v1/queues/{q}/jobs"} {
		all[r+" queue_full"], all[r+" queue_paused"], all[r+" not_unique"], all[r+" not_enough_replicas"] = full, paused, notUnique, fewCopies
	}
	return all
}()

// partly makes some items of a batch fail, each with one of the codes that the
// document lists for items.
var partly = map[string]func(w *walk, s *sent){
	"POST /v1/ack": settlePartly, "POST /v1/nack": settlePartly, "POST /v1/release": settlePartly, "POST /v1/reject": settlePartly, "POST /v1/extend": settlePartly,
	"POST /v1/settle": settlePartly,
	"POST /v1/queues/{q}/jobs": func(w *walk, s *sent) {
		s.body = `[{"body":"1"},{"body":"2"}]`
		f := newFake()
		f.answer = func(fsm.Op) (fsm.Result, error) {
			return fsm.Result{Items: []fsm.ItemResult{{}, {Code: fsm.CodeQueueFull}}}, nil
		}
		to := listen(w.t, newServer(w.t, f, Options{}))
		there := *w
		there.addr = to
		there.do(s)
	},
}

func settlePartly(w *walk, s *sent) {
	w.t.Helper()
	once, receipt := w.lease("at_most_once=true")
	acked := w.acked()
	_, old := w.lease("")
	w.call("POST", "/v1/nack", `{"items":[{"receipt":"`+old+`"}]}`)
	items := []string{`{"id":"D-1"}`, `{"id":"` + sampleID + `"}`, `{"id":"` + acked + `"}`, `{"receipt":"` + old + `"}`, `{"receipt":"` + receipt + `"}`}
	s.body = `{"items":[` + strings.Join(items, ",") + `]}`
	if s.path == "/v1/settle" {
		s.body = strings.ReplaceAll(s.body, "{\"", "{\"op\":\"nack\",\"")
		s.body = strings.Replace(s.body, "{\"op\":\"nack\",\"items", "{\"items", 1)
	}
	if a := w.do(s); a.status != 207 || !strings.Contains(a.body, "bad_job_id") || !strings.Contains(a.body, "job_not_found") {
		w.t.Errorf("%s of %s: %d %s", s.name(), once, a.status, a.body)
	}
}

// acked is the id of a job that is done.
func (w *walk) acked() string {
	id, receipt := w.lease("")
	if a := w.call("POST", "/v1/ack", `{"items":[{"receipt":"`+receipt+`"}]}`); a.status != 200 {
		w.t.Fatalf("ack: %d %s", a.status, a.body)
	}
	return id
}

// fake returns a server whose replica answers everything with refuse; readTimeout
// may be 0.
func (w *walk) fake(name string, refuse func() *fsm.Error, readTimeout time.Duration) string {
	if addr, ok := w.fakes[name]; ok {
		return addr
	}
	f := newFake()
	f.refuse = refuse
	s := newServer(w.t, f, Options{})
	if readTimeout > 0 {
		s.http.ReadTimeout = readTimeout
	}
	w.fakes[name] = listen(w.t, s)
	return w.fakes[name]
}

func refusedBy(code fsm.Code) func(w *walk, s *sent) *answer {
	return func(w *walk, s *sent) *answer {
		there := *w
		there.addr = w.fake(code.String(), func() *fsm.Error {
			return &fsm.Error{Code: code, Detail: "said so", Unknown: code == fsm.CodeCommitTimeout}
		}, 0)
		return there.do(s)
	}
}

// raw sends a request whose head goes on with rest.
func (w *walk) raw(s *sent, rest string) *answer { return w.with(w.addr, s, rest) }

func (w *walk) with(addr string, s *sent, rest string) *answer {
	w.t.Helper()
	c := dial(w.t, addr)
	defer c.Close()
	c.send(strings.ToUpper(s.method) + " " + s.target() + " HTTP/1.1\r\nHost: x\r\n" + rest)
	a := c.receive(strings.ToUpper(s.method))
	w.seen[fmt.Sprint(s.name(), " ", a.status)] = true
	return a
}
