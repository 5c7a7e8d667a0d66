package respapi

import (
	"time"

	"raftq/fsm"
	"raftq/hangup"
)

// getjob is GETJOB [NOHANG] [TIMEOUT ms] [COUNT n] [WITHCOUNTERS] FROM queue ...
func getjob(c *session, args [][]byte) {
	op := &fsm.Dequeue{Max: 1, WaitMs: timeoutMax.Milliseconds()}
	nohang, counters, from := false, false, 0
	for i := 1; i < len(args) && from == 0; i++ {
		opt, last := args[i], i+1 == len(args)
		switch {
		case is(opt, "nohang"):
			nohang = true
		case is(opt, "withcounters"):
			counters = true
		case is(opt, "timeout") && !last:
			ms, err := timeoutMs(args[i+1])
			if err != nil {
				c.fail(err)
				return
			}
			if op.WaitMs = ms; ms == 0 {
				op.WaitMs = timeoutMax.Milliseconds()
			}
			i++
		case is(opt, "count") && !last:
			n, ok := integer(args[i+1])
			if !ok || n <= 0 {
				c.fail(refuse("ERR", "COUNT takes a number above 0"))
				return
			}
			op.Max = int32(min(n, fsm.BatchItemsMax))
			i++
		case is(opt, "from"):
			from = i + 1
		default:
			c.fail(errSyntax)
			return
		}
	}
	switch n := len(args) - from; {
	case from == 0 || n == 0:
		c.fail(errSyntax)
		return
	case n > fsm.QueuesMax:
		c.fail(refuse("ERR", "at most %d queues at once, these are %d", fsm.QueuesMax, n))
		return
	}
	for _, a := range args[from:] {
		name, err := c.queueName(a)
		if err != nil {
			c.fail(err)
			return
		}
		op.Queues = append(op.Queues, name)
	}
	op.Consumer = c.consumer()
	c.take(op, nohang, counters)
}

// take waits for jobs and appends the answer.
func (c *session) take(op *fsm.Dequeue, nohang, counters bool) {
	if c.flush() != nil {
		return
	}
	retreat := c.s.retreat.Load() // a node that leaves lets nobody wait
	timeout := timeoutDefault
	var gone <-chan struct{}
	if nohang || retreat {
		op.WaitMs = 0
	} else {
		gone = c.conn.Gone()
		if isClosed(gone) {
			c.failGone()
			return
		}
		timeout = max(timeout, time.Duration(op.WaitMs)*time.Millisecond+waitGrace)
		c.s.sessions.blocks.Add(1)
		defer c.s.sessions.blocks.Add(-1)
	}
	res, err := c.s.replica.Do(op, false, timeout, gone)
	switch {
	case err == nil && len(res.Jobs) > 0:
		// The client may be gone by now. Write finds out: there it is decided. It
		// begins with this answer, because out was flushed.
		c.conn.Leave(hangup.Items(res.Jobs))
		c.s.imports.note(res.Jobs, c.s.members.get().Self)
		c.jobs(res.Jobs, counters)
	case gone != nil && isClosed(gone):
		c.failGone()
	case err != nil:
		c.fail(err)
	case res.Code != fsm.CodeOK:
		c.fail(ofCode(res.Code))
	case retreat && !nohang:
		c.fail(errLeaving)
	default:
		c.nilArray()
	}
}

func (c *session) jobs(jobs []fsm.Delivered, counters bool) {
	c.array(len(jobs))
	for i := range jobs {
		d := &jobs[i]
		if counters {
			c.array(7)
		} else {
			c.array(3)
		}
		c.bulk(d.Queue)
		c.id(d.ID)
		c.bulk(d.Body)
		if counters {
			c.bulk("nacks")
			c.integer(int64(d.Nacks))
			c.bulk("additional-deliveries")
			c.integer(max(0, int64(d.Deliveries)-1-int64(d.Nacks)))
		}
	}
}

// failGone ends a wait whose client left, or whose server does. A client that
// only closed its sending side can read the reason.
func (c *session) failGone() {
	if c.s.leaving.Load() {
		c.fail(errLeaving)
		return
	}
	c.fail(refuse("ERR", "the connection was half-closed, which ends a waiting GETJOB; keep it open until the answer"))
}

func isClosed(ch <-chan struct{}) bool {
	select {
	case <-ch:
		return true
	default:
		return false
	}
}
