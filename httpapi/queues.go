package httpapi

import (
	"strconv"

	"raftq/fsm"
)

func (c *call) deleteQueue() error {
	queue, err := c.queue()
	if err != nil {
		return err
	}
	res, err := c.submit(&fsm.DeleteQueue{Queue: queue, Force: c.opts.force}, c.timeout(), nil)
	if err != nil {
		return err
	}
	switch res.Code {
	case fsm.CodeOK:
	case fsm.CodeQueueNotEmpty:
		return refuse(res.Code, "queue %q holds jobs; force=true drops them", queue)
	default:
		return refuse(res.Code, "queue %q", queue)
	}
	b := append(c.out[:0], `{"queue":`...)
	b = appendString(b, queue)
	b = append(b, `,"deleted":`...)
	b = strconv.AppendInt(b, int64(res.Count), 10)
	c.out = append(b, "}\n"...)
	return c.answer(200, typeJSON)
}

func (c *call) getQueue() error {
	queue, err := c.queue()
	if err != nil {
		return err
	}
	var info fsm.QueueInfo
	found := false
	if err := c.read(func(m *fsm.Machine) { info, found = m.Queue(queue) }); err != nil {
		return err
	}
	if !found {
		return refuse(fsm.CodeQueueNotFound, "queue %q; the first enqueue makes it", queue)
	}
	c.setETag(info.Version)
	c.out = append(appendQueue(c.out[:0], &info, c.nowMs), '\n')
	return c.answer(200, typeJSON)
}

func (c *call) listQueues() error {
	o := &c.opts
	filter := fsm.QueueFilter{Prefix: o.prefix, MinLen: o.minLen, MaxLen: -1}
	if o.given.has(optMaxLen) {
		filter.MaxLen = o.maxLen
	}
	after, err := o.place(listOfQueues)
	if err != nil {
		return err
	}
	var list []fsm.QueueInfo
	var next string
	if err := c.read(func(m *fsm.Machine) { list, next = m.Queues(filter, after, o.pageLimit()) }); err != nil {
		return err
	}
	b := append(c.out[:0], `{"queues":[`...)
	for i := range list {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendQueue(b, &list[i], c.nowMs)
	}
	b = append(b, ']')
	if next != "" {
		b = appendNext(b, cursorText(listOfQueues, []byte(next)))
	}
	c.out = append(b, "}\n"...)
	return c.answer(200, typeJSON)
}

// pauseQueue sets whether the path's queue takes jobs and hands them out.
func (c *call) pauseQueue() error {
	queue, err := c.queue()
	if err != nil {
		return err
	}
	r := jsonReader{b: c.ctx.Request.Body()}
	if err := c.opts.object(&r, pauseOptions); err != nil {
		return err
	}
	if err := r.end(); err != nil {
		return err
	}
	op := c.opts.pause
	op.Queue = queue
	if op.UntilMs > 0 && !op.In && !op.Out {
		return invalid("until", "of no pause: neither in nor out is true")
	}
	res, err := c.submit(&op, c.timeout(), nil)
	switch {
	case err != nil:
		return err
	case res.Code != fsm.CodeOK:
		return refuse(res.Code, "queue %q", queue)
	}
	if op.UntilMs > 0 && op.UntilMs <= res.Position.TimeMs && !res.Replay {
		op.In, op.Out, op.UntilMs = false, false, 0 // it was over when it came
	}
	b := appendString(append(c.out[:0], `{"queue":`...), queue)
	b = appendPaused(append(b, ','), op.In, op.Out, op.UntilMs)
	c.out = append(b, "}\n"...)
	return c.answer(200, typeJSON)
}

func appendPaused(b []byte, in, out bool, untilMs int64) []byte {
	b = strconv.AppendBool(append(b, `"paused":{"in":`...), in)
	b = strconv.AppendBool(append(b, `,"out":`...), out)
	if untilMs > 0 {
		b = appendTime(append(b, ','), "until", untilMs)
	}
	return append(b, '}')
}

func appendQueue(b []byte, q *fsm.QueueInfo, nowMs int64) []byte {
	age := int64(0)
	if q.OldestReadyMs > 0 {
		age = max(0, nowMs-q.OldestReadyMs)
	}
	b = append(b, `{"queue":`...)
	b = appendString(b, q.Queue)
	b = appendMember(b, "ready", uint64(q.Ready))
	b = appendMember(b, "delayed", uint64(q.Delayed))
	b = appendMember(b, "leased", uint64(q.Leased))
	b = appendMember(b, "held", uint64(q.Held))
	b = appendMember(b, "dead", uint64(q.Dead))
	b = appendMember(b, "bytes", uint64(q.Bytes))
	b = appendMember(b, "waiters", uint64(q.Waiters))
	b = appendMember(b, "oldest_ready_age_ms", uint64(age))
	b = appendMember(b, "enqueued_total", q.Enqueued)
	b = appendMember(b, "delivered_total", q.Delivered)
	b = appendMember(b, "acked_total", q.Acked)
	b = appendMember(b, "failed_total", q.Failed)
	b = appendMember(b, "expired_total", q.Expired)
	b = appendMember(b, "dead_total", q.DeadTotal)
	b = appendPaused(append(b, ','), q.PausedIn, q.PausedOut, q.PausedUntilMs)
	b = strconv.AppendBool(append(b, `,"configured":`...), q.Configured)
	b = appendMember(b, "version", q.Version)
	b = appendConfig(append(b, `,"config":`...), &q.Config)
	return append(b, '}')
}
