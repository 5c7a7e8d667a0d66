package fsm

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// topicModel is the rules of topics once more, as lists.
type topicModel struct {
	topics []*mTopic // in the order in which their lives began
	now    int64
}

type mTopic struct {
	name        string
	first, next uint64
	kept        []mMessage
	config      TopicConfig
	version     uint64
	timer       int64
	cursors     map[string]CursorInfo
}

type mMessage struct {
	Message
	cost int64
}

func (w *topicModel) find(name string) *mTopic {
	for _, t := range w.topics {
		if t.name == name {
			return t
		}
	}
	return nil
}

func (w *topicModel) open(name string) *mTopic {
	if t := w.find(name); t != nil {
		return t
	}
	w.topics = append(w.topics, &mTopic{name: name, cursors: map[string]CursorInfo{}})
	return w.topics[len(w.topics)-1]
}

func (t *mTopic) drop(n int) {
	n = min(n, len(t.kept))
	t.kept = t.kept[n:]
	t.first += uint64(n)
}

func (t *mTopic) bytes() (n int64) {
	for _, m := range t.kept {
		n += m.cost
	}
	return n
}

func (t *mTopic) retain(now int64) {
	limit := t.config.MaxBytes
	if limit == 0 {
		limit = TopicBytesDefault
	}
	for len(t.kept) > 1 && (t.config.MaxCount > 0 && int64(len(t.kept)) > t.config.MaxCount || t.bytes() > limit) {
		t.drop(1)
	}
	for t.config.MaxAgeMs > 0 && len(t.kept) > 0 && t.kept[0].TimeMs <= now-t.config.MaxAgeMs {
		t.drop(1)
	}
	t.wind()
}

func (t *mTopic) wind() {
	t.timer = 0
	if t.config.MaxAgeMs > 0 && len(t.kept) > 0 {
		t.timer = (t.kept[0].TimeMs + t.config.MaxAgeMs + 1000) / 1000 * 1000
	}
}

// advance moves the model's time to ms.
func (w *topicModel) advance(ms int64) {
	for {
		var next *mTopic
		for _, t := range w.topics {
			if t.timer != 0 && t.timer <= ms && (next == nil || t.timer < next.timer) {
				next = t
			}
		}
		if next == nil {
			w.now = max(w.now, ms)
			return
		}
		next.retain(next.timer)
	}
}

// apply returns what the op's result must be, Position and Depends aside.
func (w *topicModel) apply(op Op, index uint64) (r Result) {
	switch op := op.(type) {
	case *Append:
		t := w.open(op.Topic)
		r.Offset, r.Count = t.next, len(op.Messages)
		for _, n := range op.Messages {
			m := Message{Offset: t.next, TimeMs: w.now, Body: string(n.Body), Headers: n.Headers}
			t.kept = append(t.kept, mMessage{m, 24 + int64(len(appendHeaders(nil, n.Headers))+len(n.Body))})
			t.next++
		}
		t.retain(w.now)
	case *ConfigureTopic:
		t := w.find(op.Topic)
		version := uint64(0)
		if t != nil {
			version = t.version
		}
		if op.IfMatch != 0 && op.IfMatch != version || op.Create && version != 0 {
			r.Code = CodeETagMismatch
			return r
		}
		t = w.open(op.Topic)
		c := &t.config
		if op.Fields == AllTopicFields {
			*c = TopicConfig{}
		}
		for _, f := range []struct {
			bit      TopicFields
			to, from *int64
		}{{FieldTopicCount, &c.MaxCount, &op.Config.MaxCount}, {FieldTopicBytes, &c.MaxBytes, &op.Config.MaxBytes}, {FieldTopicAge, &c.MaxAgeMs, &op.Config.MaxAgeMs}} {
			if op.Fields&f.bit != 0 {
				*f.to = *f.from
			}
		}
		if op.Fields&FieldTopicConsistency != 0 {
			c.Consistency = op.Config.Consistency
		}
		t.version, r.Version = index, index
		t.retain(w.now)
	case *DeleteTopic:
		t := w.find(op.Topic)
		if t == nil {
			r.Code = CodeTopicNotFound
			return r
		}
		r.Count = len(t.kept)
		w.topics = slices.DeleteFunc(w.topics, func(o *mTopic) bool { return o == t })
	case *PurgeTopic:
		t := w.find(op.Topic)
		if t == nil {
			r.Code = CodeTopicNotFound
			return r
		}
		for len(t.kept) > 0 && t.first < op.Before {
			t.drop(1)
			r.Count++
		}
		t.wind()
	case *SetCursor:
		t := w.find(op.Topic)
		if t == nil {
			r.Code = CodeTopicNotFound
			return r
		}
		c, there := t.cursors[op.Cursor]
		switch {
		case op.IfMatch != 0 && op.IfMatch != c.Version || op.Create && there:
			r.Code = CodeETagMismatch
		case op.Delete:
			delete(t.cursors, op.Cursor)
		case op.Offset > t.next:
			r.Code = CodeInvalidOption
		default:
			t.cursors[op.Cursor] = CursorInfo{op.Cursor, op.Offset, index}
			r.Version = index
		}
	default:
		panic("no topic op")
	}
	return r
}

