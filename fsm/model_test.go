package fsm

import (
	"cmp"
	"slices"
	"strings"
)

// model is a second machine: the same rules, written as slices and linear
// search, without copy-on-write, codec or indexes. It shares with the first the
// types of ops and results, and the id, tag and limit definitions.
type model struct {
	pos       Position
	seq       uint64
	number    int
	jobs      []*mJob
	queues    []*mQueue // in order of number; the doomed ones too
	waiters   []*mWaiter
	sessions  []*mSession
	tombs     []mTomb
	members   []Member
	gone      QueueInfo // what queues that are gone had counted
	timersMax int
	tombsMax  int
	self      Self
	applied   Applied
}

type mJob struct {
	key                      Key
	queue                    *mQueue
	seq                      uint64
	prio                     uint8
	state                    string
	amo, tagged              bool
	enqueued, due, expires   int64
	lease, held              int64
	last, fence, tag         uint64
	grant, deliveries, fails uint32
	maxFails                 int32
	node                     uint32
	body                     string
	headers                  []Header
	consumer, err, reason    string
}

type mQueue struct {
	name         string
	number       int
	made, doomed bool
	idle, timer  int64
	QueueInfo    // the counts of what happened
}

type mWaiter struct {
	seq, node, epoch, request uint64
	deadline, lease           int64
	max                       int
	queues                    []string
	consumer                  string
}

type mSession struct {
	node, epoch, last uint64
	away              bool
	start             NodeStart
	past              []uint64
}

type mTomb struct {
	key   Key
	acked bool
}

func newModel(members []Member) *model {
	return &model{pos: Position{Index: 1, Term: 1}, members: members, timersMax: TimersPerEntry, tombsMax: TombstonesMax}
}

func (m *model) find(name string) *mQueue {
	for _, q := range m.queues {
		if q.name == name && !q.doomed {
			return q
		}
	}
	return nil
}

func (m *model) open(name string) *mQueue {
	if q := m.find(name); q != nil {
		return q
	}
	m.number++
	q := &mQueue{name: name, number: m.number}
	m.queues = append(m.queues, q)
	return q
}

func (m *model) session(node uint64) *mSession {
	for _, s := range m.sessions {
		if s.node == node {
			return s
		}
	}
	return nil
}

// job returns a visible job.
func (m *model) job(k Key) *mJob {
	for _, j := range m.jobs {
		if j.key == k && !j.queue.doomed {
			return j
		}
	}
	return nil
}

// waiting returns the waiters of a name that are not away, oldest first.
func (m *model) waiting(name string) (list []*mWaiter) {
	for _, w := range m.waiters {
		if slices.Contains(w.queues, name) && !m.session(w.node).away {
			list = append(list, w)
		}
	}
	return list
}

// in returns the jobs of q in a state, in their order.
func (m *model) in(q *mQueue, state string) (list []*mJob) {
	for _, j := range m.jobs {
		if j.queue == q && j.state == state {
			list = append(list, j)
		}
	}
	slices.SortFunc(list, func(a, b *mJob) int {
		if state == "ready" {
			return cmp.Or(-cmp.Compare(a.prio, b.prio), cmp.Compare(a.seq, b.seq))
		}
		return cmp.Compare(a.seq, b.seq)
	})
	return list
}

func (m *model) count(q *mQueue) (n int) {
	for _, j := range m.jobs {
		if j.queue == q {
			n++
		}
	}
	return n
}

// tidy lets q go when it has no reason to be, and sets its idle timer.
func (m *model) tidy(q *mQueue) {
	if q.doomed || m.count(q) > 0 || len(m.waiting(q.name)) > 0 {
		return
	}
	if !q.made {
		m.remove(q)
		return
	}
	q.idle = m.pos.TimeMs
	if q.timer == 0 {
		q.timer = q.idle + QueueIdleMs
	}
}

func (m *model) remove(q *mQueue) {
	m.keepCounts(q)
	m.queues = slices.DeleteFunc(m.queues, func(e *mQueue) bool { return e == q })
}

func (m *model) keepCounts(q *mQueue) {
	addCounts(&m.gone, &q.QueueInfo)
	q.QueueInfo = QueueInfo{}
}

