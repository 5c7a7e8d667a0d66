package wal

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"sort"
	"strings"

	etcdwal "go.etcd.io/etcd/server/v3/storage/wal"
	"go.etcd.io/etcd/server/v3/storage/wal/walpb"
	"go.etcd.io/raft/v3/raftpb"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"
)

// segment is one file of the log.
type segment struct {
	name     string
	seq      uint64
	index    uint64 // from the name; a hint, see Release
	size     int64
	used     int64 // end of its last record
	records  int
	lastAt   uint64 // last entry of the log where the segment begins, see Release
	seenAt   bool   // the log had one there
	hasState bool
	markers  []Marker
}

// end says where and why the reading stopped.
type end struct {
	clean    bool // zeros or end of file where a frame would begin
	short    bool // the file ends before the frame does
	torn     bool // as a power cut leaves it
	leftover bool // something is in the file behind the end
	what     string
}

// scan is the fold of all records in file order.
type scan struct {
	dir      string
	segments []*segment
	metadata []byte
	shape    shape
	entries  []*raftpb.Entry // the entries of shape, base+1 ... last
	markers  []Marker        // in file order
	crc      uint32
	end      end
	fold     error // what contradicts, at the last record

	note      *note  // the one compared with, nil if none applies
	noteFound bool   // a record ends at the note's position
	noteDiff  string // and is another there
}

func (s *scan) tail() *segment { return s.segments[len(s.segments)-1] }

// listSegments names the log's files in order. Gaps in the sequence are corrupt.
func listSegments(dir string) ([]*segment, error) {
	names, err := os.ReadDir(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil, &NoLogError{dir}
	}
	if err != nil {
		return nil, fmt.Errorf("wal: list segments: %w", err)
	}
	var segs []*segment
	for _, e := range names {
		var s segment
		if n, err := fmt.Sscanf(e.Name(), "%016x-%016x.wal", &s.seq, &s.index); err != nil || n != 2 ||
			e.Name() != fmt.Sprintf("%016x-%016x.wal", s.seq, s.index) {
			if strings.HasSuffix(e.Name(), ".wal") {
				return nil, &CorruptError{e.Name(), 0, "the name is not that of a segment"}
			}
			continue // a preallocated file
		}
		info, err := e.Info()
		if err != nil {
			return nil, fmt.Errorf("wal: list segments: %w", err)
		}
		s.name, s.size = e.Name(), info.Size()
		segs = append(segs, &s)
	}
	if len(segs) == 0 {
		return nil, &NoLogError{dir}
	}
	sort.Slice(segs, func(i, j int) bool { return segs[i].seq < segs[j].seq })
	for i := 1; i < len(segs); i++ {
		if segs[i].seq != segs[i-1].seq+1 {
			return nil, &CorruptError{segs[i].name, 0, fmt.Sprintf("segment %016x before it is missing", segs[i].seq-1)}
		}
	}
	return segs, nil
}

// scanLog reads the whole log and folds it. It returns an error only if it
// cannot read; what it thinks of the log is in the scan, see judge.
func scanLog(dir string, n *note) (*scan, error) {
	segs, err := listSegments(dir)
	if err != nil {
		return nil, err
	}
	if n != nil && n.segment < segs[0].seq {
		n = nil // of segments that are gone: it says nothing about these
	}
	s := &scan{dir: dir, segments: segs, note: n}
	for i := range segs {
		if more, err := s.segment(i); err != nil {
			return nil, fmt.Errorf("wal: read %s: %w", filepath.Join(dir, segs[i].name), err)
		} else if !more {
			s.segments = segs[:i+1]
			if i+1 < len(segs) {
				// No power cut tears anything but the last segment: a segment is synced
				// before the next one appears.
				s.end.torn, s.end.short, s.end.clean = false, false, false
				s.end.what += ", and later segments follow"
			}
			return s, nil
		}
	}
	return s, nil
}

// fromDisk drops what the kernel remembers of a file, so that it is read from the
// disk. After a failed fsync the kernel counts what it could not write as written: an
// earlier process has ended because of that, and this one would take as durable what
// the next power cut takes away, and with it everything that follows. What is not yet
// written stays; the sync that ends Open covers it.
func fromDisk(f *os.File) error {
	return os.NewSyscallError("fadvise", unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED))
}

// segment reads one file; more is false if the log ends inside it or is bad.
func (s *scan) segment(i int) (more bool, err error) {
	seg := s.segments[i]
	isLast := i == len(s.segments)-1
	seg.lastAt, seg.seenAt = s.shape.last, s.shape.seen
	f, err := os.Open(filepath.Join(s.dir, seg.name))
	if err != nil {
		return false, err
	}
	defer f.Close()
	if err := fromDisk(f); err != nil {
		return false, err
	}
	r := bufio.NewReaderSize(f, 1<<18)
	var buf []byte
	for {
		var e end
		buf, e, err = readFrame(r, buf, seg.used, seg.size)
		if err != nil {
			return false, err
		}
		if e.what == "" {
			e = s.accept(seg, buf)
		}
		if e.what == "" {
			if s.fold != nil {
				return false, nil
			}
			s.compare(seg)
			continue
		}
		if seg.records < 2 {
			// A segment shows up only with its head synced: this is no torn write.
			s.end = end{what: "the head of the segment is damaged: " + e.what}
			return false, nil
		}
		if e.clean && seg.used == seg.size && !isLast {
			return true, nil
		}
		if e.clean && e.leftover {
			// Zeros to the end, or a hole that a power cut left?
			zero, err := zeroFrom(f, seg.used)
			if err != nil {
				return false, err
			}
			e.leftover = !zero
		}
		s.end = e
		return false, nil
	}
}

