package faultfs

import (
	"context"
	"os"
	"path/filepath"
	"syscall"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
)

// node is a file or directory. Each method that changes something asks first whether
// it fails, and remembers what the disk has.
type node struct {
	*fs.LoopbackNode
	fs *FS
}

var _ = interface {
	fs.NodeWrapChilder
	fs.NodeOpener
	fs.NodeOpendirHandler
	fs.NodeCreater
	fs.NodeMkdirer
	fs.NodeRmdirer
	fs.NodeUnlinker
	fs.NodeRenamer
	fs.NodeSetattrer
	fs.NodeLinker
	fs.NodeSymlinker
	fs.NodeCopyFileRanger
}(&node{})

// WrapChild lets children be nodes too.
func (n *node) WrapChild(_ context.Context, ops fs.InodeEmbedder) fs.InodeEmbedder {
	return &node{ops.(*fs.LoopbackNode), n.fs}
}

// rel is the path in the file system, behind that of the directory that it shows.
func (n *node) rel(names ...string) string {
	return filepath.Join(append([]string{n.Path(n.Root())}, names...)...)
}

func (n *node) behind(names ...string) string { return filepath.Join(n.fs.behind, n.rel(names...)) }

// Open opens the file behind for reading too, whatever the caller wants: what the
// disk has is read from it.
func (n *node) Open(_ context.Context, flags uint32) (fs.FileHandle, uint32, syscall.Errno) {
	n.fs.mu.Lock()
	defer n.fs.mu.Unlock()
	if e, _ := n.fs.fails(Open, n.rel()); e != 0 {
		return nil, 0, e
	}
	f, err := os.OpenFile(n.behind(), readToo(flags)&^(os.O_CREATE|os.O_EXCL|os.O_TRUNC), 0)
	if err != nil {
		return nil, 0, fs.ToErrno(err)
	}
	if flags&syscall.O_TRUNC != 0 {
		if e := n.truncate(f, 0); e != 0 {
			f.Close()
			return nil, 0, e
		}
	}
	return &handle{fs.NewLoopbackFileFromOS(f), f, n}, 0, 0
}

func readToo(flags uint32) int {
	f := int(flags) &^ (syscall.O_APPEND | fuse.FMODE_EXEC) // the kernel says where it appends
	if f&syscall.O_ACCMODE == syscall.O_WRONLY {
		f = f&^syscall.O_ACCMODE | syscall.O_RDWR
	}
	return f
}

// Create makes a file; its name is not on the disk.
func (n *node) Create(ctx context.Context, name string, flags, mode uint32, out *fuse.EntryOut) (*fs.Inode, fs.FileHandle, uint32, syscall.Errno) {
	n.fs.mu.Lock()
	defer n.fs.mu.Unlock()
	if e, _ := n.fs.fails(Create, n.rel(name)); e != 0 {
		return nil, nil, 0, e
	}
	path := n.behind(name)
	f, err := os.OpenFile(path, readToo(flags)|os.O_CREATE|os.O_EXCL, os.FileMode(mode))
	if err != nil {
		return nil, nil, 0, fs.ToErrno(err)
	}
	child, e := n.Lookup(ctx, name, out)
	if e == 0 {
		e = fs.ToErrno(n.fs.renamed(func() error { return os.Remove(path) }, nil, filepath.Dir(path)))
	}
	if e != 0 {
		f.Close()
		return nil, nil, 0, e
	}
	return child, &handle{fs.NewLoopbackFileFromOS(f), f, child.Operations().(*node)}, 0, 0
}

// Mkdir makes a directory; its name is not on the disk.
func (n *node) Mkdir(ctx context.Context, name string, mode uint32, out *fuse.EntryOut) (*fs.Inode, syscall.Errno) {
	n.fs.mu.Lock()
	defer n.fs.mu.Unlock()
	if e, _ := n.fs.fails(Create, n.rel(name)); e != 0 {
		return nil, e
	}
	path := n.behind(name)
	child, e := n.LoopbackNode.Mkdir(ctx, name, mode, out)
	if e == 0 {
		// Without its name all that is in it is lost, synced or not.
		e = fs.ToErrno(n.fs.renamed(func() error { return os.RemoveAll(path) }, nil, filepath.Dir(path)))
	}
	return child, e
}

