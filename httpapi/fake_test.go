package httpapi

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/valyala/fasthttp"
	"go.uber.org/goleak"

	"raftq/fsm"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m,
		goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.updateServerDate.func1"), // one for the process, never ends
		goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.(*workerPool).Start.func2"),
		// The forwarder's cleaners end by themselves, when they wake.
		goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.(*HostClient).connsCleaner"),
		goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.(*Client).mCleaner"))
}

// fake is a replica of one queue's worth of ideas: jobs are handed out in
// order, dequeues park, what is given back comes first again.
type fake struct {
	mu       sync.Mutex
	changed  sync.Cond
	index    uint64
	ready    map[string][]fsm.Delivered
	parked   []*parkedOp
	handed   int // hand-outs that Do returned
	returned int // hand-outs given back
	ops      []fsm.Op
	// answer, if set, answers ops before anything else does.
	answer   func(op fsm.Op) (fsm.Result, error)
	err      error             // of Ready, Started and Read
	refuse   func() *fsm.Error // instead of anything else
	leader   string            // client address of another node
	asked    []bool            // fast, of each Do
	copies   int               // of the last DoCopies
	defaults map[string]uint8  // consistency of queues

	changes int           // of members asked for
	removed []fsm.Member  // whom RemoveMember was asked to
	member  fsm.Member    // whom changes are about; zero: n4
	others  []ClusterNode // of the cluster
}

type parkedOp struct {
	op     *fsm.Dequeue
	result chan fsm.Result
}

func newFake() *fake {
	f := &fake{ready: map[string][]fsm.Delivered{}, index: 100}
	f.changed.L = &f.mu
	return f
}

func (f *fake) position() fsm.Position {
	f.index++
	return fsm.Position{Index: f.index, Term: 7, TimeMs: 1_700_000_000_000 + int64(f.index)}
}

func (f *fake) Do(op fsm.Op, fast bool, timeout time.Duration, gone <-chan struct{}) (fsm.Result, error) {
	f.mu.Lock()
	f.ops = append(f.ops, op)
	f.asked = append(f.asked, fast)
	f.changed.Broadcast()
	if f.refuse != nil {
		defer f.mu.Unlock()
		return fsm.Result{}, f.refuse()
	}
	if f.answer != nil {
		defer f.mu.Unlock()
		return f.answer(op)
	}
	res := fsm.Result{Position: f.position()}
	switch o := op.(type) {
	case *fsm.Enqueue:
		for _, j := range o.Jobs {
			id := fsm.ID{Key: fsm.Key{Hi: 1, Lo: f.position().Index}, Node: 9, Minutes: 0xffff}
			res.Items = append(res.Items, fsm.ItemResult{ID: id})
			f.ready[j.Queue] = append(f.ready[j.Queue], fsm.Delivered{
				ID: id, Queue: j.Queue, Body: string(j.Body), Headers: j.Headers, Priority: j.Priority,
				EnqueuedMs: res.Position.TimeMs, LeaseUntil: res.Position.TimeMs + 60_000,
			})
		}
		f.serve()
	case *fsm.Dequeue:
		if res.Jobs = f.take(o); len(res.Jobs) > 0 || o.WaitMs == 0 {
			break
		}
		p := &parkedOp{o, make(chan fsm.Result, 1)}
		f.parked = append(f.parked, p)
		f.changed.Broadcast()
		f.mu.Unlock()
		return f.wait(p, gone)
	case *fsm.Ack:
		res.Items = make([]fsm.ItemResult, len(o.Items))
	case *fsm.Nack:
		res.Items = make([]fsm.ItemResult, len(o.Items))
	case *fsm.Release:
		res.Items = make([]fsm.ItemResult, len(o.Items))
	case *fsm.Extend:
		res.Items = make([]fsm.ItemResult, len(o.Items))
		for i := range res.Items {
			res.Items[i].LeaseUntil = res.Position.TimeMs + o.Items[i].LeaseMs
		}
	}
	f.mu.Unlock()
	return res, nil
}

// take hands jobs out. The lock is held.
func (f *fake) take(o *fsm.Dequeue) (jobs []fsm.Delivered) {
	for _, q := range o.Queues {
		for len(f.ready[q]) > 0 && len(jobs) < int(o.Max) {
			d := f.ready[q][0]
			f.ready[q] = f.ready[q][1:]
			d.Grant++
			d.Deliveries++
			d.Tag, d.Fence = f.index, f.index
			jobs = append(jobs, d)
		}
	}
	f.handed += len(jobs)
	return jobs
}

