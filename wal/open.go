package wal

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/fileutil"
	etcdwal "go.etcd.io/etcd/server/v3/storage/wal"
	"go.etcd.io/etcd/server/v3/storage/wal/walpb"
	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"go.uber.org/zap"
)

// Create makes a new log with its first hard state and snapshot marker, closes
// and syncs it. It is for a directory built aside: a crash inside Create leaves a
// log that does not open, so the caller renames the parent into place when
// everything in it is synced. (A directory must not be renamed under an open log
// either: the next segment would go to the old name.)
func Create(opts Options, metadata []byte, hs *raftpb.HardState, m Marker) error {
	if err := opts.check(); err != nil {
		return err
	}
	if len(metadata) == 0 || raft.IsEmptyHardState(hs) || m.Index == 0 || m.ConfState == nil ||
		hs.GetCommit() != m.Index || hs.GetTerm() < m.Term || m.Term == 0 {
		return fmt.Errorf("wal: create: metadata, hard state %v and marker %+v do not make a log", hs, m)
	}
	if err := acquireSegmentSize(opts.SegmentBytes); err != nil {
		return err
	}
	defer releaseSegmentSize()
	if err := create(opts, metadata, hs, m); err != nil {
		return fmt.Errorf("wal: create %s: %w", opts.Dir, err)
	}
	return nil
}

func create(opts Options, metadata []byte, hs *raftpb.HardState, m Marker) error {
	w, err := etcdwal.Create(opts.Logger, opts.Dir, metadata)
	if err != nil {
		return err
	}
	err = w.Save(hs, nil)
	if err == nil {
		err = w.SaveSnapshot(&walpb.Snapshot{Index: &m.Index, Term: &m.Term, ConfState: m.ConfState})
	}
	if err = errors.Join(err, w.Close()); err != nil {
		return err
	}
	if err := removeTemporary(opts.Dir); err != nil {
		return err
	}
	s, err := scanLog(opts.Dir, nil)
	if err != nil {
		return err
	}
	if _, err := s.judge(); err != nil {
		return err
	}
	nf, err := openNote(opts.NotePath, 0)
	if err != nil {
		return err
	}
	err = nf.write(&note{
		segment: s.tail().seq, offset: s.tail().used, crc: s.crc, hs: s.shape.hs,
		last: s.shape.last, lastTerm: s.shape.lastTerm(), bootID: opts.BootID,
	})
	// Here, aside, a sync costs nothing that anybody waits for.
	return errors.Join(err, nf.f.Sync(), nf.close(), syncDir(opts.Dir), syncDir(filepath.Dir(opts.Dir)))
}

// Open reads the log, checks it against the note, chooses the snapshot to start
// from and makes the log writable. Nothing is written before everything is
// checked. The caller holds the lock of the data directory.
//
// usable says whether the snapshot file of a marker is there, verifies, and belongs
// to the log with that metadata; it is asked newest first. nil means that all are.
//
// The errors *NoLogError, *LostTailError, *CorruptError and *NoSnapshotError say
// what the log is; any other is one of the system.
func Open(opts Options, usable func(metadata []byte, m Marker) bool) (*Log, *State, error) {
	if err := opts.check(); err != nil {
		return nil, nil, err
	}
	n, err := readNote(opts.NotePath)
	if err != nil {
		return nil, nil, err
	}
	s, err := scanLog(opts.Dir, n)
	if err != nil {
		return nil, nil, err
	}
	cut, err := s.judge()
	if err != nil {
		return nil, nil, err
	}
	m, ents, err := s.choose(usable)
	if err != nil {
		return nil, nil, err
	}
	if err := acquireSegmentSize(opts.SegmentBytes); err != nil {
		return nil, nil, err
	}
	l, err := openWritable(opts, s, n, m, cut)
	if err != nil {
		releaseSegmentSize()
		return nil, nil, err
	}
	st := &State{
		Metadata: s.metadata, Marker: m, HardState: l.shape.hs.message(), Entries: ents,
		TornTail: cut, Noted: s.noteFound,
	}
	if s.noteFound && s.note.base.Index > 0 {
		b := s.note.base
		st.Base, st.SameBoot = &b, s.note.bootID == opts.BootID
	}
	return l, st, nil
}

