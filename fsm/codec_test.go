package fsm

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// sampleOps has each kind of op, with all fields set somewhere.
func sampleOps() []Op {
	items := []Item{
		{Key: Key{1<<32 | 7, 300}, Grant: 2, Tag: 1 << 60, DelayMs: -1},
		{Key: Key{1<<32 | 7, 1}, ByID: true, DelayMs: 0, LeaseMs: 5000, Error: "boom"},
		{Key: Key{2<<32 | 9, 1 << 40}, Grant: 1<<32 - 1, Tag: 1, DelayMs: 1500},
	}
	return []Op{
		&NodeStart{Client: "h:8080", Peer: "http://h:9080", Version: "v0.1", FeatureLevel: 3, MaxMemory: 1 << 33},
		&NodeAway{Node: 1 << 63, Epoch: 1<<32 | 7},
		&NodeBack{},
		&Enqueue{First: 17, Atomic: true, Jobs: []NewJob{
			{Queue: "a", Body: []byte("one"), Priority: 4},
			{Queue: "a", Body: []byte("two"), Priority: 9, AtMostOnce: true, DelayMs: 5, AtMs: 6, LeaseMs: 7, TTLMs: 8, MaxFailures: -1},
			{Queue: "b", Priority: 0, Headers: []Header{{"k", "v"}, {"l", ""}}},
		}},
		&Dequeue{Request: 9, Queues: []string{"a", "b"}, Max: 10, LeaseMs: 60_000, WaitMs: 1000, Consumer: "w"},
		&Ack{items},
		&Nack{items},
		&Release{items[:1]},
		&Extend{items},
		&Withdraw{[]uint64{1, 1 << 40}},
		&GiveBack{items[:1]},
		&DeleteQueue{Queue: "a", Force: true},

		&Reject{items[1:]},
		&Settle{[]SettleItem{{VerbNack, items[1]}, {VerbExtend, items[0]}, {VerbAck, items[2]}, {VerbRelease, items[0]}, {VerbReject, items[1]}}},
		&Tx{[]Op{&Ack{items}, &Enqueue{First: 3, Jobs: []NewJob{{Queue: "a", Priority: 4}}}, &Ack{items[:1]}}},
		&Keyed{Key: "k", Digest: [16]byte{0: 0xab, 15: 0xcd}, Op: &Tx{[]Op{&Nack{items[:1]}}}},
		&Requeue{Keys: []Key{{1<<32 | 7, 300}, {2<<32 | 9, 1 << 40}}},
		&Requeue{Keys: []Key{{1<<32 | 7, 300}}, From: StateHeld | StateDead, Nack: true},
		&Hold{Keys: []Key{{1<<32 | 7, 300}}},
		&Hold{Keys: []Key{{1<<32 | 7, 300}}, From: StateReady, ForMs: 60_000},
		&Cancel{[]Key{{1<<32 | 7, 300}}},
		&DeleteJobs{[]Key{{1<<32 | 7, 300}}},
		&WithdrawJobs{[]Key{{1<<32 | 7, 300}}},
		&Purge{Queue: "a", States: StateReady | StateDead, UpTo: 1 << 20},
		&Redrive{Queue: "a", To: "b", Reason: "rejected", Max: 100, UpTo: 5},
		&Pause{Queue: "a", In: true, UntilMs: 1_700_000_000_000},
		&Configure{Queue: "a", Fields: AllFields, IfMatch: 300, Create: true, Config: QueueConfig{
			LeaseMs: 1000, TTLMs: 2000, DelayMs: 3000, MaxFailures: -1, DeadLetter: "d", DeadTTLMs: 4000, BackoffMinMs: 1, BackoffMaxMs: 2,
			MaxLen: 5, MaxBytes: 6, Overflow: OverflowDropOldest, AgingMs: 7, GroupLimit: 8, Fair: true, Consistency: ConsistencyFast,
		}},
		&ReleaseConsumer{Consumer: "w", UpTo: 9},
		&Alarm{Disk: 95},

		&Enqueue{First: 1, Jobs: []NewJob{
			{Queue: "a", Priority: 4, Group: "g", DedupID: "d", DedupTTLMs: 1000, UniqueKey: "u", MaxLen: 5},
			{Queue: "a", Priority: 4, UniqueKey: "v"},
		}},
		&Dequeue{Request: 9, Queues: []string{"a"}, AttemptID: "again"},
		&Configure{Queue: "a", Fields: FieldDeadLetter | FieldBackoff, Config: QueueConfig{DeadLetter: "d", BackoffMinMs: 1, BackoffMaxMs: 2}},
		&Keyed{Key: "enqueue a 1", Digest: [16]byte{15: 1}, Op: &DeleteQueue{Queue: "a"}},
		&Append{Topic: "t", Messages: []NewMessage{{}, {Body: []byte("b"), Headers: []Header{{"a", "1"}, {"b", ""}}}}},
		&ConfigureTopic{Topic: "t", Config: TopicConfig{MaxCount: 5, MaxBytes: 1 << 40, MaxAgeMs: 7, Consistency: 2}, Fields: AllTopicFields, IfMatch: 9, Create: true},
		&DeleteTopic{Topic: "t"},
		&PurgeTopic{Topic: "t", Before: 1<<64 - 1},
		&SetCursor{Topic: "t", Cursor: "c", Offset: 5, IfMatch: 1, Create: true, Delete: true},
		&Tx{Ops: []Op{&Append{Topic: "t", Messages: []NewMessage{{Body: []byte("b")}}}, &SetCursor{Topic: "t", Cursor: "c"}}},
		&MemberChange{MemberAdd, Member{ID: 1 << 63, Name: "n4", Peer: "http://h:9080", Learner: true, Standby: true, Join: 7}},
		&MemberChange{MemberRemove, Member{ID: 5}},
	}
}

