package raftnode

import (
	"fmt"
	"slices"

	"raftq/fsm"
)

func (n *simNode) describe() string {
	c := n.core
	last, _ := n.storage.LastIndex()
	return fmt.Sprintf("%s (%x): %v, term %d, leader %q, applied %d, commit %d, log to %d, inflight %d, waiting %d, parked %d, withdraw %d, reads %d, appends %d, muted %v, registered %v, lead %v",
		n.name, n.id, c.role, c.term, c.nameOf(c.leader), c.machine.Position().Index, c.commit, last, len(c.origin.inflight), len(c.origin.waiting),
		len(c.parked.byNumber), len(c.parked.withdraw), len(c.reads.list), len(c.appends), c.muted, c.origin.registered, c.lead != nil && c.lead.ready)
}

// refTotalsAcked counts jobs that are over, one way or the other.
func (l *logChecker) refTotalsAcked() int {
	t := l.refs[0].Totals()
	return int(t.Acked + t.Expired + t.DeadTotal)
}

// unread tells whether a dequeue's node knows that nobody has read what the dequeue
// was handed in the end: its client was gone, or had been answered without jobs.
func (o *simOp) unread() bool { return o.left || len(o.req.res.Jobs) == 0 }

// nobodyRead tells whether the nodes of all requests that were answered with a hand-out
// know that nobody has read it, and it could be given back: not when its lease ended
// while more than one of them had it.
func (f *grantFact) nobodyRead() bool {
	if len(f.holders)-f.inTime > 1 {
		return false
	}
	for _, h := range f.holders {
		n := h.op.node
		if !h.op.unread() || !n.up || n.life != h.op.life || n.core.expelled {
			return false
		}
		if len(f.holders) > 1 && n.core.stats.installs > 0 {
			return false // a snapshot does not tell who else was answered with it
		}
	}
	return true
}

// final holds every job ever enqueued to account, when the queues are drained,
// and compares the nodes' whole states.
func (c *checker) final() {
	w := c.w
	ref := c.refs[0]
	now := ref.Position().TimeMs
	for _, key := range c.order {
		j := c.jobs[key]
		info, code := ref.Job(key)
		switch {
		case j.acked:
			if code == fsm.CodeOK {
				w.failf("job %v was acked in entry %d and is still there", key, j.ackedAt)
			}
		case j.side != nil && j.side.gone != 0:
			if code == fsm.CodeOK {
				w.failf("job %v was purged in entry %d and is still there", key, j.side.gone)
			}
		case j.rejectedIn != "" && j.side == nil && code == fsm.CodeOK:
			if info.State != "dead" {
				w.failf("job %v of %v was rejected and is %s", key, j.op, info.State)
			}
		case j.side != nil && (j.side.loose || code == fsm.CodeOK && info.State == "dead"):
		case j.expires != 0 && now >= j.expires:
		case code != fsm.CodeOK:
			w.failf("job %v of %v, entry %d, is lost: neither acked nor there (%v)", key, j.op, j.index, code)
		case info.Body != string(j.job.Body):
			w.failf("job %v of %v has another body", key, j.op)
		case info.State == "dead":
			most := int(j.job.MaxFailures)
			if most == 0 {
				most = fsm.MaxFailuresDefault
			}
			if j.job.AtMostOnce {
				most = 1
			}
			if int(j.grant)-j.backs < most {
				w.failf("job %v of %v is dead after %d deliveries, not %d", key, j.op, int(j.grant)-j.backs, most)
			}
		case info.State == "held" && j.job.AtMostOnce && j.granted && !j.fact.back:
			if o := j.fact.op; j.fact.nobodyRead() {
				w.failf("at-most-once job %v was handed to %v, who never saw it, and the node that knows that has not given it back", key, o)
			}
		default:
			w.failf("job %v of %v is %s after the drain", key, j.op, info.State)
		}
	}
	for _, o := range c.ops {
		if o.kind == opEnqueue && o.outcome == answeredOK && o.effectAt == 0 && o.fast == nil {
			w.failf("%v was answered OK and has no effect", o)
		}
	}
	c.finalPromises()
	c.finalSide()
	hash := ref.Hash()
	c.finalMembers()
	for _, n := range w.live() {
		if err := n.core.machine.Check(); err != nil {
			w.failf("%s: %v", n.name, err)
		}
		if h := n.core.machine.Hash(); h != hash {
			w.failf("%s ends with state %x, the log's replay with %x", n.name, h, hash)
		}
	}
}

// settle is the second phase: faults end, every node is up, and within bounded
// time all is answered, drained and equal on all nodes.
func (w *world) settle() {
	w.phase = "liveness"
	w.nemesis.over = true
	w.net.heal()
	w.net.calm()
	w.note('h')
	for _, n := range w.live() {
		n.disk.stalled, n.disk.failing, n.paused = 0, false, 0
		if !n.up {
			n.start()
		}
		n.step()
	}
	w.heal(30e9, "every request is answered", func() bool {
		for _, o := range w.check.ops {
			if o.outcome == pending {
				return false
			}
		}
		return true
	})
	w.heal(10e9, "leases and delays end without any traffic", func() bool {
		t := w.check.refs[0].Totals()
		return t.Delayed+t.Leased == 0
	})
	w.phase = "drain"
	for i, n := range w.live() {
		c := &simClient{w: w, id: 1000 + i, home: n, drain: true}
		w.clients = append(w.clients, c)
		c.soon()
	}
	w.heal(90e9, "the queues are drained", func() bool {
		w.endForsaken()
		for _, n := range w.live() {
			// Entries of before the heal commit with the first leader after it, and
			// a fast answer's batch may still be on its way.
			if !n.up || !n.core.origin.registered || len(n.core.origin.inflight) > 0 {
				return false
			}
		}
		t := w.check.refs[0].Totals()
		return t.Ready+t.Delayed+t.Leased == 0
	})
	w.phase = "end"
	w.heal(30e9, "all nodes come to rest at the same entry", func() bool {
		for _, n := range w.live() {
			if !n.up || n.at != w.check.last() || n.core.lastAppended != n.at || len(n.core.appends) > 0 || len(n.core.origin.inflight) > 0 {
				return false
			}
		}
		// A member whose disk was lost when faults ended is not replaced any more; what
		// waited on it waits for that.
		return !slices.ContainsFunc(w.check.waiters, func(v *modelWaiter) bool { return !w.byID[v.origin].gone })
	})
	w.check.final()
}

func (w *world) heal(ns int64, what string, done func() bool) {
	if w.run(ns, done) {
		return
	}
	state := ""
	for _, n := range w.live() {
		if !n.up {
			state += "\n  " + n.name + " is down"
			continue
		}
		c := n.core
		state += "\n  " + n.describe()
		for _, r := range c.origin.waiting {
			if o := n.open[r]; o != nil {
				state += "\n    not packed: " + o.String()
			}
		}
		for _, b := range c.origin.inflight {
			for _, r := range b.reqs {
				if o := n.open[r]; o != nil {
					state += "\n    packed: " + o.String()
				}
			}
		}
		for _, r := range c.reads.list {
			if o := n.reading[r]; o != nil {
				state += "\n    read: " + o.String()
			} else if r.empty != nil && n.open[r.empty] != nil {
				state += "\n    reads that it is empty: " + n.open[r.empty].String()
			}
		}
	}
	w.failf("not live: %s: not within %s after everything healed%s", what, ms(ns), state)
}
