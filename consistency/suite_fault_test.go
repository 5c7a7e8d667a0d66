package consistency

import (
	"fmt"
	"slices"
	"strings"
	"syscall"
	"time"

	"raftq/consistency/check"
)

const stop = syscall.SIGSTOP

// fault is one thing that is done to a cluster under load. It heals by itself;
// liveness is asked for afterwards (world.inject).
type fault struct {
	name     string
	isolated bool // needs isolated nodes
	do       func(w *world)
}

// faults is the catalogue.
var faults = []fault{
	{"kill the leader", false, func(w *world) { w.kill(w.leader()) }},
	{"kill a follower", false, func(w *world) { w.kill(w.pick(w.others(w.leader()))) }},
	{"kill a majority", false, func(w *world) { w.kill(w.some(len(w.c.Nodes)/2 + 1)...) }},
	{"kill all", false, func(w *world) { w.kill(w.others()...) }},
	{"pause the leader", false, func(w *world) { w.pause(w.leader()) }},
	{"pause a follower", false, func(w *world) { w.pause(w.pick(w.others(w.leader()))) }},
	{"pause a majority", false, func(w *world) { w.pause(w.some(len(w.c.Nodes)/2 + 1)...) }},
	{"isolate the leader", false, func(w *world) { w.split("isolate the leader", []int{w.leader()}, w.others(w.leader())) }},
	{"isolate a follower", false, func(w *world) {
		i := w.pick(w.others(w.leader()))
		w.split("isolate a follower", []int{i}, w.others(i))
	}},
	{"minority and majority", false, func(w *world) {
		some := w.some(len(w.c.Nodes) / 2)
		w.split("minority and majority", some, w.others(some...))
	}},
	{"nobody hears the leader", false, func(w *world) { w.oneWay(true) }},
	{"the leader hears nobody", false, func(w *world) { w.oneWay(false) }},
	{"bridge", false, bridge},
	{"ring", false, ring},
	{"lost packets", true, lostPackets},
	{"slow link", true, slowLink},
	{"transfers", false, transfers},
	{"transfer to a lagging node", false, lateTransfer},
	{"cut answers", false, cutAnswers},
	{"snapshot install", false, snapshotInstall},
	{"full disk", true, fullDisk},
	{"power cut of one", true, func(w *world) { w.powerCut(w.pick(w.others())) }},
	{"power cut of the leader", true, func(w *world) { w.powerCut(w.leader()) }},
	{"power cut of all", true, func(w *world) { w.powerCut(w.others()...) }},
	{"bit flip in the log", false, func(w *world) { w.damage(w.pick(w.others()), "log", flip) }},
	{"truncated log", false, func(w *world) { w.damage(w.pick(w.others()), "log", truncate) }},
	{"bit flip in a snapshot", false, func(w *world) { w.damage(w.pick(w.others()), "snapshot", flip) }},
	{"truncated snapshot", false, func(w *world) { w.damage(w.pick(w.others()), "snapshot", truncate) }},
	{"old backup", true, oldBackup},
	{"wiped disk", true, func(w *world) { w.wipedDisk(w.pick(w.others())) }},
	{"lost tail", true, func(w *world) { w.lostTail(w.pick(w.others())) }},
	{"failed write", true, func(w *world) { w.failedWrite(w.pick(w.others())) }},
	{"failed write of the leader", true, func(w *world) { w.failedWrite(w.leader()) }},
	{"slow disk", true, slowDisk},
	{"stuck disk of the leader", true, stuckLeader},
	{"stuck disk of a follower", true, stuckFollower},
}

// inject does something, notes it, heals, and demands liveness.
func (w *world) inject(f fault) {
	w.t.Helper()
	if f.isolated && w.c.Net == nil {
		return
	}
	begun := time.Now()
	w.load.await(100)
	f.do(w)
	w.heal()
	w.alive()
	w.t.Logf("%s: %v", f.name, time.Since(begun).Round(time.Millisecond))
}

// during notes an event around what it calls.
func (w *world) during(node int, ended bool, what string, do func()) {
	from := w.rec.Now()
	do()
	w.rec.Event(check.Event{From: from, Node: node, What: what, Ended: ended})
}

// hold lets a fault last.
func (w *world) hold(least, most time.Duration) {
	select {
	case <-time.After(least + time.Duration(w.rng.Int64N(int64(most-least)+1))):
	case <-w.ctx.Done():
	}
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) pick(from []int) int { return from[w.rng.IntN(len(from))] }

// some picks n nodes.
func (w *world) some(n int) []int {
	all := w.rng.Perm(len(w.c.Nodes))[:n]
	slices.Sort(all)
	return all
}

// cut drops what one node sends to another.
func (w *world) cut(from, to int) {
	if w.c.Net != nil {
		w.must(w.c.Net.Cut(from, to))
		return
	}
	w.links.cutLink(from, to)
}

