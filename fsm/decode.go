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

// opSet holds one op of each kind, to decode into.
type opSet struct {
	nodeStart   NodeStart
	nodeAway    NodeAway
	nodeBack    NodeBack
	enqueue     Enqueue
	dequeue     Dequeue
	ack         Ack
	nack        Nack
	released    Release
	extend      Extend
	withdraw    Withdraw
	giveBack    GiveBack
	deleteQueue DeleteQueue
}

// decode decodes raw into the set's op of its kind, reusing that op's slices.
// With views, strings and bodies are views of the entry's data: valid as long
// as the entry is applied, and never kept.
func (s *opSet) decode(raw rawOp, views bool) (Op, error) {
	f := fields{data: raw.fields, views: views}
	var op Op
	newer := false
	switch raw.kind {
	case KindNodeStart:
		s.nodeStart.decode(&f)
		op = &s.nodeStart
	case KindNodeAway:
		s.nodeAway.decode(&f)
		op = &s.nodeAway
	case KindNodeBack:
		op = &s.nodeBack
	case KindEnqueue:
		newer = s.enqueue.decode(&f)
		op = &s.enqueue
	case KindDequeue:
		s.dequeue.decode(&f)
		op = &s.dequeue
	case KindAck:
		s.ack.Items, newer = f.items(s.ack.Items)
		op = &s.ack
	case KindNack:
		s.nack.Items, newer = f.items(s.nack.Items)
		op = &s.nack
	case KindRelease:
		s.released.Items, newer = f.items(s.released.Items)
		op = &s.released
	case KindExtend:
		s.extend.Items, newer = f.items(s.extend.Items)
		op = &s.extend
	case KindWithdraw:
		s.withdraw.decode(&f)
		op = &s.withdraw
	case KindGiveBack:
		s.giveBack.Items, newer = f.items(s.giveBack.Items)
		op = &s.giveBack
	case KindDeleteQueue:
		newer = s.deleteQueue.decode(&f)
		op = &s.deleteQueue
	default:
		newer = true
	}
	switch {
	case f.bad:
		return nil, fmt.Errorf("fields of op kind %d: %w", raw.kind, errMalformed)
	case newer || !f.ok():
		return nil, fmt.Errorf("op kind %d: %w", raw.kind, ErrNewer)
	}
	return op, nil
}

// release forgets what the op of a kind was decoded from: the set outlives the
// entry, and a view keeps the whole entry alive.
func (s *opSet) release(kind Kind) {
	switch kind {
	case KindNodeStart:
		s.nodeStart = NodeStart{}
	case KindEnqueue:
		clear(s.enqueue.Jobs)
	case KindDequeue:
		clear(s.dequeue.Queues)
		s.dequeue.Consumer = ""
	case KindAck:
		clear(s.ack.Items)
	case KindNack:
		clear(s.nack.Items)
	case KindRelease:
		clear(s.released.Items)
	case KindExtend:
		clear(s.extend.Items)
	case KindGiveBack:
		clear(s.giveBack.Items)
	case KindDeleteQueue:
		s.deleteQueue = DeleteQueue{}
	}
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
		op, err := new(opSet).decode(raw, false)
		if err != nil {
			return h, nil, err
		}
		ops = append(ops, op)
	}
	return h, ops, nil
}
