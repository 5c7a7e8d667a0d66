package fsm

import (
	"cmp"
	"encoding/binary"
	"slices"

	"github.com/cespare/xxhash/v2"
)

// The naive model's configuration, pauses, limits, dead letters and sweeps.

func (q *mQueue) keeps() bool { return q.Version != 0 || q.PausedIn || q.PausedOut }

func (j *mJob) heldBack() bool { return j.state == "delayed" && j.due == 0 }

func (j *mJob) past() bool {
	return j.deadMs != 0 || j.source != "" || j.keep != 0 || j.redriven != 0 || j.nacks != 0
}

func (j *mJob) bytes() int64 {
	n := jobCost + len(j.body)
	more := j.group != "" || j.dedup != "" || j.unique != ""
	if len(j.headers) > 0 || j.consumer != "" || j.err != "" || j.maxFails != 0 || j.reason != "" || more || j.past() {
		n += rareCost + len(j.consumer) + len(j.err)
		for _, h := range j.headers {
			n += headerCost + len(h.Name) + len(h.Value)
		}
	}
	if more {
		n += moreCost + len(j.group) + len(j.dedup) + len(j.unique)
	}
	if j.past() {
		n += historyCost + len(j.source)
	}
	return int64(n)
}

// level notes that every member, or an op, knows a feature level.
func (m *model) level(l uint32) { m.version = max(m.version, min(l, 2)) }

func (m *model) featureLevel() uint32 {
	level := uint32(1 << 31)
	for _, e := range m.members {
		if s := m.session(e.ID); s != nil {
			level = min(level, s.start.FeatureLevel)
		} else if !e.Learner {
			return 0
		}
	}
	return level
}

// ready makes a job ready, or holds it back.
func (m *model) ready(j *mJob) {
	if j.queue.PausedIn {
		m.set(j, "delayed")
	} else {
		m.set(j, "ready")
	}
}

func (m *model) pause(op *Pause) {
	over := op.UntilMs != 0 && op.UntilMs <= m.pos.TimeMs
	in, out := op.In && !over, op.Out && !over
	if q := m.find(op.Queue); (q == nil || !q.made) && !in && !out {
		return
	}
	q := m.open(op.Queue)
	m.make(q)
	m.setPause(q, in, out, op.UntilMs)
	if !in {
		for _, j := range m.heldBack(q) {
			if m.sweeps == 0 {
				return
			}
			m.sweeps--
			m.set(j, "ready")
		}
	}
}

func (m *model) setPause(q *mQueue, in, out bool, until int64) {
	q.PausedIn, q.PausedOut, q.PausedUntilMs = in, out, 0
	if in || out {
		q.PausedUntilMs = until
	}
	q.changed = m.pos.Index
	m.tidy(q)
}

func (m *model) heldBack(q *mQueue) (list []*mJob) {
	for _, j := range m.in(q, "delayed") {
		if j.heldBack() {
			list = append(list, j)
		}
	}
	slices.SortFunc(list, func(a, b *mJob) int {
		return cmp.Or(-cmp.Compare(a.prio, b.prio), cmp.Compare(a.seq, b.seq))
	})
	return list
}

// thawing returns the queues that have jobs to let go.
func (m *model) thawing() (list []*mQueue) {
	for _, q := range m.queues {
		if !q.doomed && !q.PausedIn && len(m.heldBack(q)) > 0 {
			list = append(list, q)
		}
	}
	return list
}

func (m *model) thaw(budget int) {
	for _, q := range m.thawing() {
		for _, j := range m.heldBack(q) {
			if budget--; budget < 0 {
				return
			}
			m.set(j, "ready")
		}
	}
}

// pauseForces tells whether something waits for the end of q's pause.
func (m *model) pauseForces(q *mQueue) bool {
	return q.PausedOut && len(m.in(q, "ready")) > 0 && len(m.waiting(q.name)) > 0 || q.PausedIn && len(m.heldBack(q)) > 0
}

func (m *model) configure(op *Configure, r *Result) {
	version := uint64(0)
	if q := m.find(op.Queue); q != nil {
		version = q.Version
	}
	if op.IfMatch != 0 && op.IfMatch != version || op.Create && version != 0 {
		r.Code = CodeETagMismatch
		return
	}
	q := m.open(op.Queue)
	m.make(q)
	q.Config.merge(&op.Config, op.Fields)
	q.Version = max(m.pos.Index, version+1)
	q.changed = m.pos.Index
	r.Version = q.Version
}

