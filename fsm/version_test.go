package fsm

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"math/rand"
	"os"
	"path/filepath"
	"testing"
)

// The data of an earlier version, in testdata/versionN, written by the build of
// that time with RAFTQ_MAKE_VERSION=1 go test -run TestMakeVersion ./fsm:
//
//	log.gz     entries: term uvarint, length uvarint, data
//	mid.gz     the encoded state at index want.Mid
//	end.gz     the encoded state after the last entry
//	want.json  what its log led to

// versionWant is what the build that wrote a log made of it.
type versionWant struct {
	Mid    uint64
	Chains map[uint64]string // by index, each 25th and the last
	End    versionState
}

// versionState is all that could be read of a machine in version 1. Its fields
// are those of that time, whatever JobInfo and QueueInfo have become.
type versionState struct {
	Index, Term uint64
	TimeMs      int64
	DueMs       int64
	Members     []string
	Totals      versionQueue
	Queues      []versionQueue
	Jobs        []versionJob
	Sessions    []string
	Parked      map[string][]uint64
	Tombs       []string // oldest first
}

type versionQueue struct {
	Queue                                                  string
	Ready, Delayed, Leased, Held, Dead, Waiters            int
	OldestReadyMs                                          int64
	Enqueued, Delivered, Acked, Failed, Expired, DeadTotal uint64
}

type versionJob struct {
	Receipt, Queue, State, Body                  string
	Headers                                      []string
	Priority                                     uint8
	Deliveries, Failures                         uint32
	EnqueuedMs, LeaseUntil, ExpiresMs, DeliverMs int64
	Fence, LastIndex                             uint64
	LastError, Consumer, DeadReason              string
	AtMostOnce                                   bool
}

func queueOfVersion(q QueueInfo) versionQueue {
	return versionQueue{
		q.Queue, q.Ready, q.Delayed, q.Leased, q.Held, q.Dead, q.Waiters, q.OldestReadyMs,
		q.Enqueued, q.Delivered, q.Acked, q.Failed, q.Expired, q.DeadTotal,
	}
}

func stateOfVersion(m *Machine) versionState {
	s := versionState{Index: m.index, Term: m.term, TimeMs: m.now, Totals: queueOfVersion(m.Totals()), Parked: map[string][]uint64{}}
	s.DueMs, _ = m.NextDue()
	for _, e := range m.Members() {
		s.Members = append(s.Members, fmt.Sprintf("%x %s %s %v", e.ID, e.Name, e.Peer, e.Learner))
	}
	m.names.Scan(func(name string, _ uint32) bool {
		if q, ok := m.Queue(name); ok {
			s.Queues = append(s.Queues, queueOfVersion(q))
		}
		return true
	})
	m.jobs.Scan(func(it jobItem) bool {
		j, code := m.Job(it.key)
		if code != CodeOK {
			s.Jobs = append(s.Jobs, versionJob{Receipt: ID{Key: it.key}.String(), State: code.String()}) // its queue is deleted
			return true
		}
		v := versionJob{
			Receipt: j.Receipt().String(), Queue: j.Queue, State: j.State, Body: j.Body, Priority: j.Priority,
			Deliveries: j.Deliveries, Failures: j.Failures, EnqueuedMs: j.EnqueuedMs, LeaseUntil: j.LeaseUntil,
			ExpiresMs: j.ExpiresMs, DeliverMs: j.DeliverMs, Fence: j.Fence, LastIndex: j.LastIndex,
			LastError: j.LastError, Consumer: j.Consumer, DeadReason: j.DeadReason, AtMostOnce: j.AtMostOnce,
		}
		for _, h := range j.Headers {
			v.Headers = append(v.Headers, h.Name+"="+h.Value)
		}
		s.Jobs = append(s.Jobs, v)
		return true
	})
	for _, e := range m.Sessions() {
		s.Sessions = append(s.Sessions, fmt.Sprintf("%x epoch %x last %d away %v waiters %d start %s %s %s %d %d", e.Node, e.Epoch, e.LastBatch, e.Away, e.Waiters,
			e.Start.Client, e.Start.Peer, e.Start.Version, e.Start.FeatureLevel, e.Start.MaxMemory))
		s.Parked[fmt.Sprintf("%x", e.Node)] = m.Parked(e.Node, e.Epoch)
	}
	m.tombOrder.Scan(func(_ uint64, k Key) bool {
		s.Tombs = append(s.Tombs, fmt.Sprintf("%v %v", ID{Key: k}, m.gone(k)))
		return true
	})
	return s
}