// Rmdir removes an empty directory.
func (n *node) Rmdir(ctx context.Context, name string) syscall.Errno {
	n.fs.mu.Lock()
	defer n.fs.mu.Unlock()
	path := n.behind(name)
	e, _ := n.fs.fails(Remove, n.rel(name))
	if e == 0 {
		e = n.LoopbackNode.Rmdir(ctx, name)
	}
	if e == 0 {
		e = fs.ToErrno(n.fs.renamed(func() error { return os.Mkdir(path, 0o700) }, nil, filepath.Dir(path)))
	}
	return e
}

// Unlink removes a file; it may be there again after a power cut.
func (n *node) Unlink(ctx context.Context, name string) syscall.Errno {
	n.fs.mu.Lock()
	defer n.fs.mu.Unlock()
	if e, _ := n.fs.fails(Remove, n.rel(name)); e != 0 {
		return e
	}
	path := n.behind(name)
	back, forget, err := n.fs.setAside(path)
	if err != nil {
		return fs.ToErrno(err)
	}
	if e := n.LoopbackNode.Unlink(ctx, name); e != 0 {
		return e
	}
	return fs.ToErrno(n.fs.renamed(back, forget, filepath.Dir(path)))
}

// Rename renames; what had the new name may have it again after a power cut.
func (n *node) Rename(ctx context.Context, from string, parent fs.InodeEmbedder, to string, flags uint32) syscall.Errno {
	n.fs.mu.Lock()
	defer n.fs.mu.Unlock()
	p := parent.(*node)
	if flags != 0 {
		return syscall.EINVAL
	}
	if e, _ := n.fs.fails(Rename, p.rel(to)); e != 0 {
		return e
	}
	old, path := n.behind(from), p.behind(to)
	back, forget := func() error { return nil }, func() error { return nil }
	if info, err := os.Lstat(path); err == nil && info.Mode().IsRegular() {
		if back, forget, err = n.fs.setAside(path); err != nil {
			return fs.ToErrno(err)
		}
	}
	if e := n.LoopbackNode.Rename(ctx, from, parent, to, flags); e != 0 {
		return e
	}
	return fs.ToErrno(n.fs.renamed(func() error {
		if err := os.Rename(path, old); err != nil {
			return err
		}
		return back()
	}, forget, filepath.Dir(old), filepath.Dir(path)))
}

// Setattr remembers what a truncation takes.
func (n *node) Setattr(ctx context.Context, h fs.FileHandle, in *fuse.SetAttrIn, out *fuse.AttrOut) syscall.Errno {
	n.fs.mu.Lock()
	defer n.fs.mu.Unlock()
	if size, ok := in.GetSize(); ok {
		if e, _ := n.fs.fails(Write, n.rel()); e != 0 {
			return e
		}
		f, err := os.OpenFile(n.behind(), os.O_RDWR, 0)
		if err != nil {
			return fs.ToErrno(err)
		}
		e := n.truncate(f, int64(size))
		f.Close()
		if e != 0 {
			return e
		}
	}
	if own, ok := h.(*handle); ok {
		h = own.LoopbackFile
	}
	return n.LoopbackNode.Setattr(ctx, h, in, out)
}

func (n *node) truncate(f *os.File, size int64) syscall.Errno {
	info, err := f.Stat()
	if err == nil {
		err = n.fs.touch(f, size, max(0, info.Size()-size))
	}
	if err == nil {
		err = f.Truncate(size)
	}
	return fs.ToErrno(err)
}

// Link is not for nodes' files, nor are symbolic links and copies behind our back.
func (n *node) Link(context.Context, fs.InodeEmbedder, string, *fuse.EntryOut) (*fs.Inode, syscall.Errno) {
	return nil, syscall.EPERM
}

// Symlink: see Link.
func (n *node) Symlink(context.Context, string, string, *fuse.EntryOut) (*fs.Inode, syscall.Errno) {
	return nil, syscall.EPERM
}

// CopyFileRange lets the kernel read and write instead.
func (n *node) CopyFileRange(context.Context, fs.FileHandle, uint64, *fs.Inode, fs.FileHandle, uint64, uint64, uint64) (uint32, syscall.Errno) {
	return 0, syscall.ENOSYS
}

// OpendirHandle opens a directory, to list or sync it.
func (n *node) OpendirHandle(context.Context, uint32) (fs.FileHandle, uint32, syscall.Errno) {
	n.fs.mu.Lock()
	defer n.fs.mu.Unlock()
	d, e := fs.NewLoopbackDirStream(n.behind())
	if e != 0 {
		return nil, 0, e
	}
	return &dirHandle{d.(listing), n}, 0, 0
}
