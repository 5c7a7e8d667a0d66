package fsm

import (
	"cmp"
	"slices"
)

// op runs one op of the naive model.
func (m *model) op(h BatchHeader, op Op, r *Result) {
	switch {
	case h.Origin == 0 != (op.Kind() == KindNodeAway || op.Kind() == KindMember),
		h.Origin != 0 && (h.Number == 0) != (op.Kind() == KindNodeStart):
		r.Code = CodeInvalidRequest
		return
	}
	m.level(LevelOf(op))
	_, m.canceling = op.(*Cancel)
	switch op := op.(type) {
	case *NodeStart:
		r.Code = m.nodeStart(h, op)
	case *NodeAway:
		if s := m.session(op.Node); s != nil && s.epoch == op.Epoch && !s.away {
			var mine []*mWaiter
			for _, w := range m.waiters {
				if w.node == op.Node {
					mine = append(mine, w)
				}
			}
			slices.SortFunc(mine, func(a, b *mWaiter) int { return cmp.Compare(a.request, b.request) })
			s.away = true
			for _, w := range mine {
				for _, name := range w.queues {
					if q := m.find(name); q != nil {
						m.tidy(q)
					}
				}
			}
		}
	case *NodeBack:
		s := m.session(h.Origin)
		s.away = false
		for _, w := range m.sorted(h.Origin) {
			for _, name := range w.queues {
				m.open(name)
			}
		}
	case *Enqueue:
		if !op.Atomic {
			m.enqueue(h, op, r)
			return
		}
		before := m.clone()
		if m.enqueue(h, op, r); failed(r) {
			m.back(before)
			abortResult(r)
		}
	case *Tx:
		before := m.clone()
		any := false
		for _, part := range op.Ops {
			p := Result{Position: m.pos}
			m.op(h, part, &p)
			any = any || failed(&p)
			r.Parts = append(r.Parts, p)
		}
		if any {
			m.back(before)
			for i := range r.Parts {
				abortResult(&r.Parts[i])
			}
			r.Code = CodeAborted
		}
	case *Keyed:
		m.keyed(h, op, r)
	case *Alarm:
		if !slices.Contains([]uint8{0, 75, 90, 95}, op.Disk) {
			r.Code = CodeInvalidRequest
			return
		}
		m.session(h.Origin).disk = op.Disk
	case *Dequeue:
		m.dequeue(h, op, r)
	case *Ack:
		m.items(op.Items, r, m.ack)
	case *Nack:
		m.items(op.Items, r, m.nack)
	case *Release:
		m.items(op.Items, r, m.release)
	case *Extend:
		m.items(op.Items, r, m.extend)
	case *GiveBack:
		m.items(op.Items, r, m.giveBack)
	case *Withdraw:
		for _, request := range op.Requests {
			for _, w := range m.sorted(h.Origin) {
				if w.request == request {
					m.unpark(w)
				}
			}
		}
	case *DeleteQueue:
		m.deleteQueue(op, r)
	case *MemberChange:
		r.Code = m.memberChange(op)
	case *Reject:
		m.items(op.Items, r, m.reject)
	case *Settle:
		m.settleMixed(op.Items, r)
	case *Requeue:
		m.requeue(op, r)
	case *Hold:
		m.hold(op, r)
	case *Cancel:
		m.byKey(op.Keys, r, m.cancel)
	case *DeleteJobs:
		m.byKey(op.Keys, r, m.delete)
	case *WithdrawJobs:
		m.byKey(op.Keys, r, m.withdrawJob)
	case *Purge:
		m.purge(op, r)
	case *Redrive:
		m.redrive(op, r)
	case *Pause:
		m.pause(op)
	case *Configure:
		m.configure(op, r)
	case *ReleaseConsumer:
		m.releaseConsumer(op, r)
	}
}