// versionEntry is one entry of a log.
type versionEntry struct {
	term uint64
	data []byte
}

// versionMaker makes a log that reaches every state which version 1 knew.
type versionMaker struct {
	random   *rand.Rand
	m        *Machine
	now      int64
	term     uint64
	nodes    []*testNode
	entries  []versionEntry
	receipts []Receipt
	keys     []Key
}

func (v *versionMaker) apply(tb testing.TB, data []byte, self Self) {
	v.entries = append(v.entries, versionEntry{v.term, data})
	a, err := v.m.Apply(v.m.Position().Index+1, v.term, data, self)
	if err != nil {
		tb.Fatal(err)
	}
	for _, r := range a.Results {
		v.learn(r)
	}
	for _, h := range a.Handouts {
		v.learn(h.Result)
	}
}

func (v *versionMaker) learn(r Result) {
	for i := range r.Jobs {
		v.receipts = append(v.receipts, r.Jobs[i].Receipt())
	}
}

func (v *versionMaker) batch(tb testing.TB, n *testNode, ops ...Op) {
	n.number++
	data := EncodeBatch(BatchHeader{Origin: n.id, Epoch: n.epoch, Number: n.number, Term: v.term, TimeMs: v.now}, ops...)
	if len(ops) > 0 && v.random.Intn(12) == 0 {
		data[BatchHeaderSize+1] |= FlagVoid
	}
	if _, ok := first(ops).(*Enqueue); ok && v.random.Intn(6) == 0 {
		data[BatchHeaderSize+1] |= FlagAnswered
	}
	v.apply(tb, data, Self{Origin: n.id, Epoch: n.epoch})
}

func (v *versionMaker) start(tb testing.TB, n *testNode) {
	n.epoch = (n.epoch>>32+1)<<32 | uint64(v.random.Uint32())
	n.number, n.counter, n.request = 0, 0, 0
	data := EncodeBatch(BatchHeader{Origin: n.id, Epoch: n.epoch, TimeMs: v.now},
		&NodeStart{Client: "127.0.0.1:8080", Peer: "http://127.0.0.1:9080", Version: "v0.1", FeatureLevel: 1, MaxMemory: 1 << 30})
	v.apply(tb, data, Self{Origin: n.id, Epoch: n.epoch})
}

func (v *versionMaker) job() NewJob {
	r := v.random
	j := NewJob{Queue: fmt.Sprintf("queue-%d", r.Intn(5)), Body: bytes.Repeat([]byte{'a' + byte(r.Intn(26))}, r.Intn(30)), Priority: PriorityDefault}
	if r.Intn(200) == 0 {
		j.Body = bytes.Repeat([]byte("long "), 300)
	}
	switch r.Intn(12) {
	case 0:
		j.Priority = uint8(r.Intn(10))
	case 1, 8:
		j.AtMostOnce = true
	case 2:
		j.DelayMs = 1000 * int64(r.Intn(600))
	case 3:
		j.AtMs = v.now + 1000*int64(r.Intn(900)) - 60_000
	case 4:
		j.LeaseMs = 1 + int64(r.Intn(20_000))
	case 5:
		j.TTLMs = 1 + int64(r.Intn(300_000))
	case 6, 9:
		j.MaxFailures = int32(r.Intn(3)) - 1
	case 7:
		j.Headers = []Header{{"a", "1"}, {"trace", fmt.Sprint(r.Intn(100))}}
	}
	return j
}

func (v *versionMaker) items() (items []Item) {
	r := v.random
	for range 1 + r.Intn(2) {
		it := Item{DelayMs: -1}
		if n := min(len(v.receipts), 30); n > 0 && r.Intn(8) > 0 {
			it = v.receipts[len(v.receipts)-1-r.Intn(n)].Item()
		} else if len(v.keys) > 0 {
			it.Key, it.ByID = v.keys[r.Intn(len(v.keys))], true
		}
		switch r.Intn(10) {
		case 0:
			it.Tag++
		case 1:
			it.DelayMs = int64(r.Intn(100_000))
		case 2:
			it.LeaseMs = int64(r.Intn(100_000))
		case 3:
			it.Error = "it broke"
		}
		items = append(items, it)
	}
	return items
}

