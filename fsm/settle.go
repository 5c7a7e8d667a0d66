package fsm

import "strings"

// settle runs one of the ops that name jobs by item.
func (m *Machine) settle(items []Item, one func(*Machine, *Item, *ItemResult)) Code {
	r := &m.run
	if r.result != nil {
		r.result.Items = r.itemSlab(len(items))
	}
	for i := range items {
		var res ItemResult
		res.ID.Key = items[i].Key
		one(m, &items[i], &res)
		m.noteItem(&res)
		if r.result != nil {
			r.result.Items = append(r.result.Items, res)
		}
	}
	return CodeOK
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
	m.ownJob(&it)
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
	if item.Error != "" {
		r := it.getRare()
		r.lastError = strings.Clone(item.Error)
		m.setRare(q, it.job, r)
	}
	it.flags &^= flagTag
	dead := m.fail(q, it.job)
	switch {
	case it.flags&flagAtMostOnce != 0:
		res.Dead = true
		m.bury(q, it, reasonAtMostOnce)
	case dead:
		res.Dead = true
		m.bury(q, it, reasonMaxFailures)
	case item.DelayMs > 0:
		m.move(q, it, stateDelayed, m.now+min(item.DelayMs, DelayMaxMs))
	default:
		m.move(q, it, stateReady, 0)
	}
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
	m.move(q, it, stateReady, 0)
}

func extendItem(m *Machine, item *Item, res *ItemResult) {
	it, q := m.leased(item, res)
	if q == nil {
		return
	}
	if it.expiresMs != 0 && m.now >= it.enqueuedMs+(it.expiresMs-it.enqueuedMs)/2 {
		res.Code = CodeTooLate
		return
	}
	leaseMs := item.LeaseMs
	if leaseMs <= 0 {
		leaseMs = int64(it.heldMs)
	}
	leaseMs = min(leaseMs, LeaseMaxMs)
	it.heldMs = uint32(leaseMs)
	m.move(q, it, stateLeased, m.now+leaseMs)
	res.LeaseUntil = it.dueMs
}

// giveBackItem undoes a hand-out that reached nobody. For at-most-once jobs this
// works after the end of the lease as well: they were not delivered.
func giveBackItem(m *Machine, item *Item, res *ItemResult) {
	it, q := m.find(item.Key)
	if q == nil {
		if res.Code = m.gone(item.Key); res.Code == CodeOK {
			res.Code = CodeLeaseLost
		}
		return
	}
	res.ID = it.id(item.Key)
	if !it.holds(item) || it.state != stateLeased && it.state != stateHeld {
		res.Code = CodeLeaseLost
		return
	}
	q = m.ownQueue(q)
	m.ownJob(&it)
	it.flags &^= flagTag
	it.deliveries--
	m.move(q, it, stateReady, 0)
}