func (m *model) keyed(h BatchHeader, op *Keyed, r *Result) {
	i := slices.IndexFunc(m.kept, func(k *mKept) bool { return k.key == op.Key })
	if i >= 0 && !m.answered {
		k := m.kept[i]
		m.depend(k.index)
		if k.digest != op.Digest {
			r.Code = CodeIdempotencyMismatch
			return
		}
		*r = k.result
		r.Parts = slices.Clone(r.Parts)
		r.Position, r.Replay = m.pos, true
		for i := range r.Parts {
			r.Parts[i].Position = m.pos
		}
		return
	}
	m.op(h, op.Op, r)
	if i < 0 {
		m.seq++
		m.kept = append(m.kept, &mKept{op.Key, op.Digest, *r, m.pos.TimeMs + 3600_000, m.seq, m.pos.Index})
	}
}

func failed(r *Result) bool {
	return r.Code != CodeOK || slices.ContainsFunc(r.Items, func(it ItemResult) bool { return it.Code != CodeOK })
}

// abortResult says of all that would have been done that it was not.
func abortResult(r *Result) {
	if r.Code == CodeOK {
		r.Code = CodeAborted
	}
	items := r.Items
	*r = Result{Position: r.Position, Code: r.Code}
	for _, it := range items {
		if it.Code == CodeOK {
			it = ItemResult{Code: CodeAborted, ID: ID{Key: it.ID.Key}}
		}
		r.Items = append(r.Items, it)
	}
}

// clone copies the model, to go back to.
func (m *model) clone() *model {
	c := *m
	queues := map[*mQueue]*mQueue{}
	jobs := map[*mJob]*mJob{}
	c.queues, c.jobs, c.dedups, c.attempts, c.groups = nil, nil, nil, nil, nil
	for _, q := range m.queues {
		e := *q
		queues[q] = &e
		c.queues = append(c.queues, &e)
	}
	for _, j := range m.jobs {
		e := *j
		e.queue = queues[j.queue]
		jobs[j] = &e
		c.jobs = append(c.jobs, &e)
	}
	for _, a := range m.attempts {
		e := *a
		e.jobs = nil
		for _, g := range a.jobs {
			e.jobs = append(e.jobs, &mGiven{jobs[g.job], g.grant, g.holders})
		}
		c.attempts = append(c.attempts, &e)
	}
	for _, g := range m.groups {
		e := *g
		e.queue = queues[g.queue]
		c.groups = append(c.groups, &e)
	}
	for _, d := range m.dedups {
		e := *d
		e.queue = queues[d.queue]
		c.dedups = append(c.dedups, &e)
	}
	c.kept = slices.Clone(m.kept)
	c.tombs = slices.Clone(m.tombs)
	c.applied.Ended = slices.Clone(m.applied.Ended)
	return &c
}

// back goes back to a clone; what the op at hand read stays read, and what the
// entry swept stays counted.
func (m *model) back(before *model) {
	depends, sweeps := m.depends, m.sweeps
	*m = *before
	m.depends, m.sweeps = depends, sweeps
}

func (m *model) sorted(node uint64) (list []*mWaiter) {
	for _, w := range m.waiters {
		if w.node == node {
			list = append(list, w)
		}
	}
	slices.SortFunc(list, func(a, b *mWaiter) int { return cmp.Compare(a.request, b.request) })
	return list
}

func (m *model) epochUsed(epoch uint64) bool {
	for _, s := range m.sessions {
		if _, ok := m.fate(s.node, epoch); ok {
			return true
		}
	}
	for _, r := range m.removed {
		if _, ok := m.fate(r.id, epoch); ok {
			return true
		}
	}
	for _, j := range m.jobs {
		if j.key.Hi == epoch {
			return true
		}
	}
	return slices.ContainsFunc(m.tombs, func(t mTomb) bool { return t.key.Hi == epoch })
}

