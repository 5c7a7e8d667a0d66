package raftnode

import (
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"raftq/consistency/faultfs"
	"raftq/wal"
)

// A new data directory has its name for good before anything in it is promised:
// without it all that was synced in it is lost, and the node would take itself for
// new.
func TestDataDirectoryIsDurable(t *testing.T) {
	s := faultfs.ForTest(t)
	deep := filepath.Join(s.Dir(), "a", "b", "data")
	again := filepath.Join(s.Dir(), "cut-short")
	if err := os.Mkdir(again, 0o700); err != nil { // by a start that got no further
		t.Fatal(err)
	}
	for _, path := range []string{deep, again} {
		d, err := openDataDir(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := d.close(); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.PowerCut(rand.New(rand.NewPCG(1, 1)), 1); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{deep, again} {
		if _, err := os.Stat(path); err != nil {
			t.Errorf("a power cut took the data directory: %v", err)
		}
	}
}

// What the disk does not give at a start is no loss: --recover=rejoin must not give
// up a log for it, nor may the node go on without the note, which alone tells a lost
// tail.
func TestUnreadableFiles(t *testing.T) {
	s := faultfs.ForTest(t)
	tr := newTrio(t)
	tr.cfg[0].DataDir = filepath.Join(s.Dir(), "data")
	tr.openAll()
	tr.ready(0)
	enqueueOn(t, tr.nodes[0], "x")
	tr.close(0)
	for _, path := range []string{"data/log/snap/*.db", "data/note", "data/boot", "data/log/wal/*.wal"} {
		for _, op := range []faultfs.Op{faultfs.Open, faultfs.Read} {
			s.Arm(faultfs.Fault{Op: op, Path: path, Errno: syscall.EIO, Lasts: true})
			n, err := Open(tr.cfg[0])
			if err == nil {
				tr.nodes[0] = n
				tr.close(0)
			}
			if !errors.Is(err, syscall.EIO) || wal.IsLoss(err) {
				t.Errorf("%s of %s fails: %v", op, path, err)
			}
			s.Heal()
		}
	}
	tr.open(0)
	tr.ready(0)
	tr.closeAll()
}
