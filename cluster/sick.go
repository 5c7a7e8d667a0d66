package cluster

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"
	"unsafe"
)

// storeSizes is how many images have room in a disk's tmpfs: the disk's own, copies
// of it, and what is spare.
const storeSizes = 4

// Requests of ioctl(2) to a file system, from linux/fs.h.
const (
	fiFreeze = 0xC0045877
	fiThaw   = 0xC0045878
	fiTrim   = 0xC0185879
)

// CanStarve tells whether Starve works here.
func (d *Disk) CanStarve() bool { return d.store != "" }

// Starve lets writes fail from now on: those of blocks that hold nothing yet, which
// are those of new files, and of files that grow. fsync says so once, with EIO or
// ENOSPC, and succeeds when it is called again, though the data is lost. It proves
// that with a file of its own. Now and then a block of the file system's own is among
// those without room, and it becomes read-only as a whole, as a disk that fails may
// make it: everything fails then. Feed ends it.
func (d *Disk) Starve() error {
	if err := d.trim(); err != nil {
		return err
	}
	// A request of several pages of which the last has no room is a short write, which
	// the loop device takes for success. One page has room or has not.
	path, err := d.requestMost()
	if err != nil {
		return err
	}
	if d.most, err = os.ReadFile(path); err != nil {
		return err
	}
	if err := os.WriteFile(path, []byte("4"), 0); err != nil {
		return err
	}
	for end := time.Now().Add(stopWithin); ; { // the node writes meanwhile
		var fs syscall.Statfs_t
		if err := syscall.Statfs(d.store, &fs); err != nil {
			return err
		}
		err := tool("mount", "-o", "remount,"+d.room(int64(fs.Blocks-fs.Bfree)*fs.Bsize), d.store)
		if err == nil {
			break
		}
		if time.Now().After(end) {
			return err
		}
	}
	return d.failsOnce()
}

// failsOnce proves that fsync fails, and that it succeeds the second time, unless all
// is read-only.
func (d *Disk) failsOnce() (err error) {
	defer func() {
		if errors.Is(err, syscall.EROFS) {
			err = nil
		}
	}()
	path := filepath.Join(d.Dir, "starved")
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer os.Remove(path)
	defer f.Close()
	if _, err := f.Write(make([]byte, 1<<20)); err != nil {
		return fmt.Errorf("a write on a starved disk: %w", err)
	}
	if err := f.Sync(); !errors.Is(err, syscall.EIO) && !errors.Is(err, syscall.ENOSPC) {
		return fmt.Errorf("fsync on a starved disk, should be EIO or ENOSPC: %w", cmp.Or(err, errors.New("nil")))
	}
	if err := f.Sync(); err != nil {
		return fmt.Errorf("the second fsync on a starved disk: %w", err)
	}
	return nil
}

// Feed ends Starve. What became read-only is mounted again, without what was not on
// the disk; nobody may have a file of it open.
func (d *Disk) Feed() error {
	if d.most == nil {
		return nil
	}
	path, err := d.requestMost()
	if err == nil {
		err = os.WriteFile(path, d.most, 0)
	}
	d.most = nil
	err = errors.Join(err, tool("mount", "-o", "remount,"+d.room(storeSizes*d.size), d.store))
	if f, e := os.CreateTemp(d.Dir, "fed"); e == nil {
		return errors.Join(err, f.Close(), os.Remove(f.Name()))
	} else if !errors.Is(e, syscall.EROFS) {
		return errors.Join(err, e)
	}
	return errors.Join(err, tool("umount", d.Dir), d.mount())
}

// requestMost is the file that says how large a request to the loop device may be.
func (d *Disk) requestMost() (string, error) {
	var st syscall.Stat_t
	if err := syscall.Stat(d.Dir, &st); err != nil {
		return "", err
	}
	major, minor := st.Dev>>8&0xfff, st.Dev&0xff|st.Dev>>12&0xfff00
	return fmt.Sprintf("/sys/dev/block/%d:%d/queue/max_sectors_kb", major, minor), nil
}

// room is the option of tmpfs for its size.
func (d *Disk) room(bytes int64) string { return fmt.Sprintf("size=%d", bytes) }

// Freeze lets everybody who writes or syncs wait until Thaw, kill -9 included. What
// was written before is synced. Whoever owns the disk must not write then, either.
func (d *Disk) Freeze() error {
	d.frozen = true
	return control(d.Dir, fiFreeze, nil)
}

// Thaw undoes Freeze; of a disk that is not frozen it does nothing.
func (d *Disk) Thaw() error {
	if !d.frozen {
		return nil
	}
	d.frozen = false
	return thaw(d.Dir)
}

func thaw(dir string) error { return control(dir, fiThaw, nil) }

// trim gives the pages of blocks back that no file uses.
func (d *Disk) trim() error {
	all := [3]uint64{0, ^uint64(0), 0} // start, length, the shortest stretch
	return control(d.Dir, fiTrim, unsafe.Pointer(&all))
}

// control asks the file system of a directory for something.
func control(dir string, request uintptr, arg unsafe.Pointer) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer f.Close()
	if _, _, e := syscall.Syscall(syscall.SYS_IOCTL, f.Fd(), request, uintptr(arg)); e != 0 {
		return fmt.Errorf("ioctl %#x on %s: %w", request, dir, e)
	}
	return nil
}
