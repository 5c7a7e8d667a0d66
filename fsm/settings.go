package fsm

import (
	"encoding/binary"
	"strings"

	"github.com/cespare/xxhash/v2"
)

// settings is what a queue was told: its configuration and its pause. It never
// changes, it is replaced (setSettings).
type settings struct {
	config  QueueConfig
	version uint64 // of config, 0 = never configured
	changed uint64 // index of the last change of any of this
	// While a queue is paused in, nothing becomes ready in it (toReady); while it
	// is paused out, nothing is handed out.
	pausedIn, pausedOut bool
	untilMs             int64 // end of the pause, 0 = until it is changed
}

// noSettings is what a queue does that was told nothing. Nobody writes it.
var noSettings settings

// set returns the queue's settings, for reading.
func (q *queue) set() *settings {
	if q.settings == nil {
		return &noSettings
	}
	return q.settings
}

// keeps tells whether the queue stays although it is idle.
func (q *queue) keeps() bool {
	s := q.set()
	return s.version != 0 || s.pausedIn || s.pausedOut
}

func (s *settings) bytes() int64 {
	if s == nil {
		return 0
	}
	return settingsCost + int64(len(s.config.DeadLetter))
}

// setSettings replaces the settings of an owned queue and keeps the byte count.
func (m *Machine) setSettings(q *queue, s settings) {
	m.clearPauseTimer(q)
	m.bytes -= q.settings.bytes()
	s.changed = m.index
	q.settings = &s
	m.bytes += s.bytes()
	m.noteConsistency(q.name, s.config.Consistency)
	m.setPauseTimer(q)
}

// dependOnSettings notes that the answer of the op at hand stands on what the
// queue was told.
func (m *Machine) dependOnSettings(q *queue) {
	if q.settings != nil {
		m.run.depends = max(m.run.depends, q.settings.changed)
	}
}

func (m *Machine) configure(op *Configure) Code {
	version := uint64(0)
	q := m.queueNamed(op.Queue)
	if q != nil {
		version = q.set().version
	}
	if op.IfMatch != 0 && op.IfMatch != version || op.Create && version != 0 {
		return CodeETagMismatch
	}
	q = m.openQueue(op.Queue)
	m.make(q)
	s := *q.set()
	s.config.merge(&op.Config, op.Fields)
	// The index names the change; a second one of the same entry needs another.
	s.version = max(m.index, s.version+1)
	m.setSettings(q, s)
	m.touch(q) // groups may have more slots
	if r := m.run.result; r != nil {
		r.Version = s.version
	}
	return CodeOK
}

// merge sets the fields of o in c.
func (c *QueueConfig) merge(o *QueueConfig, fields ConfigFields) {
	for f := FieldLease; f < fieldsEnd; f <<= 1 {
		switch f & fields {
		case FieldLease:
			c.LeaseMs = o.LeaseMs
		case FieldTTL:
			c.TTLMs = o.TTLMs
		case FieldDelay:
			c.DelayMs = o.DelayMs
		case FieldMaxFailures:
			c.MaxFailures = o.MaxFailures
		case FieldDeadLetter:
			c.DeadLetter = strings.Clone(o.DeadLetter)
		case FieldDeadTTL:
			c.DeadTTLMs = o.DeadTTLMs
		case FieldBackoff:
			c.BackoffMinMs, c.BackoffMaxMs = o.BackoffMinMs, o.BackoffMaxMs
		case FieldMaxLen:
			c.MaxLen = o.MaxLen
		case FieldMaxBytes:
			c.MaxBytes = o.MaxBytes
		case FieldOverflow:
			c.Overflow = o.Overflow
		case FieldAging:
			c.AgingMs = o.AgingMs
		case FieldGroupLimit:
			c.GroupLimit = o.GroupLimit
		case FieldFair:
			c.Fair = o.Fair
		case FieldConsistency:
			c.Consistency = o.Consistency
		}
	}
}

// What a job gets when neither its call nor it says more.

func (q *queue) leaseDefault() int64 {
	if ms := q.set().config.LeaseMs; ms > 0 {
		return ms
	}
	return LeaseDefault
}

func (q *queue) deadTTL() int64 {
	if ms := q.set().config.DeadTTLMs; ms > 0 {
		return ms
	}
	return DeadTTLMs
}

// backoff is how long a job that failed for the nth time waits: min·2ⁿ⁻¹ and up
// to a fifth more, so that jobs which failed together do not come back together.
// It lies within min and max. The jitter is derived from the job's key: it is the
// same on all nodes.
func (c *QueueConfig) backoff(k Key, n uint32) int64 {
	if c.BackoffMinMs == 0 {
		return 0
	}
	// A fifth more than this is max.
	highest := max(c.BackoffMaxMs-c.BackoffMaxMs/6, c.BackoffMinMs)
	ms := c.BackoffMinMs
	for i := uint32(1); i < n && ms < highest; i++ {
		ms *= 2
	}
	ms = min(ms, highest)
	var b [20]byte
	h := xxhash.Sum64(binary.BigEndian.AppendUint32(appendKey(b[:0], k), n))
	return min(ms+int64(h%uint64(ms/5+1)), c.BackoffMaxMs)
}
