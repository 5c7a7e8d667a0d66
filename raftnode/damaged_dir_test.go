package raftnode

import (
	"encoding/binary"
	"fmt"
	"hash/crc64"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/cespare/xxhash/v2"
	pb "go.etcd.io/raft/v3/raftpb"

	"raftq/fsm"
	"raftq/snapshot"
	"raftq/wal"
)

// richDir is the data directory of one of three members with everything in it: three
// lives, several segments and snapshots, terms, votes, truncated tails, an
// installed snapshot, changes of the members, large, tiny and zero bodies. It is
// written by the code that a node writes it with, and kept in memory; what it
// means is kept beside it, record by record.
type richDir struct {
	cfg    Config
	files  map[string][]byte   // by path within the directory
	older  []map[string][]byte // the same, when each earlier life ended
	points []richPoint         // after each record of the log
	hashes map[uint64]uint64   // of the true state, by index
	notes  []richNote
}

// richPoint is what the log says when it ends after a record.
type richPoint struct {
	term, vote, commit uint64
	base, lastTerm     uint64
	sums               []uint64 // of the entries base+1, ...
	markers            []uint64
}

func (p *richPoint) last() uint64 { return p.base + uint64(len(p.sums)) }

// richNote is the lost-tail note as it was after a sync.
type richNote struct {
	content  []byte
	sequence uint64
	segment  uint64
	offset   int64
	points   int // that were promised
}

type richBuilder struct {
	richDir
	t      testing.TB
	r      *rand.Rand
	b      *booted
	dir    string
	at     richPoint
	ents   []*pb.Entry // base+1, ...
	prev   uint64      // snapshot before the last
	m      *fsm.Machine
	epoch  uint64
	timeMs int64
	others []uint64
	joined int
}

func entrySum(e *pb.Entry) uint64 {
	h := xxhash.New()
	fmt.Fprintf(h, "%d %d %d ", e.GetIndex(), e.GetTerm(), e.GetType())
	_, _ = h.Write(e.GetData())
	return h.Sum64()
}

// scratch is a directory in memory if there is one, so that syncs cost nothing.
func scratch(t testing.TB) string {
	dir, err := os.MkdirTemp("/dev/shm", "raftq-damaged-")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

func richConfig(dir, token, name string) Config {
	peers := []Member{{"n1", "http://127.0.0.1:1"}, {"n2", "http://127.0.0.1:2"}, {"n3", "http://127.0.0.1:3"}}
	cfg := Config{Name: name, ClusterToken: token, DataDir: dir, InitialCluster: peers, SegmentBytes: 16 << 10}
	for _, p := range peers {
		if p.Name == name {
			cfg.AdvertisePeer = p.Peer
		}
	}
	cfg, err := cfg.withDefaults()
	must(err)
	return cfg
}

func buildRichDir(t testing.TB, seed uint64, token, name string) *richDir {
	t.Helper()
	d := &richBuilder{t: t, r: rand.New(rand.NewPCG(seed, 11)), dir: filepath.Join(scratch(t), "data"), joined: 10}
	d.cfg, d.hashes = richConfig(d.dir, token, name), map[uint64]uint64{}
	d.at = richPoint{term: 1, commit: 1, base: 1, lastTerm: 1, markers: []uint64{1}}
	d.record()
	members, _ := d.cfg.members()
	d.m, d.prev = fsm.New(members), 1
	d.hashes[1] = d.m.Hash()
	for life := range 3 {
		d.open()
		for _, id := range d.others {
			if life == 0 {
				d.batch(fsm.BatchHeader{Origin: id, Epoch: 1<<32 | id&0xffff}, &fsm.NodeStart{Client: "c:1", Peer: "http://p:1", Version: "v", FeatureLevel: fsm.FeatureLevel})
			}
		}
		for step := range 40 {
			d.step()
			if life == 0 && step == 20 {
				d.install()
			}
			if step%13 == 12 {
				d.commit()
				d.snapshot()
			}
		}
		if life == 2 {
			d.save(nil, d.entry(big(d.r, 40<<10))) // the next segment begins
			for range 12 {
				d.save(nil, d.entry(fmt.Appendf(nil, "tail %d", d.r.Uint32())))
			}
		}
		must(d.b.log.Close())
		must(d.b.dir.close())
		d.noted()
		d.files = readTree(t, d.dir)
		d.older = append(d.older, d.files)
	}
	d.older = d.older[:2]
	return &d.richDir
}

func readTree(t testing.TB, dir string) map[string][]byte {
	files := map[string][]byte{}
	must(filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() || filepath.Ext(path) == ".tmp" {
			return err
		}
		name, _ := filepath.Rel(dir, path)
		files[name], err = os.ReadFile(path)
		return err
	}))
	return files
}

