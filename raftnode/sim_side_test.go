package raftnode

import (
	"fmt"
	"reflect"
	"slices"

	"raftq/fsm"
)

// Beside the queues with jobs of which every place is checked there are, in some worlds,
// a queue with groups, dedup ids and dead letters that is paused and configured, and
// whose jobs are requeued, held, cancelled and deleted; the queue of its dead letters;
// and a topic. Transactions go over both. All of that goes under idempotency keys, which
// carry the number of the operation.
const (
	sideQueue = "side"
	sideDead  = "side-dead"
	sideTopic = "topic"
)

// sideModel is what the checker knows of them.
type sideModel struct {
	jobs        []*modelJob
	pausedUntil int64 // log ms; jobs do not go out before
	pausedAt    uint64
	slots       int32 // of a group, the most that was ever configured
	dedup       map[string]sideDedup
	bodies      []string // of the topic's messages
	cursor      uint64
	unique      map[string]*modelJob // who was given the key last
}

// sideDedup is the job of a dedup id, and until when it is.
type sideDedup struct {
	key   fsm.Key
	until int64 // log ms
}

// sideJob is a job of the side queue.
type sideJob struct {
	group string
	fails int
	gone  uint64 // the entry that purged it
	base  uint32 // grants before it was redriven
	again bool   // it may have been redriven
	loose bool   // somebody did something to it by its id
	at    uint64 // the same: the last entry. It may have come between two hand-outs there
}

func (c *simClient) side(n *simNode, timeout int64) {
	w, r := c.w, c.w.clientRand
	p := r.IntN(20)
	if p >= 15 {
		c.dequeueFrom(n, timeout, []string{sideQueue, sideDead}[:1+r.IntN(2)])
		return
	}
	o := c.op(opSide)
	now := w.check.refs[0].Position().TimeMs
	job := func(k int) fsm.NewJob {
		j := fsm.NewJob{Queue: sideQueue, Body: fmt.Appendf(nil, "%s%d", opMark(o.id), k), Priority: uint8(r.IntN(10))}
		if r.IntN(3) > 0 {
			j.Group = fmt.Sprintf("g%d", r.IntN(3))
		}
		if r.IntN(2) == 0 {
			j.MaxFailures = int32(1 + r.IntN(3))
		}
		if r.IntN(4) == 0 {
			j.DedupID, j.DedupTTLMs = fmt.Sprintf("d%d", r.IntN(20)), fsm.DedupTTLMs
		}
		return j
	}
	message := func(k int) fsm.NewMessage {
		return fsm.NewMessage{Body: fmt.Appendf(nil, "%s%d", opMark(o.id), k)}
	}
	var op fsm.Op
	switch {
	case p < 3:
		e := &fsm.Enqueue{Atomic: r.IntN(2) == 0}
		for k := range 1 + r.IntN(3) {
			j := job(k)
			if r.IntN(3) == 0 {
				j.UniqueKey = fmt.Sprintf("u%d", r.IntN(12))
			}
			e.Jobs = append(e.Jobs, j)
		}
		op = e
	case p < 5:
		a := &fsm.Append{Topic: sideTopic}
		for k := range 1 + r.IntN(3) {
			a.Messages = append(a.Messages, message(k))
		}
		op = a
	case p < 8: // all or none
		tx := &fsm.Tx{Ops: []fsm.Op{&fsm.Append{Topic: sideTopic, Messages: []fsm.NewMessage{message(0)}}, &fsm.Enqueue{Jobs: []fsm.NewJob{job(1)}}}}
		from := &c.held
		if r.IntN(3) == 0 {
			from = &c.old // which will not do
		}
		if k := len(*from); k > 0 {
			it := (*from)[k-1].receipt.Item()
			*from = (*from)[:k-1]
			tx.Ops = append(tx.Ops, &fsm.Ack{Items: []fsm.Item{it}})
		}
		op = tx
	case p < 9:
		pause := &fsm.Pause{Queue: sideQueue}
		if r.IntN(3) > 0 {
			pause.Out, pause.UntilMs = true, now+between(r, 50, 2000)
		}
		op = pause
	case p < 10:
		op = &fsm.Configure{Queue: sideQueue, Fields: fsm.FieldDeadLetter | fsm.FieldGroupLimit, Config: fsm.QueueConfig{DeadLetter: sideDead, GroupLimit: int32(1 + r.IntN(2))}}
	case p < 11 && len(w.check.side.jobs) > 0:
		var keys []fsm.Key
		for range 1 + r.IntN(3) {
			all := w.check.side.jobs
			if k := all[max(0, len(all)-20)+r.IntN(min(20, len(all)))].key; !slices.Contains(keys, k) {
				keys = append(keys, k)
			}
		}
		switch r.IntN(4) {
		case 0:
			op = &fsm.Requeue{Keys: keys, Nack: r.IntN(2) == 0}
		case 1:
			op = &fsm.Hold{Keys: keys, ForMs: between(r, 1, 1000)}
		case 2:
			op = &fsm.Cancel{Keys: keys}
		default:
			op = &fsm.DeleteJobs{Keys: keys}
		}
	case p == 12 && r.IntN(3) == 0:
		op = &fsm.Purge{Queue: sideQueue, States: fsm.StateAll}
	case p == 12 || p == 13:
		op = &fsm.Redrive{Queue: []string{sideQueue, sideDead}[r.IntN(2)]}
	case p == 14 && len(c.held) > 0:
		it := c.held[len(c.held)-1].receipt.Item()
		if f := w.check.grants[modelGrant{it.Key, it.Grant}]; f != nil && f.op.fast == nil {
			op = &fsm.ReleaseConsumer{Consumer: opMark(f.op.id)}
			break
		}
		fallthrough
	default:
		op = &fsm.SetCursor{Topic: sideTopic, Cursor: "c", Offset: uint64(r.IntN(len(w.check.side.bodies) + 1))}
	}
	c.sendKeyed(n, timeout, o.begin(op))
}

