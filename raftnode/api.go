package raftnode

import (
	"context"
	"time"

	"raftq/fsm"
)

// Node is a running replica.
type Node struct{}

// Open boots the replica from its data directory (made at the first start) and
// starts it; it does not wait for a leader.
func Open(cfg Config) (*Node, error) { panic("not yet") }

// Close moves leadership away, stops everything and closes the log. Requests
// still waiting are answered CodeLeaving. Stop the front ends before.
func (n *Node) Close(ctx context.Context) error { panic("not yet") }

// Done is closed when the replica ended, by Close or by itself; Err says why
// (nil after Close). The process must end when Err is not nil.
func (n *Node) Done() <-chan struct{} { panic("not yet") }
func (n *Node) Err() error            { panic("not yet") }

// Do, Read, GiveBack, Name, Leader, Ready and Started are described at
// httpapi.Replica.
func (n *Node) Do(op fsm.Op, timeout time.Duration, gone <-chan struct{}) (fsm.Result, error) {
	panic("not yet")
}
func (n *Node) Read(strong bool, minIndex uint64, timeout time.Duration, f func(m *fsm.Machine)) (fsm.Position, error) {
	panic("not yet")
}
func (n *Node) GiveBack(items []fsm.Item) { panic("not yet") }
func (n *Node) Name() string              { panic("not yet") }
func (n *Node) Leader() string            { panic("not yet") }
func (n *Node) Ready() error              { panic("not yet") }
func (n *Node) Started() error            { panic("not yet") }

// Status is what GET /v1/cluster shows.
type Status struct {
	ClusterID    uint64
	Leader       string
	Term, Commit uint64
	FeatureLevel uint32
	Nodes        []NodeStatus
}

// NodeStatus is one member as this node last heard of it.
type NodeStatus struct {
	ID                     uint64
	Name, Client, Peer     string
	Learner, Leader, Alive bool
	Match, Applied         uint64
	ChainIndex, ChainHash  uint64
	Version                string
}

func (n *Node) Status() Status { panic("not yet") }
