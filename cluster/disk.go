package cluster

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Disk is a node's own file system: ext4 on an image file, mounted at Dir. What
// the node wrote and did not sync is in the memory of that file system and not
// in the image, so a copy of the image is what a power cut leaves.
//
// The image lies on a tmpfs of its own, if there is room, and has no pages there for
// blocks that were never written: without room for more the writes of the file
// system fail (Starve).
type Disk struct {
	Dir string

	net    *Network
	image  string
	store  string // the mount point of the image's own tmpfs, "" = none
	most   []byte // of the loop device, before Starve: KiB in one request
	size   int64
	frozen bool
}

const (
	diskBytes = 256 << 20

	// memoryDir tells whether there is room for images in memory: their fsync must be
	// cheap, three of them share a machine.
	memoryDir    = "/dev/shm"
	memoryDirMin = 2 << 30 // free bytes

	canary     = "not-synced"
	balloon    = "balloon"
	stopWithin = 10 * time.Second
)

func newDisk(net *Network, dir, name string, size int64) (*Disk, error) {
	d := &Disk{Dir: filepath.Join(dir, name), net: net, size: size}
	at := dir
	var fs syscall.Statfs_t
	if syscall.Statfs(memoryDir, &fs) == nil && int64(fs.Bavail)*fs.Bsize > memoryDirMin {
		d.store = d.Dir + ".store"
		at = d.store
		if err := errors.Join(os.MkdirAll(d.store, 0o755), net.mounted(d.store), tool("mount", "-t", "tmpfs", "-o", d.room(storeSizes*size), "raftq", d.store)); err != nil {
			return nil, err
		}
	}
	f, err := os.CreateTemp(at, fmt.Sprintf("raftq-%d-%s-*.img", net.number, name))
	if err != nil {
		return nil, errors.Join(err, d.close())
	}
	d.image = f.Name()
	err = errors.Join(f.Truncate(size), f.Close(), os.MkdirAll(d.Dir, 0o755), net.mounted(d.Dir),
		tool("mkfs.ext4", "-q", "-F", "-m", "0", "-b", "4096", "-E", "nodiscard,lazy_itable_init=0", d.image))
	// Every block gets pages, and those that the new file system does not use lose them
	// again: its own, the journal above all, keep them, so that a starved disk fails
	// files and not itself.
	if err == nil && d.store != "" {
		err = rewrite(d.image)
	}
	if err == nil {
		err = d.mount()
	}
	if err == nil && d.store != "" {
		err = d.trim()
	}
	if err != nil {
		return nil, errors.Join(err, d.close())
	}
	return d, nil
}

