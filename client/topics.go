package client

import (
	"context"
	"encoding/json"
	"iter"
	"net/http"
	"strconv"
	"time"
)

// TopicInfo is a topic: what it holds, and what it was told to keep.
type TopicInfo struct {
	Topic       string      `json:"topic"`
	FirstOffset uint64      `json:"first_offset"` // of the oldest message
	NextOffset  uint64      `json:"next_offset"`  // of the message to come
	Bytes       int64       `json:"bytes"`        // of memory, on each node
	LastAt      time.Time   `json:"last_at,omitzero"`
	Cursors     int         `json:"cursors"`
	Configured  bool        `json:"configured"`
	Version     uint64      `json:"version"` // of the configuration, for IfMatch
	Config      TopicConfig `json:"config"`
}

// TopicConfig says what a topic keeps; the oldest messages go first. The zero value of
// a field is its default.
type TopicConfig struct {
	MaxCount    int64         // messages; 0: no limit
	MaxBytes    int64         // 0: 1 GiB
	MaxAge      time.Duration // 0: no limit
	Consistency Consistency   // of requests that do not say; "": the node's
}

type topicConfigJSON struct {
	MaxCount    int64       `json:"max_count"`
	MaxBytes    int64       `json:"max_bytes"`
	MaxAge      *string     `json:"max_age"`
	Consistency Consistency `json:"consistency"`
}

// UnmarshalJSON reads a configuration as the nodes write it.
func (t *TopicConfig) UnmarshalJSON(b []byte) error {
	var j topicConfigJSON
	if err := json.Unmarshal(b, &j); err != nil {
		return err
	}
	*t = TopicConfig{MaxCount: j.MaxCount, MaxBytes: j.MaxBytes, Consistency: j.Consistency}
	if j.MaxAge == nil {
		return nil
	}
	var err error
	t.MaxAge, err = parseDuration(*j.MaxAge)
	return err
}

func topicPath(topic, rest string) string { return "/v1/topics/" + pathEscape(topic) + rest }

// Topic returns a topic. ErrTopicNotFound: there is none of this name.
func (c *Client) Topic(ctx context.Context, topic string, opts ...ReadOption) (TopicInfo, error) {
	var o call
	r := c.read(ctx, opts, &o, topicPath(topic, ""))
	var got TopicInfo
	_, err := c.send(ctx, &o, r, &got)
	return got, err
}

// Topics goes through the topics whose names begin with prefix, by name. An error
// ends it.
func (c *Client) Topics(ctx context.Context, prefix string, opts ...ReadOption) iter.Seq2[TopicInfo, error] {
	set := func(o *call) {
		if prefix != "" {
			o.set("prefix", prefix)
		}
	}
	type page struct {
		Topics []TopicInfo `json:"topics"`
		Next   string      `json:"next_cursor"`
	}
	return pages(ctx, c, opts, "/v1/topics", set, func(p *page) ([]TopicInfo, string) { return p.Topics, p.Next })
}

// ConfigureTopic says what a topic keeps, and makes it if need be. It returns the
// configuration's new version.
func (c *Client) ConfigureTopic(ctx context.Context, topic string, config TopicConfig, opts ...ConfigOption) (uint64, error) {
	o := configCall{header: http.Header{}}
	for _, f := range opts {
		f.configOption(&o)
	}
	body := map[string]any{}
	if config.MaxCount > 0 {
		body["max_count"] = config.MaxCount
	}
	if config.MaxBytes > 0 {
		body["max_bytes"] = config.MaxBytes
	}
	if config.MaxAge > 0 {
		body["max_age"] = wireDuration(config.MaxAge)
	}
	if config.Consistency != "" {
		body["consistency"] = config.Consistency
	}
	// With a condition a second time would be refused because of the first.
	repeat := RepeatAlways
	if len(o.header) > 0 {
		repeat = RepeatKeyed
	}
	r := c.begin(ctx, &o.call, http.MethodPut, topicPath(topic, ""), repeat)
	r.Header = o.header
	if err := r.jsonBody(body); err != nil {
		return 0, err
	}
	var got struct {
		Version uint64 `json:"version"`
	}
	_, err := c.send(ctx, &o.call, r, &got)
	return got.Version, err
}

