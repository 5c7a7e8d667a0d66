package respapi

import (
	"time"

	"raftq/fsm"
)

// newJob is an ADDJOB, checked.
type newJob struct {
	job  fsm.NewJob // Body is a view of the reader's buffer
	mode addMode
}

// addMode is what jobs of one op have in common.
type addMode struct {
	timeoutMs int64
	async     bool
	copies    int // nodes that must have it, 0 = a majority
}

// addjob adds the jobs of consecutive ADDJOBs by one op, as far as they wait for
// the same. Those with errors are answered in their places.
func addjob(c *session, left []request) (taken int) {
	left = left[:alike(left)]
	answers := make([]error, 0, len(left)) // nil: the next of the op's jobs
	var mode addMode
	var jobs []fsm.NewJob
	bytes := 0
	for i := range left {
		n, err := c.parseAddjob(left[i].args)
		if err == nil {
			if len(jobs) > 0 && (n.mode != mode || len(jobs) == fsm.BatchItemsMax || bytes+len(n.job.Body) > trainBytes) {
				break
			}
			mode = n.mode
			bytes += len(n.job.Body)
			jobs = append(jobs, n.job)
		}
		answers = append(answers, err)
	}
	if len(jobs) == 0 {
		for _, err := range answers {
			c.fail(err)
		}
		return len(answers)
	}
	// What the op keeps is its own: one copy for all bodies.
	slab := make([]byte, 0, bytes)
	for i := range jobs {
		at := len(slab)
		slab = append(slab, jobs[i].Body...)
		jobs[i].Body = slab[at:len(slab):len(slab)]
	}
	res, err := c.add(&fsm.Enqueue{Jobs: jobs}, mode)
	if err == nil && res.Code != fsm.CodeOK {
		err = ofCode(res.Code)
	}
	if err == nil && len(res.Items) != len(jobs) {
		err = errInternal
	}
	next := 0
	for _, bad := range answers {
		switch {
		case bad != nil:
			c.fail(bad)
		case err != nil:
			c.fail(err)
		default:
			if it := &res.Items[next]; it.Code != fsm.CodeOK {
				c.fail(ofCode(it.Code))
			} else {
				c.out = append(it.ID.Append(append(c.out, '+')), '\r', '\n')
			}
			next++
		}
	}
	return len(answers)
}

// add submits jobs and waits for what their clients wait for.
func (c *session) add(op *fsm.Enqueue, mode addMode) (fsm.Result, error) {
	timeout := timeoutMax
	if mode.timeoutMs > 0 {
		// Disque's own timeouts are as coarse.
		timeout = max(timeoutMin, time.Duration(mode.timeoutMs)*time.Millisecond)
	}
	if err := c.flush(); err != nil {
		return fsm.Result{}, errLeaving // nobody reads it
	}
	if mode.copies > 0 {
		return c.s.replica.DoCopies(op, mode.copies, timeout)
	}
	return c.s.replica.Do(op, mode.async, timeout, nil)
}

// parseAddjob reads ADDJOB queue job ms-timeout [REPLICATE n] [DELAY s]
// [RETRY s] [TTL s] [MAXLEN n] [ASYNC].
func (c *session) parseAddjob(args [][]byte) (n newJob, err error) {
	ttl, retry, delay, maxlen := int64(ttlDefault), int64(-1), int64(0), int64(0)
	replicate, asked := int64(0), false
	for i := 4; i < len(args); i++ {
		opt, value := args[i], []byte(nil)
		if i+1 < len(args) {
			value = args[i+1]
		}
		number, ok := integer(value)
		switch {
		case is(opt, "replicate") && value != nil:
			if !ok || number <= 0 || number > 65535 {
				return n, refuse("ERR", "REPLICATE takes a number from 1 to 65535")
			}
			replicate, asked = number, true
			i++
		case is(opt, "ttl") && value != nil:
			if !ok || number <= 0 {
				return n, refuse("ERR", "TTL takes a number of seconds above 0")
			}
			ttl = number
			i++
		case is(opt, "retry") && value != nil:
			if !ok || number < 0 {
				return n, refuse("ERR", "RETRY takes a number of seconds, 0 for at most once")
			}
			retry = number
			i++
		case is(opt, "delay") && value != nil:
			if !ok || number < 0 {
				return n, refuse("ERR", "DELAY takes a number of seconds")
			}
			delay = number
			i++
		case is(opt, "maxlen") && value != nil:
			if !ok || number <= 0 {
				return n, refuse("ERR", "MAXLEN takes a number above 0")
			}
			maxlen = number
			i++
		case is(opt, "async"):
			n.mode.async = true
		default:
			return n, errSyntax
		}
	}
	if n.mode.timeoutMs, err = timeoutMs(args[3]); err != nil {
		return n, err
	}
	if !asked {
		replicate = c.s.members.copies()
	}
	switch {
	case replicate > 1 && retry == 0:
		return n, refuse("ERR", "RETRY 0 (at most once) needs REPLICATE 1, said explicitly")
	case delay >= ttl:
		return n, refuse("ERR", "DELAY is not below TTL, the job would never be delivered")
	case ttl > fsm.TTLMaxMs/1000:
		return n, refuse("ERR", "TTL is at most %d seconds", fsm.TTLMaxMs/1000)
	case retry > fsm.LeaseMaxMs/1000:
		return n, refuse("ERR", "RETRY is at most %d seconds", fsm.LeaseMaxMs/1000)
	case len(args[2]) > c.s.opts.MaxBody:
		return n, refuse("ERR", "a job's body has at most %d bytes, this one %d", c.s.opts.MaxBody, len(args[2]))
	}
	if retry == -1 {
		retry = max(1, min(ttl/retryShare, retryCapSec))
	}
	if asked && !n.mode.async {
		if n.mode.copies, err = c.s.members.enough(replicate); err != nil {
			return n, err
		}
	}
	n.job = fsm.NewJob{
		Body: args[2], Priority: fsm.PriorityDefault, AtMostOnce: retry == 0,
		DelayMs: delay * 1000, LeaseMs: retry * 1000, TTLMs: ttl * 1000, MaxLen: maxlen,
	}
	if retry > 0 {
		n.job.MaxFailures = -1 // it comes again until it is acked or its TTL is over
	}
	n.job.Queue, err = c.queueName(args[1])
	return n, err
}