func (f *fake) serve() {
	keep := f.parked[:0]
	for _, p := range f.parked {
		if jobs := f.take(p.op); len(jobs) > 0 {
			p.result <- fsm.Result{Position: f.position(), Jobs: jobs}
		} else {
			keep = append(keep, p)
		}
	}
	f.parked = keep
	f.changed.Broadcast()
}

func (f *fake) wait(p *parkedOp, gone <-chan struct{}) (fsm.Result, error) {
	over := time.NewTimer(time.Duration(p.op.WaitMs) * time.Millisecond)
	defer over.Stop()
	select {
	case res := <-p.result:
		return res, nil
	case <-gone:
	case <-over.C:
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := range f.parked {
		if f.parked[i] == p {
			f.parked = append(f.parked[:i], f.parked[i+1:]...)
			f.changed.Broadcast()
			return fsm.Result{Position: f.position()}, nil
		}
	}
	// Served in this moment: the replica's to return when the client left.
	res := <-p.result
	if isClosed(gone) {
		f.back(res.Jobs)
		return fsm.Result{}, fsm.Refuse(fsm.CodeLeaving, "the client left")
	}
	return res, nil
}

func (f *fake) back(jobs []fsm.Delivered) {
	for _, d := range jobs {
		f.ready[d.Queue] = append([]fsm.Delivered{d}, f.ready[d.Queue]...)
		f.handed--
	}
	f.serve()
}

func (f *fake) Read(how fsm.ReadHow, fn func(m *fsm.Machine)) (fsm.Seen, error) {
	if f.refuse != nil {
		return fsm.Seen{}, f.refuse()
	}
	return fsm.Seen{}, fsm.Refuse(fsm.CodeLoading, "the fake has no machine")
}

// DoCopies says how many copies were asked for, and is Do.
func (f *fake) DoCopies(op fsm.Op, copies int, timeout time.Duration) (fsm.Result, error) {
	f.mu.Lock()
	f.copies = copies
	f.mu.Unlock()
	return f.Do(op, false, timeout, nil)
}

func (f *fake) Await(fsm.Key, time.Duration, <-chan struct{}) (fsm.JobEnd, fsm.Seen, error) {
	if f.refuse != nil {
		return fsm.JobEnd{}, fsm.Seen{}, f.refuse()
	}
	return fsm.JobEnd{}, fsm.Seen{}, fsm.Refuse(fsm.CodeLoading, "the fake has no machine")
}

func (f *fake) QueueConsistency(queue []byte) uint8 { return f.defaults[string(queue)] }
func (f *fake) TopicConsistency(topic []byte) uint8 { return f.defaults["topic "+string(topic)] }

func (f *fake) Growth(string) (<-chan uint64, func(), error) {
	if f.refuse != nil {
		return nil, nil, f.refuse()
	}
	return nil, func() {}, nil
}

func (f *fake) GiveBack(items []fsm.Item) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.returned += len(items)
	f.changed.Broadcast()
}

func (f *fake) Name() string         { return "n1" }
func (f *fake) Leader() string       { return "n2" }
func (f *fake) LeaderClient() string { return f.leader }
func (f *fake) Ready() error         { return f.probe() }
func (f *fake) Started() error       { return f.probe() }
func (f *fake) probe() error {
	if f.refuse != nil {
		return f.refuse()
	}
	return f.err
}
func (f *fake) Cluster() Cluster {
	return Cluster{ClusterID: "c0ffee", Leader: "n2", Term: 7, Nodes: append([]ClusterNode{{Name: "n1", ID: "0000000000000abc", Role: "voter"}}, f.others...)}
}

// await blocks until cond holds; cond runs under the lock.
func (f *fake) await(t testing.TB, what string, cond func() bool) {
	t.Helper()
	late := time.AfterFunc(20*time.Second, func() { f.changed.Broadcast() })
	defer late.Stop()
	start := time.Now()
	f.mu.Lock()
	defer f.mu.Unlock()
	for !cond() {
		if time.Since(start) > 15*time.Second {
			t.Fatalf("%s never came", what)
		}
		f.changed.Wait()
	}
}

