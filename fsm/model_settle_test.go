package fsm

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
	m.depends = max(m.depends, j.last)
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
	m.depends = max(m.depends, j.last)
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
	m.depends = max(m.depends, j.queue.changed)
	if m.version >= 2 {
		j.nacks++
	}
	j.tagged = false
	last := m.failed(j)
	delay := it.DelayMs
	if delay < 0 {
		delay = backoffOf(&j.queue.Config, j.key, j.fails)
	}
	res.Dead = j.amo || last
	if j.amo {
		m.dead(j, "at_most_once")
	} else if last {
		m.dead(j, "max_failures")
	} else if delay > 0 {
		m.setDue(j, "delayed", m.pos.TimeMs+delay)
	} else {
		m.ready(j)
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
	m.ready(j)
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
	res.Cancel = j.cancel
}

func (m *model) giveBack(it Item, res *ItemResult) {
	j := m.job(it.Key)
	if j == nil {
		m.holder(it, res)
		return
	}
	res.ID = j.id()
	if !j.proven(it) || j.state != "leased" && (j.state != "held" || j.held == 0) {
		res.Code = CodeLeaseLost
		return
	}
	for _, a := range m.attempts {
		for _, g := range a.jobs {
			if g.job == j && g.live(m) {
				if g.holders--; g.holders > 0 {
					res.Code = CodeLeaseLost
					return
				}
			}
		}
	}
	j.tagged = false
	j.deliveries--
	m.ready(j)
}
