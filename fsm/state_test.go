package fsm

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand"
	"strings"
	"testing"

	"github.com/cespare/xxhash/v2"
)

// richMachine has something in every section of the encoded state.
func richMachine(tb testing.TB) *rig {
	r := newRig(tb)
	op := r.enqueue("a", []byte("first"), 4)
	op.Jobs[1].Headers = []Header{{"k", "v"}}
	op.Jobs[2].AtMostOnce = true
	op.Jobs[3].DelayMs, op.Jobs[3].LeaseMs, op.Jobs[3].MaxFailures = 5000, 7000, -1
	r.apply(tb, op, r.enqueue("b", bytes.Repeat([]byte("long"), 1000), 2))
	a := r.apply(tb, r.dequeue("a", 2, 0), r.dequeue("b", 1, 0), r.dequeue("none", 1, 30_000))
	r.now += 1000
	r.apply(tb,
		&Nack{[]Item{withError(a.Results[0].Jobs[0].Receipt().Item(), "boom")}},
		&Ack{[]Item{a.Results[1].Jobs[0].Receipt().Item()}},
		r.enqueue("doomed", nil, 3), &DeleteQueue{"doomed", true})
	return r
}

// richerMachine has something in every section and field of the encoded state of
// version 2 as well.
func richerMachine(tb testing.TB) *rig {
	r := richMachine(tb)
	op := r.enqueue("a", []byte("keys"), 3)
	op.Jobs[0].DedupID, op.Jobs[1].UniqueKey, op.Jobs[2].Group = "dedup", "unique", "group"
	more := r.enqueue("gone", nil, 1)
	more.Jobs[0].DedupID = "of a deleted queue"
	tried, waits := r.dequeue("a", 2, 0), r.dequeue("nothing", 1, 20_000)
	tried.AttemptID, waits.AttemptID = "attempt", "waits"
	r.apply(tb, op, &Keyed{Key: "key", Op: r.enqueue("b", nil, 2)}, &Alarm{75}, more, &DeleteQueue{"gone", true}, tried, waits)
	// Dead letters, one of them leased and to be canceled; a job held back by a
	// pause; a dead one that came back before.
	r.apply(tb,
		&Configure{Queue: "letters", Config: QueueConfig{DeadTTLMs: 90_000_000}, Fields: FieldDeadTTL},
		&Configure{Queue: "life", Config: QueueConfig{TTLMs: 80_000_000, MaxFailures: 1, DeadLetter: "letters"}, Fields: AllFields},
		r.enqueue("life", []byte("life"), 5))
	take := r.dequeue("life", 4, 0)
	take.Consumer = "worker"
	jobs := r.apply(tb, take).Results[0].Jobs
	r.apply(tb,
		&Nack{[]Item{jobs[0].Receipt().Item(), withError(jobs[1].Receipt().Item(), "boom")}},
		&Pause{Queue: "life", In: true, UntilMs: r.now + 500_000}, &Release{[]Item{jobs[2].Receipt().Item()}}, r.dequeue("letters", 1, 0),
		&Cancel{[]Key{jobs[0].ID.Key}}, &Configure{Queue: "life", Fields: FieldDeadLetter}, &Reject{[]Item{jobs[3].Receipt().Item()}}, &Redrive{Queue: "life"})
	if err := r.m.Check(); err != nil {
		tb.Fatal(err)
	}
	return r
}

func withError(it Item, text string) Item {
	it.Error = text
	return it
}

func encoded(tb testing.TB, m *Machine) []byte {
	var b bytes.Buffer
	if err := m.Encode(&b); err != nil {
		tb.Fatal(err)
	}
	return b.Bytes()
}

