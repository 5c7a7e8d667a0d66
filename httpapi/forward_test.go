package httpapi

import (
	"bytes"
	"fmt"
	"net"
	"strings"
	"testing"

	"raftq/fsm"
)

// listening serves s on loopback and returns its address.
func listening(t *testing.T, r Replica, opts Options) string {
	t.Helper()
	s := newServer(t, r, opts)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go s.Serve(ln) // until the server is closed, at the end of the test
	return ln.Addr().String()
}

// TestForward proves that a follower passes fast writes on and the leader's
// answer back, whatever its size: what the leader has handed out must not be
// thrown away on the way. Jobs' headers of 16 KiB and answers of many MiB come
// through, and receipts are found in each form.
func TestForward(t *testing.T) {
	leader := newFake()
	follower := newFake()
	follower.leader = listening(t, leader, Options{MaxBody: 16 << 20})
	s := newServer(t, follower, Options{MaxBody: 16 << 20})
	if a := ask(t, s, "POST", enqueueQ+"?consistency=fast", "x"); a.status != 201 || leader.opCount() != 1 || follower.opCount() != 0 {
		t.Fatalf("%d %s: leader %d ops, follower %d", a.status, a.body, leader.opCount(), follower.opCount())
	}
	var headers []fsm.Header
	for i := range 16 {
		headers = append(headers, fsm.Header{Name: fmt.Sprintf("h%02d", i), Value: strings.Repeat("v", 1000)})
	}
	var jobs []fsm.Delivered
	for i := range 30 {
		jobs = append(jobs, fsm.Delivered{ID: fsm.ID{Key: fsm.Key{Hi: 1, Lo: uint64(i)}, Minutes: 1}, Grant: 1, Tag: uint64(i), Queue: "q",
			Body: strings.Repeat("\x00", 1<<20), Headers: headers})
	}
	leader.mu.Lock()
	if !leader.asked[0] {
		t.Error("the leader was not asked for a fast answer")
	}
	leader.answer = func(op fsm.Op) (fsm.Result, error) {
		n := min(int(op.(*fsm.Dequeue).Max), len(jobs))
		return fsm.Result{Jobs: jobs[:n]}, nil
	}
	leader.mu.Unlock()
	for _, form := range []string{"application/json", "application/x-ndjson", "application/vnd.raftq.frames"} {
		a := ask(t, s, "POST", "/v1/queues/q/dequeue?consistency=fast&max=1000", "", "Accept", form)
		if a.status != 200 || len(a.body) < 30<<20 {
			t.Errorf("%s: %d, %d bytes: %.200s", form, a.status, len(a.body), a.body)
		}
	}
	a := ask(t, s, "POST", "/v1/queues/q/dequeue?consistency=fast", "", "Accept", "application/octet-stream")
	if a.status != 200 || len(a.body) != 1<<20 || a.header("Raftq-Receipt") == "" {
		t.Errorf("raw: %d, %d bytes: %.200s", a.status, len(a.body), a.body)
	}
	if n := follower.opCount(); n != 0 {
		t.Errorf("the follower ran %d ops of its own", n)
	}
}

