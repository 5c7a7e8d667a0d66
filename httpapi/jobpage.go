package httpapi

import "raftq/fsm"

// jobPage is a page of a list of jobs.
type jobPage struct {
	jobs []fsm.JobInfo
	next fsm.JobCursor
	more bool
}

// fit calls list with a limit, and again with a smaller one when the bodies are
// more than an answer has.
func (p *jobPage) fit(limit int, list func(n int)) {
	list(limit)
	size := 0
	for i := range p.jobs {
		if size += len(p.jobs[i].Body); size > fsm.BatchBytesMax && i > 0 {
			list(i)
			return
		}
	}
}

// answerPage writes jobs in the form that the request accepts. next is the cursor
// behind them, if others follow: a member of JSON, a header field of other forms.
func (c *call) answerPage(p *jobPage, next func() []byte) error {
	b := c.out[:0]
	form := c.form()
	if p.more && (form == formNDJSON || form == formFrames) {
		c.ctx.Response.Header.SetCanonical(fieldNextCursor, next())
	}
	switch form {
	case formNDJSON:
		for i := range p.jobs {
			b = append(c.appendJobInfo(b, &p.jobs[i]), '\n')
		}
		c.out = b
		return c.answer(200, typeNDJSON)
	case formFrames:
		for i := range p.jobs {
			b = appendFrame(b, p.jobs[i].Body, func(b []byte) []byte {
				return append(appendJobFacts(append(b, '{'), &p.jobs[i]), '}')
			})
		}
		c.out = b
		return c.answer(200, typeFrames)
	}
	b = append(b, `{"jobs":[`...)
	for i := range p.jobs {
		if i > 0 {
			b = append(b, ',')
		}
		b = c.appendJobInfo(b, &p.jobs[i])
	}
	b = append(b, ']')
	if p.more {
		b = appendNext(b, next())
	}
	c.out = append(b, "}\n"...)
	return c.answer(200, typeJSON)
}

func (c *call) appendJobInfo(b []byte, job *fsm.JobInfo) []byte {
	b = appendJobFacts(append(b, '{'), job)
	b = appendBody(append(b, ','), job.Body, c.opts.base64)
	return append(b, '}')
}

// appendJobFacts appends all of a job but its body.
func appendJobFacts(b []byte, job *fsm.JobInfo) []byte {
	b = append(b, `"id":"`...)
	b = job.ID.Append(b)
	b = append(b, `","state":`...)
	b = appendString(b, job.State)
	b = appendCommon(b, &job.Delivered)
	b = appendMember(b, "nacks", uint64(job.Nacks))
	if job.DeliverMs > 0 {
		b = appendTime(append(b, ','), "deliver_at", job.DeliverMs)
	}
	b = appendTrue(b, "at_most_once", job.AtMostOnce)
	b = appendText(b, "unique_key", job.UniqueKey)
	b = appendText(b, "dedup_id", job.DedupID)
	b = appendText(b, "consumer", job.Consumer)
	b = appendTrue(b, "cancel", job.Cancel)
	b = appendText(b, "dead_reason", job.DeadReason)
	if job.DeadMs > 0 {
		b = appendTime(append(b, ','), "dead_at", job.DeadMs)
	}
	b = appendText(b, "source_queue", job.SourceQueue)
	if job.Redriven > 0 {
		b = appendMember(b, "redriven", uint64(job.Redriven))
	}
	return b
}

// appendText appends a member that is not there when it is empty.
func appendText(b []byte, name, v string) []byte {
	if v == "" {
		return b
	}
	b = append(append(append(b, ',', '"'), name...), '"', ':')
	return appendString(b, v)
}