// readFrame reads the frame at off, length field first, into buf.
// An empty end.what means that it is there, whole.
func readFrame(r *bufio.Reader, buf []byte, off, size int64) ([]byte, end, error) {
	left := size - off
	if left <= 0 {
		return buf, end{clean: true, what: "the file ends"}, nil
	}
	first := int(min(left, sectorBytes-off%sectorBytes, sectorBytes))
	b, err := r.Peek(first)
	if err != nil {
		return buf, end{}, err
	}
	if left < frameHeadBytes {
		return buf, end{short: true, torn: true, leftover: true, what: "the file ends inside a frame"}, nil
	}
	l := binary.LittleEndian.Uint64(b)
	if l == 0 {
		if !allZero(b) {
			return buf, end{leftover: true, what: "the length of a frame is zeroed"}, nil
		}
		return buf, end{clean: true, leftover: true, what: "the records end"}, nil
	}
	n, pad, _ := splitLength(l)
	complete := n <= left-frameHeadBytes-pad
	if !complete {
		// The length may be damage: read what a torn frame could be judged by, not more.
		n = min(left-frameHeadBytes, 64<<10)
		pad = 0
	}
	total := int(frameHeadBytes + n + pad)
	if cap(buf) < total {
		buf = make([]byte, total)
	}
	buf = buf[:total]
	if _, err := io.ReadFull(r, buf); err != nil {
		return buf, end{}, err
	}
	if !complete {
		return buf, end{short: true, torn: looksTorn(buf, off, false), leftover: true, what: "a frame is longer than the file"}, nil
	}
	return buf, end{}, nil
}

// accept checks a whole frame and folds its record.
func (s *scan) accept(seg *segment, frame []byte) end {
	bad := func(what string) end {
		return end{torn: looksTorn(frame, seg.used, true), leftover: true, what: what}
	}
	size, _, ok := splitLength(binary.LittleEndian.Uint64(frame))
	if !ok {
		return bad("the length of a frame is not as a writer makes it")
	}
	body := frame[frameHeadBytes:]
	if !allZero(body[size:]) {
		return bad("the padding of a frame is not zero")
	}
	rec, err := parseRecord(body[:size])
	if err != nil {
		return bad(err.Error())
	}
	sum := s.crc
	if rec.kind == etcdwal.CrcType && seg.seq == s.segments[0].seq && seg.records == 0 {
		sum = rec.crc // the log's first one: what it chains to was released
	}
	sum = crc32.Update(sum, crcTable, rec.data)
	if sum != rec.crc && seeded != "checksum-not-checked" {
		return bad(fmt.Sprintf("checksum %08x, computed %08x", rec.crc, sum))
	}
	s.crc = sum
	if err := s.apply(seg, rec); err != nil {
		s.fold = err
		s.end = end{what: err.Error(), leftover: true}
		return end{}
	}
	seg.records++
	seg.used += int64(len(frame))
	return end{}
}

// apply folds one record. The type of a record is outside its checksum, so its
// place and its data must fit the type.
func (s *scan) apply(seg *segment, rec record) error {
	if (rec.kind == etcdwal.CrcType) != (seg.records == 0) || (rec.kind == etcdwal.MetadataType) != (seg.records == 1) {
		return fmt.Errorf("a record of type %d in place %d of the segment", rec.kind, seg.records)
	}
	switch rec.kind {
	case etcdwal.CrcType:
		if rec.data != nil {
			return errors.New("a CRC record with data")
		}
	case etcdwal.MetadataType:
		if s.metadata != nil && !bytes.Equal(s.metadata, rec.data) {
			return errors.New("the metadata is not that of the segments before")
		}
		s.metadata = bytes.Clone(rec.data)
	case etcdwal.EntryType:
		e := &raftpb.Entry{}
		if err := unmarshalExact(rec.data, e); err != nil {
			return fmt.Errorf("entry: %w", err)
		}
		if err := s.shape.entry(e.GetIndex(), e.GetTerm()); err != nil {
			return err
		}
		// The shape may have a new base; entries behind it are what counts.
		keep := s.shape.last - s.shape.base - 1
		if keep == 0 || keep > uint64(len(s.entries)) {
			s.entries = nil
			keep = 0
		}
		clear(s.entries[keep:])
		s.entries = append(s.entries[:keep], e)
	case etcdwal.StateType:
		var h raftpb.HardState
		if err := unmarshalExact(rec.data, &h); err != nil {
			return fmt.Errorf("hard state: %w", err)
		}
		if seg.records == 2 {
			seg.hasState = true
		}
		return s.shape.state(hardState{h.GetTerm(), h.GetVote(), h.GetCommit()})
	case etcdwal.SnapshotType:
		var w walpb.Snapshot
		if err := unmarshalExact(rec.data, &w); err != nil {
			return fmt.Errorf("snapshot marker: %w", err)
		}
		kind, err := s.shape.marker(w.GetIndex(), w.GetTerm())
		if err != nil {
			return err
		}
		if kind == markerReset {
			s.entries = nil
		}
		m := Marker{w.GetIndex(), w.GetTerm(), w.GetConfState()}
		s.markers = append(s.markers, m)
		seg.markers = append(seg.markers, m)
	default:
		return fmt.Errorf("a record of unknown type %d", rec.kind)
	}
	return nil
}

