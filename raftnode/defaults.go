package raftnode

import "sync/atomic"

// queueDefaults are the queues that have a consistency for requests that do not say
// one, for front ends, which ask with each request.
type queueDefaults struct {
	of atomic.Pointer[map[string]uint8]
	at uint64 // of the core: the index at which they changed last
}

// follow takes what the head of the machine says: a hint may come before its commit.
func (d *queueDefaults) follow(c *core) {
	if at := c.machine.ConsistencyChanged(); at != d.at {
		all := c.machine.QueueConsistencies()
		d.at = at
		d.of.Store(&all)
	}
}

// QueueConsistency is a queue's default for requests that do not say, 0 when it has
// none. See httpapi.Replica.
func (n *Node) QueueConsistency(queue []byte) uint8 {
	if all := n.defaults.of.Load(); all != nil {
		return (*all)[string(queue)]
	}
	return 0
}
