package wal

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	etcdwal "go.etcd.io/etcd/server/v3/storage/wal"
	"go.etcd.io/etcd/server/v3/storage/wal/walpb"
	"go.etcd.io/raft/v3/raftpb"
)

// Entries truncated by ones at or below a later snapshot stay truncated. etcd's
// own replay brings them back.
func TestTruncatedBelowSnapshot(t *testing.T) {
	opts := newLog(t, 1<<20)
	l, _ := mustOpen(t, opts, nil)
	must(t, l.Save(hs(1, 1, 3), entries(2, 10, 1), TimeBase{}))
	must(t, l.Save(hs(2, 2, 6), entries(4, 6, 2), TimeBase{}))
	must(t, l.Mark(nil, marker(6, 2), TimeBase{}))
	must(t, l.Close())
	w, err := etcdwal.OpenForRead(nil, opts.Dir, &walpb.Snapshot{Index: new(uint64(6)), Term: new(uint64(2))})
	must(t, err)
	_, _, ents, err := w.ReadAll()
	must(t, err)
	t.Logf("etcd's replay gives %d entries after snapshot 6", len(ents))
	l, st := mustOpen(t, opts, nil)
	wantState(t, st, 6, hs(2, 2, 6), nil)
	must(t, l.Save(nil, entries(7, 8, 2), TimeBase{}))
	must(t, l.Close())
	l, st = mustOpen(t, opts, nil)
	wantState(t, st, 6, hs(2, 2, 6), entries(7, 8, 2))
	must(t, l.Close())
}

// A received snapshot replaces the log even where the log is longer; a crash at
// any point while it is marked leaves either the log before or the snapshot, and
// never calls the node's own conflicting entries committed.
func TestReceivedSnapshot(t *testing.T) {
	for _, index := range []uint64{10, 20, 21, 50} {
		opts := newLog(t, 1<<20)
		l, _ := mustOpen(t, opts, nil)
		must(t, l.Save(hs(1, 1, 2), entries(2, 20, 1), TimeBase{}))
		from := l.pos.offset()
		old, err := os.ReadFile(opts.NotePath)
		must(t, err)
		must(t, l.Mark(hs(3, 0, index+2), marker(index, 3), TimeBase{}))
		end := l.pos.offset()
		must(t, l.Save(nil, entries(index+1, index+3, 3), TimeBase{}))
		must(t, l.Close())
		points := truth(t, opts)
		for _, p := range points {
			if p.offset < from || p.offset > end {
				continue
			}
			c := copyLog(t, opts)
			must(t, os.Truncate(segmentFiles(t, c)[0], p.offset))
			must(t, os.WriteFile(c.NotePath, old, 0o600))
			l, st := mustOpen(t, c, nil)
			switch st.Marker.Index {
			case 1:
				if h := st.HardState; h.GetCommit() != 2 || len(st.Entries) != 19 {
					t.Fatalf("%v, %d entries", h, len(st.Entries))
				}
			case index:
				wantState(t, st, index, hs(3, 0, index), nil)
			default:
				t.Fatalf("%+v", st)
			}
			must(t, l.Save(hs(3, 0, st.HardState.GetCommit()), entries(st.Marker.Index+uint64(len(st.Entries))+1, 60, 3), TimeBase{}))
			must(t, l.Close())
		}
		l, st := mustOpen(t, opts, nil)
		// The commit that Mark held back came with its entries.
		wantState(t, st, index, hs(3, 0, index+2), entries(index+1, index+3, 3))
		if err := l.Mark(nil, marker(2, 1), TimeBase{}); !errors.Is(err, ErrOldMarker) {
			t.Fatal(err)
		}
		must(t, l.Save(nil, entries(index+4, index+4, 3), TimeBase{}))
		must(t, l.Close())

		var none *NoSnapshotError
		if _, _, err := Open(opts, func(_ []byte, m Marker) bool { return m.Index != index }); !errors.As(err, &none) || len(none.Markers) != 1 {
			t.Fatalf("without the received file: %v", err)
		}
	}
}

func isNoLog(err error) bool {
	var none *NoLogError
	return errors.As(err, &none) && IsLoss(err)
}