func addCounts(sum, q *QueueInfo) {
	sum.Enqueued += q.Enqueued
	sum.Delivered += q.Delivered
	sum.Acked += q.Acked
	sum.Failed += q.Failed
	sum.Expired += q.Expired
	sum.DeadTotal += q.DeadTotal
}

func (m *model) drop(j *mJob) {
	m.jobs = slices.DeleteFunc(m.jobs, func(e *mJob) bool { return e == j })
}

func (m *model) remember(k Key, acked bool) {
	m.tombs = append(m.tombs, mTomb{k, acked})
	if len(m.tombs) > m.tombsMax {
		m.tombs = m.tombs[1:]
	}
}

func (m *model) goneCode(k Key) Code {
	for _, t := range m.tombs {
		if t.key == k && t.acked {
			return CodeOK
		} else if t.key == k {
			return CodeJobGone
		}
	}
	return CodeJobNotFound
}

// apply applies a batch, or an empty entry when h is nil.
func (m *model) apply(term uint64, h *BatchHeader, ops []Op, voids []bool, self Self) Applied {
	m.pos.Index++
	m.pos.Term = term
	m.self = self
	m.applied = Applied{}
	if h != nil {
		m.batch(*h, ops, voids)
	}
	m.applied.Position = m.pos
	return m.applied
}

func (m *model) batch(h BatchHeader, ops []Op, voids []bool) {
	a := &m.applied
	a.Header = h
	m.timers(max(m.pos.TimeMs, h.TimeMs))
	m.reap()
	m.serve()
	s := m.session(h.Origin)
	switch {
	case h.Origin == 0:
		a.Effect = true
	case h.Number == 0:
		_, start := first(ops).(*NodeStart)
		a.Effect = start && (s == nil || s.epoch != h.Epoch)
	default:
		a.Effect = s != nil && s.epoch == h.Epoch && s.last+1 == h.Number
		if a.Effect {
			s.last++
		}
	}
	if !a.Effect {
		return
	}
	a.Mine = h.Origin != 0 && m.self == Self{h.Origin, h.Epoch}
	for i, op := range ops {
		r := Result{Position: m.pos}
		if voids == nil || !voids[i] {
			m.op(h, op, &r)
		}
		if a.Mine {
			a.Results = append(a.Results, r)
		}
		m.serve()
	}
}

func first(ops []Op) Op {
	if len(ops) == 0 {
		return nil
	}
	return ops[0]
}

func (m *model) timers(t int64) {
	type due struct {
		ms   int64
		kind int
		seq  uint64
		fire func()
	}
	for ; ; m.applied.Fired++ {
		var all []due
		for _, j := range m.jobs {
			switch j.state {
			case "delayed":
				all = append(all, due{j.due, 1, j.seq, func() { m.set(j, "ready") }})
			case "leased":
				all = append(all, due{j.due, 2, j.seq, func() { m.leaseOver(j) }})
			case "dead":
				all = append(all, due{j.due, 4, j.seq, func() { m.expire(j) }})
			}
			if j.expires != 0 {
				all = append(all, due{j.expires, 3, j.seq, func() { m.expire(j) }})
			}
			if j.queue.doomed {
				for i := range all {
					if all[i].seq == j.seq {
						all[i].fire = func() { m.reapJob(j) }
					}
				}
			}
		}
		for _, w := range m.waiters {
			all = append(all, due{w.deadline, 5, w.seq, func() { m.unpark(w) }})
		}
		for _, q := range m.queues {
			if q.timer != 0 {
				all = append(all, due{q.timer, 6, uint64(q.number), func() { m.idleTimer(q) }})
			}
		}
		slices.SortFunc(all, func(a, b due) int {
			return cmp.Or(cmp.Compare(a.ms, b.ms), cmp.Compare(a.kind, b.kind), cmp.Compare(a.seq, b.seq))
		})
		if len(all) == 0 || all[0].ms > t {
			m.pos.TimeMs = t
			return
		}
		if m.applied.Fired == m.timersMax {
			m.pos.TimeMs = all[0].ms - 1
			return
		}
		m.pos.TimeMs = all[0].ms
		all[0].fire()
	}
}

func (m *model) reapJob(j *mJob) {
	m.drop(j)
	if m.count(j.queue) == 0 {
		m.remove(j.queue)
	}
}

