package faultfs

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

func must(t *testing.T, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

func syncDir(t *testing.T, path string) error {
	t.Helper()
	d, err := os.Open(path)
	must(t, err)
	return errors.Join(d.Sync(), d.Close())
}

func write(t *testing.T, path, text string, sync bool) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o600)
	must(t, err)
	_, err = f.WriteString(text)
	if sync {
		err = errors.Join(err, f.Sync())
	}
	must(t, err, f.Close())
}

// content is a file's, "-" if it is not there.
func content(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return "-"
	}
	must(t, err)
	return string(b)
}

const all = 1.0 // what is not synced is lost

func cut(t *testing.T, s *FS, p float64) Lost {
	t.Helper()
	l, err := s.PowerCut(rand.New(rand.NewPCG(7, 7)), p)
	must(t, err)
	return l
}

// What a power cut leaves of what was done, if it takes all that it may.
func TestPowerCutTakesWhatIsNotSynced(t *testing.T) {
	for _, c := range []struct {
		what string
		do   func(t *testing.T, dir string)
		want map[string]string
	}{
		{"a file and its name", func(t *testing.T, dir string) { write(t, dir+"/a", "new", true); must(t, syncDir(t, dir)) }, map[string]string{"a": "new"}},
		{"a file without its name", func(t *testing.T, dir string) { write(t, dir+"/a", "new", true) }, map[string]string{"a": "-"}},
		{"a name without what is in it", func(t *testing.T, dir string) { write(t, dir+"/a", "new", false); must(t, syncDir(t, dir)) }, map[string]string{"a": ""}},
		{"an overwritten file", func(t *testing.T, dir string) { write(t, dir+"/old", "new", false) }, map[string]string{"old": "was"}},
		{"a file that grew", func(t *testing.T, dir string) { write(t, dir+"/old", "was and is", false) }, map[string]string{"old": "was"}},
		{"a truncated file", func(t *testing.T, dir string) { must(t, os.Truncate(dir+"/old", 1)) }, map[string]string{"old": "was"}},
		{"a file opened to be written anew", func(t *testing.T, dir string) { must(t, os.WriteFile(dir+"/old", []byte("n"), 0o600)) }, map[string]string{"old": "was"}},
		{"a synced truncation", func(t *testing.T, dir string) {
			f, err := os.OpenFile(dir+"/old", os.O_WRONLY, 0)
			must(t, err, f.Truncate(1), f.Sync(), f.Close())
		}, map[string]string{"old": "w"}},
		{"a removal", func(t *testing.T, dir string) { must(t, os.Remove(dir+"/old")) }, map[string]string{"old": "was"}},
		{"a synced removal", func(t *testing.T, dir string) { must(t, os.Remove(dir+"/old"), syncDir(t, dir)) }, map[string]string{"old": "-"}},
		{"a rename", func(t *testing.T, dir string) { must(t, os.Rename(dir+"/old", dir+"/a")) }, map[string]string{"old": "was", "a": "-"}},
		{"a synced rename", func(t *testing.T, dir string) { must(t, os.Rename(dir+"/old", dir+"/a"), syncDir(t, dir)) }, map[string]string{"old": "-", "a": "was"}},
		{"a rename over another file", func(t *testing.T, dir string) {
			write(t, dir+"/new", "new", true)
			must(t, os.Rename(dir+"/new", dir+"/old"))
		}, map[string]string{"old": "was", "new": "-"}},
		{"a rename into another directory", func(t *testing.T, dir string) {
			must(t, os.Mkdir(dir+"/sub", 0o700), syncDir(t, dir))
			must(t, os.Rename(dir+"/old", dir+"/sub/a"), syncDir(t, dir+"/sub"))
		}, map[string]string{"old": "-", "sub/a": "was"}},
		{"a directory without its name", func(t *testing.T, dir string) {
			must(t, os.Mkdir(dir+"/sub", 0o700))
			write(t, dir+"/sub/a", "new", true)
			must(t, syncDir(t, dir+"/sub"))
		}, map[string]string{"sub/a": "-"}},
		{"a removed directory", func(t *testing.T, dir string) {
			must(t, os.Mkdir(dir+"/sub", 0o700), syncDir(t, dir), os.Remove(dir+"/sub"))
			if _, err := os.Stat(dir + "/sub"); !errors.Is(err, os.ErrNotExist) {
				t.Error(err)
			}
		}, nil},
		{"preallocated, then written, in part synced", func(t *testing.T, dir string) {
			f, err := os.OpenFile(dir+"/old", os.O_RDWR, 0)
			must(t, err, syscall.Fallocate(int(f.Fd()), 0, 0, 3*blockBytes), f.Sync())
			_, e1 := f.WriteAt([]byte("one"), 0)
			must(t, e1, f.Sync())
			_, e2 := f.WriteAt([]byte("two"), blockBytes)
			must(t, e2, f.Close())
		}, map[string]string{"old": "one" + string(make([]byte, 3*blockBytes-3))}},
	} {
		t.Run(c.what, func(t *testing.T) {
			s := ForTest(t)
			dir := s.Dir()
			write(t, dir+"/old", "was", true)
			must(t, syncDir(t, dir))
			c.do(t, dir)
			cut(t, s, all)
			for path, want := range c.want {
				if got := content(t, filepath.Join(dir, path)); got != want {
					t.Errorf("%s is %q, not %q", path, got, want)
				}
			}
			if l := cut(t, s, all); l != (Lost{}) {
				t.Errorf("a second power cut took %+v", l)
			}
		})
	}
}