// TestBatchBytes proves that the wire form of each op stays what it is: other
// builds wrote logs in it.
func TestBatchBytes(t *testing.T) {
	want := []string{
		"01 00 00000020 06683a383038300d687474703a2f2f683a393038300476302e31038080808040",
		"02 00 0000000d 8000000000000000 8780808010",
		"03 00 00000000",
		"04 00 00000023 11 01 03 01 0161 036f6e65 f603 0374776f 09 0a 0c 0e 10 01 0d 0162 00 00 02 016b 0176 016c 00",
		"05 00 0000000e 09 02 0161 0162 14 c0a907 d00f 0177",
		"06 00 0000003d 03 04 0000000100000007 ac02 02 1000000000000000 3b 01 00 904e 04626f6f6d 0c 0000000200000009 808080808020 ffffffff0f 0000000000000001 b817",
		"07 00 0000003d 03040000000100000007ac020210000000000000003b0100904e04626f6f6d0c0000000200000009808080808020ffffffff0f0000000000000001b817",
		"08 00 00000015 01040000000100000007ac02021000000000000000",
		"09 00 0000003d 03040000000100000007ac020210000000000000003b0100904e04626f6f6d0c0000000200000009808080808020ffffffff0f0000000000000001b817",
		"0a 00 00000008 0201808080808020",
		"0b 00 00000015 01040000000100000007ac02021000000000000000",
		"0c 00 00000003 016101",
		"0d 00 00000031 023900000001000000070100904e04626f6f6d0c0000000200000009808080808020ffffffff0f0000000000000001b817",
		"0e 00 00000060 05013900000001000000070100904e04626f6f6d0406ac02021000000000000000000c0000000200000009808080808020ffffffff0f0000000000000001b81702040000000100000007ac02021000000000000000033b0100904e04626f6f6d",
		"0f 00 0000006c 0306000000003d03040000000100000007ac020210000000000000003b0100904e04626f6f6d0c0000000200000009808080808020ffffffff0f0000000000000001b8170400000000070300010101610006000000001501040000000100000007ac02021000000000000000",
		"10 00 00000034 016bab0000000000000000000000000000cd0f000000001c0107000000001501040000000100000007ac02021000000000000000",
		"11 00 0000001b 020000000100000007ac020000000200000009808080808020 00 00",
		"11 00 0000000d 010000000100000007ac02 18 01",
		"12 00 0000000d 010000000100000007ac02 00 00",
		"12 00 0000000f 010000000100000007ac02 02 c0a907",
		"13 00 0000000b 010000000100000007ac02",
		"14 00 0000000b 010000000100000007ac02",
		"15 00 0000000b 010000000100000007ac02",
		"16 00 00000006 016112808040",
		"17 00 00000010 016101620872656a6563746564c80105",
		"18 00 00000009 01610180a0abfef962",
		"19 00 0000001b 016101ac02ff7fd00fa01ff02e010164c03e02040a0c010e100102",
		"1a 00 00000003 017709",
		"1b 00 00000001 5f",
		"04 00 00000016 010002817c01610001670164d00f01750a8020000176",
		"05 00 0000000e 090101610000000005616761696e",
		"19 00 00000009 016100005001640204",
		"10 00 00000025 0b656e717565756520612031000000000000000000000000000000010c0000000003016100",
		"1c 00 0000000f 017402000002016101310162000162",
		"1d 00 0000000e 01740f0580808080802007020901",
		"1e 00 00000002 0174",
		"1f 00 0000000c 0174ffffffffffffffffff01",
		"20 00 00000007 01740163050103",
		"0f 00 0000001a 021c000000000601740100016220000000000701740163000000",
		"21 00 00000023 01 8000000000000000 07 026e34 0d687474703a2f2f683a39303830 0000000000000007",
		"21 00 0000000c 03 0000000000000005 00 00 00",
	}
	h := BatchHeader{Origin: 1, Epoch: 2, Number: 3, Term: 4, TimeMs: 5}
	const header = "01 00 0000000000000001 0000000000000002 0000000000000003 0000000000000004 0000000000000005"
	if len(want) != len(sampleOps()) {
		t.Fatalf("%d samples, %d known", len(sampleOps()), len(want))
	}
	for i, op := range sampleOps() {
		got := hex.EncodeToString(EncodeBatch(h, op))
		if w := strings.ReplaceAll(header+want[i], " ", ""); got != w {
			t.Errorf("%T\n got %s\nwant %s", op, got, w)
		}
	}
}

