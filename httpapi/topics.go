package httpapi

import (
	"strconv"

	"raftq/fsm"
)

// putTopic sets the path's topic's configuration, what is not named being its
// default, and makes the topic.
func (c *call) putTopic() error {
	topic, err := c.topic()
	if err != nil {
		return err
	}
	op := &fsm.ConfigureTopic{Topic: topic, Fields: fsm.AllTopicFields}
	o, err := c.configObject(topicOptions)
	if err != nil {
		return err
	}
	op.Config = o.keep
	op.Config.Consistency = o.consistency
	if op.IfMatch, op.Create, err = c.readMatch(); err != nil {
		return err
	}
	res, err := c.submit(op, c.timeout(), nil)
	if err != nil {
		return err
	}
	return c.configured(&res, op.Create, "topic", topic)
}

// noTopic is the refusal of what does not make one.
func noTopic(topic string) *problem {
	return refuse(fsm.CodeTopicNotFound, "topic %q; the first message makes it", topic)
}

func (c *call) getTopic() error {
	topic, err := c.topic()
	if err != nil {
		return err
	}
	var info fsm.TopicInfo
	found := false
	if err := c.read(func(m *fsm.Machine) { info, found = m.Topic(topic) }); err != nil {
		return err
	}
	if !found {
		return noTopic(topic)
	}
	c.setETag(info.Version)
	c.out = append(appendTopic(c.out[:0], &info), '\n')
	return c.answer(200, typeJSON)
}

func (c *call) deleteTopic() error {
	topic, err := c.topic()
	if err != nil {
		return err
	}
	return c.dropMessages(&fsm.DeleteTopic{Topic: topic}, topic, "deleted")
}

// purgeTopic drops the path's topic's messages before an offset.
func (c *call) purgeTopic() error {
	topic, err := c.topic()
	switch {
	case err != nil:
		return err
	case !c.opts.given.has(optBefore):
		return invalid("before", "name the offset before which messages are dropped")
	}
	return c.dropMessages(&fsm.PurgeTopic{Topic: topic, Before: c.opts.before}, topic, "purged")
}

func (c *call) dropMessages(op fsm.Op, topic, verb string) error {
	res, err := c.submit(op, c.timeout(), nil)
	switch {
	case err != nil:
		return err
	case res.Code == fsm.CodeTopicNotFound:
		return noTopic(topic)
	case res.Code != fsm.CodeOK:
		return refuse(res.Code, "topic %q", topic)
	}
	b := appendString(append(c.out[:0], `{"topic":`...), topic)
	c.out = append(appendMember(b, verb, uint64(res.Count)), "}\n"...)
	return c.answer(200, typeJSON)
}

func (c *call) listTopics() error {
	o := &c.opts
	after, err := o.place(listOfTopics)
	if err != nil {
		return err
	}
	limit := o.pageLimit()
	var list []fsm.TopicInfo
	if err := c.read(func(m *fsm.Machine) { list = m.Topics(o.prefix, after, limit+1) }); err != nil {
		return err
	}
	more := len(list) > limit
	list = list[:min(limit, len(list))]
	b := append(c.out[:0], `{"topics":[`...)
	for i := range list {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendTopic(b, &list[i])
	}
	b = append(b, ']')
	if more {
		b = appendNext(b, cursorText(listOfTopics, []byte(list[limit-1].Topic)))
	}
	c.out = append(b, "}\n"...)
	return c.answer(200, typeJSON)
}

func appendTopic(b []byte, t *fsm.TopicInfo) []byte {
	b = appendString(append(b, `{"topic":`...), t.Topic)
	b = appendMember(b, "first_offset", t.First)
	b = appendMember(b, "next_offset", t.Next)
	b = appendMember(b, "bytes", uint64(t.Bytes))
	if t.LastMs > 0 {
		b = appendTime(append(b, ','), "last_at", t.LastMs)
	}
	b = appendMember(b, "cursors", uint64(t.Cursors))
	b = strconv.AppendBool(append(b, `,"configured":`...), t.Version > 0)
	b = appendMember(b, "version", t.Version)
	return append(appendTopicConfig(append(b, `,"config":`...), &t.Config), '}')
}

// appendTopicConfig appends a configuration as it holds: with the defaults of what
// was not said. What has no default is null. All of it may be sent back.
func appendTopicConfig(b []byte, t *fsm.TopicConfig) []byte {
	b = strconv.AppendInt(append(b, `{"max_count":`...), t.MaxCount, 10)
	b = strconv.AppendInt(append(b, `,"max_bytes":`...), t.MaxBytes, 10)
	if t.MaxAgeMs == 0 {
		b = append(b, `,"max_age":null`...)
	} else {
		b = append(append(append(b, `,"max_age":"`...), formatDuration(t.MaxAgeMs)...), '"')
	}
	switch t.Consistency {
	case fsm.ConsistencyStrong:
		return append(b, `,"consistency":"strong"}`...)
	case fsm.ConsistencyFast:
		return append(b, `,"consistency":"fast"}`...)
	}
	return append(b, `,"consistency":null}`...)
}
