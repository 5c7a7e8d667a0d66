package consistency

import (
	enc "encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"raftq/cluster"
	"raftq/consistency/check"
)

// member is a node as the first other one that knows it has it; one that is cut off
// may not. answered: somebody does, or says that it is nobody.
func (w *world) member(name string) (id, role string, alive, answered bool) {
	for _, i := range w.others() {
		if w.c.Nodes[i].Name == name || !w.c.Nodes[i].Running() {
			continue
		}
		v, err := w.view(w.ctx, i)
		if err != nil {
			continue
		}
		answered = true
		for _, m := range v.Nodes {
			if m.Name == name {
				return m.ID, m.Role, m.Alive, true
			}
		}
	}
	return "", "", false, answered
}

// idOf is the id of a member.
func (w *world) idOf(i int) (id string) {
	w.t.Helper()
	w.eventually(10*time.Second, "a member called "+w.c.Nodes[i].Name, func() bool {
		id, _, _, _ = w.member(w.c.Nodes[i].Name)
		return id != ""
	})
	return id
}

// voter waits until a node is a living voter under another id than it had.
func (w *world) voter(i int, had string) {
	w.t.Helper()
	n := w.c.Nodes[i]
	w.eventually(20*time.Second, n.Name+" is a voter under a new id", func() bool {
		id, role, alive, ok := w.member(n.Name)
		return ok && role == "voter" && alive && id != had
	})
	w.serves(i)
}

// join lets a spare node in.
func (w *world) join(i int) {
	w.t.Helper()
	n := w.c.Nodes[i]
	n.Joins = true
	w.must(n.Start())
	delete(w.out, i)
	w.voter(i, "")
}

// remove removes a member, asking who leads, or any other, until it is done.
func (w *world) remove(i int) {
	w.t.Helper()
	n := w.c.Nodes[i]
	id := w.idOf(i)
	w.out[i] = true
	var last string
	defer func() { w.t.Logf("removal of %s: %s", n.Name, last) }()
	w.eventually(30*time.Second, n.Name+" is removed", func() bool {
		ask := w.leaderOr(w.pick(w.others()))
		a, err := newSuiteHTTP().do(w.ctx, "DELETE", "http://"+w.c.Nodes[ask].Client+"/v1/cluster/members/"+id+"?timeout=5s", nil, nil)
		last = fmt.Sprintf("%d %.200s %v", a.status, a.body, err)
		return err == nil && a.status < 300
	})
}

// removed waits until a removed node ends by itself, which it does when all members
// know that it was removed. It is a spare one then.
func (w *world) removed(i int) {
	w.t.Helper()
	w.endsBy(w.c.Nodes[i], 7, "this node was removed from the cluster")
	w.wipe(i)
}

// wipe takes all that a node has, but what the checkers ask for.
func (w *world) wipe(i int) {
	w.t.Helper()
	n := w.c.Nodes[i]
	w.keepLog(n)
	if n.Disk != nil {
		w.must(n.Disk.Wipe())
	} else {
		w.must(os.RemoveAll(n.DataDir))
	}
	w.newArchive(n)
}

// with starts a node with one more flag, this time.
func (w *world) with(n *cluster.Node, flag string) {
	w.t.Helper()
	args := n.Args
	n.Args = append(slices.Clone(args), flag)
	w.must(n.Start())
	n.Args = args
}

// wipedDisk lets a node lose all it has. Started as it was it must not be let in,
// since it has forgotten its votes; it takes its place as a new member.
func (w *world) wipedDisk(i int) {
	n := w.c.Nodes[i]
	id := w.idOf(i)
	w.ended("wiped disk", []int{i}, func() {
		n.Kill9()
		w.wipe(i)
		w.must(n.Start())
		switch {
		case n.Joins:
			w.endsBy(n, 1, "member_exists")
		case w.reborn[i]: // as the member that it first was
			w.endsBy(n, 7, "this node was removed from the cluster")
		default:
			w.endsBy(n, 1, "as a new member")
		}
		w.wipe(i)
		n.Joins = true
		w.with(n, "--replace")
		w.voter(i, id)
	})
}

// lostTail takes the end of a node's log away, below what the node had promised. It
// must refuse to start, and comes back as a new member when it is told to.
func (w *world) lostTail(i int) {
	n := w.c.Nodes[i]
	id := w.idOf(i)
	w.ended("lost tail", []int{i}, func() {
		n.Kill9()
		segment, offset := w.noted(n)
		files, err := filepath.Glob(filepath.Join(n.DataDir, "log", "wal", fmt.Sprintf("%016x-*.wal", segment)))
		if err != nil || len(files) != 1 {
			w.t.Fatalf("segment %x of %s: %v, %v", segment, n.Name, files, err)
		}
		w.keepLog(n)
		w.must(os.Truncate(files[0], max(0, offset-1)))
		w.must(n.Start())
		w.endsBy(n, 1, "--recover=rejoin")
		w.newArchive(n)
		w.with(n, "--recover=rejoin")
		w.reborn[i] = true
		w.voter(i, id)
	})
}