// TestCodec proves that every op survives the codec, that its copy shares no
// memory with the entry, and that Size is an upper bound.
func TestCodec(t *testing.T) {
	h := BatchHeader{Origin: 1, Epoch: 2, Number: 3, Term: 4, TimeMs: 5}
	data := EncodeBatch(h, sampleOps()...)
	got, ops, err := DecodeOps(data)
	if err != nil || got != h {
		t.Fatalf("header %+v, %v", got, err)
	}
	for i := range data {
		data[i] = 0xff
	}
	if !reflect.DeepEqual(ops, sampleOps()) {
		t.Errorf("decoded\n%s\nwant\n%s", dump(ops), dump(sampleOps()))
	}
	for _, op := range sampleOps() {
		if n := len(AppendOp(nil, op)); n > Size(op) {
			t.Errorf("%T takes %d bytes, Size says %d", op, n, Size(op))
		}
	}
	for op := range allKinds() {
		if _, err := new(opSet).decode(rawOp{kind: op}, true); errors.Is(err, ErrNewer) {
			t.Errorf("kind %d is not known to decode", op)
		}
	}
}

// TestKindsInSamples proves that the tests see each kind.
func TestKindsInSamples(t *testing.T) {
	for k := KindNodeStart; k < kindEnd; k++ {
		if !allKinds()[k] || newOp(k).Kind() != k {
			t.Errorf("kind %d", k)
		}
	}
	if newOp(kindEnd) != nil || newOp(0) != nil {
		t.Error("an op of no kind")
	}
}

// TestLevels proves which ops builds of level 1 know.
func TestLevels(t *testing.T) {
	for i, op := range sampleOps() {
		want := uint32(2)
		if i < 12 {
			want = 1
		}
		if got := LevelOf(op); got != want {
			t.Errorf("%T: level %d, want %d", op, got, want)
		}
	}
	for _, j := range []NewJob{{Group: "g"}, {DedupID: "d"}, {DedupTTLMs: 1}, {UniqueKey: "u"}, {MaxLen: 1}} {
		if LevelOf(&Enqueue{Jobs: []NewJob{{}, j}}) != 2 {
			t.Errorf("level of %+v", j)
		}
	}
}

// TestEachEnqueue proves that enqueues are found wherever an op may hold them.
func TestEachEnqueue(t *testing.T) {
	a, b, c := &Enqueue{First: 1}, &Enqueue{First: 2}, &Enqueue{First: 3}
	for _, x := range []struct {
		op   Op
		want []uint64
	}{
		{a, []uint64{1}},
		{&Ack{}, nil},
		{&Tx{[]Op{&Ack{}, a, b}}, []uint64{1, 2}},
		{&Keyed{Op: c}, []uint64{3}},
		{&Keyed{Op: &Tx{[]Op{b, c}}}, []uint64{2, 3}},
	} {
		var got []uint64
		EachEnqueue(x.op, func(e *Enqueue) { got = append(got, e.First) })
		if !slices.Equal(got, x.want) {
			t.Errorf("%T: %v, want %v", x.op, got, x.want)
		}
	}
}

