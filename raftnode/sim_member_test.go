package raftnode

import (
	"errors"
	"fmt"
	"slices"

	"raftq/fsm"
	"raftq/wal"
)

// simNodesMax bounds the nodes that one world ever has.
const simNodesMax = 24

// changing is what a world does to its members while clients and faults go on.
type changing struct {
	last     uint64 // entry that changed the members
	names    int    // given
	joining  int    // nodes on their way in
	removing int    // removals that are not answered for good
	removals []memberClaim
	arrivals []memberClaim
}

// memberClaim is an answered change, held against the table at the end.
type memberClaim struct {
	id    uint64
	index uint64
}

// live returns the nodes that are or may be members.
func (w *world) live() (all []*simNode) {
	for _, n := range w.nodes {
		if !n.gone {
			all = append(all, n)
		}
	}
	return all
}

// anyNode is some node that is not gone for good.
func (w *world) anyNode() *simNode {
	all := w.live()
	return all[w.faultRand.IntN(len(all))]
}

// startChanges changes the members now and then.
func (w *world) startChanges() {
	if w.opt.changeEvery == 0 {
		return
	}
	w.after(between(w.faultRand, w.opt.changeEvery/5, 2*w.opt.changeEvery), func() {
		if w.nemesis.over {
			return
		}
		w.changeMembers()
		w.startChanges()
	})
}

func (w *world) changeMembers() {
	r := w.faultRand
	all := w.live()
	switch p := r.IntN(10); {
	case p < 4 || len(all) == 1:
		if len(all)+w.changing.joining < 6 && len(w.nodes)+w.changing.joining < simNodesMax {
			w.changing.names++
			w.join(fmt.Sprintf("j%d", w.changing.names), nil, r.IntN(5) == 0)
		}
	case p < 6:
		w.remove(all[r.IntN(len(all))])
	case p < 7:
		w.remove(w.leader())
	case p < 8:
		// Its disk is lost; a new node takes its name.
		if n := all[r.IntN(len(all))]; w.spares(n) && w.changing.joining+w.changing.removing == 0 && len(w.nodes) < simNodesMax && n.up {
			w.stats.Wiped++
			n.kill()
			n.gone = true
			w.join(n.name, n, false)
		}
	case p < 9:
		if to := all[r.IntN(len(all))]; to.up {
			m := &move{name: to.name, timeout: 2e9, reply: func(err *fsm.Error) {
				if err == nil {
					w.stats.Moves++
				}
			}}
			w.leader().post(moveAsked{m})
		}
	default:
		// Promoted by hand, mostly too early or for nothing.
		n := all[r.IntN(len(all))]
		w.ask(&change{verb: fsm.MemberPromote, member: fsm.Member{ID: n.id}}, func(fsm.MembersChanged) {}, nil)
	}
}

// voters are those of the committed table.
func (w *world) voters() (all []*simNode) {
	for _, m := range w.check.refs[0].Members() {
		if n := w.byID[m.ID]; n != nil && !m.Learner {
			all = append(all, n)
		}
	}
	return all
}

// spares tells whether the voters can decide without one of them, even if all of
// them start anew: those who are left and know the members from their disks are a
// majority. A member's first vote is one such case: while only the leader knows that
// three vote, where two did, the other one of the two can do nothing without it. A
// learner is not spared: it may be about to become a voter.
func (w *world) spares(n *simNode) bool {
	all := w.voters()
	left := 0
	for _, o := range all {
		if o != n && !o.gone && o.disk.commit >= w.changing.last {
			left++
		}
	}
	return slices.Contains(all, n) && left > len(all)/2
}

