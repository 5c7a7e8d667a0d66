package fsm

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// Verb is what an item of a Settle asks for.
type Verb uint8

// The verbs; their numbers are in logs.
const (
	VerbAck Verb = iota
	VerbNack
	VerbRelease
	VerbReject
	VerbExtend
	verbEnd
)

// SettleItem is one item of a Settle.
type SettleItem struct {
	Verb Verb
	Item
}

// Settle is a mixed list, item by item, in order. At most BatchItemsMax items.
type Settle struct{ Items []SettleItem }

// Tx applies its ops all or none. Allowed are Ack, Nack, Release, Reject,
// Extend, Settle, Enqueue, Append and SetCursor, at most BatchItemsMax of them.
//
// Result.Parts has a result for each op. When one of them would not have
// succeeded as a whole, Result.Code is CodeAborted and nothing has changed: the
// items that failed carry their own codes, all others CodeAborted.
type Tx struct{ Ops []Op }

// Keyed is an op under an idempotency key. The first time it applies Op and
// keeps its result for IdempotencyMs of log time, refusals included. Again with
// the same Digest nothing is applied and the result is built again from what was
// kept, with Replay; another digest is CodeIdempotencyMismatch. Its result is
// that of Op.
//
// Marks stand in the header of the Keyed itself, never in that of the op within,
// whose flags are 0: FlagVoid makes the whole a no-op, FlagAnswered is that of
// the enqueue within. That enqueue was answered with its own ids, so it goes in
// even when the key is taken by now: by a retry that a later leader saw first. A
// result with Replay or Duplicate is never answered as fast, so it is never
// marked.
type Keyed struct {
	Key    string   // scope (route, queue) and the client's key; at most KeyedMax bytes
	Digest [16]byte // of the request's content, made at the edge
	Op     Op       // a client's write: see InKeyed
}

// InTx tells whether a Tx may hold ops of a kind.
func InTx(k Kind) bool {
	switch k {
	case KindEnqueue, KindAck, KindNack, KindRelease, KindReject, KindExtend, KindSettle, KindAppend, KindSetCursor:
		return true
	}
	return false
}

// InKeyed tells whether a Keyed may hold an op of a kind: the writes that
// clients ask for, except dequeues, which have AttemptID, and the withdrawal of jobs
// that were added under a key.
func InKeyed(k Kind) bool {
	switch k {
	case KindWithdrawJobs, KindTx, KindRequeue, KindHold, KindCancel, KindDeleteJobs, KindPurge, KindRedrive, KindPause, KindConfigure,
		KindReleaseConsumer, KindDeleteQueue, KindConfigureTopic, KindDeleteTopic, KindPurgeTopic:
		return true
	}
	return InTx(k)
}

// EachEnqueue calls do with each enqueue of op: itself, or those within a Keyed
// or a Tx, in order.
func EachEnqueue(op Op, do func(*Enqueue)) {
	switch op := op.(type) {
	case *Enqueue:
		do(op)
	case *Keyed:
		EachEnqueue(op.Op, do)
	case *Tx:
		for _, part := range op.Ops {
			EachEnqueue(part, do)
		}
	}
}

func (*Settle) Kind() Kind { return KindSettle }
func (*Tx) Kind() Kind     { return KindTx }
func (*Keyed) Kind() Kind  { return KindKeyed }

func (op *Settle) size() int {
	n := varintMax
	for i := range op.Items {
		n += 1 + itemSize(&op.Items[i].Item)
	}
	return n
}

func (op *Settle) appendFields(b []byte) []byte {
	assertLimit(len(op.Items), BatchItemsMax, "items of a settle")
	b = binary.AppendUvarint(b, uint64(len(op.Items)))
	before := uint64(0)
	for i := range op.Items {
		it := &op.Items[i]
		assertLimit(int(it.Verb), int(verbEnd)-1, "verb")
		b = appendItem(append(b, byte(it.Verb)), &it.Item, before)
		before = it.Key.Hi
	}
	return b
}

func (op *Settle) decode(f *fields) (newer bool) {
	n := f.count(3)
	if n > BatchItemsMax {
		f.fail()
	}
	op.Items = op.Items[:0]
	before := uint64(0)
	for range n {
		op.Items = append(op.Items, SettleItem{Verb: Verb(f.u8())})
		it := &op.Items[len(op.Items)-1]
		if it.Verb >= verbEnd || f.item(&it.Item, before) {
			return true
		}
		before = it.Key.Hi
	}
	return false
}

func (op *Settle) release() { clear(op.Items) }

// appendNested appends an op within another, with its header.
func appendNested(b []byte, op Op, allowed func(Kind) bool) []byte {
	if !allowed(op.Kind()) {
		panic(fmt.Sprintf("BUG: an op of kind %d within another", op.Kind()))
	}
	n := len(b)
	b = AppendOp(b, op)
	assertLimit(len(b)-n, NestedMax, "op within another")
	return b
}

// nested reads an op within another: into set's, or a new one when set is nil.
// A kind that is not allowed here was written by a build that allows it.
func (f *fields) nested(set *opSet, allowed func(Kind) bool) (op Op, newer bool) {
	raw, rest, err := nextOp(f.data)
	if err != nil || len(f.data)-len(rest) > NestedMax {
		newer = errors.Is(err, ErrNewer)
		f.fail()
		f.bad = !newer
		return nil, newer
	}
	f.data = rest
	if raw.flags != 0 || !allowed(raw.kind) {
		return nil, true
	}
	if set != nil {
		op, err = set.decode(raw, f.views)
	} else {
		op = newOp(raw.kind)
		err = decodeFields(op, &fields{data: raw.fields, views: f.views})
	}
	if err != nil && !errors.Is(err, ErrNewer) {
		f.fail()
	}
	return op, errors.Is(err, ErrNewer)
}

func (op *Tx) size() int {
	n := varintMax
	for _, part := range op.Ops {
		n += Size(part)
	}
	return n
}

func (op *Tx) appendFields(b []byte) []byte {
	assertLimit(len(op.Ops), BatchItemsMax, "ops of a tx")
	b = binary.AppendUvarint(b, uint64(len(op.Ops)))
	for _, part := range op.Ops {
		b = appendNested(b, part, InTx)
	}
	return b
}

func (op *Tx) decode(f *fields) (newer bool) {
	n := f.count(opHeaderSize)
	if n > BatchItemsMax {
		f.fail()
	}
	op.Ops = op.Ops[:0]
	for range n {
		part, newer := f.nested(nil, InTx)
		if newer || f.bad {
			return newer
		}
		op.Ops = append(op.Ops, part)
	}
	return false
}

func (op *Tx) release() { clear(op.Ops) }

func (op *Keyed) size() int { return len(op.Key) + 3 + len(op.Digest) + Size(op.Op) }

func (op *Keyed) appendFields(b []byte) []byte {
	assertLimit(len(op.Key), KeyedMax, "idempotency key")
	b = appendString(b, op.Key)
	b = append(b, op.Digest[:]...)
	return appendNested(b, op.Op, InKeyed)
}

func (op *Keyed) decode(f *fields) (newer bool) {
	op.Key = f.text(KeyedMax)
	if len(f.data) < len(op.Digest) {
		f.fail()
		return false
	}
	f.data = f.data[copy(op.Digest[:], f.data):]
	op.Op, newer = f.nested(f.within, InKeyed)
	return newer
}

func (op *Keyed) release() {
	if op.Op != nil {
		op.Op.release()
	}
	*op = Keyed{}
}
