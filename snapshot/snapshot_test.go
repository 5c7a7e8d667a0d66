package snapshot

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"
)

func testHeader(index uint64) Header {
	yes := true
	return Header{
		ClusterID: 0xfeedbeefcafe, Index: index, Term: 7, TimeMs: 1_700_000_000_123,
		ConfState: &raftpb.ConfState{
			Voters: []uint64{1, 2, 1 << 63}, Learners: []uint64{4},
			VotersOutgoing: []uint64{1, 2}, LearnersNext: []uint64{5}, AutoLeave: &yes,
		},
	}
}

// content makes bytes that compress about as a machine's image does.
func content(n int) []byte {
	r := rand.New(rand.NewPCG(1, 2))
	var b bytes.Buffer
	for b.Len() < n {
		fmt.Fprintf(&b, "job %016x queue-%d state ready ", r.Uint64(), r.IntN(10))
		for range 40 {
			b.WriteByte(byte(r.Uint32()))
		}
	}
	return b.Bytes()[:n]
}

func encodeBytes(b []byte) func(io.Writer) error {
	return func(w io.Writer) error { _, err := w.Write(b); return err }
}

func mustWrite(t testing.TB, dir string, index uint64, b []byte) Info {
	t.Helper()
	info, err := Write(dir, testHeader(index), nil, encodeBytes(b))
	if err != nil {
		t.Fatal(err)
	}
	return info
}

func readAll(path string) (Header, []byte, error) {
	var got []byte
	h, err := Read(path, func(_ Header, r io.Reader) (err error) { got, err = io.ReadAll(r); return err })
	return h, got, err
}

func sameHeader(a, b Header) bool {
	if !proto.Equal(a.ConfState, b.ConfState) {
		return false
	}
	a.ConfState, b.ConfState = nil, nil
	return a == b
}

// What is written is read again, of any size, through any reader and writer.
func TestRoundTrip(t *testing.T) {
	dir := t.TempDir()
	for i, n := range []int{0, 1, 100, chunkBytes, chunkBytes + 1, 3 << 20} {
		want := content(n)
		info := mustWrite(t, dir, uint64(i+1), want)
		if st, err := os.Stat(info.Path); err != nil || st.Size() != info.Size || info.Index != uint64(i+1) {
			t.Fatalf("%+v %v", info, err)
		}
		h, got, err := readAll(info.Path)
		if err != nil || !bytes.Equal(got, want) || !sameHeader(h, testHeader(uint64(i+1))) {
			t.Fatalf("%d bytes: %v, %+v", n, err, h)
		}
		var slow []byte
		if n < 1<<20 {
			if _, err := Read(info.Path, func(_ Header, r io.Reader) (err error) {
				slow, err = io.ReadAll(iotest.OneByteReader(r))
				return err
			}); err != nil || !bytes.Equal(slow, want) {
				t.Fatalf("byte by byte: %v", err)
			}
		}
		for _, f := range []func(string) (Header, error){Verify, ReadHeader} {
			if h, err := f(info.Path); err != nil || !sameHeader(h, testHeader(uint64(i+1))) {
				t.Fatalf("%+v %v", h, err)
			}
		}
	}
	plain := testHeader(99)
	plain.ConfState = &raftpb.ConfState{Voters: []uint64{1}}
	info, err := Write(dir, plain, nil, encodeBytes(nil))
	if err != nil {
		t.Fatal(err)
	}
	if h, err := Verify(info.Path); err != nil || !sameHeader(h, plain) {
		t.Fatalf("%+v %v", h, err)
	}
}

// The same state gives the same bytes, however encode cuts its writes and
// however the write is throttled; limit sees every byte.
func TestDeterministic(t *testing.T) {
	b := content(5 << 20)
	first := mustWrite(t, t.TempDir(), 5, b)
	want, _ := os.ReadFile(first.Path)
	r := rand.New(rand.NewPCG(3, 4))
	for round := range 3 {
		seen, calls := int64(0), 0
		info, err := Write(t.TempDir(), testHeader(5), func(n int) {
			seen += int64(n)
			if calls++; round == 0 && calls%5 == 0 {
				time.Sleep(time.Millisecond)
			}
		}, func(w io.Writer) error {
			for rest := b; len(rest) > 0; {
				n := min(len(rest), 1+r.IntN(100_000))
				if _, err := w.Write(rest[:n]); err != nil {
					return err
				}
				rest = rest[n:]
			}
			return nil
		})
		if err != nil || seen != info.Size {
			t.Fatalf("%v: limit saw %d of %d bytes", err, seen, info.Size)
		}
		if got, _ := os.ReadFile(info.Path); !bytes.Equal(got, want) {
			t.Fatal("other bytes")
		}
	}
}

