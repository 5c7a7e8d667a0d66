package fsm

import (
	"encoding/binary"
	"fmt"
)

func (m *Machine) encodeTopics(e *encoder) {
	e.open(sectionTopics)
	m.topics.Scan(func(_ uint32, t *topic) bool {
		e.uvarint(uint64(t.number))
		e.text(t.name)
		e.u8(bit(t.config != nil, 1))
		if t.config != nil {
			e.buf = t.config.appendConfig(e.buf)
		}
		e.uvarint(t.version)
		if seeded == "offsets-used-again" && t.first == t.next { // purged
			e.uvarint(0)
			e.uvarint(0)
		} else {
			e.uvarint(t.first)
			e.uvarint(t.next)
		}
		e.ms(t.timerMs)
		e.done()
		return e.err == nil
	})
	e.open(sectionSegments)
	m.topics.Scan(func(_ uint32, t *topic) bool {
		t.segments.Scan(func(_ uint64, s *segment) bool {
			e.encodeSegment(t.number, s)
			return e.err == nil
		})
		return e.err == nil
	})
	e.open(sectionCursors)
	m.topics.Scan(func(_ uint32, t *topic) bool {
		t.cursors.Scan(func(name string, c cursor) bool {
			if seeded == "cursor-not-in-snapshot" {
				return true
			}
			e.uvarint(uint64(t.number))
			e.text(name)
			e.uvarint(c.offset)
			e.uvarint(c.version)
			e.done()
			return e.err == nil
		})
		return e.err == nil
	})
}

// encodeSegment writes the whole segment, with the messages before the topic's
// first: where the next segment begins depends on them.
func (e *encoder) encodeSegment(number uint32, s *segment) {
	e.uvarint(uint64(number))
	e.uvarint(s.first)
	e.ms(s.baseMs)
	e.uvarint(uint64(len(s.ends)))
	before := uint32(0)
	for i, end := range s.ends {
		e.uvarint(uint64(end - before))
		before = end
		if i > 0 {
			e.uvarint(uint64(s.times[i] - s.times[i-1]))
		} else {
			e.uvarint(uint64(s.times[0]))
		}
	}
	e.buf = appendBytes(e.buf, s.data)
	e.done()
}

func (d *decoder) topic(f *fields) error {
	m := d.m
	t := &topic{stamp: m.stamp, number: uint32(f.upTo(1<<32 - 1)), name: string(f.raw(NameMax))}
	flags := f.u8()
	if flags > 1 {
		return fmt.Errorf("topic flags %#x: %w", flags, ErrNewer)
	}
	if flags&1 != 0 {
		c := f.topicConfig()
		t.config = &c
		m.noteTopicConsistency(t.name, c.Consistency)
	}
	t.version, t.first, t.next, t.timerMs = f.uvarint(), f.uvarint(), f.uvarint(), f.ms()
	last, _, some := m.topics.Max()
	if f.bad || some && t.number <= last || t.number == 0 || t.first > t.next || t.version > m.index ||
		(t.version != 0) != (t.config != nil) || t.timerMs != 0 && t.timerMs <= m.now {
		return errState
	}
	m.topics.Load(t.number, t)
	if _, twice := m.topicNames.Set(t.name, t.number); twice {
		return fmt.Errorf("topic %q twice: %w", t.name, errState)
	}
	m.bytes += t.cost()
	if t.timerMs != 0 {
		d.timers = append(d.timers, t.timer())
	}
	return nil
}

func (d *decoder) segment(f *fields) error {
	m := d.m
	t, ok := m.topics.Get(uint32(f.upTo(1<<32 - 1)))
	s := &segment{stamp: m.stamp, first: f.uvarint(), baseMs: f.ms()}
	n := f.count(2)
	if !ok || n == 0 || n > segmentMessages {
		return errState
	}
	s.ends, s.times = make([]uint32, n), make([]uint32, n)
	end, at := uint64(0), uint64(0)
	for i := range n {
		end += f.uvarint()
		at += f.uvarint()
		if end > blockMax || at >= 1<<32 {
			return errState
		}
		s.ends[i], s.times[i] = uint32(end), uint32(at)
	}
	s.data = append([]byte(nil), f.raw(blockMax)...)
	if f.bad || uint64(len(s.data)) != end || s.timeMs(n-1) > m.now || s.first > 1<<63 {
		return errState
	}
	for i := range n {
		r := fields{data: s.data[s.start(i):s.ends[i]]}
		if r.headers(); r.bad {
			return errState
		}
	}
	// Segments follow each other, the oldest holds first, the last ends at next.
	after := s.first + uint64(n)
	if _, l, some := t.segments.Max(); some && l.first+uint64(len(l.ends)) != s.first || !some && s.first > t.first || after <= t.first || after > t.next {
		return errState
	}
	t.segments.Load(s.first, s)
	m.addTopicBytes(t, s.cost(int(max(t.first, s.first)-s.first), n))
	return nil
}

