package check

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"go.etcd.io/etcd/client/pkg/v3/fileutil"
	etcdwal "go.etcd.io/etcd/server/v3/storage/wal"
	"go.etcd.io/etcd/server/v3/storage/wal/walpb"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"
)

// Entry is one committed entry of the log; Data is its batch, empty for raft's own.
type Entry struct {
	Index, Term uint64
	Data        []byte
	raw         []byte
}

// ReadLog reads a node's log: its segments, and those that it released to an
// archive. It returns what the files show as committed. stopped says what could not
// be read first: files may have been damaged on purpose. The reading goes on with the
// next segment, which begins with all that it needs.
//
// It uses etcd's decoder, not package wal, so that a log is not judged by the code
// that wrote it.
func ReadLog(dirs ...string) (entries map[uint64]Entry, stopped error, err error) {
	paths := map[uint64]string{}
	for _, dir := range dirs {
		found, err := filepath.Glob(filepath.Join(dir, "*.wal"))
		if err != nil {
			return nil, nil, err
		}
		for _, path := range found {
			// A segment that is in both is whole in the archive, which comes last.
			name, _, _ := strings.Cut(filepath.Base(path), "-")
			seq, err := strconv.ParseUint(name, 16, 64)
			if err != nil {
				return nil, nil, fmt.Errorf("%s is no segment: %w", path, err)
			}
			paths[seq] = path
		}
	}
	f := fold{committed: map[uint64]Entry{}, open: map[uint64]Entry{}}
	next := uint64(0)
	for _, seq := range slices.Sorted(maps.Keys(paths)) {
		if seq != next {
			f.skip()
		}
		next = seq + 1
		if err := f.read(paths[seq]); err != nil {
			stopped = cmp.Or(stopped, err)
			f.skip()
		}
	}
	return f.committed, stopped, f.err
}

// fold follows a log's records.
type fold struct {
	committed map[uint64]Entry
	open      map[uint64]Entry // written, not known as committed yet
	last      uint64
	err       error // a committed entry changed
}

// skip is for records that cannot be read: they may have replaced what is open.
func (f *fold) skip() { clear(f.open) }

// read reads a segment, until f.err is set.
func (f *fold) read(path string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	d := etcdwal.NewDecoder(fileutil.NewFileReader(file))
	for f.err == nil {
		var rec walpb.Record
		if err := d.Decode(&rec); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		if rec.GetType() == etcdwal.CrcType {
			d.UpdateCRC(rec.GetCrc())
			continue
		}
		if err := f.add(&rec); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
	}
	return nil
}

func (f *fold) add(rec *walpb.Record) error {
	switch rec.GetType() {
	case etcdwal.EntryType:
		var e raftpb.Entry
		if err := proto.Unmarshal(rec.Data, &e); err != nil {
			return err
		}
		i := e.GetIndex()
		for k := i + 1; k <= f.last; k++ {
			delete(f.open, k)
		}
		f.last = i
		data, err := batch(&e)
		if err != nil {
			return err
		}
		f.open[i] = Entry{i, e.GetTerm(), data, e.GetData()}
	case etcdwal.StateType:
		var hs raftpb.HardState
		if err := proto.Unmarshal(rec.Data, &hs); err != nil {
			return err
		}
		for i, e := range f.open { // order does not reach output
			if i > hs.GetCommit() {
				continue
			}
			if was, ok := f.committed[i]; ok && !was.same(e) {
				f.err = fmt.Errorf("entry %d was committed in term %d and is now another one of term %d", i, was.Term, e.Term)
			}
			f.committed[i] = e
			delete(f.open, i)
		}
	case etcdwal.SnapshotType:
		var s walpb.Snapshot
		if err := proto.Unmarshal(rec.Data, &s); err != nil {
			return err
		}
		// One of this log's own entries is known as committed before. Another node's
		// replaces all that is here, also what has its index in another term.
		i := s.GetIndex()
		if was, ok := f.committed[i]; !ok {
			f.last = i
			f.skip()
		} else if was.Term != s.GetTerm() {
			f.err = fmt.Errorf("entry %d was committed in term %d, and a snapshot has it in term %d", i, was.Term, s.GetTerm())
		}
	}
	return nil
}

func (e Entry) same(o Entry) bool { return e.Term == o.Term && bytes.Equal(e.raw, o.raw) }

// batch is what an entry brings to the machine.
func batch(e *raftpb.Entry) ([]byte, error) {
	switch e.GetType() {
	case raftpb.EntryConfChange:
		var cc raftpb.ConfChange
		err := proto.Unmarshal(e.GetData(), &cc)
		return cc.GetContext(), err
	case raftpb.EntryConfChangeV2:
		var cc raftpb.ConfChangeV2
		err := proto.Unmarshal(e.GetData(), &cc)
		return cc.GetContext(), err
	}
	return e.GetData(), nil
}

// Merge makes one log of what the nodes' files show. All that have an entry as
// committed have the same. The log begins at index 2 (1 is the genesis) and ends
// where nobody has more, or before the first entry that nobody has.
func Merge(nodes map[string]map[uint64]Entry) ([]Entry, []Problem) {
	var p problems
	all := map[uint64]Entry{}
	from := map[uint64]string{}
	highest := uint64(1)
	for _, name := range slices.Sorted(maps.Keys(nodes)) {
		for i, e := range nodes[name] {
			if was, ok := all[i]; ok && !was.same(e) {
				p.add("log: one entry, one content", "entry %d is of term %d on %s and of term %d on %s", i, was.Term, from[i], e.Term, name)
			}
			all[i], from[i] = e, name
			highest = max(highest, i)
		}
	}
	var log []Entry
	whole := true
	for i := uint64(2); i <= highest; i++ {
		e, ok := all[i]
		if ok {
			if whole {
				log = append(log, e)
			}
			continue
		}
		whole = false
		first := i
		for _, ok := all[i+1]; !ok; _, ok = all[i+1] {
			i++
		}
		p.add("log: complete", "no node has entries %d to %d of %d: %s", first, i, highest, around(nodes, first, i))
	}
	return log, p.all()
}

// around says whose files end right before a gap, and whose begin right behind it.
func around(nodes map[string]map[uint64]Entry, first, last uint64) string {
	const most = 4
	type reach struct {
		name         string
		below, above uint64 // its entries next to the gap, 0 = none
	}
	var all []reach
	for _, name := range slices.Sorted(maps.Keys(nodes)) {
		r := reach{name: name}
		for i := range nodes[name] { // order does not reach output
			if i < first {
				r.below = max(r.below, i)
			} else if i > last && (r.above == 0 || i < r.above) {
				r.above = i
			}
		}
		all = append(all, r)
	}
	var before, behind []string
	slices.SortStableFunc(all, func(a, b reach) int { return cmp.Compare(b.below, a.below) })
	for _, r := range all {
		if r.below > 0 && len(before) < most {
			before = append(before, fmt.Sprintf("%s ends at %d", r.name, r.below))
		}
	}
	slices.SortStableFunc(all, func(a, b reach) int { return cmp.Compare(a.above, b.above) })
	for _, r := range all {
		if r.above > 0 && len(behind) < most {
			behind = append(behind, fmt.Sprintf("%s begins at %d", r.name, r.above))
		}
	}
	return fmt.Sprintf("before it %s; behind it %s", strings.Join(before, ", "), strings.Join(behind, ", "))
}
