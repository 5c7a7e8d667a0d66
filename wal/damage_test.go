package wal

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.etcd.io/etcd/client/pkg/v3/fileutil"
	etcdwal "go.etcd.io/etcd/server/v3/storage/wal"
	"go.etcd.io/etcd/server/v3/storage/wal/walpb"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"
)

// at is the end of a record.
type at struct {
	segment int // in the sorted list
	offset  int64
	state   string // what the log is up to here, see fingerprint
}

func fingerprint(m Marker, h *raftpb.HardState, ents []*raftpb.Entry) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d/%d %d/%d/%d", m.Index, m.Term, h.GetTerm(), h.GetVote(), h.GetCommit())
	for _, e := range ents {
		fmt.Fprintf(&b, " %d/%d/%v/%q", e.GetIndex(), e.GetTerm(), e.GetType(), e.GetData())
	}
	return b.String()
}

// truth reads an undamaged log with etcd's decoder and folds it in the most naive
// way: what must come out if the log ended after each record.
func truth(t testing.TB, opts Options) []at {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(opts.Dir, "*.wal"))
	must(t, err)
	var out []at
	log := map[uint64]*raftpb.Entry{}
	var first, last uint64
	var h raftpb.HardState
	var markers []Marker
	var sum uint32
	for i, name := range files {
		f, err := os.Open(name)
		must(t, err)
		d := etcdwal.NewDecoder(fileutil.NewFileReader(f))
		d.UpdateCRC(sum)
		for {
			var rec walpb.Record
			err := d.Decode(&rec)
			if errors.Is(err, io.EOF) {
				break
			}
			must(t, err)
			switch rec.GetType() {
			case etcdwal.CrcType:
				d.UpdateCRC(rec.GetCrc())
			case etcdwal.EntryType:
				e := etcdwal.MustUnmarshalEntry(rec.Data)
				for j := e.GetIndex(); j <= last; j++ {
					delete(log, j)
				}
				last = e.GetIndex()
				if first == 0 || first > last {
					first = last
				}
				log[last] = e
			case etcdwal.StateType:
				h.Reset()
				must(t, proto.Unmarshal(rec.Data, &h))
			case etcdwal.SnapshotType:
				var s walpb.Snapshot
				must(t, proto.Unmarshal(rec.Data, &s))
				m := Marker{s.GetIndex(), s.GetTerm(), s.GetConfState()}
				markers = append(markers, m)
				if log[m.Index].GetTerm() != m.Term && m.Index+1 > first {
					log, last = map[uint64]*raftpb.Entry{}, m.Index
				}
			}
			sum = d.LastCRC()
			a := at{segment: i, offset: d.LastOffset()}
			for _, m := range markers {
				if m.Index == 0 || m.Index > last || h.Term == nil {
					continue
				}
				var ents []*raftpb.Entry
				for j := m.Index + 1; j <= last; j++ {
					if log[j] == nil {
						ents = nil
						break
					}
					ents = append(ents, log[j])
				}
				if m.Index < last && ents == nil {
					continue
				}
				st := hardState{h.GetTerm(), h.GetVote(), max(h.GetCommit(), m.Index)}
				if t := log[last].GetTerm(); t > st.term {
					st.term, st.vote = t, 0
				}
				a.state = fingerprint(m, st.message(), ents) // the newest that fits stays
			}
			out = append(out, a)
		}
		f.Close()
	}
	return out
}

// sampleLog is a small log with everything in it: several segments, truncations,
// own and received snapshots, zero bodies, empty entries; closed.
func sampleLog(t testing.TB, seed uint64, steps int) Options {
	t.Helper()
	opts := newLog(t, 4<<10)
	l, _ := mustOpen(t, opts, nil)
	d := &driver{t: t, r: rand.New(rand.NewPCG(seed, 7)), l: l, base: 1, hs: hardState{1, 0, 1}, markers: []Marker{marker(1, 1)}}
	for range steps {
		d.step()
	}
	must(t, d.l.Close())
	return opts
}

