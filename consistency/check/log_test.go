package check

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	etcdwal "go.etcd.io/etcd/server/v3/storage/wal"
	"go.etcd.io/etcd/server/v3/storage/wal/walpb"
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
// out and uncommitted ones too; a damaged one but for what is damaged.
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
	check := func(what string, least int) {
		t.Helper()
		got, _, err := ReadLog(o.Dir, o.ArchiveDir)
		if err != nil || len(got) < least || len(got) >= len(want) || got[last].Index != last {
			t.Errorf("of a log with %s: %d entries of %d, the last is %d; %v", what, len(got), len(want), got[last].Index, err)
		}
		for i, e := range got {
			if string(e.Data) != want[i] {
				t.Errorf("of a log with %s: entry %d is %.40q of term %d", what, i, e.Data, e.Term)
			}
		}
	}
	if _, stopped, _ := ReadLog(o.Dir, o.ArchiveDir); stopped == nil {
		t.Error("damage was not seen")
	}
	check("a damaged segment", len(want)-20)
	if err := os.Remove(archived[1]); err != nil {
		t.Fatal(err)
	}
	check("a segment that is missing", len(want)-20)
}

// Another node's snapshot replaces a log's end, also one that is longer: what stood
// there was never committed.
func TestReadLogUnderASnapshot(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "wal")
	w, err := etcdwal.Create(zap.NewNop(), dir, []byte("m"))
	if err != nil {
		t.Fatal(err)
	}
	index, term := uint64(3), uint64(2)
	for _, err := range []error{
		w.Save(stateOf(1, 2), []*raftpb.Entry{entryOf(2, 1, "two"), entryOf(3, 1, "never"), entryOf(4, 1, "never")}),
		w.Save(stateOf(2, 2), nil),
		w.SaveSnapshot(&walpb.Snapshot{Index: &index, Term: &term, ConfState: &raftpb.ConfState{}}),
		w.Save(stateOf(2, 3), nil),
		w.Save(stateOf(2, 4), []*raftpb.Entry{entryOf(4, 2, "four")}),
		w.Close(),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	got, stopped, err := ReadLog(dir)
	if err != nil || stopped != nil || len(got) != 2 || string(got[2].Data) != "two" || string(got[4].Data) != "four" {
		t.Errorf("%v, %v, %v", got, stopped, err)
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
