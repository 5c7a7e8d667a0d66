package httpapi

import (
	"io"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/valyala/fasthttp"
	"golang.org/x/sys/unix"

	"raftq/fsm"
)

// instant answers at once and allocates nothing, so that benchmarks show this
// package alone.
type instant struct {
	*fake
	n    atomic.Uint64
	res  fsm.Result // of enqueues and acks
	jobs fsm.Result // of dequeues
}

func newInstant() *instant {
	pos := fsm.Position{Index: 123456, Term: 7, TimeMs: 1_700_000_000_000}
	id := fsm.ID{Key: fsm.Key{Hi: 1 << 40, Lo: 77}, Node: 9, Minutes: 0xffff}
	return &instant{
		fake: newFake(),
		res:  fsm.Result{Position: pos, Items: []fsm.ItemResult{{ID: id}}},
		jobs: fsm.Result{Position: pos, Jobs: []fsm.Delivered{{
			ID: id, Grant: 1, Tag: 1 << 60, Queue: "bench", Body: string(make([]byte, 100)), Priority: 4, Deliveries: 1,
			EnqueuedMs: pos.TimeMs, LeaseUntil: pos.TimeMs + 60_000, Fence: pos.Index,
		}}},
	}
}

func (r *instant) Do(op fsm.Op, fast bool, timeout time.Duration, gone <-chan struct{}) (fsm.Result, error) {
	r.n.Add(1)
	if op.Kind() == fsm.KindDequeue {
		return r.jobs, nil
	}
	return r.res, nil
}

func (r *instant) ackBody() string {
	return `{"items":[{"receipt":"` + r.jobs.Jobs[0].Receipt().String() + `"}]}`
}

// reportCPU reports the process's CPU time for an op, client and server
// together: unlike ns/op it means something on a busy machine.
func reportCPU(b *testing.B) func() {
	before := cpuTime(b)
	return func() { b.ReportMetric(float64(cpuTime(b)-before)/float64(b.N), "cpu-ns/op") }
}

func cpuTime(b *testing.B) int64 {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return u.Utime.Nano() + u.Stime.Nano()
}

type benchCase struct{ name, path, accept, body string }

func benchCases(r *instant) []benchCase {
	return []benchCase{
		{"enqueue", "/v1/queues/bench/enqueue?", "", string(make([]byte, 100))},
		{"dequeue", dequeuePath, "application/octet-stream", ""},
		{"ack", "/v1/ack?", "", r.ackBody()},
	}
}

const dequeuePath = "/v1/queues/bench/dequeue?lease=2m&max=1&wait=1000ms&"

// BenchmarkHandler is a request without a connection.
func BenchmarkHandler(b *testing.B) {
	r := newInstant()
	s := newServer(b, r, Options{})
	for _, bc := range benchCases(r) {
		b.Run(bc.name, func(b *testing.B) {
			var ctx fasthttp.RequestCtx
			var req fasthttp.Request
			req.Header.SetMethod("POST")
			req.SetRequestURI(bc.path)
			req.Header.SetHost("127.0.0.1:8080")
			if bc.accept != "" {
				req.Header.Set("Accept", bc.accept)
			}
			req.SetBodyString(bc.body)
			ctx.Init(&req, nil, nil)
			b.ReportAllocs()
			defer reportCPU(b)()
			for b.Loop() {
				s.serve(&ctx)
				if st := ctx.Response.StatusCode(); st != 200 && st != 201 {
					b.Fatal(st, string(ctx.Response.Body()))
				}
				ctx.Response.Reset()
			}
		})
	}
}

// BenchmarkRoundTrip is a request over loopback, with the bare server beside
// it: the difference is what this package costs.
func BenchmarkRoundTrip(b *testing.B) {
	r := newInstant()
	s := newServer(b, r, Options{})
	addr := listen(b, s)
	echo := bareEcho(b)
	for _, bc := range benchCases(r) {
		b.Run(bc.name, func(b *testing.B) { roundTrips(b, addr, bc) })
		b.Run(bc.name+"-bare", func(b *testing.B) { roundTrips(b, echo, bc) })
	}
}

// bareEcho serves fasthttp with nothing on top.
func bareEcho(b *testing.B) string {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	body := make([]byte, 100)
	srv := &fasthttp.Server{Handler: func(ctx *fasthttp.RequestCtx) { ctx.SetBody(body) }, NoDefaultServerHeader: true}
	done := make(chan struct{})
	go func() { srv.Serve(ln); close(done) }()
	b.Cleanup(func() { srv.Shutdown(); <-done })
	return ln.Addr().String()
}

// roundTrips keeps the client cheap: fixed bytes out, one read in.
func roundTrips(b *testing.B, addr string, bc benchCase) {
	c := dial(b, addr)
	c.SetDeadline(time.Time{})
	fields := []string{"User-Agent: fasthttp", "Content-Type: application/octet-stream"}
	if bc.accept != "" {
		fields = append(fields, "Accept: "+bc.accept)
	}
	out := []byte(post(bc.path, bc.body, fields...))
	in := make([]byte, 4096)
	b.ReportAllocs()
	defer reportCPU(b)()
	for b.Loop() {
		if _, err := c.TCPConn.Write(out); err != nil {
			b.Fatal(err)
		}
		n, err := c.TCPConn.Read(in)
		if err != nil && err != io.EOF || n < 100 {
			b.Fatal(n, err)
		}
	}
	c.Close()
}