func segmentFiles(t testing.TB, opts Options) []string {
	files, err := filepath.Glob(filepath.Join(opts.Dir, "*.wal"))
	must(t, err)
	return files
}

// setNote writes a note that says that the log was synced up to a record's end.
func setNote(t testing.TB, opts Options, pos at) {
	t.Helper()
	// The position's checksum and state come from a log cut there.
	c := copyLog(t, opts)
	files := segmentFiles(t, c)
	for _, f := range files[pos.segment+1:] {
		must(t, os.Remove(f))
	}
	must(t, os.Truncate(files[pos.segment], pos.offset))
	s, err := scanLog(c.Dir, nil)
	must(t, err)
	must(t, os.RemoveAll(opts.NotePath))
	nf, err := openNote(opts.NotePath, 1)
	must(t, err)
	must(t, nf.write(&note{segment: s.tail().seq, offset: s.tail().used, crc: s.crc, hs: s.shape.hs, last: s.shape.last, lastTerm: s.shape.lastTerm()}))
	must(t, nf.close())
	must(t, os.RemoveAll(filepath.Dir(c.Dir)))
}

// outcome is what a start would do, without writing.
func outcome(opts Options) (state string, torn bool, err error) {
	n, err := readNote(opts.NotePath)
	if err != nil {
		return "", false, err
	}
	s, err := scanLog(opts.Dir, n)
	if err != nil {
		return "", false, err
	}
	cut, err := s.judge()
	if err != nil {
		return "", false, err
	}
	m, ents, err := s.choose(nil)
	if err != nil {
		return "", false, err
	}
	h := s.shape.hs
	if t := s.shape.lastTerm(); t > h.term {
		h.term, h.vote = t, 0
	}
	h.commit = s.shape.commit()
	return fingerprint(m, h.message(), ents), cut, nil
}

// lives finds the record that an opened log ends with; -1: none, it is wrong.
func lives(points []at, state string) int {
	for i := len(points) - 1; i >= 0; i-- {
		if points[i].state == state {
			return i
		}
	}
	return -1
}

// The oracle and the replay agree on logs cut after every record, and a log cut
// there below the note is refused as a lost tail.
func TestEveryPrefix(t *testing.T) {
	for seed := range uint64(6) {
		opts := sampleLog(t, seed, 60)
		points := truth(t, opts)
		mid := len(points) / 2
		files := segmentFiles(t, opts)
		head := 0 // of the last segment: it shows up synced
		for points[head].segment < len(files)-1 {
			head++
		}
		head += 2
		if mid = max(mid, head); mid >= len(points) {
			continue
		}
		setNote(t, opts, points[mid])
		tail := files[len(files)-1]
		whole, err := os.ReadFile(tail)
		must(t, err)
		for i := len(points) - 1; i >= head; i-- {
			must(t, os.WriteFile(tail, whole[:points[i].offset], 0o600))
			state, _, err := outcome(opts)
			var lost *LostTailError
			switch {
			case i < mid && !errors.As(err, &lost):
				t.Fatalf("seed %d: record %d of %d, note at %d: %v", seed, i, len(points), mid, err)
			case i >= mid && points[i].state == "": // the older snapshot's segments were released behind this record
				if err == nil {
					t.Fatalf("seed %d: record %d of %d: opened", seed, i, len(points))
				}
			case i >= mid && (err != nil || state != points[i].state):
				t.Fatalf("seed %d: record %d of %d: %v\n%s\n%s", seed, i, len(points), err, state, points[i].state)
			}
		}
	}
}

