package fsm

import "github.com/tidwall/btree"

// consistencies are the queues whose configuration says a consistency, beside the
// queues themselves: a front end asks with each request, and few queues have one.
type consistencies struct {
	of btree.Map[string, uint8]
	// changed is the index of the last change. It is not part of the state: after a
	// restore it is the index of that.
	changed uint64
}

func (c *consistencies) copied() consistencies {
	return consistencies{of: *c.of.IsoCopy(), changed: c.changed}
}

// noteConsistency follows a queue's configuration; 0 = none, or the queue is gone.
func (m *Machine) noteConsistency(queue string, v uint8) {
	before, had := m.consistencies.of.Get(queue)
	switch {
	case v == 0 && !had || v != 0 && v == before:
		return
	case v == 0:
		m.consistencies.of.Delete(queue)
	default:
		m.consistencies.of.Set(queue, v)
	}
	m.consistencies.changed = m.index
}

// ConsistencyChanged is the index at which what QueueConsistencies returns changed
// last. A rollback may lower it.
func (m *Machine) ConsistencyChanged() uint64 { return m.consistencies.changed }

// QueueConsistencies returns the queues that have a default for requests that do not
// say: ConsistencyStrong or ConsistencyFast.
func (m *Machine) QueueConsistencies() map[string]uint8 {
	all := make(map[string]uint8, m.consistencies.of.Len())
	m.consistencies.of.Scan(func(queue string, v uint8) bool {
		all[queue] = v
		return true
	})
	return all
}