// ask brings a change to whoever leads, again until it is answered for good:
// what is not applied or not known is asked again, like a client does.
func (w *world) ask(ch *change, done func(fsm.MembersChanged), refused func(*fsm.Error)) {
	again := func() {
		if !w.nemesis.over {
			w.after(between(w.faultRand, 50e6, 500e6), func() {
				w.ask(&change{verb: ch.verb, member: ch.member, replace: ch.replace, level: ch.level}, done, refused)
			})
		}
	}
	answered := false
	lead := w.leader()
	life := lead.life
	ch.timeout = 3e9
	ch.reply = func(c fsm.MembersChanged, err *fsm.Error) {
		if answered {
			w.failf("%s answers a change of %v twice", lead.name, ch.member)
		}
		answered = true
		switch {
		case err == nil:
			// Answered when it is applied: raft and the table have it here.
			m, there := lead.core.member(c.Member.ID)
			if c.Index > lead.core.confirmed.Index || there == (ch.verb == fsm.MemberRemove) || ch.verb == fsm.MemberPromote && m.Learner || there && !inConf(lead.core.conf, m.ID) {
				w.failf("%s answers a change of %v at %d, and at %d its table has %+v", lead.name, ch.member, c.Index, lead.core.confirmed.Index, lead.core.members)
			}
			w.note('m', uint64(ch.verb), c.Member.ID, c.Index)
			done(c)
		case err.Unknown || err.Code == fsm.CodeNoLeader || err.Code == fsm.CodeOverloaded || err.Code == fsm.CodeFeatureLevel:
			again()
		default:
			if err.Code == fsm.CodeQuorumAtRisk {
				w.stats.QuorumRefusals++
			}
			if refused != nil {
				refused(err)
			}
		}
	}
	lead.post(changeAsked{ch})
	w.after(4e9, func() {
		if answered {
			return
		}
		answered = true
		if lead.life == life && lead.up && !lead.stopped() && w.now > lead.paused+ch.timeout+500e6 {
			w.failf("%s has not answered a change of %v", lead.name, ch.member)
		}
		ch.reply = func(fsm.MembersChanged, *fsm.Error) {} // too late
		again()
	})
}

func (w *world) remove(n *simNode) {
	leads := n == w.leader()
	w.changing.removing++
	w.ask(&change{verb: fsm.MemberRemove, member: fsm.Member{ID: n.id}}, func(c fsm.MembersChanged) {
		w.changing.removing--
		if c.Already {
			return
		}
		w.stats.Removals++
		if leads {
			w.stats.LeaderRemovals++
		}
		w.changing.removals = append(w.changing.removals, memberClaim{n.id, c.Index})
	}, func(*fsm.Error) { w.changing.removing-- })
}

// join makes a node a member: as a real one it asks, fetches a snapshot in which
// it is one, and starts. instead is a node whose place it takes.
func (w *world) join(name string, instead *simNode, standby bool) {
	w.changing.joining++
	ch := &change{verb: fsm.MemberAdd, replace: instead != nil, level: fsm.FeatureLevel,
		member: fsm.Member{Name: name, Peer: "http://" + name, Join: w.idRand.Uint64() | 1, Standby: standby}}
	if w.faultRand.IntN(4) == 0 {
		// Somebody else announced it before.
		first := *ch
		first.member.Join = 0
		w.ask(&first, func(fsm.MembersChanged) {}, nil)
	}
	var ask func()
	ask = func() {
		asked := *ch
		w.ask(&asked, func(c fsm.MembersChanged) {
			if !slices.ContainsFunc(c.Members, func(m fsm.Member) bool { return m.ID == c.Member.ID && m.Name == name && m.Join == ch.member.Join }) {
				w.failf("%s joined and is not in %+v", name, c.Members)
			}
			w.changing.arrivals = append(w.changing.arrivals, memberClaim{c.Member.ID, c.Index})
			w.fetch(c.Member, c.Index)
		}, func(err *fsm.Error) {
			// Its place is not free yet: the old one's removal could cost the quorum,
			// or it counts as alive.
			if instead != nil && !w.nemesis.over {
				w.after(between(w.faultRand, 100e6, 1000e6), ask)
			}
		})
	}
	ask()
}

// fetch gives a new node its first snapshot, from any node that has one.
func (w *world) fetch(m fsm.Member, index uint64) {
	if was := w.byID[m.ID]; was != nil {
		if was.name != m.Name || w.check.refs[0].Removed(m.ID) {
			w.failf("%s is given the id %x, which was %s's", m.Name, m.ID, was.name)
		}
		return // its second answer
	}
	for _, n := range w.live() {
		if !n.up {
			continue
		}
		if k := len(n.disk.markers) - 1; k >= 0 && n.disk.markers[k].Index >= index && n.disk.snaps[n.disk.markers[k].Index] != nil {
			w.birth(m, n.disk.markers[k].Index, n.disk.snaps[n.disk.markers[k].Index])
			return
		}
	}
	w.anyNode().post(snapshotAsked{index})
	w.after(50e6, func() { w.fetch(m, index) })
}

