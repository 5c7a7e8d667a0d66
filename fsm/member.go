package fsm

import (
	"encoding/binary"
	"slices"
	"strings"
)

// Member is a line of the replicated member table. Raft's own configuration
// equals the table at every index: the entry that changes the one changes the
// other.
type Member struct {
	ID      uint64
	Name    string // unique among the members
	Peer    string // peer URL, as the member's last start told it
	Learner bool
	Standby bool   // a learner that becomes a voter only when somebody asks for it
	Join    uint64 // drawn by the node that joined as this member; 0: a first member, or its node has not come yet
}

// MemberVerb says what a MemberChange does.
type MemberVerb uint8

const (
	MemberAdd     MemberVerb = 1 // Member, as a learner
	MemberPromote MemberVerb = 2 // the learner Member.ID becomes a voter
	MemberRemove  MemberVerb = 3 // Member.ID, for ever: ids are used once
	MemberClaim   MemberVerb = 4 // the node that drew Member.Join is the one that Member.ID was added for
	MemberGone    MemberVerb = 5 // a majority of those who are left knows durably that Member.ID was removed: nobody needs it any more
)

// MemberChange changes one line of the member table. Only in batches of origin
// 0. MemberAdd, MemberPromote and MemberRemove travel in raft's entry for the change
// of its own configuration; one that the machine refuses, raft does not make either.
type MemberChange struct {
	Verb   MemberVerb
	Member Member // MemberAdd: all of it; else ID, and Join of a claim
}

// Bits of a member's flags, in an op and in the encoded state.
const (
	memberLearner = 1 << iota
	memberStandby
	memberJoined // Join follows
	memberFlagsEnd
)

func (m *Member) flags() byte {
	return bit(m.Learner, memberLearner) | bit(m.Standby, memberStandby) | bit(m.Join != 0, memberJoined)
}

func (m *Member) size() int { return 8 + 1 + 8 + 2*varintMax + len(m.Name) + len(m.Peer) }

func (m *Member) appendFields(b []byte) []byte {
	assertLimit(len(m.Name), addressMax, "member name")
	assertLimit(len(m.Peer), addressMax, "address")
	b = binary.BigEndian.AppendUint64(b, m.ID)
	b = append(b, m.flags())
	b = appendString(b, m.Name)
	b = appendString(b, m.Peer)
	if m.Join != 0 {
		b = binary.BigEndian.AppendUint64(b, m.Join)
	}
	return b
}

func (m *Member) decode(f *fields) (newer bool) {
	m.ID = f.u64()
	flags := f.u8()
	m.Learner, m.Standby = flags&memberLearner != 0, flags&memberStandby != 0
	m.Name, m.Peer, m.Join = f.text(addressMax), f.text(addressMax), 0
	if flags&memberJoined != 0 {
		m.Join = f.u64()
	}
	return flags >= memberFlagsEnd
}

func (*MemberChange) Kind() Kind   { return KindMember }
func (op *MemberChange) size() int { return 1 + op.Member.size() }
func (op *MemberChange) release()  { *op = MemberChange{} }
func (op *MemberChange) appendFields(b []byte) []byte {
	return op.Member.appendFields(append(b, byte(op.Verb)))
}

func (op *MemberChange) decode(f *fields) (newer bool) {
	op.Verb = MemberVerb(f.u8())
	return op.Member.decode(f) || op.Verb > MemberGone
}

// removedMember is what is kept of a member that was removed. Its id is kept for
// ever; its epochs, for fate, while it is one of the last removedFates.
type removedMember struct {
	id     uint64
	gone   bool        // see MemberGone
	epochs []pastEpoch // oldest first; never changed, replaced
}

// removedFates is of how many removed members the epochs are kept.
const removedFates = 32

// Members returns the table, sorted by id.
func (m *Machine) Members() []Member { return slices.Clone(m.members) }

// Member returns a line of the table.
func (m *Machine) Member(id uint64) (Member, bool) {
	i := slices.IndexFunc(m.members, func(e Member) bool { return e.ID == id })
	if i < 0 {
		return Member{}, false
	}
	return m.members[i], true
}

func (m *Machine) isMember(node uint64) bool {
	return slices.ContainsFunc(m.members, func(e Member) bool { return e.ID == node })
}

