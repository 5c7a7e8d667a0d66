package faultfs

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"syscall"
)

const blockBytes = 4096

// file is what is not on the disk of one: blocks as they are there, and its size.
type file struct {
	behind *os.File // it may have no name any more
	size   int64
	blocks map[int64][]byte
}

// touch remembers a file as it is on the disk, and its blocks from off on, before n
// bytes of it change.
func (s *FS) touch(f *os.File, off, n int64) error {
	var st syscall.Stat_t
	if err := syscall.Fstat(int(f.Fd()), &st); err != nil {
		return err
	}
	u := s.files[st.Ino]
	if u == nil {
		own, err := os.OpenFile(fmt.Sprintf("/proc/self/fd/%d", f.Fd()), os.O_RDWR, 0)
		if err != nil {
			return err
		}
		u = &file{own, st.Size, map[int64][]byte{}}
		s.files[st.Ino] = u // its number is nobody else's while it is open
	}
	for b := off / blockBytes; b*blockBytes < off+n; b++ {
		if u.blocks[b] != nil {
			continue
		}
		was := make([]byte, blockBytes)
		if _, err := u.behind.ReadAt(was, b*blockBytes); err != nil && err != io.EOF {
			return err
		}
		u.blocks[b] = was
	}
	return nil
}

// synced forgets what is not on the disk of a file: all of it is now, but for the
// blocks that lost takes.
func (s *FS) synced(f *os.File, lost func() bool) error {
	var st syscall.Stat_t
	if err := syscall.Fstat(int(f.Fd()), &st); err != nil {
		return err
	}
	u := s.files[st.Ino]
	if u == nil {
		return nil
	}
	delete(s.files, st.Ino)
	_, err := u.lose(lost)
	return errors.Join(err, u.behind.Close())
}

// lose puts some blocks back as they were, and says how many. It does not change the
// file's size.
func (u *file) lose(lost func() bool) (n int, err error) {
	info, err := u.behind.Stat()
	if err != nil {
		return 0, err
	}
	for _, b := range slices.Sorted(maps.Keys(u.blocks)) {
		if !lost() {
			continue
		}
		n++
		off := b * blockBytes
		if end := min(blockBytes, info.Size()-off); end > 0 {
			if _, err := u.behind.WriteAt(u.blocks[b][:end], off); err != nil {
				return n, err
			}
		}
	}
	return n, nil
}

// name is one change of names that is not on the disk.
type name struct {
	dirs   [2]uint64 // inodes of the directories that it is in
	undo   func() error
	forget func() error // of what undo would have needed, or nil
}

// renamed remembers a change of names in directories, given by path.
func (s *FS) renamed(undo, forget func() error, dirs ...string) error {
	n := name{undo: undo, forget: forget}
	for i, d := range dirs {
		var st syscall.Stat_t
		if err := syscall.Stat(d, &st); err != nil {
			return err
		}
		n.dirs[i] = st.Ino
	}
	s.names = append(s.names, n)
	return nil
}

// setAside keeps a file that is about to lose its name; back gives it the name again.
func (s *FS) setAside(path string) (back, forget func() error, err error) {
	s.count++
	aside := filepath.Join(s.removed, fmt.Sprint(s.count))
	if err := os.Link(path, aside); err != nil {
		return nil, nil, err
	}
	return func() error { return os.Rename(aside, path) }, func() error { return os.Remove(aside) }, nil
}

// dirSynced forgets the changes of names in a directory.
func (s *FS) dirSynced(path string) error {
	var st syscall.Stat_t
	if err := syscall.Stat(path, &st); err != nil {
		return err
	}
	var err error
	s.names = slices.DeleteFunc(s.names, func(n name) bool {
		if n.dirs[0] != st.Ino && n.dirs[1] != st.Ino {
			return false
		}
		if n.forget != nil {
			err = errors.Join(err, n.forget())
		}
		return true
	})
	return err
}

// Lost is what a power cut took.
type Lost struct {
	Blocks, Kept int // unsynced blocks that did not get to the disk, and that did
	Sizes        int // files that have their old size again
	Names        int // changes of names
}

// PowerCut takes what is not on the disk: each unsynced block with probability p, and
// the newest changes of names. Nobody may have a file open; the file system is
// mounted anew.
func (s *FS) PowerCut(rng *rand.Rand, p float64) (l Lost, err error) {
	// Before the lock: the kernel has calls of its own to end. And what it remembers of
	// the files goes with the mount.
	if err := s.server.Unmount(); err != nil {
		return l, fmt.Errorf("unmount %s: %w", s.at, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, ino := range slices.Sorted(maps.Keys(s.files)) {
		u := s.files[ino]
		info, e := u.behind.Stat()
		if err = errors.Join(err, e); err != nil {
			return l, err
		}
		if info.Size() != u.size && rng.Float64() < p { // before its blocks: they may be behind the end
			l.Sizes++
			err = u.behind.Truncate(u.size)
		}
		n, e := u.lose(func() bool { return rng.Float64() < p })
		l.Blocks, l.Kept = l.Blocks+n, l.Kept+len(u.blocks)-n
		err = errors.Join(err, e, u.behind.Close())
	}
	s.files = map[uint64]*file{}
	kept := len(s.names)
	for kept > 0 && rng.Float64() < p {
		kept--
		l.Names++
		err = errors.Join(err, s.names[kept].undo())
	}
	for _, n := range s.names[:kept] {
		if n.forget != nil {
			err = errors.Join(err, n.forget())
		}
	}
	s.names = nil
	return l, errors.Join(err, s.mount())
}
