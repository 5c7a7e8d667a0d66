package raftnode

import (
	"testing"

	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"

	"raftq/wal"
)

// noLog is a log that keeps nothing.
type noLog struct{}

func (noLog) Save(*pb.HardState, []*pb.Entry, wal.TimeBase) error { return nil }
func (noLog) Mark(*pb.HardState, wal.Marker, wal.TimeBase) error  { return nil }
func (noLog) Release(uint64) error                                { return nil }

// TestAppendsWrittenTogether proves that appends which one write covers go into raft's
// storage one after the other: the second one here replaces the end of the first.
func TestAppendsWrittenTogether(t *testing.T) {
	storage := raft.NewMemoryStorage()
	w := newLogWriter(noLog{}, storage, 0)
	job := func(from, to, term uint64) *appendJob {
		m := &pb.Message{Type: pb.MsgStorageAppend.Enum()}
		for i := from; i <= to; i++ {
			m.Entries = append(m.Entries, &pb.Entry{Index: new(i), Term: new(term)})
		}
		return &appendJob{m: m}
	}
	if err := w.write([]*appendJob{job(1, 5, 1), job(3, 4, 2)}); err != nil {
		t.Fatal(err)
	}
	if last, _ := storage.LastIndex(); last != 4 {
		t.Fatalf("the storage ends at %d, want 4", last)
	}
	for i, want := range []uint64{1, 1, 2, 2} {
		if term, err := storage.Term(uint64(i + 1)); term != want || err != nil {
			t.Errorf("entry %d is of term %d, want %d (%v)", i+1, term, want, err)
		}
	}
}
