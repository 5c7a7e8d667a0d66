package fsm

// checkGroups counts the groups of each queue again.
func (c *checker) checkGroups() {
	m := c.m
	type count struct {
		busy, ready int
		first       groupJob
	}
	type name struct {
		queue uint32
		group string
	}
	counts := map[name]*count{}
	ready := map[uint32]int{}
	m.jobs.Scan(func(it jobItem) bool {
		group := it.group()
		c.want(it.flags&flagSlot == 0 || group != "" && (it.state == stateLeased || it.state == stateDelayed), "job %v in state %s keeps a slot of group %q", ID{Key: it.key}, stateNames[it.state], group)
		c.want(it.state != stateLeased || (it.flags&flagSlot != 0) == (group != ""), "job %v of group %q is leased without a slot", ID{Key: it.key}, group)
		if group == "" || !it.counts() {
			return true
		}
		n := counts[name{it.queue, group}]
		if n == nil {
			n = &count{}
			counts[name{it.queue, group}] = n
		}
		if it.state != stateReady {
			n.busy++
			return true
		}
		ready[it.queue]++
		if n.ready++; n.ready == 1 || it.order() < n.first.order {
			n.first = groupJob{order: it.order(), key: it.key}
		}
		return true
	})
	found := 0
	m.queues.Scan(func(number uint32, q *queue) bool {
		g := q.groups
		if g == nil {
			return true
		}
		places := 0
		g.byNumber.Scan(func(number uint32, e *group) bool {
			n := counts[name{q.number, e.name}]
			if n == nil {
				n = &count{}
			}
			found++
			listed, _ := g.byName.Get(e.name)
			c.want(e.number == number && listed == number && e.stamp <= m.stamp, "group %q of queue %q is number %d, named %d", e.name, q.name, number, listed)
			c.want(e.ready+e.busy > 0 && e.ready == n.ready && e.busy == n.busy, "group %q of queue %q: %d ready, %d busy; counted %d, %d", e.name, q.name, e.ready, e.busy, n.ready, n.busy)
			c.wantTurn(e.turn)
			if e.ready > 0 {
				places++
				c.want(e.first.order == n.first.order && e.first.key == n.first.key, "group %q of queue %q begins with another job", e.name, q.name)
				_, ok := g.firsts.Get(e.seqPlace())
				_, ok2 := g.turns.Get(e.turnPlace())
				c.want(ok && ok2, "group %q of queue %q is not in its places", e.name, q.name)
			}
			c.bytes += e.bytes()
			return true
		})
		if g.loose != 0 {
			c.wantTurn(g.loose)
		}
		c.want(g.byName.Len() == g.byNumber.Len() && g.byName.Len() > 0, "queue %q: %d groups, %d names", q.name, g.byNumber.Len(), g.byName.Len())
		c.want(g.firsts.Len() == places && g.turns.Len() == places, "queue %q: %d and %d places of %d groups", q.name, g.firsts.Len(), g.turns.Len(), places)
		c.want(g.ready == ready[number] && g.jobs.Len() == g.ready, "queue %q: %d ready jobs of groups, %d listed, counted %d", q.name, g.ready, g.jobs.Len(), ready[number])
		return true
	})
	c.want(found == len(counts), "%d groups, counted %d", found, len(counts))
}

func (c *checker) wantTurn(turn uint64) {
	c.want(!c.seqs[turn] && turn > 0 && turn <= c.m.seq, "a turn has sequence %d, the last is %d", turn, c.m.seq)
	c.seqs[turn] = true
}