func (d *decoder) cursor(f *fields) error {
	t, ok := d.m.topics.Get(uint32(f.upTo(1<<32 - 1)))
	name := string(f.raw(ConsumerMax))
	c := cursor{f.uvarint(), f.uvarint()}
	if !ok || f.bad || c.offset > t.next || c.version > d.m.index {
		return errState
	}
	if last, _, some := t.cursors.Max(); some && name <= last || t.cursors.Len() >= CursorsMax {
		return errState
	}
	t.cursors.Load(name, c)
	d.m.bytes += cursorBytes(name)
	return nil
}

// finishTopics checks what only the whole shows.
func (d *decoder) finishTopics() (err error) {
	d.m.topics.Scan(func(_ uint32, t *topic) bool {
		end := t.first
		if _, s, ok := t.segments.Max(); ok {
			end = s.first + uint64(len(s.ends))
		}
		if end != t.next || (t.timerMs != 0) != (t.settings().MaxAgeMs > 0 && t.next > t.first) {
			err = fmt.Errorf("topic %q: %w", t.name, errState)
		}
		return err == nil
	})
	return err
}

func (c *checker) checkTopics() {
	m := c.m
	bytes, defaults := int64(0), 0
	m.topics.Scan(func(number uint32, t *topic) bool {
		n, ok := m.topicNames.Get(t.name)
		c.want(ok && n == number && t.number == number, "topic %q is not named so", t.name)
		c.want(t.stamp <= m.stamp && t.version <= m.index, "topic %q is ahead of its machine", t.name)
		at, sum := t.first, int64(0)
		t.segments.Scan(func(first uint64, s *segment) bool {
			c.want(first == s.first && len(s.ends) == len(s.times) && len(s.ends) > 0 && s.stamp <= m.stamp, "topic %q: segment %d", t.name, first)
			c.want(s.first == at || s.first < at && at == t.first && s.first+uint64(len(s.ends)) > at, "topic %q: segment %d does not follow %d", t.name, first, at)
			i := int(at - s.first)
			sum += s.cost(i, len(s.ends))
			at = s.first + uint64(len(s.ends))
			for j := 1; j < len(s.ends); j++ {
				c.want(s.ends[j] >= s.ends[j-1] && s.times[j] >= s.times[j-1], "topic %q: message %d", t.name, s.first+uint64(j))
			}
			c.want(int(s.ends[len(s.ends)-1]) == len(s.data), "topic %q: segment %d of %d bytes", t.name, first, len(s.data))
			return true
		})
		c.want(at == t.next && sum == t.bytes, "topic %q: messages to %d of %d, %d bytes of %d", t.name, at, t.next, sum, t.bytes)
		if v := t.settings().Consistency; v != 0 {
			defaults++
			listed, _ := m.consistencies.topics.Get(t.name)
			c.want(listed == v, "topic %q has consistency %d, listed is %d", t.name, v, listed)
		}
		if t.timerMs != 0 {
			c.wantTimer(t.timer())
		}
		c.want((t.timerMs != 0) == (t.settings().MaxAgeMs > 0 && t.next > t.first), "topic %q: timer at %d", t.name, t.timerMs)
		t.cursors.Scan(func(name string, at cursor) bool {
			c.want(at.offset <= t.next && at.version <= m.index, "topic %q: cursor %q", t.name, name)
			c.bytes += cursorBytes(name)
			return true
		})
		bytes += sum
		c.bytes += sum + t.cost()
		return true
	})
	c.want(defaults == m.consistencies.topics.Len(), "%d topics are listed with a consistency, %d have one", m.consistencies.topics.Len(), defaults)
	c.want(bytes == m.topicBytes && m.topics.Len() == m.topicNames.Len(), "topics: %d bytes, counted %d", m.topicBytes, bytes)
}

// noteOffset goes into the chain for each append.
func (m *Machine) noteOffset(offset uint64) {
	m.run.outcome = binary.BigEndian.AppendUint64(append(m.run.outcome, noteAppend), offset)
}