// Removed tells whether the id is that of a member that was removed.
func (m *Machine) Removed(id uint64) bool {
	return slices.ContainsFunc(m.removed, func(e removedMember) bool { return e.id == id })
}

// RemovedMembers returns the ids of removed members, in the order in which they
// went: those that are gone (MemberGone), or those that are not yet.
func (m *Machine) RemovedMembers(gone bool) (ids []uint64) {
	for _, r := range m.removed {
		if r.gone == gone {
			ids = append(ids, r.id)
		}
	}
	return ids
}

// setMembers makes a table the machine's. Tables are never changed, so a copy of
// the machine, and whoever learned of the table, may keep it.
func (m *Machine) setMembers(table []Member) {
	m.members = table
	m.run.applied.Members = table
}

// changeMember applies one change of the table. A refused one changes nothing.
func (m *Machine) changeMember(op *MemberChange) Code {
	if op.Verb == MemberGone {
		return m.memberGone(op.Member.ID)
	}
	i := slices.IndexFunc(m.members, func(e Member) bool { return e.ID == op.Member.ID })
	if op.Verb != MemberAdd && i < 0 {
		return CodeMemberNotFound
	}
	m.need(2)
	switch op.Verb {
	case MemberAdd:
		return m.addMember(&op.Member)
	case MemberRemove:
		return m.removeMember(i)
	}
	table := slices.Clone(m.members)
	if op.Verb == MemberPromote {
		table[i].Learner, table[i].Standby = false, false
	} else {
		table[i].Join = op.Member.Join
	}
	m.setMembers(table)
	return CodeOK
}

func (m *Machine) addMember(e *Member) Code {
	taken := slices.ContainsFunc(m.members, func(o Member) bool { return o.ID == e.ID || o.Name == e.Name })
	switch {
	case e.ID == 0 || e.Name == "" || !e.Learner:
		return CodeInvalidRequest
	case taken || m.Removed(e.ID):
		return CodeMemberExists
	}
	added := *e
	added.Name, added.Peer = strings.Clone(e.Name), strings.Clone(e.Peer)
	at, _ := slices.BinarySearchFunc(m.members, e.ID, func(o Member, id uint64) int {
		if o.ID < id {
			return -1
		}
		return 1
	})
	m.setMembers(slices.Insert(slices.Clone(m.members), at, added))
	return CodeOK
}

// removeMember takes a member out. Its waiters go with it: nobody can serve them
// any more. What it has leased stays leased: the consumers may settle it on any
// node.
func (m *Machine) removeMember(i int) Code {
	gone := m.members[i]
	last := !slices.ContainsFunc(m.members, func(e Member) bool { return !e.Learner && e.ID != gone.ID })
	if last {
		return CodeQuorumAtRisk // nobody would be left to decide anything
	}
	r := removedMember{id: gone.ID}
	if s := m.ownSession(gone.ID); s != nil {
		m.dropWaiters(s)
		r.epochs = append(slices.Clip(s.past), pastEpoch{s.epoch, s.last})
		m.bytes -= sessionCost + (&session{}).startBytes(&s.start)
		m.sessions.Delete(gone.ID)
	}
	removed := append(slices.Clone(m.removed), r)
	if old := len(removed) - 1 - removedFates; old >= 0 {
		removed[old].epochs = nil
	}
	m.removed = removed
	m.setMembers(slices.Delete(slices.Clone(m.members), i, i+1))
	return CodeOK
}

func (m *Machine) memberGone(id uint64) Code {
	i := slices.IndexFunc(m.removed, func(r removedMember) bool { return r.id == id })
	if i < 0 {
		return CodeMemberNotFound
	}
	m.removed = slices.Clone(m.removed)
	m.removed[i].gone = true
	m.run.applied.Gone = id
	return CodeOK
}

// moveMember notes the address that a member starts with.
func (m *Machine) moveMember(id uint64, peer string) {
	i := slices.IndexFunc(m.members, func(e Member) bool { return e.ID == id })
	if peer == "" || m.members[i].Peer == peer {
		return
	}
	table := slices.Clone(m.members)
	table[i].Peer = peer
	m.setMembers(table)
}

// removedEpochs calls f with the epochs of removed members until it is false.
func (m *Machine) removedEpochs(f func(node uint64, p pastEpoch) bool) {
	for i := range m.removed {
		for _, p := range m.removed[i].epochs {
			if !f(m.removed[i].id, p) {
				return
			}
		}
	}
}
