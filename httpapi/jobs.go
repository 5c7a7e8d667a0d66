package httpapi

import (
	"encoding/binary"
	"errors"
	"time"

	"raftq/fsm"
)

// getJob shows a job. A receipt is its holder's alone and not shown.
func (c *call) getJob() error {
	id, err := c.jobID()
	if err != nil {
		return err
	}
	var job fsm.JobInfo
	var code fsm.Code
	if err := c.read(func(m *fsm.Machine) { job, code = m.Job(id.Key) }); err != nil {
		return err
	}
	if code != fsm.CodeOK {
		return refuse(code, "job %s", id)
	}
	c.out = append(c.appendJobInfo(c.out[:0], &job), '\n')
	return c.answer(200, typeJSON)
}

func (c *call) deleteJob() error {
	return c.manage(func(k []fsm.Key) fsm.Op { return &fsm.DeleteJobs{Keys: k} })
}

func (c *call) requeueJob() error {
	return c.manage(func(k []fsm.Key) fsm.Op { return &fsm.Requeue{Keys: k} })
}

func (c *call) holdJob() error {
	return c.manage(func(k []fsm.Key) fsm.Op { return &fsm.Hold{Keys: k} })
}

func (c *call) cancelJob() error {
	return c.manage(func(k []fsm.Key) fsm.Op { return &fsm.Cancel{Keys: k} })
}

// manage does something with the path's job.
func (c *call) manage(op func([]fsm.Key) fsm.Op) error {
	id, err := c.jobID()
	if err != nil {
		return err
	}
	res, err := c.submit(op([]fsm.Key{id.Key}), c.timeout(), nil)
	if err != nil {
		return err
	}
	code := res.Code
	if len(res.Items) == 1 && code == fsm.CodeOK {
		code = res.Items[0].Code
	}
	switch {
	case code != fsm.CodeOK:
		return refuse(code, "job %s", id)
	case len(res.Items) != 1:
		return asProblem(errShortResult)
	}
	c.out = append(appendItem(c.out[:0], id, &res.Items[0], 200), '\n')
	return c.answer(200, typeJSON)
}

// waitJob blocks until the path's job is done or dead: 204 when that takes longer
// than the timeout.
func (c *call) waitJob() error {
	id, err := c.jobID()
	if err != nil {
		return err
	}
	var gone <-chan struct{}
	if c.conn != nil {
		gone = c.conn.Gone()
	}
	end, seen, err := c.s.replica.Await(id.Key, c.timeout(), gone)
	var unknown *fsm.Error
	switch {
	case gone != nil && isClosed(gone):
		return c.goneProblem()
	case errors.As(err, &unknown) && unknown.Code == fsm.CodeJobNotFound:
		return refuse(unknown.Code, "job %s", id)
	case err != nil:
		if p := asProblem(err); p.kind == kindOf(fsm.CodeJobNotFound) {
			p.detail = "job " + id.String() // the replica knows its key alone
			return p
		}
		return err
	}
	c.pos, c.nowMs = seen.Position, max(seen.NowMs, seen.TimeMs)
	b := append(c.out[:0], `{"id":"`...)
	b = append(id.Append(b), `","state":"`...)
	switch end.End {
	case fsm.EndNone:
		c.ctx.Response.SetStatusCode(204)
		return nil
	case fsm.EndDone:
		b = append(b, `done"`...)
	case fsm.EndExpired:
		b = append(b, `expired"`...)
	case fsm.EndDead:
		b = appendString(append(b, `dead","dead_reason":`...), end.Job.DeadReason)
		if end.Job.LastError != "" {
			b = appendString(append(b, `,"last_error":`...), end.Job.LastError)
		}
	}
	c.out = append(b, "}\n"...)
	return c.answer(200, typeJSON)
}

// listJobs shows a page of the path's queue.
func (c *call) listJobs() error {
	queue, err := c.queue()
	if err != nil {
		return err
	}
	o := &c.opts
	states := o.states
	if states == 0 {
		states = fsm.StateAll
	}
	at, err := o.jobCursor(states)
	if err != nil {
		return err
	}
	var p jobPage
	var code fsm.Code
	err = c.read(func(m *fsm.Machine) {
		p = jobPage{}
		p.fit(o.pageLimit(), func(n int) {
			p.jobs, p.next, p.more, code = m.QueueJobs(queue, states, o.desc, at, n)
		})
	})
	switch {
	case err != nil:
		return err
	case code != fsm.CodeOK:
		return refuse(code, "queue %q; the first enqueue makes it", queue)
	}
	return c.answerPage(&p, func() []byte { return cursorText(listOfJobs, jobPlace(states, o.desc, p.next)) })
}

