package fsm

import "encoding/binary"

// NewMessage is what a client says of one message.
type NewMessage struct {
	Body    []byte
	Headers []Header
}

// Append adds messages at a topic's end, in order, all or none; it makes the
// topic. Result.Offset is the first one's offset, Result.Count their number. An
// answer before the commit cannot know the offset: the op may find another place
// under another leader.
type Append struct {
	Topic    string
	Messages []NewMessage
}

// TopicConfig says what a topic keeps. Zero values mean "not said".
type TopicConfig struct {
	MaxCount    int64 // messages; 0 = no limit
	MaxBytes    int64 // of the messages, with 24 each; 0 = 1 GiB
	MaxAgeMs    int64 // 0 = no limit
	Consistency uint8 // 0 = the node's default, 1 strong, 2 fast
}

// TopicFields is a set of fields of a TopicConfig.
type TopicFields uint32

const (
	FieldTopicCount TopicFields = 1 << iota
	FieldTopicBytes
	FieldTopicAge
	FieldTopicConsistency
	topicFieldsEnd
	AllTopicFields = topicFieldsEnd - 1
)

// take sets the fields of c that are in which.
func (c *TopicConfig) take(from *TopicConfig, which TopicFields) {
	if which&FieldTopicCount != 0 {
		c.MaxCount = from.MaxCount
	}
	if which&FieldTopicBytes != 0 {
		c.MaxBytes = from.MaxBytes
	}
	if which&FieldTopicAge != 0 {
		c.MaxAgeMs = from.MaxAgeMs
	}
	if which&FieldTopicConsistency != 0 {
		c.Consistency = from.Consistency
	}
}

// ConfigureTopic sets fields of a topic's configuration, and makes the topic.
// Result.Version is the new version.
type ConfigureTopic struct {
	Topic   string
	Config  TopicConfig
	Fields  TopicFields // which fields of Config count; AllTopicFields: the whole is replaced
	IfMatch uint64      // 0 = any; else the version must be it (CodeETagMismatch)
	Create  bool        // only when not configured yet, else CodeETagMismatch
}

// DeleteTopic removes a topic with its messages and cursors. Its next life
// begins at offset 0. Result.Count says how many messages went.
type DeleteTopic struct{ Topic string }

// PurgeTopic drops the messages before an offset; above the last one, all.
// Offsets go on. Result.Count says how many messages went.
type PurgeTopic struct {
	Topic  string
	Before uint64
}

// SetCursor commits a consumer's position in a topic: the offset that it reads
// next, at most that of the message to come (else CodeInvalidOption, as for more
// than CursorsMax cursors). Result.Version is the new version.
type SetCursor struct {
	Topic, Cursor string
	Offset        uint64
	IfMatch       uint64 // 0 = any; else the version must be it (CodeETagMismatch)
	Create        bool   // only when there is none yet, else CodeETagMismatch
	Delete        bool   // forget it; fine when there is none
}

func (*Append) Kind() Kind         { return KindAppend }
func (*ConfigureTopic) Kind() Kind { return KindConfigureTopic }
func (*DeleteTopic) Kind() Kind    { return KindDeleteTopic }
func (*PurgeTopic) Kind() Kind     { return KindPurgeTopic }
func (*SetCursor) Kind() Kind      { return KindSetCursor }

func (op *ConfigureTopic) release() { *op = ConfigureTopic{} }
func (op *DeleteTopic) release()    { *op = DeleteTopic{} }
func (op *PurgeTopic) release()     { *op = PurgeTopic{} }
func (op *SetCursor) release()      { *op = SetCursor{} }

func (op *Append) size() int {
	n := len(op.Topic) + 2*varintMax
	for i := range op.Messages {
		n += len(op.Messages[i].Body) + varintMax + headersSize(op.Messages[i].Headers)
	}
	return n
}

