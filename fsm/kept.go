package fsm

import (
	"encoding/binary"
	"strings"
)

// kept is the result of an op under an idempotency key. It never changes.
type kept struct {
	key     string
	digest  [16]byte
	result  string // what appendResult makes of it
	untilMs int64
	seq     uint64 // places its timer
	index   uint64 // of the entry that made it; 0 in a restored machine: committed
}

func keptLess(a, b *kept) bool { return a.key < b.key }

func (k *kept) lapse() lapse { return lapse{ms: k.untilMs, seq: k.seq, kept: k} }

func (k *kept) bytes() int64 { return keptCost + int64(len(k.key)+len(k.result)) }

func (m *Machine) addKept(k *kept) {
	m.kept.Set(k)
	m.lapses.Set(k.lapse())
	m.bytes += k.bytes()
}

func (m *Machine) dropKept(k *kept) {
	m.kept.Delete(k)
	m.lapses.Delete(k.lapse())
	m.bytes -= k.bytes()
}

// keyed applies an op under its key once. The result is made on every node, as
// it is state.
func (m *Machine) keyed(h BatchHeader, op *Keyed) Code {
	r := &m.run
	before, known := m.kept.Get(&kept{key: op.Key})
	// An op that was answered as fast is applied again whatever came between: its
	// client has its answer.
	if known && !r.answered {
		r.depends = max(r.depends, before.index)
		if before.digest != op.Digest && seeded != "key-of-another-request" {
			return CodeIdempotencyMismatch
		}
		m.noteReplay(before)
		return m.replay(before)
	}
	var own Result
	wanted := r.result
	if wanted == nil {
		r.result = &own
	}
	res := r.result
	code := m.applyOp(h, op.Op)
	res.Code = code
	r.result = wanted
	if !known {
		m.addKept(&kept{
			key: strings.Clone(op.Key), digest: op.Digest, result: string(appendResult(nil, res)),
			untilMs: m.now + IdempotencyMs, seq: m.nextSeq(), index: m.index,
		})
	}
	return code
}

// replay answers from what was kept.
func (m *Machine) replay(k *kept) Code {
	f := fields{data: []byte(k.result)}
	var res Result
	f.result(&res, true)
	if !f.ok() {
		panic("BUG: a kept result that cannot be read")
	}
	if r := m.run.result; r != nil {
		res.Position, res.Replay = r.Position, true
		for i := range res.Parts {
			res.Parts[i].Position = r.Position
		}
		*r = res
	}
	return res.Code
}

// Bits of a kept result: its fields that are not zero, in this order. Position,
// Batch, Fast, Depends and Replay are those of each answer, Parked and Jobs those
// of dequeues, which are not kept.
const (
	resultHasCode = 1 << iota
	resultMore    // no field
	resultHasCount
	resultHasUpTo
	resultHasOffset
	resultHasVersion
	resultHasItems
	resultHasParts
)

// Bits of an item of a kept result.
const (
	keptHasCode  = 1 << iota
	keptHasFlags // those that the chain has
	keptOtherHi  // absent: as the item before, 0 at first
	keptOtherLo  // absent: one more than that of the item before
	keptOtherNode
	keptOtherMinutes
	keptHasLease
	keptMaskEnd
)

// appendResult appends what a replay needs of a result. The ids of an enqueue
// follow each other: most items take one byte.
func appendResult(b []byte, r *Result) []byte {
	mask := byte(0)
	set := func(is bool, bit byte) {
		if is {
			mask |= bit
		}
	}
	set(r.Code != 0, resultHasCode)
	set(r.More, resultMore)
	set(r.Count != 0, resultHasCount)
	set(r.UpTo != 0, resultHasUpTo)
	set(r.Offset != 0, resultHasOffset)
	set(r.Version != 0, resultHasVersion)
	set(len(r.Items) > 0, resultHasItems)
	set(len(r.Parts) > 0, resultHasParts)
	b = append(b, mask)
	if mask&resultHasCode != 0 {
		b = append(b, byte(r.Code))
	}
	for _, v := range [...]uint64{uint64(r.Count), r.UpTo, r.Offset, r.Version} {
		if v != 0 {
			b = binary.AppendUvarint(b, v)
		}
	}
	if mask&resultHasItems != 0 {
		b = binary.AppendUvarint(b, uint64(len(r.Items)))
		var last ID
		for i := range r.Items {
			b = r.Items[i].appendKept(b, last)
			last = r.Items[i].ID
		}
	}
	if mask&resultHasParts != 0 {
		b = binary.AppendUvarint(b, uint64(len(r.Parts)))
		for i := range r.Parts {
			b = appendResult(b, &r.Parts[i])
		}
	}
	return b
}