func allKinds() map[Kind]bool {
	kinds := map[Kind]bool{}
	for _, op := range sampleOps() {
		kinds[op.Kind()] = true
	}
	return kinds
}

func dump(ops []Op) string {
	var b strings.Builder
	for _, op := range ops {
		fmt.Fprintf(&b, "%T%+v\n", op, op)
	}
	return b.String()
}

// TestStamps proves that a batch is addressed, stamped and marked in place, and
// nothing else of it changes.
func TestStamps(t *testing.T) {
	h := BatchHeader{Origin: 1, Epoch: 2, Number: 3, Term: 4, TimeMs: 5}
	data := EncodeBatch(h, &NodeBack{}, &DeleteQueue{Queue: "q"})
	SetBatchTerm(data, 1<<40)
	SetBatchTime(data, 1<<41)
	MarkOp(data[BatchHeaderSize+opHeaderSize:], FlagVoid)
	h.Term, h.TimeMs = 1<<40, 1<<41
	want := EncodeBatch(h, &NodeBack{}, &DeleteQueue{Queue: "q"})
	want[BatchHeaderSize+opHeaderSize+1] = FlagVoid
	if !bytes.Equal(data, want) {
		t.Errorf("got %x\nwant %x", data, want)
	}
}

// TestNewer proves that what a newer build may have written stops this one, and
// that damage is told from that.
func TestNewer(t *testing.T) {
	h := BatchHeader{Origin: 1, Epoch: 2, Number: 3}
	batch := func(change func(b []byte) []byte, ops ...Op) []byte { return change(EncodeBatch(h, ops...)) }
	const at = BatchHeaderSize
	cases := []struct {
		name  string
		data  []byte
		newer bool
	}{
		{"batch version", batch(func(b []byte) []byte { b[0]++; return b }), true},
		{"batch flags", batch(func(b []byte) []byte { b[1] = 1; return b }), true},
		{"kind", batch(func(b []byte) []byte { b[at] = 200; return b }, &NodeBack{}), true},
		{"op flags", batch(func(b []byte) []byte { b[at+1] = 4; return b }, &NodeBack{}), true},
		{"field left over", batch(func(b []byte) []byte { b[at+5]++; return append(b, 0) }, &NodeBack{}), true},
		{"field left over after an ack", batch(func(b []byte) []byte { b[at+5]++; return append(b, 0) }, &Ack{}), true},
		{"job mask", batch(func(b []byte) []byte { b[at+9], b[at+10], b[at+11] = 0x81, 0x80, 0x01; return b }, &Enqueue{Jobs: []NewJob{{Queue: strings.Repeat("q", 64)}}}), true},
		{"item mask", batch(func(b []byte) []byte { b[at+7] |= 64; return b }, &Ack{[]Item{{}}}), true},
		{"enqueue flags", batch(func(b []byte) []byte { b[at+7] = 2; return b }, &Enqueue{}), true},
		{"delete flags", batch(func(b []byte) []byte { b[len(b)-1] = 2; return b }, &DeleteQueue{}), true},
		{"settle verb", batch(func(b []byte) []byte { b[at+7] = 5; return b }, &Settle{[]SettleItem{{}}}), true},
		{"kind within a keyed", batch(func(b []byte) []byte { b[at+6+2+16] = 200; return b }, &Keyed{Key: "k", Op: &Ack{}}), true},
		{"kind that this build refuses within a keyed", batch(func(b []byte) []byte { b[at+6+2+16] = byte(KindKeyed); return b }, &Keyed{Key: "k", Op: &Ack{}}), true},
		{"kind that this build refuses within a tx", batch(func(b []byte) []byte { b[at+7] = byte(KindDequeue); return b }, &Tx{[]Op{&Ack{}}}), true},
		{"flags within a tx", batch(func(b []byte) []byte { b[at+8] = FlagAnswered; return b }, &Tx{[]Op{&Enqueue{}}}), true},
		{"field left over within a tx", batch(func(b []byte) []byte { b[at+5]++; b[at+12]++; return append(b, 0) }, &Tx{[]Op{&Ack{}}}), true},
		{"purge states", batch(func(b []byte) []byte { b[at+8] = 32; return b }, &Purge{Queue: "q"}), true},
		{"pause flags", batch(func(b []byte) []byte { b[at+8] = 4; return b }, &Pause{Queue: "q"}), true},
		{"configure flags", batch(func(b []byte) []byte { b[at+8] = 2; return b }, &Configure{Queue: "q"}), true},
		{"configure fields", batch(func(b []byte) []byte { b[at+10], b[at+11] = 0x80, 0x80; b[at+5]++; return append(b, 1) }, &Configure{Queue: "q", Fields: FieldTTL}), true},
		{"short header", make([]byte, 10), false},
		{"half an op header", batch(func(b []byte) []byte { return b[:at+3] }, &NodeBack{}), false},
		{"half an op", batch(func(b []byte) []byte { return b[:len(b)-1] }, &DeleteQueue{}), false},
		{"fields that end early", batch(func(b []byte) []byte { b[at+5] = 1; return b[:at+7] }, &DeleteQueue{Queue: "q"}), false},
		{"an op within a tx that ends early", batch(func(b []byte) []byte { b[at+12]--; b[at+5]--; return b[:len(b)-1] }, &Tx{[]Op{&Ack{[]Item{{}}}}}), false},
		{"an op within a tx that is longer than it", batch(func(b []byte) []byte { b[at+12]++; return b }, &Tx{[]Op{&Ack{}}}), false},
		{"a configuration out of range", batch(func(b []byte) []byte { b[at+11] = 1; return b }, &Configure{Queue: "q", Fields: FieldTTL}), false},
		{"percent of disk", batch(func(b []byte) []byte { b[at+6] = 101; return b }, &Alarm{}), false},
		{"too many keys", batch(func(b []byte) []byte { return tooMany(b, KindHold, 9) }), false},
		{"too many items to settle", batch(func(b []byte) []byte { return tooMany(b, KindSettle, 3) }), false},
		{"too many ops in a tx", batch(func(b []byte) []byte { return tooMany(b, KindTx, opHeaderSize) }), false},
		{"a count that lies", batch(func(b []byte) []byte { b[at+6] = 100; return b }, &Ack{}), false},
	}
	for _, c := range cases {
		_, _, err := DecodeOps(c.data)
		if err == nil || errors.Is(err, ErrNewer) != c.newer {
			t.Errorf("%s: %v", c.name, err)
		}
		// The machine sees the same.
		r := newRig(t)
		if len(c.data) >= BatchHeaderSize {
			SetBatchTime(c.data, r.now)
		}
		if len(c.data) >= at && (c.data[0] == batchVersion) {
			fixed := AppendBatchHeader(nil, BatchHeader{Origin: r.self.Origin, Epoch: r.self.Epoch, Number: r.number, TimeMs: r.now})
			fixed[1] = c.data[1]
			c.data = append(fixed, c.data[at:]...)
		}
		_, err = r.m.Apply(r.m.Position().Index+1, 1, c.data, r.self)
		if err == nil || errors.Is(err, ErrNewer) != c.newer {
			t.Errorf("%s: applied: %v", c.name, err)
		}
	}
}

