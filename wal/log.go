package wal

import (
	"errors"
	"fmt"
	"time"

	etcdwal "go.etcd.io/etcd/server/v3/storage/wal"
	"go.etcd.io/etcd/server/v3/storage/wal/walpb"
	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"raftq/failpoint"
)

// Log is an open log. The log writer goroutine owns it and calls all methods;
// Stats may be called from elsewhere.
type Log struct {
	opts     Options
	w        *etcdwal.WAL
	note     *noteFile
	metadata []byte

	// err is the first write or sync error. After it nothing is known about the
	// files, so nothing is tried again.
	err    error
	closed bool

	segments []*segment // in the directory, the last is written
	shape    shape      // of everything written, as a replay would see it
	pos      *position  // where etcd's encoder is
	state    []byte     // the hard state that etcd's package puts into a segment's head
	prev     *raftpb.HardState
	held     uint64 // commit that Mark held back until its entries are here
	base     TimeBase
	baseBoot [16]byte // the boot that base.BootNs belongs to
	buf      []byte   // for encoding a record's data
	bytesAt  int64    // pos.offset at the last count of bytes

	counters counters
}

// Save appends the entries, then the hard state, and syncs as raft.MustSync
// requires: for entries, a new term or a new vote, not for a new commit alone.
// An empty hard state means that it did not change. Entries must follow the log
// or overwrite its uncommitted part; the log keeps no reference to them.
//
// base is the log time base as of these entries; it goes into the note.
func (l *Log) Save(hs *raftpb.HardState, ents []*raftpb.Entry, base TimeBase) error {
	if err := l.usable(); err != nil {
		return err
	}
	if raft.IsEmptyHardState(hs) && len(ents) == 0 {
		return nil
	}
	if raft.IsEmptyHardState(hs) && l.held > 0 {
		h := l.shape.hs
		h.commit = max(h.commit, min(l.held, ents[len(ents)-1].GetIndex()))
		hs = h.message()
	}
	if l.held > 0 && hs.GetCommit() >= l.held {
		l.held = 0
	}
	l.setBase(base)
	start := time.Now()
	synced, err := l.append(hs, ents)
	if err != nil {
		return l.poison("save", err)
	}
	l.counters.saves.Add(1)
	l.counters.entries.Add(uint64(len(ents)))
	if !synced {
		l.count()
		return nil
	}
	return l.synced(start)
}

// Mark records that the snapshot m is whole on disk. m is either of an entry of
// this log, or another node's snapshot that replaces the log, entries and all.
// hs must know m as committed. Returns after an fsync.
//
// A marker of the log goes behind its hard state. For one that replaces the log
// the order is the other way round: a commit index written first would, after a
// crash between the two, declare this node's own conflicting entries committed.
// The replay takes the marker itself as proof that its index is committed.
// A commit beyond what the log then holds is held back and written by the Save
// that brings the entries.
func (l *Log) Mark(hs *raftpb.HardState, m Marker, base TimeBase) error {
	if err := l.usable(); err != nil {
		return err
	}
	if m.Index == 0 || m.Term == 0 || m.ConfState == nil {
		panic(fmt.Sprintf("BUG: wal: snapshot marker without index, term or members: %+v", m))
	}
	h := l.shape.hs
	if !raft.IsEmptyHardState(hs) {
		h = hardState{hs.GetTerm(), hs.GetVote(), hs.GetCommit()}
	}
	if h.commit < m.Index || h.term < m.Term {
		panic(fmt.Sprintf("BUG: wal: snapshot marker %d of term %d under hard state %+v", m.Index, m.Term, h))
	}
	kind, err := l.shape.kind(m.Index, m.Term)
	if err != nil {
		panic("BUG: wal: " + err.Error())
	}
	if kind == markerOld {
		return fmt.Errorf("%w: it is at %d, the log starts at %d", ErrOldMarker, m.Index, l.shape.base)
	}
	l.setBase(base)
	start := time.Now()
	if err := l.mark(kind, h, m); err != nil {
		return l.poison(fmt.Sprintf("mark snapshot %d", m.Index), err)
	}
	l.held = 0
	if h.commit > l.shape.hs.commit {
		l.held = h.commit
	}
	l.counters.marks.Add(1)
	return l.synced(start)
}

func (l *Log) mark(kind markerKind, h hardState, m Marker) error {
	before, after := h, h
	before.commit = min(h.commit, l.shape.last)
	after.commit = before.commit
	if kind == markerReset && seeded != "commit-before-received-snapshot" {
		before.commit, after.commit = l.shape.hs.commit, m.Index
	}
	if before != l.shape.hs {
		if _, err := l.append(before.message(), nil); err != nil {
			return err
		}
	}
	failpoint.Hit(failpoint.LogBeforeMarker)
	if err := l.saveMarker(m); err != nil {
		return err
	}
	failpoint.Hit(failpoint.LogAfterMarker)
	if after == l.shape.hs {
		return nil
	}
	if synced, err := l.append(after.message(), nil); err != nil || synced {
		return err
	}
	if err := l.w.Sync(); err != nil {
		return err
	}
	l.pos.flush()
	return nil
}

// setBase takes the base for the next note. One that the caller hands on as Open
// gave it keeps the boot that it came from.
func (l *Log) setBase(b TimeBase) {
	if b != l.base {
		l.base, l.baseBoot = b, l.opts.BootID
	}
}

func (h hardState) message() *raftpb.HardState {
	return &raftpb.HardState{Term: &h.term, Vote: &h.vote, Commit: &h.commit}
}

