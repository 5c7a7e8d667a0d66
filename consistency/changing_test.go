package consistency

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"raftq/cluster"
)

// fleet is the nodes that clients know of, as they come and go.
type fleet struct {
	mu    sync.Mutex
	nodes []*cluster.Node
	index map[*cluster.Node]int // for the history
}

func newFleet() *fleet { return &fleet{index: map[*cluster.Node]int{}} }

func (f *fleet) set(nodes ...*cluster.Node) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.nodes = nodes
	for _, n := range nodes {
		if _, ok := f.index[n]; !ok {
			f.index[n] = len(f.index)
		}
	}
}

// next is a node after the one with an index, round and round.
func (f *fleet) next(after int) (int, string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	at := slices.IndexFunc(f.nodes, func(n *cluster.Node) bool { return f.index[n] > after })
	n := f.nodes[max(at, 0)]
	return f.index[n], n.Client
}

// roamMax is how long a client looks for a node that serves it.
const roamMax = 10 * time.Second

// nothingDone tells whether a request surely was not carried out: no connection, or
// a 503.
func nothingDone(a answer, err error) bool {
	var dial *net.OpError
	return errors.As(err, &dial) && dial.Op == "dial" || err == nil && a.status == http.StatusServiceUnavailable
}

// changingCluster is a cluster whose members change under load.
type changingCluster struct {
	t     *testing.T
	ctx   context.Context
	c     *cluster.Cluster
	h     *history
	fleet *fleet
	load  *load
	live  []*cluster.Node
	ids   map[string]bool // of members that were removed
}

// startChanging starts one node and clients that roam over whatever nodes there
// are: producers and consumers, each of which changes its node now and then.
func startChanging(t *testing.T, args ...string) *changingCluster {
	c, ctx := start(t, 1, args...)
	cc := &changingCluster{t: t, ctx: ctx, c: c, h: newHistory(), fleet: newFleet(), live: []*cluster.Node{c.Nodes[0]}, ids: map[string]bool{}}
	cc.fleet.set(cc.live...)
	cc.load = &load{h: cc.h, c: c, queue: "members", stop: make(chan struct{}), lease: 5 * time.Second}
	for i := range 8 {
		cl := newClient(cc.h, 0, c.Nodes[0].Client)
		cl.fleet = cc.fleet
		cc.load.wg.Go(func() {
			for n := 0; !cc.load.stopped(); n++ {
				if n%20 == 0 {
					cl.node, cl.addr = cc.fleet.next(cl.node)
				}
				if i%2 == 0 {
					if a, e := cl.enqueue(ctx, cc.load.queue, fmt.Sprintf("p%d-%d", i, n)); e.outcome == done {
						cc.load.saw(a)
					}
					continue
				}
				_, ds, _ := cl.dequeue(ctx, cc.load.queue, 3, 300*time.Millisecond, cc.load.lease)
				for _, d := range ds {
					cc.load.saw(cl.ack(ctx, d))
				}
			}
		})
	}
	return cc
}

// settled waits until jobs have flowed, and for the roles that each live node has.
func (cc *changingCluster) settled(what string) {
	cc.t.Helper()
	cc.fleet.set(cc.live...)
	cc.load.await(cc.t, 200)
	cc.t.Logf("%s: %d nodes, %d answers so far", what, len(cc.live), cc.load.answers.Load())
}

type memberView struct {
	Leader      string
	CommitIndex uint64 `json:"commit_index"`
	Nodes       []memberLine
}

type memberLine struct {
	Name, ID, Role string
	Alive          bool
}

func (cc *changingCluster) view(n *cluster.Node) (v memberView, err error) {
	a, err := newClient(newHistory(), 0, n.Client).send(cc.ctx, "GET", "/v1/cluster", nil)
	if err != nil {
		return v, err
	}
	return v, json.Unmarshal(a.body, &v)
}

// voters waits until all live nodes say that they are the members, and all voters.
func (cc *changingCluster) voters() {
	cc.t.Helper()
	want := map[string]bool{}
	for _, n := range cc.live {
		want[n.Name] = true
	}
	var last string
	defer func() {
		if last != "" {
			cc.t.Log("last seen: ", last)
		}
	}()
	eventually(cc.t, 30*time.Second, fmt.Sprintf("%d voters, known to all", len(cc.live)), func() bool {
		for _, n := range cc.live {
			v, err := cc.view(n)
			last = fmt.Sprintf("%s: %+v, %v", n.Name, v, err)
			if err != nil || len(v.Nodes) != len(want) {
				return false
			}
			for _, m := range v.Nodes {
				if cc.ids[m.ID] {
					cc.t.Fatalf("%s has the id %s, which a removed member had", m.Name, m.ID)
				}
				if !want[m.Name] || m.Role != "voter" {
					return false
				}
			}
		}
		last = ""
		return true
	})
}

// grow adds nodes, all at once, and waits until they are voters.
func (cc *changingCluster) grow(count int) {
	cc.t.Helper()
	for range count {
		n, err := cc.c.Add()
		if err != nil {
			cc.t.Fatal(err)
		}
		if err := n.Start(); err != nil {
			cc.t.Fatal(err)
		}
		cc.live = append(cc.live, n)
	}
	for _, n := range cc.live {
		if err := n.WaitReady(cc.ctx); err != nil {
			cc.t.Fatal(err)
		}
	}
	cc.voters()
}

// raftq runs a command of a person.
func (cc *changingCluster) raftq(args ...string) (out string, code int) {
	cc.t.Helper()
	cmd := exec.CommandContext(cc.ctx, binary, args...)
	b, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		cc.t.Fatalf("raftq %v: %v", args, err)
	}
	return string(b), cmd.ProcessState.ExitCode()
}

