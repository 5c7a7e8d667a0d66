package fsm

import "strings"

// TopicInfo is a topic as reads show it.
type TopicInfo struct {
	Topic       string
	First, Next uint64 // offsets of the oldest message, and of the one to come
	Bytes       int64  // of the messages, with 24 each
	LastMs      int64  // log time of the newest message that is kept, 0 = none
	Config      TopicConfig
	Version     uint64 // of the configuration, 0 = never configured
	Cursors     int
}

// Message is one message as reads show it. Body and headers are immutable.
type Message struct {
	Offset  uint64
	TimeMs  int64 // log time of its append
	Body    string
	Headers []Header
}

// TopicTotals sums over all topics: their number, and the bytes of their
// messages.
func (m *Machine) TopicTotals() (topics int, bytes int64) { return m.topics.Len(), m.topicBytes }

func (t *topic) info() TopicInfo {
	i := TopicInfo{Topic: t.name, First: t.first, Next: t.next, Bytes: t.bytes, Config: t.settings(), Version: t.version, Cursors: t.cursors.Len()}
	if t.next > t.first {
		s, at := t.segmentAt(t.next - 1)
		i.LastMs = s.timeMs(at)
	}
	return i
}

// Topic returns a topic; ok is false when it does not exist.
func (m *Machine) Topic(name string) (info TopicInfo, ok bool) {
	t := m.topicNamed(name)
	if t == nil {
		return info, false
	}
	return t.info(), true
}

// Topics returns up to limit topics with names after cursor, in name order.
func (m *Machine) Topics(prefix, cursor string, limit int) []TopicInfo {
	var all []TopicInfo
	m.topicNames.Ascend(max(prefix, cursor), func(name string, number uint32) bool {
		if len(all) >= limit || !strings.HasPrefix(name, prefix) {
			return false
		}
		if name > cursor || cursor == "" {
			all = append(all, m.topicOf(number).info())
		}
		return true
	})
	return all
}

// Messages returns the messages of a topic from offset from up to, not
// including, to: at most limit, and at most bytesMax of bodies, or one larger
// message. next is the offset to go on with. The code is CodeOK,
// CodeTopicNotFound, or CodeOffsetTrimmed when from is before the oldest
// message, whose offset is next then. Past the end there is nothing, and next is
// that of the message to come.
func (m *Machine) Messages(name string, from, to uint64, limit, bytesMax int) (list []Message, next uint64, code Code) {
	t := m.topicNamed(name)
	switch {
	case t == nil:
		return nil, 0, CodeTopicNotFound
	case from < t.first:
		return nil, t.first, CodeOffsetTrimmed
	}
	if from >= t.next {
		return nil, t.next, CodeOK
	}
	next = from
	list = make([]Message, 0, min(uint64(max(limit, 0)), min(to, t.next)-min(from, to)))
	bytes := 0
	t.eachSegment(from, func(s *segment, i int) bool {
		for ; i < len(s.ends); i++ {
			bytes += int(s.ends[i] - s.start(i))
			if next >= to || len(list) >= limit || len(list) > 0 && bytes > bytesMax {
				return false
			}
			list = append(list, s.message(i))
			next++
		}
		return true
	})
	return list, next, CodeOK
}

// OffsetAt returns the offset of the first message appended at ms of log time or
// later, next when there is none.
func (m *Machine) OffsetAt(name string, ms int64) (offset uint64, code Code) {
	t := m.topicNamed(name)
	if t == nil {
		return 0, CodeTopicNotFound
	}
	return t.youngerThan(ms - 1), CodeOK
}

// CursorInfo is a consumer's committed position.
type CursorInfo struct {
	Cursor          string
	Offset, Version uint64
}

// Cursor returns a cursor of a topic; ok is false when there is none.
func (m *Machine) Cursor(topic, name string) (c CursorInfo, ok bool, code Code) {
	t := m.topicNamed(topic)
	if t == nil {
		return c, false, CodeTopicNotFound
	}
	at, ok := t.cursors.Get(name)
	return CursorInfo{name, at.offset, at.version}, ok, CodeOK
}

// TopicCursors returns all cursors of a topic, by name.
func (m *Machine) TopicCursors(topic string) (all []CursorInfo, code Code) {
	t := m.topicNamed(topic)
	if t == nil {
		return nil, CodeTopicNotFound
	}
	t.cursors.Scan(func(name string, c cursor) bool {
		all = append(all, CursorInfo{name, c.offset, c.version})
		return true
	})
	return all, CodeOK
}
