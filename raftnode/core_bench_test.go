package raftnode

import (
	"fmt"
	"testing"

	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"
	"go.uber.org/zap"

	"raftq/fsm"
)

// BenchmarkCoreStep is the core of a lone leader: requests in, batch packed,
// applied at the append, confirmed, answered. Log and HTTP are not in it.
func BenchmarkCoreStep(b *testing.B) {
	for _, size := range []int{1, 16, 64} {
		for _, kind := range []string{"enqueue", "cycle"} {
			b.Run(fmt.Sprintf("%s/%d", kind, size), func(b *testing.B) {
				l := newLoneCore(b)
				b.ReportAllocs()
				ops := 0
				for b.Loop() {
					jobs := l.do(size, func(int) fsm.Op {
						return &fsm.Enqueue{Jobs: []fsm.NewJob{{Queue: "q", Body: l.body, Priority: 4}}}
					})
					ops += size
					if kind == "enqueue" {
						continue
					}
					jobs = l.do(size, func(int) fsm.Op { return &fsm.Dequeue{Queues: []string{"q"}, Max: 1} })
					l.do(size, func(i int) fsm.Op { return &fsm.Ack{Items: []fsm.Item{jobs[i].res.Jobs[0].Receipt().Item()}} })
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(ops), "ns/job")
			})
		}
	}
}

// loneCore is a core whose log writer answers at once.
type loneCore struct {
	tb      testing.TB
	c       *core
	storage *raft.MemoryStorage
	now     reading
	body    []byte
}

func newLoneCore(tb testing.TB) *loneCore {
	members := []fsm.Member{{ID: 1, Name: "n1", Peer: "http://127.0.0.1:1"}}
	m := fsm.New(members)
	conf := &pb.ConfState{Voters: []uint64{1}}
	l := &loneCore{tb: tb, storage: raft.NewMemoryStorage(), now: reading{boot: 1e9, wall: 1_700_000_000_000}, body: make([]byte, 100)}
	if err := l.storage.ApplySnapshot(&pb.Snapshot{Metadata: &pb.SnapshotMetadata{Index: new(uint64(1)), Term: new(uint64(1)), ConfState: conf}}); err != nil {
		tb.Fatal(err)
	}
	_ = l.storage.SetHardState(&pb.HardState{Term: new(uint64(1)), Vote: new(uint64(0)), Commit: new(uint64(1))})
	var err error
	l.c, err = newCore(coreConfig{id: 1, name: "n1", tickNs: 10e6, heartbeatNs: 100e6, electionNs: 1e9, epoch: 1 << 32, random32: func() uint32 { return 7 },
		machine: m, conf: conf, storage: l.storage, base: timeBase{lost: true}, snapBytes: 1 << 40, now: l.now, log: zap.NewNop()})
	if err != nil {
		tb.Fatal(err)
	}
	for range 20 {
		l.step(nil)
	}
	if !l.c.origin.registered {
		tb.Fatal("the lone core has not registered")
	}
	return l
}

// step runs a turn and all that its log writes bring.
func (l *loneCore) step(events []any) {
	for {
		l.now.boot += 1e6
		out, err := l.c.step(l.now, events)
		if err != nil {
			l.tb.Fatal(err)
		}
		if len(out.appends) == 0 {
			return
		}
		jobs := append([]*appendJob(nil), out.appends...)
		for _, j := range jobs {
			if err := l.storage.Append(j.m.GetEntries()); err != nil {
				l.tb.Fatal(err)
			}
		}
		events = []any{appended{jobs}}
	}
}

// do submits n requests together and returns them answered.
func (l *loneCore) do(n int, op func(i int) fsm.Op) []*request {
	reqs := make([]*request, n)
	for i := range reqs {
		o := op(i)
		reqs[i] = &request{op: o, timeout: 1e12, bytes: fsm.Size(o), done: make(chan struct{}, 1)}
	}
	l.step([]any{submitted{reqs}})
	for _, r := range reqs {
		if r.state != reqAnswered || r.err != nil || r.res.Code != fsm.CodeOK {
			l.tb.Fatalf("request: state %d, %v, %+v", r.state, r.err, r.res)
		}
	}
	l.cut()
	return reqs
}

// cut drops what raft's storage need not keep, now and then.
func (l *loneCore) cut() {
	if last, _ := l.storage.LastIndex(); last%4096 == 0 && l.c.spec.oldest() > 4096 {
		_ = l.storage.Compact(min(l.c.spec.oldest(), l.c.confirmed.Index) - 1)
	}
}
