package consistency

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"raftq/consistency/check"
)

// leastOf is what a run of so many faults must have done.
func leastOf(faults int) check.Least {
	return check.Least{
		Ops: 100 * faults, Terms: 1 + faults/4, Chains: 5 * faults, Jobs: 20 * faults,
		Kinds: map[check.Kind]int{check.Enqueue: 20 * faults, check.Dequeue: 20 * faults, check.Ack: 10 * faults, check.Nack: faults / 4, check.Release: faults / 5, check.Extend: faults / 5, check.Count: faults / 2,
			check.Reject: faults / 8, check.Peek: faults / 4, check.Show: faults / 4, check.Tx: 4 * faults, check.Append: 10 * faults, check.Read: 10 * faults,
			check.Commit: 2 * faults, check.Position: 2 * faults, check.Pause: faults, check.Redrive: faults / 4, check.Configure: 5, check.Fate: faults / 8, check.Purge: faults / 8,
			check.Hold: faults, check.Requeue: faults, check.Cancel: faults / 2},
		Appended: 20 * faults, Read: 20 * faults,
		Did: leastDid(faults),
	}
}

// leastDid is what must have happened in the log; a short run may miss what needs a
// coincidence.
func leastDid(faults int) map[string]int {
	if faults < 7 {
		return map[string]int{"tx": faults}
	}
	return map[string]int{"tx": 2 * faults, "tx aborted": faults / 4, "kept by a group": faults / 4, "kept by a pause": faults / 7, "refused by a pause": faults / 7,
		"held back by a pause": faults / 8, "dead letter": faults / 4, "redrive": faults / 8, "trimmed": faults,
		"attempt answered again": 2 * faults, "lost answer had again": faults, "attempt gave back alone": faults / 7, "refused by a unique key": faults, "purged": faults,
		"hold": faults, "requeue": faults, "cancel": faults / 2, "cancel of a lease": faults / 4}
}

// named picks faults by name.
func named(t *testing.T, names ...string) (list []fault) {
	t.Helper()
next:
	for _, name := range names {
		for _, f := range faults {
			if f.name == name {
				list = append(list, f)
				continue next
			}
		}
		t.Fatalf("no fault is called %q", name)
	}
	return list
}

// TestFaults runs the catalogue against three nodes under load, one fault after
// the other; the short form has some of each kind, the quick one draws some more.
func TestFaults(t *testing.T) {
	list := named(t, "kill the leader", "isolate the leader", "pause the leader", "nobody hears the leader", "kill all", "power cut of one", "snapshot install")
	events := []string{"kill -9", "pause", "isolate the leader", "one way", "snapshot install"}
	alone := []string{"power cut"} // of isolated nodes
	drawn := byMode(0, 12, 0, 0)
	if m := suiteMode(); m == "normal" || m == "long" {
		list = faults
		events = append(events, "transfers", "which lags", "cut answers")
		alone = append(alone, "failed write", "slow disk", "stuck disk of the leader", "stuck disk of the follower", "wiped disk", "lost tail")
	}
	if names := os.Getenv("RAFTQ_CONSISTENCY_FAULTS"); names != "" {
		list, events, alone, drawn = named(t, strings.Split(names, ",")...), nil, nil, 0
	}
	eachRound(t, byMode(1, 1, 1, 12), func(t *testing.T) {
		w := newWorld(t, 3)
		w.startLoad()
		list := slices.Clone(list)
		for _, i := range w.rng.Perm(len(faults))[:drawn] {
			list = append(list, faults[i])
		}
		for _, i := range w.rng.Perm(len(list)) {
			w.inject(list[i])
		}
		least := leastOf(len(list))
		least.Events, least.Windows = events, 3
		if w.c.Net != nil {
			least.Events = append(slices.Clip(events), alone...)
		}
		w.verdict(t.Name(), least)
	})
}

// eachRound runs rounds, each on a cluster of its own.
func eachRound(t *testing.T, rounds int, do func(*testing.T)) {
	for i := range rounds {
		t.Run(fmt.Sprintf("round %d", i+1), do)
	}
}

// TestFaultsOfFive does the same to five nodes, where majorities can overlap in
// more than one way.
func TestFaultsOfFive(t *testing.T) {
	if suiteMode() == "" {
		t.Skip("part of make consistency-quick and longer ones")
	}
	list := named(t, "ring", "bridge", "minority and majority", "kill a majority", "pause a majority", "power cut of all", "kill the leader")
	eachRound(t, byMode(1, 1, 1, 12), func(t *testing.T) {
		w := newWorld(t, 5)
		w.startLoad()
		for _, i := range w.rng.Perm(len(list)) {
			w.inject(list[i])
		}
		least := leastOf(len(list))
		least.Events, least.Windows = []string{"ring", "bridge", "kill -9"}, 3
		w.verdict(t.Name(), least)
	})
}