// noted is how far a node's note says that its log was synced.
func (w *world) noted(n *cluster.Node) (segment uint64, offset int64) {
	w.t.Helper()
	b, err := os.ReadFile(filepath.Join(n.DataDir, "note"))
	if err != nil || len(b) < 4096+512 {
		w.t.Fatalf("the note of %s: %d bytes, %v", n.Name, len(b), err)
	}
	newest, le := uint64(0), enc.LittleEndian
	for _, slot := range [][]byte{b[:512], b[4096:]} {
		if sequence := le.Uint64(slot[8:]); sequence >= newest {
			newest, segment, offset = sequence, le.Uint64(slot[16:]), int64(le.Uint64(slot[24:]))
		}
	}
	return segment, offset
}

// TestMembersInTheSuite lets members come, go, lose their disks and be replaced
// under load, while another one is cut off: the leader as well.
func TestMembersInTheSuite(t *testing.T) {
	if suiteMode() == "" {
		t.Skip("part of make consistency-quick and longer ones")
	}
	w := layOutSpared(t, 3, 1)
	w.start()
	w.startLoad()
	done := 0
	step := func(what string, do func()) {
		begun := time.Now()
		w.load.await(100)
		do()
		w.heal()
		w.alive()
		done++
		t.Logf("%s: %v", what, time.Since(begun).Round(time.Millisecond))
	}
	// apart cuts a node off from the others while something is done that needs no
	// vote of it.
	apart := func(what string, i int, do func()) {
		if w.c.Net == nil {
			w.during(-1, false, what, do)
			return
		}
		w.during(i, false, fmt.Sprintf("partition: %s, while %s is cut off", what, w.c.Nodes[i].Name), func() {
			for _, j := range w.others(i) {
				w.cut(i, j)
				w.cut(j, i)
			}
			do()
			w.must(w.c.Net.Heal())
		})
	}
	for range byMode(1, 1, 1, 8) {
		spare := slices.IndexFunc(w.c.Nodes, func(n *cluster.Node) bool { return w.out[slices.Index(w.c.Nodes, n)] })
		step("join", func() {
			apart("join of "+w.c.Nodes[spare].Name, w.pick(w.others(w.leader())), func() { w.join(spare) })
		})
		step("remove the leader", func() {
			lead := w.leader()
			w.during(lead, true, "remove the leader "+w.c.Nodes[lead].Name, func() {
				w.remove(lead)
				w.removed(lead)
			})
		})
		spare = slices.IndexFunc(w.c.Nodes, func(n *cluster.Node) bool { return w.out[slices.Index(w.c.Nodes, n)] })
		step("join", func() { w.during(spare, false, "join of "+w.c.Nodes[spare].Name, func() { w.join(spare) }) })
		step("remove a follower", func() {
			order := w.rng.Perm(3)
			followers := w.others(w.leader())
			gone := followers[order[0]]
			apart("remove the follower "+w.c.Nodes[gone].Name, followers[order[1]], func() { w.remove(gone) })
			w.removed(gone)
		})
		step("wiped disk", func() { w.wipedDisk(w.pick(w.others())) })
		step("wiped disk of the leader", func() { w.wipedDisk(w.leader()) })
		step("lost tail", func() { w.lostTail(w.pick(w.others())) })
	}
	least := leastOf(done)
	least.Events = []string{"join", "remove the leader", "remove the follower", "wiped disk", "lost tail"}
	w.verdict(t.Name(), least)
}

// TestLostDisksBehindAnInstall takes from two nodes, one after the other, what the
// third never had: it came back by a snapshot. No node that is left has those entries,
// and nothing is judged without them: the suite must have kept the lost files.
func TestLostDisksBehindAnInstall(t *testing.T) {
	if suiteMode() == "" {
		t.Skip("part of make consistency-quick and longer ones")
	}
	w := newWorld(t, 3, "--segment-bytes", "8MiB") // so that none is released
	w.startLoad()
	w.load.await(300)
	snapshotInstall(w)
	installed := slices.IndexFunc(w.c.Nodes, func(n *cluster.Node) bool {
		return w.metric(slices.Index(w.c.Nodes, n), "raftq_snapshots_installed_total") > 0
	})
	rest := w.others(installed)
	w.lostTail(rest[0])
	w.wipedDisk(rest[1])
	w.heal()
	w.alive()
	w.verdict(t.Name(), check.Least{Ops: 300, Terms: 1, Chains: 3, Events: []string{"snapshot install", "lost tail", "wiped disk"}})
}
