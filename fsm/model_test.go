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
	depends   uint64 // Result.Depends of the op at hand
	answered  bool   // the op at hand was
	pos       Position
	seq       uint64
	number    int
	jobs      []*mJob
	queues    []*mQueue // in order of number; the doomed ones too
	waiters   []*mWaiter
	sessions  []*mSession
	tombs     []mTomb
	dedups    []*mDedup
	kept      []*mKept
	attempts  []*mAttempt
	groups    []*mGroup
	members   []Member
	removed   []mRemoved
	gone      QueueInfo // what queues that are gone had counted
	timersMax int
	handMax   int
	tombsMax  int
	sweepMax  int
	sweeps    int    // jobs that the ops of this entry may still sweep
	version   uint32 // of the state: 2 once every member or an op said so
	canceling bool   // the op at hand is a cancel
	conflict  ID     // who has the unique key
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
	queueTTL, cancel         bool
	deadMs, keep             int64
	source                   string
	redriven, nacks          uint32
	node                     uint32
	body                     string
	headers                  []Header
	consumer, err, reason    string
	group, dedup, unique     string
	slot                     bool   // of its group
	since                    int64  // ready, if priorities age
	hasUnique                bool   // another answered job may have the key
	uniqueAt                 uint64 // since when it has it
}

// mAttempt is what a dequeue with an attempt id was given.
type mAttempt struct {
	id     string
	queues []string
	jobs   []*mGiven
}

type mGiven struct {
	job     *mJob
	grant   uint32
	holders int
}

// live tells whether the lease that was given lives.
func (g *mGiven) live(m *model) bool {
	return g.job != nil && m.job(g.job.key) == g.job && g.job.state == "leased" && g.job.grant == g.grant
}

// mKept is the result of an op under an idempotency key.
type mKept struct {
	key    string
	digest [16]byte
	result Result
	until  int64
	seq    uint64
	index  uint64
}

// mDedup is a dedup id of a life of a queue.
type mDedup struct {
	queue *mQueue
	text  string
	first ID
	until int64
	seq   uint64
	index uint64
}

type mQueue struct {
	name         string
	number       int
	made, doomed bool
	idle, timer  int64
	freed        uint64 // see queue.freed
	loose        uint64 // turn of the jobs without group
	changed      uint64 // index of the last change of configuration or pause
	QueueInfo           // the counts of what happened; configuration and pause
}

type mWaiter struct {
	seq, node, epoch, request uint64
	deadline, lease           int64
	max                       int
	queues                    []string
	consumer                  string
	attempt                   string
	listed                    []string // the queues as the dequeue named them
}

type mSession struct {
	node, epoch, last uint64
	away              bool
	disk              uint8
	start             NodeStart
	past              []pastEpoch
}

type mTomb struct {
	key   Key
	acked bool
}

func newModel(members []Member) *model {
	return &model{pos: Position{Index: 1, Term: 1}, members: members, timersMax: TimersPerEntry, tombsMax: TombstonesMax, handMax: BatchBytesMax, sweepMax: SweepMax, version: 1}
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
	q := &mQueue{name: name, number: m.number, freed: m.pos.Index}
	m.queues = append(m.queues, q)
	return q
}

func (m *model) make(q *mQueue) {
	if !q.made && m.version >= 2 {
		q.CreatedMs, q.UsedMs = m.pos.TimeMs, m.pos.TimeMs
	}
	q.made = true
}

func (m *model) used(q *mQueue) {
	if q.CreatedMs != 0 {
		q.UsedMs = m.pos.TimeMs
	}
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
		if m.keys(q) == 0 {
			m.remove(q)
		}
		return
	}
	q.idle = m.pos.TimeMs
	if q.timer == 0 && !q.keeps() {
		q.timer = q.idle + QueueIdleMs
	}
}

// keys counts the dedup ids of q.
func (m *model) keys(q *mQueue) (n int) {
	for _, d := range m.dedups {
		if d.queue == q {
			n++
		}
	}
	return n
}

func (m *model) dropDedup(d *mDedup) {
	m.dedups = slices.DeleteFunc(m.dedups, func(e *mDedup) bool { return e == d })
	q := d.queue
	if m.keys(q) == 0 && m.count(q) == 0 && (q.doomed || !q.made && len(m.waiting(q.name)) == 0) {
		m.remove(q)
	}
}

func (m *model) remove(q *mQueue) {
	m.keepCounts(q)
	m.queues = slices.DeleteFunc(m.queues, func(e *mQueue) bool { return e == q })
}

