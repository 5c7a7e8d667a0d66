package fsm

import (
	"bytes"
	"testing"
)

func TestSmoke(t *testing.T) {
	m := New([]Member{{ID: 1 << 40, Name: "a"}})
	self := Self{1 << 40, 1<<32 | 7}
	n := uint64(0)
	ap := func(ms int64, ops ...Op) Applied {
		t.Helper()
		a, err := m.Apply(m.Position().Index+1, 1, EncodeBatch(BatchHeader{Origin: self.Origin, Epoch: self.Epoch, Number: n, TimeMs: ms}, ops...), self)
		if err != nil {
			t.Fatal(err)
		}
		n++
		if err := m.Check(); err != nil {
			t.Fatal(err)
		}
		var b bytes.Buffer
		if err := m.Encode(&b); err != nil {
			t.Fatal(err)
		}
		r, err := Decode(bytes.NewReader(b.Bytes()))
		if err != nil {
			t.Fatal(err)
		}
		if err := r.Check(); err != nil {
			t.Fatal(err)
		}
		if r.Hash() != m.Hash() {
			t.Fatal("hash")
		}
		return a
	}
	ap(1000, &NodeStart{Client: "c"})
	a := ap(1001, &Enqueue{First: 1, Jobs: []NewJob{{Queue: "q", Body: []byte("hello"), Headers: []Header{{"a", "b"}}}}}, &Dequeue{Request: 1, Queues: []string{"q"}, Consumer: "x"})
	t.Logf("%+v", a)
	d := a.Results[1].Jobs[0]
	a = ap(1002, &Dequeue{Request: 2, Queues: []string{"q", "r"}, WaitMs: 1000}, &Enqueue{First: 2, Jobs: []NewJob{{Queue: "q", Body: []byte("hello2")}}})
	t.Logf("%+v", a)
	it := d.Receipt().Item()
	a = ap(1003, &Ack{Items: []Item{it, it}})
	t.Logf("%+v", a)
	t.Logf("%+v", m.Totals())
	a = ap(10000000, &Dequeue{Request: 3, Queues: []string{"q", "r"}, WaitMs: 1000})
	t.Logf("%+v", a)
}
