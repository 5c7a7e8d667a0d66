package httpapi

import (
	"context"
	"time"

	"raftq/fsm"
)

// The fake's part in changes of the members: it says what it was told to, or that
// all is done.

func (f *fake) membersChanged() (fsm.MembersChanged, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.changes++
	if f.refuse != nil {
		return fsm.MembersChanged{}, f.refuse()
	}
	m := f.member
	if m.ID == 0 {
		m = fsm.Member{ID: 0x4d, Name: "n4", Peer: "http://n4:9080", Learner: true}
	}
	return fsm.MembersChanged{Member: m, Index: f.index}, nil
}

func (f *fake) AddMember(fsm.NewMember, time.Duration) (fsm.MembersChanged, error) {
	return f.membersChanged()
}

func (f *fake) RemoveMember(id uint64, name string, _ time.Duration) (fsm.MembersChanged, error) {
	f.removed = append(f.removed, fsm.Member{ID: id, Name: name})
	return f.membersChanged()
}

func (f *fake) MayRemoveMember(uint64, string, time.Duration) (fsm.MembersChanged, error) {
	return f.membersChanged()
}

func (f *fake) PromoteMember(uint64, string, time.Duration) (fsm.MembersChanged, error) {
	return f.membersChanged()
}

func (f *fake) TransferLeader(string, time.Duration) error {
	_, err := f.membersChanged()
	return err
}

func (f *fake) Drain(context.Context) error {
	_, err := f.membersChanged()
	return err
}

func (f *fake) Undrain(ctx context.Context) error { return f.Drain(ctx) }
