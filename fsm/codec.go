package fsm

import (
	"encoding/binary"
	"fmt"
)

// The fields of each op, in the order of docs/format-log.md. Optional fields are
// announced by a mask; a bit that the build does not know, as a byte left over
// after the fields, was written by a newer build. The encoder asserts the limits
// that the edge checks, the decoder checks them again.

func (*NodeStart) Kind() Kind   { return KindNodeStart }
func (*NodeAway) Kind() Kind    { return KindNodeAway }
func (*NodeBack) Kind() Kind    { return KindNodeBack }
func (*Enqueue) Kind() Kind     { return KindEnqueue }
func (*Dequeue) Kind() Kind     { return KindDequeue }
func (*Ack) Kind() Kind         { return KindAck }
func (*Nack) Kind() Kind        { return KindNack }
func (*Release) Kind() Kind     { return KindRelease }
func (*Reject) Kind() Kind      { return KindReject }
func (*Extend) Kind() Kind      { return KindExtend }
func (*Withdraw) Kind() Kind    { return KindWithdraw }
func (*GiveBack) Kind() Kind    { return KindGiveBack }
func (*DeleteQueue) Kind() Kind { return KindDeleteQueue }

const (
	addressMax = 4096 // bytes of an advertised address or a version
	varintMax  = binary.MaxVarintLen64
)

// Bits of a job's mask. Each of the first job's absent fields is its zero value;
// an absent queue is that of the job before.
const (
	jobHasQueue = 1 << iota
	jobAtMostOnce
	jobHasPriority // absent: PriorityDefault
	jobHasHeaders
	jobHasDelay
	jobHasAt
	jobHasLease
	jobHasTTL
	jobHasMaxFailures
	jobHasGroup
	jobHasDedupID
	jobHasDedupTTL
	jobHasUniqueKey
	jobHasMaxLen
	jobMaskEnd
)

// Bits of an item's mask.
const (
	itemByID     = 1 << iota
	itemSameHi   // the key's high half is that of the item before
	itemReceipt  // grant and tag follow
	itemHasDelay // absent: -1
	itemHasLease
	itemHasError
	itemMaskEnd
)

func assertLimit(n, limit int, what string) {
	if n > limit {
		panic(fmt.Sprintf("BUG: %s of %d bytes or items, limit %d", what, n, limit))
	}
}

func (op *NodeStart) size() int {
	return len(op.Client) + len(op.Peer) + len(op.Version) + 5*varintMax
}

func (op *NodeStart) appendFields(b []byte) []byte {
	for _, s := range [...]string{op.Client, op.Peer, op.Version} {
		assertLimit(len(s), addressMax, "address")
		b = appendString(b, s)
	}
	b = binary.AppendUvarint(b, uint64(op.FeatureLevel))
	return binary.AppendVarint(b, op.MaxMemory)
}

func (op *NodeStart) decode(f *fields) (newer bool) {
	op.Client = f.text(addressMax)
	op.Peer = f.text(addressMax)
	op.Version = f.text(addressMax)
	op.FeatureLevel = uint32(f.upTo(1<<32 - 1))
	op.MaxMemory = f.varint()
	return false
}

func (op *NodeStart) release() { *op = NodeStart{} }

func (op *NodeAway) size() int { return 8 + varintMax }

func (op *NodeAway) appendFields(b []byte) []byte {
	b = binary.BigEndian.AppendUint64(b, op.Node)
	return binary.AppendUvarint(b, op.Epoch)
}

func (op *NodeAway) decode(f *fields) (newer bool) {
	op.Node = f.u64()
	op.Epoch = f.uvarint()
	return false
}

func (op *NodeAway) release() {}

func (op *NodeBack) size() int                    { return 0 }
func (op *NodeBack) appendFields(b []byte) []byte { return b }
func (op *NodeBack) decode(*fields) (newer bool)  { return false }
func (op *NodeBack) release()                     {}

func (op *Enqueue) size() int {
	n := 2*varintMax + 1
	for i := range op.Jobs {
		j := &op.Jobs[i]
		n += 3 + 2 + len(j.Queue) + 4 + len(j.Body) + 1 + 8*varintMax + 6 + len(j.Group) + len(j.DedupID) + len(j.UniqueKey)
		for _, h := range j.Headers {
			n += len(h.Name) + len(h.Value) + 6
		}
	}
	return n
}

func (op *Enqueue) appendFields(b []byte) []byte {
	b = binary.AppendUvarint(b, op.First)
	if op.Atomic {
		b = append(b, 1)
	} else {
		b = append(b, 0)
	}
	b = binary.AppendUvarint(b, uint64(len(op.Jobs)))
	for i := range op.Jobs {
		before := ""
		if i > 0 {
			before = op.Jobs[i-1].Queue
		}
		b = op.Jobs[i].appendFields(b, before)
	}
	return b
}

