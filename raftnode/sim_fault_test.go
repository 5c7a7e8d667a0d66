package raftnode

import (
	"math/rand/v2"
	"slices"

	"go.etcd.io/raft/v3"
)

type faultKind int

const (
	faultKill faultKind = iota
	faultKillLeader
	faultKillMost
	faultKillAll
	faultQuick // killed and started again at once
	faultReboot
	faultPause
	faultPauseLeader
	faultPartition
	faultIsolateLeader
	faultJump
	faultStall
	faultSlow
	faultFreezeLeader
	faultTransfer
	faultStop
	faultTransfers
	faultFsync
	faultRot
	faultKinds
)

var faultNames = [...]string{"kill", "kill leader", "kill most", "kill all", "quick restart", "reboot", "pause", "pause leader", "partition", "isolate leader", "wall jump", "disk stall", "slow net", "freeze leader", "transfer", "stop", "transfers", "fsync error", "damaged log"}

func (k faultKind) String() string { return faultNames[k] }

// nemesis brings faults, one after the other, and takes each back after a while.
type nemesis struct {
	over bool
	next int // number of the next fault
}

// startNemesis brings the next fault. Each has chance of its own, so that one that is
// left out changes nothing about those that follow.
func (w *world) startNemesis() {
	if len(w.opt.faults) == 0 {
		return
	}
	k := w.nemesis.next
	w.nemesis.next++
	r := rand.New(rand.NewPCG(w.seed, 1<<32+uint64(k)))
	w.after(between(r, w.opt.faultEvery/5, 2*w.opt.faultEvery), func() {
		if w.nemesis.over {
			return
		}
		w.stats.Faults++
		if !slices.Contains(w.opt.skip, k) {
			w.faultRand = r
			w.fault(w.opt.faults[r.IntN(len(w.opt.faults))])
		}
		w.startNemesis()
	})
}

// leader is the node that leads the highest term, or any.
func (w *world) leader() *simNode {
	best := w.anyNode()
	term := uint64(0)
	for _, n := range w.nodes {
		if n.up && n.core.role == raft.StateLeader && n.core.term > term {
			best, term = n, n.core.term
		}
	}
	return best
}

func (w *world) fault(k faultKind) {
	r := w.faultRand
	lasts := between(r, 50e6, 1500e6)
	if r.IntN(4) == 0 {
		lasts = between(r, 500e6, 5000e6)
	}
	w.note('f', uint64(k))
	w.log.Sugar().Infof("fault: %v for %s", k, ms(lasts))
	any := w.anyNode()
	switch k {
	case faultKill:
		w.killFor(any, lasts, false)
	case faultKillLeader:
		w.whenHolding(200, func() { w.killFor(w.leader(), lasts, false) })
	case faultKillMost, faultKillAll:
		all := w.live()
		for i, p := range r.Perm(len(all)) {
			if k == faultKillAll || i <= len(all)/2 {
				w.killFor(all[p], lasts+between(r, 0, 300e6), false)
			}
		}
	case faultQuick:
		w.killFor(any, between(r, 10e3, 20e6), false)
	case faultReboot:
		w.killFor(any, lasts, true)
	case faultPause:
		w.pause(any, lasts)
	case faultPauseLeader:
		w.pause(w.leader(), lasts)
	case faultIsolateLeader:
		if w.opt.eager {
			lasts += 2 * w.opt.election // until another one leads
		}
		w.whenHolding(200, func() { w.partition(k, lasts) })
	case faultPartition:
		w.partition(k, lasts)
	case faultJump:
		w.stats.Jumps++
		d := between(r, 1000, 3600_000)
		if r.IntN(2) == 0 {
			d = -d
		}
		if r.IntN(3) == 0 {
			for _, n := range w.nodes {
				n.wallOff += d
			}
		} else {
			any.wallOff += d
		}
	case faultStall:
		w.stats.Stalls++
		any.disk.stalled = w.now + lasts
		if r.IntN(3) == 0 {
			w.leader().disk.stalled = w.now + lasts
		}
	case faultSlow:
		w.net.slow = between(r, 5e6, 150e6)
		w.after(lasts, func() { w.net.slow = 0 })
	case faultFreezeLeader:
		w.freeze(w.leader())
	case faultTransfer:
		w.leader().post(transferAsked{})
	case faultStop:
		w.stop(any, lasts)
	case faultTransfers:
		for at := int64(0); at < 2*lasts; at += between(r, 500e6, 1000e6) {
			w.after(at, func() {
				if l := w.leader(); !w.nemesis.over && l.up {
					l.post(transferAsked{})
				}
			})
		}
	case faultFsync:
		any.disk.failing = true
		if r.IntN(2) == 0 {
			any.disk.failing, w.leader().disk.failing = false, true
		}
	case faultRot:
		w.rot(any)
	}
}