// The markers are asked newest first, and one without a usable file is passed
// over if the log reaches back far enough.
func TestUnusableSnapshot(t *testing.T) {
	opts := newLog(t, 1<<20)
	l, _ := mustOpen(t, opts, nil)
	must(t, l.Save(hs(1, 1, 30), entries(2, 30, 1), TimeBase{}))
	must(t, l.Mark(nil, marker(10, 1), TimeBase{}))
	must(t, l.Mark(nil, marker(20, 1), TimeBase{}))
	must(t, l.Close())
	var asked []uint64
	l, st := mustOpen(t, opts, func(_ []byte, m Marker) bool { asked = append(asked, m.Index); return m.Index == 10 })
	wantState(t, st, 10, hs(1, 1, 30), entries(11, 30, 1))
	if len(asked) != 2 || asked[0] != 20 {
		t.Fatal(asked)
	}
	// A new snapshot below the useless one counts too.
	must(t, l.Mark(nil, marker(15, 1), TimeBase{}))
	must(t, l.Close())
	l, st = mustOpen(t, opts, func(_ []byte, m Marker) bool { return m.Index < 20 })
	wantState(t, st, 15, hs(1, 1, 30), entries(16, 30, 1))
	must(t, l.Close())
	var none *NoSnapshotError
	if _, _, err := Open(opts, func([]byte, Marker) bool { return false }); !errors.As(err, &none) || !IsLoss(err) {
		t.Fatal(err)
	}
}

// The note is missing, older than the log, garbled, has one torn slot, or knows
// more than the log.
func TestNote(t *testing.T) {
	opts := newLog(t, 4<<10)
	l, _ := mustOpen(t, opts, nil)
	base := TimeBase{2, 1, 100, 200}
	for i := uint64(2); i < 100; i++ {
		must(t, l.Save(hs(1, 1, i-1), entries(i, i, 1), base))
	}
	must(t, l.Mark(nil, marker(90, 1), base))
	early, err := os.ReadFile(opts.NotePath)
	must(t, err)
	must(t, l.Release(90))
	must(t, l.Save(nil, entries(100, 101, 1), base))
	must(t, l.Close())
	whole, err := os.ReadFile(opts.NotePath)
	must(t, err)
	want := entries(91, 101, 1)

	garble := func(at ...int) []byte {
		b := bytes.Clone(whole)
		for _, i := range at {
			b[i] ^= 4
		}
		return b
	}
	for _, c := range []struct {
		name  string
		note  []byte
		noted bool
	}{
		{"missing", nil, false},
		{"older", early, true},
		{"first slot", garble(30), true},
		{"second slot", garble(notePageBytes + 99), true},
		{"both slots", garble(30, notePageBytes), false},
		{"empty", []byte{}, false},
		{"short", whole[:300], false},
		{"one slot", whole[:noteSlotBytes], true},
		{"zeros", make([]byte, noteFileBytes), false},
		{"longer", append(bytes.Clone(whole), 1, 2, 3), true},
	} {
		o := copyLog(t, opts)
		must(t, os.RemoveAll(o.NotePath))
		if c.note != nil {
			must(t, os.WriteFile(o.NotePath, c.note, 0o600))
		}
		o.BootID = [16]byte{9}
		l, st, err := Open(o, nil)
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		wantState(t, st, 90, hs(1, 1, 98), want)
		if st.Noted != c.noted || (st.Base != nil) != c.noted || st.SameBoot {
			t.Fatalf("%s: %+v", c.name, st)
		}
		must(t, l.Save(hs(2, 0, 98), nil, base))
		must(t, l.Close())
		l, st = mustOpen(t, o, nil)
		// A base handed on as it was stays one of its boot.
		if !st.Noted || st.Base == nil || st.SameBoot == c.noted {
			t.Fatalf("%s: after a save: %+v", c.name, st)
		}
		must(t, l.Save(hs(3, 0, 98), nil, TimeBase{101, 1, 5, 6}))
		must(t, l.Close())
		l, st = mustOpen(t, o, nil)
		if !st.SameBoot || st.Base.Index != 101 {
			t.Fatalf("%s: after a save: %+v", c.name, st)
		}
		must(t, l.Close())
		if st, err := os.Stat(o.NotePath); err != nil || st.Size() != noteFileBytes {
			t.Fatal(st, err)
		}
	}

	change := func(f func(n *note)) Options {
		o := copyLog(t, opts)
		n, err := readNote(o.NotePath)
		must(t, err)
		f(n)
		nf, err := openNote(o.NotePath, n.sequence)
		must(t, err)
		must(t, nf.write(n))
		must(t, nf.close())
		return o
	}
	for name, f := range map[string]func(n *note){
		"a later segment":   func(n *note) { n.segment++ },
		"a later offset":    func(n *note) { n.offset += 1 << 20 },
		"between records":   func(n *note) { n.offset -= 8 },
		"another checksum":  func(n *note) { n.crc++ },
		"another term":      func(n *note) { n.hs.term++ },
		"another last":      func(n *note) { n.last++ },
		"of a far sequence": func(n *note) { n.sequence += 1000; n.segment += 7 },
	} {
		var lost *LostTailError
		if _, _, err := Open(change(f), nil); !errors.As(err, &lost) || !strings.Contains(err.Error(), "rejoin") {
			t.Fatalf("%s: %v", name, err)
		}
	}
	o := change(func(n *note) { n.segment = 0 })
	if l, st := mustOpen(t, o, nil); st.Noted {
		t.Fatal("a note of a released segment was believed")
	} else {
		must(t, l.Close())
	}
}

