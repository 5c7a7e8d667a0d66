package fsm

import "strings"

// settle runs one of the ops that name jobs by item.
func (m *Machine) settle(items []Item, one func(*Machine, *Item, *ItemResult)) Code {
	r := &m.run
	if r.result != nil {
		r.result.Items = r.itemSlab(len(items))
	}
	for i := range items {
		m.settleItem(&items[i], one)
	}
	return CodeOK
}

func (m *Machine) settleItem(item *Item, one func(*Machine, *Item, *ItemResult)) {
	var res ItemResult
	res.ID.Key = item.Key
	one(m, item, &res)
	m.noteItem(&res)
	if r := m.run.result; r != nil {
		r.Items = append(r.Items, res)
	}
}

func (m *Machine) settleMixed(items []SettleItem) Code {
	if r := m.run.result; r != nil {
		r.Items = m.run.itemSlab(len(items))
	}
	for i := range items {
		m.settleItem(&items[i].Item, verbs[items[i].Verb])
	}
	return CodeOK
}

var verbs = [verbEnd]func(*Machine, *Item, *ItemResult){
	VerbAck: ackItem, VerbNack: nackItem, VerbRelease: releaseItem, VerbReject: rejectItem, VerbExtend: extendItem,
}

// leased finds the job that an item names if its lease lives and is the item's;
// else res says why not.
func (m *Machine) leased(item *Item, res *ItemResult) (it jobItem, q *queue) {
	it, q = m.find(item.Key)
	switch {
	case q == nil:
		if res.Code = m.gone(item.Key); res.Code == CodeOK {
			res.Code = CodeLeaseLost // acked before
		}
		return it, nil
	case it.state != stateLeased || !item.ByID && !it.holds(item):
		res.Code = CodeLeaseLost
		return it, nil
	}
	res.ID = it.id(item.Key)
	m.depend(it)
	q = m.ownQueue(q)
	if seeded != "changed-under-a-copy" {
		m.ownJob(&it)
	}
	return it, q
}

func ackItem(m *Machine, item *Item, res *ItemResult) {
	it, q := m.find(item.Key)
	if q == nil {
		res.Code = m.gone(item.Key)
		res.Already = res.Code == CodeOK
		return
	}
	res.ID = it.id(item.Key)
	switch {
	case item.ByID:
	case !it.holds(item):
		res.Code = CodeLeaseLost
		return
	case it.state != stateLeased:
		res.Late = true
		if seeded == "late-ack-forgotten" {
			return
		}
	}
	m.depend(it)
	q = m.ownQueue(q)
	q.acked++
	m.totals.acked++
	m.drop(q, it)
	m.remember(it.key, tombAcked)
	m.rested(q)
}

func nackItem(m *Machine, item *Item, res *ItemResult) {
	it, q := m.leased(item, res)
	if q == nil {
		return
	}
	m.dependOnSettings(q)
	m.noteFailure(q, it.job, item.Error, 1)
	it.flags &^= flagTag
	dead := m.fail(q, it.job)
	delayMs := item.DelayMs
	if delayMs < 0 {
		delayMs = q.set().config.backoff(it.key, it.failures)
	}
	switch {
	case it.flags&flagAtMostOnce != 0 && seeded != "at-most-once-after-nack":
		res.Dead = true
		m.bury(q, it, reasonAtMostOnce)
	case dead:
		res.Dead = true
		m.bury(q, it, reasonMaxFailures)
	case delayMs > 0:
		m.move(q, it, stateDelayed, m.now+min(delayMs, DelayMaxMs))
	case seeded == "nack-to-tail" && it.expiresMs == 0:
		m.take(q, it)
		it.seq, it.dueMs = m.nextSeq(), 0
		m.place(q, it, stateReady)
	default:
		m.toReady(q, it)
	}
}

// noteFailure keeps what the holder of an owned job said of it.
func (m *Machine) noteFailure(q *queue, j *job, text string, nacks uint32) {
	if m.version < 2 {
		nacks = 0
	}
	if text == "" && nacks == 0 {
		return
	}
	r := j.getRare()
	if text != "" {
		r.lastError = strings.Clone(text)
	}
	h := r.past()
	h.nacks += nacks
	r.setPast(h)
	m.setRare(q, j, r)
}

func rejectItem(m *Machine, item *Item, res *ItemResult) {
	it, q := m.leased(item, res)
	if q == nil {
		return
	}
	m.dependOnSettings(q)
	m.noteFailure(q, it.job, item.Error, 0)
	it.flags &^= flagTag
	res.Dead = true
	reason := uint8(reasonRejected)
	if it.flags&flagAtMostOnce != 0 {
		reason = reasonAtMostOnce
	}
	m.bury(q, it, reason)
}

func releaseItem(m *Machine, item *Item, res *ItemResult) {
	it, q := m.leased(item, res)
	if q == nil {
		return
	}
	if it.flags&flagAtMostOnce != 0 {
		res.Code = CodeAtMostOnce
		return
	}
	it.flags &^= flagTag
	m.toReady(q, it)
}

// pastHalf tells whether half of the job's TTL is over: then no lease is extended.
func (m *Machine) pastHalf(j *job) bool {
	return j.expiresMs != 0 && m.now >= j.enqueuedMs+(j.expiresMs-j.enqueuedMs)/2
}

func extendItem(m *Machine, item *Item, res *ItemResult) {
	if seeded == "extend-resurrects" {
		if it, q := m.find(item.Key); q != nil && it.state == stateReady && it.holds(item) {
			m.ownJob(&it)
			m.move(m.ownQueue(q), it, stateLeased, m.now) // and on, as if nothing had happened
		}
	}
	it, q := m.leased(item, res)
	if q == nil {
		return
	}
	if m.pastHalf(it.job) {
		res.Code = CodeTooLate
		return
	}
	leaseMs := item.LeaseMs
	if leaseMs <= 0 {
		leaseMs = int64(it.heldMs)
	}
	leaseMs = min(leaseMs, LeaseMaxMs)
	it.heldMs = uint32(leaseMs)
	m.extend(it, m.now+leaseMs)
	res.LeaseUntil = it.dueMs
	res.Cancel = it.flags&flagCancel != 0
}

// giveBackItem undoes a hand-out that reached nobody. For at-most-once jobs this
// works after the end of the lease as well: they were not delivered, unless the same
// attempt came again before that and another request was answered with them.
func giveBackItem(m *Machine, item *Item, res *ItemResult) {
	it, q := m.find(item.Key)
	if q == nil {
		if res.Code = m.gone(item.Key); res.Code == CodeOK {
			res.Code = CodeLeaseLost
		}
		return
	}
	res.ID = it.id(item.Key)
	if !it.holds(item) || it.state != stateLeased && it.state != stateHeld || it.heldOnce() && it.heldMs == heldByOthers {
		res.Code = CodeLeaseLost
		return
	}
	q = m.ownQueue(q)
	m.ownJob(&it)
	if m.shared(it) {
		res.Code = CodeLeaseLost
		return
	}
	it.flags &^= flagTag
	if seeded != "give-back-counted" {
		it.deliveries--
	}
	m.toReady(q, it)
}
