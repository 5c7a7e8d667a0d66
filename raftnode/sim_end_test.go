package raftnode

import (
	"fmt"

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
			if o := j.fact.op; o.unread() && o.node.up && o.node.life == o.life && !o.node.core.expelled {
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