func (m *model) reap() {
	budget := m.timersMax - m.applied.Fired
	for budget > 0 {
		i := slices.IndexFunc(m.queues, func(q *mQueue) bool { return q.doomed })
		if i < 0 {
			return
		}
		q := m.queues[i]
		list := m.in(q, "ready")
		var rest []*mJob
		for _, s := range []string{"delayed", "leased", "held", "dead"} {
			rest = append(rest, m.in(q, s)...)
		}
		slices.SortFunc(rest, func(a, b *mJob) int { return cmp.Compare(a.seq, b.seq) })
		list = append(list, rest...)
		for ; budget > 0 && len(list) > 0; budget-- {
			m.reapJob(list[0])
			list = list[1:]
		}
	}
}

func (m *model) idleTimer(q *mQueue) {
	q.timer = 0
	if m.count(q) > 0 || len(m.waiting(q.name)) > 0 {
		return
	}
	if q.idle+QueueIdleMs > m.pos.TimeMs {
		q.timer = q.idle + QueueIdleMs
		return
	}
	m.remove(q)
}

func (m *model) set(j *mJob, state string) {
	j.state = state
	j.due = 0
	j.last = m.pos.Index
}

func (m *model) setDue(j *mJob, state string, due int64) {
	m.set(j, state)
	j.due = due
}

func (m *model) expire(j *mJob) {
	j.queue.Expired++
	m.drop(j)
	m.remember(j.key, false)
	m.tidy(j.queue)
}

func (m *model) dead(j *mJob, reason string) {
	j.queue.DeadTotal++
	j.reason = reason
	m.setDue(j, "dead", m.pos.TimeMs+DeadTTLMs)
}

// failed counts a failure; true: that was the last.
func (m *model) failed(j *mJob) bool {
	j.fails++
	j.queue.Failed++
	limit := j.maxFails
	if limit == 0 {
		limit = MaxFailuresDefault
	}
	return limit > 0 && j.fails >= uint32(limit)
}

func (m *model) leaseOver(j *mJob) {
	last := m.failed(j)
	if j.amo {
		m.set(j, "held")
	} else if last {
		m.dead(j, "max_failures")
	} else {
		m.set(j, "ready")
	}
}

func (m *model) unpark(w *mWaiter) {
	away := m.session(w.node).away
	m.waiters = slices.DeleteFunc(m.waiters, func(e *mWaiter) bool { return e == w })
	if away {
		return
	}
	for _, name := range w.queues {
		if q := m.find(name); q != nil {
			m.tidy(q)
		}
	}
}

// serve gives the oldest waiter for whom something is ready what it can take,
// until there is none.
func (m *model) serve() {
	for {
		i := slices.IndexFunc(m.waiters, func(w *mWaiter) bool {
			return !m.session(w.node).away && m.anyReady(w.queues)
		})
		if i < 0 {
			return
		}
		w := m.waiters[i]
		m.unpark(w)
		jobs := m.hand(w.epoch, w.request, w.queues, w.max, w.lease, w.consumer)
		if m.self == (Self{w.node, w.epoch}) {
			m.applied.Handouts = append(m.applied.Handouts, Handout{w.request, Result{Position: m.pos, Jobs: jobs}})
		}
	}
}

func (m *model) anyReady(names []string) bool {
	for _, name := range names {
		if q := m.find(name); q != nil && len(m.in(q, "ready")) > 0 {
			return true
		}
	}
	return false
}

func (m *model) hand(epoch, request uint64, names []string, limit int, lease int64, consumer string) (jobs []Delivered) {
	for _, name := range names {
		q := m.find(name)
		if q == nil {
			continue
		}
		for _, j := range m.in(q, "ready") {
			if len(jobs) == limit {
				return jobs
			}
			j.held = lease
			if j.held <= 0 {
				j.held = j.lease
			}
			if j.held <= 0 {
				j.held = LeaseDefault
			}
			j.held = min(j.held, LeaseMaxMs)
			j.grant++
			j.deliveries++
			j.tag, j.tagged = requestTag(epoch, request), true
			j.fence = m.pos.Index
			j.consumer = consumer
			m.setDue(j, "leased", m.pos.TimeMs+j.held)
			q.Delivered++
			jobs = append(jobs, j.delivered())
		}
	}
	return jobs
}

func (j *mJob) id() ID {
	ttl := int64(0)
	if j.expires != 0 {
		ttl = j.expires - j.enqueued
	}
	return ID{j.key, j.node, ttlMinutes(ttl, j.amo)}
}

