package raftnode

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"go.uber.org/zap/zaptest"

	"raftq/fsm"
)

// crew is real nodes in this process that come and go.
type crew struct {
	t     *testing.T
	nodes map[string]*Node
	cfg   map[string]Config
}

func newCrew(t *testing.T) *crew {
	return &crew{t: t, nodes: map[string]*Node{}, cfg: map[string]Config{}}
}

// config lays a node out; a second call gives it an empty directory.
func (cr *crew) config(name string) Config {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		cr.t.Fatal(err)
	}
	defer ln.Close()
	cfg := Config{Name: name, DataDir: filepath.Join(cr.t.TempDir(), name), ListenPeer: ln.Addr().String(), AdvertiseClient: name + ":80",
		AdvertisePeer: "http://" + ln.Addr().String(), SegmentBytes: 1 << 20, SnapshotEntries: 50, ClusterToken: "crew",
		Heartbeat: 50 * time.Millisecond, ElectionTimeout: 300 * time.Millisecond, Logger: zaptest.NewLogger(cr.t).Named(name)}
	cr.cfg[name] = cfg
	return cfg
}

func (cr *crew) open(name string) *Node {
	cr.t.Helper()
	n, err := Open(cr.cfg[name])
	if err != nil {
		cr.t.Fatal(err)
	}
	cr.nodes[name] = n
	await(cr.t, name+" is ready", func() bool { return n.Ready() == nil })
	return n
}

// leader waits for a leader that lives here.
func (cr *crew) leader() (lead *Node) {
	cr.t.Helper()
	await(cr.t, "a leader", func() bool {
		for _, n := range cr.nodes {
			if n.view.Load().isLeader && n.Ready() == nil {
				lead = n
				return true
			}
		}
		return false
	})
	return lead
}

// asked carries a change to the leader until one takes it.
func (cr *crew) asked(do func(*Node) (fsm.MembersChanged, error)) (c fsm.MembersChanged, err error) {
	cr.t.Helper()
	await(cr.t, "a leader that takes the change", func() bool {
		c, err = do(cr.leader())
		var e *fsm.Error
		return !errors.As(err, &e) || e.Code != fsm.CodeNoLeader
	})
	return c, err
}

func (cr *crew) join(name string, replace bool) error {
	cr.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	return Join(ctx, cr.cfg[name], func(_ context.Context, m fsm.NewMember) (Joined, error) {
		m.Replace = replace
		c, err := cr.asked(func(n *Node) (fsm.MembersChanged, error) { return n.AddMember(m, 5*time.Second) })
		j := Joined{ID: c.Member.ID, Cluster: cr.leader().cluster, Index: c.Index}
		for _, o := range c.Members {
			j.Peers = append(j.Peers, o.Peer)
		}
		return j, err
	})
}

// add lets a new node join and waits until it is a voter.
func (cr *crew) add(name string) *Node {
	cr.t.Helper()
	cr.config(name)
	if err := cr.join(name, false); err != nil {
		cr.t.Fatal(err)
	}
	n := cr.open(name)
	cr.voter(name)
	return n
}

func (cr *crew) voter(name string) {
	cr.t.Helper()
	await(cr.t, name+" is a voter", func() bool {
		for _, m := range cr.leader().Status().Nodes {
			if m.Name == name {
				return !m.Learner
			}
		}
		return false
	})
}

func (cr *crew) remove(name string) (fsm.MembersChanged, error) {
	return cr.asked(func(n *Node) (fsm.MembersChanged, error) { return n.RemoveMember(0, name, 5*time.Second) })
}

// kill ends a node without a word.
func (cr *crew) kill(name string) {
	n := cr.nodes[name]
	n.quitOnce.Do(func() { close(n.quit) })
	cr.close(name)
}

func (cr *crew) close(name string) {
	cr.t.Helper()
	closeNode(cr.t, cr.nodes[name])
	delete(cr.nodes, name)
}

func (cr *crew) closeAll() {
	for name := range cr.nodes {
		cr.close(name)
	}
}

