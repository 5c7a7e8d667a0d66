package raftnode

import (
	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"
	"go.uber.org/zap"

	"raftq/fsm"
)

// lead is what a node has only while it leads, made anew for each term. It takes
// batches once its machine has applied the first entry of its own term: the log
// ends there then, so that the machine's session table says which number of each
// origin comes next.
type lead struct {
	term  uint64
	ready bool
	next  map[uint64]nextBatch
	held  [][]byte // came before ready
	bytes int      // of held

	props  []*pb.Entry // taken in this turn, one Step for all
	undo   []undoNext  // next as it was before props, in case Step refuses
	ticked bool        // an empty batch for due timers is under way
	away   map[uint64]uint64

	learners map[uint64]*catchUp
}

type nextBatch struct{ epoch, number uint64 }

type undoNext struct {
	origin uint64
	was    nextBatch
}

// peerState is what this node knows of another member.
type peerState struct {
	heard       int64 // boot ns of its last raft message
	heardStatus int64 // boot ns
	lived       int64 // boot ns at which it surely lived: the last question for its status that it answered was asked then
	status      status
	wallOffset  int64 // its wall clock minus our boot clock, ms
}

func (p *peerState) wallNow(now reading) int64 { return p.wallOffset + now.boot/1e6 }

func (c *core) heard(id uint64) {
	if p := c.peers[id]; p != nil {
		p.heard = c.now.boot
	}
}

func (c *core) startLeading() {
	c.lead = &lead{term: c.term, next: map[uint64]nextBatch{}, away: map[uint64]uint64{}, learners: map[uint64]*catchUp{}}
	c.clock.settled, c.clock.asked = false, 0
	for _, p := range c.peers {
		p.heard = c.now.boot
	}
}

// leading tells whether batches may be taken, and starts to take them when the
// machine has come to this term.
func (c *core) leading() bool {
	l := c.lead
	if l == nil || l.term != c.term {
		return false
	}
	if l.ready {
		return true
	}
	if c.machine.Position().Term != l.term && seeded != "batches-before-own-term" || !c.settleClock() {
		return false
	}
	if _, member := c.machine.Member(c.cfg.id); !member {
		// Elected with the entry that removes it in its log: nothing may come after
		// what the others have, or they could not be elected.
		return false
	}
	l.ready = true
	c.startSpeculation()
	for _, s := range c.machine.Sessions() {
		l.next[s.Node] = nextBatch{s.Epoch, s.LastBatch + 1}
	}
	held := l.held
	l.held, l.bytes = nil, 0
	c.takeBatches(held)
	return true
}

func (c *core) takeBatches(data [][]byte) {
	for _, d := range data {
		c.takeBatch(d)
	}
}

// takeBatch takes one batch for the log, if this node leads the term it is
// addressed to and its number is the next of its origin. Else it is dropped: its
// origin sends it again until it is applied.
func (c *core) takeBatch(data []byte) {
	h, err := fsm.ReadBatchHeader(data)
	if err != nil {
		c.log.Error("batch refused", zap.Error(err))
		return
	}
	role, term := c.role, c.term
	if c.rn.stirred {
		// raft may have moved on in this turn; only what it says now counts.
		st := c.rn.BasicStatus()
		role, term = st.RaftState, st.GetTerm()
	}
	if c.lead == nil || c.muted || role != raft.StateLeader || term != c.lead.term || h.Term != c.lead.term || h.Origin == 0 {
		return
	}
	l := c.lead
	if !c.leading() {
		if l.bytes+len(data) <= heldBytesMax {
			l.held, l.bytes = append(l.held, data), l.bytes+len(data)
		}
		return
	}
	was := l.next[h.Origin]
	if _, member := c.machine.Member(h.Origin); !member || c.removing(h.Origin) {
		return // it would have no effect
	}
	switch {
	case h.Number == 0 && h.Epoch>>32 > was.epoch>>32:
	case h.Epoch == was.epoch && h.Number == was.number && h.Number > 0:
	case h.Epoch == was.epoch && h.Number > 0 && h.Number < was.number && seeded == "batch-logged-twice":
	default:
		return
	}
	l.undo = append(l.undo, undoNext{h.Origin, was})
	l.next[h.Origin] = nextBatch{h.Epoch, h.Number + 1}
	l.props = append(l.props, c.stamped(data))
}

// stamped returns an entry with a stamped copy of a batch. The copy matters: the
// origin keeps its bytes, and raft keeps the entry's.
func (c *core) stamped(data []byte) *pb.Entry {
	d := append([]byte(nil), data...)
	now := c.logNow()
	if seeded == "log-time-of-origin" {
		h, _ := fsm.ReadBatchHeader(d)
		now = max(now, h.TimeMs)
	}
	fsm.SetBatchTime(d, max(now, c.machine.Position().TimeMs)) // never falls
	return &pb.Entry{Data: d}
}

