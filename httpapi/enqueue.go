package httpapi

import (
	"strconv"

	"raftq/fsm"
)

// enqueue takes the request body as one job.
func (c *call) enqueue() error {
	o := &c.opts
	if err := o.finishJob(); err != nil {
		return err
	}
	queue, err := c.queue()
	if err != nil {
		return err
	}
	body := c.ctx.Request.Body()
	if err := c.s.checkBody(len(body)); err != nil {
		return err
	}
	op := &struct {
		fsm.Enqueue
		jobs [1]fsm.NewJob
	}{}
	op.jobs[0] = o.job
	op.jobs[0].Queue = queue
	op.jobs[0].Body = append([]byte(nil), body...)
	if seeded == "body-of-the-connection" {
		op.jobs[0].Body = body
	}
	op.Jobs = op.jobs[:]
	return c.enqueueSingle(&op.Enqueue, o.replicate)
}

func (s *Server) checkBody(n int) error {
	if n > s.opts.MaxBody {
		return refuse(fsm.CodeBodyTooLarge, "a body has at most %d bytes (max-body), this one %d", s.opts.MaxBody, n)
	}
	return nil
}

// submitJobs submits new jobs; done when the leader answered the whole request.
func (c *call) submitJobs(op *fsm.Enqueue, replicate int) (res fsm.Result, done bool, err error) {
	if replicate <= 1 {
		res, err = c.submit(op, c.timeout(), nil)
		return res, false, err
	}
	if done, err = c.forwardNow(c.timeout()+withdrawMax, false); done || err != nil {
		return res, true, err
	}
	all := fsm.Op(op)
	if c.key != nil {
		all = c.keyed(op, replicate)
	}
	res, err = c.took(c.s.replica.DoCopies(all, replicate, c.timeout()))
	return res, false, err
}

// enqueueSingle submits one job and answers its facts, or its refusal.
func (c *call) enqueueSingle(op *fsm.Enqueue, replicate int) error {
	res, done, err := c.submitJobs(op, replicate)
	if err != nil || done {
		return err
	}
	code := res.Code
	if len(res.Items) == 1 && res.Items[0].Code != fsm.CodeOK {
		code = res.Items[0].Code
	}
	queue := op.Jobs[0].Queue
	switch {
	case code == fsm.CodeOK:
	case code == fsm.CodeNotUnique && len(res.Items) == 1:
		return refuse(code, "queue %q: job %s has this unique_key", queue, res.Items[0].ID)
	case code == fsm.CodeNotEnoughReplicas:
		return refuse(code, "queue %q: %d nodes did not have the job on disk in time; it was withdrawn", queue, replicate)
	case code == fsm.CodeCommitTimeout:
		return refuse(code, "queue %q: %d nodes did not have the job on disk in time, and it stays, because it was handed out by then or has a dedup_id", queue, replicate)
	default:
		return refuse(code, "queue %q", queue)
	}
	if len(res.Items) != 1 {
		return asProblem(errShortResult)
	}
	it := &res.Items[0]
	if !res.Replay && !it.Duplicate {
		c.s.stats.enqueued.Add(1)
	}
	b := append(c.out[:0], `{"id":"`...)
	b = it.ID.Append(b)
	b = append(b, `","queue":`...)
	b = appendString(b, queue)
	b = strconv.AppendBool(append(b, `,"committed":`...), !c.fast())
	b = strconv.AppendBool(append(b, `,"duplicate":`...), it.Duplicate)
	c.out = append(b, "}\n"...)
	return c.answer(c.written(201), typeJSON)
}

// enqueueBatch submits jobs and answers each.
func (c *call) enqueueBatch(jobs []fsm.NewJob, replicate int) error {
	if len(jobs) == 0 {
		return refuse(fsm.CodeInvalidRequest, "no jobs in the request")
	}
	res, done, err := c.submitJobs(&fsm.Enqueue{Atomic: c.opts.atomic, Jobs: jobs}, replicate)
	if err != nil || done {
		return err
	}
	switch {
	case len(res.Items) == len(jobs):
	case res.Code != fsm.CodeOK:
		return refuse(res.Code, "none of the %d jobs was enqueued", len(jobs))
	default:
		return asProblem(errShortResult)
	}
	status, reason := c.written(201), ""
	b := append(c.out[:0], `{"results":`...)
	from := len(b)
	b = append(b, '[')
	for i := range res.Items {
		if i > 0 {
			b = append(b, ',')
		}
		r := &res.Items[i]
		switch r.Code {
		case fsm.CodeOK:
			if !res.Replay && !r.Duplicate {
				c.s.stats.enqueued.Add(1)
			}
			b = appendItem(b, r.ID, r, 201)
			continue
		case fsm.CodeNotUnique:
			b = appendItem(b, r.ID, r, 0) // the job that has the key
		default:
			b = append(appendItemError(append(b, '{'), r.Code, ""), '}')
		}
		if status = 207; r.Code != fsm.CodeAborted && reason == "" {
			reason = (&problem{detail: r.Code.String()}).at("jobs", i).detail
		}
	}
	b = append(b, ']')
	if res.Code != fsm.CodeOK {
		p := refuse(res.Code, "none of the %d jobs was enqueued: %s", len(jobs), reason)
		p.results = append([]byte(nil), b[from:]...)
		c.out = b
		return p
	}
	c.out = append(c.appendUncommitted(b), "}\n"...)
	return c.answer(status, typeJSON)
}

// enqueueJobs takes an envelope, an array or NDJSON of them, or frames.
func (c *call) enqueueJobs() error {
	queue, err := c.queue()
	if err != nil {
		return err
	}
	// One copy of the whole request; the jobs' bodies are slices of it.
	list := c.newList(jobOptions, "jobs", queue)
	single, err := list.read(c.ctx.Request.Header.ContentType())
	if err != nil {
		return err
	}
	if single {
		return c.enqueueSingle(&fsm.Enqueue{Jobs: list.jobs}, list.replicate)
	}
	return c.enqueueBatch(list.jobs, list.replicate)
}