func (w *world) heal() {
	if w.c.Net != nil {
		w.must(w.c.Net.Heal())
	} else {
		w.links.heal()
	}
	for i, n := range w.c.Nodes {
		w.must(n.Signal(syscall.SIGCONT))
		if n.Disk != nil {
			w.must(n.Disk.Thaw())
			w.must(n.Disk.Feed())
			w.must(n.Disk.Free())
		}
		if !w.out[i] && !n.Running() {
			w.must(n.Start())
		}
	}
}

func (w *world) names(nodes []int) string {
	var all []string
	for _, i := range nodes {
		all = append(all, w.c.Nodes[i].Name)
	}
	return strings.Join(all, ", ")
}

// kill ends nodes at one moment; they come back after a while.
func (w *world) kill(nodes ...int) {
	for _, i := range nodes {
		w.must(w.c.Nodes[i].Signal(syscall.SIGKILL))
	}
	w.ended("kill -9", nodes, func() {
		for _, i := range nodes {
			w.c.Nodes[i].Kill9()
		}
		w.hold(0, 1500*time.Millisecond)
	})
}

// ended notes that processes ended.
func (w *world) ended(what string, nodes []int, do func()) {
	from := w.rec.Now()
	do()
	for _, i := range nodes {
		w.rec.Event(check.Event{From: from, Node: i, What: fmt.Sprintf("%s of %s", what, w.c.Nodes[i].Name), Ended: true})
	}
}

// pause stops processes for longer than an election takes.
func (w *world) pause(nodes ...int) {
	w.during(nodes[0], false, "pause of "+w.names(nodes), func() {
		for _, i := range nodes {
			w.must(w.c.Nodes[i].Signal(syscall.SIGSTOP))
		}
		w.hold(500*time.Millisecond, 3*time.Second)
		for _, i := range nodes {
			w.must(w.c.Nodes[i].Signal(syscall.SIGCONT))
		}
	})
}

// split cuts all links between two groups.
func (w *world) split(what string, a, b []int) {
	w.during(-1, false, fmt.Sprintf("partition: %s (%s | %s)", what, w.names(a), w.names(b)), func() {
		for _, x := range a {
			for _, y := range b {
				w.cut(x, y)
				w.cut(y, x)
			}
		}
		w.hold(1500*time.Millisecond, 3*time.Second)
	})
}

// oneWay cuts what the leader sends, or what it would hear.
func (w *world) oneWay(sends bool) {
	l := w.leader()
	w.during(l, false, fmt.Sprintf("partition: one way, the leader %s cannot %s", w.c.Nodes[l].Name, map[bool]string{true: "send", false: "hear"}[sends]), func() {
		for _, i := range w.others(l) {
			if sends {
				w.cut(l, i)
			} else {
				w.cut(i, l)
			}
		}
		w.hold(2*time.Second, 4*time.Second)
	})
}

// bridge: one node reaches all, the others are two groups that do not reach each
// other.
func bridge(w *world) {
	order := w.rng.Perm(len(w.c.Nodes))
	half := (len(order) - 1) / 2
	w.split(fmt.Sprintf("bridge %s", w.c.Nodes[order[0]].Name), order[1:1+half], order[1+half:])
}

// ring: every node reaches a majority, and no two the same one. It takes five.
func ring(w *world) {
	n := len(w.c.Nodes)
	if n < 5 {
		return
	}
	order := w.rng.Perm(n)
	w.during(-1, false, "partition: ring", func() {
		for i := range n {
			for d := n/2 - n/4 + 1; d <= n/2; d++ {
				w.cut(order[i], order[(i+d)%n])
				w.cut(order[(i+d)%n], order[i])
			}
		}
		w.hold(2*time.Second, 3*time.Second)
	})
}

func lostPackets(w *world) {
	if !w.c.Net.CanLose() {
		w.t.Log("no iptables here, so no lost packets")
		return
	}
	part := []float64{0.02, 0.1, 0.3}[w.rng.IntN(3)]
	w.during(-1, false, fmt.Sprintf("loss of %.0f %% of the packets", part*100), func() {
		for i := range w.c.Nodes {
			w.must(w.c.Net.Loss(i, part))
		}
		w.hold(2*time.Second, 4*time.Second)
	})
}

func slowLink(w *world) {
	i := w.pick(w.others())
	w.during(i, false, "slow link of "+w.c.Nodes[i].Name, func() {
		w.must(w.c.Net.Slow(i, 128+w.rng.IntN(512)))
		w.hold(2*time.Second, 3*time.Second)
	})
}

// transfers moves leadership about. Who leads may change at any moment, so a
// refusal is no failure; a term that does not move at all is (least.Terms).
func transfers(w *world) {
	w.during(-1, false, "transfers of leadership", func() {
		for range byMode(3, 5, 5, 10) {
			w.transfer(w.pick(w.others(w.leader())))
			w.hold(500*time.Millisecond, time.Second)
		}
	})
}

