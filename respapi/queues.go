package respapi

import (
	"raftq/fsm"
)

// qlen is QLEN queue.
func qlen(c *session, args [][]byte) {
	name, err := c.queueName(args[1])
	if err != nil {
		c.fail(err)
		return
	}
	n := 0
	_, err = c.read(func(m *fsm.Machine) {
		q, _ := m.Queue(name)
		n = q.Ready
	})
	if err != nil {
		c.fail(err)
		return
	}
	c.integer(int64(n))
}

// qstat is QSTAT queue: 10 names and values, or nil.
func qstat(c *session, args [][]byte) {
	name, err := c.queueName(args[1])
	if err != nil {
		c.fail(err)
		return
	}
	var q fsm.QueueInfo
	found := false
	seen, err := c.read(func(m *fsm.Machine) { q, found = m.Queue(name) })
	switch {
	case err != nil:
		c.fail(err)
		return
	case !found:
		c.nilArray()
		return
	}
	from, rate := c.s.imports.of(name)
	c.array(20)
	c.bulk("name")
	c.bulk(q.Queue)
	c.bulk("len")
	c.integer(int64(q.Ready))
	c.bulk("age")
	c.integer(max(0, seen.NowMs-q.CreatedMs) / 1000)
	c.bulk("idle")
	c.integer(max(0, seen.NowMs-q.UsedMs) / 1000)
	c.bulk("blocked")
	c.integer(int64(q.Waiters))
	c.bulk("import-from")
	c.array(len(from))
	for _, n := range from {
		c.bulk(c.s.nameOf(n))
	}
	c.bulk("import-rate")
	c.integer(rate)
	c.bulk("jobs-in")
	c.integer(int64(q.Enqueued))
	c.bulk("jobs-out")
	c.integer(int64(q.Delivered))
	c.bulk("pause")
	c.bulk(pauseName(q.PausedIn, q.PausedOut))
}

// nameOf is the name of the node whose jobs' ids begin so.
func (s *Server) nameOf(prefix uint32) string {
	for _, n := range s.members.get().Nodes {
		if uint32(n.ID>>32) == prefix {
			return nodeName(n.ID)
		}
	}
	return nodeName(uint64(prefix) << 32) // it left
}

// qpeek is QPEEK queue count: the oldest jobs that are queued, or, when count is
// negative, the newest.
func qpeek(c *session, args [][]byte) {
	name, err := c.queueName(args[1])
	if err != nil {
		c.fail(err)
		return
	}
	count, ok := integer(args[2])
	if !ok {
		c.fail(errNotInt)
		return
	}
	newest := count < 0
	count = min(max(count, -peekMax), peekMax)
	if newest {
		count = -count
	}
	var found []fsm.JobInfo
	bytes := 0
	var at fsm.JobCursor
	for more := count > 0; more && len(found) < int(count) && bytes < replyBytes; {
		var page []fsm.JobInfo
		var next fsm.JobCursor
		if _, err := c.read(func(m *fsm.Machine) {
			page, next, more, _ = m.QueueJobs(name, fsm.StateReady, newest, at, min(pageMax, int(count)-len(found)))
		}); err != nil {
			c.fail(err)
			return
		}
		at = next
		for i := range page {
			bytes += len(page[i].Body) + jobBytes
		}
		found = append(found, page...)
	}
	c.array(len(found))
	for i := range found {
		c.array(3)
		c.bulk(found[i].Queue)
		c.id(found[i].ID)
		c.bulk(found[i].Body)
	}
}

// pause is PAUSE queue option...: the state is set as a whole, on all nodes, with
// BCAST or without.
func pause(c *session, args [][]byte) {
	name, err := c.queueName(args[1])
	if err != nil {
		c.fail(err)
		return
	}
	op := &fsm.Pause{Queue: name}
	set := false
	for _, opt := range args[2:] {
		switch {
		case is(opt, "none"):
			op.In, op.Out, set = false, false, true
		case is(opt, "in"):
			op.In, set = true, true
		case is(opt, "out"):
			op.Out, set = true, true
		case is(opt, "all"):
			op.In, op.Out, set = true, true, true
		case is(opt, "state"), is(opt, "bcast"):
		default:
			c.fail(errSyntax)
			return
		}
	}
	if !op.In && !op.Out {
		// Neither to look nor to clear makes a queue.
		var q fsm.QueueInfo
		if _, err := c.read(func(m *fsm.Machine) { q, _ = m.Queue(name) }); err != nil {
			c.fail(err)
			return
		}
		if !set || !q.PausedIn && !q.PausedOut {
			c.status(pauseName(q.PausedIn, q.PausedOut))
			return
		}
	}
	if c.flush() != nil {
		return
	}
	res, err := c.s.replica.Do(op, false, timeoutDefault, nil)
	switch {
	case err != nil:
		c.fail(err)
	case res.Code != fsm.CodeOK:
		c.fail(ofCode(res.Code))
	default:
		c.status(pauseName(op.In, op.Out))
	}
}

func pauseName(in, out bool) string {
	switch {
	case in && out:
		return "all"
	case in:
		return "in"
	case out:
		return "out"
	}
	return "none"
}
