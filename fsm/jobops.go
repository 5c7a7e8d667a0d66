package fsm

// What is done to jobs by name, whoever holds them.

// byKey runs one of these on each of the keys.
func (m *Machine) byKey(keys []Key, one func(*Machine, *queue, jobItem, *ItemResult)) Code {
	r := &m.run
	if r.result != nil {
		r.result.Items = r.itemSlab(len(keys))
	}
	for _, k := range keys {
		var res ItemResult
		res.ID.Key = k
		if it, q := m.find(k); q == nil {
			if res.Code = m.gone(k); res.Code == CodeOK {
				res.Code = CodeJobGone
			}
		} else {
			res.ID = it.id(k)
			q = m.ownQueue(q)
			m.ownJob(&it)
			one(m, q, it, &res)
		}
		m.noteItem(&res)
		if r.result != nil {
			r.result.Items = append(r.result.Items, res)
		}
	}
	return CodeOK
}

func (m *Machine) requeue(op *Requeue) Code {
	from, nack := op.From, op.Nack
	return m.byKey(op.Keys, func(m *Machine, q *queue, it jobItem, res *ItemResult) {
		switch {
		case from != 0 && from&(1<<it.state) == 0:
			res.Already = true
		case it.flags&flagAtMostOnce != 0 && it.deliveries > 0:
			res.Code = CodeAtMostOnce
		case it.state == stateReady || it.heldBack() && q.set().pausedIn:
			res.Already = true
		case it.state == stateDead:
			if holder, ok := m.revive(q, it, ""); !ok {
				res.Code, res.ID = CodeNotUnique, holder
			}
		default:
			it.flags &^= flagTag
			if nack {
				m.dependOnSettings(q)
				m.noteFailure(q, it.job, "", 1)
				if m.fail(q, it.job) {
					res.Dead = true
					m.bury(q, it, reasonMaxFailures)
					return
				}
			}
			m.toReady(q, it)
		}
	})
}

func (m *Machine) hold(op *Hold) Code {
	from, forMs := op.From, op.ForMs
	return m.byKey(op.Keys, func(m *Machine, q *queue, it jobItem, res *ItemResult) {
		switch {
		case from != 0 && from&(1<<it.state) == 0:
			res.Already = true
		case it.state == stateDead:
			res.Code = CodeJobGone
		case forMs > 0 && it.flags&flagAtMostOnce != 0 && it.deliveries > 0:
			res.Code = CodeAtMostOnce
		case forMs > 0:
			it.flags &^= flagTag
			m.move(q, it, stateDelayed, m.now+min(forMs, DelayMaxMs))
			res.LeaseUntil = it.dueMs
		case it.state == stateHeld:
			res.Already = true
		default:
			it.flags &^= flagTag
			m.move(q, it, stateHeld, 0)
		}
	})
}

func cancelJob(m *Machine, q *queue, it jobItem, res *ItemResult) {
	switch it.state {
	case stateDead:
		res.Code = CodeJobGone
	case stateLeased:
		it.flags |= flagCancel
		it.lastIndex = m.index
		res.Cancel = true
	default:
		deleteJob(m, q, it, res)
	}
}

func deleteJob(m *Machine, q *queue, it jobItem, _ *ItemResult) {
	m.drop(q, it)
	m.remember(it.key, tombAcked)
	m.rested(q)
}

func withdrawJob(m *Machine, q *queue, it jobItem, res *ItemResult) {
	if it.deliveries > 0 {
		res.Code = CodeTooLate
		return
	}
	deleteJob(m, q, it, res)
}
