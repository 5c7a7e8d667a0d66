package httpapi

import (
	"fmt"
	"net/url"
	"strings"
	"time"
)

// live puts what lives in the place of the document's samples.
func (w *walk) live(s *sent) *sent {
	w.t.Helper()
	c := *s
	c.params, c.query = map[string]string{}, url.Values{}
	w.enqueue("mail", "")
	id, receipt := "", ""
	swap := func(v string) string {
		if strings.Contains(v, sampleID) && id == "" {
			if strings.Contains(v, sampleReceipt) {
				id, receipt = w.lease("")
			} else {
				id = w.enqueue("mail", "")
			}
		}
		v = strings.ReplaceAll(v, sampleReceipt, receipt)
		v = strings.ReplaceAll(v, sampleID, id)
		if strings.Contains(v, optionFacts[optBatch].example) {
			v = strings.ReplaceAll(v, optionFacts[optBatch].example, w.fastBatch())
		}
		return v
	}
	for k, v := range s.params {
		c.params[k] = swap(v)
	}
	for k, v := range s.query {
		c.query[k] = []string{swap(v[0])}
	}
	c.body = swap(s.body)
	if scene, ok := scenes[s.name()]; ok {
		scene(w, &c)
	}
	return &c
}

// scenes are what a route's example needs to find.
var scenes = map[string]func(w *walk, s *sent){
	"DELETE /v1/queues/{q}": func(w *walk, s *sent) {
		id := w.enqueue("emptied", "")
		w.call("POST", "/v1/ack", `{"items":[{"id":"`+id+`"}]}`)
		s.params["q"] = "emptied"
	},
	"DELETE /v1/cluster/members/{member}": func(w *walk, s *sent) {
		s.params["member"] = fmt.Sprintf("n%d", time.Now().UnixNano())
		a := w.call("POST", "/v1/cluster/members", `{"name":"`+s.params["member"]+`","peer":"http://`+s.params["member"]+`:9080"}`)
		if a.status != 200 {
			w.t.Fatalf("a member to remove: %d %s", a.status, a.body)
		}
	},
	"PUT /v1/queues/{q}":          freshQueue,
	"PATCH /v1/queues/{q}":        freshQueue,
	"PUT /v1/queues/{q}/pause":    freshQueue,
	"GET /v1/jobs/{id}/wait":      func(w *walk, s *sent) { s.params["id"] = w.acked() },
	"POST /v1/queues/{q}/redrive": func(w *walk, s *sent) { w.died("mail") },
	"GET /v1/queues/{q}/jobs":     liveCursor,
	"GET /v1/queues":              liveCursor,
	"GET /v1/consumers/{c}": func(w *walk, s *sent) {
		w.enqueue("held", "")
		w.enqueue("held", "")
		w.call("POST", "/v1/queues/held/dequeue?max=2&consumer="+s.params["c"], "")
		liveCursor(w, s)
	},
	"GET /v1/topics": func(w *walk, s *sent) {
		freshTopic(w, &sent{params: map[string]string{}})
		freshTopic(w, &sent{params: map[string]string{}})
		liveCursor(w, s)
	},
	"PUT /v1/topics/{t}":             func(w *walk, s *sent) { s.params["t"] = w.name() },
	"GET /v1/topics/{t}":             freshTopic,
	"DELETE /v1/topics/{t}":          freshTopic,
	"GET /v1/topics/{t}/messages":    freshTopic,
	"DELETE /v1/topics/{t}/messages": freshTopic,
	"GET /v1/topics/{t}/cursors":     freshTopic,
	"GET /v1/topics/{t}/cursors/{cursor}": func(w *walk, s *sent) {
		freshTopic(w, s)
		w.call("PUT", "/v1/topics/"+s.params["t"]+"/cursors/"+s.params["cursor"], `{"offset":1}`)
	},
	"PUT /v1/topics/{t}/cursors/{cursor}":    freshTopic,
	"DELETE /v1/topics/{t}/cursors/{cursor}": freshTopic,
	"GET /api/message":                       func(w *walk, s *sent) { w.call("POST", "/api/message", `{"topic":"test","message":"x"}`) },
	"POST /v1/queues/{q}/enqueue": func(w *walk, s *sent) {
		if s.query.Has("dedup_ttl") {
			s.query.Set("dedup_id", w.name())
		}
		if s.query.Has("unique_key") {
			s.query.Set("unique_key", w.name())
		}
	},
}

// freshTopic makes a topic with a message for the request.
func freshTopic(w *walk, s *sent) {
	s.params["t"] = w.name()
	if a := w.call("POST", "/v1/topics/"+s.params["t"], "a message"); a.status != 201 {
		w.t.Fatalf("append: %d %s", a.status, a.body)
	}
}

// name is one that was not used before.
func (w *walk) name() string {
	w.names++
	return fmt.Sprint("name-", w.names)
}

func freshQueue(w *walk, s *sent) { s.params["q"] = w.name() }

// liveCursor puts the cursor of a page in the place of the document's.
func liveCursor(w *walk, s *sent) {
	if !s.query.Has("cursor") {
		return
	}
	w.enqueue("another", "")
	s.query.Del("cursor")
	s.query.Set("limit", "1")
	w.enqueue("mail", "")
	a := w.call("GET", s.target(), "")
	next, _ := a.json(w.t)["next_cursor"].(string)
	if next == "" {
		w.t.Errorf("%s: a page of one has no cursor: %s", s.target(), a.body)
	}
	s.query.Set("cursor", next)
	s.query.Del("limit")
}

// died makes a job that dies in a queue.
func (w *walk) died(queue string) (id string) {
	w.t.Helper()
	id = w.enqueue(queue, "priority=9")
	a := w.call("POST", "/v1/queues/"+queue+"/dequeue", "")
	rec := a.json(w.t)["jobs"].([]any)[0].(map[string]any)["receipt"].(string)
	if a := w.call("POST", "/v1/reject", `{"items":[{"receipt":"`+rec+`"}]}`); a.status != 200 {
		w.t.Fatalf("reject: %d %s", a.status, a.body)
	}
	return id
}

// fastBatch is the batch of a fast answer.
func (w *walk) fastBatch() string {
	w.t.Helper()
	for range 1000 {
		if a := w.call("POST", "/v1/queues/fast/enqueue?consistency=fast", ""); a.status == 202 {
			return a.header("Raftq-Batch")
		}
	}
	w.t.Fatal("no answer is fast")
	return ""
}