func (m *model) admit(n *NewJob) Code {
	q := m.find(n.Queue)
	switch {
	case q == nil:
		return CodeOK
	case n.MaxLen > 0 && len(m.in(q, "ready")) >= int(n.MaxLen):
		return CodeQueueFull
	case q.PausedIn:
		return CodeQueuePaused
	}
	job := mJob{body: string(n.Body), headers: n.Headers, maxFails: n.MaxFailures, group: n.Group, dedup: n.DedupID, unique: n.UniqueKey}
	if !m.room(q, job.bytes()) {
		return CodeQueueFull
	}
	return CodeOK
}

// room tells whether q takes a job of so many bytes, and drops old ones for it.
func (m *model) room(q *mQueue, bytes int64) bool {
	var ready []*mJob
	length, live := int64(1), bytes
	for _, j := range m.jobs {
		if j.queue == q && j.state != "dead" {
			length++
			live += j.bytes()
		}
	}
	over := func() bool {
		return q.Config.MaxLen > 0 && length > q.Config.MaxLen || q.Config.MaxBytes > 0 && live > q.Config.MaxBytes
	}
	if !over() {
		return true
	}
	if q.Config.Overflow == OverflowReject || q.Config.MaxBytes > 0 && bytes > q.Config.MaxBytes {
		return false
	}
	ready = m.in(q, "ready")
	slices.SortStableFunc(ready, func(a, b *mJob) int { return cmp.Compare(a.prio, b.prio) })
	n := 0
	for over() {
		if n == len(ready) {
			return false
		}
		if n == m.sweeps+1 {
			break
		}
		length--
		live -= ready[n].bytes()
		n++
	}
	m.sweeps -= max(n-1, 0)
	for _, j := range ready[:n] {
		m.gives(j)
	}
	return true
}

// gives drops a job whose time is over, or for which there is no room.
func (m *model) gives(j *mJob) {
	j.queue.Expired++
	m.drop(j)
	m.remember(j.key, false)
}

func backoffOf(c *QueueConfig, k Key, n uint32) int64 {
	if c.BackoffMinMs == 0 {
		return 0
	}
	top := c.BackoffMaxMs - c.BackoffMaxMs/6
	top = max(top, c.BackoffMinMs)
	ms := c.BackoffMinMs
	for i := uint32(1); i < n && ms < top; i++ {
		ms = min(2*ms, top)
	}
	var b []byte
	b = binary.BigEndian.AppendUint64(b, k.Hi)
	b = binary.BigEndian.AppendUint64(b, k.Lo)
	b = binary.BigEndian.AppendUint32(b, n)
	return min(ms+int64(xxhash.Sum64(b)%uint64(ms/5+1)), c.BackoffMaxMs)
}

// dead buries a job, in its own queue or in that of its dead letters.
func (m *model) dead(j *mJob, reason string) {
	q := j.queue
	m.free(j)
	m.end(j)
	q.DeadTotal++
	name := q.Config.DeadLetter
	to := m.find(name)
	if name == "" || name == q.name || j.source != "" || to != nil && !m.room(to, j.bytes()) {
		j.reason, j.keep = reason, 0
		if m.version >= 2 {
			j.deadMs = m.pos.TimeMs
		}
		m.setDue(j, "dead", m.pos.TimeMs+q.deadTTL())
		return
	}
	j.reason = reason
	to = m.open(name)
	m.make(to)
	j.deadMs, j.source = m.pos.TimeMs, q.name
	m.seq++
	m.unslot(j)
	j.seq, j.queue = m.seq, to
	m.settleGroup(q, j.group)
	if j.amo {
		m.setDue(j, "dead", m.pos.TimeMs+to.deadTTL())
	} else {
		j.fails, j.nacks = 0, 0
		j.keep = m.pos.TimeMs + to.deadTTL()
		m.ready(j)
	}
	m.tidy(q)
}

func (q *mQueue) deadTTL() int64 {
	if q.Config.DeadTTLMs > 0 {
		return q.Config.DeadTTLMs
	}
	return DeadTTLMs
}