// TestForwardWait proves that a fast dequeue that may wait is passed on as well, but
// waits only at the node that was asked: the leader looks once, and nothing there, or
// a leader that takes nothing, is no answer.
func TestForwardWait(t *testing.T) {
	leader, follower := newFake(), newFake()
	follower.leader = listening(t, leader, Options{})
	s := newServer(t, follower, Options{})
	job := fsm.Delivered{ID: fsm.ID{Key: fsm.Key{Hi: 1, Lo: 2}, Minutes: 1}, Grant: 1, Tag: 3, Queue: "q", Body: "x"}
	for _, path := range []string{"/v1/queues/q/dequeue?consistency=fast&wait=10s", "/v1/dequeue?consistency=fast"} {
		body := ""
		if path == "/v1/dequeue?consistency=fast" {
			body = `{"queues":["q","r"],"wait":"10s"}`
		}
		for _, c := range []struct {
			what string
			res  fsm.Result
			err  error
			here int // ops of the follower
		}{
			{"a job", fsm.Result{Jobs: []fsm.Delivered{job}}, nil, 0},
			{"nothing", fsm.Result{}, nil, 1},
			{"leaving", fsm.Result{}, fsm.Refuse(fsm.CodeLeaving, "stopping"), 1},
		} {
			asked := make(chan int64, 2)
			leader.mu.Lock()
			leader.answer = func(op fsm.Op) (fsm.Result, error) {
				asked <- op.(*fsm.Dequeue).WaitMs
				return c.res, c.err
			}
			leader.mu.Unlock()
			waits := make(chan int64, 2)
			follower.mu.Lock()
			follower.answer = func(op fsm.Op) (fsm.Result, error) {
				waits <- op.(*fsm.Dequeue).WaitMs
				return fsm.Result{Jobs: []fsm.Delivered{job}}, nil
			}
			follower.mu.Unlock()
			a := ask(t, s, "POST", path, body)
			if a.status != 200 || !strings.Contains(a.body, job.Receipt().String()) {
				t.Errorf("%s, %s: %d %s", path, c.what, a.status, a.body)
			}
			if len(asked) != 1 || <-asked != 0 {
				t.Errorf("%s, %s: the leader was not asked once, without a wait", path, c.what)
			}
			if len(waits) != c.here || c.here == 1 && <-waits != 10_000 {
				t.Errorf("%s, %s: the follower has not waited", path, c.what)
			}
		}
	}
}

// TestForwardNotSent proves that a request which surely was not sent to the
// leader is answered by the follower itself.
func TestForwardNotSent(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	follower := newFake()
	follower.leader = ln.Addr().String()
	ln.Close() // nobody listens there now
	s := newServer(t, follower, Options{})
	if a := ask(t, s, "POST", enqueueQ+"?consistency=fast", "x"); a.status != 201 || follower.opCount() != 1 {
		t.Errorf("%d %s", a.status, a.body)
	}
}

// TestForwardWithoutAnswer proves that a request which may have reached the leader is
// not tried here as well: its outcome is unknown.
func TestForwardWithoutAnswer(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			_, _ = c.Read(make([]byte, 1))
			c.Close()
		}
	}()
	follower := newFake()
	follower.leader = ln.Addr().String()
	s := newServer(t, follower, Options{})
	a := ask(t, s, "POST", enqueueQ+"?consistency=fast", "x")
	if a.status != 504 || !strings.Contains(a.body, `"applied":"unknown"`) || follower.opCount() != 0 {
		t.Errorf("%d %s, %d ops of the follower", a.status, a.body, follower.opCount())
	}
}

// TestReceiptsOf proves that receipts are found in an answer and not in bodies.
func TestReceiptsOf(t *testing.T) {
	r := fsm.Receipt{ID: fsm.ID{Key: fsm.Key{Hi: 1, Lo: 2}, Minutes: 1}, Grant: 3, Tag: 4}
	fake := fsm.Receipt{ID: fsm.ID{Key: fsm.Key{Hi: 9, Lo: 9}, Minutes: 1}, Grant: 9, Tag: 9}
	body := `{"jobs":[{"receipt":"` + r.String() + `","body":"a lie: \"receipt\":\"` + fake.String() + `\" "}]}`
	got := appendReceipts(nil, []byte(body))
	if len(got) != 1 || got[0].Key != r.ID.Key || got[0].Grant != 3 || got[0].Tag != 4 {
		t.Errorf("found %+v", got)
	}
	if got := appendReceipts(nil, bytes.Repeat([]byte(`"receipt":"`), 3)); len(got) != 0 {
		t.Errorf("found %+v in garbage", got)
	}
}
