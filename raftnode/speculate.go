package raftnode

import (
	"bytes"
	"fmt"
	"slices"

	pb "go.etcd.io/raft/v3/raftpb"

	"raftq/fsm"
)

// speculation lets a leader apply an entry when it appends it, so that applying
// overlaps replication: when the entry commits, its answers are there.
//
// It starts when the machine has applied the first entry of the leader's own
// term; the log ends there, so from then on every entry that raft hands to the
// log writer is the machine's next. It ends with any change of role or term: the
// bound answers are dropped, and the machine goes back to a committed copy. Log
// entries at or below the confirmed index never change, so the entries between
// that copy and the confirmed index can be applied again.
//
// Copies share structure with the machine and cost nothing but the cloning of
// what changes after them; they are taken at spaced moments. Whatever leaves the
// core is of a committed copy, or bound to an index and held until it commits.
//
// While raft is calm the leader applies its proposals even before it gives them to
// raft: see rawNode for why their places in the log are certain. Raft takes them
// for sure, because it refuses only while leadership is being handed on, when the
// leader is no member any more, and when more is uncommitted than the bound below,
// which counts no less than raft's own.
type speculation struct {
	on     bool
	bound  fifo[fsm.Applied] // of entries above the confirmed index, in order
	bytes  int               // of those entries
	ahead  fifo[aheadEntry]  // the last of them: raft has not handed them out yet
	places []place           // spare, for speculateAhead
	copies []*fsm.Machine    // ascending; the first is the newest that is committed
	copyAt int64             // boot ns of the last
	shown  bool              // the head was shown as committed: it must stay so
}

// place is where an entry is in the log.
type place struct{ index, term uint64 }

// aheadEntry is an entry that was applied before raft had it.
type aheadEntry struct {
	place
	data []byte
}

const (
	copyEveryNs = 50e6
	copiesMax   = 4
)

// startSpeculation begins at a machine whose state is committed.
func (c *core) startSpeculation() {
	if i := c.machine.Position().Index; i != c.confirmed.Index {
		panic(fmt.Sprintf("BUG: speculation starts at entry %d, committed is %d", i, c.confirmed.Index))
	}
	c.spec = speculation{on: true, copies: []*fsm.Machine{c.machine.Copy()}, copyAt: c.now.boot}
	c.outbox.awaited, c.outbox.waiters = 0, c.machine.Totals().Waiters
}

// speculateAhead applies proposals and lets raft have them later; false when they
// must go to raft first.
func (c *core) speculateAhead(props []*pb.Entry) bool {
	s := &c.spec
	if !s.on || !c.rn.calm() || c.handing || c.expelled || c.muted || s.bytes+payload(props) > int(c.uncommittedMax) {
		return false
	}
	next := c.machine.Position().Index + 1
	s.places = slices.Grow(s.places[:0], len(props))[:len(props)]
	for i, e := range props {
		p := &s.places[i]
		*p = place{next + uint64(i), c.term}
		e.Index, e.Term = &p.index, &p.term
		s.ahead.push(aheadEntry{*p, e.GetData()})
	}
	c.speculate(props)
	for _, e := range props {
		e.Index, e.Term = nil, nil // raft gives it its own
	}
	c.rn.hold(props)
	return true
}

// notAhead returns the entries of a Ready that the machine has not applied.
func (c *core) notAhead(ents []*pb.Entry) []*pb.Entry {
	s := &c.spec
	for len(ents) > 0 && s.ahead.len() > 0 {
		e, was := ents[0], s.ahead.pop()
		if e.GetIndex() != was.index || e.GetTerm() != was.term || !bytes.Equal(e.GetData(), was.data) {
			panic(fmt.Sprintf("BUG: the machine has applied entry %d of term %d before raft had it, and raft has another one, %d of term %d", was.index, was.term, e.GetIndex(), e.GetTerm()))
		}
		ents = ents[1:]
	}
	return ents
}

func payload(ents []*pb.Entry) (bytes int) {
	for _, e := range ents {
		bytes += len(e.GetData())
	}
	return bytes
}

// speculate applies entries that are on their way to the log.
func (c *core) speculate(ents []*pb.Entry) {
	s := &c.spec
	if !s.on || len(ents) == 0 {
		return
	}
	if s.shown && c.machine.Position().Index == c.confirmed.Index {
		// What weak reads see must not go back to the copy before.
		s.copies, s.copyAt = []*fsm.Machine{c.machine.Copy()}, c.now.boot
	}
	s.shown = false
	for _, e := range ents {
		a, ok := c.apply(e)
		if !ok {
			return
		}
		answered := a.Mine && a.Header.Number > 0 && c.answerFast(&a)
		c.awaits(&a, answered)
		s.bound.push(a)
		s.bytes += len(e.GetData())
		c.onHead(&a)
	}
	if c.now.boot-s.copyAt >= copyEveryNs && len(s.copies) < copiesMax {
		s.copies = append(s.copies, c.machine.Copy())
		s.copyAt = c.now.boot
	}
}

// confirm returns what an entry did that was applied before it was committed.
func (s *speculation) confirm(e *pb.Entry) fsm.Applied {
	var a fsm.Applied
	if s.bound.len() > 0 {
		a = s.bound.pop()
	}
	if a.Position.Index != e.GetIndex() || a.Position.Term != e.GetTerm() {
		panic(fmt.Sprintf("BUG: entry %d of term %d is committed, but the machine has applied another one", e.GetIndex(), e.GetTerm()))
	}
	s.bytes -= len(e.GetData())
	return a
}

// forget drops copies older than the newest committed one.
func (s *speculation) forget(confirmed uint64) {
	for len(s.copies) > 1 && s.copies[1].Position().Index <= confirmed {
		s.copies[0] = nil
		s.copies = s.copies[1:]
	}
}

// oldest is the index above which entries must stay in raft's storage.
func (s *speculation) oldest() uint64 {
	if !s.on {
		return ^uint64(0)
	}
	return s.copies[0].Position().Index
}

// committed returns the newest machine whose whole state is committed. Nobody
// may apply to it.
func (c *core) committed() *fsm.Machine {
	if !c.spec.on || c.machine.Position().Index == c.confirmed.Index || seeded == "uncommitted-state-shown" {
		c.spec.shown = true
		return c.machine
	}
	return c.spec.copies[0]
}

// unspeculate goes back to what is committed.
func (c *core) unspeculate() {
	s := c.spec
	c.spec = speculation{}
	if !s.on || c.machine.Position().Index == c.confirmed.Index || seeded == "no-rollback" {
		return
	}
	c.stats.rollbacks++
	c.chains.forget(c.confirmed.Index)
	c.machine = s.copies[0]
	from := c.machine.Position().Index + 1
	if from > c.confirmed.Index {
		return
	}
	ents, err := c.cfg.storage.Entries(from, c.confirmed.Index+1, ^uint64(0))
	if err != nil {
		c.halt(fmt.Errorf("roll back to entry %d: entries from %d on: %w", c.confirmed.Index, from, err))
		return
	}
	for _, e := range ents {
		// Their answers were given when they were committed.
		if _, ok := c.apply(e); !ok {
			return
		}
	}
}