func (m *model) nodeStart(h BatchHeader, op *NodeStart) Code {
	s := m.session(h.Origin)
	member := slices.ContainsFunc(m.members, func(e Member) bool { return e.ID == h.Origin })
	if !member || s != nil && h.Epoch>>32 <= s.epoch>>32 || m.epochUsed(h.Epoch) || h.Epoch == 0 || h.Epoch >= 1<<48 {
		return CodeEpochTaken
	}
	if s == nil {
		s = &mSession{node: h.Origin}
		m.sessions = append(m.sessions, s)
	} else {
		for _, w := range m.sorted(h.Origin) {
			m.unpark(w)
		}
		if s.past = append(s.past, pastEpoch{s.epoch, s.last}); len(s.past) > EpochsKept {
			s.past = s.past[1:]
		}
	}
	s.epoch, s.last, s.away, s.disk, s.start = h.Epoch, 0, false, 0, *op
	if at := m.memberIndex(h.Origin); op.FeatureLevel >= 2 && op.Peer != "" && m.members[at].Peer != op.Peer {
		table := slices.Clone(m.members)
		table[at].Peer = op.Peer
		m.table(table)
	}
	m.level(m.featureLevel())
	return CodeOK
}

func (m *model) enqueue(h BatchHeader, op *Enqueue, r *Result) {
	for i, n := range op.Jobs {
		if !m.answered {
			if known := m.known(&n); known != nil {
				r.Items = append(r.Items, *known)
				continue
			}
			if code := m.admit(&n); code != CodeOK {
				r.Items = append(r.Items, ItemResult{Code: code, ID: ID{Key: Key{h.Epoch, op.First + uint64(i)}}})
				continue
			}
		}
		m.seq++
		q := m.open(n.Queue)
		m.make(q)
		m.used(q)
		q.Enqueued++
		now := m.pos.TimeMs
		j := &mJob{
			key: Key{h.Epoch, op.First + uint64(i)}, queue: q, seq: m.seq, prio: n.Priority, state: "ready", amo: n.AtMostOnce,
			enqueued: now, lease: n.LeaseMs, last: m.pos.Index, maxFails: n.MaxFailures, node: uint32(h.Origin >> 32),
			body: string(n.Body), headers: n.Headers, group: n.Group, dedup: n.DedupID, unique: n.UniqueKey,
		}
		ttl := n.TTLMs
		if ttl == 0 {
			ttl = q.Config.TTLMs
			j.queueTTL = ttl > 0
		}
		if ttl == 0 && n.AtMostOnce {
			ttl = AtMostOnceTTLMs
		}
		if ttl != 0 {
			j.expires = now + ttl
		}
		m.jobs = append(m.jobs, j)
		if n.DelayMs > 0 {
			m.setDue(j, "delayed", now+n.DelayMs)
		} else if n.AtMs > now {
			m.setDue(j, "delayed", n.AtMs)
		} else if n.AtMs == 0 && q.Config.DelayMs > 0 {
			m.setDue(j, "delayed", now+q.Config.DelayMs)
		} else {
			m.ready(j)
		}
		j.hasUnique, j.uniqueAt = n.UniqueKey != "" && m.holderOf(q, n.UniqueKey) == nil, m.pos.Index
		r.Items = append(r.Items, ItemResult{ID: j.id()})
		if n.DedupID != "" && m.dedupOf(q, n.DedupID) == nil {
			m.seq++
			ttl := n.DedupTTLMs
			if ttl == 0 {
				ttl = 5 * 60_000
			}
			m.dedups = append(m.dedups, &mDedup{q, n.DedupID, j.id(), now + ttl, m.seq, m.pos.Index})
		}
	}
}

func (m *model) dedupOf(q *mQueue, text string) *mDedup {
	for _, d := range m.dedups {
		if d.queue == q && d.text == text {
			return d
		}
	}
	return nil
}

