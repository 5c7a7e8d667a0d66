package consistency

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
	"time"

	"raftq/consistency/check"
)

// TestSnapshotSpoiledOnItsWay flips a bit of the snapshots that a node is sent which
// is far behind: it must refuse each, and take the first whole one.
func TestSnapshotSpoiledOnItsWay(t *testing.T) {
	t.Setenv("RAFTQ_PLAIN", "1") // the proxies of plain processes see what the nodes send
	w := newWorld(t, 3)
	w.startLoad()
	rounds := byMode(1, 1, 2, 10)
	for range rounds {
		w.load.await(100)
		down := w.pick(w.others(w.leader()))
		n := w.c.Nodes[down]
		w.ended("stop for a spoiled snapshot", []int{down}, func() { w.leaveBehind(down) })
		size, err := os.Stat(n.LogFile)
		w.must(err)
		from, wanted := w.rec.Now(), 1+w.rng.IntN(2)
		// Behind the heads of the request and of the message, where the file is.
		at := func() int { return 1000 + w.rng.IntN(w.smallestSnapshot(w.others(down))-1000) }
		w.links.mu.Lock()
		w.links.spoiled, w.links.spoil = 0, at
		w.links.mu.Unlock()
		w.must(n.Start())
		w.eventually(30*time.Second, "a snapshot that is spoiled on its way", func() bool {
			w.links.mu.Lock()
			defer w.links.mu.Unlock()
			if w.links.spoiled >= wanted {
				w.links.spoil = nil
			}
			return w.links.spoil == nil
		})
		w.eventually(30*time.Second, "an installed snapshot", func() bool { return w.metric(down, "raftq_snapshots_installed_total") > 0 })
		text, err := os.ReadFile(n.LogFile)
		w.must(err)
		if refused := bytes.Count(text[size.Size():], []byte("received snapshot refused")); refused < wanted {
			t.Errorf("%d snapshots were spoiled, and %d refused", wanted, refused)
		}
		w.rec.Event(check.Event{From: from, Node: down, What: "spoiled snapshot"})
		w.alive()
	}
	least := leastOf(rounds)
	least.Events, least.Terms = []string{"spoiled snapshot"}, 1
	w.verdict(t.Name(), least)
}

// smallestSnapshot is the size of the smallest snapshot that some nodes have.
func (w *world) smallestSnapshot(nodes []int) (size int) {
	for _, i := range nodes {
		files, err := filepath.Glob(filepath.Join(w.c.Nodes[i].DataDir, "log", "snap", "*.db"))
		if err != nil {
			panic(err) // the pattern
		}
		for _, path := range files {
			if info, err := os.Stat(path); err == nil && (size == 0 || int(info.Size()) < size) { // it may be gone
				size = int(info.Size())
			}
		}
	}
	return max(size, 1001)
}