// Crashes inside Create leave what does not open; a whole log opens; a directory
// with a log is not created again.
func TestCreate(t *testing.T) {
	dir := t.TempDir()
	opts := Options{Dir: filepath.Join(dir, "wal"), NotePath: filepath.Join(dir, "note"), SegmentBytes: 64 << 10}
	if _, _, err := Open(opts, nil); !isNoLog(err) {
		t.Fatal(err)
	}
	must(t, os.Mkdir(opts.Dir, 0o700))
	if _, _, err := Open(opts, nil); !isNoLog(err) {
		t.Fatal(err)
	}
	must(t, acquireSegmentSize(opts.SegmentBytes))
	w, err := etcdwal.Create(nil, opts.Dir, testMeta)
	must(t, err)
	var corrupt *CorruptError
	if _, _, err := Open(opts, nil); !errors.As(err, &corrupt) {
		t.Fatal(err)
	}
	must(t, w.Save(hs(1, 0, 1), nil))
	must(t, w.Close())
	releaseSegmentSize()
	if _, _, err := Open(opts, nil); !IsLoss(err) {
		t.Fatal(err)
	}
	if err := Create(opts, testMeta, hs(1, 0, 1), marker(1, 1)); !errors.Is(err, os.ErrExist) {
		t.Fatal(err)
	}
	if err := Create(opts, nil, hs(1, 0, 1), marker(1, 1)); err == nil {
		t.Fatal("no metadata")
	}
	must(t, os.RemoveAll(opts.Dir))
	must(t, Create(opts, testMeta, hs(1, 0, 1), marker(1, 1)))
	l, st := mustOpen(t, opts, nil)
	wantState(t, st, 1, hs(1, 0, 1), nil)
	if !st.Noted {
		t.Fatal("no note")
	}
	other := opts
	other.SegmentBytes = 128 << 10
	if _, _, err := Open(other, nil); err == nil || !strings.Contains(err.Error(), "segment size") {
		t.Fatal(err)
	}
	if _, _, err := Open(opts, nil); err == nil || IsLoss(err) {
		t.Fatalf("opened twice: %v", err)
	}
	must(t, l.Close())
	must(t, l.Close())
}

// Released segments are deleted or archived in order. Term and vote outlive the
// segments they were written in, also after a restart. A preallocated file that a
// crash left with a head in it does no harm.
func TestRelease(t *testing.T) {
	for _, archived := range []bool{false, true} {
		opts := newLog(t, 4<<10)
		if archived {
			opts.ArchiveDir = t.TempDir()
		}
		l, _ := mustOpen(t, opts, nil)
		must(t, l.Save(hs(7, 3, 1), nil, TimeBase{}))
		must(t, l.Close())
		must(t, os.WriteFile(filepath.Join(opts.Dir, "0.tmp"), bytes.Repeat([]byte{0x5a}, 3000), 0o600))
		must(t, os.WriteFile(filepath.Join(opts.Dir, "1.tmp"), bytes.Repeat([]byte{0x5a}, 3000), 0o600))
		l, _ = mustOpen(t, opts, nil)
		for i := uint64(2); i <= 600; i++ {
			must(t, l.Save(nil, entries(i, i, 7), TimeBase{})) // never the hard state
		}
		before := len(segmentFiles(t, opts))
		must(t, l.Release(600)) // no marker: nothing goes
		if n := len(segmentFiles(t, opts)); n != before || n < 6 {
			t.Fatalf("%d of %d segments", n, before)
		}
		must(t, l.Mark(hs(7, 3, 600), marker(300, 7), TimeBase{}))
		must(t, l.Mark(nil, marker(590, 7), TimeBase{}))
		must(t, l.Release(300))
		must(t, l.Close())
		l, st := mustOpen(t, opts, func(_ []byte, m Marker) bool { return m.Index <= 300 })
		wantState(t, st, 300, hs(7, 3, 600), entries(301, 600, 7))
		must(t, l.Close())
		l, st = mustOpen(t, opts, nil)
		wantState(t, st, 590, hs(7, 3, 600), entries(591, 600, 7))
		must(t, l.Release(590))
		if n := len(segmentFiles(t, opts)); n > 3 || uint64(n) != l.Stats().Segments {
			t.Fatalf("%d segments are left", n)
		}
		must(t, l.Close())
		l, st = mustOpen(t, opts, nil)
		wantState(t, st, 590, hs(7, 3, 600), entries(591, 600, 7))
		must(t, l.Close())
		if archived {
			o := opts
			o.Dir = opts.ArchiveDir
			if n := len(segmentFiles(t, o)) + len(segmentFiles(t, opts)); n < before {
				t.Fatalf("%d segments in all, there were %d", n, before)
			}
			// Archive and log together are the whole log again.
			must(t, os.CopyFS(o.Dir, os.DirFS(opts.Dir)))
			r, err := Inspect(o)
			must(t, err)
			if r.Err != nil || r.First != 2 || r.Last != 600 || !r.Confirmed {
				t.Fatalf("%+v", r)
			}
		}
	}
}