// gone waits until a removed node has ended, and proves that it does not start
// again.
func (cr *crew) gone(name string) {
	cr.t.Helper()
	n := cr.nodes[name]
	select {
	case <-n.Done():
	case <-time.After(20 * time.Second):
		cr.t.Fatalf("%s goes on after it was removed", name)
	}
	if !errors.Is(n.Err(), ErrRemoved) {
		cr.t.Fatalf("%s ended with %v", name, n.Err())
	}
	cr.close(name)
	again, err := Open(cr.cfg[name])
	if err == nil {
		select {
		case <-again.Done():
			err = again.Err()
		case <-time.After(20 * time.Second):
			cr.t.Fatalf("%s runs again although it was removed", name)
		}
		closeNode(cr.t, again)
	}
	if !errors.Is(err, ErrRemoved) {
		cr.t.Errorf("%s started again: %v", name, err)
	}
}

func refusedWith(t *testing.T, what string, err error, code fsm.Code, detail string) {
	t.Helper()
	var e *fsm.Error
	if !errors.As(err, &e) || e.Code != code || e.Unknown || !strings.Contains(e.Detail, detail) {
		t.Errorf("%s: %v, want %v with %q", what, err, code, detail)
	}
}

// TestMembers lets a cluster grow from one node to three and shrink again: each
// node that joins gets what was there before and serves; what would lose the
// quorum is refused; the leader goes after it has handed over; who was removed
// ends, and does not start again.
func TestMembers(t *testing.T) {
	defer goleak.VerifyNone(t)
	cr := newCrew(t)
	cr.config("n1")
	n1 := cr.open("n1")
	for i := range 120 { // past snapshots: the log does not reach back to its start
		enqueueOn(t, n1, fmt.Sprint("old ", i))
	}
	_, err := cr.remove("n1")
	refusedWith(t, "the only voter", err, fsm.CodeQuorumAtRisk, "n1 is the only voter")
	n2 := cr.add("n2")
	n3 := cr.add("n3")
	for i, n := range []*Node{n1, n2, n3} {
		enqueueOn(t, n, fmt.Sprint("new ", i))
		var info fsm.QueueInfo
		if _, err := n.Read(fsm.ReadHow{Strong: true, TimeoutMs: 5000}, func(m *fsm.Machine) { info, _ = m.Queue("q") }); err != nil || info.Ready != 121+i {
			t.Fatalf("on %s: %+v, %v", n.Name(), info, err)
		}
		if jobs := dequeueOn(t, n, 0); len(jobs) != 1 || jobs[0].Body != fmt.Sprint("old ", i) {
			t.Fatalf("dequeue on %s: %+v", n.Name(), jobs)
		}
		if _, err := n.Do(&fsm.Release{Items: nil}, false, 5*time.Second, nil); err != nil {
			t.Fatal(err)
		}
		enqueueOn(t, n, "filler")
	}

	_, err = cr.asked(func(n *Node) (fsm.MembersChanged, error) {
		return n.AddMember(fsm.NewMember{Name: "n3", Peer: "http://h:1", Token: "crew", Join: 5}, time.Second)
	})
	refusedWith(t, "a name twice", err, fsm.CodeMemberExists, "a member n3")
	_, err = cr.asked(func(n *Node) (fsm.MembersChanged, error) {
		return n.AddMember(fsm.NewMember{Name: "n3", Peer: "http://h:1", Token: "crew", Join: 5, Replace: true}, time.Second)
	})
	refusedWith(t, "replacing a living one", err, fsm.CodeMemberExists, "n3")
	_, err = cr.asked(func(n *Node) (fsm.MembersChanged, error) {
		return n.AddMember(fsm.NewMember{Name: "n9", Peer: "http://h:1", Token: "another", Join: 5}, time.Second)
	})
	refusedWith(t, "a node of another cluster", err, fsm.CodeInvalidOption, "cluster_token")
	_, err = cr.asked(func(n *Node) (fsm.MembersChanged, error) {
		return n.AddMember(fsm.NewMember{Name: "n9", Peer: cr.cfg["n3"].AdvertisePeer}, time.Second)
	})
	refusedWith(t, "an address twice", err, fsm.CodeMemberExists, "peer address of member n3")
	_, err = cr.remove("n9")
	refusedWith(t, "a stranger's removal", err, fsm.CodeMemberNotFound, "there are n")

	// The leader: it hands over, and the next one removes it.
	lead := cr.leader()
	c, err := cr.remove(lead.Name())
	if err != nil || c.Member.ID != lead.ID() {
		t.Fatalf("the leader's removal: %+v, %v", c, err)
	}
	cr.gone(lead.Name())
	id := c.Member.ID
	if c, err = cr.asked(func(n *Node) (fsm.MembersChanged, error) { return n.RemoveMember(id, "", time.Second) }); err != nil || !c.Already {
		t.Errorf("removed a second time: %+v, %v", c, err)
	}
	enqueueOn(t, cr.leader(), "after")

	// The same name again, on a new disk.
	cr.add(lead.Name())

	// One of three is dead: nobody else may go, and the dead one may.
	var dead, other string
	for name, n := range cr.nodes {
		if n != cr.leader() {
			dead, other = name, dead
		}
	}
	cr.kill(dead)
	_, err = cr.remove(other)
	refusedWith(t, "one of two living ones of three", err, fsm.CodeQuorumAtRisk, dead+" (not alive)")
	if err := os.RemoveAll(cr.cfg[dead].DataDir); err != nil {
		t.Fatal(err)
	}
	cr.config(dead)
	refusedWith(t, "a wiped node under its name", cr.join(dead, false), fsm.CodeMemberExists, "replace")
	if err := cr.join(dead, true); err != nil {
		t.Fatal(err)
	}
	cr.open(dead)
	cr.voter(dead)

	for _, name := range []string{dead, other} {
		if _, err := cr.remove(name); err != nil {
			t.Fatal(err)
		}
		cr.gone(name)
	}
	last := cr.leader()
	var info fsm.QueueInfo
	if _, err := last.Read(fsm.ReadHow{Strong: true, TimeoutMs: 5000}, func(m *fsm.Machine) { info, _ = m.Queue("q") }); err != nil || info.Enqueued != 127 {
		t.Errorf("at the end: %+v, %v", info, err)
	}
	cr.closeAll()
}

