package httpapi

import "raftq/fsm"

// topicCursor returns the path's topic and cursor.
func (c *call) topicCursor() (topic, cursor string, err error) {
	if topic, err = c.topic(); err != nil {
		return "", "", err
	}
	cursor, err = value{isText, c.params[1]}.bounded(&optionFacts[optCursorName])
	return topic, cursor, err
}

// putCursor commits a consumer's position.
func (c *call) putCursor() error {
	topic, cursor, err := c.topicCursor()
	if err != nil {
		return err
	}
	r := jsonReader{b: c.ctx.Request.Body()}
	if err := c.opts.object(&r, setOf(optOffset)); err != nil {
		return err
	}
	if err := r.end(); err != nil {
		return err
	}
	if !c.opts.given.has(optOffset) {
		return invalid("offset", "name the offset to read next; the body is {\"offset\":812}")
	}
	return c.commitCursor(&fsm.SetCursor{Topic: topic, Cursor: cursor, Offset: c.opts.offset})
}

// deleteCursor forgets a consumer's position; one that there is not is fine.
func (c *call) deleteCursor() error {
	topic, cursor, err := c.topicCursor()
	if err != nil {
		return err
	}
	return c.commitCursor(&fsm.SetCursor{Topic: topic, Cursor: cursor, Delete: true})
}

func (c *call) commitCursor(op *fsm.SetCursor) (err error) {
	if op.IfMatch, op.Create, err = c.readMatch(); err != nil {
		return err
	}
	res, err := c.submit(op, c.timeout(), nil)
	switch {
	case err != nil:
		return err
	case res.Code == fsm.CodeTopicNotFound:
		return noTopic(op.Topic)
	case res.Code == fsm.CodeETagMismatch && op.Create:
		return refuse(res.Code, "topic %q has a cursor %q", op.Topic, op.Cursor)
	case res.Code == fsm.CodeETagMismatch:
		return refuse(res.Code, "cursor %q of topic %q was moved by somebody else", op.Cursor, op.Topic)
	case res.Code == fsm.CodeInvalidOption:
		return invalid("offset", "%d is above the topic's next offset, or the topic has %d cursors, the most it may", op.Offset, fsm.CursorsMax)
	case res.Code != fsm.CodeOK:
		return refuse(res.Code, "cursor %q of topic %q", op.Cursor, op.Topic)
	}
	b := appendString(append(c.out[:0], `{"topic":`...), op.Topic)
	b = appendString(append(b, `,"cursor":`...), op.Cursor)
	if !op.Delete {
		c.setETag(res.Version)
		b = appendMember(b, "offset", op.Offset)
		b = appendMember(b, "version", res.Version)
	}
	c.out = append(b, "}\n"...)
	return c.answer(200, typeJSON)
}

func (c *call) getCursor() error {
	topic, cursor, err := c.topicCursor()
	if err != nil {
		return err
	}
	var at fsm.CursorInfo
	var found bool
	var code fsm.Code
	if err := c.read(func(m *fsm.Machine) { at, found, code = m.Cursor(topic, cursor) }); err != nil {
		return err
	}
	switch {
	case code != fsm.CodeOK:
		return noTopic(topic)
	case !found:
		return refuse(fsm.CodeCursorNotFound, "topic %q has no cursor %q; the first commit makes it", topic, cursor)
	}
	c.setETag(at.Version)
	c.out = append(appendCursor(c.out[:0], topic, &at), '\n')
	return c.answer(200, typeJSON)
}

// listCursors shows all cursors of a topic, which are few.
func (c *call) listCursors() error {
	topic, err := c.topic()
	if err != nil {
		return err
	}
	var all []fsm.CursorInfo
	var code fsm.Code
	if err := c.read(func(m *fsm.Machine) { all, code = m.TopicCursors(topic) }); err != nil {
		return err
	}
	if code != fsm.CodeOK {
		return noTopic(topic)
	}
	b := append(c.out[:0], `{"cursors":[`...)
	for i := range all {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendCursor(b, topic, &all[i])
	}
	c.out = append(b, "]}\n"...)
	return c.answer(200, typeJSON)
}

func appendCursor(b []byte, topic string, at *fsm.CursorInfo) []byte {
	b = appendString(append(b, `{"topic":`...), topic)
	b = appendString(append(b, `,"cursor":`...), at.Cursor)
	b = appendMember(b, "offset", at.Offset)
	return append(appendMember(b, "version", at.Version), '}')
}