// birth makes the new node's disk and starts it.
func (w *world) birth(m fsm.Member, index uint64, data []byte) {
	machine := decodeMachine(data)
	if _, ok := machine.Member(m.ID); !ok && !machine.Removed(m.ID) {
		w.failf("snapshot %d does not know %s, which is a member since before", index, m.Name)
	}
	n := newSimNode(w, len(w.nodes), m)
	pos := machine.Position()
	n.disk = simDisk{n: n, marks: 1, term: pos.Term, commit: index, base: index, baseTerm: pos.Term, snaps: map[uint64][]byte{index: data},
		markers: []wal.Marker{{Index: index, Term: pos.Term, ConfState: confOf(machine.Members())}}}
	n.bootID = 1
	w.nodes = append(w.nodes, n)
	w.byID[m.ID] = n
	w.check.addOrigin(m.ID)
	w.changing.joining--
	w.stats.Joins++
	if machine.Removed(m.ID) {
		n.gone = true
		return
	}
	n.start()
}

// addOrigin lets a machine build the results of another node from now on.
func (l *logChecker) addOrigin(id uint64) {
	l.origins = append(l.origins, id)
	l.refs = append(l.refs, l.refs[0].Copy())
}

// retire ends a node that was removed. It must be true.
func (n *simNode) retire() {
	w := n.w
	if !w.check.refs[0].Removed(n.id) {
		w.failf("%s says that it was removed, and the log does not", n.name)
	}
	w.stats.Retired++
	n.kill()
	n.gone = true
}

// endForsaken ends removed nodes that nobody can let go any more, or tell that they
// were removed, as their operators do: all the members that they know have been removed
// and have ended since.
func (w *world) endForsaken() {
	for _, n := range w.live() {
		if !n.up || !w.check.refs[0].Removed(n.id) {
			continue
		}
		forsaken := true
		for id := range n.polls {
			m := w.byID[id]
			forsaken = forsaken && m != nil && m.gone
		}
		if forsaken {
			n.retire()
		}
	}
}

// follow does what transport.setMembers does.
func (n *simNode) follow(table []fsm.Member) {
	there := map[uint64]bool{}
	for _, m := range table {
		there[m.ID] = true
		if m.ID != n.id && n.polls[m.ID] == nil {
			p := &simPoll{}
			n.polls[m.ID] = p
			n.poll(m.ID, p)
		}
	}
	for id := range n.polls {
		if !there[id] {
			delete(n.polls, id)
		}
	}
}

// refuses tells whether a node takes nothing from a sender, whom it then tells
// that it was removed.
func (n *simNode) refuses(from *simNode) bool {
	if !n.removed[from.id] {
		return false
	}
	from.post(failed{ErrRemoved})
	return true
}

func (n *simNode) ended(err error) {
	if errors.Is(err, errFsync) {
		n.w.killFor(n, between(n.w.diskRand, 10e6, 2000e6), false)
		return
	}
	if !errors.Is(err, ErrRemoved) {
		n.w.failf("%s ended: %v", n.name, err)
	}
	n.retire()
}

// memberChanged takes what a change in the log means, for waiters above all.
func (l *logChecker) memberChanged(i uint64, op *fsm.MemberChange) {
	l.w.changing.last = i
	if op.Verb != fsm.MemberRemove || !l.refs[0].Removed(op.Member.ID) {
		return
	}
	// Its session stays in the model: timers of this entry may have served it.
	l.leave(func(v *modelWaiter) bool { return v.origin == op.Member.ID })
}

// finalMembers: what was answered about the members is so, and each node that is
// left has the same table, and raft's configuration with it.
func (c *checker) finalMembers() {
	w, ref := c.w, c.refs[0]
	for _, r := range w.changing.removals {
		if !ref.Removed(r.id) {
			w.failf("%x was removed by entry %d, it was said, and is not", r.id, r.index)
		}
	}
	for _, a := range w.changing.arrivals {
		if _, ok := ref.Member(a.id); !ok && !ref.Removed(a.id) {
			w.failf("%x joined by entry %d, it was said, and is no member", a.id, a.index)
		}
	}
	names := map[string]bool{}
	for _, m := range ref.Members() {
		if names[m.Name] {
			w.failf("two members are named %s", m.Name)
		}
		names[m.Name] = true
	}
	for _, n := range w.live() {
		if !slices.Equal(n.core.members, ref.Members()) {
			w.failf("%s ends with members %+v, the log's replay with %+v", n.name, n.core.members, ref.Members())
		}
		if err := checkConf(n.core.conf, ref.Members()); err != nil {
			w.failf("%s: %v", n.name, err)
		}
		for _, id := range n.core.conf.GetVoters() {
			if o := w.byID[id]; o == nil {
				w.failf("voter %x was never started", id)
			}
		}
	}
}
