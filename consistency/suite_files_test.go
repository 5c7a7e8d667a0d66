package consistency

import (
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"raftq/consistency/check"
	"raftq/consistency/faultfs"
)

// fileFault is a call on a node's files that fails.
type fileFault struct {
	faultfs.Fault        // its path is below the data directory
	skip          int    // Skip is drawn below it
	starting      bool   // when the node starts, else while it serves
	ends          string // what a node says that must end, "" = it may go on
}

const unusable = "the log is unusable; the process must end"

// fileFaults are the calls that a node makes on its files, each with an error of a
// disk. A failed fsync comes once, as the kernel gives it. A full disk stays full, and
// what cannot be read or written stays so: the kernel cuts a write into pages, and
// tries reads again.
var fileFaults = []fileFault{
	{Fault: faultfs.Fault{Op: faultfs.Write, Path: "log/wal/*.wal", Errno: syscall.EIO, Lasts: true}, skip: 50, ends: unusable},
	{Fault: faultfs.Fault{Op: faultfs.Write, Path: "log/wal/*.wal", Errno: syscall.ENOSPC, Short: true, Lasts: true}, skip: 50, ends: unusable},
	{Fault: faultfs.Fault{Op: faultfs.Sync, Path: "log/wal/*.wal", Errno: syscall.EIO}, skip: 50, ends: unusable},
	{Fault: faultfs.Fault{Op: faultfs.Create, Path: "log/wal/*.tmp", Errno: syscall.EIO}, ends: unusable},
	{Fault: faultfs.Fault{Op: faultfs.Write, Path: "log/wal/*.tmp", Errno: syscall.ENOSPC, Lasts: true}, ends: unusable},
	{Fault: faultfs.Fault{Op: faultfs.Sync, Path: "log/wal/*.tmp", Errno: syscall.EIO}, ends: unusable},
	{Fault: faultfs.Fault{Op: faultfs.Rename, Path: "log/wal/*.wal", Errno: syscall.EIO}, ends: unusable},
	{Fault: faultfs.Fault{Op: faultfs.SyncDir, Path: "log/wal", Errno: syscall.EIO}, ends: "input/output error"},
	{Fault: faultfs.Fault{Op: faultfs.Read, Path: "log/wal/*.wal", Errno: syscall.EIO, Lasts: true}, ends: "input/output error"}, // of a segment that is let go
	{Fault: faultfs.Fault{Op: faultfs.Remove, Path: "log/wal/*.wal", Errno: syscall.EIO}, ends: "input/output error"},
	{Fault: faultfs.Fault{Op: faultfs.Write, Path: "note", Errno: syscall.EIO, Lasts: true}, skip: 20, ends: unusable},
	{Fault: faultfs.Fault{Op: faultfs.Create, Path: "log/snap/*", Errno: syscall.ENOSPC, Lasts: true}},
	{Fault: faultfs.Fault{Op: faultfs.Write, Path: "log/snap/*", Errno: syscall.ENOSPC, Short: true, Lasts: true}, skip: 3},
	{Fault: faultfs.Fault{Op: faultfs.Sync, Path: "log/snap/*", Errno: syscall.EIO}},
	{Fault: faultfs.Fault{Op: faultfs.Rename, Path: "log/snap/*.db", Errno: syscall.EIO}},
	{Fault: faultfs.Fault{Op: faultfs.SyncDir, Path: "log/snap", Errno: syscall.EIO}},
	{Fault: faultfs.Fault{Op: faultfs.Remove, Path: "log/snap/*", Errno: syscall.EIO}},
	{Fault: faultfs.Fault{Op: faultfs.List, Path: "log/snap", Errno: syscall.EIO, Lasts: true}},

	{Fault: faultfs.Fault{Op: faultfs.List, Path: "log/wal", Errno: syscall.EIO, Lasts: true}, starting: true, ends: "input/output error"},
	{Fault: faultfs.Fault{Op: faultfs.Open, Path: "log/wal/*.wal", Errno: syscall.EIO}, skip: 2, starting: true, ends: "input/output error"},
	{Fault: faultfs.Fault{Op: faultfs.Read, Path: "log/wal/*.wal", Errno: syscall.EIO, Lasts: true}, skip: 2, starting: true, ends: "input/output error"},
	{Fault: faultfs.Fault{Op: faultfs.Sync, Path: "log/wal/*.wal", Errno: syscall.EIO}, starting: true, ends: "input/output error"},
	{Fault: faultfs.Fault{Op: faultfs.Open, Path: "note", Errno: syscall.EIO, Lasts: true}, starting: true, ends: "input/output error"},
	{Fault: faultfs.Fault{Op: faultfs.Read, Path: "note", Errno: syscall.EIO, Lasts: true}, starting: true, ends: "input/output error"},
	{Fault: faultfs.Fault{Op: faultfs.Read, Path: "boot", Errno: syscall.EIO, Lasts: true}, starting: true, ends: "input/output error"},
	{Fault: faultfs.Fault{Op: faultfs.Create, Path: "boot.tmp", Errno: syscall.ENOSPC, Lasts: true}, starting: true, ends: "no space left"},
	{Fault: faultfs.Fault{Op: faultfs.Sync, Path: "boot.tmp", Errno: syscall.EIO}, starting: true, ends: "input/output error"},
	{Fault: faultfs.Fault{Op: faultfs.Rename, Path: "boot", Errno: syscall.EIO}, starting: true, ends: "input/output error"},
	{Fault: faultfs.Fault{Op: faultfs.SyncDir, Path: ".", Errno: syscall.EIO}, starting: true, ends: "input/output error"},
	{Fault: faultfs.Fault{Op: faultfs.List, Path: "log/snap", Errno: syscall.EIO, Lasts: true}, starting: true, ends: "input/output error"},
	{Fault: faultfs.Fault{Op: faultfs.Open, Path: "log/snap/*.db", Errno: syscall.EIO, Lasts: true}, starting: true, ends: "input/output error"},
	{Fault: faultfs.Fault{Op: faultfs.Read, Path: "log/snap/*.db", Errno: syscall.EIO, Lasts: true}, starting: true, ends: "input/output error"},
}

