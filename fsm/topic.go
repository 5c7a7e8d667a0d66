package fsm

import (
	"encoding/binary"
	"fmt"
	"strings"

	"github.com/tidwall/btree"
)

// A topic is a list of messages that stay after they are read. Offsets begin at
// 0, have no gaps, and never change; the oldest messages go by retention. A
// topic is made by its first append, or configured, and stays until deleted.

// topic is one life of a topic name. It is changed only by the machine whose
// stamp it carries (ownTopic). A new life begins at offset 0.
type topic struct {
	stamp  uint64
	name   string
	number uint32
	config *TopicConfig // nil: nothing is said; never changed, replaced
	// version is the index of the last configuration, 0 = never configured.
	version     uint64
	first, next uint64 // offsets of the oldest message, and of the one to come
	bytes       int64  // of the messages from first on, with their costs
	timerMs     int64  // when the next message is too old, 0 = no timer

	segments btree.Map[uint64, *segment] // by first offset; the oldest may begin before first
	cursors  btree.Map[string, cursor]
}

// cursor is a consumer's committed position: the offset it reads next.
type cursor struct{ offset, version uint64 }

// segment holds messages that follow each other. What is in it never changes;
// messages are added only by the machine whose stamp it carries (ownSegment),
// behind all that another machine may see.
type segment struct {
	stamp  uint64
	first  uint64
	baseMs int64
	data   []byte   // records: headers, body to the end
	ends   []uint32 // of each record in data
	times  []uint32 // of each message, ms since baseMs
}

const (
	segmentBytes    = 64 << 10 // a segment takes no more, or one larger message
	segmentMessages = 1024
	topicCost       = 640
	messageCost     = 24
	cursorCost      = 128
)

func (t *topic) settings() TopicConfig {
	c := TopicConfig{}
	if t.config != nil {
		c = *t.config
	}
	if c.MaxBytes == 0 {
		c.MaxBytes = TopicBytesDefault
	}
	return c
}

func (t *topic) cost() int64 { return topicCost + 2*int64(len(t.name)) }

func (m *Machine) topicNamed(name string) *topic {
	number, ok := m.topicNames.Get(name)
	if !ok {
		return nil
	}
	return m.topicOf(number)
}

func (m *Machine) topicOf(number uint32) *topic {
	t, ok := m.topics.Get(number)
	if !ok {
		panic(fmt.Sprintf("BUG: no topic of number %d", number))
	}
	return t
}

// ownTopic returns t safe to change: itself, or a copy that takes its place.
func (m *Machine) ownTopic(t *topic) *topic {
	if t.stamp == m.stamp {
		return t
	}
	c := *t
	c.stamp = m.stamp
	c.segments = fresh(t.segments)
	c.cursors = fresh(t.cursors)
	m.topics.Set(c.number, &c)
	return &c
}

// openTopic returns the topic of a name to change, new when there is none. name
// may be a view.
func (m *Machine) openTopic(name string) *topic {
	if t := m.topicNamed(name); t != nil {
		return m.ownTopic(t)
	}
	last, _, _ := m.topics.Max()
	t := &topic{stamp: m.stamp, name: strings.Clone(name), number: last + 1}
	m.topics.Set(t.number, t)
	m.topicNames.Set(t.name, t.number)
	m.bytes += t.cost()
	return t
}

func (m *Machine) addTopicBytes(t *topic, n int64) {
	t.bytes += n
	m.bytes += n
	m.topicBytes += n
}

// appendMessages adds an op's messages at the topic's end.
func (m *Machine) appendMessages(op *Append) Code {
	r := &m.run
	t := m.openTopic(op.Topic)
	if r.result != nil {
		r.result.Offset, r.result.Count = t.next, len(op.Messages)
	}
	m.noteOffset(t.next)
	for i := range op.Messages {
		m.addMessage(t, &op.Messages[i])
	}
	m.retain(t)
	m.tellReaders(t)
	return CodeOK
}

// tellReaders lets the replica know whose readers have something to see.
func (m *Machine) tellReaders(t *topic) {
	if r := &m.run; r.self.Topics[t.name] > 0 {
		r.applied.Grown = append(r.applied.Grown, t.name)
	}
}

func (m *Machine) addMessage(t *topic, n *NewMessage) {
	size := headersSize(n.Headers) + len(n.Body)
	s := m.tail(t, size)
	s.data = appendHeaders(s.data, n.Headers)
	s.data = append(s.data, n.Body...)
	s.ends = append(s.ends, uint32(len(s.data)))
	s.times = append(s.times, uint32(m.now-s.baseMs))
	m.addTopicBytes(t, s.cost(len(s.ends)-1, len(s.ends)))
	t.next++
}