// TestChainVectors proves that the chain and the encoded state of a fixed log
// are what they were: nodes of different builds compare the one and read the
// other. When this fails for a good reason, chainVersion or stateVersion must
// go up.
func TestChainVectors(t *testing.T) {
	if got, want := New(nil).Chain(), uint64(0x9f1ffc793b8a47da); got != want {
		t.Errorf("genesis chain %#x, want %#x", got, want)
	}
	r := richMachine(t)
	if got, want := r.m.Chain(), uint64(0xfeeaeaf337858b93); got != want {
		t.Errorf("chain %#x, want %#x", got, want)
	}
	if got, want := r.m.Hash(), uint64(0xfa1c97254090a0c9); got != want {
		t.Errorf("state hash %#x, want %#x", got, want)
	}
	// Timers, and jobs that are reaped.
	r.now += 100_000
	r.apply(t)
	if got, want := r.m.Chain(), uint64(0xf4ccad9dbfbfc345); got != want {
		t.Errorf("chain after timers %#x, want %#x", got, want)
	}
	r.m.Apply(r.m.Position().Index+1, 2, nil, r.self)
	if got, want := r.m.Chain(), uint64(0x855d852e91a50e15); got != want {
		t.Errorf("chain after an empty entry %#x, want %#x", got, want)
	}
}

// TestChainCovers proves that the chain sees the index, the term, every byte of
// an entry, and what came of it.
func TestChainCovers(t *testing.T) {
	chains := map[uint64]string{}
	note := func(what string, m *Machine) {
		if before, ok := chains[m.Chain()]; ok {
			t.Errorf("%s and %s have one chain", before, what)
		}
		chains[m.Chain()] = what
	}
	base := func() *rig { r := newRig(t); r.apply(t, r.enqueue("q", nil, 1)); return r }
	r := base()
	note("base", r.m)
	r.apply(t, r.dequeue("q", 1, 0))
	note("dequeue", r.m)
	r = base()
	r.now++
	r.apply(t, r.dequeue("q", 1, 0))
	note("later dequeue", r.m)
	r = base()
	r.m.Apply(r.m.Position().Index+1, 2, r.encode(r.dequeue("q", 1, 0)), r.self)
	note("dequeue in another term", r.m)
	r = base()
	r.m.seq++ // the outcome differs, not the entry
	r.m.Apply(r.m.Position().Index+1, 1, r.encode(r.dequeue("other", 1, 500)), r.self)
	r.apply(t, r.enqueue("other", nil, 1))
	note("odd sequence", r.m)
	r = base()
	r.m.Apply(r.m.Position().Index+1, 1, r.encode(r.dequeue("other", 1, 500)), r.self)
	r.apply(t, r.enqueue("other", nil, 1))
	note("even sequence", r.m)
}

// TestDamage proves that a state which is not byte for byte what was written is
// refused, without a panic and without much memory, and that one of a newer
// build is told from it.
func TestDamage(t *testing.T) {
	testDamage(t, encoded(t, richMachine(t).m))
	testDamage(t, encoded(t, richerMachine(t).m))
}

func testDamage(t *testing.T, data []byte) {
	for i := range data {
		for _, bit := range []byte{1, 0x80} {
			bad := bytes.Clone(data)
			bad[i] ^= bit
			if _, err := Decode(bytes.NewReader(bad)); err == nil {
				t.Errorf("byte %d of %d changed, and nobody minded", i, len(data))
			}
		}
		if _, err := Decode(bytes.NewReader(data[:i])); err == nil {
			t.Errorf("%d bytes of %d, and nobody minded", i, len(data))
		} else if i > 0 && !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("%d bytes: %v", i, err)
		}
	}
	newer := bytes.Clone(data)
	newer[len(stateMagic)] = stateVersion + 1
	if _, err := Decode(bytes.NewReader(newer)); !errors.Is(err, ErrNewer) {
		t.Errorf("newer version: %v", err)
	}
	// A section of a newer build, with a good checksum.
	cut := data[:len(data)-blockHeader-8]
	newer = append(bytes.Clone(cut), 0, 0, 0, 1, 99, 0)
	newer = append(newer, 0, 0, 0, 8, sectionEnd)
	newer = binary.BigEndian.AppendUint64(newer, xxhash.Sum64(newer[:len(newer)-5]))
	if _, err := Decode(bytes.NewReader(newer)); !errors.Is(err, ErrNewer) {
		t.Errorf("newer section: %v", err)
	}
}

