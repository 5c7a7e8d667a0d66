package raftnode

import (
	"raftq/fsm"
)

// readDone takes an answered read.
func (c *checker) readDone(n *simNode, r *read) {
	w := c.w
	o := n.reading[r]
	if o == nil {
		w.failf("%s answers a read that it does not have", n.name)
	}
	delete(n.reading, r)
	w.note('r', uint64(o.id), r.pos.Index)
	if r.err != nil {
		c.finish(o, refused)
		return
	}
	if !o.strong {
		o.minIndex = max(r.how.MinIndex, c.fastAt[n])
		c.fastAt[n] = r.pos.Index
	}
	e := c.position(o, r.pos)
	if r.how.Age && r.age >= 0 {
		c.checkAge(o, r)
	}
	if o.messages != e.messages {
		w.failf("%v sees %d messages at index %d, the log's replay has %d", o, o.messages, r.pos.Index, e.messages)
	}
	for k := range e.counts {
		if e.counts[k] != o.counts[k] {
			w.failf("%v sees %+v at index %d, the log's replay has %+v", o, o.counts[k], r.pos.Index, e.counts[k])
		}
		if o.counts[k].Ready < e.plain[k] {
			w.failf("%v sees %d ready jobs in %s at index %d, at least %d are", o, o.counts[k].Ready, c.queues[k], r.pos.Index, e.plain[k])
		}
	}
	c.finish(o, answeredOK)
}

func (c *simClient) read(n *simNode, timeout int64) {
	o := c.op(opRead)
	o.client, o.strong = c.id, c.w.clientRand.IntN(4) > 0
	minIndex := uint64(0)
	if c.w.clientRand.IntN(4) == 0 {
		minIndex = c.w.check.highest
	}
	c.sendRead(o, n, minIndex, timeout)
}

func (c *simClient) sendRead(o *simOp, n *simNode, minIndex uint64, timeout int64) {
	o.node, o.life = n, n.life
	how := fsm.ReadHow{Strong: o.strong, MinIndex: minIndex, TimeoutMs: timeout / 1e6}
	if !o.strong && c.w.clientRand.IntN(2) == 0 {
		how.Age = true
		if c.w.clientRand.IntN(2) == 0 {
			how.MaxStaleMs = between(c.w.clientRand, 100, 3000)
		}
	}
	o.read = &read{how: how, done: make(chan struct{}, 1)}
	o.read.f = func(m *fsm.Machine) {
		o.counts = nil
		for _, name := range c.w.check.queues {
			q, _ := m.Queue(name)
			o.counts = append(o.counts, q)
		}
		t, _ := m.Topic(sideTopic)
		o.messages = t.Next
	}
	if o.ended == nil {
		o.ended = func(*simOp) { c.soon() }
	}
	n.reading[o.read] = o
	n.post(readAsked{o.read})
}
