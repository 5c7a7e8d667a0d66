package raftnode

import (
	"errors"
	"sync"

	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"

	"raftq/failpoint"
	"raftq/wal"
)

// Entries that stay in memory below a snapshot, for followers that are a little
// behind.
const (
	keepEntries = 10_000
	keepBytes   = 16 << 20
)

// logWriter is the one goroutine that writes the log: it takes all queued
// appends up to the next snapshot as one Save with one fsync, appends each to
// raft's storage, and only then reports them. Its queue never blocks the core;
// raft's own limits bound it.
type logWriter struct {
	log     logStore
	storage *raft.MemoryStorage
	report  func([]*appendJob)
	fail    func(error)
	// marked: a snapshot's marker is durable, so files older than oldest, which
	// the log reaches back to, may go. received tells that the file was held until
	// now because it was on its way in.
	marked func(index, oldest uint64, received bool)
	keep   uint64 // entries kept in memory below a snapshot
	prev   uint64 // index of the snapshot before the last: the log reaches back to it

	mu     sync.Mutex
	cond   *sync.Cond
	queue  []*appendJob
	closed bool
	wg     sync.WaitGroup
}

// logStore is the durable log: *wal.Log, or a simulated disk.
type logStore interface {
	Save(hs *pb.HardState, ents []*pb.Entry, base wal.TimeBase) error
	Mark(hs *pb.HardState, m wal.Marker, base wal.TimeBase) error
	Release(index uint64) error
}

func newLogWriter(log logStore, storage *raft.MemoryStorage, snapIndex uint64) *logWriter {
	w := &logWriter{log: log, storage: storage, prev: snapIndex, keep: keepEntries}
	w.cond = sync.NewCond(&w.mu)
	return w
}

func (w *logWriter) start() { w.wg.Go(w.run) }

func (w *logWriter) push(jobs []*appendJob) {
	w.mu.Lock()
	w.queue = append(w.queue, jobs...)
	w.mu.Unlock()
	w.cond.Signal()
}

// close ends the goroutine after what is queued, and waits.
func (w *logWriter) close() {
	w.mu.Lock()
	w.closed = true
	w.mu.Unlock()
	w.cond.Signal()
	w.wg.Wait()
}

func (w *logWriter) run() {
	for {
		w.mu.Lock()
		for len(w.queue) == 0 && !w.closed {
			w.cond.Wait()
		}
		jobs := w.queue
		w.queue = nil
		w.mu.Unlock()
		if len(jobs) == 0 {
			return
		}
		for len(jobs) > 0 {
			n := groupLen(jobs)
			failpoint.Hit(failpoint.LogBeforeWrite)
			if err := w.write(jobs[:n]); err != nil {
				// Never again: after a failed fsync the page cache may claim
				// what the disk does not hold.
				w.fail(err)
				return
			}
			failpoint.Hit(failpoint.LogWritten)
			w.report(jobs[:n:n])
			jobs = jobs[n:]
		}
	}
}

// groupBytesMax bounds what one fsync covers, so that a burst of large bodies is
// written in steps that the core sees pass, not in one that looks stuck.
const groupBytesMax = 4 << 20

// groupLen is how many jobs go into one Save: a snapshot stands alone.
func groupLen(jobs []*appendJob) int {
	bytes := 0
	for i, j := range jobs {
		if j.mark != nil || j.machine != nil {
			return max(i, 1)
		}
		for _, e := range j.m.GetEntries() {
			bytes += len(e.GetData())
		}
		if i > 0 && bytes > groupBytesMax {
			return i
		}
	}
	return len(jobs)
}

