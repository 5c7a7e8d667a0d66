package fsm

// A tombstone remembers a job that is gone, so that a late or repeated call
// gets a good answer. The last TombstonesMax are kept.

const (
	tombAcked   = 1 // acked, or deleted
	tombExpired = 2 // reached its TTL, or the end of its time as a dead job
)

type tomb struct {
	key  Key
	ord  uint64 // in order of making; key of Machine.tombOrder
	kind uint8
}

func tombLess(a, b tomb) bool { return a.key.Less(b.key) }

func (m *Machine) remember(k Key, kind uint8) {
	m.tombNumber++
	m.addTomb(tomb{k, m.tombNumber, kind})
	for m.tombOrder.Len() > m.tombsMax {
		_, old, _ := m.tombOrder.PopMin()
		m.tombs.Delete(tomb{key: old})
		m.bytes -= tombstoneCost
	}
}

func (m *Machine) addTomb(t tomb) {
	if before, ok := m.tombs.Set(t); ok {
		m.tombOrder.Delete(before.ord)
		m.bytes -= tombstoneCost
	}
	m.tombOrder.Set(t.ord, t.key)
	m.bytes += tombstoneCost
}

// gone says of a job that is not there: CodeOK = acked, CodeJobGone = its time
// was over, CodeJobNotFound = nothing is known.
func (m *Machine) gone(k Key) Code {
	t, ok := m.tombs.Get(tomb{key: k})
	switch {
	case !ok:
		return CodeJobNotFound
	case t.kind == tombAcked:
		return CodeOK
	}
	return CodeJobGone
}