// known returns the result of an enqueue that makes no job because of its keys.
func (m *model) known(n *NewJob) *ItemResult {
	q := m.find(n.Queue)
	if q == nil {
		return nil
	}
	if d := m.dedupOf(q, n.DedupID); d != nil {
		m.depend(d.index)
		return &ItemResult{ID: d.first, Duplicate: true}
	}
	if n.UniqueKey != "" {
		m.depend(q.freed)
		if j := m.holderOf(q, n.UniqueKey); j != nil {
			m.depend(j.uniqueAt)
			return &ItemResult{ID: j.id(), Code: CodeNotUnique}
		}
	}
	return nil
}

func (m *model) depend(index uint64) { m.depends = max(m.depends, index) }

func (m *model) dequeue(h BatchHeader, op *Dequeue, r *Result) {
	limit := min(max(int(op.Max), 1), BatchItemsMax)
	if len(op.Queues) == 0 {
		r.Code = CodeInvalidRequest
		return
	}
	seq := uint64(0)
	if op.AttemptID != "" {
		if r.Jobs = m.again(op); len(r.Jobs) > 0 {
			return
		}
		for _, w := range m.waiters {
			if w.attempt == op.AttemptID && slices.Equal(w.listed, op.Queues) {
				seq = w.seq
				m.unpark(w)
				break
			}
		}
	}
	if m.anyReady(op.Queues) {
		r.Jobs = m.hand(h.Epoch, op.Request, op.Queues, limit, op.LeaseMs, op.Consumer)
		m.given(op.AttemptID, op.Queues, r.Jobs)
		return
	}
	if op.WaitMs <= 0 {
		return
	}
	for _, w := range m.waiters {
		if w.node == h.Origin && w.request == op.Request {
			r.Code = CodeInvalidRequest
			return
		}
	}
	if seq == 0 {
		m.seq++
		seq = m.seq
	}
	w := &mWaiter{
		attempt: op.AttemptID, listed: op.Queues,
		seq: seq, node: h.Origin, epoch: h.Epoch, request: op.Request, deadline: m.pos.TimeMs + op.WaitMs,
		lease: op.LeaseMs, max: limit, consumer: op.Consumer,
	}
	for _, name := range op.Queues {
		if !slices.Contains(w.queues, name) {
			w.queues = append(w.queues, name)
			if !m.session(h.Origin).away {
				m.open(name)
			}
		}
	}
	m.waiters = append(m.waiters, w)
	slices.SortFunc(m.waiters, func(a, b *mWaiter) int { return cmp.Compare(a.seq, b.seq) })
	r.Parked = true
}

// given notes what an attempt was given.
func (m *model) given(id string, queues []string, jobs []Delivered) {
	if id == "" || len(jobs) == 0 {
		return
	}
	a := &mAttempt{id: id, queues: queues}
	for i := range jobs {
		a.jobs = append(a.jobs, &mGiven{m.job(jobs[i].ID.Key), jobs[i].Grant, 1})
	}
	m.attempts = append(m.attempts, a)
}

// again returns what lives of the last that an attempt was given.
func (m *model) again(op *Dequeue) (jobs []Delivered) {
	for _, a := range m.attempts {
		if a.id != op.AttemptID || !slices.Equal(a.queues, op.Queues) {
			continue
		}
		jobs = nil
		for _, g := range a.jobs {
			if g.live(m) {
				g.holders++
				m.depend(g.job.last)
				jobs = append(jobs, g.job.delivered())
			}
		}
	}
	return jobs
}

func (m *model) deleteQueue(op *DeleteQueue, r *Result) {
	q := m.find(op.Queue)
	if q == nil || !q.made {
		r.Code = CodeQueueNotFound
		return
	}
	n := m.count(q)
	if n > 0 && !op.Force {
		r.Code = CodeQueueNotEmpty
		return
	}
	r.Count = n
	q.timer = 0
	if n+m.keys(q) == 0 {
		m.remove(q)
	} else {
		m.keepCounts(q)
		q.doomed = true
	}
	if len(m.waiting(op.Queue)) > 0 {
		m.open(op.Queue)
	}
}

// The reads.