// rot kills a node and damages a promised record of its log: its next start refuses
// it. It comes back as a new member, so each committed entry must be whole on the
// disks of a quorum without it.
func (w *world) rot(n *simNode) {
	if !n.up || !w.spares(n) || w.changing.joining+w.changing.removing > 0 || len(w.nodes) >= simNodesMax {
		return
	}
	w.stats.Rotten++
	n.kill()
	n.gone = true
	w.join(n.name, n, false)
}

// freeze pauses a leader until another one is likely to be elected. What its
// followers have sent waits for it; what is sent from then on does not reach it,
// nor do its messages reach others, until a while after it woke: it meets old acks
// and new requests and does not know that it is deposed.
func (w *world) freeze(n *simNode) {
	r := w.faultRand
	lasts := w.opt.election + between(r, 0, 2*w.opt.election)
	w.pause(n, lasts)
	cut := func() {
		for _, o := range w.nodes {
			if o != n {
				w.net.cut[n.i][o.i], w.net.cut[o.i][n.i] = true, true
			}
		}
	}
	w.after(between(r, 0, 10e6), cut)
	w.after(lasts+between(r, 0, w.opt.election), w.net.heal)
}

// stop ends a process as Close does: it moves leadership away, refuses what is not
// in the log, and goes when the rest is.
func (w *world) stop(n *simNode, down int64) {
	if !n.up || n.core.leaving {
		return
	}
	life := n.life
	n.post(transferAsked{})
	w.after(between(w.faultRand, 0, w.opt.election), func() {
		if n.life == life {
			n.post(leaveAsked{})
		}
	})
	w.after(w.opt.election+between(w.faultRand, 0, 2e9), func() {
		if n.life == life {
			w.stats.Stops++
			w.killFor(n, down, false)
		}
	})
}

func (w *world) killFor(n *simNode, ns int64, reboot bool) {
	if !n.up {
		return
	}
	w.stats.Kills++
	n.kill()
	if reboot && w.mayReboot(n) {
		n.reboot()
	}
	life := n.life
	w.after(ns, func() {
		if n.life == life {
			n.start()
		}
	})
}

// whenHolding does something to the leader: in an eager world at a moment when it keeps
// back what it has answered, if one comes, so that this does not survive.
func (w *world) whenHolding(tries int, do func()) {
	l := w.leader()
	if !w.opt.eager || tries == 0 || l.holding() {
		do()
		return
	}
	wait := int64(200e3)
	if !l.up || l.core.lead == nil {
		wait = 10e6 // until there is one
	}
	w.after(wait, func() {
		if !w.nemesis.over {
			w.whenHolding(tries-1, do)
		}
	})
}

// holding tells whether a node keeps back what it should send.
func (n *simNode) holding() bool {
	return n.up && len(n.core.outbox.appends)+len(n.core.rn.props) > 0
}

// mayReboot: log time's promise holds while a majority keeps its boot, so a
// machine reboots only when each other one knows when it wrote its last stamped
// entry.
func (w *world) mayReboot(n *simNode) bool {
	voters := w.voters()
	if len(voters) < 3 || w.changing.removing > 0 {
		return false
	}
	for _, o := range voters {
		switch {
		case o.gone:
			return false
		case o == n:
		case o.up && o.core.clock.base.lost:
			return false
		case !o.up && (o.disk.noteBoot != o.bootID || o.disk.note.Index == 0):
			return false
		}
	}
	return true
}

func (w *world) pause(n *simNode, ns int64) {
	if !n.up || n.stopped() {
		return
	}
	w.stats.Pauses++
	n.paused = w.now + ns
	life := n.life
	w.after(ns, func() {
		if n.life == life {
			n.step()
		}
	})
}

func (w *world) partition(k faultKind, ns int64) {
	r, cut := w.faultRand, w.net.cut
	w.stats.Partitions++
	n := len(w.nodes)
	if n < 2 {
		return
	}
	split := func(side func(i int) bool, there, back bool) {
		for i := range n {
			for j := range n {
				if side(i) && !side(j) {
					cut[i][j] = cut[i][j] || there
					cut[j][i] = cut[j][i] || back
				}
			}
		}
	}
	one := r.IntN(n)
	if k == faultIsolateLeader || r.IntN(3) == 0 {
		one = w.leader().i
	}
	alone := func(i int) bool { return i == one }
	shape := r.IntN(6)
	if k == faultIsolateLeader {
		shape = r.IntN(3)
	}
	switch shape {
	case 0:
		split(alone, true, true)
	case 1:
		split(alone, true, false)
	case 2:
		split(alone, false, true)
	case 3: // halves
		p := r.Perm(n)
		split(func(i int) bool { return p[i] < n/2 }, true, true)
	case 4: // a bridge: one sees all, the others only it
		for i := range n {
			for j := range n {
				cut[i][j] = cut[i][j] || i != j && i != one && j != one
			}
		}
	case 5:
		for i := range n {
			for j := range n {
				cut[i][j] = cut[i][j] || i != j && r.IntN(3) == 0
			}
		}
	}
	w.after(ns, w.net.heal)
}