// files is a world whose nodes have file systems that the test serves.
type files struct {
	*world
	fs   []*faultfs.FS
	lost faultfs.Lost // by all power cuts
}

func newWorldOfFiles(t *testing.T, nodes int) *files {
	t.Helper()
	if err := faultfs.CanMount(); err != nil {
		t.Skip(err)
	}
	w := &files{world: layOutWorld(t, nodes)}
	t.Cleanup(func() {
		for i, s := range w.fs {
			w.c.Nodes[i].Kill9()
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		}
	})
	for i, n := range w.c.Nodes {
		s, err := faultfs.Mount(filepath.Join(w.c.Dir(), n.Name+".files"), w.seed+uint64(i))
		w.must(err)
		w.fs = append(w.fs, s)
		n.DataDir = filepath.Join(s.Dir(), "data")
	}
	w.start()
	return w
}

// fail lets a call of a node fail. What must end ends and says why; what goes on
// serves. Then, at times, what was not synced is lost as well.
func (w *files) fail(i int, f fileFault) {
	n, s := w.c.Nodes[i], w.fs[i]
	what := fmt.Sprintf("%s, of %s", f.Fault, n.Name)
	begun, from := time.Now(), w.rec.Now()
	if f.starting {
		w.ended("kill -9 before a start that fails", []int{i}, func() { n.Kill9() })
	}
	f.Path = filepath.Join("data", f.Path)
	f.Skip = w.rng.IntN(max(1, f.skip))
	fired := s.Arm(f.Fault)
	if f.starting {
		w.must(n.Start())
	}
	w.eventually(30*time.Second, what, func() bool {
		select {
		case <-fired:
			return true
		default:
			return f.starting && !n.Running()
		}
	})
	if f.ends != "" {
		w.endsBy(n, 1, f.ends)
	} else {
		w.load.await(50)
	}
	ended := !n.Running()
	s.Heal()
	if ended {
		w.rec.Event(check.Event{From: from, Node: i, What: what + ": its process ended", Ended: true})
		if err := n.Wait(w.ctx); err == nil || !saysOf(err, f.Errno) {
			w.t.Errorf("%s ended after %s, but does not say why: %v", n.Name, what, err)
		}
	} else {
		w.rec.Event(check.Event{From: from, Node: i, What: what})
	}
	if ended && w.rng.IntN(2) == 0 {
		w.tornCut(i)
	}
	if !n.Running() {
		w.must(n.Start())
	}
	w.serves(i)
	w.alive()
	w.t.Logf("%s: ended %v, %v", what, ended, time.Since(begun).Round(time.Millisecond))
}

