package respapi

import (
	"raftq/fsm"
)

// read looks at the machine, linearizably.
func (c *session) read(f func(m *fsm.Machine)) (fsm.Seen, error) {
	if c.flush() != nil {
		return fsm.Seen{}, errLeaving // nobody reads it
	}
	return c.s.replica.Read(fsm.ReadHow{Strong: true, TimeoutMs: timeoutDefault.Milliseconds()}, f)
}

// show is SHOW id.
func show(c *session, args [][]byte) {
	id, known, err := jobID(args[1])
	switch {
	case err != nil:
		c.fail(err)
		return
	case !known:
		c.nilBulk()
		return
	}
	var job fsm.JobInfo
	var code fsm.Code
	seen, err := c.read(func(m *fsm.Machine) { job, code = m.Job(id.Key) })
	switch {
	case err != nil:
		c.fail(err)
	case code != fsm.CodeOK:
		c.nilBulk()
	default:
		c.job(&job, seen.NowMs)
	}
}

// stateName is a job's state in Disque's words. A dead job has none there.
func stateName(state string) string {
	switch state {
	case "ready":
		return "queued"
	case "dead":
		return "dead"
	}
	return "active"
}

// parseState reads a state in Disque's words, or in ours. Jobs that wait for
// copies, and acked ones, are never seen.
func parseState(b []byte) (fsm.StateSet, bool) {
	switch {
	case is(b, "active"):
		return fsm.StateDelayed | fsm.StateLeased | fsm.StateHeld, true
	case is(b, "queued"):
		return fsm.StateReady, true
	case is(b, "wait-repl"), is(b, "acked"):
		return 0, true
	}
	return fsm.ParseState(string(b))
}

// job appends what SHOW and JSCAN REPLY all show: 15 names and values.
func (c *session) job(j *fsm.JobInfo, nowMs int64) {
	copies := c.s.members.copies()
	if j.AtMostOnce {
		copies = 1
	}
	ttl := int64(-1) // none, as only jobs of other doors have it
	if j.ExpiresMs > 0 {
		ttl = whole(j.ExpiresMs - nowMs)
	}
	c.array(30)
	c.bulk("id")
	c.id(j.ID)
	c.bulk("queue")
	c.bulk(j.Queue)
	c.bulk("state")
	c.bulk(stateName(j.State))
	c.bulk("repl")
	c.integer(copies)
	c.bulk("ttl")
	c.integer(ttl)
	c.bulk("ctime")
	c.integer(j.EnqueuedMs * 1_000_000)
	c.bulk("delay")
	if j.State == "delayed" {
		c.integer(whole(j.DeliverMs - j.EnqueuedMs))
	} else {
		c.integer(0)
	}
	c.bulk("retry")
	if j.AtMostOnce {
		c.integer(0)
	} else {
		c.integer(whole(leaseOf(j)))
	}
	c.bulk("nacks")
	c.integer(int64(j.Nacks))
	c.bulk("additional-deliveries")
	c.integer(additional(j))
	c.bulk("nodes-delivered")
	nodes := c.s.members.get().Nodes
	c.array(len(nodes))
	for _, n := range nodes {
		c.bulk(nodeName(n.ID))
	}
	c.bulk("nodes-confirmed")
	c.array(0)
	requeue := requeueMs(j, nowMs)
	c.bulk("next-requeue-within")
	c.msOrNil(requeue)
	c.bulk("next-awake-within")
	if j.ExpiresMs > 0 && (requeue < 0 || j.ExpiresMs-nowMs < requeue) {
		requeue = max(0, j.ExpiresMs-nowMs)
	}
	c.msOrNil(requeue)
	c.bulk("body")
	c.bulk(j.Body)
}

func (c *session) msOrNil(ms int64) {
	if ms < 0 {
		c.nilBulk()
	} else {
		c.integer(ms)
	}
}

func leaseOf(j *fsm.JobInfo) int64 {
	if j.JobLeaseMs > 0 {
		return j.JobLeaseMs
	}
	if j.HeldMs > 0 {
		return j.HeldMs
	}
	return fsm.LeaseDefault
}

// requeueMs is when the job is put into its queue again: when its lease is over,
// its delay is, or, of a queued one, a lease that began now would be. -1 = never
// by itself.
func requeueMs(j *fsm.JobInfo, nowMs int64) int64 {
	switch {
	case j.State == "delayed":
		return max(0, j.DeliverMs-nowMs)
	case j.AtMostOnce:
		return -1
	case j.State == "leased":
		return max(0, j.LeaseUntil-nowMs)
	case j.State == "ready":
		return leaseOf(j)
	}
	return -1
}

// additional is how often the job was queued again without a NACK. A hand-out
// that goes on has not been.
func additional(j *fsm.JobInfo) int64 {
	n := int64(j.Deliveries) - int64(j.Nacks)
	if j.State == "leased" || j.State == "delayed" || j.AtMostOnce {
		n--
	}
	return max(0, n)
}
