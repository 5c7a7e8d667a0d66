package wal

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"

	"go.etcd.io/etcd/client/pkg/v3/fileutil"

	"raftq/failpoint"
)

// Release gives up the segments that a start from the newest snapshot at or
// below index does not need, oldest first, and deletes or archives them. The log
// still holds that snapshot's marker, its entry (so that a replay knows the term
// there), everything behind it, and a hard state in its first head.
//
// An error leaves the log whole and usable; the rest goes with a later Release.
func (l *Log) Release(index uint64) error {
	if err := l.usable(); err != nil {
		return err
	}
	n := l.releasable(index)
	if n == 0 {
		return nil
	}
	if err := l.w.ReleaseLockTo(index); err != nil {
		return fmt.Errorf("wal: release up to %d: %w", index, err)
	}
	var err error
	done := 0
	for done < n {
		var ok bool
		// etcd's package decides by the names which locks it gives up and keeps
		// those files open; deleting one of them would free no space.
		if ok, err = l.drop(l.segments[done].name); err != nil || !ok {
			break
		}
		failpoint.Hit(failpoint.LogReleased)
		done++
	}
	if done > 0 {
		l.segments = append([]*segment(nil), l.segments[done:]...)
		l.counters.released.Add(uint64(done))
		l.counters.segments.Store(uint64(len(l.segments)))
		err = errors.Join(err, syncDir(l.opts.Dir))
	}
	if err != nil {
		return fmt.Errorf("wal: release up to %d: %w", index, err)
	}
	return nil
}

// releasable counts the segments from the oldest on that can go.
//
// A segment begins when the log ends at lastAt. Entries above lastAt that are
// still in the log were written after that, so they are in it or behind it, even
// if the log was truncated below lastAt in between.
func (l *Log) releasable(index uint64) int {
	keep := Marker{}
	at := -1
	for i, s := range l.segments {
		for _, m := range s.markers {
			if m.Index <= index && m.Index >= keep.Index && l.shape.has(m.Index, m.Term) {
				keep, at = m, i
			}
		}
	}
	for k := at; k > 0; k-- {
		if s := l.segments[k]; s.seenAt && s.lastAt < keep.Index && s.hasState {
			return k
		}
	}
	return 0
}

// drop deletes or archives a segment that nobody holds locked.
func (l *Log) drop(name string) (bool, error) {
	path := filepath.Join(l.opts.Dir, name)
	f, err := fileutil.TryLockFile(path, os.O_WRONLY, fileutil.PrivateFileMode)
	if errors.Is(err, fileutil.ErrLocked) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer f.Close()
	if l.opts.ArchiveDir == "" {
		return true, os.Remove(path)
	}
	return true, archive(path, l.opts.ArchiveDir)
}

// archive moves a segment, whole and synced, into dir, which may be on another
// file system.
func archive(path, dir string) error {
	to := filepath.Join(dir, filepath.Base(path))
	err := os.Rename(path, to)
	if err == nil {
		return syncDir(dir)
	}
	if !errors.Is(err, syscall.EXDEV) {
		return err
	}
	if err := copySynced(path, to+".tmp"); err != nil {
		return err
	}
	if err := os.Rename(to+".tmp", to); err != nil {
		return err
	}
	if err := syncDir(dir); err != nil {
		return err
	}
	return os.Remove(path)
}

func copySynced(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Sync(), out.Close())
}