// append gives one Save to etcd's package and follows what it writes. It checks
// first, with the rules of the replay: what it would refuse must not be written.
func (l *Log) append(hs *raftpb.HardState, ents []*raftpb.Entry) (synced bool, err error) {
	for _, e := range ents {
		if err := l.shape.entry(e.GetIndex(), e.GetTerm()); err != nil {
			panic("BUG: wal: " + err.Error())
		}
	}
	hasState := !raft.IsEmptyHardState(hs)
	if hasState {
		hs = hardState{hs.GetTerm(), hs.GetVote(), hs.GetCommit()}.message() // etcd's package keeps it
		if err := l.shape.state(hardState{hs.GetTerm(), hs.GetVote(), hs.GetCommit()}); err != nil {
			panic("BUG: wal: " + err.Error())
		}
	}
	if h := l.shape.hs; h.commit > l.shape.last || h.term < l.shape.lastTerm() {
		panic(fmt.Sprintf("BUG: wal: hard state %+v with last entry %d of term %d", h, l.shape.last, l.shape.lastTerm()))
	}
	if hs == nil {
		hs = &raftpb.HardState{}
	}
	if err := l.w.Save(hs, ents); err != nil {
		return false, err
	}

	synced = raft.MustSync(hs, l.prev, len(ents))
	for _, e := range ents {
		if l.buf, err = (proto.MarshalOptions{}).MarshalAppend(l.buf[:0], e); err != nil {
			return false, err
		}
		l.pos.add(etcdwal.EntryType, l.buf)
	}
	if hasState {
		if l.state, err = proto.Marshal(hs); err != nil {
			return false, err
		}
		l.prev = hs
		l.pos.add(etcdwal.StateType, l.state)
	}
	if cap(l.buf) > 4<<20 {
		l.buf = nil
	}
	if !l.pos.full() {
		if synced {
			l.pos.flush()
		}
		return synced, nil
	}
	l.count()
	l.pos.cut(l.metadata, l.state)
	l.bytesAt = 0
	return true, l.nextSegment()
}

// nextSegment puts the segment that etcd's package has just begun into the table.
func (l *Log) nextSegment() error {
	failpoint.Hit(failpoint.LogNewSegment)
	segs, err := listSegments(l.opts.Dir)
	if err != nil {
		return err
	}
	s := segs[len(segs)-1]
	if s.seq != l.pos.segment {
		panic(fmt.Sprintf("BUG: wal: position in segment %016x, but the last file is %s", l.pos.segment, s.name))
	}
	s.lastAt, s.seenAt, s.hasState = l.shape.last, l.shape.seen, l.state != nil
	l.segments = append(l.segments, s)
	return nil
}

func (l *Log) saveMarker(m Marker) error {
	snap := &walpb.Snapshot{Index: &m.Index, Term: &m.Term, ConfState: m.ConfState}
	b, err := proto.Marshal(snap)
	if err != nil {
		return err
	}
	if _, err := l.shape.marker(m.Index, m.Term); err != nil {
		panic("BUG: wal: " + err.Error())
	}
	if err := l.w.SaveSnapshot(snap); err != nil {
		return err
	}
	l.pos.add(etcdwal.SnapshotType, b)
	l.pos.flush()
	seg := l.segments[len(l.segments)-1]
	seg.markers = append(seg.markers, m)
	return nil
}

// synced is called after each fsync: everything up to the position is promised
// now, and the note says so.
func (l *Log) synced(start time.Time) error {
	if l.pos.buffered != 0 {
		panic(fmt.Sprintf("BUG: wal: %d bytes are not flushed after a sync", l.pos.buffered))
	}
	failpoint.Hit(failpoint.LogSynced)
	n := note{
		segment: l.pos.segment, offset: l.pos.offset(), crc: l.pos.crc.Sum32(),
		hs: l.shape.hs, last: l.shape.last, lastTerm: l.shape.lastTerm(),
		base: l.base, bootID: l.baseBoot,
	}
	if err := l.note.write(&n); err != nil {
		return l.poison("note", err)
	}
	took := uint64(time.Since(start))
	c := &l.counters
	c.syncs.Add(1)
	c.syncNs.Add(took)
	c.lastSyncNs.Store(took)
	c.noteSequence.Store(l.note.sequence)
	l.count()
	return nil
}

func (l *Log) count() {
	c := &l.counters
	at := l.pos.offset()
	c.bytes.Add(uint64(at - l.bytesAt))
	l.bytesAt = at
	c.offset.Store(uint64(at))
	c.segmentSeq.Store(l.pos.segment)
	c.segments.Store(uint64(len(l.segments)))
	c.lastIndex.Store(l.shape.last)
}

// Close syncs what is buffered and closes the files. Of a poisoned log it closes
// only the note and returns the first error.
func (l *Log) Close() error {
	if l.closed {
		return nil
	}
	l.closed = true
	defer releaseSegmentSize()
	if l.err != nil {
		// etcd's Close would write and sync once more. The process ends; until then the
		// files stay open and locked.
		l.note.close()
		return l.err
	}
	start := time.Now()
	if err := l.w.Close(); err != nil {
		l.note.close()
		return l.poison("close", err)
	}
	l.pos.flush()
	return errors.Join(l.synced(start), l.note.close())
}

var errClosed = errors.New("wal: the log is closed")

func (l *Log) usable() error {
	if l.err != nil && seeded != "log-goes-on-after-failed-fsync" {
		return l.err
	}
	if l.closed {
		return errClosed
	}
	return nil
}

func (l *Log) poison(doing string, err error) error {
	if l.err == nil {
		l.err = fmt.Errorf("wal: %s: %w (the log is unusable; the process must end)", doing, err)
	}
	return l.err
}
