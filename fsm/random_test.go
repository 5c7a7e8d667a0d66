package fsm

import (
	"bytes"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strconv"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// world runs the same entries through the machine, a second machine that sees
// them as another node does and is copied and restored on the way, and the
// model.
type world struct {
	m, other *Machine
	model    *model
	term     uint64
	nodes    []*testNode
	receipts []Receipt // of all hand-outs ever
	keys     []Key     // of all jobs ever
	copies   []keptCopy
	queues   []string // few of them let more meet
	ops      int      // applied
	checks   int
}

type testNode struct {
	id, epoch, number, request, counter uint64
}

// keptCopy is a copy that must never change.
type keptCopy struct {
	m    *Machine
	hash uint64
}

var testQueues = []string{"a", "b", "c", "d"}

func newWorld() *world {
	members := []Member{{ID: 7 << 32, Name: "n1", Peer: "http://n1"}, {ID: 9<<32 | 5, Name: "n2", Peer: "http://n2", Learner: true}}
	w := &world{m: New(members), other: New(members), model: newModel(members), term: 1}
	for _, m := range []*Machine{w.m, w.other} {
		m.timersMax, m.tombsMax, m.handOutMax, m.sweepMax, m.scanMax = 4, 6, 20, 3, 5
	}
	w.model.timersMax, w.model.tombsMax, w.model.handMax, w.model.sweepMax = 4, 6, 20, 3
	for _, e := range members {
		w.nodes = append(w.nodes, &testNode{id: e.ID})
	}
	return w
}

func (w *world) apply(t *rapid.T, h BatchHeader, ops []Op, flags []byte) {
	w.ops += len(ops)
	data := EncodeBatch(h, ops...)
	at := BatchHeaderSize
	for i := range flags {
		data[at+1] = flags[i]
		at += opHeaderSize + len(ops[i].appendFields(nil))
	}
	// The first machine is the node that sent the batch or has a waiter.
	n := w.nodes[0]
	self := Self{Origin: n.id, Epoch: n.epoch, Watched: w.watched(t)}
	index := w.m.Position().Index + 1
	got, err := w.m.Apply(index, w.term, slices.Clone(data), self)
	if err != nil {
		t.Fatal(err)
	}
	n = w.nodes[1]
	got2, err := w.other.Apply(index, w.term, data, Self{Origin: n.id, Epoch: n.epoch})
	if err != nil {
		t.Fatal(err)
	}
	for i := range data {
		data[i] = 0xee // the machine kept nothing of it
	}
	want := w.model.apply(w.term, &h, ops, flags, self)
	compare(t, "applied", got, want)
	if got.Effect != got2.Effect || got.Fired != got2.Fired || got.Position != got2.Position {
		t.Fatalf("nodes differ: %+v, %+v", got, got2)
	}
	for _, a := range []Applied{got, got2} {
		for _, r := range a.Results {
			w.learn(r)
		}
		for _, h := range a.Handouts {
			w.learn(h.Result)
		}
	}
}

func (w *world) learn(r Result) {
	for i := range r.Jobs {
		w.receipts = append(w.receipts, r.Jobs[i].Receipt())
	}
}

// compare compares by value; nil and empty slices are the same.
func compare(t *rapid.T, what string, got, want any) {
	if !same(reflect.ValueOf(got), reflect.ValueOf(want)) {
		t.Fatalf("%s\n got %+v\nwant %+v", what, got, want)
	}
}

func same(a, b reflect.Value) bool {
	if a.Kind() != b.Kind() || a.IsValid() && a.Type() != b.Type() {
		return false
	}
	switch a.Kind() {
	case reflect.Struct:
		for i := range a.NumField() {
			if !same(a.Field(i), b.Field(i)) {
				return false
			}
		}
		return true
	case reflect.Slice, reflect.Array:
		if a.Len() != b.Len() {
			return false
		}
		for i := range a.Len() {
			if !same(a.Index(i), b.Index(i)) {
				return false
			}
		}
		return true
	case reflect.Map:
		if a.Len() != b.Len() {
			return false
		}
		for _, k := range a.MapKeys() {
			if v := b.MapIndex(k); !v.IsValid() || !same(a.MapIndex(k), v) {
				return false
			}
		}
		return true
	case reflect.Pointer, reflect.Interface:
		return a.IsNil() == b.IsNil() && (a.IsNil() || same(a.Elem(), b.Elem()))
	case reflect.Func:
		return a.IsNil() && b.IsNil()
	case reflect.Invalid:
		return true
	default:
		return a.Equal(b)
	}
}

// check compares all that can be read.
func (w *world) check(t *rapid.T) {
	if err := w.m.Check(); err != nil {
		t.Fatal(err)
	}
	if a, b := w.m.Hash(), w.other.Hash(); a != b {
		t.Fatalf("hashes of two nodes: %x, %x", a, b)
	}
	if w.m.Chain() != w.other.Chain() {
		t.Fatalf("chains of two nodes differ")
	}
	if w.m.seq != w.model.seq {
		t.Fatalf("last sequence %d, want %d", w.m.seq, w.model.seq)
	}
	infos, total := w.model.infos()
	got, _ := w.m.Queues(QueueFilter{MaxLen: -1}, "", 100)
	compare(t, "queues", got, infos)
	compare(t, "totals", w.m.Totals(), total)
	w.checkLists(t)
	for _, k := range w.keys {
		gotJob, gotCode := w.m.Job(k)
		wantJob, wantCode := w.model.jobInfo(k)
		if gotCode != wantCode {
			t.Fatalf("code of job %v: %v, want %v", k, gotCode, wantCode)
		}
		if !same(reflect.ValueOf(gotJob), reflect.ValueOf(wantJob)) {
			t.Fatalf("job %v\n got %+v\nwant %+v", k, gotJob, wantJob)
		}
	}
	gotDue, gotOK := w.m.NextDue()
	wantDue, wantOK := w.model.nextDue()
	if gotDue != wantDue || gotOK != wantOK {
		t.Fatalf("next due: %d %v, want %d %v", gotDue, gotOK, wantDue, wantOK)
	}
	for _, n := range w.nodes {
		var parked []uint64
		handed := map[uint64]int{}
		var requests []uint64
		for r := range n.request + 1 {
			requests = append(requests, r)
		}
		for _, e := range w.model.sorted(n.id) {
			parked = append(parked, e.request)
		}
		compare(t, "parked", w.m.Parked(n.id, n.epoch), parked)
		for _, h := range w.m.HandedTo(n.epoch, requests) {
			handed[h.Request] = len(h.Result.Jobs)
		}
		for _, r := range requests {
			count := 0
			for _, j := range w.model.jobs {
				has := j.state == "leased" || j.state == "held" && j.amo && j.tagged
				if has && !j.queue.doomed && j.tag == requestTag(n.epoch, r) {
					count++
				}
			}
			if handed[r] != count {
				t.Fatalf("request %d holds %d jobs, want %d", r, handed[r], count)
			}
		}
		s, ok := w.m.Session(n.id)
		if e := w.model.session(n.id); e != nil {
			compare(t, "session", s, SessionInfo{e.node, e.epoch, e.last, e.away, len(w.model.sorted(n.id)), e.disk, e.start})
		} else if ok {
			t.Fatalf("session %+v of a node that never started", s)
		}
	}
	compare(t, "members", w.m.Members(), w.model.members)
	for _, gone := range []bool{false, true} {
		var removed []uint64
		for _, r := range w.model.removed {
			if r.gone == gone {
				removed = append(removed, r.id)
			}
		}
		compare(t, "removed members", w.m.RemovedMembers(gone), removed)
	}
	for _, n := range w.nodes {
		for counter := range n.epoch>>32 + 1 {
			for random := range uint64(4) {
				epoch := counter<<32 | random
				got, gotOK := w.m.Fate(n.id, epoch)
				want, wantOK := w.model.fate(n.id, epoch)
				if got != want || gotOK != wantOK {
					t.Fatalf("fate of epoch %x of %x: %d %v, want %d %v", epoch, n.id, got, gotOK, want, wantOK)
				}
			}
		}
	}
	for _, c := range w.copies {
		if h := c.m.Hash(); h != c.hash {
			t.Fatalf("the copy at index %d changed", c.m.Position().Index)
		}
	}
}

// restore replaces m by what its encoded bytes give.
func restore(t *rapid.T, m *Machine) *Machine {
	var b bytes.Buffer
	if err := m.Encode(&b); err != nil {
		t.Fatal(err)
	}
	data := bytes.Clone(b.Bytes())
	r, err := Decode(&b)
	if err != nil {
		t.Fatal(err)
	}
	r.timersMax, r.tombsMax, r.handOutMax, r.sweepMax, r.scanMax = m.timersMax, m.tombsMax, m.handOutMax, m.sweepMax, m.scanMax
	if err := r.Check(); err != nil {
		t.Fatal(err)
	}
	var again bytes.Buffer
	if err := r.Encode(&again); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(data, again.Bytes()) {
		t.Fatal("a restored machine encodes to other bytes")
	}
	if r.Bytes() != m.Bytes() || !reflect.DeepEqual(r.Totals(), m.Totals()) {
		t.Fatalf("restored: %d bytes, %+v; before %d, %+v", r.Bytes(), r.Totals(), m.Bytes(), m.Totals())
	}
	return r
}

func (w *world) time(t *rapid.T) int64 {
	now := w.m.Position().TimeMs
	step := rapid.SampledFrom([]int64{0, 0, 0, 1, 1, 7, 500, 999, 1000, 1001, 5000, 60_000, QueueIdleMs, 3600_000, AtMostOnceTTLMs, DeadTTLMs, -5}).Draw(t, "step")
	if due, ok := w.m.NextDue(); ok && rapid.IntRange(0, 5).Draw(t, "to the next timer") == 0 {
		return due
	}
	return now + step
}

func (w *world) item(t *rapid.T) Item {
	it := Item{DelayMs: -1}
	switch {
	case len(w.receipts) > 0 && rapid.IntRange(0, 9).Draw(t, "receipt") > 0:
		last := min(len(w.receipts), 8)
		it = rapid.SampledFrom(w.receipts[len(w.receipts)-last:]).Draw(t, "of").Item()
	case len(w.keys) > 0:
		it.Key = rapid.SampledFrom(w.keys).Draw(t, "key")
		it.ByID = true
	default:
		it.Key = Key{1, 2}
	}
	it.ByID = it.ByID || rapid.IntRange(0, 9).Draw(t, "by id") == 0
	switch rapid.IntRange(0, 9).Draw(t, "odd") {
	case 0:
		it.Grant++
	case 1:
		it.Tag++
	case 2:
		it.Key.Lo += 1000
	}
	it.DelayMs = rapid.SampledFrom([]int64{-1, -1, 0, 1, 1000}).Draw(t, "delay")
	it.LeaseMs = rapid.SampledFrom([]int64{0, 0, 1, 700, 13 * 3600_000}).Draw(t, "lease")
	it.Error = rapid.SampledFrom([]string{"", "", "boom"}).Draw(t, "error")
	return it
}

func (w *world) items(t *rapid.T) []Item {
	return rapid.SliceOfN(rapid.Custom(w.item2), 1, 3).Draw(t, "items")
}

func (w *world) item2(t *rapid.T) Item { return w.item(t) }

func (w *world) newJob(t *rapid.T) NewJob {
	return NewJob{
		Queue:       rapid.SampledFrom(w.queues).Draw(t, "queue"),
		Body:        bytes.Repeat([]byte{byte(rapid.IntRange(0, 255).Draw(t, "fill"))}, rapid.SampledFrom([]int{0, 1, 8, 9, 100, 1024, 1025, 3000}).Draw(t, "length")),
		Headers:     rapid.SampledFrom([][]Header{nil, nil, {{"a", "1"}, {"b", ""}}}).Draw(t, "headers"),
		Priority:    rapid.SampledFrom([]uint8{4, 4, 4, 0, 9}).Draw(t, "priority"),
		AtMostOnce:  rapid.IntRange(0, 5).Draw(t, "at most once") == 0,
		DelayMs:     rapid.SampledFrom([]int64{0, 0, 0, 1, 1000, 3600_000}).Draw(t, "delay"),
		AtMs:        rapid.SampledFrom([]int64{0, 0, 0, 1, w.m.Position().TimeMs + 900}).Draw(t, "at"),
		LeaseMs:     rapid.SampledFrom([]int64{0, 0, 1, 1000}).Draw(t, "lease"),
		TTLMs:       rapid.SampledFrom([]int64{0, 0, 0, 1, 2000, 3600_000}).Draw(t, "ttl"),
		MaxFailures: rapid.SampledFrom([]int32{0, 0, -1, 1, 2}).Draw(t, "max failures"),
		MaxLen:      rapid.SampledFrom([]int64{0, 0, 0, 0, 1, 3}).Draw(t, "max len"),
		DedupID:     rapid.SampledFrom([]string{"", "", "", "d1", "d2"}).Draw(t, "dedup id"),
		DedupTTLMs:  rapid.SampledFrom([]int64{0, 0, 1000, 1500, DedupTTLMaxMs}).Draw(t, "window"),
		UniqueKey:   rapid.SampledFrom([]string{"", "", "", "u1", "u2"}).Draw(t, "unique"),
		Group:       rapid.SampledFrom([]string{"", "", "g1", "g2", "g3"}).Draw(t, "group"),
	}
}

// nested draws an op that may stand within another.
func (w *world) nested(t *rapid.T, n *testNode, allowed func(Kind) bool) Op {
	for {
		if op := w.plainOp(t, n); allowed(op.Kind()) {
			return op
		}
	}
}

func (w *world) tx(t *rapid.T, n *testNode) *Tx {
	op := &Tx{}
	for range rapid.IntRange(0, 3).Draw(t, "parts") {
		op.Ops = append(op.Ops, w.nested(t, n, InTx))
	}
	return op
}

func (w *world) op(t *rapid.T, n *testNode) Op {
	switch rapid.IntRange(0, 19).Draw(t, "within") {
	case 16, 17:
		return w.tx(t, n)
	case 18, 19:
		op := &Keyed{Key: rapid.SampledFrom([]string{"i1", "i2", "i3"}).Draw(t, "idempotency key")}
		op.Digest[0] = byte(rapid.IntRange(0, 2).Draw(t, "digest")) / 2
		if op.Op = w.nested(t, n, InKeyed); rapid.IntRange(0, 3).Draw(t, "tx") == 3 {
			op.Op = w.tx(t, n)
		}
		return op
	}
	return w.plainOp(t, n)
}

// watched draws some jobs whose end the node waits for.
func (w *world) watched(t *rapid.T) map[Key]int {
	if len(w.keys) == 0 || !rapid.Bool().Draw(t, "watch") {
		return nil
	}
	watched := map[Key]int{}
	for _, k := range w.keys[max(0, len(w.keys)-6):] {
		if k.Lo%2 == 0 {
			watched[k] = 1
		}
	}
	return watched
}

func (w *world) plainOp(t *rapid.T, n *testNode) Op {
	switch rapid.IntRange(0, 18).Draw(t, "op") {
	case 14, 15:
		return w.jobOp(t)
	case 16, 17, 18:
		return w.queueOp(t)
	case 0, 1, 2:
		op := &Enqueue{First: n.counter + 1, Atomic: rapid.Bool().Draw(t, "atomic")}
		for range rapid.IntRange(1, 3).Draw(t, "jobs") {
			op.Jobs = append(op.Jobs, w.newJob(t))
			n.counter++
			w.keys = append(w.keys, Key{n.epoch, n.counter})
		}
		return op
	case 3, 4, 5:
		n.request++
		return &Dequeue{
			Request:  n.request,
			Queues:   rapid.SliceOfN(rapid.SampledFrom(w.queues), 0, 3).Draw(t, "queues"),
			Max:      rapid.SampledFrom([]int32{0, 1, 1, 2, 5}).Draw(t, "max"),
			LeaseMs:  rapid.SampledFrom([]int64{0, 0, 1, 500}).Draw(t, "lease"),
			WaitMs:   rapid.SampledFrom([]int64{0, 1, 1000, 55_000}).Draw(t, "wait"),
			Consumer: rapid.SampledFrom([]string{"", "", "worker"}).Draw(t, "consumer"),

			AttemptID: rapid.SampledFrom([]string{"", "", "", "t1", "t2"}).Draw(t, "attempt"),
		}
	case 6, 7:
		return &Ack{w.items(t)}
	case 8:
		return &Nack{w.items(t)}
	case 9:
		return &Release{w.items(t)}
	case 10:
		return &Extend{w.items(t)}
	case 11:
		return &GiveBack{w.items(t)}
	case 12:
		return &Withdraw{rapid.SliceOfN(rapid.Uint64Range(max(n.request, 3)-3, n.request), 1, 3).Draw(t, "requests")}
	}
	switch rapid.IntRange(0, 5).Draw(t, "rare op") {
	case 0:
		return &NodeBack{}
	case 1:
		return &NodeAway{n.id, n.epoch}
	case 2:
		return &Alarm{rapid.SampledFrom([]uint8{0, 75, 90, 95, 12}).Draw(t, "disk")}
	}
	return &DeleteQueue{rapid.SampledFrom(w.queues).Draw(t, "queue"), rapid.Bool().Draw(t, "force")}
}

// memberChange is mostly a change that can be made.
func (w *world) memberChange(t *rapid.T) *MemberChange {
	e := Member{
		ID:      rapid.SampledFrom([]uint64{7 << 32, 9<<32 | 5, 11, 1<<63 | 2, 5, 0}).Draw(t, "id"),
		Name:    rapid.SampledFrom([]string{"n1", "n3", "n4", "n5", "n6", ""}).Draw(t, "name"),
		Peer:    rapid.SampledFrom([]string{"http://n3", "http://n4", ""}).Draw(t, "peer"),
		Learner: rapid.IntRange(0, 9).Draw(t, "learner") > 0,
		Standby: rapid.Bool().Draw(t, "standby"),
		Join:    rapid.Uint64Range(0, 3).Draw(t, "join"),
	}
	verb := rapid.SampledFrom([]MemberVerb{MemberAdd, MemberAdd, MemberAdd, MemberPromote, MemberPromote, MemberClaim, MemberRemove, MemberGone}).Draw(t, "verb")
	return &MemberChange{Verb: verb, Member: e}
}

// TestRandomEntries proves, on random logs, that every result and every read of
// the machine is that of the naive model after each entry; that nodes which
// copy, restore and look on as others have equal hashes and chains; and that
// copies do not change. It goes on until so many logs as RAFTQ_RANDOM_LOGS says were
// tried.
func TestRandomEntries(t *testing.T) {
	wanted := 500
	if text := os.Getenv("RAFTQ_RANDOM_LOGS"); text != "" {
		var err error
		if wanted, err = strconv.Atoi(text); err != nil {
			t.Fatalf("RAFTQ_RANDOM_LOGS: %v", err)
		}
	} else if testing.Short() {
		wanted = 1 // one round
	}
	begun, logs, ops := time.Now(), 0, 0
	for logs < wanted && !t.Failed() {
		l, o := randomEntries(t)
		logs, ops = logs+l, ops+o
		if logs%10_000 < l {
			fmt.Printf("%d of %d logs, %d ops, %v\n", logs, wanted, ops, time.Since(begun).Round(time.Second))
		}
	}
	t.Logf("%d logs, %d ops", logs, ops)
}

func randomEntries(t *testing.T) (logs, ops int) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld()
		w.queues = testQueues[:rapid.SampledFrom([]int{len(testQueues), 1, 2}).Draw(t, "queues")]
		defer func() { logs, ops = logs+1, ops+w.ops }()
		start := func(t *rapid.T, n *testNode) {
			epoch := (n.epoch>>32+rapid.SampledFrom([]uint64{1, 1, 1, 2, 0}).Draw(t, "boots"))<<32 | rapid.Uint64Range(0, 3).Draw(t, "random")
			h := BatchHeader{Origin: n.id, Epoch: epoch, TimeMs: w.time(t)}
			before := *n
			n.epoch, n.number, n.counter = epoch, 0, 0
			w.apply(t, h, []Op{&NodeStart{Client: "c", Peer: "p", Version: "v", FeatureLevel: rapid.SampledFrom([]uint32{3, 3, 3, 2, 1}).Draw(t, "level"), MaxMemory: 5}}, nil)
			if s, ok := w.m.Session(n.id); !ok || s.Epoch != epoch {
				*n = before // refused
			} else if before.epoch == epoch {
				*n = before // seen before
			}
		}
		for _, n := range w.nodes {
			n.epoch = 1 << 32
			start(t, n)
		}
		node := rapid.Custom(func(t *rapid.T) *testNode { return rapid.SampledFrom(w.nodes).Draw(t, "node") })
		batch := func(t *rapid.T) {
			for range rapid.IntRange(1, 3).Draw(t, "batches") {
				n := node.Draw(t, "node")
				h := BatchHeader{Origin: n.id, Epoch: n.epoch, Number: n.number + 1, TimeMs: w.time(t)}
				var ops []Op
				var flags []byte
				for range rapid.IntRange(0, 4).Draw(t, "ops") {
					ops = append(ops, w.op(t, n))
					flag := rapid.SampledFrom([]byte{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, FlagVoid, FlagAnswered, FlagAnswered}).Draw(t, "flag")
					if k := ops[len(ops)-1].Kind(); k != KindEnqueue && k != KindKeyed {
						flag &= FlagVoid
					}
					flags = append(flags, flag)
				}
				n.number++
				w.apply(t, h, ops, flags)
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"":       w.check,
			"batch":  batch,
			"batch2": batch,
			"batch3": batch,
			"start":  func(t *rapid.T) { start(t, node.Draw(t, "node")) },
			"wrong number": func(t *rapid.T) {
				n := node.Draw(t, "node")
				h := BatchHeader{Origin: n.id, Epoch: n.epoch, Number: n.number + rapid.SampledFrom([]uint64{0, 2, ^uint64(0)}).Draw(t, "off"), TimeMs: w.time(t)}
				if rapid.Bool().Draw(t, "old epoch") {
					h.Epoch--
				}
				if h.Number != n.number+1 || h.Epoch != n.epoch {
					w.apply(t, h, []Op{&DeleteQueue{"a", true}}, nil)
				}
			},
			"leader": func(t *rapid.T) {
				n := node.Draw(t, "node")
				var ops []Op
				if rapid.Bool().Draw(t, "away") {
					ops = append(ops, &NodeAway{n.id, n.epoch})
				}
				w.apply(t, BatchHeader{TimeMs: w.time(t)}, ops, nil)
			},
			"members": func(t *rapid.T) {
				op := w.memberChange(t)
				w.apply(t, BatchHeader{TimeMs: w.time(t)}, []Op{op}, nil)
				known := slices.ContainsFunc(w.nodes, func(n *testNode) bool { return n.id == op.Member.ID })
				if _, ok := w.m.Member(op.Member.ID); ok && !known {
					w.nodes = append(w.nodes, &testNode{id: op.Member.ID, epoch: 1 << 32})
				}
			},
			"back": func(t *rapid.T) {
				n := node.Draw(t, "node")
				n.number++
				w.apply(t, BatchHeader{Origin: n.id, Epoch: n.epoch, Number: n.number, TimeMs: w.time(t)}, []Op{&NodeBack{}}, nil)
			},
			"empty": func(t *rapid.T) {
				w.term++
				for _, m := range []*Machine{w.m, w.other} {
					if _, err := m.Apply(m.Position().Index+1, w.term, nil, Self{}); err != nil {
						t.Fatal(err)
					}
				}
				w.model.apply(w.term, nil, nil, nil, Self{})
			},
			"restore": func(t *rapid.T) { w.other = restore(t, w.other) },
			"copy":    func(t *rapid.T) { w.other = w.other.Copy() },
			"keep a copy": func(t *rapid.T) {
				c := w.m.Copy()
				w.copies = append(w.copies, keptCopy{c, c.Hash()})
				w.copies = w.copies[max(0, len(w.copies)-4):]
			},
		})
	})
	return logs, ops
}
