package raftnode

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	"go.uber.org/zap/zaptest"

	"raftq/fsm"
)

// trio is three real nodes in this process: real files, real sockets.
type trio struct {
	t     *testing.T
	cfg   []Config
	nodes []*Node
}

func newTrio(t *testing.T) *trio {
	tr := &trio{t: t, nodes: make([]*Node, 3)}
	var members []Member
	for i := range 3 {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		addr := ln.Addr().String()
		ln.Close()
		members = append(members, Member{fmt.Sprintf("n%d", i+1), "http://" + addr})
	}
	for i, m := range members {
		tr.cfg = append(tr.cfg, Config{Name: m.Name, DataDir: filepath.Join(t.TempDir(), m.Name), ListenPeer: strings.TrimPrefix(m.Peer, "http://"),
			AdvertiseClient: fmt.Sprintf("127.0.0.1:%d", 1+i), InitialCluster: members, SegmentBytes: 1 << 20, SnapshotEntries: 50,
			Heartbeat: 50 * time.Millisecond, ElectionTimeout: 300 * time.Millisecond, Logger: zaptest.NewLogger(t).Named(m.Name)})
	}
	return tr
}

func (tr *trio) open(i int) *Node {
	tr.t.Helper()
	n, err := Open(tr.cfg[i])
	if err != nil {
		tr.t.Fatal(err)
	}
	tr.nodes[i] = n
	return n
}

func (tr *trio) openAll() {
	tr.t.Helper()
	for i := range 3 {
		tr.open(i)
	}
	for i := range 3 {
		tr.ready(i)
	}
}

func (tr *trio) ready(i int) {
	tr.t.Helper()
	await(tr.t, "a ready node", func() bool { return tr.nodes[i].Ready() == nil })
}

func (tr *trio) close(i int) {
	tr.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := tr.nodes[i].Close(ctx); err != nil {
		tr.t.Errorf("close %s: %v", tr.cfg[i].Name, err)
	}
	tr.nodes[i] = nil
}

func (tr *trio) closeAll() {
	tr.t.Helper()
	for i, n := range tr.nodes {
		if n != nil {
			tr.close(i)
		}
	}
}

func await(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !ok(); {
		if time.Now().After(end) {
			t.Fatalf("never came: %s", what)
		}
		time.Sleep(time.Millisecond) // between polls of a condition
	}
}

func enqueueOn(t *testing.T, n *Node, body string) fsm.ID {
	t.Helper()
	res, err := n.Do(&fsm.Enqueue{Jobs: []fsm.NewJob{{Queue: "q", Body: []byte(body), Priority: 4}}}, false, 10*time.Second, nil)
	if err != nil || res.Items[0].Code != fsm.CodeOK {
		t.Fatalf("enqueue: %v %+v", err, res)
	}
	return res.Items[0].ID
}

func dequeueOn(t *testing.T, n *Node, wait time.Duration) []fsm.Delivered {
	t.Helper()
	res, err := n.Do(&fsm.Dequeue{Queues: []string{"q"}, Max: 1, WaitMs: wait.Milliseconds()}, false, 10*time.Second+wait, nil)
	if err != nil {
		t.Fatalf("dequeue: %v", err)
	}
	return res.Jobs
}

// TestNodes proves the whole path on three nodes: a job goes in on one, waits
// out on another, is acked on the third; leadership moves before a stop; nothing
// is left running; and after a restart of all the state is there.
func TestNodes(t *testing.T) {
	defer goleak.VerifyNone(t)
	tr := newTrio(t)
	tr.openAll()
	got := make(chan []fsm.Delivered, 1)
	go func() { got <- dequeueOn(t, tr.nodes[1], 10*time.Second) }()
	await(t, "a waiter", func() bool {
		n := 0
		_, err := tr.nodes[2].Read(fsm.ReadHow{Strong: true, TimeoutMs: 5000}, func(m *fsm.Machine) { n = m.Totals().Waiters })
		return err == nil && n == 1
	})
	id := enqueueOn(t, tr.nodes[0], "hello")
	jobs := <-got
	if len(jobs) != 1 || jobs[0].ID != id || jobs[0].Body != "hello" {
		t.Fatalf("delivered %+v", jobs)
	}
	res, err := tr.nodes[2].Do(&fsm.Ack{Items: []fsm.Item{jobs[0].Receipt().Item()}}, false, 10*time.Second, nil)
	if err != nil || res.Items[0].Code != fsm.CodeOK {
		t.Fatalf("ack: %v %+v", err, res)
	}
	for i := range 200 { // past a few snapshots
		enqueueOn(t, tr.nodes[i%3], fmt.Sprint(i))
	}
	leader := 0
	for i, n := range tr.nodes {
		if n.Leader() == n.Name() {
			leader = i
		}
	}
	name := tr.cfg[leader].Name
	tr.close(leader)
	other := tr.nodes[(leader+1)%3]
	if l := other.Leader(); l == name {
		t.Errorf("%s led until it was gone", l)
	}
	enqueueOn(t, other, "after")
	tr.closeAll()

	tr.openAll()
	var info fsm.QueueInfo
	if _, err := tr.nodes[leader].Read(fsm.ReadHow{Strong: true, TimeoutMs: 5000}, func(m *fsm.Machine) { info, _ = m.Queue("q") }); err != nil {
		t.Fatal(err)
	}
	if info.Ready != 201 || info.Acked != 1 {
		t.Errorf("after the restart: %+v", info)
	}
	seen, err := tr.nodes[leader].Read(fsm.ReadHow{Age: true, MaxStaleMs: 1000, TimeoutMs: 5000}, func(m *fsm.Machine) { info, _ = m.Queue("q") })
	if err != nil || info.Ready != 201 || seen.StaleMs > 1000 {
		t.Errorf("weak read: %v %+v %+v", err, seen, info)
	}
	tr.closeAll()
}

