package snapshot

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// TestDurable proves that a file is whole under its name after a power cut right
// behind Write: it writes to a file system of its own and looks at what a copy of its
// disk holds, in which nothing is that was not synced.
func TestDurable(t *testing.T) {
	dir := t.TempDir()
	disk, after := filepath.Join(dir, "disk"), filepath.Join(dir, "after")
	tool := func(name string, args ...string) error {
		if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
			return fmt.Errorf("%s %v: %w: %s", name, args, err, out)
		}
		return nil
	}
	mount := func(image string) string {
		t.Helper()
		at := image + ".mounted"
		// The journal is not written by itself, and a rename does not write data.
		if err := errors.Join(os.Mkdir(at, 0o755), tool("mount", "-o", "loop,commit=600,noauto_da_alloc", image, at)); err != nil {
			t.Skipf("needs loop-mounted images: %v", err)
		}
		t.Cleanup(func() {
			if err := tool("umount", "--lazy", at); err != nil {
				t.Error(err)
			}
		})
		return at
	}
	f, err := os.Create(disk)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(f.Truncate(16<<20), f.Close(), tool("mkfs.ext4", "-q", "-F", disk)); err != nil {
		t.Skipf("needs images: %v", err)
	}
	at := mount(disk)
	info, err := Write(at, testHeader(7), nil, encodeBytes(content(100_000)))
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.WriteFile(filepath.Join(at, "late"), []byte("not synced"), 0o600), tool("cp", "--sparse=always", disk, after)); err != nil {
		t.Fatal(err)
	}
	left := mount(after)
	if _, err := os.Stat(filepath.Join(left, "late")); err == nil {
		t.Error("nothing is shown: a file that nobody synced is there")
	}
	if h, err := Verify(filepath.Join(left, filepath.Base(info.Path))); err != nil || h.Index != info.Index {
		t.Errorf("after the power cut: %+v, %v", h, err)
	}
}