func (w *world) transfer(to int) (status int) {
	w.t.Helper()
	a, err := newSuiteHTTP().do(w.ctx, "POST", "http://"+w.c.Nodes[w.leader()].Client+"/v1/cluster/transfer-leader?timeout=2s",
		[]byte(fmt.Sprintf(`{"to":%q}`, w.c.Nodes[to].Name)), map[string]string{"Content-Type": "application/json"})
	if err == nil && a.status == 422 {
		w.t.Fatalf("transfer-leader: %s", a.body)
	}
	return a.status
}

// lateTransfer moves leadership to a node that has just been paused and lacks what
// was done meanwhile. It leads at last, or the transfer is refused or given up; the
// node that leads takes writes again either way (world.alive).
func lateTransfer(w *world) {
	lead := w.leader()
	to := w.pick(w.others(lead))
	n := w.c.Nodes[to]
	w.during(to, false, "transfer of leadership to "+n.Name+", which lags", func() {
		at := w.metric(to, "raftq_raft_applied_index")
		w.must(n.Signal(stop))
		w.eventually(20*time.Second, "a node that lags", func() bool { return w.metric(lead, "raftq_raft_commit_index") > at+200 })
		w.must(n.Signal(syscall.SIGCONT))
		status := w.transfer(to)
		w.t.Logf("transfer to %s, 200 entries behind: status %d", n.Name, status)
	})
}

// snapshotInstall stops a follower until the others' logs begin behind what it
// has: it must come back by a snapshot.
func snapshotInstall(w *world) {
	down := w.pick(w.others(w.leader()))
	w.ended("stop for a snapshot install", []int{down}, func() {
		w.leaveBehind(down)
		w.must(w.c.Nodes[down].Start())
		w.eventually(30*time.Second, "an installed snapshot", func() bool { return w.metric(down, "raftq_snapshots_installed_total") > 0 })
	})
}

// leaveBehind stops a node until the others' logs begin behind what it has.
func (w *world) leaveBehind(down int) {
	w.t.Helper()
	w.c.Nodes[down].Kill9()
	at := 0.0 // it cannot have more than the leader has, or not for long
	for _, i := range w.others(down) {
		at = max(at, w.metric(i, "raftq_raft_applied_index"))
	}
	w.eventually(60*time.Second, "compacted logs", func() bool {
		for _, i := range w.others(down) {
			if w.metric(i, "raftq_log_first_index") <= at+50 {
				return false
			}
		}
		return true
	})
}

// fullDisk fills a node's disk under load. The node refuses new jobs, or ends
// because its log cannot be written; either way nothing is lost and it comes back.
func fullDisk(w *world) {
	i := w.pick(w.others())
	w.withoutRoom("full disk", []int{i}, func() {
		w.must(w.c.Nodes[i].Disk.Fill(int64(w.rng.IntN(4)) << 16))
		w.hold(1500*time.Millisecond, 3*time.Second)
	})
}

// withoutRoom fills disks, gives them room again, and starts their nodes anew. Most
// have ended by then and must say why. The others are killed: one that was refused a
// write may come to know it seconds after there is room again, and would end then.
func (w *world) withoutRoom(what string, nodes []int, fill func()) {
	from := w.rec.Now()
	fill()
	for _, i := range nodes {
		n := w.c.Nodes[i]
		ended := !n.Running()
		w.t.Logf("%s of %s: its process ended: %v", what, n.Name, ended)
		if text := w.tailOf(i); ended && !strings.Contains(text, "no space left on device") {
			w.t.Errorf("%s ended on a full disk and does not say why:\n%s", n.Name, text)
		}
		n.Kill9()
		w.must(n.Disk.Free())
		w.must(n.Start())
		w.rec.Event(check.Event{From: from, Node: i, What: fmt.Sprintf("%s of %s (its process ended: %v)", what, n.Name, ended), Ended: true})
	}
}

// powerCut cuts the power of nodes at one moment.
func (w *world) powerCut(nodes ...int) {
	if len(nodes) <= len(w.c.Nodes)/2 {
		w.cutPower(nodes)
		return
	}
	w.load.lastOfWindow(func() {
		from := w.rec.Now()
		w.cutPower(nodes)
		w.rec.Event(check.Event{From: from, Node: -1, What: "a majority without power", Reboot: true})
	})
}

func (w *world) cutPower(nodes []int) {
	w.ended("power cut", nodes, func() {
		lost, err := w.c.PowerCut(nodes...)
		w.must(err)
		if slices.Contains(lost, false) {
			w.t.Errorf("a power cut of %s lost nothing that was not synced: %v", w.names(nodes), lost)
		}
		w.hold(0, time.Second)
	})
}