func (op *Enqueue) decode(f *fields) (newer bool) {
	op.First = f.uvarint()
	flags := f.u8()
	op.Atomic = flags&1 != 0
	n := f.count(2)
	op.Jobs = op.Jobs[:0]
	before := ""
	for range n {
		op.Jobs = append(op.Jobs, NewJob{})
		j := &op.Jobs[len(op.Jobs)-1]
		if j.decode(f, before) {
			return true
		}
		before = j.Queue
	}
	return flags > 1
}

func (op *Enqueue) release() { clear(op.Jobs) }

func (j *NewJob) appendFields(b []byte, before string) []byte {
	assertLimit(len(j.Queue), NameMax, "queue name")
	assertLimit(len(j.Body), BodyMax, "body")
	assertLimit(int(j.Priority), 9, "priority")
	assertLimit(len(j.Group), KeyMax, "group")
	assertLimit(len(j.DedupID), KeyMax, "dedup id")
	assertLimit(len(j.UniqueKey), KeyMax, "unique key")
	mask := uint64(0)
	set := func(is bool, bit uint64) {
		if is {
			mask |= bit
		}
	}
	set(j.Queue != before, jobHasQueue)
	set(j.AtMostOnce, jobAtMostOnce)
	set(j.Priority != PriorityDefault, jobHasPriority)
	set(len(j.Headers) > 0, jobHasHeaders)
	set(j.DelayMs != 0, jobHasDelay)
	set(j.AtMs != 0, jobHasAt)
	set(j.LeaseMs != 0, jobHasLease)
	set(j.TTLMs != 0, jobHasTTL)
	set(j.MaxFailures != 0, jobHasMaxFailures)
	set(j.Group != "", jobHasGroup)
	set(j.DedupID != "", jobHasDedupID)
	set(j.DedupTTLMs != 0, jobHasDedupTTL)
	set(j.UniqueKey != "", jobHasUniqueKey)
	set(j.MaxLen != 0, jobHasMaxLen)
	b = binary.AppendUvarint(b, mask)
	if mask&jobHasQueue != 0 {
		b = appendString(b, j.Queue)
	}
	b = appendBytes(b, j.Body)
	if mask&jobHasPriority != 0 {
		b = append(b, j.Priority)
	}
	if mask&jobHasHeaders != 0 {
		b = appendHeaders(b, j.Headers)
	}
	for _, v := range [...]int64{j.DelayMs, j.AtMs, j.LeaseMs, j.TTLMs, int64(j.MaxFailures)} {
		if v != 0 {
			b = binary.AppendVarint(b, v)
		}
	}
	if mask < jobHasGroup {
		return b
	}
	if j.Group != "" {
		b = appendString(b, j.Group)
	}
	if j.DedupID != "" {
		b = appendString(b, j.DedupID)
	}
	if j.DedupTTLMs != 0 {
		b = binary.AppendVarint(b, j.DedupTTLMs)
	}
	if j.UniqueKey != "" {
		b = appendString(b, j.UniqueKey)
	}
	if j.MaxLen != 0 {
		b = binary.AppendVarint(b, j.MaxLen)
	}
	return b
}

// decode fills the zero j. It is true when a newer build wrote the job.
func (j *NewJob) decode(f *fields, before string) (newer bool) {
	mask := f.uvarint()
	if mask >= jobMaskEnd {
		return true
	}
	j.Queue = before
	if mask&jobHasQueue != 0 {
		j.Queue = f.text(NameMax)
	}
	j.Body = f.bytes(BodyMax)
	j.AtMostOnce = mask&jobAtMostOnce != 0
	j.Priority = PriorityDefault
	if mask&jobHasPriority != 0 {
		if j.Priority = f.u8(); j.Priority > 9 {
			f.fail()
		}
	}
	if mask&jobHasHeaders != 0 {
		j.Headers = f.headers()
	}
	if mask&jobHasDelay != 0 {
		j.DelayMs = f.varint()
	}
	if mask&jobHasAt != 0 {
		j.AtMs = f.varint()
	}
	if mask&jobHasLease != 0 {
		j.LeaseMs = f.varint()
	}
	if mask&jobHasTTL != 0 {
		j.TTLMs = f.varint()
	}
	if mask&jobHasMaxFailures != 0 {
		j.MaxFailures = f.int32()
	}
	if mask < jobHasGroup {
		return false
	}
	if mask&jobHasGroup != 0 {
		j.Group = f.text(KeyMax)
	}
	if mask&jobHasDedupID != 0 {
		j.DedupID = f.text(KeyMax)
	}
	if mask&jobHasDedupTTL != 0 {
		j.DedupTTLMs = f.varint()
	}
	if mask&jobHasUniqueKey != 0 {
		j.UniqueKey = f.text(KeyMax)
	}
	if mask&jobHasMaxLen != 0 {
		j.MaxLen = f.varint()
	}
	return false
}

