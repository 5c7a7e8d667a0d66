package httpapi

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pb33f/libopenapi"
	validator "github.com/pb33f/libopenapi-validator"
	validconfig "github.com/pb33f/libopenapi-validator/config"
	validerrors "github.com/pb33f/libopenapi-validator/errors"

	"raftq/fsm"
	"raftq/raftnode"
)

// liveReplica is a real node with its log on disk, the only one of its cluster.
type liveReplica struct{ *raftnode.Node }

func (r liveReplica) Cluster() Cluster {
	s := r.Status()
	c := Cluster{ClusterID: fmt.Sprintf("%016x", s.ClusterID), Leader: s.Leader, Term: s.Term, Nodes: []ClusterNode{}}
	for _, n := range s.Nodes {
		c.Nodes = append(c.Nodes, ClusterNode{Name: n.Name, ID: fmt.Sprintf("%016x", n.ID), Role: "voter"})
	}
	return c
}

func openLive(t testing.TB) liveReplica {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	peer := ln.Addr().String()
	ln.Close()
	n, err := raftnode.Open(raftnode.Config{DataDir: t.TempDir() + "/data", ListenPeer: peer, SegmentBytes: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		if err := n.Close(ctx); err != nil {
			t.Errorf("close the node: %v", err)
		}
	})
	for end := time.Now().Add(20 * time.Second); n.Ready() != nil; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the node is never ready")
		}
	}
	return liveReplica{n}
}

// document is /openapi.json as the walk reads it.
type document struct {
	Paths map[string]map[string]operation
}

type operation struct {
	Parameters []struct {
		Name, In string
		Required bool
		Example  any
	}
	RequestBody struct {
		Content map[string]struct {
			Examples map[string]struct{ Value json.RawMessage }
		}
	}
	Responses map[string]struct {
		Content map[string]struct{ Schema json.RawMessage }
	}
}

// codes are what the document says of an operation's errors, by status.
func (o *operation) codes(t *testing.T) map[int][]string {
	all := map[int][]string{}
	for status, r := range o.Responses {
		c, ok := r.Content["application/problem+json"]
		if !ok {
			continue
		}
		var schema struct {
			AllOf []struct {
				Properties struct{ Code struct{ Enum []string } }
			}
		}
		if err := json.Unmarshal(c.Schema, &schema); err != nil || len(schema.AllOf) != 2 {
			t.Fatalf("%v in %s", err, c.Schema)
		}
		var n int
		fmt.Sscan(status, &n)
		all[n] = schema.AllOf[1].Properties.Code.Enum
	}
	return all
}

// walk sends what the document says to a live server, and holds every answer
// against it.
type walk struct {
	t     *testing.T
	addr  string
	valid validator.Validator
	doc   document
	seen  map[string]bool // "METHOD path status"
	names int
	fakes map[string]string // servers of replicas that refuse, by what they say
}

func newWalk(t *testing.T, addr string) *walk {
	t.Helper()
	res, err := http.Get("http://" + addr + "/openapi.json")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	w := &walk{t: t, addr: addr, seen: map[string]bool{}, fakes: map[string]string{}}
	if err := json.Unmarshal(text, &w.doc); err != nil {
		t.Fatal(err)
	}
	doc, err := libopenapi.NewDocument(text)
	if err != nil {
		t.Fatal(err)
	}
	var errs []error
	if w.valid, errs = validator.NewValidator(doc, validconfig.WithStrictMode(), validconfig.WithStrictIgnorePaths("$.body.**.headers.*", "$.body.openapi", "$.body.info", "$.body.servers", "$.body.paths", "$.body.components"), validconfig.WithStrictIgnoredHeadersExtra("X-Content-Type-Options"), validconfig.WithFormatAssertions()); len(errs) > 0 {
		t.Fatal(errs)
	}
	return w
}

func problems(errs []*validerrors.ValidationError) string {
	var b strings.Builder
	for _, e := range errs {
		fmt.Fprintf(&b, "\n  %s: %s", e.Message, e.Reason)
		for _, s := range e.SchemaValidationErrors {
			fmt.Fprintf(&b, "\n    %s", s.Reason)
		}
	}
	return b.String()
}

// sent is one request of the walk.
type sent struct {
	method, path string // the path as the document has it
	params       map[string]string
	query        url.Values
	typ, body    string
	header       map[string]string
}

// target fills the path's parameters in.
func (s *sent) target() string {
	path := s.path
	for name, v := range s.params {
		path = strings.ReplaceAll(path, "{"+name+"}", url.PathEscape(v))
	}
	if len(s.query) > 0 {
		path += "?" + s.query.Encode()
	}
	return path
}

func (s *sent) name() string { return strings.ToUpper(s.method) + " " + s.path }