func openWritable(opts Options, s *scan, n *note, m Marker, cut bool) (*Log, error) {
	t := s.tail()
	if !s.noteFound && !opts.Fresh {
		opts.Logger.Warn("no note for the log: a lost tail would not be seen", zap.String("note", opts.NotePath))
	}
	if cut {
		opts.Logger.Warn("cutting the torn tail of the log",
			zap.String("segment", t.name), zap.Int64("offset", t.used), zap.String("what", s.end.what))
	}
	if err := prepare(opts, t, cut); err != nil {
		return nil, fmt.Errorf("wal: prepare %s for writing: %w", t.name, err)
	}
	w, err := etcdwal.Open(opts.Logger, opts.Dir, &walpb.Snapshot{Index: &m.Index, Term: &m.Term})
	if err != nil {
		return nil, misnamed(t, fmt.Errorf("wal: open for writing: %w", err))
	}
	if seeded == "no-fsync" {
		w.SetUnsafeNoFsync()
	}
	l := &Log{
		opts: opts, w: w, metadata: s.metadata, segments: s.segments, shape: s.shape.clone(),
		pos: newPosition(t.seq, t.used, s.crc), prev: &raftpb.HardState{}, bytesAt: t.used,
	}
	if err := l.start(s, n); err != nil {
		w.Close()
		if l.note != nil {
			l.note.close()
		}
		return nil, err
	}
	return l, nil
}

func (l *Log) start(s *scan, n *note) error {
	// The answers of this replay are not used, but a difference in what must be
	// equal would mean that the two read different files.
	metadata, hs, _, err := l.w.ReadAll()
	if err != nil && !errors.Is(err, etcdwal.ErrSnapshotNotFound) {
		return misnamed(s.tail(), fmt.Errorf("wal: make the log writable: %w", err))
	}
	raw := s.shape.hs
	if !bytes.Equal(metadata, s.metadata) || (hardState{hs.GetTerm(), hs.GetVote(), hs.GetCommit()}) != raw {
		return fmt.Errorf("wal: two replays of %s differ: hard state %v and %v", l.opts.Dir, hs, raw)
	}
	var sequence uint64
	if n != nil {
		sequence = n.sequence
		if s.noteFound {
			l.base, l.baseBoot = n.base, n.bootID
		}
	}
	if l.note, err = openNote(l.opts.NotePath, sequence); err != nil {
		return err
	}
	// A crash inside Save can leave entries of a term that the hard state behind
	// them was to bring. Nobody was promised anything in that term, no vote either.
	h := raw
	if t := l.shape.lastTerm(); t > h.term {
		h.term, h.vote = t, 0
	}
	h.commit = l.shape.commit()
	// Written again in any case: etcd's package forgets the hard state when it
	// opens a log, and the next segments would begin without one. Once the segments
	// before them are released, term and vote would be gone.
	start := time.Now()
	synced, err := l.append(h.message(), nil)
	if err != nil {
		return l.poison("save the hard state", err)
	}
	if !synced {
		panic("BUG: wal: the first hard state was not synced")
	}
	return l.synced(start)
}

// misnamed takes what etcd's package finds wrong with files that our replay takes.
// It goes by the index in a segment's name, which ours does not need.
func misnamed(t *segment, err error) error {
	for _, e := range []error{etcdwal.ErrFileNotFound, etcdwal.ErrSliceOutOfRange, etcdwal.ErrCRCMismatch, etcdwal.ErrMetadataConflict, etcdwal.ErrSnapshotMismatch} {
		if errors.Is(err, e) {
			return &CorruptError{t.name, t.used, fmt.Sprintf("the records are whole, but the index in the name of a segment is not the one that was written: %v", err)}
		}
	}
	return err
}

// prepare makes the directory what etcd's package expects: no leftovers, and the
// last segment ends behind its last record, with preallocated zeros. What is cut
// off is kept beside the note. The lock shows that no other process writes here.
func prepare(opts Options, t *segment, cut bool) error {
	f, err := fileutil.TryLockFile(filepath.Join(opts.Dir, t.name), os.O_RDWR, fileutil.PrivateFileMode)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := removeTemporary(opts.Dir); err != nil {
		return err
	}
	if cut {
		if err := keepTorn(opts.NotePath+".torn", f.File, t.used); err != nil {
			return err
		}
		if err := f.Truncate(t.used); err != nil {
			return err
		}
	} else if t.size >= opts.SegmentBytes {
		return nil
	}
	if err := fileutil.Preallocate(f.File, max(opts.SegmentBytes, t.used), true); err != nil {
		opts.Logger.Warn("the last segment of the log is not preallocated", zap.Error(err)) // it grows instead
	}
	return f.Sync()
}

// keepTorn copies what a cut throws away, for whoever wants to know what it was.
// At most one segment; the next cut overwrites it.
func keepTorn(path string, f *os.File, off int64) error {
	out, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, io.NewSectionReader(f, off, 1<<62))
	return errors.Join(err, out.Close())
}

// removeTemporary deletes the preallocated files that a crash left. etcd's
// package would take them as they are, and one whose head was written already
// would show its old bytes behind the new, shorter head.
func removeTemporary(dir string) error {
	names, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range names {
		if strings.HasSuffix(e.Name(), ".tmp") {
			if err := os.Remove(filepath.Join(dir, e.Name())); err != nil {
				return err
			}
		}
	}
	return nil
}
