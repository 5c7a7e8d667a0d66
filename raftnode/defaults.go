package raftnode

import "sync/atomic"

// defaults are the queues and topics that have a consistency for requests that do
// not say one, for front ends, which ask with each request.
type defaults struct {
	queues, topics atomic.Pointer[map[string]uint8]
	at             uint64 // of the core: the index at which they changed last
}

// follow takes what the head of the machine says: a hint may come before its commit.
func (d *defaults) follow(c *core) {
	if at := c.machine.ConsistencyChanged(); at != d.at {
		queues, topics := c.machine.QueueConsistencies(), c.machine.TopicConsistencies()
		d.at = at
		d.queues.Store(&queues)
		d.topics.Store(&topics)
	}
}

// QueueConsistency is a queue's default for requests that do not say, 0 when it has
// none. See httpapi.Replica.
func (n *Node) QueueConsistency(queue []byte) uint8 { return defaultOf(&n.defaults.queues, queue) }

// TopicConsistency is QueueConsistency for a topic.
func (n *Node) TopicConsistency(topic []byte) uint8 { return defaultOf(&n.defaults.topics, topic) }

func defaultOf(from *atomic.Pointer[map[string]uint8], name []byte) uint8 {
	if all := from.Load(); all != nil {
		return (*all)[string(name)]
	}
	return 0
}
