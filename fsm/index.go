package fsm

// Indexes of few jobs, beside the trees of their queues. What they read of a job
// changes only while it is out of its places: between take and place.

// aside is a place of a job in an index of the machine: by queue, or by
// consumer, then by ord.
type aside struct {
	queue    uint32
	consumer string
	ord      uint64
	key      Key
}

func asideLess(a, b aside) bool {
	switch {
	case a.queue != b.queue:
		return a.queue < b.queue
	case a.consumer != b.consumer:
		return a.consumer < b.consumer
	}
	return a.ord < b.ord
}

// heldBackPlace is the place of a job in Machine.back: the first to be ready is
// the first in the order of delivery.
func (it jobItem) heldBackPlace() aside { return aside{queue: it.queue, ord: it.order(), key: it.key} }

// movedPlace is the place of a job in Machine.moved: by dead reason, then by
// sequence.
func (it jobItem) movedPlace() aside {
	return aside{queue: it.queue, ord: uint64(it.rare.deadReason)<<60 | it.seq, key: it.key}
}

// consumerPlace is the place of a leased job in Machine.consumers: those that
// can be given back come first, then by sequence.
func (it jobItem) consumerPlace() aside {
	lane := uint64(0)
	if it.flags&flagAtMostOnce != 0 {
		lane = 1
	}
	return aside{consumer: it.rare.consumer, ord: lane<<60 | it.seq, key: it.key}
}

// putAside puts a job that has just been placed into the indexes of its state.
func (m *Machine) putAside(q *queue, it jobItem) {
	if it.heldBack() {
		m.back.Set(it.heldBackPlace())
	}
	if it.rare == nil {
		return
	}
	switch {
	case it.state == stateDead:
		q.deadBytes += it.bytes()
	case it.state == stateLeased && it.rare.consumer != "":
		m.consumers.Set(it.consumerPlace())
	case it.state != stateLeased && it.moved():
		m.moved.Set(it.movedPlace())
	}
}

// takeAside takes a job out of the indexes of its state.
func (m *Machine) takeAside(q *queue, it jobItem) {
	if it.heldBack() {
		m.back.Delete(it.heldBackPlace())
		if m.thaw.Len() > 0 && !m.holdsBack(q) {
			m.thaw.Delete(q.number)
		}
	}
	if it.rare == nil {
		return
	}
	switch {
	case it.state == stateDead:
		q.deadBytes -= it.bytes()
	case it.state == stateLeased && it.rare.consumer != "":
		m.consumers.Delete(it.consumerPlace())
	case it.state != stateLeased && it.moved():
		m.moved.Delete(it.movedPlace())
	}
}