func (cc *changingCluster) endpoints() string {
	var all []string
	for _, n := range cc.live {
		all = append(all, n.Client)
	}
	return strings.Join(all, ",")
}

// removed proves that a node has ended as one that was removed does, and does not
// start again.
func (cc *changingCluster) removed(n *cluster.Node) {
	cc.t.Helper()
	for range 2 {
		ctx, cancel := context.WithTimeout(cc.ctx, 20*time.Second)
		err := n.Wait(ctx)
		cancel()
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.ExitCode() != 7 || !strings.Contains(err.Error(), "this node was removed from the cluster") {
			cc.t.Fatalf("removed %s ended with: %v", n.Name, err)
		}
		if err := n.Start(); err != nil {
			cc.t.Fatal(err)
		}
	}
	n.Kill9()
}

// member is a node as the members know it.
func (cc *changingCluster) member(n *cluster.Node) memberLine {
	cc.t.Helper()
	v, err := cc.view(cc.live[0])
	if err != nil {
		cc.t.Fatal(err)
	}
	for _, m := range v.Nodes {
		if m.Name == n.Name {
			return m
		}
	}
	cc.t.Fatalf("%s is no member", n.Name)
	return memberLine{}
}

// idOf is the id of a member, which is not to be a member's any more.
func (cc *changingCluster) idOf(n *cluster.Node) string {
	cc.t.Helper()
	id := cc.member(n).ID
	cc.ids[id] = true
	return id
}

// lose kills a node that serves nobody any more, so that no client sees an error.
// Those who lived before are returned.
func (cc *changingCluster) lose(victim *cluster.Node) (before []*cluster.Node) {
	cc.t.Helper()
	if victim == cc.leader() {
		if out, code := cc.raftq("transfer-leader", "--endpoints", cc.endpoints()); code != 0 {
			cc.t.Fatalf("status %d\n%s", code, out)
		}
	}
	if out, code := cc.raftq("drain", victim.Name, "--endpoints", cc.endpoints()); code != 0 || !strings.Contains(out, "is drained") {
		cc.t.Fatalf("drain: status %d\n%s", code, out)
	}
	before = cc.live
	cc.live = slices.DeleteFunc(slices.Clone(before), func(n *cluster.Node) bool { return n == victim })
	cc.settled(victim.Name + " is drained")
	victim.Kill9()
	return before
}

// shrink removes a node.
func (cc *changingCluster) shrink(n *cluster.Node) {
	cc.t.Helper()
	cc.idOf(n)
	if out, code := cc.raftq("member", "remove", n.Name, "--endpoints", cc.endpoints()); code != 0 || !strings.Contains(out, n.Name+" is removed") {
		cc.t.Fatalf("remove %s: status %d\n%s", n.Name, code, out)
	}
	cc.live = slices.DeleteFunc(slices.Clone(cc.live), func(o *cluster.Node) bool { return o == n })
	cc.fleet.set(cc.live...)
	cc.removed(n)
	cc.voters()
}

// leader waits for the live node that leads.
func (cc *changingCluster) leader() (lead *cluster.Node) {
	cc.t.Helper()
	eventually(cc.t, 20*time.Second, "a leader", func() bool {
		for _, n := range cc.live {
			v, err := cc.view(n)
			if err != nil {
				continue
			}
			for _, o := range cc.live {
				if o.Name == v.Leader {
					lead = o
					return true
				}
			}
		}
		return false
	})
	return lead
}

// follower is a live node that does not lead.
func (cc *changingCluster) follower() *cluster.Node {
	lead := cc.leader()
	return cc.live[slices.IndexFunc(cc.live, func(n *cluster.Node) bool { return n != lead })]
}

// listed proves that the list of members, for people and as JSON, names all live
// nodes, with one leader.
func (cc *changingCluster) listed() {
	cc.t.Helper()
	text, code := cc.raftq("member", "list", "--endpoints", cc.endpoints())
	lines := strings.Split(strings.TrimSpace(text), "\n")
	if code != 0 || len(lines) != 1+len(cc.live) || strings.Count(text, "leader") != 1 || !strings.HasPrefix(lines[0], "NODE") {
		cc.t.Errorf("status %d\n%s", code, text)
	}
	for _, n := range cc.live {
		if !strings.Contains(text, "\n"+n.Name+" ") || !strings.Contains(text, n.Client) {
			cc.t.Errorf("no %s in\n%s", n.Name, text)
		}
	}
	text, code = cc.raftq("member", "list", "-o", "json", "--endpoints", cc.endpoints())
	var v memberView
	if err := json.Unmarshal([]byte(text), &v); err != nil || code != 0 || len(v.Nodes) != len(cc.live) || v.Leader == "" {
		cc.t.Errorf("status %d, %v\n%s", code, err, text)
	}
}

// end stops the load and judges what the clients saw. Errors are those they may
// have seen.
func (cc *changingCluster) end(errs int) {
	cc.t.Helper()
	close(cc.load.stop)
	cc.load.wg.Wait()
	drain(cc.t, cc.ctx, newClient(cc.h, 0, cc.live[0].Client), cc.load.queue)
	v := cc.h.judge()
	cc.t.Log(v)
	v.mustHold(cc.t)
	if len(cc.h.errors) > errs {
		cc.t.Errorf("clients saw %d errors, the first: %+v", len(cc.h.errors), cc.h.errors[0])
	}
}
