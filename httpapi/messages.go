package httpapi

import (
	"math"
	"strconv"
	"time"

	"raftq/fsm"
)

// span is what a request wants of a topic's messages, and how far it has come.
type span struct {
	topic   string
	fixed   bool   // from is known
	from    uint64 // else the first message of since, or the oldest
	sinceMs int64
	since   bool
	to      uint64 // the offset to end before
}

// messagePage is a page of a topic's messages.
type messagePage struct {
	list       []fsm.Message
	next       uint64 // to go on with
	first, end uint64 // offsets of the topic's oldest message, and of the one to come
	code       fsm.Code
}

// page reads a page; it is the core's, see Replica.Read.
func (s *span) page(m *fsm.Machine, limit, bytesMax int) (p messagePage) {
	info, ok := m.Topic(s.topic)
	if !ok {
		p.code = fsm.CodeTopicNotFound
		return p
	}
	p.first, p.end = info.First, info.Next
	from := s.from
	switch {
	case s.since:
		from, _ = m.OffsetAt(s.topic, s.sinceMs)
	case !s.fixed:
		from = info.First
	}
	p.list, p.next, p.code = m.Messages(s.topic, from, s.to, limit, bytesMax)
	// Above the end it goes on where it is: this node may lag.
	p.next = max(p.next, from)
	return p
}

// went notes a page that was taken.
func (s *span) went(p *messagePage) { s.fixed, s.since, s.from = true, false, p.next }

// problem is the refusal of a page, nil when there is none.
func (s *span) problem(p *messagePage) *problem {
	switch p.code {
	case fsm.CodeOK:
		return nil
	case fsm.CodeTopicNotFound:
		return noTopic(s.topic)
	}
	no := refuse(p.code, "topic %q begins at offset %d, %d is gone", s.topic, p.first, s.from)
	no.more = strconv.AppendUint([]byte(`,"first_offset":`), p.first, 10)
	return no
}

// span reads what the request wants.
func (c *call) span() (s span, err error) {
	o := &c.opts
	s = span{fixed: o.given.has(optFrom), from: o.from, since: o.given.has(optSince), sinceMs: o.sinceMs, to: math.MaxUint64}
	if o.given.has(optBelow) {
		s.to = o.below
	}
	switch {
	case s.fixed && s.since:
		return s, invalid("since", "either from or since, not both")
	case s.fixed && s.to < s.from:
		return s, invalid("to", "%d is below from, %d", s.to, s.from)
	}
	s.topic, err = c.topic()
	return s, err
}

// listMessages shows a page of the path's topic. With wait it waits for the first
// message of it; as NDJSON it goes on, and is a tail.
func (c *call) listMessages() error {
	s, err := c.span()
	if err != nil {
		return err
	}
	o, form := &c.opts, c.form()
	if form == formNDJSON && o.waitMs > 0 {
		return c.tail(&s)
	}
	var p messagePage
	read := func() error {
		if err := c.read(func(m *fsm.Machine) { p = s.page(m, o.pageLimit(), fsm.BatchBytesMax) }); err != nil {
			return err
		}
		if no := s.problem(&p); no != nil {
			return no
		}
		return nil
	}
	if err := read(); err != nil {
		return err
	}
	if o.waitMs > 0 && len(p.list) == 0 && p.next < s.to {
		if err := c.awaitMessages(&s, &p, read); err != nil {
			return err
		}
	}
	if o.waitMs > 0 && len(p.list) == 0 {
		c.field(fieldNextOffset, p.next)
		c.ctx.Response.SetStatusCode(204)
		return nil
	}
	return c.answerMessages(form, &p)
}

// awaitMessages reads again whenever the topic has grown, until there is something.
func (c *call) awaitMessages(s *span, p *messagePage, read func() error) error {
	var gone <-chan struct{}
	if c.conn != nil {
		gone = c.conn.Gone()
	}
	grown, stop, err := c.s.replica.Growth(s.topic)
	if err != nil {
		return err
	}
	defer stop()
	over := time.NewTimer(time.Duration(c.opts.waitMs) * time.Millisecond)
	defer over.Stop()
	for {
		if err := read(); err != nil || len(p.list) > 0 {
			return err
		}
		select {
		case index := <-grown:
			c.opts.minIndex = max(c.opts.minIndex, index)
		case <-over.C:
			return nil
		case <-gone:
			return c.goneProblem()
		}
	}
}

// answerMessages writes a page in the form that the request accepts. Where to go on
// is a member of JSON, and a header field of every form.
func (c *call) answerMessages(form form, p *messagePage) error {
	c.field(fieldNextOffset, p.next)
	b := c.out[:0]
	switch form {
	case formNDJSON:
		for i := range p.list {
			b = append(appendMessage(b, &p.list[i], c.opts.base64), '\n')
		}
		c.out = b
		return c.answer(200, typeNDJSON)
	case formFrames:
		for i := range p.list {
			b = appendFrame(b, p.list[i].Body, func(b []byte) []byte {
				return append(appendMessageFacts(append(b, '{'), &p.list[i]), '}')
			})
		}
		c.out = b
		return c.answer(200, typeFrames)
	}
	b = append(b, `{"messages":[`...)
	for i := range p.list {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendMessage(b, &p.list[i], c.opts.base64)
	}
	b = appendMember(append(b, ']'), "next", p.next)
	b = appendMember(b, "first_offset", p.first)
	b = appendMember(b, "next_offset", p.end)
	c.out = append(b, "}\n"...)
	return c.answer(200, typeJSON)
}

func appendMessage(b []byte, m *fsm.Message, base64 bool) []byte {
	b = appendMessageFacts(append(b, '{'), m)
	return append(appendBody(append(b, ','), m.Body, base64), '}')
}

// appendMessageFacts appends all of a message but its body.
func appendMessageFacts(b []byte, m *fsm.Message) []byte {
	b = strconv.AppendUint(append(b, `"offset":`...), m.Offset, 10)
	b = appendTime(append(b, ','), "time", m.TimeMs)
	return appendHeaders(b, m.Headers)
}