// A tail torn after the note is cut, at whatever byte; below it, it is refused.
// So is a tail of zeros.
func TestTornTail(t *testing.T) {
	opts := newLog(t, 8<<10)
	l, _ := mustOpen(t, opts, nil)
	must(t, l.Save(hs(1, 1, 1), entries(2, 4, 1), TimeBase{}))
	before := l.pos.offset()
	noteBytes, err := os.ReadFile(opts.NotePath)
	must(t, err)
	big := entry(5, 1, strings.Repeat("five ", 210)) // over some sectors
	must(t, l.Save(nil, []*raftpb.Entry{big}, TimeBase{}))
	after := l.pos.offset()
	name := l.segments[0].name
	newNote, err := os.ReadFile(opts.NotePath)
	must(t, err)
	whole, err := os.ReadFile(filepath.Join(opts.Dir, name))
	must(t, err)

	must(t, l.Close())

	opened := 0
	scratch := copyLog(t, opts)
	for n := before; n <= after; n++ {
		for _, zeroed := range []bool{false, true} {
			c := scratch
			b := append([]byte(nil), whole[:n]...)
			if zeroed {
				b = append(b, make([]byte, len(whole)-int(n))...)
			}
			must(t, os.WriteFile(filepath.Join(c.Dir, name), b, 0o600))
			must(t, os.WriteFile(c.NotePath, noteBytes, 0o600))
			full := n == after || zeroed && allZero(whole[n:after])
			if full || !zeroed && n%128 == 0 || zeroed && n%512 == 0 {
				// The whole way, and writable afterwards.
				c := copyLog(t, c)
				l, st, err := Open(c, nil)
				must(t, err)
				want := entries(2, 4, 1)
				if full {
					want = append(want, big)
				}
				wantState(t, st, 1, hs(1, 1, 1), want)
				if torn := !full && n > before; st.TornTail != torn {
					t.Fatalf("cut at %d: torn %v", n, st.TornTail)
				}
				if st.TornTail {
					if kept, err := os.ReadFile(c.NotePath + ".torn"); err != nil || string(kept[:n-before]) != string(whole[before:n]) {
						t.Fatalf("the torn tail was not kept: %v", err)
					}
				}
				next := st.Marker.Index + uint64(len(st.Entries)) + 1
				must(t, l.Save(nil, entries(next, next+1, 1), TimeBase{}))
				must(t, l.Close())
				l, st = mustOpen(t, c, nil)
				wantState(t, st, 1, hs(1, 1, 1), append(want, entries(next, next+1, 1)...))
				must(t, l.Close())
				must(t, os.RemoveAll(filepath.Dir(c.Dir)))
				opened++
				continue
			}
			state, _, err := outcome(c)
			var corrupt *CorruptError
			switch {
			case err == nil:
				if state != fingerprint(marker(1, 1), hs(1, 1, 1), entries(2, 4, 1)) {
					t.Fatalf("cut at %d, zeroed %v: wrong state", n, zeroed)
				}
				opened++
			case !zeroed || !errors.As(err, &corrupt):
				// Zeros that do not begin at a sector are not a power cut's.
				t.Fatalf("cut at %d, zeroed %v: %v", n, zeroed, err)
			}
			if n < after {
				must(t, os.WriteFile(c.NotePath, newNote, 0o600))
				if _, _, err := outcome(c); !IsLoss(err) && !full {
					t.Fatalf("cut at %d below the note: %v", n, err)
				}
			}
		}
	}
	t.Logf("%d bytes, %d opened", after-before, opened)
}