// revive brings a job back, unless another one has its unique key.
func (m *model) revive(j *mJob, to string) (holder *mJob) {
	from := j.queue
	if to == "" {
		if to = j.source; to == "" {
			to = from.name
		}
	}
	if q := m.find(to); q != nil && j.unique != "" {
		if holder = m.holderOf(q, j.unique); holder != nil {
			return holder
		}
	}
	j.redriven++
	j.err, j.reason, j.source = "", "", ""
	j.deadMs, j.keep, j.nacks, j.fails = 0, 0, 0, 0
	j.tagged, j.cancel = false, false
	q := m.open(to)
	m.make(q)
	m.seq++
	m.unslot(j)
	j.seq, j.queue = m.seq, q
	if q != from {
		m.settleGroup(from, j.group)
	}
	if j.unique != "" {
		j.hasUnique, j.uniqueAt = true, m.pos.Index
	}
	m.ready(j)
	m.tidy(from)
	return nil
}

func (m *model) reject(it Item, res *ItemResult) {
	j := m.holder(it, res)
	if j == nil {
		return
	}
	m.depends = max(m.depends, j.queue.changed)
	if it.Error != "" {
		j.err = it.Error
	}
	j.tagged = false
	res.Dead = true
	if j.amo {
		m.dead(j, "at_most_once")
	} else {
		m.dead(j, "rejected")
	}
}

func (m *model) settleMixed(items []SettleItem, r *Result) {
	for _, it := range items {
		one := map[Verb]func(Item, *ItemResult){VerbAck: m.ack, VerbNack: m.nack, VerbRelease: m.release, VerbReject: m.reject, VerbExtend: m.extend}
		m.items([]Item{it.Item}, r, one[it.Verb])
	}
}

func (m *model) byKey(keys []Key, r *Result, one func(*mJob) Code) {
	m.byKeyFor(keys, r, func(j *mJob, _ *ItemResult) Code { return one(j) })
}

func (m *model) byKeyFor(keys []Key, r *Result, one func(*mJob, *ItemResult) Code) {
	for _, k := range keys {
		res := ItemResult{ID: ID{Key: k}}
		if j := m.job(k); j != nil {
			res.ID = j.id()
			leased := j.state == "leased"
			if res.Code = one(j, &res); res.Code == CodeNotUnique {
				res.ID = m.conflict
			}
			res.Cancel = leased && j.cancel && res.Code == CodeOK && m.canceling
		} else if res.Code = m.goneCode(k); res.Code == CodeOK {
			res.Code = CodeJobGone
		}
		r.Items = append(r.Items, res)
	}
}

func (m *model) requeue(op *Requeue, r *Result) {
	m.byKeyFor(op.Keys, r, func(j *mJob, res *ItemResult) Code {
		switch {
		case !j.in(op.From):
			res.Already = true
		case j.amo && j.deliveries > 0:
			return CodeAtMostOnce
		case j.state == "ready" || j.heldBack() && j.queue.PausedIn:
			res.Already = true
		case j.state == "dead":
			if holder := m.revive(j, ""); holder != nil {
				m.conflict = holder.id()
				return CodeNotUnique
			}
		case op.Nack:
			m.depends = max(m.depends, j.queue.changed)
			j.tagged = false
			j.nacks++
			if res.Dead = m.failed(j); res.Dead {
				m.dead(j, "max_failures")
			} else {
				m.ready(j)
			}
		default:
			j.tagged = false
			m.ready(j)
		}
		return CodeOK
	})
}

// in tells whether a job is in one of the states; none stands for all.
func (j *mJob) in(states StateSet) bool {
	s, _ := ParseState(j.state)
	return states == 0 || states&s != 0
}

func (m *model) hold(op *Hold, r *Result) {
	m.byKeyFor(op.Keys, r, func(j *mJob, res *ItemResult) Code {
		switch {
		case !j.in(op.From):
			res.Already = true
		case j.state == "dead":
			return CodeJobGone
		case op.ForMs > 0 && j.amo && j.deliveries > 0:
			return CodeAtMostOnce
		case op.ForMs > 0:
			j.tagged = false
			m.setDue(j, "delayed", m.pos.TimeMs+op.ForMs)
			res.LeaseUntil = m.pos.TimeMs + op.ForMs
		case j.state == "held":
			res.Already = true
		default:
			j.tagged = false
			m.set(j, "held")
		}
		return CodeOK
	})
}