// own queues a batch of the leader itself: no session, no number, never sent
// again.
func (c *core) ownBatch(ops ...fsm.Op) {
	c.lead.props = append(c.lead.props, c.stamped(fsm.EncodeBatch(fsm.BatchHeader{Term: c.lead.term}, ops...)))
}

// propose brings what was taken in this turn into the log. A batch counts only when
// raft has appended it, or is sure to.
func (c *core) propose() {
	l := c.lead
	if l == nil {
		return
	}
	c.leading()
	for len(l.props) > 0 {
		props := l.props
		l.props = nil
		if c.speculateAhead(props) {
			if len(l.props) == 0 {
				clear(props)
				l.props = props[:0] // raft holds the entries, not the array
			}
		} else {
			c.stepProps(props)
		}
		l.undo = l.undo[:0]
	}
}

func (c *core) stepProps(props []*pb.Entry) {
	l := c.lead
	err := c.rn.Step(&pb.Message{Type: pb.MsgProp.Enum(), From: new(c.cfg.id), Entries: props})
	if err == nil {
		return
	}
	for i := len(l.undo) - 1; i >= 0; i-- {
		l.next[l.undo[i].origin] = l.undo[i].was
	}
	l.ticked = l.ticked && seeded == "timers-end-with-a-refusal"
	clear(l.away)
	c.stats.dropped += uint64(len(props))
	c.log.Debug("raft took no proposal", zap.Int("batches", len(props)), zap.Error(err))
}

// leaderTick proposes what only time brings: due timers, and nodes that do not
// answer.
func (c *core) leaderTick() {
	if !c.leading() {
		return
	}
	l := c.lead
	if due, ok := c.machine.NextDue(); ok && !l.ticked && due <= c.logNow() && seeded != "timers-wait-for-writes" {
		l.ticked = true
		c.ownBatch()
	}
	for _, m := range c.members {
		p := c.peers[m.ID]
		if p == nil || c.now.boot-p.heard <= 2*c.cfg.heartbeatNs+2*c.cfg.tickNs {
			continue
		}
		s, ok := c.machine.Session(m.ID)
		// Jobs must not go to its waiters, and its full disk must not keep the others
		// from taking jobs, which they can do without it.
		if !ok || s.Away || s.Waiters == 0 && s.Disk == 0 || l.away[m.ID] == s.Epoch || seeded == "away-not-noticed" {
			continue
		}
		l.away[m.ID] = s.Epoch
		c.log.Info("node away", zap.String("node", m.Name), zap.Int("waiters", s.Waiters), zap.Uint8("disk alarm", s.Disk))
		c.ownBatch(&fsm.NodeAway{Node: m.ID, Epoch: s.Epoch})
	}
}

// onLeaderBatch notes that an origin-0 batch is applied.
func (c *core) onLeaderBatch() {
	l := c.lead
	if l == nil {
		return
	}
	l.ticked = false
	clear(l.away)
	if due, ok := c.machine.NextDue(); ok && l.ready && due <= c.logNow() {
		// More is due than one entry fires.
		l.ticked = true
		c.ownBatch()
	}
}

// noticeAway sees whether this node's session is marked as away.
func (c *core) noticeAway() {
	if s, ok := c.machine.Session(c.cfg.id); ok && s.Away && s.Epoch == c.origin.epoch && c.origin.registered {
		c.origin.back = true
	}
}

// onAnyNodeStart corrects the leader's filter when the machine refused a node
// start that the filter had let through.
func (c *core) onAnyNodeStart(h fsm.BatchHeader) {
	if c.lead == nil || !c.lead.ready {
		return
	}
	s, ok := c.machine.Session(h.Origin)
	if n := c.lead.next[h.Origin]; n.epoch == h.Epoch && (!ok || s.Epoch != h.Epoch) {
		c.lead.next[h.Origin] = nextBatch{s.Epoch, s.LastBatch + 1}
	}
}

// successor returns the live voter whose log is longest, 0 if there is none.
func (c *core) successor() uint64 {
	var best, match uint64
	for _, id := range c.conf.GetVoters() {
		p := c.peers[id]
		if p == nil || c.now.boot-p.heard > c.cfg.electionNs {
			continue
		}
		c.rn.WithProgress(func(pid uint64, _ raft.ProgressType, pr progress) {
			if pid == id && (best == 0 || pr.Match > match) {
				best, match = id, pr.Match
			}
		})
	}
	return best
}
