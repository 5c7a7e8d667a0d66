package faultfs

import (
	"context"
	"os"
	"syscall"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
)

// handle is an open file.
type handle struct {
	*fs.LoopbackFile
	behind *os.File
	n      *node
}

var _ = interface {
	fs.FileReader
	fs.FileWriter
	fs.FileFsyncer
	fs.FileAllocater
}(&handle{})

// PassthroughFd would let the kernel read and write behind our back.
func (h *handle) PassthroughFd() (int, bool) { return 0, false }

func (h *handle) Read(ctx context.Context, to []byte, off int64) (fuse.ReadResult, syscall.Errno) {
	h.n.fs.mu.Lock()
	defer h.n.fs.mu.Unlock()
	if e, _ := h.n.fs.fails(Read, h.n.rel()); e != 0 {
		return nil, e
	}
	return h.LoopbackFile.Read(ctx, to, off)
}

func (h *handle) Write(ctx context.Context, b []byte, off int64) (uint32, syscall.Errno) {
	h.n.fs.mu.Lock()
	defer h.n.fs.mu.Unlock()
	if e, short := h.n.fs.fails(Write, h.n.rel()); e != 0 {
		end := (off + int64(len(b))) / blockBytes * blockBytes
		if !short || end <= off || end == off+int64(len(b)) {
			return 0, e
		}
		b = b[:end-off]
	}
	if err := h.n.fs.touch(h.behind, off, int64(len(b))); err != nil {
		return 0, fs.ToErrno(err)
	}
	return h.LoopbackFile.Write(ctx, b, off)
}

// Allocate changes a file's size, no block that has something.
func (h *handle) Allocate(ctx context.Context, off, size uint64, mode uint32) syscall.Errno {
	h.n.fs.mu.Lock()
	defer h.n.fs.mu.Unlock()
	if e, _ := h.n.fs.fails(Write, h.n.rel()); e != 0 {
		return e
	}
	if mode&^uint32(1) != 0 { // FALLOC_FL_KEEP_SIZE
		return syscall.EOPNOTSUPP
	}
	if err := h.n.fs.touch(h.behind, 0, 0); err != nil {
		return fs.ToErrno(err)
	}
	return h.LoopbackFile.Allocate(ctx, off, size, mode)
}

// Fsync is quick: what is behind need not outlive this machine.
func (h *handle) Fsync(context.Context, uint32) syscall.Errno {
	s := h.n.fs
	s.mu.Lock()
	defer s.mu.Unlock()
	e, _ := s.fails(Sync, h.n.rel())
	lost := func() bool { return e != 0 && s.rng.IntN(2) == 0 }
	if err := s.synced(h.behind, lost); err != nil && e == 0 {
		return fs.ToErrno(err)
	}
	return e
}

// listing is what go-fuse gives for an open directory.
type listing interface {
	fs.FileReaddirenter
	fs.FileReleasedirer
	fs.FileSeekdirer
}

// dirHandle is an open directory.
type dirHandle struct {
	listing
	n *node
}

var _ fs.FileFsyncdirer = &dirHandle{}

func (d *dirHandle) Readdirent(ctx context.Context) (*fuse.DirEntry, syscall.Errno) {
	d.n.fs.mu.Lock()
	defer d.n.fs.mu.Unlock()
	if e, _ := d.n.fs.fails(List, d.n.rel()); e != 0 {
		return nil, e
	}
	return d.listing.Readdirent(ctx)
}

func (d *dirHandle) Fsyncdir(context.Context, uint32) syscall.Errno {
	d.n.fs.mu.Lock()
	defer d.n.fs.mu.Unlock()
	if e, _ := d.n.fs.fails(SyncDir, d.n.rel()); e != 0 {
		return e
	}
	return fs.ToErrno(d.n.fs.dirSynced(d.n.behind()))
}