// After a write error nothing more is tried: every call gives the first error.
func TestPoison(t *testing.T) {
	opts := newLog(t, 64<<10)
	l, _ := mustOpen(t, opts, nil)
	must(t, l.Save(nil, entries(2, 2, 1), TimeBase{}))
	// A poisoned log keeps its files and locks. The one that etcd's package
	// preallocates in the background must be there, or the next Open would run into it.
	for {
		if _, err := os.Stat(filepath.Join(opts.Dir, "0.tmp")); err == nil {
			break
		}
		time.Sleep(time.Millisecond)
	}
	tail := filepath.Join(opts.Dir, l.segments[0].name)
	// Put a read-only descriptor in the place of the segment's.
	ro, err := os.Open(tail)
	must(t, err)
	defer ro.Close()
	fds, err := os.ReadDir("/proc/self/fd")
	must(t, err)
	done := 0
	for _, e := range fds {
		var fd int
		for _, c := range e.Name() {
			fd = fd*10 + int(c-'0')
		}
		if to, err := os.Readlink("/proc/self/fd/" + e.Name()); err == nil && to == tail && fd != int(ro.Fd()) {
			must(t, syscall.Dup3(int(ro.Fd()), fd, syscall.O_CLOEXEC))
			done++
		}
	}
	if done != 1 {
		t.Fatalf("%d descriptors", done)
	}
	first := l.Save(nil, entries(3, 3, 1), TimeBase{})
	if !errors.Is(first, syscall.EBADF) {
		t.Fatal(first)
	}
	for _, err := range []error{
		l.Save(nil, entries(4, 4, 1), TimeBase{}), l.Mark(nil, marker(2, 1), TimeBase{}), l.Release(1), l.Close(),
	} {
		if err != first {
			t.Fatal(err)
		}
	}
	l, st := mustOpen(t, opts, nil)
	wantState(t, st, 1, hs(1, 0, 1), entries(2, 2, 1))
	must(t, l.Close())
}

// A crash inside Save can leave entries of a term without the hard state of that
// term; the log opens with that term and no vote in it.
func TestEntriesBeforeTheirTerm(t *testing.T) {
	opts := newLog(t, 64<<10)
	l, _ := mustOpen(t, opts, nil)
	must(t, l.Save(hs(2, 1, 1), entries(2, 3, 2), TimeBase{}))
	old, err := os.ReadFile(opts.NotePath)
	must(t, err)
	must(t, l.Save(hs(5, 2, 1), entries(3, 4, 5), TimeBase{}))
	must(t, l.Close())
	points := truth(t, opts)
	must(t, os.Truncate(segmentFiles(t, opts)[0], points[len(points)-2].offset))
	must(t, os.WriteFile(opts.NotePath, old, 0o600))
	l, st := mustOpen(t, opts, nil)
	wantState(t, st, 1, hs(5, 0, 1), append(entries(2, 2, 2), entries(3, 4, 5)...))
	must(t, l.Close())
	l, st = mustOpen(t, opts, nil)
	wantState(t, st, 1, hs(5, 0, 1), append(entries(2, 2, 2), entries(3, 4, 5)...))
	must(t, l.Close())
}