func (r *ItemResult) appendKept(b []byte, last ID) []byte {
	mask := byte(0)
	set := func(is bool, bit byte) {
		if is {
			mask |= bit
		}
	}
	set(r.Code != 0, keptHasCode)
	set(r.flags() != 0, keptHasFlags)
	set(r.ID.Key.Hi != last.Key.Hi, keptOtherHi)
	set(r.ID.Key.Lo != last.Key.Lo+1, keptOtherLo)
	set(r.ID.Node != last.Node, keptOtherNode)
	set(r.ID.Minutes != last.Minutes, keptOtherMinutes)
	set(r.LeaseUntil != 0, keptHasLease)
	b = append(b, mask)
	if mask&keptHasCode != 0 {
		b = append(b, byte(r.Code))
	}
	if mask&keptHasFlags != 0 {
		b = append(b, r.flags())
	}
	if mask&keptOtherHi != 0 {
		b = binary.BigEndian.AppendUint64(b, r.ID.Key.Hi)
	}
	if mask&keptOtherLo != 0 {
		b = binary.AppendUvarint(b, r.ID.Key.Lo)
	}
	if mask&keptOtherNode != 0 {
		b = binary.AppendUvarint(b, uint64(r.ID.Node))
	}
	if mask&keptOtherMinutes != 0 {
		b = binary.AppendUvarint(b, uint64(r.ID.Minutes))
	}
	if mask&keptHasLease != 0 {
		b = binary.AppendVarint(b, r.LeaseUntil)
	}
	return b
}

// result fills the zero r with what appendResult wrote; parts tells whether it may
// have parts.
func (f *fields) result(r *Result, parts bool) {
	mask := f.u8()
	if mask&resultHasCode != 0 {
		r.Code = f.code()
	}
	r.More = mask&resultMore != 0
	if mask&resultHasCount != 0 {
		r.Count = int(f.upTo(1<<63 - 1))
	}
	if mask&resultHasUpTo != 0 {
		r.UpTo = f.uvarint()
	}
	if mask&resultHasOffset != 0 {
		r.Offset = f.uvarint()
	}
	if mask&resultHasVersion != 0 {
		r.Version = f.uvarint()
	}
	if mask&resultHasItems != 0 {
		r.Items = make([]ItemResult, f.count(1))
		var last ID
		for i := range r.Items {
			f.keptItem(&r.Items[i], last)
			last = r.Items[i].ID
		}
	}
	if mask&resultHasParts != 0 {
		if !parts {
			f.fail()
		}
		r.Parts = make([]Result, f.count(1))
		for i := range r.Parts {
			f.result(&r.Parts[i], false)
		}
	}
}

func (f *fields) keptItem(r *ItemResult, last ID) {
	mask := f.u8()
	if mask >= keptMaskEnd {
		f.fail()
	}
	if mask&keptHasCode != 0 {
		r.Code = f.code()
	}
	if mask&keptHasFlags != 0 {
		r.setFlags(f.u8())
	}
	r.ID = ID{Key{last.Key.Hi, last.Key.Lo + 1}, last.Node, last.Minutes}
	if mask&keptOtherHi != 0 {
		r.ID.Key.Hi = f.u64()
	}
	if mask&keptOtherLo != 0 {
		r.ID.Key.Lo = f.uvarint()
	}
	if mask&keptOtherNode != 0 {
		r.ID.Node = uint32(f.upTo(1<<32 - 1))
	}
	if mask&keptOtherMinutes != 0 {
		r.ID.Minutes = uint16(f.upTo(1<<16 - 1))
	}
	if mask&keptHasLease != 0 {
		r.LeaseUntil = f.varint()
	}
}

// code reads a code: they are in the chain, so all builds know the same.
func (f *fields) code() Code {
	c := Code(f.u8())
	if c >= codeCount {
		f.fail()
	}
	return c
}

// flags are the flags of an item's result, as the chain and kept results have
// them.
func (r *ItemResult) flags() (flags byte) {
	if r.Late {
		flags |= 1
	}
	if r.Already {
		flags |= 2
	}
	if r.Dead {
		flags |= 4
	}
	if r.Duplicate {
		flags |= 8
	}
	if r.Cancel {
		flags |= 16
	}
	return flags
}

func (r *ItemResult) setFlags(flags byte) {
	r.Late, r.Already, r.Dead = flags&1 != 0, flags&2 != 0, flags&4 != 0
	r.Duplicate, r.Cancel = flags&8 != 0, flags&16 != 0
}

func (m *Machine) encodeKept(e *encoder) {
	e.open(sectionKept)
	m.kept.Scan(func(k *kept) bool {
		if seeded == "idempotency-not-in-snapshot" {
			return true
		}
		e.text(k.key)
		e.buf = append(e.buf, k.digest[:]...)
		e.ms(k.untilMs)
		e.uvarint(k.seq)
		e.text(k.result)
		e.done()
		return e.err == nil
	})
}

func (d *decoder) kept(f *fields) error {
	m := d.m
	k := &kept{key: string(f.raw(KeyedMax))}
	if len(f.data) < len(k.digest) {
		return errState
	}
	f.data = f.data[copy(k.digest[:], f.data):]
	k.untilMs, k.seq, k.result = f.ms(), f.upTo(seqMax), string(f.raw(blockMax))
	last, some := m.kept.Max()
	check := fields{data: []byte(k.result)}
	check.result(&Result{}, true)
	if f.bad || !check.ok() || k.untilMs <= m.now || some && !keptLess(last, k) {
		return errState
	}
	d.seqs = append(d.seqs, k.seq)
	m.addKept(k)
	return nil
}
