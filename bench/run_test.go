package bench

import (
	"context"
	"net"
	"strings"
	"testing"
	"time"
)

// testConfig is a short run against a fake.
func testConfig(f *fake, workload string) Config {
	return Config{
		Endpoints: []string{f.addr}, Workload: workload, Connections: 3, Jobs: 400,
		Duration: Duration(150 * time.Millisecond), Warmup: Duration(20 * time.Millisecond), Timeout: Duration(5 * time.Second), Check: true,
	}
}

func mustRun(t *testing.T, c Config) *Result {
	t.Helper()
	r, err := Run(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// Every workload runs to its end on a server without faults: the operations it
// is about are measured, no error is seen, every job came once, and the queues
// are deleted.
func TestWorkloads(t *testing.T) {
	for _, tc := range []struct {
		workload string
		change   func(*Config)
		ops      []op
	}{
		{WorkEnqueue, nil, []op{opEnqueue}},
		{WorkEnqueue, func(c *Config) { c.Pipeline, c.Queues = 8, 7 }, []op{opEnqueue}},
		{WorkEnqueue, func(c *Config) { c.LeaderOnly, c.Consistency = true, Fast }, []op{opEnqueue}},
		{WorkBatch, func(c *Config) { c.Batch = 7 }, []op{opEnqueue}},
		{WorkDequeue, func(c *Config) { c.Warmup = 0 }, []op{opDequeue, opAck}},
		{WorkDequeue, func(c *Config) { c.Warmup, c.Batch, c.Pipeline = 0, 10, 3 }, []op{opDequeue, opAck}},
		{WorkDequeue, func(c *Config) { c.Rate, c.Duration = 100, Duration(400*time.Millisecond) }, []op{opDequeue, opAck}}, // no 64 in all
		{WorkCycle, nil, []op{opEnqueue, opDequeue, opAck, opDelivery}},
		{WorkCycle, func(c *Config) { c.Pipeline, c.Rate = 4, 2000 }, []op{opEnqueue, opDequeue, opAck, opDelivery, opLag}},
		{WorkCycle, func(c *Config) { c.Producers, c.Cap, c.Queues = 1, 5, 6 }, []op{opEnqueue, opWait, opAck, opDelivery}},
		{WorkWaiters, func(c *Config) { c.Rate = 500 }, []op{opEnqueue, opWait, opAck, opDelivery}},
		{WorkBacklog, func(c *Config) { c.Batch = 20 }, []op{opEnqueue, opDequeue, opAck}},
		{WorkMixed, func(c *Config) { c.Batch = 3 }, []op{opEnqueue, opDequeue, opAck, opNack, opExtend, opRead}},
	} {
		t.Run(tc.workload, func(t *testing.T) {
			t.Parallel()
			f := startFake(t)
			c := testConfig(f, tc.workload)
			if tc.change != nil {
				tc.change(&c)
			}
			r := mustRun(t, c)
			if bad := r.Faulty(); bad != "" {
				t.Errorf("%s %+v", bad, r.Errors)
			}
			for _, o := range tc.ops {
				if got := r.op(o); got == nil || got.Requests == 0 || got.Latency.Max == 0 || len(got.Curve) == 0 || len(got.Series) == 0 {
					t.Errorf("%s was not measured: %+v", opNames[o], got)
				}
			}
			if r.Check.Enqueued == 0 || r.Check.Enqueued != r.Check.Acked {
				t.Errorf("check: %+v", r.Check)
			}
			if len(r.Nodes) != 1 || r.Nodes[0].Fsyncs == 0 || r.Nodes[0].RSSBytes != 1e7 {
				t.Errorf("nodes: %+v", r.Nodes)
			}
			if want := max(1, c.Queues); len(f.deleted) != want {
				t.Errorf("%d queues were deleted, want %d", len(f.deleted), want)
			}
		})
	}
}

// A backlog tells the rates of its first and last tenths, and both halves count
// all jobs.
func TestBacklogTenths(t *testing.T) {
	c := testConfig(startFake(t), WorkBacklog)
	c.Batch = 10
	r := mustRun(t, c)
	for _, p := range r.Tenths {
		if p.Jobs != 400 || p.First <= 0 || p.Last <= 0 || p.Seconds <= 0 {
			t.Errorf("%+v", p)
		}
	}
	if len(r.Tenths) != 2 {
		t.Errorf("%d phases", len(r.Tenths))
	}
}

// The check finds a job that was lost, and one that was doubled.
func TestCheckFindsFaults(t *testing.T) {
	for name, set := range map[string]func(*fake){
		"never delivered": func(f *fake) { f.drop.Store(10) },
		"acked twice":     func(f *fake) { f.twice.Store(10) },
	} {
		f := startFake(t)
		set(f)
		r := mustRun(t, testConfig(f, WorkEnqueue))
		if bad := r.Faulty(); !strings.Contains(bad, name) {
			t.Errorf("want %q, got %q: %+v", name, bad, r.Check)
		}
	}
}

// Refusals are counted by the server's code, cost no job in the check, and do
// not stop the run.
func TestRefusals(t *testing.T) {
	f := startFake(t)
	f.refuse.Store(5)
	r := mustRun(t, testConfig(f, WorkEnqueue))
	if len(r.Errors) != 1 || r.Errors[0].Code != "no_leader" || r.Errors[0].Op != "enqueue" || r.Errors[0].Count == 0 {
		t.Errorf("errors: %+v", r.Errors)
	}
	if r.Check.Refused != r.Errors[0].Count || r.Check.Verdict() != "" {
		t.Errorf("check: %+v", r.Check)
	}
	if !strings.Contains(r.Faulty(), "failed") {
		t.Errorf("a run with errors passes for a good one: %q", r.Faulty())
	}
}

// A server that closes connections after an answer loses no answered request;
// those behind it in the pipeline are counted as failed.
func TestClosedConnections(t *testing.T) {
	f := startFake(t)
	f.hangUp.Store(6)
	c := testConfig(f, WorkEnqueue)
	c.Pipeline = 4
	r := mustRun(t, c)
	if r.op(opEnqueue) == nil || len(r.Errors) == 0 {
		t.Fatalf("%+v %+v", r.Ops, r.Errors)
	}
	for _, e := range r.Errors {
		if e.Code != "closed" && e.Code != "reset" && e.Code != "eof" {
			t.Errorf("%+v", e)
		}
	}
	if bad := r.Check.Verdict(); bad != "" {
		t.Errorf("%s: %+v", bad, r.Check)
	}
}

// In an open loop the time that requests waited for their turn counts: a server
// that needs 20 ms at one connection cannot keep up with 200 requests a second,
// and the latencies say so.
func TestOpenLoopCountsWaiting(t *testing.T) {
	f := startFake(t)
	f.delay.Store(int64(20 * time.Millisecond))
	c := testConfig(f, WorkEnqueue)
	c.Connections, c.Warmup, c.Duration, c.Check = 1, 0, Duration(400*time.Millisecond), false
	closed := mustRun(t, c).op(opEnqueue).Latency
	c.Rate = 200
	open := mustRun(t, c).op(opEnqueue).Latency
	if closed.Max > int64(100*time.Millisecond) {
		t.Skipf("the machine is too busy: %v", time.Duration(closed.Max))
	}
	if open.Max < int64(150*time.Millisecond) {
		t.Errorf("closed loop: max %v; open loop: max %v", time.Duration(closed.Max), time.Duration(open.Max))
	}
}

// A limit of requests ends the run early, and no request more is sent.
func TestRequestsLimit(t *testing.T) {
	c := testConfig(startFake(t), WorkEnqueue)
	c.Requests, c.Duration, c.Warmup = 25, Duration(time.Minute), 0
	begun := time.Now()
	r := mustRun(t, c)
	if n := r.op(opEnqueue).Requests; n != 25 {
		t.Errorf("%d requests", n)
	}
	if d := time.Since(begun); d > 20*time.Second {
		t.Errorf("took %v", d)
	}
}

// A cancelled run ends soon, even with consumers that wait.
func TestCancel(t *testing.T) {
	c := testConfig(startFake(t), WorkWaiters)
	c.Duration, c.Rate = Duration(time.Minute), 10
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	begun := time.Now()
	if _, err := Run(ctx, c); err == nil {
		t.Error("no error")
	}
	if d := time.Since(begun); d > 4*time.Second {
		t.Errorf("took %v", d)
	}
}

// A part without a bound of its own ends when nobody answers any more.
func TestStall(t *testing.T) {
	f := startFake(t)
	f.refuse.Store(1)
	cfg := testConfig(f, WorkEnqueue)
	if err := cfg.Complete(); err != nil {
		t.Fatal(err)
	}
	r := newRun(&shared{begin: time.Now(), tag: newTag(), queues: []string{"q"}, addrs: cfg.Endpoints}, cfg)
	p := phase{run: r, name: "fill", measured: time.Hour, stall: 300 * time.Millisecond, atStart: func() {}}
	p.clients = []worker{{newClient(r, 0, []int{0}), (*client).enqueueLoop}}
	if err := p.carryOut(t.Context()); err == nil || !strings.Contains(err.Error(), "nothing was answered") {
		t.Errorf("%v", err)
	}
}

// Nobody there is an error at once; a server that is none of ours is one too.
func TestNoServer(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ln.Close()
	c := Config{Endpoints: []string{ln.Addr().String()}}
	if _, err := Run(t.Context(), c); err == nil {
		t.Error("no error")
	}
}

// The echo server answers the same requests.
func TestEcho(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error)
	go func() { done <- ServeEcho(ln) }()
	r := mustRun(t, Config{Endpoints: []string{ln.Addr().String()}, Workload: WorkEcho, Duration: Duration(50 * time.Millisecond), Pipeline: 4})
	if bad := r.Faulty(); bad != "" || r.op(opEnqueue).Requests == 0 {
		t.Errorf("%s %+v", bad, r.Ops)
	}
	ln.Close()
	<-done
}

// A request costs the generator next to no allocation.
func TestAllocations(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		nc, err := ln.Accept()
		if err != nil {
			return
		}
		defer nc.Close()
		in, out := make([]byte, 1024), []byte("HTTP/1.1 201 Created\r\nContent-Length: 2\r\nRaftq-Receipt: r\r\n\r\n{}")
		for {
			if _, err := nc.Read(in); err != nil {
				return
			}
			nc.Write(out)
		}
	}()
	cfg := Config{Endpoints: []string{ln.Addr().String()}, Workload: WorkEcho}
	if err := cfg.Complete(); err != nil {
		t.Fatal(err)
	}
	r := newRun(&shared{begin: time.Now(), tag: newTag(), queues: []string{"q"}, addrs: cfg.Endpoints}, cfg)
	r.rec.from.Store(0)
	c := newClient(r, 0, []int{0})
	step := func() {
		c.turn(1)
		c.addEnqueue(c.due[0])
		if !c.roundTrip() {
			t.Fatal(r.rec.failures())
		}
	}
	step() // connects
	if n := testing.AllocsPerRun(200, step); n > 0 {
		t.Errorf("%v allocations a request", n)
	}
	c.hangUp()
	<-done
	ln.Close()
}