// TestFastOnLeader proves that a leader answers a fast enqueue before commit: it
// does so while no other node lives, and the job is there once one does.
func TestFastOnLeader(t *testing.T) {
	defer goleak.VerifyNone(t)
	tr := newTrio(t)
	tr.openAll()
	leader := -1
	for i, n := range tr.nodes {
		if n.Leader() == n.Name() {
			leader = i
		}
	}
	first := enqueueOn(t, tr.nodes[leader], "committed")
	for i := range 3 {
		if i != leader {
			// Hard: the leader must not hear of it at once.
			close(tr.nodes[i].quit)
			tr.nodes[i].quitOnce.Do(func() {})
			tr.close(i)
		}
	}
	l := tr.nodes[leader]
	job := &fsm.Enqueue{Jobs: []fsm.NewJob{{Queue: "q", Body: []byte("fast"), Priority: 4}}}
	res, err := l.Do(job, true, 10*time.Second, nil)
	if err != nil || !res.Fast || res.Items[0].Code != fsm.CodeOK {
		t.Fatalf("fast enqueue: %v %+v", err, res)
	}
	// What stands on uncommitted ground waits: the first dequeue takes the
	// committed job, the second would take the one just enqueued.
	res, err = l.Do(&fsm.Dequeue{Queues: []string{"q"}, Max: 1}, true, 10*time.Second, nil)
	if err != nil || !res.Fast || len(res.Jobs) != 1 || res.Jobs[0].ID != first {
		t.Fatalf("fast dequeue: %v %+v", err, res)
	}
	if res, err = l.Do(&fsm.Dequeue{Queues: []string{"q"}, Max: 1}, true, 500*time.Millisecond, nil); err == nil {
		t.Fatalf("a dequeue of an uncommitted job was answered: %+v", res)
	}
	for i := range 3 {
		if i != leader {
			tr.open(i)
		}
	}
	for i := range 3 {
		tr.ready(i)
	}
	var info fsm.QueueInfo
	await(t, "both jobs in the queue", func() bool {
		_, err := tr.nodes[(leader+1)%3].Read(fsm.ReadHow{Strong: true, TimeoutMs: 5000}, func(m *fsm.Machine) { info, _ = m.Queue("q") })
		return err == nil && info.Enqueued == 2
	})
	tr.closeAll()
}

// TestDataDirectory proves that a directory in use, of another cluster, or an old
// copy is refused with a reason.
func TestDataDirectory(t *testing.T) {
	defer goleak.VerifyNone(t)
	tr := newTrio(t)
	tr.openAll()
	if _, err := Open(tr.cfg[0]); err == nil || !strings.Contains(err.Error(), "in use by another process") {
		t.Errorf("second open: %v", err)
	}
	tr.close(0)
	other := tr.cfg[0]
	other.ClusterToken = "another"
	if _, err := Open(other); err == nil || !strings.Contains(err.Error(), "belongs to node") {
		t.Errorf("another cluster's: %v", err)
	}
	// A copy of the directory, from before its last two starts.
	old := filepath.Join(t.TempDir(), "old")
	if out, err := exec.Command("cp", "-a", tr.cfg[0].DataDir, old).CombinedOutput(); err != nil {
		t.Fatalf("cp: %v %s", err, out)
	}
	for range 2 {
		tr.open(0)
		tr.ready(0)
		enqueueOn(t, tr.nodes[0], "x")
		tr.close(0)
	}
	if err := os.RemoveAll(tr.cfg[0].DataDir); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(old, tr.cfg[0].DataDir); err != nil {
		t.Fatal(err)
	}
	n := tr.open(0)
	select {
	case <-n.Done():
	case <-time.After(20 * time.Second):
		t.Fatal("a node on an old copy of its directory goes on")
	}
	if err := n.Err(); err == nil || !strings.Contains(err.Error(), "old or a copy") {
		t.Errorf("old copy: %v", err)
	}
	tr.close(0)
	tr.closeAll()
}

