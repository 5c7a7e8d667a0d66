package raftnode

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"raftq/fsm"
)

// TestSetAside proves what a start finds after each step at which a crash can cut
// short that a damaged log is set aside, and that the node, once it is a new member,
// is like any other.
func TestSetAside(t *testing.T) {
	defer goleak.VerifyNone(t)
	tr := newTrio(t)
	tr.openAll()
	enqueueOn(t, tr.nodes[1], "before")
	old := tr.nodes[0].ID()
	tr.close(0)
	cfg := tr.cfg[0]
	log, aside := filepath.Join(cfg.DataDir, "log"), filepath.Join(cfg.DataDir, "damaged-1")

	bare := cfg
	bare.InitialCluster = nil // what the snapshot knows
	for what, cfg := range map[string]Config{"by its flags": cfg, "by its snapshot": bare} {
		r, err := LastKnown(cfg, errors.New("torn"))
		if err != nil {
			t.Fatal(err)
		}
		slices.Sort(r.Peers)
		want := []string{tr.cfg[0].InitialCluster[1].Peer, tr.cfg[0].InitialCluster[2].Peer}
		if slices.Sort(want); !slices.Equal(r.Peers, want) || r.Cluster != tr.nodes[1].cluster {
			t.Errorf("%s it knows %+v, want %v", what, r, want)
		}
		r.AskClients(t.Context())
		if slices.Sort(r.Clients); !slices.Equal(r.Clients, []string{tr.cfg[1].AdvertiseClient, tr.cfg[2].AdvertiseClient}) {
			t.Errorf("%s it finds %v", what, r.Clients)
		}
	}
	r, err := LastKnown(cfg, errors.New("torn"))
	if err != nil {
		t.Fatal(err)
	}
	if err := r.SetAside(cfg.DataDir); err != nil {
		t.Fatal(err)
	}
	if r.Aside != aside {
		t.Errorf("it is in %s", r.Aside)
	}
	// A crash before the log was moved: nothing has happened.
	if err := os.Rename(filepath.Join(aside, "log"), log); err != nil {
		t.Fatal(err)
	}
	if r, err := Rejoining(cfg.DataDir); r != nil || err != nil {
		t.Errorf("begun with the log in its place: %+v, %v", r, err)
	}
	if err := r.SetAside(cfg.DataDir); err != nil || r.Aside != aside {
		t.Errorf("a second time it goes to %s: %v", r.Aside, err)
	}
	// A crash after it: the node cannot begin anew.
	again, err := Rejoining(cfg.DataDir)
	if err != nil || again == nil || again.Why != "torn" || !slices.Equal(again.Peers, r.Peers) {
		t.Fatalf("%+v, %v", again, err)
	}
	if _, err := Open(cfg); err == nil || !strings.Contains(err.Error(), "on its way back as a new member") {
		t.Errorf("opened: %v", err)
	}
	for _, name := range []string{"log", "note", "boot"} {
		if _, err := os.Stat(filepath.Join(aside, name)); err != nil {
			t.Error(err)
		}
	}
	// As a new member.
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	err = Join(ctx, cfg, func(_ context.Context, m fsm.NewMember) (j Joined, err error) {
		m.Replace = true
		await(t, "a leader that takes it", func() bool {
			var c fsm.MembersChanged
			c, err = tr.nodes[tr.leader()].AddMember(m, 5*time.Second)
			j = Joined{ID: c.Member.ID, Cluster: tr.nodes[1].cluster, Index: c.Index}
			for _, o := range c.Members {
				j.Peers = append(j.Peers, o.Peer)
			}
			var e *fsm.Error
			return !errors.As(err, &e) || e.Code != fsm.CodeNoLeader
		})
		return j, err
	})
	if err != nil {
		t.Fatal(err)
	}
	if r, err := Rejoining(cfg.DataDir); r != nil || err != nil {
		t.Errorf("still under way: %+v, %v", r, err)
	}
	n := tr.open(0)
	tr.ready(0)
	if n.ID() == old {
		t.Error("it has its old id")
	}
	await(t, "a voter", func() bool {
		for _, m := range n.Status().Nodes {
			if m.ID == n.ID() {
				return !m.Learner
			}
		}
		return false
	})
	if jobs := dequeueOn(t, n, 0); len(jobs) != 1 || jobs[0].Body != "before" {
		t.Errorf("it has %+v", jobs)
	}
	tr.closeAll()
	// The next log that is damaged goes elsewhere.
	if err := r.SetAside(cfg.DataDir); err != nil || filepath.Base(r.Aside) != "damaged-2" {
		t.Errorf("it goes to %s: %v", r.Aside, err)
	}
}
