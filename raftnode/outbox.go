package raftnode

import (
	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"

	"raftq/fsm"
)

// outbox is what is to go to the log writer and to the peers. It leaves at the
// end of the turn, with one exception: while a leader has only entries under way
// whose requests are all answered, nobody waits for it, and it is kept for a
// moment, and so are proposals (see rawNode). A connection that sends fast requests
// makes an entry with each; so many of them share an append, a message to each peer,
// and an fsync on every node.
//
// What is kept is only late, as on a slow disk or network, and in order: raft has
// handed it out, and all rules about it are as they were. If the process ends before
// it leaves, its fast answers may be lost; that holds until a majority has them
// anyway.
type outbox struct {
	sends   []*pb.Message
	sizes   []int // payload of sends[i]
	appends []*appendJob
	bytes   int    // of entries in appends
	urgent  bool   // holds something that others wait for
	soon    bool   // holds something that others are likely to wait for: see holdNs
	since   int64  // boot ns since when it is kept; 0 = it is empty
	awaited uint64 // the last entry above which nobody waits for any
	told    uint64 // confirmed, and said so to the peers as far as raft would
	waiters int    // of the machine, after the last entry
}

// What a node loses with its life may wait so long for no reason but to be written
// together. With 1 ms the writes of all nodes take so much of two processors that a
// fast request takes two to three times as long. A hand-out's ack waits for the commit
// of the hand-out, and workers are quick: enqueues and appends alone are kept longer.
const (
	holdNs       = 5e6
	holdAddedNs  = 20e6
	holdBytesMax = 1 << 20 // as much as raft puts into one message
)

func (b *outbox) add(j *appendJob) {
	b.appends = append(b.appends, j)
	for _, e := range j.m.GetEntries() {
		b.bytes += len(e.GetData())
	}
	b.urgent = b.urgent || j.mark != nil || j.machine != nil
}

// send adds a message. A MsgApp that goes on where the last one to that peer ends
// becomes a part of it: the peer would do the same with both, one by one.
func (b *outbox) send(m *pb.Message) {
	size := 0
	if m.GetType() != pb.MsgApp {
		b.urgent = true
	} else {
		for _, e := range m.GetEntries() {
			size += len(e.GetData())
		}
		for i := len(b.sends) - 1; i >= 0; i-- {
			last := b.sends[i]
			if last.GetTo() != m.GetTo() {
				continue
			}
			if last.GetType() == pb.MsgApp && last.GetTerm() == m.GetTerm() && last.GetIndex()+uint64(len(last.GetEntries())) == m.GetIndex() && b.sizes[i]+size <= holdBytesMax {
				// A new array the first time: raft's slices have no room behind them.
				last.Entries = append(last.Entries, m.GetEntries()...)
				last.Commit = new(max(last.GetCommit(), m.GetCommit()))
				b.sizes[i] += size
				return
			}
			break
		}
	}
	b.sends, b.sizes = append(b.sends, m), append(b.sizes, size)
}

// awaits notes what an entry that this leader appends means for others. Nobody
// waits for one that holds nothing but answered requests, unless it has handed a
// job to a waiter, who gets it when the entry commits, or brings what somebody here
// watches for.
func (c *core) awaits(a *fsm.Applied, answered bool) {
	b := &c.outbox
	waiters := c.machine.Totals().Waiters
	if !answered || waiters < b.waiters || len(a.Ended)+len(a.Grown) > 0 {
		b.awaited = a.Position.Index
	}
	b.waiters = waiters
}

// mayHold tells whether nobody waits for what is kept back, and its time is not
// over. What someone waited for counts until it is confirmed and the peers have been
// told: its origin may be one of them.
func (c *core) mayHold() bool {
	b := &c.outbox
	return c.spec.on && c.role == raft.StateLeader && !b.urgent && b.awaited <= b.told && b.bytes+c.spec.bytes < holdBytesMax &&
		(b.since == 0 || c.now.boot-b.since < b.patience()) && len(c.reads.list) == 0 && len(c.copies.list) == 0 && !c.leaving && !c.muted && c.fail == nil
}

// patience is how long what is kept back may wait.
func (b *outbox) patience() int64 {
	if b.soon {
		return holdNs
	}
	return holdAddedNs
}

// release moves the outbox to the outputs, or says when it will be.
func (c *core) release() {
	b, o := &c.outbox, &c.out
	if len(b.sends)+len(b.appends)+len(c.rn.props) > 0 && c.mayHold() {
		if b.since == 0 {
			b.since = c.now.boot
		}
		o.wakeAt, o.lazy = b.since+b.patience(), true
		return
	}
	o.sends, b.sends = b.sends, o.sends
	o.appends, b.appends = b.appends, o.appends
	b.sizes, b.bytes, b.urgent, b.soon, b.since, b.told = b.sizes[:0], 0, false, false, 0, c.confirmed.Index
	if o.lazy = c.mayHold(); o.lazy && c.spec.bound.len() > 0 {
		o.wakeAt = c.now.boot + holdNs // what has come by then says whether they are safe
	}
}

// last returns what is kept back: the replica ends.
func (c *core) last() *outputs {
	c.out = outputs{}
	c.leaving = true // so nothing is kept
	if c.fail == nil {
		c.flush()
		c.writeCommit()
	}
	c.release()
	return &c.out
}