func (d *richBuilder) open() {
	d.t.Helper()
	b, err := boot(d.cfg)
	if err != nil {
		d.t.Fatal(err)
	}
	d.b = b
	d.record() // the hard state is written again
	d.noted()
	d.epoch = b.core.epoch
	d.others = nil
	for _, m := range d.m.Members() {
		if m.ID != b.core.id {
			d.others = append(d.others, m.ID)
		}
	}
	d.batch(fsm.BatchHeader{Origin: b.core.id, Epoch: d.epoch}, &b.core.start)
}

// record notes what the log says from here on.
func (d *richBuilder) record() {
	p := d.at
	p.sums, p.markers = slices.Clone(p.sums), slices.Clone(p.markers)
	d.points = append(d.points, p)
}

// noted keeps the note if it is a new one.
func (d *richBuilder) noted() {
	b, err := os.ReadFile(filepath.Join(d.dir, "note"))
	must(err)
	n, _ := wholeNote(b)
	if len(d.notes) == 0 || n.sequence > d.notes[len(d.notes)-1].sequence {
		n.points = len(d.points)
		d.notes = append(d.notes, n)
	}
}

// wholeNote reads the newer of the note's slots that are as they were written
// (docs/format-wal.md).
func wholeNote(b []byte) (n richNote, ok bool) {
	le := binary.LittleEndian
	for _, at := range []int{0, 4096} {
		if len(b) < at+512 {
			continue
		}
		slot := b[at : at+512]
		if seq := le.Uint64(slot[8:]); seq > n.sequence && le.Uint64(slot[504:]) == crc64.Checksum(slot[:504], crc64.MakeTable(crc64.ECMA)) {
			n, ok = richNote{content: b, sequence: seq, segment: le.Uint64(slot[16:]), offset: int64(le.Uint64(slot[24:]))}, true
		}
	}
	return n, ok
}

func (d *richBuilder) save(hs *pb.HardState, ents ...*pb.Entry) {
	must(d.b.log.Save(hs, ents, wal.TimeBase{Index: d.at.last(), Term: d.at.term, StampMs: d.timeMs, BootNs: 1}))
	for _, e := range ents {
		keep := e.GetIndex() - d.at.base - 1
		d.ents = append(d.ents[:keep:keep], e)
		d.at.sums = append(d.at.sums[:keep:keep], entrySum(e))
		d.at.lastTerm = e.GetTerm()
		d.record()
	}
	if hs != nil {
		d.at.term, d.at.vote, d.at.commit = hs.GetTerm(), hs.GetVote(), hs.GetCommit()
		d.record()
	}
	d.noted()
}

func (d *richBuilder) entry(data []byte) *pb.Entry {
	// A batch that the machine takes and that has no effect: its epoch is nobody's.
	h := fsm.BatchHeader{Origin: d.b.core.id, Epoch: 77, Number: 5, Term: d.at.term, TimeMs: d.timeMs}
	return d.raw(&pb.Entry{Data: fsm.EncodeBatch(h, &fsm.Enqueue{Jobs: []fsm.NewJob{{Queue: "q", Body: data, Priority: 4}}})})
}

func (d *richBuilder) raw(e *pb.Entry) *pb.Entry {
	e.Index, e.Term = new(d.at.last()+1), new(d.at.term)
	return e
}

