package raftnode

import (
	"bytes"
	"slices"

	"raftq/fsm"
)

type emptyAnswer struct {
	op     *simOp
	queues []string
}

type modelSession struct {
	epoch, last uint64
	away        bool
	awayTouched uint64 // index of the last entry that changed away
}

type modelList struct {
	queue string
	prio  uint8
}

type modelJob struct {
	key        fsm.Key
	op         *simOp
	n          int // of the op's jobs
	job        *fsm.NewJob
	seq        int
	index      uint64
	born       int64 // true ns
	notMs      int64 // not before, log ms
	notTrue    int64 // and in true ns, before tolerance
	wait       int64 // ns, that led to notTrue
	expires    int64 // log ms; 0 = none
	plain      bool  // no delay, no TTL
	granted    bool
	leased     bool
	grant      uint32
	fact       *grantFact
	untilMs    int64 // log
	lease      int64 // ns
	since      int64 // true ns
	acked      bool
	ackedAt    uint64
	received   int // by clients
	receivedBy *simFamily
	settledAt  uint64 // the last entry that ended its lease
	extendedAt uint64 // and that extended it
	backs      int    // hand-outs undone
	rejectedIn string // the queue in which it was rejected
	side       *sideJob
}

type modelGrant struct {
	key   fsm.Key
	grant uint32
}

// grantFact is one hand-out in the log.
type grantFact struct {
	index    uint64
	op       *simOp
	origin   uint64
	d        fsm.Delivered
	back     bool     // given back
	holders  []holder // the requests that were answered with it, of one attempt
	returned int      // by so many of them
	inTime   int      // the same, while the lease lived
	over     bool     // its holder, or somebody for it, gave the lease up
}

type modelWaiter struct {
	op       *simOp
	origin   uint64
	epoch    uint64
	request  uint64
	index    uint64
	deadline int64
	queues   []string
	max      int
	gone     bool // withdrawn or of an old epoch, by the entry at hand
}

// list returns the jobs of a queue and priority that were never granted, in order.
func (l *logChecker) list(queue string, prio uint8) *[]*modelJob {
	k := modelList{queue, prio}
	p := l.lists[k]
	if p == nil {
		p = &[]*modelJob{}
		l.lists[k] = p
	}
	return p
}

// waitingJobs drops those that were granted from the list's head and returns it.
func (l *logChecker) waitingJobs(queue string, prio uint8) []*modelJob {
	k := modelList{queue, prio}
	p := l.lists[k]
	if p == nil {
		return nil
	}
	for len(*p) > 0 && (*p)[0].granted {
		*p = (*p)[1:]
	}
	return *p
}

// judge runs the naive model over one entry. Within an entry what is settled
// comes before what is granted: nobody can settle what the same entry grants.
func (l *logChecker) judge(i uint64, le *logEntry, h fsm.BatchHeader, ops []fsm.Op, effect bool) {
	w := l.w
	l.session(i, h, ops, effect)
	// Waiters give up by log time, before the entry's ops.
	l.waiters = slices.DeleteFunc(l.waiters, func(v *modelWaiter) bool { return v.deadline <= le.pos.TimeMs })
	var granted []*modelJob
	if effect {
		if h.Number != 0 {
			flags := opFlags(le.data)
			for k, op := range ops {
				if w.check.marked(i, flags[k], op) {
					ops[k] = nil // void
				}
			}
		}
		for k, op := range ops {
			var res *fsm.Result
			if h.Number != 0 {
				res = &le.results[k]
			}
			l.settling(i, le, h, op, res)
		}
		for k, op := range ops {
			if op, ok := op.(*fsm.Dequeue); ok {
				granted = l.dequeued(i, le, h, op, &le.results[k], granted)
			}
		}
	}
	for _, id := range l.origins {
		for _, ho := range le.handouts[id] {
			granted = l.handedOut(i, le, id, ho, granted)
		}
	}
	l.waiters = slices.DeleteFunc(l.waiters, func(v *modelWaiter) bool { return v.gone })
	l.checkEmpty(i)
	l.checkOrder(i, granted)
	l.checkWaiters(i, le)
}

func (l *logChecker) session(i uint64, h fsm.BatchHeader, ops []fsm.Op, effect bool) {
	w := l.w
	if h.Origin == 0 {
		if !effect {
			w.failf("entry %d: a batch of the leader without effect", i)
		}
		return
	}
	s := l.sessions[h.Origin]
	if s == nil {
		s = &modelSession{}
		l.sessions[h.Origin] = s
	}
	next := h.Epoch == s.epoch && h.Number == s.last+1 && h.Number > 0
	if h.Number > 0 && effect != next {
		w.failf("entry %d: batch %d of epoch %x of %x has effect %v, but the last one was %d of %x", i, h.Number, h.Epoch, h.Origin, effect, s.last, s.epoch)
	}
	if !effect {
		w.stats.Filtered++
		w.failf("entry %d: batch %d of epoch %x of %x got into the log though its turn was not there (last %d of %x)", i, h.Number, h.Epoch, h.Origin, s.last, s.epoch)
	}
	if next {
		s.last = h.Number
	}
}

