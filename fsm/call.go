package fsm

// What front ends and replicas say to each other besides ops and results.

// ReadHow says what a read of the machine must see.
type ReadHow struct {
	// Strong: linearizable. Else the node's own committed state, with its age.
	Strong   bool
	MinIndex uint64 // not before this entry is applied here
	// Age: a weak read waits a little until its state's age is known.
	Age bool
	// MaxStaleMs is the highest age of a weak read's state, in ms; 0 = any.
	// It needs Age.
	MaxStaleMs int64
	TimeoutMs  int64
}

// Seen is what a read saw.
type Seen struct {
	Position
	// StaleMs: the state holds everything that was committed so many ms ago.
	// 0 for a strong read, -1 when the age is not known.
	StaleMs int64
	// NowMs is log time at the answer, as this node reckons it: ages are counted
	// to here, because a quiet log has no entries that show time passing.
	NowMs int64
}

// BatchRef names a batch, for asking for its fate.
type BatchRef struct{ Node, Epoch, Number uint64 }

// NewMember is who shall become a member of the cluster.
type NewMember struct {
	Name, Peer   string
	Standby      bool   // a learner until somebody promotes it
	Replace      bool   // a dead member of that name is removed first
	Join         uint64 // drawn by the node itself, which asks; 0: somebody else asks for it
	Token        string // the node's cluster token; checked when it asks itself
	FeatureLevel uint32 // of the node's build, 0 = not known
}

// MembersChanged is what came of a change of the members.
type MembersChanged struct {
	Member  Member // whom it was about; as it was, when it was removed
	Already bool   // there was nothing to do
	Index   uint64 // log index at or behind the change
	Members []Member
}