// topicWorld runs the same entries through a machine, a second one that is
// copied and restored on the way, and the model.
type topicWorld struct {
	m, other *Machine
	model    topicModel
	number   uint64
	copies   []keptCopy
}

const topicNode, topicEpoch = 7 << 32, 1<<32 | 5

func newTopicWorld() *topicWorld {
	members := []Member{{ID: topicNode, Name: "n1", Peer: "http://n1"}}
	return &topicWorld{m: New(members), other: New(members)}
}

// apply applies one op at a log time and compares results.
func (w *topicWorld) apply(t *rapid.T, ms int64, op Op) {
	self := Self{Origin: topicNode, Epoch: topicEpoch, Topics: map[string]int{"t0": 1}}
	h := BatchHeader{Origin: topicNode, Epoch: topicEpoch, Number: w.number, Term: 1, TimeMs: ms}
	w.number++
	data := EncodeBatch(h, op)
	index := w.m.Position().Index + 1
	a, err := w.m.Apply(index, 1, slices.Clone(data), self)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.other.Apply(index, 1, data, Self{}); err != nil {
		t.Fatal(err)
	}
	for i := range data {
		data[i] = 0xee // the machine kept nothing of it
	}
	w.model.advance(ms)
	if _, ok := op.(*NodeStart); ok {
		return
	}
	want := w.model.apply(op, index)
	got := a.Results[0]
	got.Position, got.Depends = Position{}, 0
	compare(t, fmt.Sprintf("%T", op), got, want)
	grown := 0
	if op, ok := op.(*Append); ok && op.Topic == "t0" {
		grown = 1
	}
	if op, ok := op.(*DeleteTopic); ok && op.Topic == "t0" && want.Code == CodeOK {
		grown = 1
	}
	if len(a.Grown) != grown {
		t.Fatalf("grown: %v, want %d", a.Grown, grown)
	}
}

func (w *topicWorld) check(t *rapid.T) {
	if err := w.m.Check(); err != nil {
		t.Fatal(err)
	}
	if w.m.Hash() != w.other.Hash() || w.m.Chain() != w.other.Chain() {
		var a, b bytes.Buffer
		if err := errors.Join(w.m.Encode(&a), w.other.Encode(&b)); err != nil {
			t.Fatal(err)
		}
		t.Fatalf("two nodes differ: chains %x, %x, states\n%x\n%x", w.m.Chain(), w.other.Chain(), a.Bytes(), b.Bytes())
	}
	sorted := slices.Clone(w.model.topics)
	slices.SortFunc(sorted, func(a, b *mTopic) int { return strings.Compare(a.name, b.name) })
	got := w.m.Topics("", "", 100)
	if len(got) != len(sorted) {
		t.Fatalf("%d topics, want %d", len(got), len(sorted))
	}
	for i, m := range sorted {
		want := TopicInfo{Topic: m.name, First: m.first, Next: m.next, Bytes: m.bytes(), Config: m.config, Version: m.version, Cursors: len(m.cursors)}
		if want.Config.MaxBytes == 0 {
			want.Config.MaxBytes = TopicBytesDefault
		}
		if n := len(m.kept); n > 0 {
			want.LastMs = m.kept[n-1].TimeMs
		}
		compare(t, "topic", got[i], want)
		w.checkReads(t, m)
	}
}