// settling takes the ops that make jobs or give them up.
func (l *logChecker) settling(i uint64, le *logEntry, h fsm.BatchHeader, op fsm.Op, res *fsm.Result) {
	w := l.w
	switch op := op.(type) {
	case *fsm.NodeStart:
		if s, _ := l.refs[0].Session(h.Origin); s.Epoch != h.Epoch {
			w.stats.EpochsRefused++
			return
		}
		*l.sessions[h.Origin] = modelSession{epoch: h.Epoch, awayTouched: i}
		l.leave(func(v *modelWaiter) bool { return v.origin == h.Origin })
	case *fsm.NodeAway:
		w.stats.Away++
		if s := l.sessions[op.Node]; s != nil && s.epoch == op.Epoch {
			s.away, s.awayTouched = true, i
		}
	case *fsm.NodeBack:
		s := l.sessions[h.Origin]
		s.away, s.awayTouched = false, i
	case *fsm.MemberChange:
		l.memberChanged(i, op)
	case *fsm.Withdraw:
		l.leave(func(v *modelWaiter) bool { return v.origin == h.Origin && slices.Contains(op.Requests, v.request) })
	case *fsm.Enqueue:
		l.enqueued(i, le, h, op, res)
	case *fsm.Ack:
		l.settled(i, le, op.Items, res, opAck)
	case *fsm.Nack:
		l.settled(i, le, op.Items, res, opNack)
	case *fsm.Release:
		l.settled(i, le, op.Items, res, opRelease)
	case *fsm.Extend:
		l.settled(i, le, op.Items, res, opExtend)
	case *fsm.Reject:
		l.settled(i, le, op.Items, res, opReject)
	case *fsm.Settle:
		l.settledMixed(i, le, op, res)
	case *fsm.GiveBack:
		l.settled(i, le, op.Items, res, opGiveBack)
	case *fsm.Keyed:
		l.keyed(i, le, h, op, res)
	}
}

// leave marks waiters that the entry drops: its timers may have served them before.
func (l *logChecker) leave(which func(*modelWaiter) bool) {
	for _, v := range l.waiters {
		v.gone = v.gone || which(v)
	}
}

func (l *logChecker) enqueued(i uint64, le *logEntry, h fsm.BatchHeader, op *fsm.Enqueue, res *fsm.Result) {
	w := l.w
	o := w.check.opOfBody(op.Jobs[0].Body)
	w.check.effect(o, i, h, res)
	want := o.op.(*fsm.Enqueue)
	if len(want.Jobs) != len(op.Jobs) || len(res.Items) != len(op.Jobs) {
		w.failf("entry %d: %v enqueues %d jobs, the client asked for %d", i, o, len(op.Jobs), len(want.Jobs))
	}
	for k := range op.Jobs {
		j, asked := &op.Jobs[k], &want.Jobs[k]
		if !sameJob(j, asked) {
			w.failf("entry %d: %v: job %d is not what the client asked for", i, o, k)
		}
		if res.Items[k].Code != fsm.CodeOK {
			w.failf("entry %d: %v: job %d refused: %v", i, o, k, res.Items[k].Code)
		}
		key := res.Items[k].ID.Key
		if l.jobs[key] != nil {
			w.failf("entry %d: %v: id %v was given before", i, o, res.Items[k].ID)
		}
		l.seq++
		m := &modelJob{key: key, op: o, n: k, job: asked, seq: l.seq, index: i, born: le.stamped, plain: j.DelayMs == 0 && j.TTLMs == 0}
		if j.DelayMs > 0 {
			m.notMs, m.notTrue, m.wait = le.pos.TimeMs+j.DelayMs, le.stamped+j.DelayMs*1e6, j.DelayMs*1e6
		}
		if j.TTLMs > 0 {
			m.expires = le.pos.TimeMs + j.TTLMs
		}
		l.jobs[key] = m
		l.order = append(l.order, key)
		if m.plain {
			p := l.list(j.Queue, j.Priority)
			*p = append(*p, m)
		}
	}
}

func sameJob(a, b *fsm.NewJob) bool {
	return a.Queue == b.Queue && bytes.Equal(a.Body, b.Body) && slices.Equal(a.Headers, b.Headers) && a.Priority == b.Priority &&
		a.AtMostOnce == b.AtMostOnce && a.DelayMs == b.DelayMs && a.LeaseMs == b.LeaseMs && a.TTLMs == b.TTLMs && a.MaxFailures == b.MaxFailures
}
