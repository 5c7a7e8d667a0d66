package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
)

// Options says what to run.
type Options struct {
	Binary string // path of raftq
	Dir    string // data directories, logs and the pids file; made when missing
	Nodes  int
	// First ports, counted up from node to node. Zero takes free ports, kept
	// from others for as long as the Cluster lives.
	ClientPort, RespPort, PeerPort int
	Args                           []string // further flags of serve, for every node
	Env                            []string // added to the environment of every node
	// Isolated gives each node a network namespace and a disk image of its own, so
	// that links can be cut (Cluster.Net) and power too (Cluster.PowerCut). It needs
	// root; ask CanIsolate. The ports above mean nothing then.
	Isolated  bool
	DiskBytes int64 // of each image, 0 = 256 MiB
}

// Cluster is a set of nodes that know each other as first members, and those that
// joined later.
type Cluster struct {
	Nodes []*Node
	Net   *Network // of isolated nodes, else nil

	options  Options
	pids     *pids
	spawner  *spawner
	reserved []int // sockets that hold the free ports
	once     sync.Once
}

// host is where everything listens.
const host = "127.0.0.1"

// New lays a cluster out and starts nothing. Close it, whatever happens after.
func New(o Options) (*Cluster, error) {
	if o.Nodes < 1 {
		return nil, fmt.Errorf("a cluster has at least one node, not %d", o.Nodes)
	}
	dir, err := filepath.Abs(o.Dir)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	o.Dir = dir
	c := &Cluster{options: o, pids: newPids(dir)}
	if err := c.pids.refuseSecond(); err != nil {
		return nil, err
	}
	c.spawner = newSpawner()
	if o.Isolated {
		if c.Net, err = newNetwork(); err != nil {
			c.Close()
			return nil, err
		}
	}
	for range o.Nodes {
		if _, err := c.layOut(); err != nil {
			c.Close()
			return nil, err
		}
	}
	return c, nil
}

// Add lays one more node out, which is to join the running cluster of the others
// when it is started.
func (c *Cluster) Add() (*Node, error) {
	n, err := c.layOut()
	if err == nil {
		n.Joins = true
	}
	return n, err
}

// layOut adds a node to the list.
func (c *Cluster) layOut() (*Node, error) {
	o, i := c.options, len(c.Nodes)
	n := &Node{
		cluster: c,
		Name:    fmt.Sprintf("n%d", i+1),
		Args:    slices.Clone(o.Args),
		Env:     slices.Clone(o.Env),
		Binary:  o.Binary,
	}
	n.DataDir = filepath.Join(o.Dir, n.Name)
	n.LogFile = n.DataDir + ".log"
	if c.Net != nil {
		c.Nodes = append(c.Nodes, n) // before it is whole: Close cleans up
		return n, c.isolate(n, i)
	}
	for _, p := range []struct {
		addr  *string
		first int
	}{{&n.Client, o.ClientPort}, {&n.Resp, o.RespPort}, {&n.Peer, o.PeerPort}} {
		if p.first != 0 {
			*p.addr = fmt.Sprintf("%s:%d", host, p.first+i)
			continue
		}
		fd, port, err := reservePort()
		if err != nil {
			return nil, fmt.Errorf("reserve a port: %w", err)
		}
		c.reserved = append(c.reserved, fd)
		*p.addr = fmt.Sprintf("%s:%d", host, port)
	}
	c.Nodes = append(c.Nodes, n)
	return n, nil
}

// Dir is where the cluster keeps its files.
func (c *Cluster) Dir() string { return c.options.Dir }

// Endpoints returns the client addresses of all nodes, joined by commas, as
// the --endpoints flag takes them.
func (c *Cluster) Endpoints() string {
	var all []string
	for _, n := range c.Nodes {
		all = append(all, n.Client)
	}
	return strings.Join(all, ",")
}

// RespEndpoints are the addresses for clients of Disque's protocol, as Endpoints.
func (c *Cluster) RespEndpoints() string {
	var all []string
	for _, n := range c.Nodes {
		all = append(all, n.Resp)
	}
	return strings.Join(all, ",")
}

// initialCluster is the flag of that name.
func (c *Cluster) initialCluster() string {
	var all []string
	for _, n := range c.Nodes[:c.options.Nodes] {
		all = append(all, n.Name+"=http://"+n.peerVia())
	}
	return strings.Join(all, ",")
}

// others are the client addresses of the nodes that run besides one.
func (c *Cluster) others(n *Node) string {
	var all []string
	for _, o := range c.Nodes {
		if o != n && o.Running() {
			all = append(all, o.Client)
		}
	}
	return strings.Join(all, ",")
}

// Start starts all nodes that do not run and waits until every one is ready.
func (c *Cluster) Start(ctx context.Context) error {
	for _, n := range c.Nodes {
		if n.Running() {
			continue
		}
		if err := n.Start(); err != nil {
			return err
		}
	}
	return c.WaitReady(ctx)
}

// Stop stops all nodes at once, the polite way, and waits for them.
func (c *Cluster) Stop(ctx context.Context) error {
	errs := make([]error, len(c.Nodes))
	var wg sync.WaitGroup
	for i, n := range c.Nodes {
		if n.Running() {
			wg.Go(func() { errs[i] = n.Stop(ctx) })
		}
	}
	wg.Wait()
	return errors.Join(errs...)
}

// Close kills what still runs and lets go of the ports and namespaces. The files
// stay, except those on disks of the nodes' own.
func (c *Cluster) Close() {
	c.once.Do(func() {
		for _, n := range c.Nodes {
			n.Kill9()
		}
		close(c.spawner.quit)
		c.releasePorts()
		for _, n := range c.Nodes {
			if n.Disk != nil {
				_ = n.Disk.close() // what stays is cleaned up by the next owner of the network's number
			}
		}
		if c.Net != nil {
			c.Net.close()
		}
		_ = os.Remove(c.pids.path) // missing when nothing was started
	})
}

func (c *Cluster) releasePorts() {
	for _, fd := range c.reserved {
		_ = syscall.Close(fd) // a socket that carried nothing
	}
	c.reserved = nil
}