// TestTurnsOfRequests proves that fast requests, which run the core on their own
// goroutines when it is at rest, and strong ones beside them lose and double
// nothing, up to the stop of the node in the middle of it.
func TestTurnsOfRequests(t *testing.T) {
	defer goleak.VerifyNone(t)
	tr := newTrio(t)
	tr.openAll()
	var l *Node
	for _, n := range tr.nodes {
		if n.Leader() == n.Name() {
			l = n
		}
	}
	const each = 50
	var wg sync.WaitGroup
	var answered atomic.Int64
	enqueue := func(n *Node, fast bool, jobs int) {
		wg.Go(func() {
			for range jobs {
				res, err := n.Do(&fsm.Enqueue{Jobs: []fsm.NewJob{{Queue: "q", Body: []byte("x"), Priority: 4}}}, fast, 10*time.Second, nil)
				if err != nil || res.Code != fsm.CodeOK {
					t.Errorf("enqueue, fast %v: %v %+v", fast, err, res)
					return
				}
				answered.Add(1)
			}
		})
	}
	for range 4 {
		enqueue(l, true, 4*each)
		enqueue(l, false, each)
		enqueue(tr.nodes[0], false, each)
	}
	wg.Wait()
	if answered.Load() != 4*6*each {
		t.Fatalf("%d jobs were answered", answered.Load())
	}
	var info fsm.QueueInfo
	for _, n := range tr.nodes {
		if _, err := n.Read(fsm.ReadHow{Strong: true, TimeoutMs: 5000}, func(m *fsm.Machine) { info, _ = m.Queue("q") }); err != nil || int64(info.Enqueued) != answered.Load() {
			t.Errorf("%s: %v, %d jobs, %d were answered", n.Name(), err, info.Enqueued, answered.Load())
		}
	}
	// Closing it under load: every request gets an answer.
	for range 8 {
		wg.Go(func() {
			for {
				res, err := l.Do(&fsm.Enqueue{Jobs: []fsm.NewJob{{Queue: "q", Body: []byte("x"), Priority: 4}}}, true, 10*time.Second, nil)
				if err != nil {
					return
				}
				if res.Code != fsm.CodeOK {
					t.Errorf("enqueue: %+v", res)
				}
			}
		})
	}
	tr.closeAll()
	wg.Wait()
}

// TestBrokenCoreEndsProcess proves that a panic of the core is not taken for one
// of the request whose goroutine ran it: front ends survive those.
func TestBrokenCoreEndsProcess(t *testing.T) {
	if dir := os.Getenv("RAFTQ_BROKEN_CORE"); dir != "" {
		n, err := Open(Config{DataDir: dir, ListenPeer: "127.0.0.1:0", SegmentBytes: 1 << 20})
		if err != nil {
			t.Fatal(err)
		}
		await(t, "a ready node", func() bool { return n.Ready() == nil })
		defer func() {
			t.Logf("survived: %v", recover())
			os.Exit(0)
		}()
		_, err = n.Do(brokenOp{&fsm.Enqueue{}}, true, time.Second, nil)
		t.Logf("answered: %v", err)
		return
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestBrokenCoreEndsProcess$")
	cmd.Env = append(os.Environ(), "RAFTQ_BROKEN_CORE="+t.TempDir())
	out, err := cmd.CombinedOutput()
	if err == nil || !strings.Contains(string(out), "the core is broken") || strings.Contains(string(out), "survived") || strings.Contains(string(out), "answered") {
		t.Errorf("a node with a broken core: %v\n%s", err, out)
	}
}

type brokenOp struct{ *fsm.Enqueue }

func (brokenOp) Kind() fsm.Kind { panic("the core is broken") }

// TestGoneAfterTheEnd proves that a request whose client leaves when the core has
// ended gets what the core knew of it: the core cannot take a hand-out back any more.
func TestGoneAfterTheEnd(t *testing.T) {
	n := &Node{box: newMailbox()}
	gone := make(chan struct{})
	close(gone)
	r := &request{done: make(chan struct{}, 1)}
	if n.awaitEnd(r, gone) {
		t.Error("a living core takes it back, and this waited for its end")
	}
	n.box.close()
	r.done <- struct{}{}
	for range 20 { // whichever comes first
		if !n.awaitEnd(r, gone) {
			t.Error("the end was not waited for")
		}
		r.done <- struct{}{}
	}
}