func (w *topicWorld) checkReads(t *rapid.T, m *mTopic) {
	from := rapid.Uint64Range(0, m.next+2).Draw(t, "from")
	to := rapid.Uint64Range(0, m.next+2).Draw(t, "to")
	limit := rapid.IntRange(1, 20).Draw(t, "limit")
	bytesMax := rapid.SampledFrom([]int{1, 50, 1 << 20}).Draw(t, "bytes")
	list, next, code := w.m.Messages(m.name, from, to, limit, bytesMax)
	switch {
	case from < m.first:
		if code != CodeOffsetTrimmed || next != m.first {
			t.Fatalf("read from %d, first %d: %v, %d", from, m.first, code, next)
		}
		return
	case from >= m.next:
		if code != CodeOK || next != m.next || len(list) > 0 {
			t.Fatalf("read from %d past the end: %v, %d", from, code, next)
		}
	}
	var want []Message
	bytes := 0
	for _, msg := range m.kept {
		if msg.Offset < from || msg.Offset >= to || len(want) == limit {
			continue
		}
		bytes += int(msg.cost - messageCost)
		if len(want) > 0 && bytes > bytesMax {
			break
		}
		want = append(want, msg.Message)
	}
	compare(t, "messages", list, want)
	if from < m.next && next != from+uint64(len(want)) {
		t.Fatalf("next %d after %d from %d", next, len(want), from)
	}
	ms := rapid.Int64Range(0, w.model.now+1).Draw(t, "since")
	at := m.next
	for _, msg := range slices.Backward(m.kept) {
		if msg.TimeMs >= ms {
			at = msg.Offset
		}
	}
	if got, _ := w.m.OffsetAt(m.name, ms); got != at {
		t.Fatalf("offset at %d ms: %d, want %d", ms, got, at)
	}
	cursors, _ := w.m.TopicCursors(m.name)
	if len(cursors) != len(m.cursors) {
		t.Fatalf("%d cursors, want %d", len(cursors), len(m.cursors))
	}
	for _, c := range cursors {
		compare(t, "cursor", c, m.cursors[c.Cursor])
	}
}

func drawTopicOp(t *rapid.T, w *topicWorld) Op {
	name := rapid.SampledFrom([]string{"t0", "t1", "t2"}).Draw(t, "topic")
	version := uint64(0)
	m := w.model.find(name)
	if m != nil {
		version = m.version
	}
	match := rapid.SampledFrom([]uint64{0, 0, version, version + 1}).Draw(t, "match")
	switch k := rapid.IntRange(0, 20).Draw(t, "op"); {
	case k < 12:
		op := &Append{Topic: name}
		for range rapid.IntRange(0, 6).Draw(t, "n") {
			n := rapid.SampledFrom([]int{0, 1, 30, 100, segmentBytes / 3, segmentBytes + 1}).Draw(t, "size")
			msg := NewMessage{Body: bytes.Repeat([]byte{byte(w.number)}, n)}
			if rapid.Bool().Draw(t, "headers") {
				msg.Headers = []Header{{"a", "1"}, {"b", strings.Repeat("x", n%40)}}
			}
			op.Messages = append(op.Messages, msg)
		}
		return op
	case k < 14:
		return &ConfigureTopic{Topic: name, IfMatch: match, Create: rapid.Bool().Draw(t, "create"), Fields: TopicFields(rapid.Uint32Range(0, uint32(AllTopicFields)).Draw(t, "fields")),
			Config: TopicConfig{MaxCount: rapid.Int64Range(0, 9).Draw(t, "count"), MaxBytes: rapid.SampledFrom([]int64{0, 1, 300, segmentBytes * 2}).Draw(t, "max bytes"),
				MaxAgeMs: rapid.SampledFrom([]int64{0, 1, 1500, 20_000}).Draw(t, "age"), Consistency: uint8(rapid.IntRange(0, 2).Draw(t, "consistency"))}}
	case k < 15:
		return &DeleteTopic{Topic: name}
	case k < 17:
		next := uint64(10)
		if m != nil {
			next = m.next
		}
		return &PurgeTopic{Topic: name, Before: rapid.Uint64Range(0, next+3).Draw(t, "before")}
	}
	op := &SetCursor{Topic: name, Cursor: rapid.SampledFrom([]string{"c", "d"}).Draw(t, "cursor"), Offset: rapid.Uint64Range(0, 30).Draw(t, "offset"), Delete: rapid.IntRange(0, 5).Draw(t, "delete") == 0, Create: rapid.IntRange(0, 5).Draw(t, "create cursor") == 0}
	if m != nil && rapid.Bool().Draw(t, "if match") {
		op.IfMatch = m.cursors[op.Cursor].Version
	}
	return op
}