// A block got to the disk or it did not; none of them is something else.
func TestPowerCutTakesSomeBlocks(t *testing.T) {
	s := ForTest(t)
	path := s.Dir() + "/a"
	const blocks = 64
	was, is := bytes.Repeat([]byte{'-'}, blockBytes), bytes.Repeat([]byte{'+'}, blockBytes)
	write(t, path, string(bytes.Repeat(was, blocks)), true)
	must(t, syncDir(t, s.Dir()))
	write(t, path, string(bytes.Repeat(is, blocks)), false)
	l := cut(t, s, 0.5)
	got, lost := []byte(content(t, path)), 0
	for b := 0; b < blocks; b++ {
		switch one := got[b*blockBytes : (b+1)*blockBytes]; {
		case bytes.Equal(one, was):
			lost++
		case !bytes.Equal(one, is):
			t.Fatalf("block %d is neither old nor new", b)
		}
	}
	if lost != l.Blocks || l.Kept != blocks-lost || lost == 0 || lost == blocks {
		t.Errorf("%d blocks lost, %+v was said", lost, l)
	}
}

// Each call fails as it is told to, and only that one.
func TestCallsFail(t *testing.T) {
	s := ForTest(t)
	dir := s.Dir()
	must(t, os.Mkdir(dir+"/d", 0o700))
	write(t, dir+"/d/old", "was", true)
	open := func(flags int) *os.File {
		f, err := os.OpenFile(dir+"/d/old", flags, 0)
		must(t, err)
		return f
	}
	calls := map[Op]func() error{
		Open:   func() error { f, err := os.Open(dir + "/d/old"); return errors.Join(err, f.Close()) },
		Create: func() error { f, err := os.Create(dir + "/d/new"); return errors.Join(err, f.Close()) },
		Read:   func() error { _, err := os.ReadFile(dir + "/d/old"); return err },
		Write: func() error {
			f := open(os.O_WRONLY)
			_, err := f.WriteString("abc")
			return errors.Join(err, f.Close())
		},
		Sync:    func() error { f := open(os.O_WRONLY); return errors.Join(f.Sync(), f.Close()) },
		SyncDir: func() error { return syncDir(t, dir+"/d") },
		List:    func() error { _, err := os.ReadDir(dir + "/d"); return err },
		Rename:  func() error { return os.Rename(dir+"/d/old", dir+"/d/old2") },
		Remove:  func() error { return os.Remove(dir + "/d/old2") },
	}
	for _, op := range []Op{Open, Read, Write, Sync, SyncDir, List, Create, Rename, Remove} {
		path := "d/*"
		if op == SyncDir || op == List {
			path = "d"
		}
		// The kernel reads ahead, and reads again what it did not get.
		fired := s.Arm(Fault{Op: op, Path: path, Errno: syscall.EIO, Lasts: op == Read})
		if err := calls[op](); !errors.Is(err, syscall.EIO) {
			t.Errorf("%s: %v", op, err)
		}
		select {
		case <-fired:
		default:
			t.Errorf("%s: did not say that it failed", op)
		}
		if op == Read {
			s.Heal()
		}
		if err := calls[op](); err != nil {
			t.Errorf("%s a second time: %v", op, err)
		}
	}
}

// A short write is one that stops at a block; what comes behind it fails.
func TestShortWrite(t *testing.T) {
	s := ForTest(t)
	path := s.Dir() + "/a"
	s.Arm(Fault{Op: Write, Path: "a", Errno: syscall.ENOSPC, Short: true, Lasts: true})
	if err := os.WriteFile(path, make([]byte, 2*blockBytes+100), 0o600); !errors.Is(err, syscall.ENOSPC) {
		t.Error(err)
	}
	s.Heal()
	if got := len(content(t, path)); got != 2*blockBytes {
		t.Errorf("%d bytes are there", got)
	}
}

// After a failed fsync the next one succeeds, and what was written is not there
// when the file is read from the disk.
func TestFailedSyncTakesBlocks(t *testing.T) {
	s := ForTest(t)
	path := s.Dir() + "/a"
	const blocks = 32
	write(t, path, string(bytes.Repeat([]byte{'-'}, blocks*blockBytes)), true)
	must(t, syncDir(t, s.Dir()))
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	must(t, err)
	s.Arm(Fault{Op: Sync, Path: "a", Errno: syscall.EIO})
	_, err = f.Write(bytes.Repeat([]byte{'+'}, blocks*blockBytes))
	must(t, err)
	if err := f.Sync(); !errors.Is(err, syscall.EIO) {
		t.Error(err)
	}
	must(t, f.Sync(), f.Close())
	got := []byte(content(t, path))
	if lost := bytes.Count(got, []byte{'-'}) / blockBytes; lost == 0 || lost == blocks {
		t.Errorf("%d of %d blocks are lost", lost, blocks)
	}
	cut(t, s, all)
	if now := content(t, path); now != string(got) {
		t.Error("a power cut took more")
	}
}
