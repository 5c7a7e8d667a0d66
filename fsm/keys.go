package fsm

import "strings"

// A queueKey is what a dedup id or a unique key stands for within one queue. The
// tree of keys holds both, by queue number: what a queue is deleted with goes with
// its number. It never changes: it is replaced.
//
// A dedup id lives until untilMs, whatever becomes of its job, and longer than a
// queue that goes because it is idle: the queue then stays behind the scenes, not
// made, until its last dedup id is over. A unique key lives as long as its holder
// is not done, and needs no timer.
type queueKey struct {
	text    string
	id      ID     // of the job that it stands for
	index   uint64 // of the entry that set it; 0 in a restored machine: committed
	untilMs int64  // dedup only
	seq     uint64 // dedup only: places its timer
	queue   uint32
	kind    uint8
}

const (
	keyDedup  = 1
	keyUnique = 2
)

func keyLess(a, b *queueKey) bool {
	if a.queue != b.queue {
		return a.queue < b.queue
	}
	if a.kind != b.kind {
		return a.kind < b.kind
	}
	return a.text < b.text
}

func (k *queueKey) bytes() int64 { return keyCost + int64(len(k.text)) }

// lapse is the end of something that is kept for a time. Lapses never force an
// entry.
type lapse struct {
	ms   int64
	seq  uint64
	key  *queueKey
	kept *kept // when key is nil
}

// Lapses of one ms fire in the order of their kinds, as all timers.
func lapseLess(a, b lapse) bool {
	if a.ms != b.ms || (a.key == nil) == (b.key == nil) {
		return a.ms < b.ms || a.ms == b.ms && a.seq < b.seq
	}
	return a.key != nil
}

func (l lapse) timer() timer {
	if l.key == nil {
		return timer{l.ms, timerKept.order(l.seq), Key{}}
	}
	return timer{l.ms, timerDedup.order(l.seq), Key{}}
}

func (k *queueKey) lapse() lapse { return lapse{ms: k.untilMs, seq: k.seq, key: k} }

// keyOf returns a key of a queue, nil when it is free.
func (m *Machine) keyOf(queue uint32, kind uint8, text string) *queueKey {
	k, _ := m.keys.Get(&queueKey{queue: queue, kind: kind, text: text})
	return k
}

func (m *Machine) addKey(k *queueKey) {
	m.keys.Set(k)
	m.bytes += k.bytes()
	if k.kind == keyDedup {
		m.lapses.Set(k.lapse())
	}
}

func (m *Machine) dropKey(k *queueKey) {
	m.keys.Delete(k)
	m.bytes -= k.bytes()
	if k.kind == keyDedup {
		m.lapses.Delete(k.lapse())
	}
}

// lapseOver fires a lapse.
func (m *Machine) lapseOver(l lapse) {
	if l.key == nil {
		m.dropKept(l.kept)
	} else {
		m.dedupOver(l.key)
	}
}

func (m *Machine) dedupOver(k *queueKey) {
	q := m.ownQueue(m.queueOf(k.queue))
	m.dropKey(k)
	switch {
	case !q.idle() || m.hasDedups(q):
	case q.doomed:
		m.reaped(q)
	case !q.made:
		m.removeQueue(q)
	}
}

// knownKey looks up the keys of a new job. It is true when the job is not to be
// made: because it was made before, or because another one has its unique key.
func (m *Machine) knownKey(n *NewJob, item *ItemResult) bool {
	q := m.queueNamed(n.Queue)
	if q == nil {
		return false
	}
	if n.DedupID != "" {
		if k := m.keyOf(q.number, keyDedup, n.DedupID); k != nil {
			m.run.depends = max(m.run.depends, k.index)
			item.ID, item.Duplicate = k.id, true
			m.noteKey(k.id.Key)
			return true
		}
	}
	if n.UniqueKey != "" {
		// That the key is free may be the doing of an entry that is lost yet.
		m.run.depends = max(m.run.depends, q.freed)
		if k := m.keyOf(q.number, keyUnique, n.UniqueKey); k != nil {
			m.run.depends = max(m.run.depends, k.index)
			item.ID, item.Code = k.id, CodeNotUnique
			return true
		}
	}
	return false
}

// takeKeys gives a new job of an owned queue its keys, except what others have:
// a job that was answered is made whatever they have.
func (m *Machine) takeKeys(q *queue, it jobItem, n *NewJob) {
	if n.DedupID != "" && m.keyOf(q.number, keyDedup, n.DedupID) == nil {
		ttlMs := n.DedupTTLMs
		if ttlMs <= 0 {
			ttlMs = DedupTTLMs
		}
		m.addKey(&queueKey{
			queue: q.number, kind: keyDedup, text: it.rare.more.dedupID, id: it.id(it.key), index: m.index,
			untilMs: m.now + min(max(ttlMs, DedupTTLMinMs), DedupTTLMaxMs), seq: m.nextSeq(),
		})
	}
	m.takeUnique(q, it)
}

// takeUnique gives an owned job of an owned queue its unique key, if it has one
// that is free. Otherwise it returns the id of the holder.
func (m *Machine) takeUnique(q *queue, it jobItem) (holder ID, ok bool) {
	text := it.uniqueKey()
	if text == "" {
		return ID{}, true
	}
	if k := m.keyOf(q.number, keyUnique, text); k != nil {
		return k.id, k.id.Key == it.key
	}
	it.flags |= flagUnique
	m.addKey(&queueKey{queue: q.number, kind: keyUnique, text: text, id: it.id(it.key), index: m.index})
	return ID{}, true
}

// freeUnique frees the unique key that a job of an owned queue has, because the
// job is done or leaves the queue. A job that lives on must lose flagUnique.
func (m *Machine) freeUnique(q *queue, it jobItem) {
	if it.flags&flagUnique == 0 || seeded == "unique-key-not-freed" {
		return
	}
	m.dropKey(m.keyOf(q.number, keyUnique, it.uniqueKey()))
	q.freed = m.index
}

func (j *job) uniqueKey() string {
	if j.rare == nil || j.rare.more == nil {
		return ""
	}
	return j.rare.more.uniqueKey
}

// reapKeys removes up to budget dedup ids of a deleted queue that has no jobs.
func (m *Machine) reapKeys(q *queue, budget int) (n int) {
	for ; n < budget; n++ {
		k := m.firstDedup(q)
		if k == nil {
			break
		}
		m.dropKey(k)
	}
	return n
}

// firstDedup returns a dedup id of a queue, nil when it has none.
func (m *Machine) firstDedup(q *queue) (first *queueKey) {
	m.keys.Ascend(&queueKey{queue: q.number, kind: keyDedup}, func(k *queueKey) bool {
		if k.queue == q.number && k.kind == keyDedup {
			first = k
		}
		return false
	})
	return first
}

func (m *Machine) hasDedups(q *queue) bool { return m.firstDedup(q) != nil }

// keyed tells whether a new job has a key.
func (j *NewJob) keyed() bool { return j.DedupID != "" || j.UniqueKey != "" }

// more returns what a new job says that few say; nil for most.
func (j *NewJob) more() *more {
	if j.Group == "" && j.DedupID == "" && j.UniqueKey == "" {
		return nil
	}
	return &more{group: strings.Clone(j.Group), dedupID: strings.Clone(j.DedupID), uniqueKey: strings.Clone(j.UniqueKey)}
}
