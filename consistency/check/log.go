package check

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
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
// archive. It returns what the files show as committed. stopped says where and why
// the reading ended early: files may have been damaged on purpose.
//
// It uses etcd's decoder, not package wal, so that a log is not judged by the code
// that wrote it.
func ReadLog(dirs ...string) (entries map[uint64]Entry, stopped error, err error) {
	paths := map[string]string{}
	for _, dir := range dirs {
		found, err := filepath.Glob(filepath.Join(dir, "*.wal"))
		if err != nil {
			return nil, nil, err
		}
		for _, path := range found {
			// A segment that is in both is whole in the archive, which comes last.
			seq, _, _ := strings.Cut(filepath.Base(path), "-")
			paths[seq] = path
		}
	}
	var seqs []string
	for seq := range paths {
		seqs = append(seqs, seq)
	}
	slices.Sort(seqs)
	f := fold{committed: map[uint64]Entry{}, open: map[uint64]Entry{}}
	var files []fileutil.FileReader
	for _, seq := range seqs {
		file, err := os.Open(paths[seq])
		if err != nil {
			return nil, nil, err
		}
		defer file.Close()
		files = append(files, fileutil.NewFileReader(file))
	}
	d := etcdwal.NewDecoder(files...)
	for {
		var rec walpb.Record
		if err := d.Decode(&rec); errors.Is(err, io.EOF) {
			return f.committed, nil, f.err
		} else if err != nil {
			return f.committed, err, f.err
		}
		if rec.GetType() == etcdwal.CrcType {
			d.UpdateCRC(rec.GetCrc())
			continue
		}
		if err := f.add(&rec); err != nil {
			return f.committed, err, f.err
		}
		if f.err != nil {
			return f.committed, nil, f.err
		}
	}
}

// fold follows a log's records.
type fold struct {
	committed map[uint64]Entry
	open      map[uint64]Entry // written, not known as committed yet
	last      uint64
	err       error // a committed entry changed
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
		if s.GetIndex() > f.last { // another node's
			f.last = s.GetIndex()
			clear(f.open)
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
// where nobody has more.
func Merge(nodes map[string]map[uint64]Entry) ([]Entry, []Problem) {
	var p problems
	all := map[uint64]Entry{}
	from := map[uint64]string{}
	highest := uint64(1)
	var names []string
	for name := range nodes {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		for i, e := range nodes[name] {
			if was, ok := all[i]; ok && !was.same(e) {
				p.add("log: one entry, one content", "entry %d is of term %d on %s and of term %d on %s", i, was.Term, from[i], e.Term, name)
			}
			all[i], from[i] = e, name
			highest = max(highest, i)
		}
	}
	var log []Entry
	for i := uint64(2); i <= highest; i++ {
		e, ok := all[i]
		if !ok {
			p.add("log: complete", "no node has entry %d of %d", i, highest)
			break
		}
		log = append(log, e)
	}
	return log, p.all()
}
