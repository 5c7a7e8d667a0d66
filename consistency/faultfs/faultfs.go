package faultfs

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
)

// FS is one mounted file system.
type FS struct {
	at, behind, removed string // the mount point, the directory it shows, and what was removed from that
	server              *fuse.Server

	mu    sync.Mutex
	armed *armed
	files map[uint64]*file // by inode, those with something unsynced
	names []name           // unsynced, in order
	count int              // of files in removed, ever
	rng   *rand.Rand       // of blocks that a failed fsync takes
}

// CanMount is nil when Mount works here, else it says what is missing. It tries: the
// answer is not guessed from the user's id.
func CanMount() error { return canMount() }

var canMount = sync.OnceValue(func() error {
	dir, err := os.MkdirTemp("", "raftq-probe-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	s, err := Mount(dir, 0)
	if err != nil {
		return fmt.Errorf("a file system of our own needs root and FUSE: %w", err)
	}
	return s.Close()
})

// Mount shows dir/behind at dir/at; both are made. Ask CanMount first.
func Mount(dir string, seed uint64) (*FS, error) {
	s := &FS{at: filepath.Join(dir, "at"), behind: filepath.Join(dir, "behind"), removed: filepath.Join(dir, "removed"),
		files: map[uint64]*file{}, rng: rand.New(rand.NewPCG(seed, 5))}
	for _, d := range []string{s.at, s.behind, s.removed} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			return nil, err
		}
	}
	return s, s.mount()
}

// ForTest mounts a file system for as long as a test runs, or skips it.
func ForTest(t testing.TB) *FS {
	t.Helper()
	if err := CanMount(); err != nil {
		t.Skip(err)
	}
	s, err := Mount(t.TempDir(), 1)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// Dir is the mount point.
func (s *FS) Dir() string { return s.at }

func (s *FS) mount() error {
	root, err := fs.NewLoopbackRoot(s.behind)
	if err != nil {
		return err
	}
	n := &node{LoopbackNode: root.(*fs.LoopbackNode), fs: s}
	n.RootData.RootNode = n
	s.server, err = fs.Mount(s.at, n, &fs.Options{NullPermissions: true, MountOptions: fuse.MountOptions{
		FsName: "raftq-faultfs", Name: "faultfs", DirectMountStrict: true, AllowOther: true, Options: []string{"default_permissions"}}})
	if err != nil {
		return fmt.Errorf("mount a file system of our own at %s: %w", s.at, err)
	}
	return nil
}

// Close unmounts. Nobody may have a file open; if somebody has, it ends all calls and
// is an error. A process that ends with a file open on its own file system would wait
// for itself.
func (s *FS) Close() error {
	err := s.server.Unmount()
	if err != nil {
		err = errors.Join(err, syscall.Unmount(s.at, syscall.MNT_FORCE|syscall.MNT_DETACH))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range s.files {
		err = errors.Join(err, f.behind.Close())
	}
	s.files = map[uint64]*file{}
	return err
}

// Op is a call that can fail.
type Op string

// The calls.
const (
	Open    Op = "open"
	Create  Op = "create"
	Read    Op = "read"
	Write   Op = "write"
	Sync    Op = "fsync"
	SyncDir Op = "fsync of a directory"
	List    Op = "list"
	Rename  Op = "rename"
	Remove  Op = "remove"
)

// Fault is what fails from now on, or once.
type Fault struct {
	Op    Op
	Path  string // a pattern as of filepath.Match, of the path in the file system; of Rename the new one
	Skip  int    // so many calls get through first
	Errno syscall.Errno
	Short bool // of Write: the first one that fails writes what is before its last block boundary, as a full disk does
	Lasts bool // until Heal
}

func (f Fault) String() string {
	how := ""
	if f.Short {
		how += ", short"
	}
	if f.Lasts {
		how += ", lasting"
	}
	return fmt.Sprintf("%s of %s: %v%s", f.Op, f.Path, f.Errno, how)
}

type armed struct {
	Fault
	calls int           // that matched
	fired chan struct{} // closed at the first that failed
}

// Arm lets calls fail as f says, and nothing else any more. What it returns is closed
// when the first one has.
func (s *FS) Arm(f Fault) <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.armed = &armed{Fault: f, fired: make(chan struct{})}
	return s.armed.fired
}

// Heal lets nothing fail.
func (s *FS) Heal() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.armed = nil
}

// fails counts a call and says whether it fails; short, whether a part of it is done.
func (s *FS) fails(op Op, path string) (e syscall.Errno, short bool) {
	a := s.armed
	if a == nil || a.Op != op {
		return 0, false
	}
	if ok, err := filepath.Match(a.Path, path); err != nil || !ok {
		return 0, false
	}
	a.calls++
	nth := a.calls - a.Skip
	if nth < 1 || nth > 1 && !a.Lasts {
		return 0, false
	}
	if nth == 1 {
		close(a.fired)
	}
	return a.Errno, a.Short && nth == 1
}