// tail returns the segment that a message of size bytes is added to.
func (m *Machine) tail(t *topic, size int) *segment {
	_, s, ok := t.segments.Max()
	if ok && len(s.data)+size <= segmentBytes && len(s.ends) < segmentMessages && m.now-s.baseMs < 1<<32 {
		return m.ownSegment(t, s)
	}
	s = &segment{stamp: m.stamp, first: t.next, baseMs: m.now}
	t.segments.Set(s.first, s)
	return s
}

// ownSegment returns s safe to add to. Without room behind them, its slices move
// at the next append: another machine may add other messages to the same ones.
func (m *Machine) ownSegment(t *topic, s *segment) *segment {
	if s.stamp == m.stamp {
		return s
	}
	c := *s
	c.stamp = m.stamp
	if seeded != "messages-overwritten" {
		c.data = s.data[:len(s.data):len(s.data)]
		c.ends = s.ends[:len(s.ends):len(s.ends)]
		c.times = s.times[:len(s.times):len(s.times)]
	}
	t.segments.Set(c.first, &c)
	return &c
}

// headersSize is an upper bound of what appendHeaders appends.
func headersSize(headers []Header) int {
	n := binary.MaxVarintLen16
	for _, h := range headers {
		n += len(h.Name) + len(h.Value) + 6
	}
	return n
}

func (s *segment) start(i int) uint32 {
	if i == 0 {
		return 0
	}
	return s.ends[i-1]
}

// cost is what messages i to j of the segment count.
func (s *segment) cost(i, j int) int64 {
	if i >= j {
		return 0
	}
	return int64(s.ends[j-1]-s.start(i)) + messageCost*int64(j-i)
}

func (s *segment) timeMs(i int) int64 { return s.baseMs + int64(s.times[i]) }

// message shows message i. Its texts are views of the segment, which never
// changes under them.
func (s *segment) message(i int) Message {
	f := fields{data: s.data[s.start(i):s.ends[i]:s.ends[i]], views: true}
	msg := Message{Offset: s.first + uint64(i), TimeMs: s.timeMs(i), Headers: f.headers()}
	msg.Body = viewString(f.data)
	return msg
}

// segmentAt returns the segment that holds offset, and its place there.
func (t *topic) segmentAt(offset uint64) (s *segment, i int) {
	t.segments.Descend(offset, func(_ uint64, found *segment) bool {
		s = found
		return false
	})
	return s, int(offset - s.first)
}

// retain drops what the topic's limits do not keep, and sets the timer for the
// next message that grows too old. The newest message always stays.
func (m *Machine) retain(t *topic) {
	c := t.settings()
	if t.next > t.first {
		keep := t.next - 1
		to := t.first
		if n := t.next - t.first; c.MaxCount > 0 && n > uint64(c.MaxCount) {
			to = t.next - uint64(c.MaxCount)
		}
		m.trim(t, min(to, keep))
		if over := t.bytes - c.MaxBytes; over > 0 {
			m.trim(t, min(t.afterBytes(over), keep))
		}
	}
	if c.MaxAgeMs > 0 {
		m.trim(t, t.youngerThan(m.now-c.MaxAgeMs))
	}
	m.setTopicTimer(t, c.MaxAgeMs)
}

// afterBytes returns the first offset before which lie at least n bytes.
func (t *topic) afterBytes(n int64) uint64 {
	at := t.first
	t.eachSegment(t.first, func(s *segment, i int) bool {
		if whole := s.cost(i, len(s.ends)); whole <= n {
			n -= whole
			at = s.first + uint64(len(s.ends))
			return n > 0
		}
		for n > 0 {
			n -= s.cost(i, i+1)
			i++
		}
		at = s.first + uint64(i)
		return false
	})
	return at
}

// youngerThan returns the offset of the first message after ms, next if none is.
func (t *topic) youngerThan(ms int64) uint64 {
	at := t.first
	t.eachSegment(t.first, func(s *segment, i int) bool {
		n := len(s.ends)
		if s.timeMs(n-1) <= ms {
			at = s.first + uint64(n)
			return true
		}
		for s.timeMs(i) <= ms {
			i++
		}
		at = s.first + uint64(i)
		return false
	})
	return at
}

// eachSegment calls f with the segments from the one of offset on, and the place
// of the first message to look at in each. It calls nothing when offset is next.
func (t *topic) eachSegment(offset uint64, f func(s *segment, i int) bool) {
	if offset >= t.next {
		return
	}
	first, i := t.segmentAt(offset)
	t.segments.Ascend(first.first, func(_ uint64, s *segment) bool {
		at := 0
		if s == first {
			at = i
		}
		return f(s, at)
	})
}