// getConsumer shows what a consumer holds.
func (c *call) getConsumer() error {
	name, err := c.consumer()
	if err != nil {
		return err
	}
	at, err := c.opts.heldCursor()
	if err != nil {
		return err
	}
	var p jobPage
	if err := c.read(func(m *fsm.Machine) {
		p = jobPage{}
		p.fit(c.opts.pageLimit(), func(n int) { p.jobs, p.next, p.more = m.ConsumerJobs(name, at, n) })
	}); err != nil {
		return err
	}
	return c.answerPage(&p, func() []byte { return cursorText(listHeld, binary.BigEndian.AppendUint64(nil, p.next.Order)) })
}

func (c *call) consumer() (string, error) {
	return value{isText, c.params[0]}.bounded(&optionFact{name: "consumer", low: 1, high: fsm.ConsumerMax})
}

// releaseConsumer gives back all that a consumer holds.
func (c *call) releaseConsumer() error {
	name, err := c.consumer()
	if err != nil {
		return err
	}
	n, more, err := c.sweepAll(func(upTo uint64, _ int) fsm.Op { return &fsm.ReleaseConsumer{Consumer: name, UpTo: upTo} })
	if err != nil {
		return err
	}
	return c.answerSwept("consumer", name, "released", n, more)
}

// purge drops the path's queue's jobs by state.
func (c *call) purge() error {
	queue, err := c.queue()
	if err != nil {
		return err
	}
	states := c.opts.states
	if states == 0 {
		states = fsm.StateReady | fsm.StateDelayed
	}
	n, more, err := c.sweepAll(func(upTo uint64, _ int) fsm.Op { return &fsm.Purge{Queue: queue, States: states, UpTo: upTo} })
	if err != nil {
		return err
	}
	return c.answerSwept("queue", queue, "purged", n, more)
}

// redrive moves the path's queue's dead jobs back.
func (c *call) redrive() error {
	queue, err := c.queue()
	if err != nil {
		return err
	}
	if err := c.bodyOptions(redriveOptions); err != nil {
		return err
	}
	o := &c.opts
	n, more, err := c.sweepAll(func(upTo uint64, done int) fsm.Op {
		op := &fsm.Redrive{Queue: queue, To: o.to, Reason: o.reason, UpTo: upTo}
		if o.max > 0 {
			op.Max = o.max - int32(done)
		}
		return op
	})
	if err != nil {
		return err
	}
	return c.answerSwept("queue", queue, "redriven", n, more)
}

// sweepAll submits ops that each do a bounded part, until nothing is left or the
// request's time is over; more says that something is. What came after the first
// is spared.
func (c *call) sweepAll(op func(upTo uint64, done int) fsm.Op) (n int, more bool, err error) {
	end := time.Now().Add(c.timeout())
	upTo := uint64(0)
	for c.sweep = 0; ; c.sweep++ {
		left := time.Until(end)
		if c.sweep > 0 && left <= 0 {
			return n, true, nil
		}
		next := op(upTo, n)
		if r, ok := next.(*fsm.Redrive); ok && c.opts.max > 0 && r.Max <= 0 {
			return n, false, nil
		}
		res, err := c.submit(next, left, nil)
		switch {
		case err != nil && n > 0:
			return n, true, refuse(fsm.CodeCommitTimeout, "%d jobs are done, of the others it is not known: %s", n, asProblem(err).detail)
		case err != nil:
			return n, true, err
		case res.Code != fsm.CodeOK && c.sweep == 0:
			return n, true, refuse(res.Code, "queue %q", c.params[0])
		case res.Code != fsm.CodeOK:
			return n, false, nil // the queue went meanwhile
		}
		n += res.Count
		if !res.More {
			return n, false, nil
		}
		upTo = res.UpTo
	}
}

// answerSwept answers how many jobs a sweep took.
func (c *call) answerSwept(what, name, verb string, n int, more bool) error {
	b := append(append(append(c.out[:0], `{"`...), what...), `":`...)
	b = appendMember(appendString(b, name), verb, uint64(n))
	b = appendTrue(b, "more", more)
	c.out = append(b, "}\n"...)
	return c.answer(200, typeJSON)
}