// do sends a request and holds the answer against the document.
func (w *walk) do(s *sent) *answer {
	w.t.Helper()
	req, err := http.NewRequest(strings.ToUpper(s.method), "http://"+w.addr+s.target(), strings.NewReader(s.body))
	if err != nil {
		w.t.Fatal(err)
	}
	if s.typ != "" {
		req.Header.Set("Content-Type", s.typ)
	}
	for k, v := range s.header {
		req.Header.Set(k, v)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		w.t.Fatalf("%s: %v", s.name(), err)
	}
	body, err := io.ReadAll(res.Body)
	res.Body.Close()
	if err != nil {
		w.t.Fatalf("%s: %v", s.name(), err)
	}
	res.Body = io.NopCloser(bytes.NewReader(body))
	if ok, errs := w.valid.ValidateHttpResponse(req, res); !ok {
		w.t.Errorf("%s %s: the answer is not as the document says: %d %s%s", s.name(), s.target(), res.StatusCode, body, problems(errs))
	}
	w.seen[fmt.Sprint(s.name(), " ", res.StatusCode)] = true
	return &answer{res.StatusCode, res.Header.Get, string(body)}
}

// base is an operation's request: its examples, with live ids and receipts.
func (w *walk) base(method, path string, op *operation) *sent {
	s := &sent{method: method, path: path, params: map[string]string{}, query: url.Values{}}
	for _, p := range op.Parameters {
		switch {
		case p.In == "path":
			s.params[p.Name] = p.Example.(string)
		case p.In == "query" && p.Required:
			s.query.Set(p.Name, fmt.Sprint(p.Example))
		}
	}
	return s
}

// bodies are an operation's example bodies, as type and text.
func (o *operation) bodies() (all [][2]string) {
	for typ, c := range o.RequestBody.Content {
		for _, e := range c.Examples {
			text := string(e.Value)
			var s string
			if typ != "application/json" && json.Unmarshal(e.Value, &s) == nil {
				text = s
			}
			all = append(all, [2]string{typ, text})
		}
	}
	slices.SortFunc(all, func(a, b [2]string) int { return strings.Compare(a[0]+a[1], b[0]+b[1]) })
	return all
}

// call is the plain way to the server, for setting a scene.
func (w *walk) call(method, target, body string) *answer {
	w.t.Helper()
	req, err := http.NewRequest(method, "http://"+w.addr+target, strings.NewReader(body))
	if err != nil {
		w.t.Fatal(err)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		w.t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		w.t.Fatal(err)
	}
	return &answer{res.StatusCode, res.Header.Get, string(b)}
}

// lease makes a job, with options, and takes it.
func (w *walk) lease(options string) (id, receipt string) {
	w.t.Helper()
	queue := fmt.Sprintf("lease-%d", time.Now().UnixNano())
	id = w.enqueue(queue, options)
	a := w.call("POST", "/v1/queues/"+queue+"/dequeue", "")
	if a.status != 200 {
		w.t.Fatalf("dequeue: %d %s", a.status, a.body)
	}
	return id, a.json(w.t)["jobs"].([]any)[0].(map[string]any)["receipt"].(string)
}

func (w *walk) enqueue(queue, options string) (id string) {
	w.t.Helper()
	a := w.call("POST", "/v1/queues/"+queue+"/enqueue?"+options, "a job")
	if a.status != 201 {
		w.t.Fatalf("enqueue: %d %s", a.status, a.body)
	}
	return a.json(w.t)["id"].(string)
}

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

func wantSuccess(t *testing.T, s *sent, a *answer) {
	t.Helper()
	if s.path == "/api/follower/register" && a.status == 410 {
		return
	}
	if a.status >= 300 || a.status == 207 {
		t.Errorf("%s %s %q: %d %s", s.name(), s.target(), s.body, a.status, a.body)
	}
}

// TestSamples proves that the ids of the document's examples are well formed.
func TestSamples(t *testing.T) {
	if _, ok := fsm.ParseID(sampleID); !ok {
		t.Error(sampleID)
	}
	if _, ok := fsm.ParseReceipt(sampleReceipt); !ok {
		t.Error(sampleReceipt)
	}
}

// TestOpenAPI walks the document: it is valid, always the same, names each route,
// and every example request, parameter, status and code in it works against a real
// node, whose answers have the shapes that it says and no other fields.
func TestOpenAPI(t *testing.T) {
	s := newServer(t, openLive(t), Options{})
	w := newWalk(t, listen(t, s))
	if ok, errs := w.valid.ValidateDocument(); !ok {
		t.Errorf("not valid:%s", problems(errs))
	}
	first, _ := documentOf(routes)()
	again, err := documentOf(slices.Clone(routes))()
	if err != nil || !bytes.Equal(first, again) {
		t.Errorf("made twice, it differs: %v", err)
	}
	for i := range routes {
		if _, ok := w.doc.Paths[routes[i].path()][strings.ToLower(routes[i].method)]; !ok {
			t.Errorf("%s %s is not in it", routes[i].method, routes[i].pattern)
		}
	}
	for path, methods := range w.doc.Paths {
		for method, op := range methods {
			w.examples(method, path, &op)
			w.parameters(method, path, &op)
		}
	}
	for path, methods := range w.doc.Paths {
		for method, op := range methods {
			w.codes(method, path, &op)
			for status := range op.Responses {
				if !w.seen[strings.ToUpper(method)+" "+path+" "+status] {
					t.Errorf("%s %s: nothing was answered with %s", method, path, status)
				}
			}
		}
	}
}