func (m *model) cancel(j *mJob) Code {
	switch j.state {
	case "dead":
		return CodeJobGone
	case "leased":
		j.cancel = true
		j.last = m.pos.Index
		return CodeOK
	}
	return m.delete(j)
}

func (m *model) delete(j *mJob) Code {
	m.drop(j)
	m.remember(j.key, true)
	m.tidy(j.queue)
	return CodeOK
}

func (m *model) withdrawJob(j *mJob) Code {
	if j.deliveries > 0 {
		return CodeTooLate
	}
	return m.delete(j)
}

// sweep calls do with the first of the jobs that are not beyond upTo; it counts
// those for which do is true.
func (m *model) sweep(jobs []*mJob, upTo uint64, limit int, r *Result, do func(*mJob) bool) {
	if r.UpTo = upTo; upTo == 0 {
		r.UpTo = m.seq
	}
	slices.SortFunc(jobs, func(a, b *mJob) int { return cmp.Compare(a.seq, b.seq) })
	for _, j := range jobs {
		if j.seq > r.UpTo {
			return
		}
		if r.Count == limit {
			r.More = true
			return
		}
		if do(j) {
			r.Count++
			m.sweeps--
		}
	}
}

func (m *model) purge(op *Purge, r *Result) {
	q := m.find(op.Queue)
	if q == nil || !q.made {
		r.Code = CodeQueueNotFound
		return
	}
	m.sweep(m.list(q, op.States), op.UpTo, m.sweeps, r, func(j *mJob) bool {
		m.drop(j)
		return true
	})
	m.tidy(q)
}

func (m *model) redrive(op *Redrive, r *Result) {
	q := m.find(op.Queue)
	if q == nil || !q.made {
		r.Code = CodeQueueNotFound
		return
	}
	switch op.Reason {
	case "", "max_failures", "rejected":
	case "at_most_once":
		r.Code = CodeAtMostOnce
		return
	default:
		r.Code = CodeInvalidOption
		return
	}
	var jobs []*mJob
	for _, j := range m.list(q, StateAll&^StateLeased) {
		if (j.state == "dead" || j.keep != 0) && j.reason != "at_most_once" && (op.Reason == "" || j.reason == op.Reason) {
			jobs = append(jobs, j)
		}
	}
	limit := m.sweeps
	if op.Max > 0 {
		limit = min(limit, int(op.Max))
	}
	slices.SortFunc(jobs, func(a, b *mJob) int { return cmp.Compare(a.seq, b.seq) })
	look := jobs[:min(len(jobs), limit+m.sweepMax)]
	m.sweep(look, op.UpTo, limit, r, func(j *mJob) bool { return m.revive(j, op.To) == nil })
	if len(look) < len(jobs) && jobs[len(look)].seq <= r.UpTo {
		r.More = true
	}
	r.More = r.More && (r.Count > 0 || limit == 0)
}

func (m *model) heldBy(consumer string) (jobs []*mJob) {
	for _, j := range m.jobs {
		if j.state == "leased" && j.consumer == consumer && !j.queue.doomed && consumer != "" {
			jobs = append(jobs, j)
		}
	}
	slices.SortFunc(jobs, func(a, b *mJob) int { return cmp.Compare(a.seq, b.seq) })
	return jobs
}

func (m *model) releaseConsumer(op *ReleaseConsumer, r *Result) {
	if r.UpTo = op.UpTo; r.UpTo == 0 {
		r.UpTo = m.pos.Index
	}
	for _, j := range m.heldBy(op.Consumer) {
		if j.amo || j.fence > r.UpTo {
			continue
		}
		if m.sweeps == 0 {
			r.More = true
			return
		}
		r.Count++
		m.sweeps--
		j.tagged = false
		m.ready(j)
	}
}

// list returns the jobs of q in some states, by sequence.
func (m *model) list(q *mQueue, states StateSet) (jobs []*mJob) {
	for i, name := range stateNames {
		if states&(1<<i) != 0 {
			jobs = append(jobs, m.in(q, name)...)
		}
	}
	slices.SortFunc(jobs, func(a, b *mJob) int { return cmp.Compare(a.seq, b.seq) })
	return jobs
}
