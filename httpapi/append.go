package httpapi

import (
	"strconv"

	"raftq/fsm"
)

// topic returns the path's topic.
func (c *call) topic() (string, error) { return topicName("topic", c.params[0]) }

// appendRaw takes the request body as one message.
func (c *call) appendRaw() error {
	topic, err := c.topic()
	if err != nil {
		return err
	}
	body := c.ctx.Request.Body()
	if err := c.s.checkBody(len(body)); err != nil {
		return err
	}
	return c.appendTo(topic, []fsm.NewMessage{{Body: append([]byte(nil), body...), Headers: c.opts.job.Headers}})
}

// appendMessages takes an envelope, an array or NDJSON of them, or frames.
func (c *call) appendMessages() error {
	topic, err := c.topic()
	if err != nil {
		return err
	}
	// One copy of the whole request; the messages' bodies are slices of it.
	list := c.newList(messageOptions, "messages", topic)
	if _, err := list.read(c.ctx.Request.Header.ContentType()); err != nil {
		return err
	}
	if len(list.jobs) == 0 {
		return refuse(fsm.CodeInvalidRequest, "no messages in the request")
	}
	return c.appendTo(topic, list.messages())
}

// messages are the list's jobs as messages.
func (l *jobList) messages() []fsm.NewMessage {
	all := make([]fsm.NewMessage, len(l.jobs))
	for i := range l.jobs {
		all[i] = fsm.NewMessage{Body: l.jobs[i].Body, Headers: l.jobs[i].Headers}
	}
	return all
}

// appendTo appends messages, all or none, and answers the offset of the first. They
// follow each other. A fast answer does not know it.
func (c *call) appendTo(topic string, messages []fsm.NewMessage) error {
	n := len(messages)
	res, err := c.submit(&fsm.Append{Topic: topic, Messages: messages}, c.timeout(), nil)
	switch {
	case err != nil:
		return err
	case res.Code != fsm.CodeOK:
		return refuse(res.Code, "topic %q", topic)
	}
	if !res.Replay {
		c.s.stats.appended.Add(uint64(n))
	}
	b := appendString(append(c.out[:0], `{"topic":`...), topic)
	if !c.fast() || seeded == "offset-before-commit" {
		b = appendMember(b, "offset", res.Offset)
	}
	b = appendMember(b, "count", uint64(n))
	b = strconv.AppendBool(append(b, `,"committed":`...), !c.fast())
	c.out = append(b, "}\n"...)
	return c.answer(c.written(201), typeJSON)
}