// tooMany appends an op of one item more than BatchItemsMax, of size bytes each.
func tooMany(b []byte, k Kind, size int) []byte {
	b = append(b, byte(k), 0)
	b = binary.BigEndian.AppendUint32(b, uint32(2+(BatchItemsMax+1)*size))
	b = binary.AppendUvarint(b, BatchItemsMax+1)
	return append(b, make([]byte, (BatchItemsMax+1)*size)...)
}

// TestEncodeAsserts proves that what the edge must refuse does not get into a
// batch.
func TestEncodeAsserts(t *testing.T) {
	long := strings.Repeat("x", 1<<20)
	for _, op := range []Op{
		&Enqueue{Jobs: []NewJob{{Queue: long}}},
		&Enqueue{Jobs: []NewJob{{Priority: 10}}},
		&Enqueue{Jobs: []NewJob{{Headers: []Header{{"a", long}}}}},
		&Enqueue{Jobs: []NewJob{{Body: make([]byte, BodyMax+1)}}},
		&Dequeue{Queues: make([]string, QueuesMax+1)},
		&Dequeue{Consumer: long},
		&Nack{[]Item{{Error: long}}},
		&DeleteQueue{Queue: long},
		&NodeStart{Client: long},
		&Enqueue{Jobs: []NewJob{{Group: long[:KeyMax+1]}}},
		&Enqueue{Jobs: []NewJob{{DedupID: long[:KeyMax+1]}}},
		&Enqueue{Jobs: []NewJob{{UniqueKey: long[:KeyMax+1]}}},
		&Dequeue{AttemptID: long[:KeyMax+1]},
		&Settle{make([]SettleItem, BatchItemsMax+1)},
		&Settle{[]SettleItem{{Verb: 5}}},
		&Tx{slices.Repeat([]Op{&Ack{}}, BatchItemsMax+1)},
		&Tx{[]Op{&Dequeue{}}},
		&Tx{[]Op{&Tx{}}},
		&Keyed{Key: long[:KeyedMax+1], Op: &Ack{}},
		&Keyed{Op: &Dequeue{}},
		&Keyed{Op: &Keyed{Op: &Ack{}}},
		&Keyed{Op: &NodeBack{}},
		&Hold{Keys: make([]Key, BatchItemsMax+1)},
		&Hold{From: StateAll + 1},
		&Requeue{From: StateAll + 1},
		&Purge{Queue: long},
		&Purge{States: 32},
		&Redrive{To: long},
		&Redrive{Reason: long},
		&Pause{Queue: long},
		&Configure{Queue: long},
		&Configure{Config: QueueConfig{LeaseMs: -1}},
		&Configure{Config: QueueConfig{BackoffMinMs: 2, BackoffMaxMs: 1}},
		&Configure{Config: QueueConfig{DeadLetter: long}},
		&Configure{Fields: fieldsEnd},
		&ReleaseConsumer{Consumer: long},
		&Alarm{Disk: 101},
	} {
		func() {
			defer func() {
				if r := recover(); r == nil || !strings.HasPrefix(fmt.Sprint(r), "BUG: ") {
					t.Errorf("%T: %v", op, r)
				}
			}()
			EncodeBatch(BatchHeader{}, op)
		}()
	}
}