func (j *mJob) delivered() Delivered {
	return Delivered{
		ID: j.id(), Grant: j.grant, Tag: j.tag, Queue: j.queue.name, Body: j.body, Headers: j.headers, Priority: j.prio,
		Deliveries: j.deliveries, Failures: j.fails, EnqueuedMs: j.enqueued, LeaseUntil: j.due, ExpiresMs: j.expires,
		Fence: j.fence, LastError: j.err,
	}
}

func (m *model) op(h BatchHeader, op Op, r *Result) {
	switch {
	case h.Origin == 0 && op.Kind() != KindNodeAway, h.Origin != 0 && op.Kind() == KindNodeAway,
		h.Origin != 0 && (h.Number == 0) != (op.Kind() == KindNodeStart):
		r.Code = CodeInvalidRequest
		return
	}
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
		m.enqueue(h, op, r)
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
	}
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
		if s.epoch == epoch || slices.Contains(s.past, epoch) {
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
		if s.past = append(s.past, s.epoch); len(s.past) > EpochsKept {
			s.past = s.past[1:]
		}
	}
	s.epoch, s.last, s.away, s.start = h.Epoch, 0, false, *op
	return CodeOK
}

func (m *model) enqueue(h BatchHeader, op *Enqueue, r *Result) {
	for i, n := range op.Jobs {
		m.seq++
		q := m.open(n.Queue)
		q.made = true
		q.Enqueued++
		now := m.pos.TimeMs
		j := &mJob{
			key: Key{h.Epoch, op.First + uint64(i)}, queue: q, seq: m.seq, prio: n.Priority, state: "ready", amo: n.AtMostOnce,
			enqueued: now, lease: n.LeaseMs, last: m.pos.Index, maxFails: n.MaxFailures, node: uint32(h.Origin >> 32),
			body: string(n.Body), headers: n.Headers,
		}
		ttl := n.TTLMs
		if ttl == 0 && n.AtMostOnce {
			ttl = AtMostOnceTTLMs
		}
		if ttl != 0 {
			j.expires = now + ttl
		}
		if n.DelayMs > 0 {
			m.setDue(j, "delayed", now+n.DelayMs)
		} else if n.AtMs > now {
			m.setDue(j, "delayed", n.AtMs)
		}
		m.jobs = append(m.jobs, j)
		r.Items = append(r.Items, ItemResult{ID: j.id()})
	}
}

