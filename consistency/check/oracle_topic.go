package check

import (
	"fmt"

	"raftq/fsm"
)

// oTopic is a topic: messages from offset first on.
type oTopic struct {
	first    uint64
	messages []string
	keep     int64 // messages; 0 = all
	cursors  map[string]oCursor
}

type oCursor struct{ offset, version uint64 }

func (t *oTopic) next() uint64 { return t.first + uint64(len(t.messages)) }

func (o *oracle) topic(name string) *oTopic {
	t := o.topics[name]
	if t == nil {
		t = &oTopic{cursors: map[string]oCursor{}}
		o.topics[name] = t
	}
	return t
}

func (o *oracle) appendTo(op *fsm.Append) (offset uint64) {
	t := o.topic(op.Topic)
	offset = t.next()
	for i := range op.Messages {
		t.messages = append(t.messages, string(op.Messages[i].Body))
	}
	o.retain(t)
	body := string(op.Messages[0].Body)
	o.appends[body] = append(o.appends[body], oMade{index: o.index, offset: offset, topic: op.Topic, bodies: bodiesOf(op)})
	return offset
}

func bodiesOf(op *fsm.Append) (all []string) {
	for i := range op.Messages {
		all = append(all, string(op.Messages[i].Body))
	}
	return all
}

// retain drops the oldest messages that the topic does not keep.
func (o *oracle) retain(t *oTopic) {
	if n := len(t.messages) - int(t.keep); t.keep > 0 && n > 0 {
		t.first += uint64(n)
		t.messages = t.messages[n:]
		o.did["trimmed"] += n
	}
}

func (o *oracle) configureTopic(op *fsm.ConfigureTopic) error {
	c := op.Config
	keep := c.MaxCount
	c.MaxCount = 0
	if c != (fsm.TopicConfig{}) || op.Fields != fsm.AllTopicFields || op.IfMatch != 0 || op.Create {
		return fmt.Errorf("the oracle knows no topic like %+v", op)
	}
	t := o.topic(op.Topic)
	t.keep = keep
	o.retain(t)
	o.tell(topicKey(op.Topic, keep), oTold{})
	return nil
}

func topicKey(topic string, keep int64) string {
	return fmt.Sprintf("topic %q keeps %d", topic, keep)
}

func (o *oracle) setCursor(op *fsm.SetCursor) error {
	if op.Delete {
		return fmt.Errorf("the oracle forgets no cursors: %+v", op)
	}
	code := o.mayMove(op, 0)
	t := oTold{code: code}
	if code == fsm.CodeOK {
		o.moveCursor(op)
		t.version = uint64(o.index)
	}
	o.tell(cursorKey(op.Topic, op.Cursor, op.Offset, op.IfMatch, op.Create), t)
	return nil
}

func cursorKey(topic, cursor string, offset, ifMatch uint64, create bool) string {
	return fmt.Sprintf("cursor %q of %q to %d if %d, new %v", cursor, topic, offset, ifMatch, create)
}

// mayMove tells whether a cursor may be moved so, after as many more messages.
func (o *oracle) mayMove(op *fsm.SetCursor, more int) fsm.Code {
	t := o.topics[op.Topic]
	if t == nil {
		if more == 0 {
			return fsm.CodeTopicNotFound
		}
		t = &oTopic{}
	}
	c, there := t.cursors[op.Cursor]
	switch {
	case op.IfMatch != 0 && op.IfMatch != c.version || op.Create && there:
		return fsm.CodeETagMismatch
	case op.Offset > t.next()+uint64(more):
		return fsm.CodeInvalidOption
	}
	return fsm.CodeOK
}

func (o *oracle) moveCursor(op *fsm.SetCursor) {
	o.topic(op.Topic).cursors[op.Cursor] = oCursor{op.Offset, uint64(o.index)}
}
