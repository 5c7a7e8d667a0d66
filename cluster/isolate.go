package cluster

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
)

// CanIsolate is nil when nodes can be isolated here (Options.Isolated), else it
// says what is missing. It tries: the answer is not guessed from the user's id.
func CanIsolate() error { return canIsolate() }

var canIsolate = sync.OnceValue(func() error {
	for _, tool := range []string{"ip", "nsenter", "mkfs.ext4", "mount", "umount", "mountpoint"} {
		if _, err := exec.LookPath(tool); err != nil {
			return fmt.Errorf("isolated nodes need %s: %w", tool, err)
		}
	}
	net, err := newNetwork()
	if err != nil {
		return fmt.Errorf("isolated nodes need a network of their own: %w", err)
	}
	defer net.close()
	if _, err := net.add("probe"); err != nil {
		return fmt.Errorf("isolated nodes need network namespaces: %w", err)
	}
	dir, err := os.MkdirTemp("", "raftq-probe-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	d, err := newDisk(net, dir, "probe", 8<<20)
	if err != nil {
		return fmt.Errorf("isolated nodes need loop-mounted images: %w", err)
	}
	return d.close()
})

// tool runs one of the system's tools; what it printed is part of the error.
func tool(name string, args ...string) error {
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, strings.TrimSpace(string(out)))
	}
	return nil
}

// isolate gives a node an address, a namespace and a disk of its own.
func (c *Cluster) isolate(n *Node, i int) (err error) {
	if n.namespace, err = c.Net.add(n.Name); err != nil {
		return err
	}
	n.Client, n.Resp, n.Peer = c.Net.address(i)+":8080", c.Net.address(i)+":7711", c.Net.address(i)+":9080"
	n.Args = append(n.Args, "--insecure") // reached from this machine alone
	size := c.options.DiskBytes
	if size == 0 {
		size = diskBytes
	}
	if n.Disk, err = newDisk(c.Net, c.options.Dir, n.Name, size); err != nil {
		return err
	}
	n.DataDir = n.Disk.Dir + "/data"
	return nil
}
