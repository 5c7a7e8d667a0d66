package fsm

import "github.com/tidwall/btree"

// consistencies are the queues and topics whose configuration says a consistency,
// beside these themselves: a front end asks with each request, and few have one.
type consistencies struct {
	queues, topics btree.Map[string, uint8]
	// changed is the index of the last change. It is not part of the state: after a
	// restore it is the index of that.
	changed uint64
}

func (c *consistencies) copied() consistencies {
	return consistencies{queues: *c.queues.IsoCopy(), topics: *c.topics.IsoCopy(), changed: c.changed}
}

// noteConsistency follows a queue's configuration; 0 = none, or the queue is gone.
func (m *Machine) noteConsistency(queue string, v uint8) {
	m.consistencies.note(&m.consistencies.queues, queue, v, m.index)
}

// noteTopicConsistency is noteConsistency for a topic.
func (m *Machine) noteTopicConsistency(topic string, v uint8) {
	m.consistencies.note(&m.consistencies.topics, topic, v, m.index)
}

func (c *consistencies) note(all *btree.Map[string, uint8], name string, v uint8, index uint64) {
	before, had := all.Get(name)
	switch {
	case v == 0 && !had || v != 0 && v == before:
		return
	case v == 0:
		all.Delete(name)
	default:
		all.Set(name, v)
	}
	c.changed = index
}

// ConsistencyChanged is the index at which what QueueConsistencies or
// TopicConsistencies returns changed last. A rollback may lower it.
func (m *Machine) ConsistencyChanged() uint64 { return m.consistencies.changed }

// QueueConsistencies returns the queues that have a default for requests that do not
// say: ConsistencyStrong or ConsistencyFast.
func (m *Machine) QueueConsistencies() map[string]uint8 { return listed(&m.consistencies.queues) }

// TopicConsistencies is QueueConsistencies for topics.
func (m *Machine) TopicConsistencies() map[string]uint8 { return listed(&m.consistencies.topics) }

func listed(from *btree.Map[string, uint8]) map[string]uint8 {
	all := make(map[string]uint8, from.Len())
	from.Scan(func(name string, v uint8) bool {
		all[name] = v
		return true
	})
	return all
}