func (f *fake) lastOp(t testing.TB) fsm.Op {
	t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.ops) == 0 {
		t.Fatal("no op reached the replica")
	}
	return f.ops[len(f.ops)-1]
}

func (f *fake) opCount() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.ops)
}

func newServer(t testing.TB, r Replica, opts Options) *Server {
	t.Helper()
	s := New(r, opts)
	if s.broken != nil {
		t.Fatal(s.broken)
	}
	t.Cleanup(func() { closeServer(t, s) })
	return s
}

func closeServer(t testing.TB, s *Server) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if err := s.Close(ctx); err != nil {
		t.Errorf("close: %v", err)
	}
}

// answer is a response as tests look at it.
type answer struct {
	status int
	header func(string) string
	body   string
}

func (a *answer) json(t testing.TB) map[string]any {
	t.Helper()
	var m map[string]any
	if err := json.Unmarshal([]byte(a.body), &m); err != nil {
		t.Fatalf("%v in %q", err, a.body)
	}
	return m
}

// ask runs a request through the handler alone, without a connection.
func ask(t testing.TB, s *Server, method, path, body string, headers ...string) *answer {
	t.Helper()
	var req fasthttp.Request
	req.Header.SetMethod(method)
	req.SetRequestURI(path)
	req.SetBodyString(body)
	for i := 0; i+1 < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	var ctx fasthttp.RequestCtx
	ctx.Init(&req, nil, nil)
	s.serve(&ctx)
	res := &ctx.Response
	return &answer{res.StatusCode(), func(k string) string { return string(res.Header.Peek(k)) }, string(res.Body())}
}

// listen serves s on loopback and returns the address.
func listen(t testing.TB, s *Server) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- s.Serve(ln) }()
	t.Cleanup(func() {
		closeServer(t, s)
		if err := <-done; err != nil {
			t.Errorf("serve: %v", err)
		}
	})
	return ln.Addr().String()
}

// client is one raw connection.
type client struct {
	*net.TCPConn
	t  testing.TB
	br *bufio.Reader
}

func dial(t testing.TB, addr string) *client {
	t.Helper()
	nc, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { nc.Close() })
	if err := nc.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	return &client{nc.(*net.TCPConn), t, bufio.NewReader(nc)}
}

func (c *client) send(text string) {
	c.t.Helper()
	if _, err := io.WriteString(c.TCPConn, text); err != nil {
		c.t.Fatal(err)
	}
}

// receive reads one answer to a request of the method.
func (c *client) receive(method string) *answer {
	c.t.Helper()
	a, err := c.tryReceive(method)
	if err != nil {
		c.t.Fatal(err)
	}
	return a
}

func (c *client) tryReceive(method string) (*answer, error) {
	res, err := http.ReadResponse(c.br, &http.Request{Method: method})
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	return &answer{res.StatusCode, res.Header.Get, string(body)}, err
}

// post is the text of a request.
func post(path, body string, fields ...string) string {
	var b bytes.Buffer
	fmt.Fprintf(&b, "POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n", path, len(body))
	for _, f := range fields {
		b.WriteString(f + "\r\n")
	}
	return b.String() + "\r\n" + body
}

// wantProblem checks a refusal's form and returns its detail.
func wantProblem(t testing.TB, a *answer, status int, code string) string {
	t.Helper()
	if a.status != status || a.header("Content-Type") != "application/problem+json" {
		t.Fatalf("got %d %s %s, want %d %s", a.status, a.header("Content-Type"), a.body, status, code)
	}
	m := a.json(t)
	for _, k := range []string{"type", "title", "status", "detail", "instance", "code", "retryable", "applied"} {
		if _, ok := m[k]; !ok {
			t.Errorf("no %q in %s", k, a.body)
		}
	}
	if m["code"] != code || m["type"] != "/errors/"+code || m["status"] != float64(status) {
		t.Fatalf("got %s, want code %s", a.body, code)
	}
	return m["detail"].(string)
}

func wantContains(t testing.TB, s string, parts ...string) {
	t.Helper()
	for _, p := range parts {
		if !strings.Contains(s, p) {
			t.Errorf("%q does not contain %q", s, p)
		}
	}
}
