package client

import (
	"context"
	"encoding/json"
	"iter"
	"math"
	"net/http"
	"strconv"
	"time"
)

// NewMessage is a message to be appended to a topic.
type NewMessage struct {
	Body    []byte
	Headers map[string]string
}

// Appended says where messages went.
type Appended struct {
	Topic     string `json:"topic"`
	Offset    uint64 `json:"offset"`    // of the first; the others follow. A fast answer does not know it: 0
	Count     int    `json:"count"`     // messages
	Committed bool   `json:"committed"` // false: a fast answer, which may still be lost
}

// Append appends one message to a topic, and makes the topic if need be.
func (c *Client) Append(ctx context.Context, topic string, body []byte, opts ...WriteOption) (Appended, error) {
	return c.AppendBatch(ctx, topic, []NewMessage{{Body: body}}, opts...)
}

// AppendBatch appends up to 1000 messages, at most 8 MiB together: all or none, one
// after the other, in one step.
func (c *Client) AppendBatch(ctx context.Context, topic string, messages []NewMessage, opts ...WriteOption) (Appended, error) {
	var o call
	for _, f := range opts {
		f.writeOption(&o)
	}
	c.defaultConsistency(&o)
	body, err := messageFrames(messages)
	if err != nil {
		return Appended{}, err
	}
	r := c.begin(ctx, &o, http.MethodPost, topicPath(topic, "/messages"), RepeatKeyed)
	r.Body, r.ContentType = body, typeFrames
	var got Appended
	if _, err := c.send(ctx, &o, r, &got); err != nil {
		return Appended{}, err
	}
	return got, nil
}

// messageFrames writes messages as frames.
func messageFrames(messages []NewMessage) ([]byte, error) {
	if len(messages) == 0 || len(messages) > itemsMax {
		return nil, refuse("messages: 1 to %d of them, not %d", itemsMax, len(messages))
	}
	size := 0
	for i := range messages {
		size += len(messages[i].Body)
	}
	if size > bytesMax && len(messages) > 1 {
		return nil, refuse("messages: their bodies have at most %d bytes together, these %d", bytesMax, size)
	}
	b := make([]byte, 0, size+8*len(messages))
	for i := range messages {
		var head []byte
		if len(messages[i].Headers) > 0 {
			var err error
			if head, err = json.Marshal(map[string]any{"headers": messages[i].Headers}); err != nil {
				return nil, refuse("messages[%d]: its headers cannot be written as JSON: %v", i, err)
			}
		}
		b = appendFrame(b, head, messages[i].Body)
	}
	return b, nil
}

// Message is a message of a topic.
type Message struct {
	Offset  uint64            `json:"offset"`
	Time    time.Time         `json:"time"` // log time, when it was appended
	Headers map[string]string `json:"headers,omitempty"`
	Body    []byte            `json:"-"`
}

// Oldest is where a topic begins.
const Oldest = -1

// MessageRange says which messages are read. The zero range is all from offset 0 on.
type MessageRange struct {
	From  int64         // the first offset, or Oldest
	Since time.Time     // instead of From: appended then or later
	To    uint64        // the offset to end before; 0: no end
	Limit int           // at most so many of one call of Messages, up to 1000; 0: 1000
	Wait  time.Duration // of Messages: for the first to come, when there is none
}

// Messages reads a topic from any node. next is the offset to go on with. Past the
// end there is nothing, after Wait at the most; before the oldest message it is
// ErrOffsetTrimmed, and Error.FirstOffset is where the topic begins now. A page has at
// most 8 MiB, or one larger message.
func (c *Client) Messages(ctx context.Context, topic string, m MessageRange, opts ...ReadOption) (messages []Message, next uint64, err error) {
	for left := m.Wait; ; {
		wait := min(left, waitMost)
		if deadline, ok := ctx.Deadline(); ok && wait > 0 {
			wait = min(wait, max(0, time.Until(deadline)-waitMargin)) // an answer that still reaches us
		}
		messages, next, err = c.messagesOnce(ctx, topic, m, wait, opts)
		if left -= waitMost; len(messages) > 0 || err != nil || left <= 0 || ctx.Err() != nil {
			return messages, next, err
		}
	}
}

func (c *Client) messagesOnce(ctx context.Context, topic string, m MessageRange, wait time.Duration, opts []ReadOption) ([]Message, uint64, error) {
	var o call
	switch {
	case !m.Since.IsZero():
		o.set("since", m.Since.UTC().Format(time.RFC3339Nano))
	case m.From >= 0:
		o.set("from", strconv.FormatInt(m.From, 10))
	}
	if m.To > 0 {
		o.set("to", strconv.FormatUint(m.To, 10))
	}
	limit := m.Limit
	if limit <= 0 || limit > itemsMax {
		limit = itemsMax
	}
	o.set("limit", strconv.Itoa(limit))
	if wait > 0 {
		o.set("wait", wireDuration(wait))
	}
	r := c.read(ctx, opts, &o, topicPath(topic, "/messages"))
	r.Accept = typeFrames
	if r.wait = wait; wait > 0 {
		r.Attempt = max(r.Attempt, wait+waitGrace)
	}
	ans, err := c.send(ctx, &o, r, nil)
	if err != nil {
		return nil, 0, err
	}
	next, err := strconv.ParseUint(ans.Header.Get("Raftq-Next-Offset"), 10, 64)
	if err != nil {
		return nil, 0, notUnderstood(ans, err)
	}
	var all []Message
	for b := ans.Body; len(b) > 0; {
		head, body, rest, err := cutFrame(b)
		if err != nil {
			return nil, 0, notUnderstood(ans, err)
		}
		msg := Message{Body: body}
		if err := json.Unmarshal(head, &msg); err != nil {
			return nil, 0, notUnderstood(ans, err)
		}
		all = append(all, msg)
		b = rest
	}
	return all, next, nil
}

// Tail goes through a topic's messages and then waits for those to come, until the
// range's To is reached or ctx ends. It goes on at another node when one fails, without
// a gap and without a message twice. An error ends it; the end of ctx is one.
func (c *Client) Tail(ctx context.Context, topic string, m MessageRange, opts ...ReadOption) iter.Seq2[Message, error] {
	return func(yield func(Message, error) bool) {
		m.Wait = math.MaxInt64
		for m.To == 0 || m.From < int64(m.To) {
			messages, next, err := c.Messages(ctx, topic, m, opts...)
			if err != nil {
				yield(Message{}, err)
				return
			}
			for i := range messages {
				if !yield(messages[i], nil) {
					return
				}
			}
			if ctx.Err() != nil {
				yield(Message{}, ended(ctx, nil))
				return
			}
			m.From, m.Since = int64(next), time.Time{}
		}
	}
}
