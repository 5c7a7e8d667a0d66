package raftnode

import (
	"context"
	"maps"
	"time"

	"raftq/fsm"
)

// Node's part in changes of the cluster's members. Each is asked of the leader;
// other nodes refuse with CodeNoLeader, which says that nothing was done. A change
// is answered when it is committed and raft and the machine have made it.

// AddMember adds a learner, which becomes a voter when it has caught up. Asked
// again with the same Join it answers as it did the first time.
func (n *Node) AddMember(m fsm.NewMember, timeout time.Duration) (fsm.MembersChanged, error) {
	if m.Join != 0 && m.Token != n.cfg.ClusterToken {
		return fsm.MembersChanged{}, fsm.Refuse(fsm.CodeInvalidOption, "cluster_token: it is not that of this cluster")
	}
	return n.change(&change{verb: fsm.MemberAdd, member: fsm.Member{Name: m.Name, Peer: m.Peer, Standby: m.Standby, Join: m.Join},
		replace: m.Replace, level: m.FeatureLevel}, timeout)
}

// MayRemoveMember tells whether RemoveMember would be taken, and does nothing.
func (n *Node) MayRemoveMember(id uint64, name string, timeout time.Duration) (fsm.MembersChanged, error) {
	return n.change(&change{verb: fsm.MemberRemove, member: fsm.Member{ID: id, Name: name}, dry: true}, timeout)
}

// RemoveMember removes a member, by its id or, where that is 0, by its name. It
// returns when nobody needs the removed node any more: its machine may go. Asked
// again by the id, it goes on where it was cut short. When it is this node,
// leadership moves first, and CodeNoLeader says that the next leader is to be asked.
func (n *Node) RemoveMember(id uint64, name string, timeout time.Duration) (fsm.MembersChanged, error) {
	return n.change(&change{verb: fsm.MemberRemove, member: fsm.Member{ID: id, Name: name}}, timeout)
}

// PromoteMember makes a learner a voter.
func (n *Node) PromoteMember(id uint64, name string, timeout time.Duration) (fsm.MembersChanged, error) {
	return n.change(&change{verb: fsm.MemberPromote, member: fsm.Member{ID: id, Name: name}}, timeout)
}

func (n *Node) change(ch *change, timeout time.Duration) (fsm.MembersChanged, error) {
	type answer struct {
		c   fsm.MembersChanged
		err *fsm.Error
	}
	ended := make(chan answer, 1)
	ch.timeout = int64(timeout)
	ch.reply = func(c fsm.MembersChanged, err *fsm.Error) { ended <- answer{c, err} }
	if !n.box.post(changeAsked{ch}) {
		return fsm.MembersChanged{}, fsm.Refuse(fsm.CodeLeaving, "%v; ask another one", errStopped)
	}
	a := <-ended
	if a.err != nil {
		return fsm.MembersChanged{}, a.err
	}
	return a.c, nil
}

// TransferLeader moves leadership to a voter, by name, or to the one whose log is
// longest. It returns when that one leads.
func (n *Node) TransferLeader(to string, timeout time.Duration) error {
	ended := make(chan *fsm.Error, 1)
	m := &move{name: to, timeout: int64(timeout), reply: func(err *fsm.Error) { ended <- err }}
	if !n.box.post(moveAsked{m}) {
		return fsm.Refuse(fsm.CodeLeaving, "%v; ask another one", errStopped)
	}
	if err := <-ended; err != nil {
		return err
	}
	return nil
}

// Drain prepares a stop: leadership moves to another voter, parked requests and
// what is not packed are answered with CodeLeaving, and so are new ones. It
// returns when nothing of this node's own is unapplied, or with ctx. The node goes
// on as a member; Undrain lets it serve again.
func (n *Node) Drain(ctx context.Context) error {
	n.box.post(transferAsked{})
	began := time.Now()
	if err := n.await(ctx, func(v *view) bool { return !v.isLeader || time.Since(began) > n.cfg.ElectionTimeout }); err != nil {
		return err
	}
	n.box.post(leaveAsked{})
	return n.await(ctx, func(v *view) bool { return v.leaving && (v.settled || !v.ready) })
}

// Undrain ends what Drain began.
func (n *Node) Undrain(ctx context.Context) error {
	n.box.post(stayAsked{})
	return n.await(ctx, func(v *view) bool { return !v.leaving })
}

func (n *Node) await(ctx context.Context, ok func(*view) bool) error {
	t := time.NewTicker(n.cfg.Tick)
	defer t.Stop()
	for !ok(n.view.Load()) {
		select {
		case <-t.C:
		case <-n.done:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// Snapshot writes one of what is committed now, unless there is one, and waits for
// it; without a time to wait it only begins.
func (n *Node) Snapshot(wait time.Duration) error {
	var index uint64
	if _, err := n.Read(fsm.ReadHow{TimeoutMs: 1000}, func(m *fsm.Machine) { index = m.Position().Index }); err != nil {
		return err
	}
	n.box.post(snapshotAsked{index})
	if wait == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), wait)
	defer cancel()
	if err := n.await(ctx, func(*view) bool { return n.newest.Load() >= index }); err != nil {
		return fsm.Refuse(fsm.CodeOverloaded, "the snapshot of index %d is not written within %v; it goes on", index, wait)
	}
	return nil
}

// setGone adds ids that are refused for good.
func (n *Node) setGone(ids []uint64) {
	all := maps.Clone(*n.gone.Load())
	for _, id := range ids {
		all[id] = true
	}
	n.gone.Store(&all)
}

func (n *Node) isGone(id uint64) bool { return (*n.gone.Load())[id] }