// wantDamage: none of the readers gives anything of a damaged file away.
func wantDamage(t *testing.T, path, what string) {
	t.Helper()
	var d *DamageError
	if _, err := Verify(path); !errors.As(err, &d) || d.Path != path {
		t.Fatalf("%s: Verify says %v", what, err)
	}
	if _, err := Read(path, func(Header, io.Reader) error { t.Fatalf("%s: decode was called", what); return nil }); !errors.As(err, &d) {
		t.Fatalf("%s: Read says %v", what, err)
	}
}

// Every flipped byte, every truncation, every appended byte is found, before any
// content is handed out.
func TestDamage(t *testing.T) {
	dir := t.TempDir()
	info := mustWrite(t, dir, 9, content(700))
	good, _ := os.ReadFile(info.Path)
	put := func(b []byte) {
		if err := os.WriteFile(info.Path, b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for i := range good {
		for _, x := range []byte{1, 0x80, 0xff} {
			b := bytes.Clone(good)
			b[i] ^= x
			put(b)
			wantDamage(t, info.Path, fmt.Sprintf("byte %d ^ %x", i, x))
		}
	}
	for n := range good {
		put(good[:n])
		wantDamage(t, info.Path, fmt.Sprintf("cut to %d bytes", n))
	}
	put(append(bytes.Clone(good), 0))
	wantDamage(t, info.Path, "one byte more")
	put(append(bytes.Clone(good), good...))
	wantDamage(t, info.Path, "twice")
	put(good)
	other := Path(dir, 10)
	if err := os.Rename(info.Path, other); err != nil {
		t.Fatal(err)
	}
	wantDamage(t, other, "another index's name")
	copied := filepath.Join(dir, "backup")
	if err := os.Rename(other, copied); err != nil {
		t.Fatal(err)
	}
	if _, err := Verify(copied); err != nil {
		t.Fatal(err)
	}
	if _, err := Verify(info.Path); !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
}

// A decoder's own error comes back; one that does not read to the end is wrong.
func TestDecoder(t *testing.T) {
	info := mustWrite(t, t.TempDir(), 9, content(100_000))
	boom := errors.New("boom")
	var d *DamageError
	if _, err := Read(info.Path, func(Header, io.Reader) error { return boom }); !errors.Is(err, boom) || errors.As(err, &d) {
		t.Fatal(err)
	}
	if _, err := Read(info.Path, func(_ Header, r io.Reader) error {
		_, err := io.ReadFull(r, make([]byte, 10))
		return err
	}); err == nil || !strings.Contains(err.Error(), "were not read") {
		t.Fatal(err)
	}
	// Exactly to the end, without waiting for io.EOF, is enough.
	if _, err := Read(info.Path, func(_ Header, r io.Reader) error {
		_, err := io.ReadFull(r, make([]byte, 100_000))
		return err
	}); err != nil {
		t.Fatal(err)
	}
}

// A failed write leaves no file and no temporary one, and the older file of that
// name as it was; a good one replaces it, under the feet of a reader too.
func TestReplace(t *testing.T) {
	dir := t.TempDir()
	old, fresh := content(2<<20), content(1000)
	info := mustWrite(t, dir, 9, old)
	boom := errors.New("boom")
	if _, err := Write(dir, testHeader(9), nil, func(w io.Writer) error { w.Write(fresh); return boom }); !errors.Is(err, boom) {
		t.Fatal(err)
	}
	if _, err := Write(dir, Header{Index: 9}, nil, encodeBytes(nil)); err == nil {
		t.Fatal("a header without members was taken")
	}
	if _, got, err := readAll(info.Path); err != nil || !bytes.Equal(got, old) {
		t.Fatal(err)
	}
	var got []byte
	if _, err := Read(info.Path, func(_ Header, r io.Reader) (err error) {
		mustWrite(t, dir, 9, fresh)
		got, err = io.ReadAll(r)
		return err
	}); err != nil || !bytes.Equal(got, old) {
		t.Fatal(err)
	}
	if _, got, err := readAll(info.Path); err != nil || !bytes.Equal(got, fresh) {
		t.Fatal(err)
	}
	if names, _ := os.ReadDir(dir); len(names) != 1 {
		t.Fatalf("%v", names)
	}
}

// List shows snapshots only, newest first. Prune deletes what is neither new nor
// held nor being written.
func TestListPrune(t *testing.T) {
	dir := t.TempDir()
	for _, i := range []uint64{3, 1 << 40, 20, 7, 255} {
		mustWrite(t, dir, i, nil)
	}
	touch := func(name string, age time.Duration) string {
		p := filepath.Join(dir, name)
		if err := os.WriteFile(p, []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
		at := time.Now().Add(-age)
		if err := os.Chtimes(p, at, at); err != nil {
			t.Fatal(err)
		}
		return p
	}
	fresh := touch("tmp-0000000000000009.snap.db-1", time.Minute)
	stale := touch("tmp123", 2*time.Hour)
	for _, n := range []string{"9.snap.db", "0000000000000009.snap", "0000000000000009.SNAP.db", "x0000000000000009.snap.db", "0000000000000009.snap.db.x", "000000000000000G.snap.db"} {
		touch(n, 0)
	}
	if err := os.Mkdir(Path(dir, 77), 0o700); err != nil {
		t.Fatal(err)
	}
	index := func() (out []uint64) {
		files, err := List(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			out = append(out, f.Index)
		}
		return out
	}
	if got := index(); !slices.Equal(got, []uint64{1 << 40, 255, 20, 7, 3}) {
		t.Fatal(got)
	}
	gone, err := Prune(dir, 2, func(i uint64) bool { return i == 7 })
	if err != nil || !slices.Equal(gone, []string{Path(dir, 20), Path(dir, 3), stale}) {
		t.Fatal(gone, err)
	}
	if got := index(); !slices.Equal(got, []uint64{1 << 40, 255, 7}) {
		t.Fatal(got)
	}
	if gone, err := Clean(dir); err != nil || !slices.Equal(gone, []string{fresh}) {
		t.Fatal(gone, err)
	}
	if _, err := Prune(dir, 0, nil); err != nil {
		t.Fatal(err)
	}
	if got := index(); !slices.Equal(got, []uint64{1 << 40}) {
		t.Fatal("the newest must stay:", got)
	}
	if _, err := List(filepath.Join(dir, "nowhere")); !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
}

// No header makes the decoder panic or take what encode would not make.
func FuzzHeader(f *testing.F) {
	b, _ := encodeHead(testHeader(5))
	f.Add(b)
	f.Add(b[:headFixedBytes])
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := decodeHead(b)
		if err != nil || h.Index == 0 || h.Term == 0 {
			return
		}
		if again, err := encodeHead(h); err != nil || !bytes.Equal(again, b) {
			t.Fatalf("%x\n%x %v", b, again, err)
		}
	})
}

func BenchmarkWrite(b *testing.B) {
	data := content(64 << 20)
	dir := b.TempDir()
	b.SetBytes(int64(len(data)))
	for b.Loop() {
		info := mustWrite(b, dir, 1, data)
		b.ReportMetric(float64(len(data))/float64(info.Size), "ratio")
	}
}

func BenchmarkRead(b *testing.B) {
	data := content(64 << 20)
	info := mustWrite(b, b.TempDir(), 1, data)
	b.SetBytes(int64(len(data)))
	for b.Loop() {
		if _, err := Read(info.Path, func(_ Header, r io.Reader) error { _, err := io.Copy(io.Discard, r); return err }); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkVerify(b *testing.B) {
	info := mustWrite(b, b.TempDir(), 1, content(64<<20))
	b.SetBytes(info.Size)
	for b.Loop() {
		if _, err := Verify(info.Path); err != nil {
			b.Fatal(err)
		}
	}
}
