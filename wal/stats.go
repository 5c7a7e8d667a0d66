package wal

import "sync/atomic"

// Stats are counters of one Log since it was opened.
type Stats struct {
	Saves        uint64 // calls of Save that wrote something
	Marks        uint64
	Entries      uint64
	Bytes        uint64 // of records written, with frames
	Syncs        uint64 // calls that returned after an fsync
	SyncNs       uint64 // total time of those calls
	LastSyncNs   uint64
	Segments     uint64 // in the directory now
	SegmentSeq   uint64 // the one being written
	Offset       uint64 // in it
	Released     uint64 // segments deleted or archived
	LastIndex    uint64
	NoteSequence uint64
}

// counters are written by the owner and read by anybody.
type counters struct {
	saves, marks, entries, bytes, syncs, syncNs, lastSyncNs         atomic.Uint64
	segments, segmentSeq, offset, released, lastIndex, noteSequence atomic.Uint64
}

// Stats may be called from any goroutine. The fields are read one by one.
func (l *Log) Stats() Stats {
	c := &l.counters
	return Stats{
		Saves: c.saves.Load(), Marks: c.marks.Load(), Entries: c.entries.Load(), Bytes: c.bytes.Load(),
		Syncs: c.syncs.Load(), SyncNs: c.syncNs.Load(), LastSyncNs: c.lastSyncNs.Load(),
		Segments: c.segments.Load(), SegmentSeq: c.segmentSeq.Load(), Offset: c.offset.Load(),
		Released: c.released.Load(), LastIndex: c.lastIndex.Load(), NoteSequence: c.noteSequence.Load(),
	}
}
