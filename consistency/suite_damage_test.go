package consistency

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"raftq/consistency/check"
)

// damage stops a node, damages a file of its log or its newest snapshot, and
// starts it. It may take the file (what was hit was not needed, or it could be
// told and done without), or refuse it with a clear error. Never may it serve what
// was damaged: that is the checkers' to see. One that refuses gets its file back,
// since nothing was promised on the damaged one.
func (w *world) damage(i int, kind string, how func(w *world, b []byte) ([]byte, string)) {
	n := w.c.Nodes[i]
	w.ended("kill -9 before damage", []int{i}, func() { n.Kill9() })
	pattern := filepath.Join(n.DataDir, "log", "wal", "*.wal")
	if kind == "snapshot" {
		pattern = filepath.Join(n.DataDir, "log", "snap", "*.db")
	}
	files, err := filepath.Glob(pattern)
	w.must(err)
	if len(files) == 0 {
		w.t.Fatalf("%s has no %s", n.Name, kind)
	}
	path := files[len(files)-1]
	if kind == "log" {
		path = files[w.rng.IntN(len(files))]
	}
	good, err := os.ReadFile(path)
	w.must(err)
	bad, what := how(w, slices.Clone(good))
	w.must(os.WriteFile(path, bad, 0o600))
	what = fmt.Sprintf("damage: %s of %s of %s", what, filepath.Base(path), n.Name)
	from := w.rec.Now()
	w.must(n.Start())
	refused := false
	w.eventually(15*time.Second, "a node with a damaged file serves or ends", func() bool {
		refused = !n.Running()
		return refused || w.metric(i, "raftq_raft_applied_index") > 0
	})
	if refused {
		text, err := os.ReadFile(n.LogFile)
		w.must(err)
		end := string(text[max(0, len(text)-3000):])
		if !strings.Contains(end, filepath.Base(path)) && !strings.Contains(end, "lost") && !strings.Contains(end, "snapshot") {
			w.t.Errorf("%s ended after %s, but does not say why:\n%s", n.Name, what, end)
		}
		w.must(os.WriteFile(path, good, 0o600))
		w.must(n.Start())
	} else {
		w.damaged[i] = true
	}
	w.rec.Event(check.Event{From: from, Node: i, What: fmt.Sprintf("%s (refused: %v)", what, refused)})
}

// used is how many bytes of a file hold something: behind it are zeros for
// records to come, where damage shows nothing.
func used(b []byte) int {
	n := len(b)
	for n > 0 && b[n-1] == 0 {
		n--
	}
	return n
}

func flip(w *world, b []byte) ([]byte, string) {
	at := w.rng.IntN(max(1, used(b)))
	bit := w.rng.IntN(8)
	b[at] ^= 1 << bit
	return b, fmt.Sprintf("bit %d of byte %d flipped", bit, at)
}

func truncate(w *world, b []byte) ([]byte, string) {
	n := w.rng.IntN(max(1, used(b)))
	return b[:n], fmt.Sprintf("truncated from %d to %d bytes", len(b), n)
}

// oldBackup puts an older copy of a node's disk in place of it. The node has since
// voted and answered with what the copy does not have: it must find out and end.
func oldBackup(w *world) {
	i := w.pick(w.others(w.leader()))
	n := w.c.Nodes[i]
	w.ended("old backup", []int{i}, func() {
		n.Kill9()
		old, err := n.Disk.Backup()
		w.must(err)
		w.must(n.Start())
		w.eventually(20*time.Second, "a node that serves again", func() bool { return w.metric(i, "raftq_raft_applied_index") > 0 })
		w.load.await(200)
		n.Kill9()
		// The copy of now, to go on with.
		now, err := n.Disk.Save()
		w.must(err)
		w.must(n.Disk.Restore(old))
		w.must(n.Start())
		w.eventually(20*time.Second, "a node on an old backup ends", func() bool { return !n.Running() })
		w.must(n.Disk.Restore(now))
	})
}
