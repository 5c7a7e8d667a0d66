package fsm

import (
	"bytes"
	"slices"
	"testing"
)

// members applies one change in a batch of the leader.
func (r *rig) member(t testing.TB, verb MemberVerb, e Member) Applied {
	t.Helper()
	a, err := r.m.Apply(r.m.Position().Index+1, r.m.Position().Term, EncodeBatch(BatchHeader{TimeMs: r.now}, &MemberChange{verb, e}), r.self)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.m.Check(); err != nil {
		t.Fatal(err)
	}
	return a
}

// TestMemberLife follows a member from its joining to its end: what it has is in
// the table and in an encoded state, its id is never taken again, its fast answers
// keep their fate, and nobody waits in its name.
func TestMemberLife(t *testing.T) {
	r := newRig(t)
	first := r.m.Members()
	const id = 1<<60 | 7
	e := Member{ID: id, Name: "new", Peer: "http://h:1", Learner: true, Standby: true}
	a := r.member(t, MemberAdd, e)
	if !slices.Equal(a.Members, r.m.Members()) || !slices.Contains(a.Members, e) || len(a.Members) != len(first)+1 {
		t.Fatalf("after the join: %+v", a)
	}
	r.member(t, MemberClaim, Member{ID: id, Join: 42})
	start := EncodeBatch(BatchHeader{Origin: id, Epoch: 1<<32 | 99, TimeMs: r.now}, &NodeStart{Client: "h:2", Peer: "http://h:3", FeatureLevel: 2})
	a, err := r.m.Apply(r.m.Position().Index+1, 1, start, Self{})
	if err != nil || a.Members == nil {
		t.Fatalf("its start: %+v, %v", a, err)
	}
	a = r.member(t, MemberPromote, Member{ID: id})
	if got, _ := r.m.Member(id); got != (Member{ID: id, Name: "new", Peer: "http://h:3", Join: 42}) {
		t.Fatalf("before its end: %+v", got)
	}
	waits := EncodeBatch(BatchHeader{Origin: id, Epoch: 1<<32 | 99, Number: 1, TimeMs: r.now}, &Dequeue{Request: 1, Queues: []string{"q"}, Max: 1, WaitMs: 50_000})
	if _, err := r.m.Apply(r.m.Position().Index+1, 1, waits, Self{}); err != nil || r.m.Totals().Waiters != 1 {
		t.Fatalf("its waiter: %v, %+v", err, r.m.Totals())
	}
	bytesBefore, other := r.m.Bytes(), r.m.Copy()
	a = r.member(t, MemberRemove, Member{ID: id})
	if !slices.Equal(a.Members, first) || r.m.Totals().Waiters != 0 || r.m.Bytes() >= bytesBefore || !r.m.Removed(id) {
		t.Fatalf("after its end: %+v, %+v", a, r.m.Totals())
	}
	if len(other.Members()) == len(first) || other.Removed(id) || other.Totals().Waiters != 1 {
		t.Fatal("a copy of before has changed")
	}

	back, err := Decode(bytes.NewReader(encoded(t, r.m)))
	if err != nil {
		t.Fatal(err)
	}
	for what, m := range map[string]*Machine{"the machine": r.m, "its copy on disk": back} {
		if last, ok := m.Fate(id, 1<<32|99); !ok || last != 1 || !m.EpochUsed(1<<32|99) {
			t.Errorf("%s: fate %d, %v", what, last, ok)
		}
		if !slices.Equal(m.RemovedMembers(false), []uint64{id}) || len(m.RemovedMembers(true)) != 0 || !slices.Equal(m.Members(), first) {
			t.Errorf("%s: %v, %+v", what, m.RemovedMembers(false), m.Members())
		}
	}

	if a := r.member(t, MemberGone, Member{ID: id}); a.Gone != id || a.Members != nil || !r.m.Removed(id) || !slices.Equal(r.m.RemovedMembers(true), []uint64{id}) {
		t.Fatalf("gone: %+v", a)
	}
	if a := r.member(t, MemberAdd, e); a.Members != nil || !r.m.Removed(id) {
		t.Fatal("an id was taken a second time")
	}
	e.ID++
	if a := r.member(t, MemberAdd, e); a.Members == nil {
		t.Fatal("its name is not free")
	}
	// It can neither start again nor write.
	again := EncodeBatch(BatchHeader{Origin: id, Epoch: 2<<32 | 1, TimeMs: r.now}, &NodeStart{})
	if _, err := r.m.Apply(r.m.Position().Index+1, 1, again, Self{}); err != nil {
		t.Fatal(err)
	}
	if _, ok := r.m.Session(id); ok {
		t.Fatal("a removed member has started")
	}
}

