package fsm

import "encoding/binary"

// QueueConfig is what a queue was told to do. The zero value is what a queue does
// that was told nothing.
type QueueConfig struct {
	LeaseMs, TTLMs, DelayMs    int64  // for jobs that say nothing; 0 = 60 s, none, none
	MaxFailures                int32  // 0 = 20, -1 = never dead
	DeadLetter                 string // queue that dead jobs move to, in the same entry; "" = they stay
	DeadTTLMs                  int64  // how long dead jobs are kept; 0 = 14 d
	BackoffMinMs, BackoffMaxMs int64  // nack without delay: min·2^(failures-1) ≤ max, with jitter from the job's key; 0 = none
	MaxLen, MaxBytes           int64  // of ready, delayed, leased and held jobs; 0 = no limit
	Overflow                   uint8  // OverflowReject or OverflowDropOldest
	AgingMs                    int64  // a ready job's priority rises by one each AgingMs; 0 = never
	GroupLimit                 int32  // jobs of a group leased at a time; 0 = 1
	Fair                       bool   // round robin over groups within a priority
	Consistency                uint8  // of requests that do not say: 0 = the node's, ConsistencyStrong, ConsistencyFast
}

// What a full queue does with a new job.
const (
	OverflowReject     = 0 // refuses it: CodeQueueFull
	OverflowDropOldest = 1 // drops its oldest ready job, of the lowest priority first
	overflowEnd        = 2
)

// Values of QueueConfig.Consistency.
const (
	ConsistencyStrong = 1
	ConsistencyFast   = 2
	consistencyEnd    = 3
)

// ConfigFields is a set of fields of a QueueConfig.
type ConfigFields uint32

// The fields, a bit each; backoff has one for both ends.
const (
	FieldLease ConfigFields = 1 << iota
	FieldTTL
	FieldDelay
	FieldMaxFailures
	FieldDeadLetter
	FieldDeadTTL
	FieldBackoff
	FieldMaxLen
	FieldMaxBytes
	FieldOverflow
	FieldAging
	FieldGroupLimit
	FieldFair
	FieldConsistency
	fieldsEnd

	AllFields = fieldsEnd - 1
)

// Configure sets fields of a queue's configuration and makes the queue, which
// from then on does not go when it is idle.
type Configure struct {
	Queue   string
	Config  QueueConfig
	Fields  ConfigFields // which fields of Config count; AllFields: what is zero is the default
	IfMatch uint64       // 0 = any; else QueueInfo.Version must be it (CodeETagMismatch)
	Create  bool         // only when not configured yet, else CodeETagMismatch
}

// Validate returns a refusal that names the field and its limit, or nil.
func (c *QueueConfig) Validate() *Error {
	for _, f := range [...]struct {
		name     string
		v        int64
		min, max int64
	}{
		{"lease", c.LeaseMs, 0, LeaseMaxMs},
		{"ttl", c.TTLMs, 0, TTLMaxMs},
		{"delay", c.DelayMs, 0, DelayMaxMs},
		{"max_failures", int64(c.MaxFailures), -1, 1<<31 - 1},
		{"dead_ttl", c.DeadTTLMs, 0, TTLMaxMs},
		{"backoff.min", c.BackoffMinMs, 0, DelayMaxMs},
		{"backoff.max", c.BackoffMaxMs, 0, DelayMaxMs},
		{"max_len", c.MaxLen, 0, 1<<63 - 1},
		{"max_bytes", c.MaxBytes, 0, 1<<63 - 1},
		{"overflow", int64(c.Overflow), 0, overflowEnd - 1},
		{"aging", c.AgingMs, 0, DelayMaxMs},
		{"group_limit", int64(c.GroupLimit), 0, 1<<31 - 1},
		{"consistency", int64(c.Consistency), 0, consistencyEnd - 1},
	} {
		if f.v < f.min || f.v > f.max {
			return Refuse(CodeInvalidOption, "%s: %d is not within %d to %d", f.name, f.v, f.min, f.max)
		}
	}
	switch {
	case len(c.DeadLetter) > NameMax:
		return Refuse(CodeInvalidOption, "dead_letter: a queue's name has at most %d bytes, this one %d", NameMax, len(c.DeadLetter))
	case c.BackoffMinMs > c.BackoffMaxMs:
		return Refuse(CodeInvalidOption, "backoff.max: %d is less than backoff.min, %d", c.BackoffMaxMs, c.BackoffMinMs)
	}
	return nil
}

