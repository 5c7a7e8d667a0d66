package wal

import (
	"errors"
	"fmt"
)

// ErrOldMarker: Mark was called with a snapshot older than the start of the log
// (a newer one was received meanwhile). Nothing was written; drop the snapshot.
var ErrOldMarker = errors.New("wal: the snapshot is older than the start of the log")

const rejoinAdvice = "this node must not vote or serve with it: let it leave and rejoin through the surviving majority (--recover=rejoin), and check the disk"

// NoLogError: the directory does not exist or holds no segment.
type NoLogError struct{ Dir string }

func (e *NoLogError) Error() string {
	return fmt.Sprintf("wal: no log in %s: the directory, or every segment in it, is gone; %s", e.Dir, rejoinAdvice)
}

// LostTailError: the log ends before the position that the note says was synced,
// or is another one there. Acknowledged records are missing.
type LostTailError struct {
	Segment      string // where the log ends, or differs
	Offset       int64
	NoteSegment  uint64 // sequence number of the segment
	NoteOffset   int64
	NoteSequence uint64
	What         string
}

func (e *LostTailError) Error() string {
	return fmt.Sprintf("wal: lost tail: %s: %s at offset %d; the note (number %d) says that everything up to segment %016x offset %d was synced; %s",
		e.What, e.Segment, e.Offset, e.NoteSequence, e.NoteSegment, e.NoteOffset, rejoinAdvice)
}

// CorruptError: a record is damaged where no power cut can have torn it, or the
// records contradict each other.
type CorruptError struct {
	Segment string
	Offset  int64
	What    string
}

func (e *CorruptError) Error() string {
	return fmt.Sprintf("wal: corrupt: %s at offset %d: %s; %s", e.Segment, e.Offset, e.What, rejoinAdvice)
}

// NoSnapshotError: the log is whole, but no snapshot file that it can start from
// is usable.
type NoSnapshotError struct {
	Dir     string
	Markers []Marker // those that were asked for, newest first
	Commit  uint64
}

func (e *NoSnapshotError) Error() string {
	s := ""
	for i, m := range e.Markers {
		if i == 4 {
			s += " ..."
			break
		}
		s += fmt.Sprintf(" %d", m.Index)
	}
	if s == "" {
		s = " none"
	}
	return fmt.Sprintf("wal: no usable snapshot for the log in %s (commit %d; markers tried:%s); restore the snapshot file, or let the node rejoin (--recover=rejoin)", e.Dir, e.Commit, s)
}

// IsLoss reports whether err says that this replica lost promised records, its
// whole log or its snapshot, so that only rejoining as a new learner helps.
func IsLoss(err error) bool {
	var g *NoLogError
	var l *LostTailError
	var c *CorruptError
	var n *NoSnapshotError
	return errors.As(err, &g) || errors.As(err, &l) || errors.As(err, &c) || errors.As(err, &n)
}