// saysOf tells whether a process's end names the error.
func saysOf(end error, e syscall.Errno) bool {
	var exit *exec.ExitError
	return errors.As(end, &exit) && exit.ExitCode() == 1 && strings.Contains(end.Error(), e.Error())
}

// tornCut cuts the power of nodes at one moment: of the blocks that each has not
// synced an arbitrary part gets to its disk, and of the changes of names the older
// ones.
func (w *files) tornCut(nodes ...int) {
	cut := func() {
		w.ended("torn power cut", nodes, func() {
			for _, i := range nodes {
				w.must(w.c.Nodes[i].Signal(syscall.SIGSTOP))
			}
			for _, i := range nodes {
				w.c.Nodes[i].Kill9()
			}
			for _, i := range nodes {
				l, err := w.fs[i].PowerCut(w.rng, []float64{0.1, 0.5, 0.9, 1}[w.rng.IntN(4)])
				w.must(err)
				w.t.Logf("%s lost %+v", w.c.Nodes[i].Name, l)
				w.lost.Blocks += l.Blocks
				w.lost.Kept += l.Kept
				w.lost.Sizes += l.Sizes
				w.lost.Names += l.Names
			}
		})
	}
	if len(nodes) <= len(w.c.Nodes)/2 {
		cut()
	} else {
		w.load.lastOfWindow(func() {
			from := w.rec.Now()
			cut()
			w.rec.Event(check.Event{From: from, Node: -1, What: "a majority without power", Reboot: true})
		})
	}
}

// TestFailingFiles lets each call that a node makes on its files fail.
func TestFailingFiles(t *testing.T) {
	drawn := byMode(3, 4, 12, len(fileFaults))
	eachRound(t, byMode(1, 1, 1, 3), func(t *testing.T) {
		w := newWorldOfFiles(t, 3)
		w.startLoad()
		for _, k := range w.rng.Perm(len(fileFaults))[:drawn] {
			w.load.await(100)
			w.fail(w.pick(w.others()), fileFaults[k])
		}
		least := leastOf(drawn)
		least.Terms = 1
		w.verdict(t.Name(), least)
	})
}

// TestTornPowerCut cuts the power of one node, of most, and of all, so that parts of
// what was not synced are there and parts are not.
func TestTornPowerCut(t *testing.T) {
	rounds := byMode(2, 2, 8, 60)
	tornCuts(t, 3, rounds, 200, 1+rounds/4)
}

// TestTornPowerCutOfALoneNode does it to a node that has nobody to ask: whatever it
// answered is in what it synced.
func TestTornPowerCutOfALoneNode(t *testing.T) {
	rounds := byMode(2, 2, 8, 60)
	tornCuts(t, 1, rounds, 100, 1+rounds/2)
}

// tornCuts cuts power in rounds, each after some operations; few go on until a block
// was lost and one was kept.
func tornCuts(t *testing.T, nodes, rounds int, ops int64, terms int) {
	w := newWorldOfFiles(t, nodes)
	w.startLoad()
	torn := func() bool { return w.lost.Blocks > 0 && w.lost.Kept > 0 }
	for k := 0; k < rounds || !torn() && k < rounds+20; k++ {
		w.load.await(ops)
		some := w.some(1 + w.rng.IntN(nodes))
		w.tornCut(some...)
		w.heal()
		w.alive()
	}
	if !torn() {
		t.Errorf("the power cuts lost %+v, which proves little", w.lost)
	}
	least := leastOf(rounds)
	least.Did = leastDid(max(1, rounds/4)) // a round takes a second, not four
	least.Events, least.Terms = []string{"torn power cut"}, terms
	w.verdict(t.Name(), least)
}