// examples sends each example body.
func (w *walk) examples(method, path string, op *operation) {
	base := w.base(method, path, op)
	bodies := op.bodies()
	if len(bodies) == 0 {
		bodies = append(bodies, [2]string{})
	}
	for _, b := range bodies {
		base.typ, base.body = b[0], b[1]
		s := w.live(base)
		wantSuccess(w.t, s, w.do(s))
	}
}

// parameters sends the request with each parameter's example alone.
func (w *walk) parameters(method, path string, op *operation) {
	for _, p := range op.Parameters {
		if p.In == "path" {
			continue
		}
		s := w.base(method, path, op)
		if bodies := op.bodies(); len(bodies) > 0 {
			s.typ, s.body = bodies[0][0], bodies[0][1]
		}
		switch example := p.Example.(type) {
		case map[string]any:
			for k, v := range example {
				s.query.Set(k, v.(string))
			}
		default:
			if p.In == "header" {
				s.header = map[string]string{p.Name: fmt.Sprint(example)}
				break
			}
			s.query.Set(p.Name, fmt.Sprint(example))
			var twin map[string]any
			if json.Unmarshal([]byte(s.body), &twin) == nil && twin[p.Name] != nil {
				s.body = "" // an option is either in the query or in the body
				delete(twin, p.Name)
				if b, err := json.Marshal(twin); err == nil {
					s.body = string(b)
				}
			}
		}
		s = w.live(s)
		wantSuccess(w.t, s, w.do(s))
	}
}

// codes provokes each error that the document lists.
func (w *walk) codes(method, path string, op *operation) {
	for status, codes := range op.codes(w.t) {
		for _, code := range codes {
			s := w.base(method, path, op)
			if bodies := op.bodies(); len(bodies) > 0 {
				s.typ, s.body = bodies[0][0], bodies[0][1]
			}
			var a *answer
			if strings.HasPrefix(path, "/v1/cluster/") {
				s.query.Set("timeout", "200ms") // so long it looks for a leader
			}
			if provoke, ok := provoked[s.name()+" "+code]; ok {
				a = provoke(w, s)
			} else if provoke, ok := generic[code]; ok {
				a = provoke(w, s)
			} else {
				w.t.Errorf("%s: nothing here provokes %s", s.name(), code)
				continue
			}
			if a.status != status || a.json(w.t)["code"] != code {
				w.t.Errorf("%s: want %d %s, got %d %s", s.name(), status, code, a.status, a.body)
			}
		}
	}
	if _, ok := op.Responses["202"]; ok {
		w.untilFast(method, path, op)
	}
	if _, ok := op.Responses["204"]; ok {
		s := w.base(method, path, op)
		s.params["q"], s.body = "nothing", `{"queues":["nothing"]}`
		if path != "/v1/dequeue" {
			s.body = ""
		}
		if strings.HasSuffix(path, "/messages") {
			freshTopic(w, s)
			s.query = url.Values{"from": {"5"}, "wait": {"1ms"}}
		}
		if strings.HasSuffix(path, "/wait") {
			s.params["id"] = w.enqueue("mail", "")
			s.query.Set("timeout", "1ms")
		}
		if a := w.do(s); a.status != 204 {
			w.t.Errorf("%s: %d %s", s.name(), a.status, a.body)
		}
	}
	if path == "/api/message" {
		s := w.base(method, path, op)
		s.typ, s.body = "application/json", `{"topic":"none","to":1`
		if a := w.do(s); a.status != 400 || !strings.HasPrefix(a.header("Content-Type"), "text/plain") {
			w.t.Errorf("%s: %d %s", s.name(), a.status, a.body)
		}
	}
	if provoke, ok := partly[strings.ToUpper(method)+" "+path]; ok {
		s := w.base(method, path, op)
		provoke(w, s)
	}
}

// untilFast sends a fast request until its answer came before its commit.
func (w *walk) untilFast(method, path string, op *operation) {
	s := w.base(method, path, op)
	s.typ, s.body = op.bodies()[0][0], op.bodies()[0][1]
	s.query.Set("consistency", "fast")
	for range 1000 {
		live := w.live(s)
		if w.do(live).status == 202 {
			return
		}
	}
	w.t.Errorf("%s: no answer is fast", s.name())
}

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
