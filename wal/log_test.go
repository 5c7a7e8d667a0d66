package wal

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"
)

var (
	testBoot = [16]byte{1, 2, 3}
	testMeta = []byte("metadata of a test")
	testConf = &raftpb.ConfState{Voters: []uint64{1, 2, 3}}
)

func hs(term, vote, commit uint64) *raftpb.HardState { return hardState{term, vote, commit}.message() }

func entry(index, term uint64, data string) *raftpb.Entry {
	e := &raftpb.Entry{Index: &index, Term: &term}
	if data != "" {
		e.Data = []byte(data)
	}
	return e
}

func entries(from, to, term uint64) []*raftpb.Entry {
	var out []*raftpb.Entry
	for i := from; i <= to; i++ {
		out = append(out, entry(i, term, fmt.Sprintf("entry %d of term %d", i, term)))
	}
	return out
}

func marker(index, term uint64) Marker { return Marker{index, term, testConf} }

// testDir is in memory where that is possible: no test here looks at what an
// fsync does, and thousands of logs are opened.
func testDir(t testing.TB) string {
	t.Helper()
	if _, bench := t.(*testing.B); bench {
		return t.TempDir()
	}
	dir, err := os.MkdirTemp("/dev/shm", "raftq-wal-test-")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// newLog makes a log in a directory of its own with genesis at index 1, term 1.
func newLog(t testing.TB, segmentBytes int64) Options {
	t.Helper()
	dir := testDir(t)
	opts := Options{Dir: filepath.Join(dir, "wal"), NotePath: filepath.Join(dir, "note"), SegmentBytes: segmentBytes, BootID: testBoot}
	if err := Create(opts, testMeta, hs(1, 0, 1), marker(1, 1)); err != nil {
		t.Fatal(err)
	}
	return opts
}

func mustOpen(t testing.TB, opts Options, usable func([]byte, Marker) bool) (*Log, *State) {
	t.Helper()
	l, st, err := Open(opts, usable)
	if err != nil {
		t.Fatal(err)
	}
	return l, st
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func wantState(t testing.TB, st *State, m uint64, h *raftpb.HardState, ents []*raftpb.Entry) {
	t.Helper()
	if st.Marker.Index != m || !proto.Equal(st.HardState, h) {
		t.Fatalf("marker %d, hard state %v; want %d, %v", st.Marker.Index, st.HardState, m, h)
	}
	if len(st.Entries) != len(ents) {
		t.Fatalf("%d entries, want %d", len(st.Entries), len(ents))
	}
	for i := range ents {
		if !proto.Equal(st.Entries[i], ents[i]) {
			t.Fatalf("entry %d: %v, want %v", i, st.Entries[i], ents[i])
		}
	}
}

// A log made, written, closed and opened gives back what was written.
func TestRoundTrip(t *testing.T) {
	opts := newLog(t, 1<<16)
	l, st := mustOpen(t, opts, nil)
	wantState(t, st, 1, hs(1, 0, 1), nil)
	if !st.Noted || st.TornTail || st.Base != nil || string(st.Metadata) != string(testMeta) || !proto.Equal(st.Marker.ConfState, testConf) {
		t.Fatalf("%+v", st)
	}
	base := TimeBase{3, 2, 1234, 5678}
	must(t, l.Save(hs(2, 1, 1), entries(2, 3, 2), base))
	must(t, l.Save(hs(2, 1, 3), entries(4, 6, 2), base))
	must(t, l.Save(nil, entries(5, 5, 2), base))
	must(t, l.Mark(nil, marker(3, 2), base))
	must(t, l.Close())
	if err := l.Save(hs(3, 0, 3), nil, base); !errors.Is(err, errClosed) {
		t.Fatal(err)
	}
	l, st = mustOpen(t, opts, nil)
	wantState(t, st, 3, hs(2, 1, 3), entries(4, 5, 2))
	if st.Base == nil || *st.Base != base || !st.SameBoot {
		t.Fatalf("%+v", st)
	}
	must(t, l.Close())
	l, st = mustOpen(t, opts, func(_ []byte, m Marker) bool { return m.Index < 3 })
	wantState(t, st, 1, hs(2, 1, 3), entries(2, 5, 2))
	must(t, l.Close())
}

// driver does random things to a log that raft may do to one, with a naive model
// of what must be there.
type driver struct {
	t       testing.TB
	r       *rand.Rand
	l       *Log
	ents    []*raftpb.Entry // of index base+1 ...
	base    uint64
	hs      hardState
	markers []Marker
	big     bool
}

func (d *driver) last() uint64 { return d.base + uint64(len(d.ents)) }

func (d *driver) term(i uint64) uint64 {
	if i == d.base {
		for _, m := range d.markers {
			if m.Index == i {
				return m.Term
			}
		}
		return 0
	}
	return d.ents[i-d.base-1].GetTerm()
}

func (d *driver) step() {
	d.t.Helper()
	r := d.r
	switch k := r.IntN(20); {
	case k < 12: // append, now and then over the uncommitted tail, in a new term
		from := d.last() + 1
		if r.IntN(5) == 0 && d.last() > d.hs.commit {
			from = d.hs.commit + 1 + r.Uint64N(d.last()-d.hs.commit)
			d.hs.term++
			d.hs.vote = r.Uint64N(4)
		}
		d.ents = d.ents[:from-d.base-1]
		var add []*raftpb.Entry
		for range 1 + r.IntN(8) {
			n := r.IntN(300)
			if d.big && r.IntN(10) == 0 {
				n = r.IntN(400_000)
			}
			data := make([]byte, n)
			for i := range data {
				data[i] = byte(r.Uint32())
			}
			if r.IntN(6) == 0 {
				clear(data)
			}
			i, t := from+uint64(len(add)), d.hs.term
			e := &raftpb.Entry{Index: &i, Term: &t, Data: data}
			if r.IntN(3) == 0 {
				ty := raftpb.EntryType(r.IntN(3))
				e.Type = &ty
			}
			if r.IntN(10) == 0 {
				e.Data = nil
			}
			add = append(add, e)
		}
		d.ents = append(d.ents, add...)
		if r.IntN(3) == 0 {
			d.hs.commit += r.Uint64N(d.last() - d.hs.commit + 1)
		}
		must(d.t, d.l.Save(d.hs.message(), add, TimeBase{d.last(), d.hs.term, int64(d.last()), 1}))
	case k < 15: // commit alone: not synced
		d.hs.commit += r.Uint64N(d.last() - d.hs.commit + 1)
		must(d.t, d.l.Save(d.hs.message(), nil, d.l.base))
	case k < 17: // new term, vote
		d.hs.term += 1 + r.Uint64N(3)
		d.hs.vote = r.Uint64N(4)
		must(d.t, d.l.Save(d.hs.message(), nil, d.l.base))
	case k < 19: // own snapshot
		if d.hs.commit == d.base {
			return
		}
		i := d.base + 1 + r.Uint64N(d.hs.commit-d.base)
		if n := len(d.markers); n > 0 && i <= d.markers[n-1].Index {
			return
		}
		m := marker(i, d.term(i))
		d.markers = append(d.markers, m)
		must(d.t, d.l.Mark(d.hs.message(), m, d.l.base))
		if r.IntN(2) == 0 {
			must(d.t, d.l.Release(i))
		}
	default: // another node's snapshot, beyond the log or against its tail
		if r.IntN(3) > 0 {
			return
		}
		i := d.hs.commit + 1 + r.Uint64N(20)
		d.hs.term++
		d.hs.vote = 0
		m := marker(i, d.hs.term)
		d.hs.commit = i
		d.base, d.ents, d.markers = i, nil, []Marker{m}
		more := d.hs
		if r.IntN(2) == 0 {
			more.commit += 5 // entries to come with the next Save
		}
		must(d.t, d.l.Mark(more.message(), m, TimeBase{}))
	}
}

// The position that the Log keeps is that of the files after every step, through
// random saves, cuts, truncations, markers and restarts, and a replay gives what
// a naive model has.
func TestPositionFollowsFiles(t *testing.T) {
	for _, c := range []struct {
		segment int64
		big     bool
		steps   int
		seed    uint64
	}{
		{4 << 10, false, 300, 0},
		// A received snapshot at the index where the released head of the log ended.
		{4 << 10, false, 210, 1586998847611788183},
		{16 << 10, false, 300, 0}, {256 << 10, true, 150, 0}, {1 << 20, true, 100, 0},
	} {
		t.Run(fmt.Sprint(c.segment), func(t *testing.T) {
			seed := c.seed
			if seed == 0 {
				seed = rand.Uint64()
			}
			t.Log("seed", seed)
			opts := newLog(t, c.segment)
			l, _ := mustOpen(t, opts, nil)
			d := &driver{t: t, r: rand.New(rand.NewPCG(seed, 1)), l: l, base: 1, hs: hardState{1, 0, 1}, markers: []Marker{marker(1, 1)}, big: c.big}
			for i := range c.steps {
				d.step()
				if d.r.IntN(3) == 0 {
					// Let out what only the buffer has, as Close would.
					must(t, d.l.w.Sync())
					d.l.pos.flush()
				}
				if d.l.pos.buffered == 0 {
					n, err := readNote(opts.NotePath)
					must(t, err)
					s, err := scanLog(opts.Dir, n)
					must(t, err)
					if _, err := s.judge(); err != nil {
						t.Fatalf("step %d: %v", i, err)
					}
					if !s.noteFound {
						t.Fatal("the note is not at a record's end")
					}
					if tail := s.tail(); tail.seq != d.l.pos.segment || tail.used != d.l.pos.offset() || s.crc != d.l.pos.crc.Sum32() {
						t.Fatalf("step %d: files at %x:%d crc %x, position %x:%d crc %x", i, tail.seq, tail.used, s.crc, d.l.pos.segment, d.l.pos.offset(), d.l.pos.crc.Sum32())
					}
					if a, b := s.shape, d.l.shape; a.last != b.last || a.hs != b.hs || a.commit() != b.commit() {
						t.Fatalf("step %d: shape %+v, writer's %+v", i, a, b)
					}
					d.check(s)
				}
				if d.r.IntN(25) == 0 {
					must(t, d.l.Close())
					var st *State
					d.l, st = mustOpen(t, opts, nil)
					m := d.markers[len(d.markers)-1]
					wantState(t, st, m.Index, d.hs.message(), d.ents[m.Index-d.base:])
				}
			}
			if n := d.l.Stats().Segments; n > 200 {
				t.Fatalf("%d segments are left", n)
			}
			t.Logf("%+v", d.l.Stats())
			must(t, d.l.Close())
		})
	}
}

func (d *driver) check(s *scan) {
	d.t.Helper()
	m, ents, err := s.choose(nil)
	must(d.t, err)
	want := d.ents[m.Index-d.base:]
	if m.Index != d.markers[len(d.markers)-1].Index || len(ents) != len(want) || s.shape.hs != d.hs {
		d.t.Fatalf("marker %d, %d entries, hard state %v; want %d, %d, %v", m.Index, len(ents), s.shape.hs, d.markers[len(d.markers)-1].Index, len(want), d.hs)
	}
	for i := range want {
		if !proto.Equal(ents[i], want[i]) {
			d.t.Fatalf("entry %d differs", want[i].GetIndex())
		}
	}
}

func copyLog(t testing.TB, opts Options) Options {
	t.Helper()
	to := opts
	dir := testDir(t)
	to.Dir, to.NotePath = filepath.Join(dir, "wal"), filepath.Join(dir, "note")
	must(t, os.CopyFS(to.Dir, os.DirFS(opts.Dir)))
	if b, err := os.ReadFile(opts.NotePath); err == nil {
		must(t, os.WriteFile(to.NotePath, b, 0o600))
	}
	return to
}
