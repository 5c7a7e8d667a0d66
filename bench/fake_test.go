package bench

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/valyala/fasthttp"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m,
		goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.updateServerDate.func1"), // one for the process, never ends
		goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.(*workerPool).Start.func2"))
}

// fake is a queue behind those routes of raftq that a load generator uses, in
// memory, without replication, with switches for what may go wrong.
type fake struct {
	addr string

	mu      sync.Mutex
	queues  map[string][]fakeJob
	leased  map[string]fakeLease
	nextID  int
	changed chan struct{} // closed and replaced when a job comes
	deleted []string

	requests atomic.Int64
	refuse   atomic.Int64 // each n-th enqueue answers 503
	drop     atomic.Int64 // each n-th enqueue is answered and forgotten
	twice    atomic.Int64 // each n-th enqueue is there twice
	hangUp   atomic.Int64 // after each n-th request
	delay    atomic.Int64 // ns, of each enqueue
}

type fakeJob struct {
	id   string
	body []byte
}

type fakeLease struct {
	queue string
	job   fakeJob
}

func startFake(t testing.TB) *fake {
	t.Helper()
	f := &fake{queues: map[string][]fakeJob{}, leased: map[string]fakeLease{}, changed: make(chan struct{})}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f.addr = ln.Addr().String()
	s := &fasthttp.Server{Handler: f.serve}
	done := make(chan struct{})
	go func() {
		s.Serve(ln)
		close(done)
	}()
	t.Cleanup(func() {
		s.Shutdown()
		<-done
	})
	return f
}

func every(n *atomic.Int64, i int64) bool { return n.Load() > 0 && i%n.Load() == 0 }

func (f *fake) serve(ctx *fasthttp.RequestCtx) {
	path := strings.Split(strings.TrimPrefix(string(ctx.Path()), "/"), "/")
	if every(&f.hangUp, f.requests.Add(1)) {
		ctx.SetConnectionClose()
	}
	switch {
	case len(path) == 1 && path[0] == "metrics":
		fmt.Fprintf(ctx, "# HELP x y\nprocess_cpu_seconds_total %g\nraftq_wal_fsyncs_total %d\nprocess_resident_memory_bytes 1e+07\n", float64(f.requests.Load())/1e4, f.requests.Load())
	case len(path) == 2 && path[1] == "cluster":
		fmt.Fprintf(ctx, `{"leader":"n1","nodes":[{"name":"n1","client":%q,"version":"v1"}]}`, f.addr)
	case len(path) == 2 && path[1] == "dequeue":
		var body struct{ Queues []string }
		if err := json.Unmarshal(ctx.PostBody(), &body); err != nil {
			ctx.Error(err.Error(), 400)
			return
		}
		f.dequeue(ctx, body.Queues)
	case len(path) == 2:
		f.settle(ctx, path[1])
	case len(path) == 3 && path[1] == "jobs":
		ctx.SetBodyString(`{"id":"` + path[2] + `"}`)
	case len(path) == 3 && ctx.IsDelete():
		f.mu.Lock()
		f.deleted = append(f.deleted, path[2])
		f.mu.Unlock()
		ctx.SetBodyString(`{}`)
	case len(path) == 3:
		ctx.SetBodyString(`{"queue":"` + path[2] + `"}`)
	case path[3] == "enqueue":
		f.enqueue(ctx, path[2], [][]byte{append([]byte(nil), ctx.PostBody()...)})
	case path[3] == "jobs":
		var bodies [][]byte
		for rest := append([]byte(nil), ctx.PostBody()...); len(rest) > 0; {
			var body []byte
			var err error
			if _, body, rest, err = cutFrame(rest); err != nil {
				ctx.Error(err.Error(), 400)
				return
			}
			bodies = append(bodies, body)
		}
		f.enqueue(ctx, path[2], bodies)
	case path[3] == "dequeue":
		f.dequeue(ctx, []string{path[2]})
	}
}

func (f *fake) enqueue(ctx *fasthttp.RequestCtx, queue string, bodies [][]byte) {
	time.Sleep(time.Duration(f.delay.Load()))
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, body := range bodies {
		f.nextID++
		n := int64(f.nextID)
		if every(&f.refuse, n) {
			ctx.SetStatusCode(503)
			ctx.SetBodyString(`{"type":"/errors/no_leader","code":"no_leader"}`)
			return
		}
		j := fakeJob{fmt.Sprintf("D-%d", n), body}
		if every(&f.drop, n) {
			continue
		}
		f.queues[queue] = append(f.queues[queue], j)
		if every(&f.twice, n) {
			f.queues[queue] = append(f.queues[queue], fakeJob{j.id + "x", body})
		}
	}
	close(f.changed)
	f.changed = make(chan struct{})
	ctx.SetStatusCode(201)
	if string(ctx.QueryArgs().Peek("consistency")) == Fast {
		ctx.SetStatusCode(202)
	}
	ctx.SetBodyString(`{"id":"D-1"}`)
}

func (f *fake) dequeue(ctx *fasthttp.RequestCtx, queues []string) {
	wait, _ := time.ParseDuration(string(ctx.QueryArgs().Peek("wait")))
	limit := time.NewTimer(wait)
	defer limit.Stop()
	for {
		f.mu.Lock()
		changed := f.changed
		if f.answerJobs(ctx, queues) {
			f.mu.Unlock()
			return
		}
		f.mu.Unlock()
		select {
		case <-changed:
		case <-limit.C:
			ctx.SetStatusCode(204)
			return
		}
	}
}

// answerJobs writes jobs, if there are any; f.mu is held.
func (f *fake) answerJobs(ctx *fasthttp.RequestCtx, queues []string) bool {
	frames := string(ctx.Request.Header.Peek("Accept")) == framesType
	n := max(1, ctx.QueryArgs().GetUintOrZero("max"))
	for _, q := range queues {
		jobs := f.queues[q]
		if len(jobs) == 0 {
			continue
		}
		n = min(n, len(jobs))
		f.queues[q] = jobs[n:]
		var out []byte
		for _, j := range jobs[:n] {
			f.nextID++
			receipt := fmt.Sprintf("%s.%d.t", j.id, f.nextID)
			f.leased[receipt] = fakeLease{q, j}
			if !frames {
				ctx.Response.Header.Set("Raftq-Receipt", receipt)
				ctx.SetBody(j.body)
				return true
			}
			head := `{"id":"` + j.id + `","receipt":"` + receipt + `"}`
			out = append(binary.BigEndian.AppendUint32(out, uint32(len(head))), head...)
			out = append(binary.BigEndian.AppendUint32(out, uint32(len(j.body))), j.body...)
		}
		ctx.SetBody(out)
		return true
	}
	return false
}

func (f *fake) settle(ctx *fasthttp.RequestCtx, verb string) {
	var body struct {
		Items []struct{ Receipt, Delay, Lease string }
	}
	if err := json.Unmarshal(ctx.PostBody(), &body); err != nil {
		ctx.Error(err.Error(), 400)
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	var results []string
	for _, it := range body.Items {
		l, ok := f.leased[it.Receipt]
		if !ok {
			ctx.SetStatusCode(207)
			results = append(results, `{"status":409,"code":"lease_lost"}`)
			continue
		}
		results = append(results, `{"status":200}`)
		if verb == "ack" || verb == "nack" {
			delete(f.leased, it.Receipt)
		}
		if verb == "nack" {
			f.queues[l.queue] = append(f.queues[l.queue], l.job)
		}
	}
	ctx.SetBodyString(`{"results":[` + strings.Join(results, ",") + `]}`)
}