func (op *Append) appendFields(b []byte) []byte {
	assertLimit(len(op.Topic), NameMax, "topic name")
	b = appendString(b, op.Topic)
	b = binary.AppendUvarint(b, uint64(len(op.Messages)))
	for i := range op.Messages {
		msg := &op.Messages[i]
		assertLimit(len(msg.Body), BodyMax, "body")
		b = appendHeaders(b, msg.Headers)
		b = appendBytes(b, msg.Body)
	}
	return b
}

func (op *Append) decode(f *fields) (newer bool) {
	op.Topic = f.text(NameMax)
	op.Messages = op.Messages[:0]
	for range f.count(2) {
		op.Messages = append(op.Messages, NewMessage{Headers: f.headers(), Body: f.bytes(BodyMax)})
	}
	return false
}

func (op *Append) release() {
	clear(op.Messages)
	op.Topic = ""
}

// appendConfig and topicConfig are also the form of a configuration in the
// encoded state.
func (c *TopicConfig) appendConfig(b []byte) []byte {
	for _, v := range [...]int64{c.MaxCount, c.MaxBytes, c.MaxAgeMs} {
		b = binary.AppendUvarint(b, uint64(v))
	}
	return append(b, c.Consistency)
}

func (f *fields) topicConfig() (c TopicConfig) {
	c.MaxCount, c.MaxBytes, c.MaxAgeMs = f.ms(), f.ms(), f.ms()
	if c.Consistency = f.u8(); c.Consistency > 2 || c.MaxAgeMs > TTLMaxMs {
		f.fail()
	}
	return c
}

func (op *ConfigureTopic) size() int { return len(op.Topic) + 7*varintMax }

func (op *ConfigureTopic) appendFields(b []byte) []byte {
	assertLimit(len(op.Topic), NameMax, "topic name")
	b = appendString(b, op.Topic)
	b = binary.AppendUvarint(b, uint64(op.Fields))
	b = op.Config.appendConfig(b)
	b = binary.AppendUvarint(b, op.IfMatch)
	return append(b, bit(op.Create, 1))
}

func (op *ConfigureTopic) decode(f *fields) (newer bool) {
	op.Topic = f.text(NameMax)
	which := f.uvarint()
	op.Fields = TopicFields(which)
	op.Config = f.topicConfig()
	op.IfMatch = f.uvarint()
	flags := f.u8()
	op.Create = flags&1 != 0
	return flags > 1 || which >= uint64(topicFieldsEnd)
}

func (op *DeleteTopic) size() int { return len(op.Topic) + 2 }

func (op *DeleteTopic) appendFields(b []byte) []byte {
	assertLimit(len(op.Topic), NameMax, "topic name")
	return appendString(b, op.Topic)
}

func (op *DeleteTopic) decode(f *fields) (newer bool) {
	op.Topic = f.text(NameMax)
	return false
}

func (op *PurgeTopic) size() int { return len(op.Topic) + 2 + varintMax }

func (op *PurgeTopic) appendFields(b []byte) []byte {
	assertLimit(len(op.Topic), NameMax, "topic name")
	b = appendString(b, op.Topic)
	return binary.AppendUvarint(b, op.Before)
}

func (op *PurgeTopic) decode(f *fields) (newer bool) {
	op.Topic, op.Before = f.text(NameMax), f.uvarint()
	return false
}

func (op *SetCursor) size() int { return len(op.Topic) + len(op.Cursor) + 4*varintMax }

func (op *SetCursor) appendFields(b []byte) []byte {
	assertLimit(len(op.Topic), NameMax, "topic name")
	assertLimit(len(op.Cursor), ConsumerMax, "cursor name")
	b = appendString(b, op.Topic)
	b = appendString(b, op.Cursor)
	b = binary.AppendUvarint(b, op.Offset)
	b = binary.AppendUvarint(b, op.IfMatch)
	return append(b, bit(op.Create, 1)|bit(op.Delete, 2))
}

func (op *SetCursor) decode(f *fields) (newer bool) {
	op.Topic, op.Cursor = f.text(NameMax), f.text(ConsumerMax)
	op.Offset, op.IfMatch = f.uvarint(), f.uvarint()
	flags := f.u8()
	op.Create, op.Delete = flags&1 != 0, flags&2 != 0
	return flags > 3
}
