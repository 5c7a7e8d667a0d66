package respapi

import (
	"raftq/fsm"
)

// verb is a command that names jobs by id and answers how many it changed.
type verb struct {
	fast bool
	op   func(ids []fsm.ID) fsm.Op
	// instead is done to the jobs that nobody works on (CodeLeaseLost); nil = nothing.
	instead func(ids []fsm.ID) fsm.Op
	count   func(*fsm.ItemResult) bool // of an item with CodeOK
}

func ackjob(c *session, left []request) int {
	return c.settle(left, verb{op: acks, count: notBefore})
}

func fastack(c *session, left []request) int {
	return c.settle(left, verb{fast: true, op: acks, count: notBefore})
}

// nack gives jobs back at once: Disque's clients ask for no delay, and a queue's
// backoff is not theirs. A job that dies of it was not queued again. One that
// nobody works on, because it was put aside or is delayed, is queued, too.
func nack(c *session, left []request) int {
	return c.settle(left, verb{
		op:      func(ids []fsm.ID) fsm.Op { return &fsm.Nack{Items: items(ids)} },
		instead: func(ids []fsm.ID) fsm.Op { return &fsm.Requeue{Keys: keys(ids), From: aside, Nack: true} },
		count:   func(r *fsm.ItemResult) bool { return !r.Dead && !r.Already },
	})
}

const aside = fsm.StateDelayed | fsm.StateHeld

func enqueue(c *session, left []request) int {
	return c.settle(left, verb{op: func(ids []fsm.ID) fsm.Op { return &fsm.Requeue{Keys: keys(ids)} }, count: notBefore})
}

func dequeue(c *session, left []request) int {
	return c.settle(left, verb{op: func(ids []fsm.ID) fsm.Op { return &fsm.Hold{Keys: keys(ids), From: fsm.StateReady} }, count: notBefore})
}

func deljob(c *session, left []request) int {
	return c.settle(left, verb{op: func(ids []fsm.ID) fsm.Op { return &fsm.DeleteJobs{Keys: keys(ids)} }, count: notBefore})
}

func acks(ids []fsm.ID) fsm.Op         { return &fsm.Ack{Items: items(ids)} }
func notBefore(r *fsm.ItemResult) bool { return !r.Already }

func items(ids []fsm.ID) []fsm.Item {
	all := make([]fsm.Item, len(ids))
	for i := range ids {
		all[i] = fsm.Item{Key: ids[i].Key, ByID: true}
	}
	return all
}

func keys(ids []fsm.ID) []fsm.Key {
	all := make([]fsm.Key, len(ids))
	for i := range ids {
		all[i] = ids[i].Key
	}
	return all
}

// settle executes consecutive commands of one kind by as few ops as the items
// allow, and answers each.
func (c *session) settle(left []request, v verb) (taken int) {
	left = left[:alike(left)]
	var ids []fsm.ID
	ends := make([]int, 0, len(left)) // of each command's ids; -1: it has a bad one
	for i := range left {
		args := left[i].args[1:]
		if len(ids) > 0 && len(ids)+len(args) > fsm.BatchItemsMax {
			break
		}
		at, bad := len(ids), false
		for _, a := range args {
			id, known, err := jobID(a)
			if bad = err != nil; bad {
				break
			}
			if known {
				ids = append(ids, id)
			}
		}
		if bad {
			ids = ids[:at]
			ends = append(ends, -1)
		} else {
			ends = append(ends, len(ids))
		}
	}
	results, failed := c.items(ids, v)
	at := 0
	for _, end := range ends {
		switch {
		case end < 0:
			c.fail(errBadID)
			continue
		case failed != nil && at < end && end > len(results):
			c.fail(failed)
		default:
			n := int64(0)
			for i := at; i < end; i++ {
				if results[i].Code == fsm.CodeOK && v.count(&results[i]) {
					n++
				}
			}
			c.integer(n)
		}
		at = end
	}
	return len(ends)
}