// TestWipedFirstMember proves that a first member which comes back with an empty
// disk, while others know it, does not begin anew, and that one which has lost only
// its log does not either.
func TestWipedFirstMember(t *testing.T) {
	defer goleak.VerifyNone(t)
	tr := newTrio(t)
	tr.openAll()
	tr.close(0)
	lost := tr.cfg[0]
	lost.DataDir = filepath.Join(t.TempDir(), "empty")
	if _, err := Open(lost); err == nil || !strings.Contains(err.Error(), "lost its disk") {
		t.Errorf("an empty disk: %v", err)
	}
	if err := os.RemoveAll(filepath.Join(tr.cfg[0].DataDir, "log")); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(tr.cfg[0]); err == nil || !strings.Contains(err.Error(), "its log is gone") {
		t.Errorf("no log: %v", err)
	}
	tr.closeAll()
}

// TestNewAddress proves that a member that starts at another address is found
// there by the others, and that what --initial-cluster said of it does not matter
// any more.
func TestNewAddress(t *testing.T) {
	defer goleak.VerifyNone(t)
	tr := newTrio(t)
	tr.openAll()
	tr.close(0)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	moved := ln.Addr().String()
	ln.Close()
	tr.cfg[0].ListenPeer, tr.cfg[0].AdvertisePeer = moved, "http://"+moved
	tr.open(0)
	tr.ready(0)
	await(t, "the others know the new address, and it answers", func() bool {
		for _, n := range tr.nodes[1:] {
			for _, m := range n.Status().Nodes {
				if m.Name == "n1" && (m.Peer != "http://"+moved || !m.Alive) {
					return false
				}
			}
		}
		return true
	})
	// They need it: the other one of them goes.
	tr.close(2)
	enqueueOn(t, tr.nodes[1], "with the moved one")
	tr.closeAll()
}