// trim drops the messages of an owned topic before offset, and the segments that
// hold none but such.
func (m *Machine) trim(t *topic, offset uint64) {
	for t.first < offset {
		s, i := t.segmentAt(t.first)
		n := min(len(s.ends), int(offset-s.first))
		m.addTopicBytes(t, -s.cost(i, n))
		t.first = s.first + uint64(n)
		if n == len(s.ends) {
			t.segments.Delete(s.first)
		}
	}
}

// ageStepMs: the timers of all topics fire at whole seconds, so that many topics
// need one entry a second at the most.
const ageStepMs = 1000

func (m *Machine) setTopicTimer(t *topic, maxAgeMs int64) {
	due := int64(0)
	if maxAgeMs > 0 && t.next > t.first {
		s, i := t.segmentAt(t.first)
		due = (s.timeMs(i) + maxAgeMs + ageStepMs) / ageStepMs * ageStepMs
	}
	if due == t.timerMs {
		return
	}
	if t.timerMs != 0 {
		m.forcing.Delete(t.timer())
	}
	t.timerMs = due
	if due != 0 {
		m.forcing.Set(t.timer())
	}
}

func (t *topic) timer() timer { return timer{t.timerMs, timerTopic.order(uint64(t.number)), Key{}} }

// topicTimer fires an owned topic's timer, which is out of its tree.
func (m *Machine) topicTimer(t *topic) {
	t.timerMs = 0
	m.retain(t)
}

func (m *Machine) configureTopic(op *ConfigureTopic) Code {
	t := m.topicNamed(op.Topic)
	version := uint64(0)
	if t != nil {
		version = t.version
	}
	if op.IfMatch != 0 && op.IfMatch != version || op.Create && version != 0 {
		return CodeETagMismatch
	}
	t = m.openTopic(op.Topic)
	c := TopicConfig{}
	if t.config != nil && op.Fields != AllTopicFields {
		c = *t.config
	}
	c.take(&op.Config, op.Fields)
	t.config, t.version = &c, m.index
	m.noteTopicConsistency(t.name, c.Consistency)
	if r := m.run.result; r != nil {
		r.Version = t.version
	}
	m.retain(t)
	return CodeOK
}

func (m *Machine) deleteTopic(op *DeleteTopic) Code {
	t := m.topicNamed(op.Topic)
	if t == nil {
		return CodeTopicNotFound
	}
	t = m.ownTopic(t)
	if r := m.run.result; r != nil {
		r.Count = int(t.next - t.first)
	}
	m.setTopicTimer(t, 0)
	m.addTopicBytes(t, -t.bytes)
	t.cursors.Scan(func(name string, _ cursor) bool {
		m.bytes -= cursorBytes(name)
		return true
	})
	m.bytes -= t.cost()
	m.noteTopicConsistency(t.name, 0)
	m.tellReaders(t)
	m.topicNames.Delete(t.name)
	m.topics.Delete(t.number)
	return CodeOK
}

func (m *Machine) purgeTopic(op *PurgeTopic) Code {
	t := m.topicNamed(op.Topic)
	if t == nil {
		return CodeTopicNotFound
	}
	t = m.ownTopic(t)
	before := t.first
	m.trim(t, min(op.Before, t.next))
	if r := m.run.result; r != nil {
		r.Count = int(t.first - before)
	}
	m.setTopicTimer(t, t.settings().MaxAgeMs)
	return CodeOK
}

func cursorBytes(name string) int64 { return cursorCost + int64(len(name)) }

func (m *Machine) setCursor(op *SetCursor) Code {
	t := m.topicNamed(op.Topic)
	if t == nil {
		return CodeTopicNotFound
	}
	c, there := t.cursors.Get(op.Cursor)
	switch {
	case op.IfMatch != 0 && op.IfMatch != c.version || op.Create && there:
		return CodeETagMismatch
	case op.Delete && !there:
		return CodeOK
	case !op.Delete && op.Offset > t.next, !op.Delete && !there && t.cursors.Len() >= CursorsMax:
		return CodeInvalidOption
	}
	t = m.ownTopic(t)
	if op.Delete {
		t.cursors.Delete(op.Cursor)
		m.bytes -= cursorBytes(op.Cursor)
		return CodeOK
	}
	if !there {
		m.bytes += cursorBytes(op.Cursor)
	}
	// Set takes the new key even when there is an equal one: not a view.
	t.cursors.Set(strings.Clone(op.Cursor), cursor{op.Offset, m.index})
	if r := m.run.result; r != nil {
		r.Version = m.index
	}
	return CodeOK
}
