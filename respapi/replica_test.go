package respapi

import (
	"context"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"raftq/fsm"
	"raftq/hangup"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// inProcess is a replica without a log: one machine, an entry an op, committed
// at once. It keeps what the interface promises.
type inProcess struct {
	mu       sync.Mutex
	changed  sync.Cond
	m        *fsm.Machine
	number   uint64
	request  uint64
	counter  uint64
	parked   map[uint64]chan fsm.Result
	ahead    time.Duration // log time beyond the clock
	members  Members
	handed   int // hand-outs that Do returned
	returned int // hand-outs given back
	ops      []fsm.Op
	fast     []bool
	copies   []int // of each DoCopies
	slow     int   // members that are alive and get no copy
	// refuse, if set, may answer an op before the machine sees it.
	refuse   func(op fsm.Op) error
	started  error
	removed  []uint64
	leaving  bool
	snapshot int
}

const testOrigin, testEpoch = 0xabcdef01_23456789, 1<<32 | 5

var otherNodes = []uint64{0x11111111_00000001, 0x22222222_00000002}

func newInProcess(t testing.TB) *inProcess {
	r := &inProcess{m: fsm.New([]fsm.Member{{ID: testOrigin, Name: "n1"}}), parked: map[uint64]chan fsm.Result{}}
	r.changed.L = &r.mu
	r.members = Members{Self: testOrigin, Leader: testOrigin, Nodes: []Member{
		{ID: otherNodes[0], Name: "n2", RESP: "127.0.0.1:7712", Alive: true},
		{ID: otherNodes[1], Name: "n3", RESP: "127.0.0.1:7713", Alive: true},
		{ID: testOrigin, Name: "n1", RESP: "127.0.0.1:7711", Alive: true},
	}}
	r.mu.Lock()
	defer r.mu.Unlock()
	if res := r.apply(&fsm.NodeStart{Client: "c", Peer: "p", Version: "v", FeatureLevel: fsm.FeatureLevel}); res.Code != fsm.CodeOK {
		t.Fatalf("node start: %v", res.Code)
	}
	return r
}

func (r *inProcess) nowMs() int64 { return time.Now().Add(r.ahead).UnixMilli() }

// apply is one entry. The lock is held.
func (r *inProcess) apply(op fsm.Op) fsm.Result {
	h := fsm.BatchHeader{Origin: testOrigin, Epoch: testEpoch, Number: r.number, Term: 1, TimeMs: r.nowMs()}
	r.number++
	a, err := r.m.Apply(r.m.Position().Index+1, 1, fsm.EncodeBatch(h, op), fsm.Self{Origin: testOrigin, Epoch: testEpoch})
	if err != nil || len(a.Results) != 1 {
		panic(fmt.Sprintf("apply %T: %v, %+v", op, err, a))
	}
	r.hand(a.Handouts)
	return a.Results[0]
}

func (r *inProcess) hand(handouts []fsm.Handout) {
	for _, out := range handouts {
		r.parked[out.Request] <- out.Result
		delete(r.parked, out.Request)
	}
	r.changed.Broadcast()
}

// tick lets timers fire, as a leader's empty batch does. The lock is held.
func (r *inProcess) tick() {
	for {
		if due, ok := r.m.NextDue(); !ok || due > r.nowMs() {
			return
		}
		h := fsm.BatchHeader{Term: 1, TimeMs: r.nowMs()}
		a, err := r.m.Apply(r.m.Position().Index+1, 1, fsm.EncodeBatch(h), fsm.Self{Origin: testOrigin, Epoch: testEpoch})
		if err != nil {
			panic(err)
		}
		r.hand(a.Handouts)
	}
}

// advance lets log time jump.
func (r *inProcess) advance(d time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ahead += d
	r.tick()
}

func (r *inProcess) Do(op fsm.Op, fast bool, timeout time.Duration, gone <-chan struct{}) (fsm.Result, error) {
	r.mu.Lock()
	r.ops, r.fast = append(r.ops, op), append(r.fast, fast)
	if r.refuse != nil {
		if err := r.refuse(op); err != nil {
			r.mu.Unlock()
			return fsm.Result{}, err
		}
	}
	r.tick()
	r.request++
	request := r.request
	switch o := op.(type) {
	case *fsm.Enqueue:
		o.First = r.counter + 1
		r.counter += uint64(len(o.Jobs))
	case *fsm.Dequeue:
		o.Request = request
	}
	res := r.apply(op)
	if !res.Parked {
		r.handed += len(res.Jobs)
		r.mu.Unlock()
		return res, nil
	}
	served := make(chan fsm.Result, 1)
	r.parked[request] = served
	r.changed.Broadcast()
	r.mu.Unlock()

	over := time.NewTimer(time.Duration(op.(*fsm.Dequeue).WaitMs) * time.Millisecond)
	defer over.Stop()
	due := time.NewTicker(5 * time.Millisecond) // stands for the leader, which logs what is due
	defer due.Stop()
	left := false
	for waiting := true; waiting; {
		select {
		case <-due.C:
			r.mu.Lock()
			r.tick()
			r.mu.Unlock()
		case res := <-served:
			r.mu.Lock()
			defer r.mu.Unlock()
			r.handed += len(res.Jobs)
			return res, nil
		case <-gone:
			left, waiting = true, false
		case <-over.C:
			waiting = false
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, still := r.parked[request]; still {
		delete(r.parked, request)
		return fsm.Result{Position: r.apply(&fsm.Withdraw{Requests: []uint64{request}}).Position}, nil
	}
	res = <-served
	if left {
		r.apply(&fsm.GiveBack{Items: receipts(res.Jobs)})
		return fsm.Result{}, fsm.Refuse(fsm.CodeLeaving, "the client left")
	}
	r.handed += len(res.Jobs)
	return res, nil
}

// DoCopies finds as many copies as there are members alive.
func (r *inProcess) DoCopies(op fsm.Op, copies int, timeout time.Duration) (fsm.Result, error) {
	res, err := r.Do(op, false, timeout, nil)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.copies = append(r.copies, copies)
	if _, alive := r.members.voters(); err != nil || copies <= alive-r.slow {
		return res, err
	}
	var keys []fsm.Key
	for i := range res.Items {
		keys = append(keys, res.Items[i].ID.Key)
	}
	for i, took := range r.apply(&fsm.WithdrawJobs{Keys: keys}).Items {
		res.Items[i].Code = fsm.CodeNotEnoughReplicas
		if took.Code != fsm.CodeOK {
			res.Items[i].Code = fsm.CodeCommitTimeout
		}
	}
	return res, nil
}

func receipts(jobs []fsm.Delivered) (items []fsm.Item) {
	for i := range jobs {
		items = append(items, jobs[i].Receipt().Item())
	}
	return items
}

func (r *inProcess) Read(how fsm.ReadHow, f func(m *fsm.Machine)) (fsm.Seen, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.started != nil {
		return fsm.Seen{}, r.started
	}
	r.tick()
	f(r.m)
	return fsm.Seen{Position: r.m.Position(), NowMs: r.nowMs()}, nil
}

func (r *inProcess) GiveBack(items []fsm.Item) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.returned += len(items)
	r.apply(&fsm.GiveBack{Items: items})
}

func (r *inProcess) Started() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.started
}

func (r *inProcess) Members() Members {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.members
}

func (r *inProcess) RemoveMember(id uint64, _ time.Duration) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.removed = append(r.removed, id)
	return nil
}

func (r *inProcess) SetLeaving(v bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.leaving = v
}

func (r *inProcess) Snapshot(time.Duration) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.snapshot++
	return nil
}

// await blocks until cond holds; cond runs under the lock.
func (r *inProcess) await(t testing.TB, what string, cond func() bool) {
	t.Helper()
	late := time.AfterFunc(20*time.Second, r.changed.Broadcast)
	defer late.Stop()
	start := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	for !cond() {
		if time.Since(start) > 15*time.Second {
			t.Fatalf("%s never came", what)
		}
		r.changed.Wait()
	}
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

// oneConn is a listener of one connection.
type oneConn struct{ server net.Conn }

func (l *oneConn) Accept() (net.Conn, error) { return l.server, nil }
func (l *oneConn) Close() error              { return nil }
func (l *oneConn) Addr() net.Addr            { return l.server.LocalAddr() }

func connOf(nc net.Conn) *hangup.Conn { return hangup.Of(nc) }