// said returns the fields that are not zero.
func (c *QueueConfig) said() (fields ConfigFields) {
	for f := FieldLease; f < fieldsEnd; f <<= 1 {
		var one QueueConfig
		one.merge(c, f)
		if one != (QueueConfig{}) {
			fields |= f
		}
	}
	return fields
}

// appendConfig appends the values of fields, in the order of their bits.
func appendConfig(b []byte, c *QueueConfig, fields ConfigFields) []byte {
	for f := FieldLease; f < fieldsEnd; f <<= 1 {
		switch f & fields {
		case FieldLease:
			b = binary.AppendVarint(b, c.LeaseMs)
		case FieldTTL:
			b = binary.AppendVarint(b, c.TTLMs)
		case FieldDelay:
			b = binary.AppendVarint(b, c.DelayMs)
		case FieldMaxFailures:
			b = binary.AppendVarint(b, int64(c.MaxFailures))
		case FieldDeadLetter:
			b = appendString(b, c.DeadLetter)
		case FieldDeadTTL:
			b = binary.AppendVarint(b, c.DeadTTLMs)
		case FieldBackoff:
			b = binary.AppendVarint(binary.AppendVarint(b, c.BackoffMinMs), c.BackoffMaxMs)
		case FieldMaxLen:
			b = binary.AppendVarint(b, c.MaxLen)
		case FieldMaxBytes:
			b = binary.AppendVarint(b, c.MaxBytes)
		case FieldOverflow:
			b = append(b, c.Overflow)
		case FieldAging:
			b = binary.AppendVarint(b, c.AgingMs)
		case FieldGroupLimit:
			b = binary.AppendVarint(b, int64(c.GroupLimit))
		case FieldFair:
			b = append(b, bit(c.Fair, 1))
		case FieldConsistency:
			b = append(b, c.Consistency)
		}
	}
	return b
}

// config reads what appendConfig wrote; other fields are zero.
func (f *fields) config(c *QueueConfig, set ConfigFields) {
	*c = QueueConfig{}
	for field := FieldLease; field < fieldsEnd; field <<= 1 {
		switch field & set {
		case FieldLease:
			c.LeaseMs = f.varint()
		case FieldTTL:
			c.TTLMs = f.varint()
		case FieldDelay:
			c.DelayMs = f.varint()
		case FieldMaxFailures:
			c.MaxFailures = f.int32()
		case FieldDeadLetter:
			c.DeadLetter = f.text(NameMax)
		case FieldDeadTTL:
			c.DeadTTLMs = f.varint()
		case FieldBackoff:
			c.BackoffMinMs, c.BackoffMaxMs = f.varint(), f.varint()
		case FieldMaxLen:
			c.MaxLen = f.varint()
		case FieldMaxBytes:
			c.MaxBytes = f.varint()
		case FieldOverflow:
			c.Overflow = f.u8()
		case FieldAging:
			c.AgingMs = f.varint()
		case FieldGroupLimit:
			c.GroupLimit = f.int32()
		case FieldFair:
			c.Fair = f.upTo(1) == 1
		case FieldConsistency:
			c.Consistency = f.u8()
		}
	}
	if c.Validate() != nil {
		f.fail()
	}
}

func (*Configure) Kind() Kind { return KindConfigure }

func (op *Configure) size() int {
	return len(op.Queue) + 3 + len(op.Config.DeadLetter) + 16*varintMax + 4
}

func (op *Configure) appendFields(b []byte) []byte {
	if e := op.Config.Validate(); e != nil || op.Fields > AllFields {
		panic("BUG: a configuration that is not valid")
	}
	b = appendName(b, op.Queue)
	b = append(b, bit(op.Create, 1))
	b = binary.AppendUvarint(b, op.IfMatch)
	b = binary.AppendUvarint(b, uint64(op.Fields))
	return appendConfig(b, &op.Config, op.Fields)
}

func (op *Configure) decode(f *fields) (newer bool) {
	op.Queue = f.text(NameMax)
	flags := f.u8()
	op.Create = flags&1 != 0
	op.IfMatch = f.uvarint()
	set := f.uvarint()
	if flags > 1 || set > uint64(AllFields) {
		return true
	}
	op.Fields = ConfigFields(set)
	f.config(&op.Config, op.Fields)
	return false
}

func (op *Configure) release() { *op = Configure{} }