// DeleteTopic deletes a topic with its cursors, and returns how many messages went
// with it. Made again, its offsets begin at 0.
func (c *Client) DeleteTopic(ctx context.Context, topic string, opts ...WriteOption) (int, error) {
	return c.dropMessages(ctx, topicPath(topic, ""), nil, opts)
}

// PurgeTopic drops the messages with offsets below before, and returns how many.
func (c *Client) PurgeTopic(ctx context.Context, topic string, before uint64, opts ...WriteOption) (int, error) {
	return c.dropMessages(ctx, topicPath(topic, "/messages"), &before, opts)
}

func (c *Client) dropMessages(ctx context.Context, path string, before *uint64, opts []WriteOption) (int, error) {
	var o call
	for _, f := range opts {
		f.writeOption(&o)
	}
	if before != nil {
		o.set("before", strconv.FormatUint(*before, 10))
	}
	var got struct {
		Deleted int `json:"deleted"`
		Purged  int `json:"purged"`
	}
	// Under a key: a second time might find a topic that was made anew.
	_, err := c.send(ctx, &o, c.begin(ctx, &o, http.MethodDelete, path, RepeatKeyed), &got)
	return got.Deleted + got.Purged, err
}

// Cursor is a consumer's position in a topic: the offset that it reads next.
type Cursor struct {
	Topic   string `json:"topic"`
	Cursor  string `json:"cursor"`
	Offset  uint64 `json:"offset"`
	Version uint64 `json:"version"` // for IfMatch
}

func cursorPath(topic, cursor string) string { return topicPath(topic, "/cursors/"+pathEscape(cursor)) }

// Cursor returns a position. ErrCursorNotFound: it was never set.
func (c *Client) Cursor(ctx context.Context, topic, cursor string, opts ...ReadOption) (Cursor, error) {
	var o call
	r := c.read(ctx, opts, &o, cursorPath(topic, cursor))
	var got Cursor
	_, err := c.send(ctx, &o, r, &got)
	return got, err
}

// Cursors returns all positions of a topic, by name.
func (c *Client) Cursors(ctx context.Context, topic string, opts ...ReadOption) ([]Cursor, error) {
	var o call
	r := c.read(ctx, opts, &o, topicPath(topic, "/cursors"))
	var got struct {
		Cursors []Cursor `json:"cursors"`
	}
	_, err := c.send(ctx, &o, r, &got)
	return got.Cursors, err
}

// SetCursor sets a position, at most the topic's NextOffset. With IfMatch or IfNew it
// is refused with ErrETagMismatch when somebody else moved it meanwhile.
func (c *Client) SetCursor(ctx context.Context, topic, cursor string, offset uint64, opts ...ConfigOption) (Cursor, error) {
	o := configCall{header: http.Header{}}
	for _, f := range opts {
		f.configOption(&o)
	}
	repeat := RepeatAlways
	if len(o.header) > 0 {
		repeat = RepeatKeyed
	}
	r := c.begin(ctx, &o.call, http.MethodPut, cursorPath(topic, cursor), repeat)
	r.Header = o.header
	if err := r.jsonBody(map[string]uint64{"offset": offset}); err != nil {
		return Cursor{}, err
	}
	var got Cursor
	_, err := c.send(ctx, &o.call, r, &got)
	return got, err
}

// DeleteCursor forgets a position; one that was never set is fine.
func (c *Client) DeleteCursor(ctx context.Context, topic, cursor string, opts ...ConfigOption) error {
	o := configCall{header: http.Header{}}
	for _, f := range opts {
		f.configOption(&o)
	}
	r := c.begin(ctx, &o.call, http.MethodDelete, cursorPath(topic, cursor), RepeatKeyed)
	r.Header = o.header
	_, err := c.send(ctx, &o.call, r, nil)
	return err
}
