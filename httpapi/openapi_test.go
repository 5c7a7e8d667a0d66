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