// items submits as many ops as the ids need. When one fails, the results are
// those before it.
func (c *session) items(ids []fsm.ID, v verb) (results []fsm.ItemResult, err error) {
	if len(ids) == 0 {
		return nil, nil
	}
	if err := c.flush(); err != nil {
		return nil, errLeaving // nobody reads it
	}
	for len(ids) > 0 {
		n := min(len(ids), fsm.BatchItemsMax)
		res, err := c.s.replica.Do(v.op(ids[:n]), v.fast, timeoutDefault, nil)
		switch {
		case err != nil:
			return results, err
		case res.Code != fsm.CodeOK:
			return results, ofCode(res.Code)
		case len(res.Items) != n:
			return results, errInternal
		}
		if v.instead != nil {
			if err := c.second(ids[:n], res.Items, v); err != nil {
				return results, err
			}
		}
		results = append(results, res.Items...)
		ids = ids[n:]
	}
	return results, nil
}

// second does what a verb does instead to the jobs that nobody works on, and puts
// its results into the places of the first ones.
func (c *session) second(ids []fsm.ID, results []fsm.ItemResult, v verb) error {
	var again []fsm.ID
	var at []int
	for i := range results {
		if results[i].Code == fsm.CodeLeaseLost {
			again, at = append(again, ids[i]), append(at, i)
		}
	}
	if len(again) == 0 {
		return nil
	}
	res, err := c.s.replica.Do(v.instead(again), v.fast, timeoutDefault, nil)
	switch {
	case err != nil:
		return err
	case res.Code != fsm.CodeOK:
		return ofCode(res.Code)
	case len(res.Items) != len(again):
		return errInternal
	}
	for i, place := range at {
		results[place] = res.Items[i]
	}
	return nil
}

// working is WORKING id: a new lease, of the length that it had.
func working(c *session, args [][]byte) {
	id, known, err := jobID(args[1])
	switch {
	case err != nil:
		c.fail(err)
		return
	case !known:
		c.fail(errNoJob)
		return
	case c.flush() != nil:
		return
	}
	res, err := c.s.replica.Do(&fsm.Extend{Items: items([]fsm.ID{id})}, false, timeoutDefault, nil)
	switch {
	case err != nil:
		c.fail(err)
	case res.Code != fsm.CodeOK:
		c.fail(ofCode(res.Code))
	case len(res.Items) != 1:
		c.fail(errInternal)
	case res.Items[0].Code == fsm.CodeLeaseLost:
		c.putAside(id)
	case res.Items[0].Code != fsm.CodeOK:
		c.fail(ofCode(res.Items[0].Code))
	default:
		c.integer(whole(res.Items[0].LeaseUntil - res.Position.TimeMs))
	}
}

// putAside is WORKING for a job that nobody has a lease of: as by Disque, it is
// taken out of its queue, if it is there, and comes back after its retry time.
func (c *session) putAside(id fsm.ID) {
	var job fsm.JobInfo
	var code fsm.Code
	seen, err := c.read(func(m *fsm.Machine) { job, code = m.Job(id.Key) })
	switch {
	case err != nil:
		c.fail(err)
		return
	case code != fsm.CodeOK:
		c.fail(ofCode(code))
		return
	case job.State == "dead" || job.AtMostOnce && job.Deliveries > 0:
		c.fail(errNoLease)
		return
	case job.ExpiresMs > 0 && seen.NowMs >= job.EnqueuedMs+(job.ExpiresMs-job.EnqueuedMs)/2:
		c.fail(ofCode(fsm.CodeTooLate))
		return
	}
	forMs := leaseOf(&job)
	res, err := c.s.replica.Do(&fsm.Hold{Keys: []fsm.Key{id.Key}, From: fsm.StateReady | aside, ForMs: forMs}, false, timeoutDefault, nil)
	switch {
	case err != nil:
		c.fail(err)
	case res.Code != fsm.CodeOK:
		c.fail(ofCode(res.Code))
	case len(res.Items) != 1:
		c.fail(errInternal)
	case res.Items[0].Code != fsm.CodeOK:
		c.fail(ofCode(res.Items[0].Code))
	case res.Items[0].Already:
		c.fail(errNoLease) // somebody took it meanwhile
	default:
		c.integer(whole(forMs))
	}
}
