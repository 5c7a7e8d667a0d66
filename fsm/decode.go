package fsm

import (
	"encoding/binary"
	"fmt"
)

// rawOp is an op of a batch with its fields still encoded.
type rawOp struct {
	kind   Kind
	flags  byte
	fields []byte
}

// nextOp takes the first op off the ops of a batch.
func nextOp(data []byte) (op rawOp, rest []byte, err error) {
	if len(data) < opHeaderSize {
		return op, nil, fmt.Errorf("op header of %d bytes: %w", len(data), errMalformed)
	}
	op.kind, op.flags = Kind(data[0]), data[1]
	n := binary.BigEndian.Uint32(data[2:])
	data = data[opHeaderSize:]
	if uint64(n) > uint64(len(data)) {
		return op, nil, fmt.Errorf("op of kind %d: %d bytes of fields announced, %d there: %w", op.kind, n, len(data), errMalformed)
	}
	if op.flags&^(FlagAnswered|FlagVoid) != 0 {
		return op, nil, fmt.Errorf("op of kind %d: flags %#x: %w", op.kind, op.flags, ErrNewer)
	}
	op.fields = data[:n:n]
	return op, data[n:], nil
}

// newOp returns an op of a kind, nil for one that this build does not know.
func newOp(k Kind) Op {
	switch k {
	case KindNodeStart:
		return new(NodeStart)
	case KindNodeAway:
		return new(NodeAway)
	case KindNodeBack:
		return new(NodeBack)
	case KindEnqueue:
		return new(Enqueue)
	case KindDequeue:
		return new(Dequeue)
	case KindAck:
		return new(Ack)
	case KindNack:
		return new(Nack)
	case KindRelease:
		return new(Release)
	case KindExtend:
		return new(Extend)
	case KindWithdraw:
		return new(Withdraw)
	case KindGiveBack:
		return new(GiveBack)
	case KindDeleteQueue:
		return new(DeleteQueue)
	case KindReject:
		return new(Reject)
	case KindSettle:
		return new(Settle)
	case KindTx:
		return new(Tx)
	case KindKeyed:
		return new(Keyed)
	case KindRequeue:
		return new(Requeue)
	case KindHold:
		return new(Hold)
	case KindCancel:
		return new(Cancel)
	case KindDeleteJobs:
		return new(DeleteJobs)
	case KindWithdrawJobs:
		return new(WithdrawJobs)
	case KindPurge:
		return new(Purge)
	case KindRedrive:
		return new(Redrive)
	case KindPause:
		return new(Pause)
	case KindConfigure:
		return new(Configure)
	case KindReleaseConsumer:
		return new(ReleaseConsumer)
	case KindAlarm:
		return new(Alarm)
	case KindAppend:
		return new(Append)
	case KindConfigureTopic:
		return new(ConfigureTopic)
	case KindDeleteTopic:
		return new(DeleteTopic)
	case KindPurgeTopic:
		return new(PurgeTopic)
	case KindSetCursor:
		return new(SetCursor)
	case KindMember:
		return new(MemberChange)
	}
	return nil
}

// opSet holds one op of each kind, made at first use, to decode into.
type opSet struct {
	ops    [kindEnd]Op
	fields fields // scratch of decode
	within *opSet // for the op within a Keyed
}

// of returns the set's op of a kind, nil for one that this build does not know.
func (s *opSet) of(k Kind) Op {
	if k >= kindEnd {
		return nil
	}
	if s.ops[k] == nil {
		s.ops[k] = newOp(k)
	}
	return s.ops[k]
}

// decode decodes raw into the set's op of its kind, reusing that op's slices.
// With views, strings and bodies are views of the entry's data: valid as long
// as the entry is applied, and never kept.
func (s *opSet) decode(raw rawOp, views bool) (Op, error) {
	op := s.of(raw.kind)
	if op == nil {
		return nil, fmt.Errorf("op kind %d: %w", raw.kind, ErrNewer)
	}
	f := &s.fields
	*f = fields{data: raw.fields, views: views}
	if raw.kind == KindKeyed {
		if s.within == nil {
			s.within = new(opSet)
		}
		f.within = s.within
	}
	err := decodeFields(op, f)
	f.data = nil // the set outlives the entry
	if err != nil {
		return nil, err
	}
	return op, nil
}

// decodeFields decodes the fields of op, which are all of f.
func decodeFields(op Op, f *fields) error {
	newer := op.decode(f)
	switch {
	case f.bad:
		return fmt.Errorf("fields of op kind %d: %w", op.Kind(), errMalformed)
	case newer || !f.ok():
		return fmt.Errorf("op kind %d: %w", op.Kind(), ErrNewer)
	}
	return nil
}

// DecodeOps decodes a whole batch. The ops share no memory with data; their
// flags are not part of them.
func DecodeOps(data []byte) (BatchHeader, []Op, error) {
	h, err := ReadBatchHeader(data)
	if err != nil {
		return h, nil, err
	}
	if data[1] != 0 {
		return h, nil, fmt.Errorf("batch flags %#x: %w", data[1], ErrNewer)
	}
	var ops []Op
	for rest := data[BatchHeaderSize:]; len(rest) > 0; {
		var raw rawOp
		if raw, rest, err = nextOp(rest); err != nil {
			return h, nil, err
		}
		op := newOp(raw.kind)
		if op == nil {
			return h, nil, fmt.Errorf("op kind %d: %w", raw.kind, ErrNewer)
		}
		if err := decodeFields(op, &fields{data: raw.fields}); err != nil {
			return h, nil, err
		}
		ops = append(ops, op)
	}
	return h, ops, nil
}