// TestVersion proves that a state is written as version 2 once every member can
// read that and no sooner, and that a machine which it restores goes on so.
func TestVersion(t *testing.T) {
	m := New([]Member{{ID: 1 << 32}, {ID: 2 << 32}, {ID: 3 << 32, Learner: true}})
	start := func(node, boot uint64, level uint32) {
		t.Helper()
		data := EncodeBatch(BatchHeader{Origin: node << 32, Epoch: boot<<32 | node}, &NodeStart{FeatureLevel: level})
		if a, err := m.Apply(m.Position().Index+1, 1, data, Self{}); err != nil || !a.Effect {
			t.Fatalf("%v %+v", err, a)
		}
	}
	for i, step := range []struct {
		node, boot   uint64
		level        uint32
		all          uint32
		stateVersion byte
	}{
		{1, 1, 2, 0, 1}, // the other voter may be anything
		{2, 1, 1, 1, 1},
		{3, 1, 1, 1, 1},
		{2, 2, 2, 1, 1}, // the learner started: it counts
		{3, 2, 9, 2, 2},
		{2, 3, 1, 1, 2}, // what is in the state stays
	} {
		start(step.node, step.boot, step.level)
		data := encoded(t, m)
		if m.FeatureLevel() != step.all || data[len(stateMagic)] != step.stateVersion {
			t.Errorf("step %d: feature level %d, version %d, want %+v", i, m.FeatureLevel(), data[len(stateMagic)], step)
		}
		r, err := Decode(bytes.NewReader(data))
		if err != nil || !bytes.Equal(encoded(t, r), data) || !bytes.Equal(encoded(t, m.Copy()), data) {
			t.Errorf("step %d: %v", i, err)
		}
	}
}