func (m *model) dequeue(h BatchHeader, op *Dequeue, r *Result) {
	limit := min(max(int(op.Max), 1), BatchItemsMax)
	if m.anyReady(op.Queues) {
		r.Jobs = m.hand(h.Epoch, op.Request, op.Queues, limit, op.LeaseMs, op.Consumer)
		return
	}
	if len(op.Queues) == 0 {
		r.Code = CodeInvalidRequest
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
	m.seq++
	w := &mWaiter{
		seq: m.seq, node: h.Origin, epoch: h.Epoch, request: op.Request, deadline: m.pos.TimeMs + op.WaitMs,
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
	r.Parked = true
}

func (m *model) items(items []Item, r *Result, one func(Item, *ItemResult)) {
	for _, it := range items {
		res := ItemResult{ID: ID{Key: it.Key}}
		one(it, &res)
		r.Items = append(r.Items, res)
	}
}

func (j *mJob) proven(it Item) bool {
	return j.tagged && j.tag == it.Tag && j.grant == it.Grant && j.grant > 0
}

// holder returns the job if the item's lease of it lives.
func (m *model) holder(it Item, res *ItemResult) *mJob {
	j := m.job(it.Key)
	if j == nil {
		res.Code = m.goneCode(it.Key)
		if res.Code == CodeOK {
			res.Code = CodeLeaseLost
		}
		return nil
	}
	if j.state != "leased" || !it.ByID && !j.proven(it) {
		res.Code = CodeLeaseLost
		return nil
	}
	res.ID = j.id()
	return j
}

func (m *model) ack(it Item, res *ItemResult) {
	j := m.job(it.Key)
	if j == nil {
		res.Code = m.goneCode(it.Key)
		res.Already = res.Code == CodeOK
		return
	}
	res.ID = j.id()
	if !it.ByID {
		if !j.proven(it) {
			res.Code = CodeLeaseLost
			return
		}
		res.Late = j.state != "leased"
	}
	j.queue.Acked++
	m.drop(j)
	m.remember(j.key, true)
	m.tidy(j.queue)
}

func (m *model) nack(it Item, res *ItemResult) {
	j := m.holder(it, res)
	if j == nil {
		return
	}
	if it.Error != "" {
		j.err = it.Error
	}
	j.tagged = false
	last := m.failed(j)
	res.Dead = j.amo || last
	if j.amo {
		m.dead(j, "at_most_once")
	} else if last {
		m.dead(j, "max_failures")
	} else if it.DelayMs > 0 {
		m.setDue(j, "delayed", m.pos.TimeMs+it.DelayMs)
	} else {
		m.set(j, "ready")
	}
}

func (m *model) release(it Item, res *ItemResult) {
	j := m.holder(it, res)
	if j == nil {
		return
	}
	if j.amo {
		res.Code = CodeAtMostOnce
		return
	}
	j.tagged = false
	m.set(j, "ready")
}

func (m *model) extend(it Item, res *ItemResult) {
	j := m.holder(it, res)
	if j == nil {
		return
	}
	if j.expires != 0 && m.pos.TimeMs >= j.enqueued+(j.expires-j.enqueued)/2 {
		res.Code = CodeTooLate
		return
	}
	if it.LeaseMs > 0 {
		j.held = min(it.LeaseMs, LeaseMaxMs)
	}
	m.setDue(j, "leased", m.pos.TimeMs+j.held)
	res.LeaseUntil = j.due
}

func (m *model) giveBack(it Item, res *ItemResult) {
	j := m.job(it.Key)
	if j == nil {
		m.holder(it, res)
		return
	}
	res.ID = j.id()
	if !j.proven(it) || j.state != "leased" && j.state != "held" {
		res.Code = CodeLeaseLost
		return
	}
	j.tagged = false
	j.deliveries--
	m.set(j, "ready")
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
	if n == 0 {
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

func (m *model) queueInfo(q *mQueue) QueueInfo {
	info := q.QueueInfo
	info.Queue = q.name
	info.Ready, info.Delayed, info.Leased = len(m.in(q, "ready")), len(m.in(q, "delayed")), len(m.in(q, "leased"))
	info.Held, info.Dead = len(m.in(q, "held")), len(m.in(q, "dead"))
	info.Waiters = len(m.waiting(q.name))
	oldest := uint64(1 << 63)
	for _, j := range m.in(q, "ready") {
		if j.seq < oldest {
			oldest, info.OldestReadyMs = j.seq, j.enqueued
		}
	}
	return info
}

func (m *model) infos() (all []QueueInfo, total QueueInfo) {
	total = m.gone
	for _, q := range m.queues {
		if q.doomed {
			continue
		}
		info := m.queueInfo(q)
		addCounts(&total, &info)
		total.Ready += info.Ready
		total.Delayed += info.Delayed
		total.Leased += info.Leased
		total.Held += info.Held
		total.Dead += info.Dead
		if q.made {
			all = append(all, info)
		}
	}
	total.Waiters = len(m.waiters)
	slices.SortFunc(all, func(a, b QueueInfo) int { return strings.Compare(a.Queue, b.Queue) })
	return all, total
}

func (m *model) jobInfo(k Key) (JobInfo, Code) {
	j := m.job(k)
	if j == nil {
		if c := m.goneCode(k); c == CodeJobNotFound {
			return JobInfo{}, c
		}
		return JobInfo{}, CodeJobGone
	}
	info := JobInfo{Delivered: j.delivered(), State: j.state, DeadReason: j.reason, AtMostOnce: j.amo, LastIndex: j.last}
	if j.state == "leased" {
		info.Consumer = j.consumer
	} else {
		info.Grant, info.Tag, info.LeaseUntil = 0, 0, 0
	}
	if j.state == "delayed" {
		info.DeliverMs = j.due
	}
	return info, CodeOK
}

func (m *model) nextDue() (ms int64, ok bool) {
	if slices.ContainsFunc(m.queues, func(q *mQueue) bool { return q.doomed }) {
		return m.pos.TimeMs, true
	}
	for _, j := range m.jobs {
		for _, t := range []int64{j.due, j.expires} {
			if t != 0 && (!ok || t < ms) {
				ms, ok = t, true
			}
		}
	}
	return ms, ok
}