func big(r *rand.Rand, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

// batch writes one and commits it, with all before it.
func (d *richBuilder) batch(h fsm.BatchHeader, ops ...fsm.Op) {
	d.timeMs += d.r.Int64N(400)
	h.Term, h.TimeMs = d.at.term, d.timeMs
	e := &pb.Entry{Data: fsm.EncodeBatch(h, ops...)}
	if op, ok := ops[0].(*fsm.MemberChange); ok {
		e = confEntry(op, e.Data)
	}
	d.save(nil, d.raw(e))
	d.commit()
}

func (d *richBuilder) commit() {
	d.save(&pb.HardState{Term: new(d.at.term), Vote: new(d.at.vote), Commit: new(d.at.last())})
	for i := d.m.Position().Index + 1; i <= d.at.commit; i++ {
		applyTo(d.m, d.ents[i-d.at.base-1])
		d.hashes[i] = d.m.Hash()
	}
}

func applyTo(m *fsm.Machine, e *pb.Entry) {
	data, err := batchOf(e)
	must(err)
	_, err = m.Apply(e.GetIndex(), e.GetTerm(), data, fsm.Self{})
	must(err)
}

// step writes something.
func (d *richBuilder) step() {
	r := d.r
	s, _ := d.m.Session(d.b.core.id)
	mine := fsm.BatchHeader{Origin: d.b.core.id, Epoch: d.epoch, Number: s.LastBatch + 1}
	switch r.IntN(9) {
	case 0, 1: // jobs of the node
		var jobs []fsm.NewJob
		for range 1 + r.IntN(4) {
			j := fsm.NewJob{Queue: fmt.Sprintf("q%d", r.IntN(3)), Body: big(r, r.IntN(300)), Priority: uint8(r.IntN(10))}
			switch r.IntN(6) {
			case 0:
				j.Body = make([]byte, 600+r.IntN(4000)) // zeros, whole sectors of them
			case 1:
				j.Body = nil
			case 2:
				j.DelayMs = 1 + r.Int64N(3000)
			case 3:
				j.Headers = []fsm.Header{{Name: "h", Value: "v"}}
			}
			jobs = append(jobs, j)
		}
		d.batch(mine, &fsm.Enqueue{Jobs: jobs})
	case 2:
		d.batch(mine, &fsm.Dequeue{Queues: []string{"q0", "q1"}, Max: 3, LeaseMs: 100 + r.Int64N(5000), Request: d.at.last(), Consumer: "c"})
	case 3: // a large one
		d.batch(mine, &fsm.Enqueue{Jobs: []fsm.NewJob{{Queue: "large", Body: big(r, 10<<10+r.IntN(20<<10)), Priority: 4}}})
	case 4: // raft's own, empty
		d.save(nil, d.raw(&pb.Entry{}))
		d.commit()
	case 5: // entries that do not live: the next term truncates them
		for range 1 + r.IntN(4) {
			d.save(nil, d.entry(big(r, r.IntN(900))))
		}
		first := d.at.commit + 1
		d.term(0)
		e := &pb.Entry{Index: new(first), Term: new(d.at.term)}
		d.save(nil, e)
		d.commit()
	case 6: // a vote for somebody
		d.term(d.others[r.IntN(len(d.others))])
	case 7:
		d.term(d.b.core.id)
		d.save(nil, d.raw(&pb.Entry{}))
		d.commit()
	case 8: // a learner comes
		d.joined++
		d.batch(fsm.BatchHeader{}, &fsm.MemberChange{Verb: fsm.MemberAdd, Member: fsm.Member{ID: uint64(d.joined), Name: fmt.Sprintf("l%d", d.joined), Peer: fmt.Sprintf("http://l%d:1", d.joined), Learner: true, Join: uint64(d.joined)}})
	}
}

func (d *richBuilder) term(vote uint64) {
	d.save(&pb.HardState{Term: new(d.at.term + 1 + d.r.Uint64N(2)), Vote: new(vote), Commit: new(d.at.commit)})
}

// snapshot does what a node does with its own: file, marker, release, prune.
func (d *richBuilder) snapshot() {
	pos := d.m.Position()
	d.mark(pos, func() { d.at.markers = append(d.at.markers, pos.Index) })
}

func (d *richBuilder) mark(pos fsm.Position, then func()) {
	snaps := d.b.dir.snapDir()
	conf := confOf(d.m.Members())
	_, err := snapshot.Write(snaps, snapshot.Header{ClusterID: d.b.cluster, Index: pos.Index, Term: pos.Term, ConfState: conf, TimeMs: pos.TimeMs}, nil, d.m.Encode)
	must(err)
	hs := &pb.HardState{Term: new(d.at.term), Vote: new(d.at.vote), Commit: new(pos.Index)}
	must(d.b.log.Mark(hs, wal.Marker{Index: pos.Index, Term: pos.Term, ConfState: conf}, wal.TimeBase{}))
	then()
	d.record()
	d.record()
	d.noted()
	must(d.b.log.Release(d.prev))
	_, err = snapshot.Prune(snaps, 1, func(i uint64) bool { return i >= d.prev })
	must(err)
	d.prev = pos.Index
}

// install takes another node's snapshot, of entries that this one never had.
func (d *richBuilder) install() {
	d.save(nil, d.entry(big(d.r, 100)), d.entry2(big(d.r, 100))) // they are dropped
	index := d.at.last()
	for i := d.m.Position().Index + 1; i <= index+5; i++ {
		applyTo(d.m, &pb.Entry{Index: new(i), Term: new(d.at.term)})
		d.hashes[i] = d.m.Hash()
	}
	pos := d.m.Position()
	d.mark(pos, func() {
		d.ents = nil
		d.at.base, d.at.lastTerm, d.at.sums, d.at.commit = pos.Index, pos.Term, nil, pos.Index
		d.at.markers = []uint64{pos.Index}
	})
}

func (d *richBuilder) entry2(data []byte) *pb.Entry {
	e := d.entry(data)
	e.Index = new(e.GetIndex() + 1)
	return e
}
