package cluster

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Disk is a node's own file system: ext4 on an image file, mounted at Dir. What
// the node wrote and did not sync is in the memory of that file system and not
// in the image, so a copy of the image is what a power cut leaves.
type Disk struct {
	Dir string

	net   *Network
	image string
	size  int64
}

const (
	diskBytes = 256 << 20

	// imageDir is where images lie if there is room: their fsync must be cheap,
	// three of them share a machine.
	imageDir    = "/dev/shm"
	imageDirMin = 2 << 30 // free bytes

	canary     = "not-synced"
	balloon    = "balloon"
	stopWithin = 10 * time.Second
)

func newDisk(net *Network, dir, name string, size int64) (*Disk, error) {
	d := &Disk{Dir: filepath.Join(dir, name), net: net, size: size}
	at := dir
	var fs syscall.Statfs_t
	if syscall.Statfs(imageDir, &fs) == nil && int64(fs.Bavail)*fs.Bsize > imageDirMin {
		at = imageDir
	}
	f, err := os.CreateTemp(at, fmt.Sprintf("raftq-%d-%s-*.img", net.number, name))
	if err != nil {
		return nil, err
	}
	d.image = f.Name()
	if err := errors.Join(f.Truncate(size), f.Close(), os.MkdirAll(d.Dir, 0o755), net.mounted(d.Dir),
		tool("mkfs.ext4", "-q", "-F", "-m", "0", d.image)); err != nil {
		return nil, errors.Join(err, os.Remove(d.image))
	}
	if err := d.mount(); err != nil {
		return nil, errors.Join(err, os.Remove(d.image))
	}
	return d, nil
}

// mount: the journal is written when somebody syncs, not every 5 seconds, so that
// a power cut has something to lose.
func (d *Disk) mount() error { return tool("mount", "-o", "loop,noatime,commit=600", d.image, d.Dir) }

func (d *Disk) close() error {
	return errors.Join(tool("umount", "--lazy", d.Dir), os.Remove(d.image))
}

// Fill leaves free bytes of room at most. The node may write meanwhile.
func (d *Disk) Fill(free int64) error {
	f, err := os.OpenFile(filepath.Join(d.Dir, balloon), os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	for size := int64(0); err == nil; {
		var fs syscall.Statfs_t
		if err = syscall.Statfs(d.Dir, &fs); err != nil {
			break
		}
		n := int64(fs.Bavail)*fs.Bsize - free
		if n <= 0 {
			break
		}
		err = syscall.Fallocate(int(f.Fd()), 0, size, n)
		if size += n; err == syscall.ENOSPC {
			err = nil // somebody took some of it: what is left now?
		}
	}
	return errors.Join(err, f.Close())
}

// Free undoes Fill.
func (d *Disk) Free() error {
	if err := os.Remove(filepath.Join(d.Dir, balloon)); !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
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

func (d *Disk) copyTo(to string) error { return tool("cp", "--sparse=always", d.image, to) }

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
