package fsm

import "slices"

// mRemoved is a removed member of the naive model: past are its epochs with their
// last batches.
type mRemoved struct {
	id   uint64
	gone bool
	past []pastEpoch
}

func (m *model) memberIndex(id uint64) int {
	return slices.IndexFunc(m.members, func(e Member) bool { return e.ID == id })
}

func (m *model) table(table []Member) Code {
	m.members, m.applied.Members = table, table
	return CodeOK
}

func (m *model) memberChange(op *MemberChange) Code {
	at := m.memberIndex(op.Member.ID)
	table := slices.Clone(m.members)
	switch {
	case op.Verb == MemberAdd:
		if e := op.Member; e.ID == 0 || e.Name == "" || !e.Learner {
			return CodeInvalidRequest
		}
		for _, e := range m.members {
			if e.ID == op.Member.ID || e.Name == op.Member.Name {
				return CodeMemberExists
			}
		}
		for _, r := range m.removed {
			if r.id == op.Member.ID {
				return CodeMemberExists
			}
		}
		table = append(table, op.Member)
		slices.SortFunc(table, func(a, b Member) int {
			if a.ID < b.ID {
				return -1
			}
			return 1
		})
		return m.table(table)
	case op.Verb == MemberGone:
		for i := range m.removed {
			if m.removed[i].id == op.Member.ID {
				m.removed[i].gone, m.applied.Gone = true, op.Member.ID
				return CodeOK
			}
		}
		return CodeMemberNotFound
	case at < 0:
		return CodeMemberNotFound
	case op.Verb == MemberPromote:
		table[at].Learner, table[at].Standby = false, false
		return m.table(table)
	case op.Verb == MemberClaim:
		table[at].Join = op.Member.Join
		return m.table(table)
	}
	voters := 0
	for i, e := range m.members {
		if !e.Learner && i != at {
			voters++
		}
	}
	if voters == 0 {
		return CodeQuorumAtRisk
	}
	r := mRemoved{id: op.Member.ID}
	if s := m.session(r.id); s != nil {
		for _, w := range m.sorted(s.node) {
			m.unpark(w)
		}
		r.past = append(slices.Clone(s.past), pastEpoch{s.epoch, s.last})
		m.sessions = slices.DeleteFunc(m.sessions, func(o *mSession) bool { return o == s })
	}
	m.removed = append(m.removed, r)
	return m.table(slices.Delete(table, at, at+1))
}

func (m *model) fate(node, epoch uint64) (last uint64, ok bool) {
	for _, r := range m.removed {
		for _, p := range r.past {
			if r.id == node && p.epoch == epoch {
				return p.last, true
			}
		}
	}
	if s := m.session(node); s != nil {
		for _, p := range append(slices.Clone(s.past), pastEpoch{s.epoch, s.last}) {
			if p.epoch == epoch {
				return p.last, true
			}
		}
	}
	return 0, false
}
