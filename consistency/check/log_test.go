package check

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	etcdwal "go.etcd.io/etcd/server/v3/storage/wal"
	"go.etcd.io/raft/v3/raftpb"
	"go.uber.org/zap"

	"raftq/wal"
)

func entryOf(index, term uint64, text string) *raftpb.Entry {
	return &raftpb.Entry{Index: &index, Term: &term, Data: []byte(text)}
}

func stateOf(term, commit uint64) *raftpb.HardState {
	return &raftpb.HardState{Term: &term, Commit: &commit}
}

// A log is read over its archive and what is left, with truncated entries left
// out and uncommitted ones too; a damaged one as far as it goes.
func TestReadLog(t *testing.T) {
	dir := t.TempDir()
	o := wal.Options{Dir: filepath.Join(dir, "wal"), NotePath: filepath.Join(dir, "note"), ArchiveDir: filepath.Join(dir, "archive"), SegmentBytes: 4 << 10, Fresh: true}
	if err := os.Mkdir(o.ArchiveDir, 0o700); err != nil {
		t.Fatal(err)
	}
	confState := &raftpb.ConfState{Voters: []uint64{1}}
	if err := wal.Create(o, []byte("m"), stateOf(1, 1), wal.Marker{Index: 1, Term: 1, ConfState: confState}); err != nil {
		t.Fatal(err)
	}
	l, _, err := wal.Open(o, nil)
	if err != nil {
		t.Fatal(err)
	}
	const last = 200
	want := map[uint64]string{}
	for i := uint64(2); i <= last; i++ {
		text := fmt.Sprintf("entry %d %0100d", i, i)
		want[i] = text
		// Each stands in the log as another one first.
		if err := l.Save(stateOf(i, i-1), []*raftpb.Entry{entryOf(i, i, "replaced"), entryOf(i+1, i, "replaced")}, wal.TimeBase{}); err != nil {
			t.Fatal(err)
		}
		if err := l.Save(stateOf(i+1, i), []*raftpb.Entry{entryOf(i, i+1, text)}, wal.TimeBase{}); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.Mark(nil, wal.Marker{Index: 150, Term: 151, ConfState: confState}, wal.TimeBase{}); err != nil {
		t.Fatal(err)
	}
	if err := l.Release(150); err != nil {
		t.Fatal(err)
	}
	if err := l.Save(&raftpb.HardState{}, []*raftpb.Entry{entryOf(last+1, last+1, "not committed")}, wal.TimeBase{}); err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	archived, _ := filepath.Glob(o.ArchiveDir + "/*.wal")
	if len(archived) < 2 {
		t.Fatalf("%d segments are in the archive", len(archived))
	}
	got, stopped, err := ReadLog(o.Dir, o.ArchiveDir)
	if err != nil || stopped != nil || len(got) != len(want) {
		t.Fatalf("%d entries, want %d; %v, %v", len(got), len(want), stopped, err)
	}
	for i, text := range want {
		if e := got[i]; string(e.Data) != text || e.Term != i+1 {
			t.Errorf("entry %d: %.40q of term %d", i, e.Data, e.Term)
		}
	}
	b, err := os.ReadFile(archived[1])
	if err != nil {
		t.Fatal(err)
	}
	b[len(b)/2] ^= 4
	if err := os.WriteFile(archived[1], b, 0o600); err != nil {
		t.Fatal(err)
	}
	if got, stopped, _ := ReadLog(o.Dir, o.ArchiveDir); stopped == nil || len(got) == 0 || len(got) >= len(want) {
		t.Errorf("of a damaged log: %d entries, %v", len(got), stopped)
	}
}

// A committed entry that becomes another one is a breach in itself.
func TestReadChangedLog(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "wal")
	w, err := etcdwal.Create(zap.NewNop(), dir, []byte("m"))
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"one", "other"} {
		if err := w.Save(stateOf(2, 2), []*raftpb.Entry{entryOf(2, 2, text)}); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if _, _, err := ReadLog(dir); err == nil {
		t.Error("not seen")
	}
}