// A flipped bit before the note is always found: in lengths, types,
// checksums, data and padding, of all segments. After the note a flip is found or
// cuts the log at its record; it never gives a wrong state.
func TestFlippedBits(t *testing.T) {
	opts := sampleLog(t, 3, 30)
	points := truth(t, opts)
	files := segmentFiles(t, opts)
	if len(files) < 3 {
		t.Fatalf("%d segments are too few", len(files))
	}
	mid := len(points) - 1 - 6
	setNote(t, opts, points[mid])
	refused, cuts, same := 0, 0, 0
	r := rand.New(rand.NewPCG(rand.Uint64(), 0))
	for i, name := range files {
		good, err := os.ReadFile(name)
		must(t, err)
		used := int64(0)
		for _, p := range points {
			if p.segment == i {
				used = p.offset
			}
		}
		var bits []int64
		for byteAt := range used {
			bits = append(bits, byteAt*8+r.Int64N(8))
		}
		for _, p := range points { // every bit of lengths, types and checksums
			for k := range int64(20) {
				if p.segment == i && (p.offset+k) < used {
					for j := range int64(8) {
						bits = append(bits, (p.offset+k)*8+j)
					}
				}
			}
		}
		if len(bits) > 1200 {
			r.Shuffle(len(bits), func(i, j int) { bits[i], bits[j] = bits[j], bits[i] })
			bits = bits[:1200]
		}
		for _, bit := range bits {
			b := append([]byte(nil), good...)
			b[bit/8] ^= 1 << (bit % 8)
			must(t, os.WriteFile(name, b, 0o600))
			state, _, err := outcome(opts)
			promised := i < points[mid].segment || i == points[mid].segment && bit/8 < points[mid].offset
			switch {
			case err != nil && !IsLoss(err):
				t.Fatalf("%s bit %d: %v", name, bit, err)
			case err != nil:
				refused++
			case promised:
				t.Fatalf("%s byte %d bit %d: a changed promised record was not seen", name, bit/8, bit%8)
			default:
				k := lives(points, state)
				if k < mid {
					t.Fatalf("%s byte %d bit %d: wrong state", name, bit/8, bit%8)
				}
				if cuts++; k == len(points)-1 {
					same++
				}
			}
		}
		must(t, os.WriteFile(name, good, 0o600))
	}
	t.Logf("%d flips refused, %d cut after the note, %d of them nothing lost", refused, cuts, same)
}

// Without a note the files alone tell a flipped length or a zeroed frame in the
// last segment from a torn write, where etcd's own repair would cut what follows.
func TestFlippedLengthWithoutNote(t *testing.T) {
	opts := newLog(t, 64<<10)
	l, _ := mustOpen(t, opts, nil)
	for i := uint64(2); i < 30; i++ {
		must(t, l.Save(nil, entries(i, i, 1), TimeBase{}))
	}
	must(t, l.Close())
	points := truth(t, opts)
	must(t, os.Remove(opts.NotePath))
	name := segmentFiles(t, opts)[0]
	good, err := os.ReadFile(name)
	must(t, err)
	p := points[len(points)-10].offset // a frame begins here
	for bit := range 24 {
		b := append([]byte(nil), good...)
		b[int(p)+bit/8] ^= 1 << (bit % 8)
		must(t, os.WriteFile(name, b, 0o600))
		var corrupt *CorruptError
		if _, _, err := outcome(opts); !errors.As(err, &corrupt) {
			t.Fatalf("length bit %d: %v", bit, err)
		}
	}
	b := append([]byte(nil), good...)
	clear(b[p : p+8])
	must(t, os.WriteFile(name, b, 0o600))
	var corrupt *CorruptError
	if _, _, err := outcome(opts); !errors.As(err, &corrupt) {
		t.Fatalf("zeroed length: %v", err)
	}
}

