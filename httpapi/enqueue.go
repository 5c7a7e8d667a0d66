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
	op.Jobs = op.jobs[:]
	return c.enqueueSingle(&op.Enqueue)
}

func (s *Server) checkBody(n int) error {
	if n > s.opts.MaxBody {
		return refuse(fsm.CodeBodyTooLarge, "a job's body has at most %d bytes (max-body), this one %d", s.opts.MaxBody, n)
	}
	return nil
}

// enqueueSingle submits one job and answers its facts, or its refusal.
func (c *call) enqueueSingle(op *fsm.Enqueue) error {
	res, err := c.submit(op, c.timeout(), nil)
	if err != nil {
		return err
	}
	code := res.Code
	if len(res.Items) == 1 && res.Items[0].Code != fsm.CodeOK {
		code = res.Items[0].Code
	}
	if code != fsm.CodeOK {
		return refuse(code, "queue %q", op.Jobs[0].Queue)
	}
	if len(res.Items) != 1 {
		return asProblem(errShortResult)
	}
	c.s.stats.enqueued.Add(1)
	b := append(c.out[:0], `{"id":"`...)
	b = res.Items[0].ID.Append(b)
	b = append(b, `","queue":`...)
	b = appendString(b, op.Jobs[0].Queue)
	b = strconv.AppendBool(append(b, `,"committed":`...), !c.fast())
	c.out = append(b, `,"duplicate":false}`+"\n"...)
	return c.answer(c.written(201), typeJSON)
}

// enqueueBatch submits jobs and answers each.
func (c *call) enqueueBatch(jobs []fsm.NewJob) error {
	if len(jobs) == 0 {
		return refuse(fsm.CodeInvalidRequest, "no jobs in the request")
	}
	res, err := c.submit(&fsm.Enqueue{Atomic: c.opts.atomic, Jobs: jobs}, c.timeout(), nil)
	if err != nil {
		return err
	}
	if res.Code != fsm.CodeOK {
		return refuse(res.Code, "none of the %d jobs was enqueued%s", len(jobs), firstRefused(res.Items))
	}
	if len(res.Items) != len(jobs) {
		return asProblem(errShortResult)
	}
	status := c.written(201)
	b := append(c.out[:0], `{"results":[`...)
	for i := range res.Items {
		if i > 0 {
			b = append(b, ',')
		}
		if code := res.Items[i].Code; code != fsm.CodeOK {
			status = 207
			b = append(appendItemError(append(b, '{'), code, ""), '}')
			continue
		}
		c.s.stats.enqueued.Add(1)
		b = append(b, `{"id":"`...)
		b = res.Items[i].ID.Append(b)
		b = append(b, `","status":201}`...)
	}
	c.out = append(c.appendUncommitted(append(b, ']')), "}\n"...)
	return c.answer(status, typeJSON)
}

// firstRefused says which job was the reason for refusing an atomic batch.
func firstRefused(items []fsm.ItemResult) string {
	for i := range items {
		if items[i].Code != fsm.CodeOK {
			return (&problem{detail: items[i].Code.String()}).at("; jobs", i).detail
		}
	}
	return ""
}

// enqueueJobs takes an envelope, an array or NDJSON of them, or frames.
func (c *call) enqueueJobs() error {
	queue, err := c.queue()
	if err != nil {
		return err
	}
	// One copy of the whole request; the jobs' bodies are slices of it.
	list := jobList{s: c.s, queue: queue, body: append([]byte(nil), c.ctx.Request.Body()...)}
	single := false
	switch mediaType(c.ctx.Request.Header.ContentType()) {
	case string(typeFrames):
		err = list.readFrames()
	case string(typeNDJSON):
		err = list.readLines()
	default:
		single, err = list.readJSON()
	}
	if err != nil {
		return err
	}
	if single {
		return c.enqueueSingle(&fsm.Enqueue{Jobs: list.jobs})
	}
	return c.enqueueBatch(list.jobs)
}