// rewrite writes a file's own bytes into all of it, holes too.
func rewrite(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	b := make([]byte, 1<<20)
	for at := int64(0); ; {
		n, err := f.ReadAt(b, at)
		if _, err := f.WriteAt(b[:n], at); err != nil {
			return err
		}
		at += int64(n)
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// mount: the journal is written when somebody syncs, not every 5 seconds, so that
// a power cut has something to lose.
func (d *Disk) mount() error { return tool("mount", "-o", "loop,noatime,commit=600", d.image, d.Dir) }

func (d *Disk) close() error {
	err := d.Thaw()
	if tool("mountpoint", "-q", d.Dir) == nil {
		err = errors.Join(err, tool("umount", "--lazy", d.Dir))
	}
	if d.store != "" {
		return errors.Join(err, tool("umount", "--lazy", d.store))
	}
	return errors.Join(err, os.RemoveAll(d.image))
}

// Fill leaves free bytes of room at most. The node may write meanwhile.
func (d *Disk) Fill(free int64) error {
	f, err := os.OpenFile(filepath.Join(d.Dir, balloon), os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	var size int64
	if info, err := f.Stat(); err == nil {
		size = info.Size() // of an earlier one
	}
	for err == nil {
		var fs syscall.Statfs_t
		if err = syscall.Statfs(d.Dir, &fs); err != nil {
			break
		}
		n := int64(fs.Bavail)*fs.Bsize - free
		if n <= 0 {
			break
		}
		// Somebody may take some of it meanwhile, and the last blocks may be kept for the
		// tree of extents: what cannot be had is no room.
		err = syscall.Fallocate(int(f.Fd()), 0, size, n)
		for err == syscall.ENOSPC && n > fs.Bsize {
			n = max(n/2/fs.Bsize, 1) * fs.Bsize
			err = syscall.Fallocate(int(f.Fd()), 0, size, n)
		}
		size += n
	}
	if err == syscall.ENOSPC {
		err = nil
	}
	return errors.Join(err, f.Close())
}

// FillTo fills the disk to so many percent.
func (d *Disk) FillTo(percent int64) error {
	var fs syscall.Statfs_t
	if err := syscall.Statfs(d.Dir, &fs); err != nil {
		return err
	}
	return d.Fill(int64(fs.Blocks) * fs.Bsize * (100 - percent) / 100)
}

// Free undoes Fill. ext4 gives the room to nobody before its journal has the removal,
// so what is unsynced is synced, if the disk was filled.
func (d *Disk) Free() error {
	err := os.Remove(filepath.Join(d.Dir, balloon))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	f, e := os.Open(d.Dir)
	if err = errors.Join(err, e); err != nil {
		return err
	}
	return errors.Join(os.NewSyscallError("syncfs", unix.Syncfs(int(f.Fd()))), f.Close())
}

// Wipe removes all that the node has written. The node must not run.
func (d *Disk) Wipe() error { return os.RemoveAll(filepath.Join(d.Dir, "data")) }

// Backup copies the disk as it is now, unsynced writes left out; see Restore.
func (d *Disk) Backup() (string, error) {
	to := d.image + ".backup"
	return to, d.copyTo(to)
}

// Save is Backup of a disk that nobody writes to: nothing is left out.
func (d *Disk) Save() (string, error) {
	to := d.image + ".saved"
	return to, errors.Join(tool("umount", d.Dir), d.copyTo(to), d.mount())
}

// copyTo keeps holes as they are, and makes none of zeros, see newDisk.
func (d *Disk) copyTo(to string) error {
	const seekData, seekHole = 3, 4
	in, err := os.Open(d.image)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.Create(to)
	if err != nil {
		return err
	}
	defer out.Close()
	for at := int64(0); ; {
		from, err := in.Seek(at, seekData)
		if errors.Is(err, syscall.ENXIO) {
			return out.Truncate(d.size)
		} else if err != nil {
			return err
		}
		if at, err = in.Seek(from, seekHole); err != nil {
			return err
		}
		if _, err := io.Copy(io.NewOffsetWriter(out, from), io.NewSectionReader(in, from, at-from)); err != nil {
			return err
		}
	}
}

// Restore puts a copy in the place of the disk. The node must not run.
func (d *Disk) Restore(from string) error {
	if err := tool("umount", d.Dir); err != nil {
		return err
	}
	return errors.Join(os.Rename(from, d.image), d.mount())
}

// PowerCut cuts the power of nodes at one moment: what they have not synced is
// lost. They are stopped and their disks hold what was synced until then; start
// them to go on. lost tells for each whether something unsynced was there and is
// gone, as it should be.
//
// A node is stopped first and its disk copied then, so that whatever it had
// answered is in the copy if it was synced before the answer.
func (c *Cluster) PowerCut(nodes ...int) (lost []bool, err error) {
	for _, i := range nodes {
		n := c.Nodes[i]
		if n.Disk == nil {
			return nil, fmt.Errorf("%s has no disk of its own", n.Name)
		}
		if err := n.Signal(syscall.SIGSTOP); err != nil {
			return nil, err
		}
	}
	for _, i := range nodes {
		n := c.Nodes[i]
		path := filepath.Join(n.Disk.Dir, canary)
		text := []byte(time.Now().String())
		err := errors.Join(waitStopped(n.Pid()), os.WriteFile(path, text, 0o600), n.Disk.copyTo(n.Disk.image+".cut"))
		n.Kill9()
		if err = errors.Join(err, n.Disk.Restore(n.Disk.image+".cut")); err != nil {
			return nil, fmt.Errorf("power cut of %s: %w", n.Name, err)
		}
		left, _ := os.ReadFile(path) // not there: lost
		lost = append(lost, !bytes.Equal(left, text))
		if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, err
		}
	}
	return lost, nil
}

// waitStopped waits until no thread of a process runs: one that was inside a
// system call when the signal came finishes it first.
func waitStopped(pid int) error {
	if pid == 0 {
		return nil
	}
	for end := time.Now().Add(stopWithin); ; time.Sleep(time.Millisecond) { // between looks at a condition
		stats, err := filepath.Glob("/proc/" + strconv.Itoa(pid) + "/task/*/stat")
		if err != nil {
			return err
		}
		moving := 0
		for _, path := range stats {
			text, _ := os.ReadFile(path) // gone: it does not run
			if rest := text[bytes.LastIndexByte(text, ')')+1:]; len(rest) > 2 && !strings.ContainsRune("TtZX", rune(rest[1])) {
				moving++
			}
		}
		if moving == 0 {
			return nil
		}
		if time.Now().After(end) {
			return fmt.Errorf("%d threads of process %d do not stop", moving, pid)
		}
	}
}