func appendHeaders(b []byte, headers []Header) []byte {
	b = binary.AppendUvarint(b, uint64(len(headers)))
	n := 0
	for _, h := range headers {
		n += len(h.Name) + len(h.Value)
		b = appendString(b, h.Name)
		b = appendString(b, h.Value)
	}
	assertLimit(n, HeadersMax, "headers")
	return b
}

func (f *fields) headers() []Header {
	n := f.count(2)
	if n == 0 {
		return nil
	}
	headers := make([]Header, n)
	left := HeadersMax
	for i := range headers {
		headers[i].Name = f.text(left)
		left -= len(headers[i].Name)
		headers[i].Value = f.text(left)
		left -= len(headers[i].Value)
	}
	return headers
}

func (op *Dequeue) size() int {
	n := len(op.Consumer) + len(op.AttemptID) + 7*varintMax
	for _, q := range op.Queues {
		n += len(q) + 2
	}
	return n
}

func (op *Dequeue) appendFields(b []byte) []byte {
	assertLimit(len(op.Queues), QueuesMax, "queues of a dequeue")
	assertLimit(len(op.Consumer), ConsumerMax, "consumer")
	b = binary.AppendUvarint(b, op.Request)
	b = binary.AppendUvarint(b, uint64(len(op.Queues)))
	for _, q := range op.Queues {
		assertLimit(len(q), NameMax, "queue name")
		b = appendString(b, q)
	}
	b = binary.AppendVarint(b, int64(op.Max))
	b = binary.AppendVarint(b, op.LeaseMs)
	b = binary.AppendVarint(b, op.WaitMs)
	b = appendString(b, op.Consumer)
	if op.AttemptID == "" {
		return b // as builds of level 1 know it
	}
	assertLimit(len(op.AttemptID), KeyMax, "attempt id")
	return appendString(b, op.AttemptID)
}

func (op *Dequeue) decode(f *fields) (newer bool) {
	op.Request = f.uvarint()
	n := f.count(1)
	if n > QueuesMax {
		f.fail()
	}
	op.Queues = op.Queues[:0]
	for range n {
		op.Queues = append(op.Queues, f.text(NameMax))
	}
	op.Max = f.int32()
	op.LeaseMs = f.varint()
	op.WaitMs = f.varint()
	op.Consumer = f.text(ConsumerMax)
	op.AttemptID = ""
	if len(f.data) > 0 {
		op.AttemptID = f.text(KeyMax)
	}
	return false
}

func (op *Dequeue) release() {
	clear(op.Queues)
	op.Consumer, op.AttemptID = "", ""
}

func itemSize(it *Item) int { return 1 + 8 + 8 + 4*varintMax + len(it.Error) + 2 }

func itemsSize(items []Item) int {
	n := varintMax
	for i := range items {
		n += itemSize(&items[i])
	}
	return n
}

func appendItems(b []byte, items []Item) []byte {
	b = binary.AppendUvarint(b, uint64(len(items)))
	before := uint64(0)
	for i := range items {
		b = appendItem(b, &items[i], before)
		before = items[i].Key.Hi
	}
	return b
}

// appendItem appends an item; before is the high half of the key of the item
// before, 0 for the first.
func appendItem(b []byte, it *Item, before uint64) []byte {
	assertLimit(len(it.Error), ErrorTextMax, "error text")
	mask := byte(0)
	if it.ByID {
		mask |= itemByID
	}
	if it.Key.Hi == before {
		mask |= itemSameHi
	}
	if it.Grant != 0 || it.Tag != 0 {
		mask |= itemReceipt
	}
	if it.DelayMs != -1 {
		mask |= itemHasDelay
	}
	if it.LeaseMs != 0 {
		mask |= itemHasLease
	}
	if it.Error != "" {
		mask |= itemHasError
	}
	b = append(b, mask)
	if mask&itemSameHi == 0 {
		b = binary.BigEndian.AppendUint64(b, it.Key.Hi)
	}
	b = binary.AppendUvarint(b, it.Key.Lo)
	if mask&itemReceipt != 0 {
		b = binary.AppendUvarint(b, uint64(it.Grant))
		b = binary.BigEndian.AppendUint64(b, it.Tag)
	}
	if mask&itemHasDelay != 0 {
		b = binary.AppendVarint(b, it.DelayMs)
	}
	if mask&itemHasLease != 0 {
		b = binary.AppendVarint(b, it.LeaseMs)
	}
	if mask&itemHasError != 0 {
		b = appendString(b, it.Error)
	}
	return b
}