// FuzzDecodeOps proves that no bytes make the codec panic, that what it decodes
// encodes to something that decodes to the same, and that the machine takes
// what the codec takes.
func FuzzDecodeOps(f *testing.F) {
	f.Add(EncodeBatch(BatchHeader{Origin: 1 << 32, Epoch: 1<<32 | 7, Number: 1}, sampleOps()...))
	for _, op := range sampleOps() {
		f.Add(EncodeBatch(BatchHeader{Origin: 1 << 32, Epoch: 1<<32 | 7, Number: 1, TimeMs: 1_700_000_000_000}, op))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		h, ops, err := DecodeOps(data)
		if err == nil {
			again := EncodeBatch(h, ops...)
			h2, ops2, err := DecodeOps(again)
			if err != nil || h2 != h || !reflect.DeepEqual(ops, ops2) {
				t.Fatalf("%v\n%s\nagain\n%s", err, dump(ops), dump(ops2))
			}
		}
		r := newRig(t)
		r.apply(t, r.enqueue("a", []byte("x"), 3), r.dequeue("a", 1, 0))
		if len(data) >= BatchHeaderSize {
			data = append(AppendBatchHeader(nil, BatchHeader{Origin: r.self.Origin, Epoch: r.self.Epoch, Number: r.number, TimeMs: r.now}), data[BatchHeaderSize:]...)
			_, _, err = DecodeOps(data)
		}
		if len(data) == 0 {
			return
		}
		_, applied := r.m.Apply(r.m.Position().Index+1, 1, bytes.Clone(data), r.self)
		if (applied == nil) != (err == nil) && !hasVoid(data) {
			t.Fatalf("decode: %v, apply: %v", err, applied)
		}
		if applied == nil {
			if err := r.m.Check(); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// hasVoid tells whether an op is marked as void: its fields are not looked at.
func hasVoid(data []byte) bool {
	for rest := data[BatchHeaderSize:]; len(rest) > 0; {
		op, next, err := nextOp(rest)
		if err != nil {
			return false
		}
		if op.flags&FlagVoid != 0 {
			return true
		}
		rest = next
	}
	return false
}