func (v *versionMaker) op(n *testNode) Op {
	r := v.random
	switch r.Intn(16) {
	default:
		op := &Enqueue{First: n.counter + 1, Atomic: r.Intn(4) == 0}
		for range 1 + r.Intn(3) {
			op.Jobs = append(op.Jobs, v.job())
			n.counter++
			v.keys = append(v.keys, Key{n.epoch, n.counter})
		}
		return op
	case 5, 6, 7, 8:
		n.request++
		op := &Dequeue{Request: n.request, Queues: []string{fmt.Sprintf("queue-%d", r.Intn(5))}, Max: int32(1 + r.Intn(3)), LeaseMs: int64(r.Intn(4)) * 40_000}
		if r.Intn(3) == 0 {
			op.Queues, op.WaitMs = []string{fmt.Sprintf("empty-%d", r.Intn(3)), "queue-9"}, WaitMaxMs
		}
		if r.Intn(3) == 0 {
			op.Consumer = "worker"
		}
		return op
	case 9, 14:
		return &Ack{v.items()}
	case 10, 11:
		return &Nack{v.items()}
	case 12:
		if r.Intn(2) == 0 {
			return &Release{v.items()}
		}
		return &Extend{v.items()}
	case 13:
		return &GiveBack{v.items()}
	case 15:
		return &Withdraw{[]uint64{uint64(r.Intn(int(n.request) + 1))}}
	}
}