// TestMemberRefusals proves which changes the machine refuses, whatever let them
// into the log.
func TestMemberRefusals(t *testing.T) {
	members := []Member{{ID: 1, Name: "a"}, {ID: 2, Name: "b", Learner: true}}
	for what, op := range map[string]MemberChange{
		"a name twice":         {MemberAdd, Member{ID: 3, Name: "b", Learner: true}},
		"an id twice":          {MemberAdd, Member{ID: 2, Name: "c", Learner: true}},
		"a voter from birth":   {MemberAdd, Member{ID: 3, Name: "c"}},
		"nobody":               {MemberAdd, Member{Name: "c", Learner: true}},
		"no name":              {MemberAdd, Member{ID: 3, Learner: true}},
		"a member's memory":    {MemberGone, Member{ID: 1}},
		"the last voter":       {MemberRemove, Member{ID: 1}},
		"a stranger's end":     {MemberRemove, Member{ID: 3}},
		"a stranger's rise":    {MemberPromote, Member{ID: 3}},
		"a stranger's arrival": {MemberClaim, Member{ID: 3, Join: 1}},
	} {
		m := New(members)
		before := m.Hash()
		a, err := m.Apply(2, 1, EncodeBatch(BatchHeader{}, &op), Self{})
		if err != nil || a.Members != nil || !slices.Equal(m.Members(), members) || len(m.RemovedMembers(false)) != 0 {
			t.Errorf("%s: %+v, %v", what, a, err)
		}
		if err := m.Check(); err != nil || m.Hash() == before {
			t.Errorf("%s: %v", what, err) // index and chain go on
		}
	}
	// And only the leader's own batches may hold one.
	m := New(members)
	for i, data := range [][]byte{
		EncodeBatch(BatchHeader{Origin: 1, Epoch: 1<<32 | 1}, &NodeStart{}),
		EncodeBatch(BatchHeader{Origin: 1, Epoch: 1<<32 | 1, Number: 1}, &MemberChange{MemberPromote, Member{ID: 2}}),
	} {
		if a, err := m.Apply(uint64(2+i), 1, data, Self{Origin: 1, Epoch: 1<<32 | 1}); err != nil || a.Members != nil || a.Results[0].Code != []Code{CodeOK, CodeInvalidRequest}[i] {
			t.Errorf("batch %d: %+v, %v", i, a, err)
		}
	}
}

// TestRemovedMembersAreBounded proves that of many removed members all ids are
// kept, and the epochs of the last ones.
func TestRemovedMembersAreBounded(t *testing.T) {
	r := newRig(t)
	for i := range uint64(100) {
		id := 1000 + i
		r.member(t, MemberAdd, Member{ID: id, Name: "new", Learner: true})
		start := EncodeBatch(BatchHeader{Origin: id, Epoch: 1<<32 | id, TimeMs: r.now}, &NodeStart{})
		if _, err := r.m.Apply(r.m.Position().Index+1, 1, start, Self{}); err != nil {
			t.Fatal(err)
		}
		r.member(t, MemberRemove, Member{ID: id})
	}
	if n := len(r.m.RemovedMembers(false)); n != 100 {
		t.Errorf("%d ids are kept", n)
	}
	for i := range uint64(100) {
		if _, ok := r.m.Fate(1000+i, 1<<32|(1000+i)); ok != (i >= 100-removedFates) {
			t.Errorf("member %d of 100: fate known %v", i, ok)
		}
	}
}