// unmarshalExact refuses what the message type would not have encoded so.
func unmarshalExact(b []byte, m proto.Message) error {
	if err := proto.Unmarshal(b, m); err != nil {
		return err
	}
	if len(m.ProtoReflect().GetUnknown()) > 0 || proto.Size(m) != len(b) {
		return errors.New("the data is of another type")
	}
	return nil
}

// compare looks whether the note was written at the position just reached.
func (s *scan) compare(seg *segment) {
	n := s.note
	if n == nil || n.segment != seg.seq || n.offset != seg.used {
		return
	}
	s.noteFound = true
	switch {
	case n.crc != s.crc:
		s.noteDiff = fmt.Sprintf("the running checksum is %08x, the note has %08x", s.crc, n.crc)
	case n.hs != s.shape.hs:
		s.noteDiff = fmt.Sprintf("the hard state is %v, the note has %v", s.shape.hs, n.hs)
	case n.last != s.shape.last:
		s.noteDiff = fmt.Sprintf("the last entry is %d, the note has %d", s.shape.last, n.last)
	}
}

// passed reports whether the log reaches the note.
func (s *scan) passed() bool {
	if s.note == nil {
		return true
	}
	t := s.tail()
	return t.seq > s.note.segment || t.seq == s.note.segment && t.used >= s.note.offset
}

// judge decides whether the log may be used. cut is set if something behind the
// last record has to be cut off.
func (s *scan) judge() (cut bool, err error) {
	t := s.tail()
	corrupt := func(what string) (bool, error) {
		return false, &CorruptError{t.name, t.used, what}
	}
	lost := func(what string) (bool, error) {
		return false, &LostTailError{t.name, t.used, s.note.segment, s.note.offset, s.note.sequence, what}
	}
	switch {
	case s.noteDiff != "":
		return lost(s.noteDiff)
	case s.fold != nil:
		return corrupt(s.fold.Error())
	case !s.passed() && (s.end.clean || s.end.short):
		return lost(s.end.what)
	case !s.passed():
		return corrupt(s.end.what)
	case s.note != nil && !s.noteFound:
		return lost("no record ends where the note says")
	case !s.end.clean && !s.end.torn:
		return corrupt(s.end.what)
	case s.metadata == nil:
		return corrupt("no metadata: the log was never finished")
	case s.shape.hs.term == 0:
		return corrupt("no hard state: the log was never finished")
	case s.shape.hs.commit > s.shape.last:
		return corrupt(fmt.Sprintf("commit is %d, but the last entry is %d", s.shape.hs.commit, s.shape.last))
	}
	return s.end.leftover, nil
}

// choose gives the newest marker that the log can start from and that is usable,
// and the entries behind it.
func (s *scan) choose(usable func([]byte, Marker) bool) (Marker, []*raftpb.Entry, error) {
	ms := append([]Marker(nil), s.markers...)
	sort.SliceStable(ms, func(i, j int) bool { return ms[i].Index > ms[j].Index })
	tried := []Marker{}
	for i, m := range ms {
		if i > 0 && ms[i-1].Index == m.Index && ms[i-1].Term == m.Term {
			continue
		}
		if m.Index == 0 || m.Index > s.shape.commit() || !s.shape.has(m.Index, m.Term) {
			continue // not of this log any more, or entries behind it are gone
		}
		if s.segments[0].index > m.Index {
			// Release keeps a segment that begins at or below the snapshot, and etcd's
			// package will not open a log without one.
			return m, nil, &CorruptError{s.segments[0].name, 0, fmt.Sprintf("segments before it are missing: the log is to start at snapshot %d", m.Index)}
		}
		if usable == nil || usable(s.metadata, m) {
			return m, s.entries[m.Index-s.shape.base:], nil
		}
		tried = append(tried, m)
	}
	return Marker{}, nil, &NoSnapshotError{s.dir, tried, s.shape.commit()}
}

func zeroFrom(f *os.File, off int64) (bool, error) {
	buf := make([]byte, 1<<16)
	for {
		n, err := f.ReadAt(buf, off)
		if !allZero(buf[:n]) {
			return false, nil
		}
		off += int64(n)
		if err == io.EOF {
			return true, nil
		}
		if err != nil {
			return false, err
		}
	}
}