// hurt changes something in a log's files, once.
func hurt(t testing.TB, r *rand.Rand, opts Options) string {
	t.Helper()
	files := segmentFiles(t, opts)
	k := r.IntN(len(files))
	if r.IntN(2) == 0 {
		k = len(files) - 1
	}
	name := files[k]
	b, err := os.ReadFile(name)
	must(t, err)
	if len(b) == 0 {
		return ""
	}
	what := ""
	span := func() (int, int) {
		from := r.IntN(len(b))
		return from, min(len(b), from+1+r.IntN(1+r.IntN(1500)))
	}
	switch r.IntN(9) {
	case 0:
		i := r.IntN(len(b))
		b[i] ^= 1 << r.IntN(8)
		what = fmt.Sprintf("bit at %d", i)
	case 1:
		i, j := span()
		for k := i; k < j; k++ {
			b[k] = byte(r.Uint32())
		}
		what = fmt.Sprintf("garbage %d-%d", i, j)
	case 2:
		i, j := span()
		clear(b[i:j])
		what = fmt.Sprintf("zeros %d-%d", i, j)
	case 3:
		n := r.IntN(len(b))
		b = b[:n]
		what = fmt.Sprintf("cut to %d", n)
	case 4:
		n := r.IntN(len(b))
		clear(b[n:])
		what = fmt.Sprintf("zeros from %d", n)
	case 5: // a sector written to another place
		i, j := r.IntN(len(b)/512+1)*512, r.IntN(len(b)/512+1)*512
		copy(b[min(i, len(b)):], append([]byte(nil), b[min(j, len(b)):min(j+512, len(b))]...))
		what = fmt.Sprintf("sector %d to %d", j, i)
	case 6: // some sectors never arrived
		for i := 0; i < len(b); i += 512 {
			if r.IntN(4) == 0 {
				clear(b[i:min(i+512, len(b))])
			}
		}
		what = "lost sectors"
	case 7:
		must(t, os.Remove(name))
		return "removed " + filepath.Base(name)
	case 8: // the file of another segment
		if b, err = os.ReadFile(files[r.IntN(len(files))]); err != nil {
			t.Fatal(err)
		}
		what = "content of another segment"
	}
	must(t, os.WriteFile(name, b, 0o600))
	return filepath.Base(name) + " " + what
}

// Damaged copies of random logs open to a correct state, not older than the
// note, or are refused. With the note gone they are still never wrong.
// RAFTQ_WAL_DAMAGE=n runs n copies.
func TestRandomDamage(t *testing.T) {
	copies := 500
	if n := os.Getenv("RAFTQ_WAL_DAMAGE"); n != "" {
		fmt.Sscan(n, &copies)
	}
	seed := rand.Uint64()
	t.Log("seed", seed)
	r := rand.New(rand.NewPCG(seed, 9))
	var opts Options
	var points []at
	mid, opened, refused := 0, 0, 0
	for i := range copies {
		if i%50 == 0 {
			opts = sampleLog(t, r.Uint64(), 30+r.IntN(60))
			points = truth(t, opts)
			mid = len(points) - 1 - r.IntN(min(len(points)/2, 12))
			for points[mid].state == "" {
				mid++
			}
			setNote(t, opts, points[mid])
		}
		c := copyLog(t, opts)
		what := ""
		for range 1 + r.IntN(2)*r.IntN(3) {
			what += hurt(t, r, c) + "; "
			if len(segmentFiles(t, c)) == 0 {
				break
			}
		}
		from := mid
		if r.IntN(8) == 0 {
			must(t, os.Remove(c.NotePath))
			from, what = 0, what+"no note"
		}
		fail := func(f string, args ...any) {
			t.Helper()
			t.Fatalf("copy %d (%s): "+f, append([]any{i, what}, args...)...)
		}
		l, st, err := Open(c, nil)
		if err != nil {
			if !IsLoss(err) {
				fail("%v", err)
			}
			refused++
			must(t, os.RemoveAll(filepath.Dir(c.Dir)))
			continue
		}
		opened++
		state := fingerprint(st.Marker, st.HardState, st.Entries)
		if k := lives(points, state); k < from {
			fail("a state that never was, or is older than the note: %d < %d\n%s", k, from, state)
		}
		next := st.Marker.Index + uint64(len(st.Entries)) + 1
		must(t, l.Save(nil, entries(next, next+3, st.HardState.GetTerm()), TimeBase{}))
		must(t, l.Close())
		l, st2, err := Open(c, nil)
		if err != nil {
			fail("second start: %v", err)
		}
		if n := len(st.Entries) + 4; len(st2.Entries) != n || st2.TornTail || !st2.Noted {
			fail("second start: %d entries, want %d", len(st2.Entries), n)
		}
		must(t, l.Close())
		must(t, os.RemoveAll(filepath.Dir(c.Dir)))
	}
	t.Logf("%d opened, %d refused", opened, refused)
}
