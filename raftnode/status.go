package raftnode

import (
	"go.etcd.io/raft/v3"
	"go.uber.org/zap"

	"raftq/fsm"
)

// status is what peers tell each other every second. Log time's base and slew,
// comfort and alarms depend on it, nothing else.
type status struct {
	ID      uint64       `json:"id"`
	Cluster uint64       `json:"cluster"`
	WallMs  int64        `json:"wall_ms"`
	Base    statusBase   `json:"base"`
	Applied uint64       `json:"applied"`
	Chain   chainPoint   `json:"chain"`
	Chains  []chainPoint `json:"chains"`
	Version string       `json:"version"`
	Feature uint32       `json:"feature"`
	Bytes   int64        `json:"bytes"`
	// Yours is the epoch that the asking node has in this node's state, 0 = none.
	Yours    uint64 `json:"yours,omitempty"`
	Draining bool   `json:"draining,omitempty"`
	Client   string `json:"client,omitempty"` // its address for clients
	Resp     string `json:"resp,omitempty"`
	Retreat  bool   `json:"retreat,omitempty"` // clients should go elsewhere
}

type statusBase struct {
	Index   uint64 `json:"index"`
	Term    uint64 `json:"term"`
	SinceNs int64  `json:"since_ns"`
	Lost    bool   `json:"lost"`
}

// chainPoint is the machine's running hash at an index.
type chainPoint struct {
	Index uint64 `json:"index"`
	Hash  uint64 `json:"hash"`
}

const (
	chainEvery = 128
	chainKept  = 32
)

// chainRing keeps the hashes at the last indexes that are multiples of
// chainEvery: nodes compare them at equal indexes.
type chainRing struct{ points [chainKept]chainPoint }

func (r *chainRing) note(index, hash uint64) {
	if index%chainEvery == 0 {
		r.points[index/chainEvery%chainKept] = chainPoint{index, hash}
	}
}

// forget drops points above index: they were of entries that may never commit.
func (r *chainRing) forget(index uint64) {
	for i := range r.points {
		if r.points[i].Index > index {
			r.points[i] = chainPoint{}
		}
	}
}

func (c *core) ownStatus(forPeer uint64) status {
	m := c.committed()
	pos := m.Position()
	s := status{ID: c.cfg.id, WallMs: c.now.wall, Applied: pos.Index, Chain: chainPoint{pos.Index, m.Chain()},
		Version: c.cfg.version, Feature: c.cfg.start.FeatureLevel, Bytes: m.Bytes(), Draining: c.leaving, Client: c.cfg.start.Client, Resp: c.cfg.resp, Retreat: c.retreat,
		Base: statusBase{c.clock.base.Index, c.clock.base.Term, c.now.boot - c.clock.base.BootNs, c.clock.base.lost}}
	if session, ok := m.Session(forPeer); ok {
		s.Yours = session.Epoch
	}
	for _, p := range c.chains.points {
		if p.Index > 0 && p.Index <= c.confirmed.Index {
			s.Chains = append(s.Chains, p)
		}
	}
	return s
}

// onPeerStatus keeps what a peer says, and compares chains. A node whose state
// differs from a majority of the voters stops; without a majority it is an alarm.
func (c *core) onPeerStatus(e peerStatus) {
	s := e.status
	p := c.peers[s.ID]
	if p == nil {
		return
	}
	p.lived = max(p.lived, e.asked)
	p.status, p.heardStatus = s, c.now.boot
	p.wallOffset = s.WallMs - c.now.boot/1e6
	c.checkEpoch(s.Yours)
	differ := 0
	for _, id := range c.conf.GetVoters() {
		if q := c.peers[id]; q != nil && c.differs(q.status.Chains) {
			differ++
			c.log.Error("this node's state differs from a member's", zap.String("member", c.nameOf(id)))
		}
	}
	if differ > len(c.conf.GetVoters())/2 {
		c.halt(errDiverged)
	}
}

func (c *core) differs(theirs []chainPoint) bool {
	for _, t := range theirs {
		if o := c.chains.points[t.Index/chainEvery%chainKept]; o.Index == t.Index && o.Index <= c.confirmed.Index && o.Hash != t.Hash {
			return true
		}
	}
	return false
}

// Status is what GET /v1/cluster shows.
type Status struct {
	ClusterID    uint64
	Leader       string
	Term, Commit uint64
	FeatureLevel uint32
	Nodes        []NodeStatus
}

// NodeStatus is one member as this node last heard of it. Match is known on the
// leader; elsewhere it is the member's applied index.
type NodeStatus struct {
	ID                     uint64
	Name, Client, Peer     string
	Resp                   string // "" = has none, or was not heard of yet
	Retreat                bool   // it asked clients to go elsewhere
	Learner, Leader, Alive bool
	Standby                bool // a learner that becomes a voter only when asked to
	Draining               bool
	Match, Applied         uint64
	ChainIndex, ChainHash  uint64
	Version                string
}

func (c *core) view() Status {
	v := Status{Leader: c.nameOf(c.leader), Term: c.term, Commit: c.commit}
	match := map[uint64]uint64{}
	if c.role == raft.StateLeader {
		c.rn.WithProgress(func(id uint64, _ raft.ProgressType, pr progress) { match[id] = pr.Match })
	}
	machine := c.committed()
	for i, m := range c.members {
		n := NodeStatus{ID: m.ID, Name: m.Name, Peer: m.Peer, Learner: m.Learner, Standby: m.Standby, Leader: m.ID == c.leader}
		session, ok := machine.Session(m.ID)
		if ok {
			n.Client, n.Version = session.Start.Client, session.Start.Version
		}
		st := c.ownStatus(0)
		n.Alive = true
		if m.ID != c.cfg.id {
			st = status{}
			n.Alive = false
			if p := c.peers[m.ID]; p != nil {
				st = p.status
				n.Alive = p.heardStatus > 0 && c.now.boot-p.heardStatus < 3e9
			}
		}
		n.Draining = st.Draining
		n.Applied, n.ChainIndex, n.ChainHash = st.Applied, st.Chain.Index, st.Chain.Hash
		n.Resp, n.Retreat = st.Resp, st.Retreat
		n.Match = st.Applied
		if x, ok := match[m.ID]; ok {
			n.Match = x
		}
		if st.Version != "" {
			n.Version = st.Version
		}
		if i == 0 || session.Start.FeatureLevel < v.FeatureLevel {
			v.FeatureLevel = session.Start.FeatureLevel
		}
		v.Nodes = append(v.Nodes, n)
	}
	return v
}

// coreStats are counters for /metrics; the core's goroutine publishes copies.
type coreStats struct {
	leaderChanges, batches, ops, resent, dropped, entries uint64
	givenBack, hangups, readRounds, snapshots, installs   uint64
	steps, rollbacks, fast, refusedFull                   uint64
}

// machineFacts are the gauges of /metrics that come from the machine.
type machineFacts struct {
	pos    fsm.Position
	bytes  int64
	totals fsm.QueueInfo

	memoryLimit int64
	diskAlarm   uint8
}
