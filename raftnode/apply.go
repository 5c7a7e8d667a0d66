package raftnode

import (
	"fmt"

	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"
	"go.etcd.io/raft/v3/tracker"
	"go.uber.org/zap"
	"google.golang.org/protobuf/proto"

	"raftq/failpoint"
	"raftq/fsm"
	"raftq/wal"
)

type progress = tracker.Progress

// applyEntries takes what raft says is committed: entries the machine has
// applied already are confirmed, the others are applied. What they answer is
// answered now.
func (c *core) applyEntries(ents []*pb.Entry) {
	for _, e := range ents {
		var a fsm.Applied
		if e.GetIndex() <= c.machine.Position().Index {
			a = c.spec.confirm(e)
		} else {
			var ok bool
			if a, ok = c.apply(e); !ok {
				return
			}
			c.onHead(&a)
		}
		c.confirmed = a.Position
		c.growths.committed(&a)
		was, _ := c.member(c.changes.id)
		if e.GetType() != pb.EntryNormal {
			c.applyConfChange(e, &a)
		}
		if a.Members != nil {
			c.setMembers(a.Members)
		}
		if a.Gone != 0 {
			c.out.gone = append(c.out.gone, a.Gone)
		}
		c.changeCommitted(e, &a, was)
		c.snaps.bytes += int64(len(e.GetData())) + 32
		c.snaps.entries++
		if a.Header != (fsm.BatchHeader{}) {
			c.onCommitted(&a)
		}
		if c.fail != nil {
			return
		}
	}
	c.spec.forget(c.confirmed.Index)
	c.maybeSnapshot()
}

// apply gives the next entry to the machine; false when the replica cannot go
// on.
func (c *core) apply(e *pb.Entry) (fsm.Applied, bool) {
	data, err := batchOf(e)
	if err != nil {
		c.halt(err)
		return fsm.Applied{}, false
	}
	a, err := c.machine.Apply(e.GetIndex(), e.GetTerm(), data, fsm.Self{Origin: c.cfg.id, Epoch: c.origin.epoch, Watched: c.watches.count, Topics: c.growths.count})
	if err != nil {
		c.halt(fmt.Errorf("apply entry %d: %w", e.GetIndex(), err))
		return a, false
	}
	c.chains.note(a.Position.Index, c.machine.Chain())
	return a, true
}

// onHead keeps the leader's books, which follow the log's end.
func (c *core) onHead(a *fsm.Applied) {
	switch {
	case a.Header == fsm.BatchHeader{}:
	case a.Header.Origin == 0:
		c.onLeaderBatch()
	case a.Header.Number == 0:
		c.onAnyNodeStart(a.Header)
	}
}

// onCommitted answers what a committed entry answers.
func (c *core) onCommitted(a *fsm.Applied) {
	c.stats.entries++
	// A refused node start may come a second time, under an epoch that was given
	// up when the first was answered.
	if a.Mine && a.Header.Epoch == c.origin.epoch {
		c.onOwnBatch(a)
	}
	for i := range a.Handouts {
		c.onHandout(&a.Handouts[i])
	}
	for _, k := range a.Ended {
		c.watches.ended(k)
	}
	switch {
	case a.Header.Origin == 0:
		c.noticeAway()
	case a.Header.Number == 0:
		c.checkForeignEpoch()
	}
}

// checkForeignEpoch stops a node that runs on an old or copied data directory:
// the machine shows an epoch for its own id that it did not start, with a boot
// counter not below its own.
func (c *core) checkForeignEpoch() {
	if s, ok := c.machine.Session(c.cfg.id); ok {
		c.checkEpoch(s.Epoch)
	}
}

// checkEpoch takes an epoch that this node has in somebody's state.
func (c *core) checkEpoch(epoch uint64) {
	if epoch != c.origin.epoch && epoch>>32 >= c.origin.epoch>>32 && seeded != "copied-directory-serves" {
		c.halt(fmt.Errorf("this data directory is old or a copy: the cluster has seen start %d of node %s, and this is start %d; remove the copy, or let the node join as a new member",
			epoch>>32, c.cfg.name, c.origin.epoch>>32))
	}
}

// snaps is what the core knows of snapshots: when to take one, which are being
// written, and which were received and decoded but not installed.
type snaps struct {
	bytes     int64 // of the log since the last snapshot
	entries   uint64
	lastBytes int64 // size of the last snapshot file
	lastIndex uint64
	wanted    uint64 // one at this index or behind it is asked for
	writing   bool   // until the marker is durable
	retryAt   int64  // boot ns, after a failure
	saved     *snapshotSaved
	loaded    []loadedSnapshot
	sentAt    int64 // boot ns: a follower was last sent a snapshot or is catching up from one
}

type loadedSnapshot struct {
	index, term uint64
	machine     *fsm.Machine
}

func (s *snaps) arrived(m *pb.Message, machine *fsm.Machine) {
	meta := m.GetSnapshot().GetMetadata()
	s.loaded = append(s.loaded, loadedSnapshot{meta.GetIndex(), meta.GetTerm(), machine})
}