func (l *logChecker) sideOp(i uint64, le *logEntry, o *simOp, op fsm.Op, res *fsm.Result) {
	w, s := l.w, &l.side
	loose := func(keys []fsm.Key) {
		for _, k := range keys {
			if j := l.jobs[k]; j != nil {
				j.side.loose, j.side.at, j.leased, j.notMs, j.notTrue = true, i, false, 0, 0
			}
		}
	}
	switch op := op.(type) {
	case *fsm.Enqueue:
		for k := range op.Jobs {
			l.sideEnqueued(i, le, o, k, &op.Jobs[k], &res.Items[k])
		}
	case *fsm.Append:
		if res.Offset != uint64(len(s.bodies)) || res.Count != len(op.Messages) {
			w.failf("entry %d: %v appends %d messages at %d, the topic has %d", i, o, res.Count, res.Offset, len(s.bodies))
		}
		for _, m := range op.Messages {
			s.bodies = append(s.bodies, string(m.Body))
		}
	case *fsm.Tx:
		if w.stats.SideTx++; len(res.Parts) != len(op.Ops) {
			w.failf("entry %d: %v has %d parts of %d", i, o, len(res.Parts), len(op.Ops))
		}
		for k, part := range op.Ops {
			if res.Parts[k].Code != fsm.CodeOK {
				w.failf("entry %d: %v is done, but its part %d is %v", i, o, k, res.Parts[k].Code)
			}
			l.sideOp(i, le, o, part, &res.Parts[k])
		}
	case *fsm.Ack: // of a transaction: the whole is aborted if it does not find its lease
		for k := range res.Items {
			if res.Items[k].Code != fsm.CodeOK {
				w.failf("entry %d: %v is done, but an ack of it is %v", i, o, res.Items[k].Code)
			}
		}
		l.settledItems(i, le, op.Items, res, opAck)
	case *fsm.Pause:
		s.pausedUntil, s.pausedAt = 0, i
		if op.Out {
			s.pausedUntil = op.UntilMs
		}
	case *fsm.Configure:
		s.slots = max(s.slots, op.Config.GroupLimit)
	case *fsm.SetCursor:
		s.cursor = op.Offset
	case *fsm.Purge:
		l.purged(i, le, o, res)
	case *fsm.Redrive:
		l.redriven(i, o, res)
	case *fsm.ReleaseConsumer:
		l.released(i, le, o, op, res)
	case *fsm.Requeue:
		loose(op.Keys)
	case *fsm.Hold:
		loose(op.Keys)
	case *fsm.Cancel:
		loose(op.Keys)
	case *fsm.DeleteJobs:
		loose(op.Keys)
	default:
		w.failf("entry %d: %v is a %T, which nobody sends", i, o, op)
	}
}