func (w *logWriter) write(jobs []*appendJob) error {
	first, last := jobs[0], jobs[len(jobs)-1]
	switch {
	case first.mark != nil:
		return w.mark(first)
	case first.machine != nil:
		return w.install(first)
	}
	var state *pb.HardState
	ents := first.m.GetEntries()
	if len(jobs) > 1 {
		ents = nil
		for _, j := range jobs {
			ents = append(ents, j.m.GetEntries()...)
		}
	}
	for _, j := range jobs {
		if hs := hardState(j.m); !raft.IsEmptyHardState(hs) {
			state = hs
		}
	}
	if seeded == "hard-state-before-entries" {
		if err := w.log.Save(state, nil, last.base); err != nil {
			return err
		}
	}
	if err := w.log.Save(state, ents, last.base); err != nil {
		return err
	}
	if seeded == "appends-as-one-slice" {
		return w.storage.Append(ents)
	}
	for _, j := range jobs {
		// One by one: several messages as one slice corrupt raft's storage
		// when a later one truncates an earlier one.
		if err := w.storage.Append(j.m.GetEntries()); err != nil {
			return err
		}
	}
	return nil
}

// hardState rebuilds the hard state of a MsgStorageAppend; empty when it has
// none (absent fields are not zeros).
func hardState(m *pb.Message) *pb.HardState {
	if m.Term == nil && m.Vote == nil && m.Commit == nil {
		return nil
	}
	return &pb.HardState{Term: new(m.GetTerm()), Vote: new(m.GetVote()), Commit: new(m.GetCommit())}
}

// install makes a received snapshot durable: its file already is.
func (w *logWriter) install(j *appendJob) error {
	snap := j.m.GetSnapshot()
	meta := snap.GetMetadata()
	m := wal.Marker{Index: meta.GetIndex(), Term: meta.GetTerm(), ConfState: meta.GetConfState()}
	failpoint.Hit(failpoint.InstallUnmarked)
	if err := w.log.Mark(hardState(j.m), m, j.base); err != nil {
		return err
	}
	failpoint.Hit(failpoint.InstallMarked)
	if err := w.storage.ApplySnapshot(snap); err != nil {
		return err
	}
	if ents := j.m.GetEntries(); len(ents) > 0 {
		if err := w.log.Save(nil, ents, j.base); err != nil {
			return err
		}
		if err := w.storage.Append(ents); err != nil {
			return err
		}
	}
	return w.released(m.Index, true)
}

// mark makes our own snapshot count, then lets go of what it covers: memory
// below it except for slow followers, and log files below the one before it.
func (w *logWriter) mark(j *appendJob) error {
	m := j.mark.marker
	if err := w.log.Mark(j.mark.state, m, j.base); errors.Is(err, wal.ErrOldMarker) {
		return nil // a newer snapshot was installed meanwhile
	} else if err != nil {
		return err
	}
	failpoint.Hit(failpoint.SnapshotMarked)
	if _, err := w.storage.CreateSnapshot(m.Index, m.ConfState, nil); err != nil {
		return err
	}
	to := min(m.Index, j.mark.keep)
	first, _ := w.storage.FirstIndex()
	if first < to {
		ents, err := w.storage.Entries(first, to+1, ^uint64(0))
		if err != nil {
			return err
		}
		bytes := 0
		for n := uint64(0); len(ents) > 0 && n < w.keep && bytes < keepBytes; n++ {
			bytes += len(ents[len(ents)-1].GetData())
			ents = ents[:len(ents)-1]
		}
		if len(ents) > 0 {
			if err := w.storage.Compact(ents[len(ents)-1].GetIndex()); err != nil && err != raft.ErrCompacted {
				return err
			}
		}
	}
	return w.released(m.Index, false)
}

// released keeps the log back to the previous snapshot, so that a node whose
// newest snapshot file is damaged can start from the one before.
func (w *logWriter) released(index uint64, received bool) error {
	if seeded == "log-let-go-too-early" {
		w.prev = index
	}
	if err := w.log.Release(w.prev); err != nil {
		return err
	}
	failpoint.Hit(failpoint.SnapshotPruning)
	oldest := w.prev
	w.prev = index
	w.marked(index, oldest, received)
	return nil
}