// TestMakeVersion writes the data of the version that this build writes.
func TestMakeVersion(t *testing.T) {
	if os.Getenv("RAFTQ_MAKE_VERSION") == "" {
		t.Skip("RAFTQ_MAKE_VERSION=1 writes test data of this build's version")
	}
	const seed = 3
	v := &versionMaker{random: rand.New(rand.NewSource(seed)), m: versionGenesis(), now: 1_750_000_000_000, term: 1}
	for i := range 3 {
		v.nodes = append(v.nodes, &testNode{id: uint64(i+1)<<32 | 77})
	}
	want := versionWant{Chains: map[uint64]string{}}
	var mid []byte
	const entries = 800
	for i := range entries {
		n := v.nodes[v.random.Intn(3)]
		v.now += int64(v.random.Intn(2000))
		if i == entries/4 {
			v.now += DeadTTLMs + QueueIdleMs // all is empty once
		}
		switch step := v.random.Intn(60); {
		case i < 3:
			v.start(t, v.nodes[i])
		case step == 0:
			v.start(t, n)
		case step == 1:
			v.term++
			v.apply(t, nil, Self{})
		case step == 2: // timers due
			v.apply(t, EncodeBatch(BatchHeader{TimeMs: v.now}), Self{})
		case step == 3: // a number that comes again
			v.apply(t, EncodeBatch(BatchHeader{Origin: n.id, Epoch: n.epoch, Number: n.number, TimeMs: v.now}, &NodeBack{}), Self{})
		case step == 4 || i == entries-12:
			v.apply(t, EncodeBatch(BatchHeader{TimeMs: v.now}, &NodeAway{n.id, n.epoch}), Self{})
		case step == 5:
			v.batch(t, n, &NodeBack{})
		case step == 6:
			v.batch(t, n, &DeleteQueue{Queue: fmt.Sprintf("queue-%d", v.random.Intn(5)), Force: v.random.Intn(3) == 0})
		default:
			var ops []Op
			for range v.random.Intn(4) {
				ops = append(ops, v.op(n))
			}
			v.batch(t, n, ops...)
		}
		if i == entries/2 {
			want.Mid, mid = v.m.index, encoded(t, v.m)
		}
		if i%25 == 0 {
			want.Chains[v.m.index] = fmt.Sprintf("%016x", v.m.Chain())
		}
	}
	// The last entry leaves jobs to reap.
	v.batch(t, v.nodes[0], &Enqueue{First: 1 << 30, Jobs: []NewJob{{Queue: "doomed", Priority: 4}, {Queue: "doomed", Priority: 4, DelayMs: 5}}}, &DeleteQueue{"doomed", true})
	want.Chains[v.m.index] = fmt.Sprintf("%016x", v.m.Chain())
	want.End = stateOfVersion(v.m)
	if e := want.End.Totals; e.Ready < 30 || e.Delayed < 10 || e.Leased < 10 || e.Held < 3 || e.Dead < 3 || e.Waiters < 3 || len(want.End.Tombs) < 50 || e.Expired < 10 || v.m.doomed.Len() == 0 {
		t.Fatalf("too little in it: %+v, %d tombstones", e, len(want.End.Tombs))
	}
	t.Logf("%d entries, %+v", len(v.entries), want.End.Totals)

	var log []byte
	for _, e := range v.entries {
		log = binary.AppendUvarint(log, e.term)
		log = appendBytes(log, e.data)
	}
	text, err := json.MarshalIndent(want, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	dir := fmt.Sprintf("testdata/version%d", encoded(t, v.m)[len(stateMagic)])
	for name, data := range map[string][]byte{"log.gz": log, "mid.gz": mid, "end.gz": encoded(t, v.m), "want.json.gz": text} {
		var b bytes.Buffer
		w, _ := gzip.NewWriterLevel(&b, gzip.BestCompression)
		w.Write(data)
		w.Close()
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), b.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func versionGenesis() *Machine {
	var members []Member
	for i := range uint64(3) {
		members = append(members, Member{ID: (i+1)<<32 | 77, Name: fmt.Sprintf("n%d", i+1), Peer: fmt.Sprintf("http://127.0.0.1:908%d", i), Learner: i == 2})
	}
	return New(members)
}

func versionFile(t *testing.T, version int, name string) []byte {
	t.Helper()
	f, err := os.Open(fmt.Sprintf("testdata/version%d/%s", version, name))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	r, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	data, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func versionData(t *testing.T, version int) (want versionWant, entries []versionEntry) {
	t.Helper()
	if err := json.Unmarshal(versionFile(t, version, "want.json.gz"), &want); err != nil {
		t.Fatal(err)
	}
	f := &fields{data: versionFile(t, version, "log.gz")}
	for len(f.data) > 0 {
		entries = append(entries, versionEntry{f.uvarint(), f.raw(1 << 30)})
	}
	if !f.ok() || len(entries) < 100 {
		t.Fatalf("%d entries in the log", len(entries))
	}
	return want, entries
}

// wantVersion compares what can be read of a machine with what the build that
// wrote the data read.
func wantVersion(t *testing.T, what string, m *Machine, want versionState) {
	t.Helper()
	if err := m.Check(); err != nil {
		t.Errorf("%s: %v", what, err)
	}
	got, _ := json.MarshalIndent(stateOfVersion(m), "", " ")
	text, _ := json.MarshalIndent(want, "", " ")
	if !bytes.Equal(got, text) {
		for i, line := range bytes.Split(got, []byte("\n")) {
			if lines := bytes.Split(text, []byte("\n")); i >= len(lines) || !bytes.Equal(line, lines[i]) {
				t.Fatalf("%s: line %d\n got %s\nwant %s", what, i, line, lines[min(i, len(lines)-1)])
			}
		}
		t.Fatalf("%s: the end is missing", what)
	}
}

// versions are those whose logs and states every build must take.
var versions = []int{1}

// TestOldLog proves that the log of an earlier version leads to the chain and
// the state that the build of that time came to: nodes of both run side by side,
// and an upgraded node replays what it has.
func TestOldLog(t *testing.T) {
	for _, version := range versions {
		want, entries := versionData(t, version)
		m := versionGenesis()
		for _, e := range entries {
			if _, err := m.Apply(m.Position().Index+1, e.term, e.data, Self{}); err != nil {
				t.Fatal(err)
			}
			if chain, ok := want.Chains[m.index]; ok && chain != fmt.Sprintf("%016x", m.Chain()) {
				t.Fatalf("version %d: chain %016x at index %d, want %s", version, m.Chain(), m.index, chain)
			}
			if m.index == want.Mid && !bytes.Equal(encoded(t, m), versionFile(t, version, "mid.gz")) {
				t.Errorf("version %d: other bytes at index %d", version, m.index)
			}
		}
		wantVersion(t, "replayed", m, want.End)
		if !bytes.Equal(encoded(t, m), versionFile(t, version, "end.gz")) {
			t.Errorf("version %d: other bytes at the end", version)
		}
	}
}

// TestOldState proves that snapshots stay readable from the previous format
// versions, and that the log goes on behind them.
func TestOldState(t *testing.T) {
	for _, version := range versions {
		want, entries := versionData(t, version)
		end, err := Decode(bytes.NewReader(versionFile(t, version, "end.gz")))
		if err != nil {
			t.Fatal(err)
		}
		wantVersion(t, "decoded", end, want.End)
		m, err := Decode(bytes.NewReader(versionFile(t, version, "mid.gz")))
		if err != nil {
			t.Fatal(err)
		}
		if err := m.Check(); err != nil || m.index != want.Mid {
			t.Fatalf("the state in the middle: index %d, %v", m.index, err)
		}
		for _, e := range entries[m.index-1:] {
			if _, err := m.Apply(m.Position().Index+1, e.term, e.data, Self{}); err != nil {
				t.Fatal(err)
			}
		}
		wantVersion(t, "decoded in the middle, then replayed", m, want.End)
		if m.Chain() != end.Chain() || m.Hash() != end.Hash() {
			t.Errorf("version %d: two ways, two ends", version)
		}
	}
}