func (l *logChecker) sideEnqueued(i uint64, le *logEntry, o *simOp, k int, job *fsm.NewJob, res *fsm.ItemResult) {
	w, s := l.w, &l.side
	if res.Code == fsm.CodeNotUnique {
		l.notUnique(i, o, job, res)
	}
	if res.Code != fsm.CodeOK {
		return
	}
	key := res.ID.Key
	if res.Duplicate {
		if job.DedupID == "" || s.dedup[job.DedupID].key != key {
			w.failf("entry %d: %v: job %d with dedup id %q is said to be %v, which has another", i, o, k, job.DedupID, res.ID)
		}
		return
	}
	if job.DedupID != "" {
		if was, ok := s.dedup[job.DedupID]; ok && le.pos.TimeMs < was.until {
			w.failf("entry %d: %v: job %d is a second one with dedup id %q, after %v", i, o, k, job.DedupID, was.key)
		}
		s.dedup[job.DedupID] = sideDedup{key, le.pos.TimeMs + job.DedupTTLMs}
	}
	if l.jobs[key] != nil {
		w.failf("entry %d: %v: id %v was given before", i, o, res.ID)
	}
	l.seq++
	m := &modelJob{key: key, op: o, n: k, job: job, seq: l.seq, index: i, born: le.stamped, side: &sideJob{group: job.Group}}
	l.takesUnique(i, o, m)
	l.jobs[key] = m
	l.order = append(l.order, key)
	s.jobs = append(s.jobs, m)
}

// sideGranted checks a hand-out of a side job.
func (l *logChecker) sideGranted(i uint64, le *logEntry, o *simOp, j *modelJob, d *fsm.Delivered) {
	w, s := l.w, &l.side
	w.stats.SideGrants++
	if d.Queue == sideDead {
		if w.stats.DeadLetters++; j.side.fails == 0 && !j.side.loose && !j.granted {
			w.failf("entry %d: %v was handed job %v as a dead letter, and it never failed", i, o, d.ID)
		}
		return
	}
	if s.pausedAt < i && le.pos.TimeMs < s.pausedUntil {
		w.failf("entry %d: %v was handed job %v of a queue that is paused for %d ms more", i, o, d.ID, s.pausedUntil-le.pos.TimeMs)
	}
	if most := int(j.job.MaxFailures); most > 0 && j.side.fails >= most && !j.side.loose {
		w.failf("entry %d: %v was handed job %v, which has failed %d times of %d", i, o, d.ID, j.side.fails, most)
	}
	if j.granted && j.fact.d.Queue == sideDead && !j.side.loose && !j.side.again {
		w.failf("entry %d: %v was handed job %v, which was a dead letter and nobody has redriven", i, o, d.ID)
	}
	held := 0
	for _, x := range s.jobs {
		if x != j && x.side.group == j.side.group && x.leased && le.pos.TimeMs < x.untilMs && !x.side.loose && x.fact.d.Queue == sideQueue {
			held++
		}
	}
	if j.side.group != "" && held >= int(max(1, s.slots)) {
		w.failf("entry %d: %v was handed job %v of group %s, of which %d are leased", i, o, d.ID, j.side.group, held)
	}
}

// sameSide compares what an answer has beside items.
func sameSide(a, b *fsm.Result) bool {
	return a.Count == b.Count && a.Offset == b.Offset && a.Version == b.Version && a.Replay == b.Replay && reflect.DeepEqual(a.Parts, b.Parts)
}

// finalSide holds the topic against the model at the end.
func (c *checker) finalSide() {
	w, s := c.w, &c.side
	for _, n := range w.live() {
		m := n.core.machine
		info, _ := m.Topic(sideTopic)
		if info.Next != uint64(len(s.bodies)) {
			w.failf("%s ends with %d messages, the log has %d", n.name, info.Next, len(s.bodies))
		}
		list, _, _ := m.Messages(sideTopic, 0, ^uint64(0), len(s.bodies), 1<<30)
		if !slices.EqualFunc(list, s.bodies, func(m fsm.Message, body string) bool { return m.Body == body }) {
			w.failf("%s ends with other messages than the log's", n.name)
		}
		if cur, ok, _ := m.Cursor(sideTopic, "c"); ok && cur.Offset != s.cursor {
			w.failf("%s ends with the cursor at %d, the log with %d", n.name, cur.Offset, s.cursor)
		}
	}
}
