package fsm

import (
	"slices"
	"strings"
)

// session is what the machine keeps of an origin. It is changed only by the
// machine whose stamp it carries (ownSession).
type session struct {
	stamp   uint64
	node    uint64
	epoch   uint64
	last    uint64 // number of the last batch of the epoch that had effect
	away    bool   // its waiters are in no queue
	waiters int
	start   NodeStart
	disk    uint8       // last Alarm: percent of the disk that was passed
	past    []pastEpoch // oldest first, at most EpochsKept; never changed, replaced
}

// pastEpoch is an epoch that is over, and its last batch that had effect.
type pastEpoch struct{ epoch, last uint64 }

func bootCounter(epoch uint64) uint64 { return epoch >> 32 }

const epochMax = 1<<48 - 1

func (m *Machine) ownSession(node uint64) *session {
	s, ok := m.sessions.Get(node)
	if !ok || s.stamp == m.stamp {
		return s
	}
	c := *s
	c.stamp = m.stamp
	m.sessions.Set(node, &c)
	return &c
}

// admits tells whether a batch may have effect: anything but the next number of
// the registered epoch has none. Batch 0 is admitted when it is not that of the
// registered epoch come again: whether it starts anything is nodeStart's to say.
func (m *Machine) admits(h BatchHeader, ops []byte) bool {
	if h.Origin == 0 {
		return true
	}
	s, ok := m.sessions.Get(h.Origin)
	if h.Number == 0 {
		return (!ok || s.epoch != h.Epoch) && len(ops) > 0 && Kind(ops[0]) == KindNodeStart
	}
	if seeded == "batch-applied-twice" {
		return ok && s.epoch == h.Epoch && h.Number <= s.last+1
	}
	return ok && s.epoch == h.Epoch && h.Number == s.last+1
}

// nodeStart registers the batch's epoch. A refused one changes nothing.
func (m *Machine) nodeStart(h BatchHeader, op *NodeStart) Code {
	s := m.ownSession(h.Origin)
	switch {
	case h.Epoch == 0 || h.Epoch > epochMax || !m.isMember(h.Origin):
		return CodeEpochTaken
	case s != nil && bootCounter(h.Epoch) <= bootCounter(s.epoch):
		return CodeEpochTaken
	case m.EpochUsed(h.Epoch):
		return CodeEpochTaken
	}
	if s == nil {
		s = &session{stamp: m.stamp, node: h.Origin}
		m.sessions.Set(s.node, s)
		m.bytes += sessionCost
	} else {
		m.dropWaiters(s)
		past := s.past
		if len(past) == EpochsKept {
			past = past[1:]
		}
		s.past = append(slices.Clip(past), pastEpoch{s.epoch, s.last})
	}
	s.epoch, s.last, s.away, s.disk = h.Epoch, 0, false, 0
	m.bytes += s.startBytes(op)
	s.start = *op
	s.start.Client, s.start.Peer, s.start.Version = strings.Clone(op.Client), strings.Clone(op.Peer), strings.Clone(op.Version)
	if op.FeatureLevel >= 2 {
		m.moveMember(h.Origin, s.start.Peer)
	}
	m.need(uint8(min(m.FeatureLevel(), stateVersion)))
	return CodeOK
}

// startBytes is by how much the session's cost changes with op in the place of
// its node start.
func (s *session) startBytes(op *NodeStart) int64 {
	size := func(n *NodeStart) int { return len(n.Client) + len(n.Peer) + len(n.Version) }
	return int64(size(op) - size(&s.start))
}

// FeatureLevel is the lowest feature level that the members reported: what the
// log may hold. A voter that never started counts as 0, because nobody knows; a
// learner that never started does not count.
func (m *Machine) FeatureLevel() uint32 {
	lowest := uint32(1<<32 - 1)
	for _, e := range m.members {
		s, started := m.sessions.Get(e.ID)
		switch {
		case started:
			lowest = min(lowest, s.start.FeatureLevel)
		case !e.Learner:
			return 0
		}
	}
	if lowest == 1<<32-1 {
		return 0
	}
	return lowest
}

// nodeAway takes the waiters of a session out of their queues; their places
// stay theirs.
func (m *Machine) nodeAway(op *NodeAway) Code {
	s := m.ownSession(op.Node)
	if s == nil || s.epoch != op.Epoch || s.away {
		return CodeOK
	}
	s.away = true
	m.eachParked(s.node, func(w *waiter) { m.unlist(w) })
	return CodeOK
}

// nodeBack puts the waiters of the batch's origin back into their places.
func (m *Machine) nodeBack(h BatchHeader) Code {
	if s := m.ownSession(h.Origin); s.away {
		s.away = false
		m.eachParked(s.node, func(w *waiter) { m.list(w) })
	}
	return CodeOK
}

func diskStep(percent uint8) bool {
	return percent == 0 || percent == 75 || percent == 90 || percent == 95
}

// alarm notes how full the disk of the batch's origin is. It holds until the
// next one or the node's next start.
func (m *Machine) alarm(h BatchHeader, op *Alarm) Code {
	if !diskStep(op.Disk) {
		return CodeInvalidRequest
	}
	m.ownSession(h.Origin).disk = op.Disk
	return CodeOK
}

func (m *Machine) dropWaiters(s *session) {
	m.eachParked(s.node, func(w *waiter) { m.unpark(w) })
}

// EpochUsed tells whether a session, now or in the past, a job or a tombstone
// carries the epoch.
func (m *Machine) EpochUsed(epoch uint64) bool {
	used := false
	m.sessions.Scan(func(_ uint64, s *session) bool {
		used = s.epoch == epoch || slices.ContainsFunc(s.past, func(p pastEpoch) bool { return p.epoch == epoch })
		return !used
	})
	m.removedEpochs(func(_ uint64, p pastEpoch) bool {
		used = used || p.epoch == epoch
		return !used
	})
	first := Key{Hi: epoch}
	m.jobs.Ascend(jobItem{key: first}, func(it jobItem) bool {
		used = used || it.key.Hi == epoch
		return false
	})
	m.tombs.Ascend(tomb{key: first}, func(t tomb) bool {
		used = used || t.key.Hi == epoch
		return false
	})
	return used
}

// Fate returns the number of the last batch of an epoch of node that had
// effect; ok is false when the node has no such epoch, or not any more.
func (m *Machine) Fate(node, epoch uint64) (last uint64, ok bool) {
	s, ok := m.sessions.Get(node)
	if !ok {
		m.removedEpochs(func(removed uint64, p pastEpoch) bool {
			if removed == node && p.epoch == epoch {
				last, ok = p.last, true
			}
			return !ok
		})
		return last, ok
	}
	if s.epoch == epoch {
		return s.last, true
	}
	for _, p := range s.past {
		if p.epoch == epoch {
			return p.last, true
		}
	}
	return 0, false
}

func (s *session) info() SessionInfo {
	return SessionInfo{Node: s.node, Epoch: s.epoch, LastBatch: s.last, Away: s.away, Waiters: s.waiters, Disk: s.disk, Start: s.start}
}

// Session returns the session of a node; ok is false when it never started.
func (m *Machine) Session(node uint64) (s SessionInfo, ok bool) {
	e, ok := m.sessions.Get(node)
	if !ok {
		return s, false
	}
	return e.info(), true
}

// Sessions returns all sessions, sorted by node.
func (m *Machine) Sessions() []SessionInfo {
	all := make([]SessionInfo, 0, m.sessions.Len())
	m.sessions.Scan(func(_ uint64, s *session) bool {
		all = append(all, s.info())
		return true
	})
	return all
}