// TestMixedFaults does several things at a time.
func TestMixedFaults(t *testing.T) {
	if suiteMode() == "" {
		t.Skip("part of make consistency-quick and longer ones")
	}
	w := newWorld(t, 3)
	w.startLoad()
	rounds := byMode(1, 2, 6, 60)
	for range rounds {
		w.load.await(200)
		a := w.pick(w.others())
		cutOff := w.pick(w.others(a))
		w.during(-1, false, "partition under a mix", func() {
			for _, i := range w.others(cutOff) {
				if w.rng.IntN(3) > 0 {
					w.cut(i, cutOff)
				}
				if w.rng.IntN(3) > 0 {
					w.cut(cutOff, i)
				}
			}
			switch {
			case w.rng.IntN(2) == 0:
				w.pause(a)
			case w.c.Net != nil && w.rng.IntN(2) == 0:
				w.powerCut(a)
			default:
				w.kill(a)
			}
			if w.rng.IntN(2) == 0 {
				w.kill(w.leaderOr(a))
			}
			w.hold(200*time.Millisecond, time.Second)
		})
		w.heal()
		w.alive()
	}
	least := leastOf(rounds)
	least.Terms = 1 + rounds/4
	w.verdict(t.Name(), least)
}

// leaderOr is who led last, as any node remembers it; else a given node.
func (w *world) leaderOr(node int) int {
	for i := range w.c.Nodes {
		if !w.c.Nodes[i].Running() {
			continue
		}
		if w.metric(i, "raftq_raft_is_leader") == 1 {
			return i
		}
	}
	return node
}

// The faults below are those on which NATS JetStream 2.12 lost acknowledged
// messages when Jepsen tested it.

// TestDamagedFilesOnAMinority flips single bits and truncates files of the log and
// of snapshots on one node of three, again and again.
func TestDamagedFilesOnAMinority(t *testing.T) {
	w := newWorld(t, 3)
	w.startLoad()
	list := named(t, "bit flip in the log", "truncated log", "bit flip in a snapshot", "truncated snapshot")
	for range byMode(1, 2, 4, 20) {
		for _, f := range list {
			w.inject(f)
		}
	}
	least := leastOf(len(list))
	least.Events, least.Terms = []string{"flipped", "truncated"}, 1
	w.verdict(t.Name(), least)
}

// TestCoordinatedPowerCut cuts the power of all nodes at one moment, round after
// round.
func TestCoordinatedPowerCut(t *testing.T) {
	w := newWorldOfDisks(t, 3)
	w.startLoad()
	rounds := byMode(1, 2, 5, 20)
	for range rounds {
		w.load.await(300)
		w.inject(named(t, "power cut of all")[0])
	}
	least := leastOf(rounds)
	least.Events, least.Terms = []string{"power cut"}, 2
	w.verdict(t.Name(), least)
}

// TestPowerCutOfThePivot cuts one node off, lets the other two go on, and then
// cuts the power of the one that both majorities share, while the third is paused:
// what was answered lives on in that one's synced log alone.
func TestPowerCutOfThePivot(t *testing.T) {
	w := newWorldOfDisks(t, 3)
	w.startLoad()
	rounds := byMode(1, 2, 4, 20)
	for range rounds {
		w.load.await(100)
		order := w.rng.Perm(3)
		cutOff, pivot, paused := order[0], order[1], order[2]
		w.split("before a power cut", []int{cutOff}, []int{pivot, paused})
		w.load.await(100)
		w.during(paused, false, "pause of "+w.c.Nodes[paused].Name, func() {
			w.must(w.c.Nodes[paused].Signal(stop))
			w.powerCut(pivot)
			w.must(w.c.Net.Heal())
			w.must(w.c.Nodes[pivot].Start())
			// The majority is the node that missed it all and the one without power.
			c := w.newClient(-1, cutOff)
			w.eventually(20*time.Second, "a majority of the cut-off node and the pivot", func() bool {
				return c.enqueue("alive", []check.Job{{Body: w.load.body(), Priority: -1}}, false, "").Outcome == check.OK
			})
			w.hold(500*time.Millisecond, 1500*time.Millisecond)
		})
		w.heal()
		w.alive()
	}
	least := leastOf(rounds)
	least.Events, least.Terms = []string{"power cut", "pause", "partition"}, 2
	w.verdict(t.Name(), least)
}