// items reads what appendItems wrote into the memory of buf.
func (f *fields) items(buf []Item) (items []Item, newer bool) {
	n := f.count(2)
	items = buf[:0]
	before := uint64(0)
	for range n {
		items = append(items, Item{})
		it := &items[len(items)-1]
		if f.item(it, before) {
			return items, true
		}
		before = it.Key.Hi
	}
	return items, false
}

// item fills the zero it with what appendItem wrote.
func (f *fields) item(it *Item, before uint64) (newer bool) {
	mask := f.u8()
	if mask >= itemMaskEnd {
		return true
	}
	it.ByID = mask&itemByID != 0
	it.Key.Hi = before
	if mask&itemSameHi == 0 {
		it.Key.Hi = f.u64()
	}
	it.Key.Lo = f.uvarint()
	if mask&itemReceipt != 0 {
		it.Grant = uint32(f.upTo(1<<32 - 1))
		it.Tag = f.u64()
	}
	it.DelayMs = -1
	if mask&itemHasDelay != 0 {
		it.DelayMs = f.varint()
	}
	if mask&itemHasLease != 0 {
		it.LeaseMs = f.varint()
	}
	if mask&itemHasError != 0 {
		it.Error = f.text(ErrorTextMax)
	}
	return false
}

func (op *Ack) size() int      { return itemsSize(op.Items) }
func (op *Nack) size() int     { return itemsSize(op.Items) }
func (op *Release) size() int  { return itemsSize(op.Items) }
func (op *Reject) size() int   { return itemsSize(op.Items) }
func (op *Extend) size() int   { return itemsSize(op.Items) }
func (op *GiveBack) size() int { return itemsSize(op.Items) }

func (op *Ack) appendFields(b []byte) []byte      { return appendItems(b, op.Items) }
func (op *Nack) appendFields(b []byte) []byte     { return appendItems(b, op.Items) }
func (op *Release) appendFields(b []byte) []byte  { return appendItems(b, op.Items) }
func (op *Reject) appendFields(b []byte) []byte   { return appendItems(b, op.Items) }
func (op *Extend) appendFields(b []byte) []byte   { return appendItems(b, op.Items) }
func (op *GiveBack) appendFields(b []byte) []byte { return appendItems(b, op.Items) }

func (op *Ack) decode(f *fields) (newer bool) {
	op.Items, newer = f.items(op.Items)
	return newer
}

func (op *Nack) decode(f *fields) (newer bool) {
	op.Items, newer = f.items(op.Items)
	return newer
}

func (op *Release) decode(f *fields) (newer bool) {
	op.Items, newer = f.items(op.Items)
	return newer
}

func (op *Reject) decode(f *fields) (newer bool) {
	op.Items, newer = f.items(op.Items)
	return newer
}

func (op *Extend) decode(f *fields) (newer bool) {
	op.Items, newer = f.items(op.Items)
	return newer
}

func (op *GiveBack) decode(f *fields) (newer bool) {
	op.Items, newer = f.items(op.Items)
	return newer
}

func (op *Ack) release()      { clear(op.Items) }
func (op *Nack) release()     { clear(op.Items) }
func (op *Release) release()  { clear(op.Items) }
func (op *Reject) release()   { clear(op.Items) }
func (op *Extend) release()   { clear(op.Items) }
func (op *GiveBack) release() { clear(op.Items) }

func (op *Withdraw) size() int { return (len(op.Requests) + 1) * varintMax }

func (op *Withdraw) appendFields(b []byte) []byte {
	b = binary.AppendUvarint(b, uint64(len(op.Requests)))
	for _, r := range op.Requests {
		b = binary.AppendUvarint(b, r)
	}
	return b
}

func (op *Withdraw) decode(f *fields) (newer bool) {
	n := f.count(1)
	op.Requests = op.Requests[:0]
	for range n {
		op.Requests = append(op.Requests, f.uvarint())
	}
	return false
}

func (op *Withdraw) release() {}

func (op *DeleteQueue) size() int { return len(op.Queue) + 3 }

func (op *DeleteQueue) appendFields(b []byte) []byte {
	assertLimit(len(op.Queue), NameMax, "queue name")
	b = appendString(b, op.Queue)
	if op.Force {
		return append(b, 1)
	}
	return append(b, 0)
}

func (op *DeleteQueue) decode(f *fields) (newer bool) {
	op.Queue = f.text(NameMax)
	flags := f.u8()
	op.Force = flags&1 != 0
	return flags > 1
}

func (op *DeleteQueue) release() { *op = DeleteQueue{} }
