package httpapi

import (
	"encoding/base64"
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
	c.out = append(appendQueue(c.out[:0], &info, c.nowMs), '\n')
	return c.answer(200, typeJSON)
}

func (c *call) listQueues() error {
	limit := c.opts.limit
	if limit == 0 {
		limit = listDefault
	}
	prefix, cursor := c.opts.prefix, c.opts.cursor
	var list []fsm.QueueInfo
	var next string
	filter := fsm.QueueFilter{Prefix: prefix, MaxLen: -1}
	if err := c.read(func(m *fsm.Machine) { list, next = m.Queues(filter, cursor, limit) }); err != nil {
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
		b = append(b, `,"next_cursor":"`...)
		b = base64.RawURLEncoding.AppendEncode(b, stringBytes(next))
		b = append(b, '"')
	}
	c.out = append(b, "}\n"...)
	return c.answer(200, typeJSON)
}

// parseCursor reads what listQueues wrote: the last name it looked at.
func parseCursor(b []byte) (string, error) {
	name, err := base64.RawURLEncoding.DecodeString(string(b))
	if err != nil || len(name) > fsm.NameMax {
		return "", invalid("cursor", "not a next_cursor of an earlier answer")
	}
	return string(name), nil
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
	return append(b, '}')
}

// getJob shows a job. A receipt is its holder's alone and not shown.
func (c *call) getJob() error {
	raw, err := c.param(0)
	if err != nil {
		return err
	}
	id, ok := fsm.ParseID(raw)
	if !ok {
		return refuse(fsm.CodeBadJobID, "%q is no job id", raw)
	}
	var job fsm.JobInfo
	var code fsm.Code
	if err := c.read(func(m *fsm.Machine) { job, code = m.Job(id.Key) }); err != nil {
		return err
	}
	if code != fsm.CodeOK {
		return refuse(code, "job %s", id)
	}
	b := append(c.out[:0], `{"id":"`...)
	b = id.Append(b)
	b = append(b, `","state":`...)
	b = appendString(b, job.State)
	b = appendCommon(b, &job.Delivered)
	if job.DeliverMs > 0 {
		b = appendTime(append(b, ','), "deliver_at", job.DeliverMs)
	}
	b = appendTrue(b, "at_most_once", job.AtMostOnce)
	if job.Consumer != "" {
		b = appendString(append(b, `,"consumer":`...), job.Consumer)
	}
	if job.DeadReason != "" {
		b = appendString(append(b, `,"dead_reason":`...), job.DeadReason)
	}
	b = append(b, ',')
	b = appendBody(b, job.Body, c.opts.base64)
	c.out = append(b, "}\n"...)
	return c.answer(200, typeJSON)
}
