package httpapi

import (
	"bytes"
	"encoding/json"
	"math"
	"strconv"
	"unicode/utf8"

	"raftq/fsm"
)

// Lignum's routes: topics as its clients know them. They read and write the topics of
// /v1/topics, strong on any node, take any content type, and refuse with plain text.

// lignumRoutes are those of Lignum.
var lignumRoutes = []route{
	{
		method: "POST", pattern: "/api/message", handle: (*call).lignumPost, query: anyOption,
		doc:   "Lignum: append a message to a topic, which makes it.",
		takes: []media{inJSON("LignumPost", `{"topic":"test","message":"this is a test message"}`)}, shape: "LignumPosted", traits: addsJobs | plainRefusals,
	},
	{
		method: "GET", pattern: "/api/message", handle: (*call).lignumGet, query: anyOption,
		doc:   "Lignum: read the messages of a topic from an offset up to, not including, another. A GET with a body.",
		takes: []media{inJSON("LignumGet", `{"topic":"test","from":0,"to":3}`)}, shape: "LignumMessages", traits: plainRefusals,
	},
	{
		method: "GET", pattern: "/api/topics", handle: (*call).lignumTopics, query: anyOption,
		doc:   "Lignum: list all topics.",
		shape: "LignumTopics",
	},
	{
		method: "POST", pattern: "/api/follower/register", handle: (*call).lignumRegister, query: anyOption,
		doc:  "Lignum: gone. Nodes are members of the cluster and need no registering.",
		page: mediaText, status: 410, traits: readsWeak,
	},
	{method: "GET", pattern: "/ping", handle: (*call).lignumPing, query: anyOption, doc: "Lignum: PONG.", page: mediaText, traits: readsWeak},
}

var typeText = []byte("text/plain; charset=utf-8")

// plain answers with a line of text.
func (c *call) plain(status int, line string) error {
	c.out = append(append(c.out[:0], line...), '\n')
	return c.answer(status, typeText)
}

// lignumBody reads the request as Lignum does: unknown fields are refused, and what
// follows the object is not looked at. refused is why not.
func (c *call) lignumBody(into any) (refused string) {
	body := c.ctx.Request.Body()
	if !utf8.Valid(body) {
		return "the request is not UTF-8"
	}
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return err.Error()
	}
	return ""
}

// lignumTopic is what is wrong with a topic's name.
func lignumTopic(name string) (refused string) {
	if name == "" {
		return "message topic not specified"
	}
	if _, err := topicName("topic", []byte(name)); err != nil {
		return asProblem(err).detail
	}
	return ""
}

func (c *call) lignumPost() error {
	var req struct {
		Topic   string `json:"topic"`
		Message string `json:"message"`
	}
	refused := c.lignumBody(&req)
	if refused == "" {
		refused = lignumTopic(req.Topic)
	}
	if refused != "" {
		return c.plain(400, refused)
	}
	if err := c.s.checkBody(len(req.Message)); err != nil {
		return err
	}
	res, err := c.submit(&fsm.Append{Topic: req.Topic, Messages: []fsm.NewMessage{{Body: []byte(req.Message)}}}, c.timeout(), nil)
	switch {
	case err != nil:
		return err
	case res.Code != fsm.CodeOK:
		return refuse(res.Code, "topic %q", req.Topic)
	}
	c.s.stats.appended.Add(1)
	b := appendString(append(c.out[:0], `{"status": "message commited", "data": `...), req.Message)
	c.out = append(b, '}')
	return c.answer(200, typeJSON)
}

// lignumMessageCost is what a message counts in an answer beside its body.
const lignumMessageCost = 32

func (c *call) lignumGet() error {
	var req struct {
		Topic string `json:"topic"`
		From  uint64 `json:"from"`
		To    uint64 `json:"to"`
	}
	refused := c.lignumBody(&req)
	switch {
	case refused != "":
	case req.To <= req.From:
		refused = "invalid message range (must: from<to)"
	default:
		refused = lignumTopic(req.Topic)
	}
	if refused != "" {
		return c.plain(400, refused)
	}
	s := span{topic: req.Topic, fixed: true, from: req.From, to: min(req.To, math.MaxInt64)}
	b := append(c.out[:0], `{"messages":[`...)
	n := 0
	for size := 0; size < fsm.BatchBytesMax; {
		var p messagePage
		if err := c.read(func(m *fsm.Machine) { p = s.page(m, listMax, fsm.BatchBytesMax-size) }); err != nil {
			return err
		}
		switch p.code {
		case fsm.CodeOK:
		case fsm.CodeTopicNotFound:
			return c.plain(400, "topic does not exist")
		default:
			return c.plain(400, s.problem(&p).detail)
		}
		for i := range p.list {
			if n++; n > 1 {
				b = append(b, ',')
			}
			b = strconv.AppendUint(append(b, `{"Id":`...), p.list[i].Offset, 10)
			b = append(appendString(append(b, `,"Data":`...), p.list[i].Body), '}')
			size += len(p.list[i].Body) + lignumMessageCost
		}
		if s.went(&p); len(p.list) == 0 || s.from >= s.to || s.from >= p.end {
			break
		}
	}
	b = strconv.AppendInt(append(b, `],"count":`...), int64(n), 10)
	c.out = append(b, "}\n"...)
	return c.answer(200, typeJSON)
}

func (c *call) lignumTopics() error {
	b := append(c.out[:0], '[')
	for after := ""; ; {
		var list []fsm.TopicInfo
		if err := c.read(func(m *fsm.Machine) { list = m.Topics("", after, listMax) }); err != nil {
			return err
		}
		for i := range list {
			if len(b) > 1 {
				b = append(b, ',')
			}
			b = appendString(append(b, `{"name":`...), list[i].Topic)
			b = append(appendMember(b, "message_count", list[i].Next), '}')
		}
		if len(list) < listMax || len(b) > fsm.BatchBytesMax {
			break
		}
		after = list[len(list)-1].Topic
	}
	c.out = append(b, "]\n"...)
	return c.answer(200, typeJSON)
}

func (c *call) lignumRegister() error {
	return c.plain(410, "Nodes do not register as followers here: they are members of the cluster. A new node is started with raftq serve --join ADDRESS, which adds it; see docs/lignum.md")
}

func (c *call) lignumPing() error {
	c.out = append(c.out[:0], "PONG"...)
	return c.answer(200, typeText)
}