// TestLies proves that records which are well-formed but cannot be true are
// refused although the checksum is good.
func TestLies(t *testing.T) {
	lies := map[string]func(m *Machine){
		"a job of no queue":       func(m *Machine) { each(m, func(j *job) { j.queue = 99 }) },
		"a sequence to come":      func(m *Machine) { each(m, func(j *job) { j.seq += 1000 }) },
		"a sequence twice":        func(m *Machine) { each(m, func(j *job) { j.seq = 1 }) },
		"a priority":              func(m *Machine) { each(m, func(j *job) { j.priority = 12 }) },
		"a state":                 func(m *Machine) { each(m, func(j *job) { j.state = 7 }) },
		"a due time in the past":  func(m *Machine) { each(m, func(j *job) { j.dueMs = min(j.dueMs, 1) }) },
		"a TTL in the past":       func(m *Machine) { each(m, func(j *job) { j.expiresMs = min(j.expiresMs, 1) }) },
		"a waiter of no session":  func(m *Machine) { m.sessions.Clear() },
		"a waiter of the past":    func(m *Machine) { m.parked.Scan(func(p parkedItem) bool { p.waiter.deadlineMs = 1; return true }) },
		"a waiter of no queue":    func(m *Machine) { m.parked.Scan(func(p parkedItem) bool { p.waiter.queues[0] = "?"; return true }) },
		"a queue for nothing":     func(m *Machine) { m.parked.Clear() },
		"a name twice":            func(m *Machine) { m.queues.Scan(func(_ uint32, q *queue) bool { q.name = "a"; return true }) },
		"more deliveries":         func(m *Machine) { each(m, func(j *job) { j.deliveries = j.grant + 1 }) },
		"a time before the epoch": func(m *Machine) { m.now = -1 },
		"a dedup id of no queue":  func(m *Machine) { m.keys.Scan(func(k *queueKey) bool { k.queue += 99; return true }) },
		"a dedup id of the past":  func(m *Machine) { m.keys.Scan(func(k *queueKey) bool { k.untilMs = 1; return true }) },
		"a unique key twice": func(m *Machine) {
			each(m, func(j *job) { j.rare, j.flags = &rare{more: &more{uniqueKey: "u"}}, j.flags|flagUnique })
		},
		"a unique key of nothing":     func(m *Machine) { each(m, func(j *job) { j.flags |= flagUnique }) },
		"a kept result of the past":   func(m *Machine) { m.kept.Scan(func(k *kept) bool { k.untilMs = 1; return true }) },
		"a kept result without sense": func(m *Machine) { m.kept.Scan(func(k *kept) bool { k.result += "?"; return true }) },
		"an attempt of no job":        func(m *Machine) { eachAttempt(m, func(a *attempt) { a.jobs[0].holders = 0 }) },
		"settings of tomorrow":        func(m *Machine) { told(m, func(s *settings) { s.changed = m.index + 1 }) },
		"a pause of the past":         func(m *Machine) { told(m, func(s *settings) { s.untilMs = min(s.untilMs, 1) }) },
		"an end of no pause":          func(m *Machine) { told(m, func(s *settings) { s.pausedIn, s.untilMs = false, m.now+1 }) },
		"a lease of no length":        func(m *Machine) { told(m, func(s *settings) { s.config.LeaseMs = -1 }) },
		"settings of a queue for waiters": func(m *Machine) {
			m.queues.Scan(func(_ uint32, q *queue) bool { q.settings = &settings{}; return true })
		},
		"a dead letter of nowhere":  func(m *Machine) { past(m, func(h *history) { h.source = "" }) },
		"a dead letter of the past": func(m *Machine) { past(m, func(h *history) { h.keepMs = min(h.keepMs, 1) }) },
		"a death to come":           func(m *Machine) { past(m, func(h *history) { h.deadMs = m.now + 2 }) },
		"a dead letter that is dead": func(m *Machine) {
			each(m, func(j *job) {
				if j.moved() {
					j.state, j.dueMs = stateDead, m.now+1
				}
			})
		},
		"a dead letter of no reason": func(m *Machine) {
			each(m, func(j *job) {
				if j.moved() {
					j.rare.deadReason = reasonNone
				}
			})
		},
		"a disk of 42 %": func(m *Machine) { m.sessions.Scan(func(_ uint64, s *session) bool { s.disk = 42; return true }) },
	}
	for name, lie := range lies {
		r := richerMachine(t)
		lie(r.m)
		if _, err := Decode(bytes.NewReader(encoded(t, r.m))); err == nil || errors.Is(err, ErrNewer) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func eachAttempt(m *Machine, do func(*attempt)) {
	m.attempts.Scan(func(_ string, a *attempt) bool {
		if a.waiter == nil {
			do(a)
		}
		return true
	})
}

func each(m *Machine, do func(*job)) {
	m.jobs.Scan(func(it jobItem) bool { do(it.job); return true })
}

func told(m *Machine, do func(*settings)) {
	m.queues.Scan(func(_ uint32, q *queue) bool {
		if q.settings != nil {
			do(q.settings)
		}
		return true
	})
}

func past(m *Machine, do func(*history)) {
	each(m, func(j *job) {
		if j.moved() {
			do(j.rare.history)
		}
	})
}

// TestStreams proves that Decode reads no byte further than the state, that
// large states are written in blocks, and that a writer's error comes back.
func TestStreams(t *testing.T) {
	r := newRig(t)
	for range 300 {
		r.apply(t, r.enqueue("q", bytes.Repeat([]byte("x"), 3000), 3))
	}
	r.apply(t, r.enqueue("big", make([]byte, BodyMax), 1))
	data := encoded(t, r.m)
	in := io.MultiReader(bytes.NewReader(data), strings.NewReader("tail"))
	m, err := Decode(in)
	if err != nil {
		t.Fatal(err)
	}
	if rest, _ := io.ReadAll(in); string(rest) != "tail" {
		t.Errorf("%d bytes left behind the state", len(rest))
	}
	if err := m.Check(); err != nil {
		t.Error(err)
	}
	if !bytes.Equal(encoded(t, m), data) {
		t.Error("restored to other bytes")
	}
	for _, n := range []int{0, 5, 100, 70_000, len(data) - 1} {
		if err := r.m.Encode(&fullDisk{n}); !errors.Is(err, errFull) {
			t.Errorf("disk full after %d bytes: %v", n, err)
		}
	}
}

var errFull = errors.New("disk full")

type fullDisk struct{ left int }

func (w *fullDisk) Write(b []byte) (int, error) {
	if w.left -= len(b); w.left < 0 {
		return 0, errFull
	}
	return len(b), nil
}

// TestPrefixes proves that a node which starts from a snapshot at any index
// comes to the same state and chain as one that applied everything.
func TestPrefixes(t *testing.T) {
	random := rand.New(rand.NewSource(1))
	r := newRig(t)
	var entries [][]byte
	var snapshots [][]byte
	snapshots = append(snapshots, encoded(t, r.m))
	for i := range 60 {
		r.now += random.Int63n(4000)
		ops := []Op{r.enqueue(fmt.Sprint("q", random.Intn(4)), []byte("x"), 1+random.Intn(3)), r.dequeue(fmt.Sprint("q", random.Intn(4)), 2, 3000)}
		for range 3 {
			k := Key{r.self.Epoch, 1 + uint64(random.Int63n(int64(r.counter)))}
			ops = append(ops, []Op{&Ack{[]Item{{Key: k, ByID: true}}}, &Nack{[]Item{{Key: k, ByID: true, DelayMs: -1}}}, &Extend{[]Item{{Key: k, ByID: true, LeaseMs: 500}}}}[random.Intn(3)])
		}
		if i%20 == 19 {
			ops = append(ops, &DeleteQueue{"q1", true})
		}
		entries = append(entries, r.encode(ops...))
		r.applyData(t, entries[i])
		snapshots = append(snapshots, encoded(t, r.m))
	}
	for i := range snapshots {
		m, err := Decode(bytes.NewReader(snapshots[i]))
		if err != nil {
			t.Fatal(err)
		}
		for k := i; k < len(entries); k++ {
			if !bytes.Equal(encoded(t, m), snapshots[k]) {
				t.Fatalf("from the snapshot at %d, entry %d comes to another state", i, k)
			}
			if _, err := m.Apply(m.Position().Index+1, 1, entries[k], r.self); err != nil {
				t.Fatal(err)
			}
		}
		if m.Chain() != r.m.Chain() || m.Hash() != r.m.Hash() {
			t.Errorf("from the snapshot at %d: another end", i)
		}
	}
}

// FuzzDecode proves that no bytes make Decode panic, and that what it takes is a
// sound machine which encodes to the same bytes.
func FuzzDecode(f *testing.F) {
	f.Add(encoded(f, richMachine(f).m)[len(stateMagic):])
	f.Add(encoded(f, richerMachine(f).m)[len(stateMagic):])
	f.Add(encoded(f, New([]Member{{ID: 1, Name: "a"}}))[len(stateMagic):])
	f.Fuzz(func(t *testing.T, blocks []byte) { // the first byte is the version
		// The checksum would keep all the rest from being reached.
		data := []byte(stateMagic)
		if n := len(blocks) - blockHeader - 8; n > 1 {
			blocks = blocks[:n]
		}
		data = append(data, blocks...)
		sum := xxhash.Sum64(data)
		data = append(data, 0, 0, 0, 8, sectionEnd)
		data = binary.BigEndian.AppendUint64(data, sum)
		m, err := Decode(bytes.NewReader(data))
		if err != nil {
			return
		}
		if err := m.Check(); err != nil {
			t.Fatal(err)
		}
		again := encoded(t, m)
		m2, err := Decode(bytes.NewReader(again))
		if err != nil || !bytes.Equal(encoded(t, m2), again) {
			t.Fatalf("not stable: %v", err)
		}
	})
}