// TestTopics holds random ops on topics against the model: equal answers, reads
// and hashes, over copies, restores and jumps of time.
func TestTopics(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newTopicWorld()
		ms := int64(1_000_000)
		w.apply(t, ms, &NodeStart{})
		for range rapid.IntRange(1, 60).Draw(t, "ops") {
			ms += rapid.SampledFrom([]int64{0, 1, 400, 3000, 1 << 33}).Draw(t, "later")
			w.apply(t, ms, drawTopicOp(t, w))
			switch rapid.IntRange(0, 5).Draw(t, "then") {
			case 0:
				c := w.other.Copy()
				w.copies = append(w.copies, keptCopy{c, c.Hash()})
				if rapid.Bool().Draw(t, "go on with the copy") {
					w.copies[len(w.copies)-1].m, w.other = w.other, c
				}
			case 1:
				var b bytes.Buffer
				if err := w.other.Encode(&b); err != nil {
					t.Fatal(err)
				}
				m, err := Decode(bytes.NewReader(b.Bytes()))
				if err != nil {
					t.Fatal(err)
				}
				w.other = m
			}
			w.check(t)
		}
		for _, c := range w.copies {
			if c.m.Hash() != c.hash {
				t.Fatal("a copy changed")
			}
			if err := c.m.Check(); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// TestTopicTwoFutures appends to a copy and to its original in turn: neither may
// see what the other wrote behind the messages that they share.
func TestTopicTwoFutures(t *testing.T) {
	a := New([]Member{{ID: topicNode, Name: "n1"}})
	put := func(m *Machine, number uint64, body string) {
		op := &Append{Topic: "t", Messages: []NewMessage{{Body: []byte(body)}}}
		_, err := m.Apply(m.Position().Index+1, 1, EncodeBatch(BatchHeader{Origin: topicNode, Epoch: topicEpoch, Number: number, Term: 1, TimeMs: 5}, op), Self{})
		if err != nil {
			t.Fatal(err)
		}
	}
	if _, err := a.Apply(2, 1, EncodeBatch(BatchHeader{Origin: topicNode, Epoch: topicEpoch, Term: 1, TimeMs: 5}, &NodeStart{}), Self{}); err != nil {
		t.Fatal(err)
	}
	for i := range uint64(5) {
		put(a, 1+i, "both")
	}
	b := a.Copy()
	for i := range uint64(2000) {
		put(a, 6+i, fmt.Sprint("a", i))
		put(b, 6+i, fmt.Sprint("b", i))
	}
	for m, name := range map[*Machine]string{a: "a", b: "b"} {
		list, _, _ := m.Messages("t", 5, 1<<40, 10_000, 1<<30)
		if len(list) != 2000 {
			t.Fatalf("%d messages", len(list))
		}
		for i, msg := range list {
			if want := fmt.Sprint(name, i); msg.Body != want {
				t.Fatalf("message %d of %s: %q", i, name, msg.Body)
			}
		}
	}
}