// What raft never does is a bug of the caller, found before it is written.
func TestAssertions(t *testing.T) {
	for name, f := range map[string]func(l *Log){
		"gap":                  func(l *Log) { l.Save(nil, entries(7, 7, 2), TimeBase{}) },
		"over committed":       func(l *Log) { l.Save(nil, entries(3, 3, 2), TimeBase{}) },
		"term falls":           func(l *Log) { l.Save(nil, entries(6, 6, 1), TimeBase{}) },
		"entry above the term": func(l *Log) { l.Save(nil, entries(6, 6, 3), TimeBase{}) },
		"commit above last":    func(l *Log) { l.Save(hs(2, 1, 6), nil, TimeBase{}) },
		"commit falls":         func(l *Log) { l.Save(hs(2, 1, 2), nil, TimeBase{}) },
		"two votes":            func(l *Log) { l.Save(hs(2, 2, 3), nil, TimeBase{}) },
		"hard state term":      func(l *Log) { l.Save(hs(1, 1, 3), nil, TimeBase{}) },
		"marker not committed": func(l *Log) { l.Mark(nil, marker(4, 2), TimeBase{}) },
		"marker contradicts":   func(l *Log) { l.Mark(nil, marker(3, 1), TimeBase{}) },
		"marker bare":          func(l *Log) { l.Mark(nil, Marker{Index: 3, Term: 2}, TimeBase{}) },
	} {
		opts := newLog(t, 64<<10)
		l, _ := mustOpen(t, opts, nil)
		must(t, l.Save(hs(2, 1, 3), entries(2, 5, 2), TimeBase{}))
		func() {
			defer func() {
				if s, ok := recover().(string); !ok || !strings.HasPrefix(s, "BUG: ") {
					t.Fatalf("%s: %v", name, s)
				}
			}()
			f(l)
		}()
		l.shape.hs = hardState{} // whatever the assertion left half done
		l.pos.flush()
		must(t, l.Close())
		os.Remove(opts.NotePath)
		l, st := mustOpen(t, opts, nil)
		wantState(t, st, 1, hs(2, 1, 3), entries(2, 5, 2))
		must(t, l.Close())
	}
}

// Inspect tells what Open would, and changes nothing.
func TestInspect(t *testing.T) {
	opts := sampleLog(t, 5, 60)
	r, err := Inspect(opts)
	must(t, err)
	if r.Err != nil || !r.Confirmed || !r.HasNote || r.TornTail || len(r.Segments) == 0 || r.Last < r.Commit || len(r.Markers) == 0 {
		t.Fatalf("%+v", r)
	}
	tail := r.Segments[len(r.Segments)-1]
	if r.Note.Offset != tail.Used {
		t.Fatalf("note %d, log %d", r.Note.Offset, tail.Used)
	}
	must(t, os.Truncate(filepath.Join(opts.Dir, tail.Name), tail.Used-8))
	r, err = Inspect(opts)
	must(t, err)
	if !IsLoss(r.Err) {
		t.Fatalf("%+v", r)
	}
	opts.Dir += "x"
	if _, err := Inspect(opts); !isNoLog(err) {
		t.Fatal(err)
	}
}

// The note's decoder takes what the encoder makes and nothing else.
func FuzzNote(f *testing.F) {
	var b [noteSlotBytes]byte
	(&note{}).encode(&b)
	f.Add(b[:])
	(&note{1, 2, 3, 4, hardState{5, 6, 7}, 8, 9, TimeBase{10, 11, 12, 13}, testBoot}).encode(&b)
	f.Add(bytes.Clone(b[:]))
	f.Fuzz(func(t *testing.T, in []byte) {
		var n note
		if n.decode(in) != nil {
			return
		}
		n.encode(&b)
		if !bytes.Equal(b[:], in) {
			t.Fatalf("%x", in)
		}
		in = bytes.Clone(in)
		in[n.sequence%noteSlotBytes] ^= 1
		if n.decode(in) == nil {
			t.Fatal("a flipped bit was not seen")
		}
	})
}

func BenchmarkSave(b *testing.B) {
	for _, c := range []struct {
		name string
		n    uint64
	}{{"1", 1}, {"16", 16}, {"64", 64}} {
		b.Run(c.name, func(b *testing.B) {
			opts := newLog(b, 64<<20)
			l, _ := mustOpen(b, opts, nil)
			data := bytes.Repeat([]byte("x"), 200)
			next, term := uint64(2), uint64(1)
			ents := make([]*raftpb.Entry, c.n)
			b.ReportAllocs()
			for b.Loop() {
				for i := range ents {
					index := next + uint64(i)
					ents[i] = &raftpb.Entry{Index: &index, Term: &term, Data: data}
				}
				must(b, l.Save(nil, ents, TimeBase{}))
				next += c.n
			}
			st := l.Stats()
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(uint64(b.N)*c.n), "ns/entry")
			_ = st
			must(b, l.Close())
		})
	}
}