// take returns the decoded machine of a snapshot that raft accepted.
func (s *snaps) take(snap *pb.Snapshot) *fsm.Machine {
	meta := snap.GetMetadata()
	for i, l := range s.loaded {
		if l.index == meta.GetIndex() && l.term == meta.GetTerm() {
			s.loaded = append(s.loaded[:i], s.loaded[i+1:]...)
			return l.machine
		}
	}
	panic(fmt.Sprintf("BUG: raft accepted snapshot %d that was not decoded", meta.GetIndex()))
}

// maybeSnapshot takes a copy of the machine for the snapshot writer when the log
// has grown enough. Nodes are staggered, so that they do not write together.
func (c *core) maybeSnapshot() {
	s := &c.snaps
	limit := max(c.cfg.snapBytes, s.lastBytes)
	place := int64(0)
	for _, m := range c.members {
		if m.ID < c.cfg.id {
			place++
		}
	}
	limit += limit / 8 * min(place, 7)
	due := s.bytes >= limit || c.cfg.snapEntries > 0 && s.entries >= c.cfg.snapEntries || s.wanted > s.lastIndex
	if !due || s.writing || c.now.boot < s.retryAt {
		return
	}
	m := c.committed()
	if seeded == "snapshot-of-what-may-be-lost" {
		m = c.machine
	}
	if i := m.Position().Index; i <= s.lastIndex || s.wanted > s.lastIndex && i < s.wanted {
		return // the newest committed copy is the one written last, or not new enough
	}
	s.writing = true
	s.bytes, s.entries, s.lastIndex = 0, 0, m.Position().Index
	c.out.snapshot = &snapshotJob{machine: m.Copy(), pos: m.Position(), conf: confOf(m.Members())}
	if seeded == "snapshot-index-off-by-one" {
		c.out.snapshot.pos.Index--
	}
}

func (c *core) onSnapshotSaved(e snapshotSaved) {
	if e.err != nil {
		c.log.Error("snapshot not written; the log keeps growing until one is", zap.Uint64("index", e.job.pos.Index), zap.Error(e.err))
		c.snaps.writing = false
		c.snaps.retryAt = c.now.boot + 10e9
		return
	}
	c.snaps.saved = &e
}

// snapshotMark queues the marker of a snapshot that is on disk. It runs after
// raft's Ready, when all entries up to the commit index of the hard state that
// goes before the marker are in the log writer's queue.
func (c *core) snapshotMark() {
	s := &c.snaps
	for _, l := range s.loaded {
		c.log.Info("raft did not want a snapshot", zap.Uint64("index", l.index))
		c.out.dropped = append(c.out.dropped, l.index)
	}
	s.loaded = nil
	if s.saved == nil || c.fail != nil {
		return
	}
	job := s.saved.job
	s.lastBytes = s.saved.bytes
	s.saved = nil
	mark := &markJob{
		state:  proto.Clone(c.rn.BasicStatus().HardState).(*pb.HardState),
		marker: wal.Marker{Index: job.pos.Index, Term: job.pos.Term, ConfState: job.conf},
		keep:   c.spec.oldest(), // a rollback applies entries from there on
	}
	// A follower that is being sent a snapshot needs the entries after it.
	c.rn.WithProgress(func(_ uint64, _ raft.ProgressType, pr progress) {
		if pr.State == tracker.StateSnapshot {
			mark.keep = min(mark.keep, pr.PendingSnapshot)
			s.sentAt = c.now.boot
		} else if s.sentAt > 0 && c.now.boot-s.sentAt < 30e9 {
			mark.keep = min(mark.keep, pr.Match)
		}
	})
	c.hard.late = nil // the marker's goes before it
	j := &appendJob{mark: mark, base: c.clock.base.TimeBase, began: c.now.boot}
	c.appends = append(c.appends, j)
	c.outbox.add(j)
}

func (c *core) onMarked(m *markJob) {
	c.snaps.writing = false
	c.stats.snapshots++
	c.log.Info("snapshot taken", zap.Uint64("index", m.marker.Index), zap.Int64("bytes", c.snaps.lastBytes))
}

// install swaps in the machine of a received snapshot that is durable now.
func (c *core) install(m *fsm.Machine, snap *pb.Snapshot) {
	meta := snap.GetMetadata()
	if p := m.Position(); p.Index != meta.GetIndex() || p.Index <= c.machine.Position().Index {
		panic(fmt.Sprintf("BUG: installing machine %d for snapshot %d over %d", p.Index, meta.GetIndex(), c.machine.Position().Index))
	}
	c.machine, c.conf, c.confirmed = m, meta.GetConfState(), m.Position()
	c.snaps.bytes, c.snaps.entries, c.snaps.lastIndex = 0, 0, meta.GetIndex()
	c.stats.installs++
	c.setMembers(m.Members())
	c.out.gone = m.RemovedMembers(true)
	if q := &c.changes; q.under != nil && q.index != 0 && q.index <= meta.GetIndex() {
		q.under.unknown("committed or not while this node caught up by a snapshot; look at the members")
		q.under = nil
	}
	c.log.Info("snapshot installed", zap.Uint64("index", meta.GetIndex()))
	failpoint.Hit(failpoint.InstallSwapped)
	c.checkForeignEpoch()
	if seeded != "install-forgets-requests" {
		c.reconcile()
	}
	c.watches.all()
	c.growths.all()
	c.noticeAway()
}