func (m *model) keepCounts(q *mQueue) {
	addCounts(&m.gone, &q.QueueInfo)
	q.QueueInfo = QueueInfo{}
	q.changed = 0
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
	m.free(j)
	m.end(j)
	m.jobs = slices.DeleteFunc(m.jobs, func(e *mJob) bool { return e == j })
	m.unslot(j)
	m.settleGroup(j.queue, j.group)
}

// end notes the end of a job that is watched.
func (m *model) end(j *mJob) {
	if m.self.Watched[j.key] > 0 {
		m.applied.Ended = append(m.applied.Ended, j.key)
	}
}

// free frees the job's unique key.
func (m *model) free(j *mJob) {
	if j.hasUnique {
		j.hasUnique = false
		j.queue.freed = m.pos.Index
	}
}

// holderOf returns the job that has a unique key.
func (m *model) holderOf(q *mQueue, text string) *mJob {
	for _, j := range m.jobs {
		if j.queue == q && j.hasUnique && j.unique == text {
			return j
		}
	}
	return nil
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
func (m *model) apply(term uint64, h *BatchHeader, ops []Op, flags []byte, self Self) Applied {
	m.pos.Index++
	m.pos.Term = term
	m.self = self
	m.applied = Applied{}
	if h != nil {
		m.batch(*h, ops, flags)
	}
	m.applied.Position = m.pos
	return m.applied
}

func (m *model) batch(h BatchHeader, ops []Op, flags []byte) {
	m.sweeps = m.sweepMax
	a := &m.applied
	a.Header = h
	m.timers(max(m.pos.TimeMs, h.TimeMs))
	m.thaw(m.reap())
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
	a.Mine = h.Origin != 0 && m.self.Origin == h.Origin && m.self.Epoch == h.Epoch
	for i, op := range ops {
		r := Result{Position: m.pos}
		m.depends = 0
		flag := byte(0)
		if flags != nil {
			flag = flags[i]
		}
		m.answered = flag&FlagAnswered != 0
		if flag&FlagVoid == 0 {
			m.op(h, op, &r)
		}
		r.Depends = m.depends
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
				if !j.heldBack() {
					all = append(all, due{j.due, 1, j.seq, func() { m.ready(j) }})
				}
			case "leased":
				all = append(all, due{j.due, 2, j.seq, func() { m.leaseOver(j) }})
			case "dead":
				all = append(all, due{j.due, 4, j.seq, func() { m.expire(j) }})
			}
			if j.expires != 0 {
				all = append(all, due{j.expires, 3, j.seq, func() { m.expire(j) }})
			}
			if j.keep != 0 {
				all = append(all, due{j.keep, 4, j.seq, func() { m.expire(j) }})
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
		for _, d := range m.dedups {
			all = append(all, due{d.until, 7, d.seq, func() { m.dropDedup(d) }})
		}
		for _, k := range m.kept {
			all = append(all, due{k.until, 8, k.seq, func() {
				m.kept = slices.DeleteFunc(m.kept, func(e *mKept) bool { return e == k })
			}})
		}
		for _, q := range m.queues {
			if q.timer != 0 {
				all = append(all, due{q.timer, 6, uint64(q.number), func() { m.idleTimer(q) }})
			}
			if q.PausedUntilMs != 0 {
				all = append(all, due{q.PausedUntilMs, 14, uint64(q.number), func() { m.setPause(q, false, false, 0) }})
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
	if m.count(j.queue)+m.keys(j.queue) == 0 {
		m.remove(j.queue)
	}
}

func (m *model) reap() (budget int) {
	budget = m.timersMax - m.applied.Fired
	for budget > 0 {
		i := slices.IndexFunc(m.queues, func(q *mQueue) bool { return q.doomed })
		if i < 0 {
			return budget
		}
		q := m.queues[i]
		list := m.in(q, "ready")
		slices.SortStableFunc(list, func(a, b *mJob) int { return cmp.Compare(min(len(a.group), 1), min(len(b.group), 1)) })
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
		for ; budget > 0 && m.keys(q) > 0; budget-- {
			m.dropDedup(slices.MinFunc(m.dedups, func(a, b *mDedup) int {
				if (a.queue == q) != (b.queue == q) {
					return map[bool]int{true: -1, false: 1}[a.queue == q]
				}
				return strings.Compare(a.text, b.text)
			}))
		}
	}
	return budget
}

func (m *model) idleTimer(q *mQueue) {
	q.timer = 0
	if m.count(q) > 0 || len(m.waiting(q.name)) > 0 || q.keeps() {
		return
	}
	if q.idle+QueueIdleMs > m.pos.TimeMs {
		q.timer = q.idle + QueueIdleMs
		return
	}
	if m.keys(q) > 0 {
		m.keepCounts(q)
		q.made = false
		q.CreatedMs, q.UsedMs = 0, 0
		return
	}
	m.remove(q)
}

func (m *model) set(j *mJob, state string) {
	if state != "leased" || j.state != "leased" {
		slot := j.slot
		m.unslot(j)
		j.slot = j.group != "" && (state == "leased" || state == "delayed" && slot)
	}
	j.state = state
	j.due, j.since = 0, 0
	if state == "ready" && j.queue.Config.AgingMs > 0 {
		j.since = m.pos.TimeMs
	}
	j.last = m.pos.Index
	m.settleGroup(j.queue, j.group)
}

func (m *model) setDue(j *mJob, state string, due int64) {
	m.set(j, state)
	j.due = due
}

func (m *model) expire(j *mJob) {
	m.gives(j)
	m.tidy(j.queue)
}

// failed counts a failure; true: that was the last.
func (m *model) failed(j *mJob) bool {
	j.fails++
	j.queue.Failed++
	limit := j.maxFails
	if limit == 0 {
		limit = j.queue.Config.MaxFailures
	}
	if limit == 0 {
		limit = MaxFailuresDefault
	}
	return limit > 0 && j.fails >= uint32(limit)
}

func (m *model) leaseOver(j *mJob) {
	last := m.failed(j)
	if j.amo {
		for _, a := range m.attempts {
			for _, g := range a.jobs {
				if g.job == j && g.live(m) && g.holders > 1 && m.featureLevel() >= 3 {
					j.held = 0 // nobody can give it back any more
				}
			}
		}
		m.set(j, "held")
	} else if last {
		m.dead(j, "max_failures")
	} else {
		m.ready(j)
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
		m.given(w.attempt, w.listed, jobs)
		if m.self.Origin == w.node && m.self.Epoch == w.epoch {
			m.applied.Handouts = append(m.applied.Handouts, Handout{w.request, Result{Position: m.pos, Jobs: jobs}})
		}
	}
}

func (m *model) anyReady(names []string) bool {
	for _, name := range names {
		if q := m.find(name); q != nil && m.next(q) != nil {
			return true
		}
	}
	return false
}

func (m *model) hand(epoch, request uint64, names []string, limit int, lease int64, consumer string) (jobs []Delivered) {
	bytes := 0
	for _, name := range names {
		q := m.find(name)
		if q == nil {
			continue
		}
		for j := m.next(q); j != nil; j = m.next(q) {
			if len(jobs) < limit {
				m.depends = max(m.depends, q.changed)
			}
			if len(jobs) == limit || bytes > 0 && bytes+len(j.body) > m.handMax {
				return jobs
			}
			bytes += max(1, len(j.body))
			m.depends = max(m.depends, j.last)
			if g := m.groupOf(q, j.group); g != nil {
				m.depends = max(m.depends, g.freed)
			}
			j.held = lease
			if j.held <= 0 {
				j.held = j.lease
			}
			if j.held <= 0 {
				j.held = q.Config.LeaseMs
			}
			if j.held <= 0 {
				j.held = LeaseDefault
			}
			j.cancel = false
			j.held = min(j.held, LeaseMaxMs)
			j.grant++
			j.deliveries++
			j.tag, j.tagged = requestTag(epoch, request), true
			j.fence = m.pos.Index
			j.consumer = consumer
			m.setDue(j, "leased", m.pos.TimeMs+j.held)
			m.takeTurn(j)
			q.Delivered++
			m.used(q)
			jobs = append(jobs, j.delivered())
		}
	}
	return jobs
}

func (j *mJob) id() ID {
	ttl := int64(0)
	if j.expires != 0 && !j.queueTTL {
		ttl = j.expires - j.enqueued
	}
	return ID{j.key, j.node, ttlMinutes(ttl, j.amo)}
}

func (j *mJob) delivered() Delivered {
	return Delivered{
		ID: j.id(), Grant: j.grant, Tag: j.tag, Queue: j.queue.name, Body: j.body, Headers: j.headers, Priority: j.prio,
		Deliveries: j.deliveries, Failures: j.fails, EnqueuedMs: j.enqueued, LeaseUntil: j.due, ExpiresMs: j.expires,
		Fence: j.fence, LastError: j.err, Group: j.group, Nacks: j.nacks,
	}
}
