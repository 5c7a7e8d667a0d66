package consistency

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"raftq/cluster"
)

// TestMembersUnderLoad lets a cluster grow from one node to three and five, and
// shrink back to three and one, also by its leader, while jobs flow: nothing is
// lost or doubled, and no client that goes on to another node when it is told to
// sees an error. RAFTQ_MEMBER_ROUNDS repeats it.
func TestMembersUnderLoad(t *testing.T) {
	cc := startChanging(t, "--snapshot-entries", "2000")
	for round := range env("RAFTQ_MEMBER_ROUNDS", 1) {
		cc.settled("one node")
		cc.grow(1)
		cc.settled("the second joined")
		cc.grow(1)
		cc.settled("the third joined")
		cc.grow(2)
		cc.settled("two more joined")
		cc.listed()
		cc.shrink(cc.follower())
		cc.settled("a follower was removed")
		cc.shrink(cc.leader())
		cc.settled("the leader was removed")
		if out, code := cc.raftq("transfer-leader", cc.follower().Name, "--endpoints", cc.endpoints()); code != 0 || !strings.Contains(out, " leads") {
			t.Fatalf("transfer: status %d\n%s", code, out)
		}
		cc.settled("leadership was moved")
		cc.shrink(cc.follower())
		cc.shrink(cc.leader())
		cc.settled(fmt.Sprintf("one node again, round %d", round))
	}
	cc.end(0)
}

// TestLostDisk kills a node and wipes its disk. It cannot come back as it was, nor
// can another one be removed meanwhile; it takes its own place as a new member, and
// the cluster is whole again.
func TestLostDisk(t *testing.T) {
	cc := startChanging(t, "--snapshot-entries", "2000")
	cc.grow(2)
	cc.settled("three nodes")
	// One of the first members, and one that joined.
	for _, victim := range []*cluster.Node{cc.c.Nodes[0], cc.c.Nodes[2]} {
		live := cc.lose(victim)
		if err := os.RemoveAll(victim.DataDir); err != nil {
			t.Fatal(err)
		}
		other := cc.follower()
		out, code := cc.raftq("member", "remove", other.Name, "--endpoints", cc.endpoints())
		if code != 4 || !strings.Contains(out, "quorum_at_risk") || !strings.Contains(out, victim.Name+" (not alive)") {
			t.Errorf("one of the last two voters: status %d\n%s", code, out)
		}
		// As it was: the first of all begins a cluster of its own, until it hears of
		// the others; another one asks, and its name is taken.
		if err := victim.Start(); err != nil {
			t.Fatal(err)
		}
		wait, cancel := context.WithTimeout(cc.ctx, 20*time.Second)
		err := victim.Wait(wait)
		cancel()
		want := "member_exists"
		if !victim.Joins {
			want = "let the node join as a new member"
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s with an empty disk: %v", victim.Name, err)
		}
		if err := os.RemoveAll(victim.DataDir); err != nil {
			t.Fatal(err)
		}
		victim.Joins = true
		cc.idOf(victim)
		args := victim.Args
		victim.Args = append(slices.Clone(args), "--replace")
		if err := victim.Start(); err != nil {
			t.Fatal(err)
		}
		if err := victim.WaitReady(cc.ctx); err != nil {
			t.Fatal(err)
		}
		victim.Args = args
		cc.live = live
		cc.voters()
		cc.settled(victim.Name + " is back")
	}
	cc.end(0)
	sameChains(t, cc.c, cc.ctx, 20*time.Second)
}

// TestRemovalAnswerLost loses the answer to the removal of a node. The command says
// that it may be done or not, and what to do; doing that tells.
func TestRemovalAnswerLost(t *testing.T) {
	cc := startChanging(t)
	cc.grow(2)
	gone := cc.follower()
	id := cc.idOf(gone)
	back := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: cc.leader().Client})
	lossy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodDelete {
			back.ServeHTTP(w, r)
			return
		}
		back.ServeHTTP(httptest.NewRecorder(), r)
		panic(http.ErrAbortHandler) // hangs up
	}))
	defer lossy.Close()
	out, code := cc.raftq("member", "remove", gone.Name, "--endpoints", strings.TrimPrefix(lossy.URL, "http://"))
	again := "raftq member remove " + id
	if code != 6 || !strings.Contains(out, "may be removed or not") || !strings.Contains(out, `"`+again+`"`) {
		t.Fatalf("status %d\n%s", code, out)
	}
	cc.live = slices.DeleteFunc(slices.Clone(cc.live), func(n *cluster.Node) bool { return n == gone })
	cc.fleet.set(cc.live...)
	if out, code := cc.raftq(append(strings.Fields(again)[1:], "--endpoints", cc.endpoints())...); code != 0 || !strings.Contains(out, id+" is removed") {
		t.Errorf("asked again: status %d\n%s", code, out)
	}
	cc.removed(gone)
	if out, code := cc.raftq("member", "remove", gone.Name, "--endpoints", cc.endpoints()); code != 3 || !strings.Contains(out, "member_not_found") {
		t.Errorf("by the name, which nobody has now: status %d\n%s", code, out)
	}
	cc.end(0)
}
