package raftnode

import (
	"fmt"

	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"
	"go.uber.org/zap"

	"raftq/fsm"
)

// Limits of one replica.
const (
	inflightMax    = 3         // own batches not applied yet
	batchBytesMax  = 1 << 20   // of a batch, or one larger op
	heldBytesMax   = 64 << 20  // batches a new leader holds until it may take them
	queuedMax      = 65_536    // client requests not packed yet
	queuedBytesMax = 256 << 20 // and their bytes
	ticksMax       = 2         // raft ticks made up for after a stall: late ticks cause elections

	batchWindow = 16 << 20 // what one member's unapplied batches may hold at the most, each
)

// coreConfig is what a core is made of. storage holds the log from the
// machine's index on.
type coreConfig struct {
	id          uint64
	name        string
	tickNs      int64
	heartbeatNs int64
	electionNs  int64
	epoch       uint64 // boot counter << 32 | random
	random32    func() uint32
	start       fsm.NodeStart
	version     string
	resp        string // address for clients of Disque's protocol
	machine     *fsm.Machine
	conf        *pb.ConfState
	storage     raft.Storage
	base        timeBase
	snapBytes   int64
	snapEntries uint64
	snapLast    int64 // bytes of the newest snapshot file
	now         reading
	log         *zap.Logger
}

// core is the replica without its goroutines. One goroutine owns it.
type core struct {
	cfg  coreConfig
	log  *zap.Logger
	rn   *rawNode
	out  outputs
	now  reading
	fail error // set once: the replica ends

	unheard []any // events that came with the one that failed

	outbox outbox

	machine        *fsm.Machine // head: committed and applied, and on a leader what it has appended since
	uncommittedMax uint64
	confirmed      fsm.Position // the last that raft handed out as committed; at most the machine's
	spec           speculation
	conf           *pb.ConfState
	role           raft.StateType
	term           uint64
	leader         uint64 // 0 = unknown
	noLead         int64  // since when (boot ns) no leader is known
	tickAt         int64  // boot ns of the last tick
	leaving        bool
	expelled       bool // removed, see expel
	retreat        bool // clients should go elsewhere: told to the others, nothing is refused
	handing        bool // leadership is on its way elsewhere: raft takes no proposals

	lastAppended uint64 // highest index handed to the log writer
	commit       uint64 // raft's commit index, as of the last Ready

	origin   origin
	parked   parked
	lead     *lead // nil unless leader
	clock    logClock
	reads    reads
	watches  watches
	growths  growths
	copies   copies
	pressure pressure
	snaps    snaps
	members  []fsm.Member // the table as of the last committed entry
	changes  changes
	moving   *move // nil: nobody waits for a transfer
	peers    map[uint64]*peerState
	chains   chainRing
	appends  []*appendJob // not durable yet, oldest first
	hard     hardStates
	wroteAt  int64 // boot ns at which the log writer last reported
	muted    bool  // stuck disk: no raft message in or out
	moved    int64 // when a transfer because of the stuck disk began
	stats    coreStats
}

func newCore(cfg coreConfig) (*core, error) {
	c := &core{cfg: cfg, log: cfg.log, now: cfg.now, machine: cfg.machine, conf: cfg.conf,
		confirmed: cfg.machine.Position(), tickAt: cfg.now.boot, noLead: cfg.now.boot, peers: map[uint64]*peerState{}}
	if err := checkConf(cfg.conf, cfg.machine.Members()); err != nil {
		return nil, fmt.Errorf("snapshot %d: %w", c.confirmed.Index, err)
	}
	c.setMembers(cfg.machine.Members())
	c.out.members = nil // the transport has it
	rn, err := raft.NewRawNode(&raft.Config{
		ID:            cfg.id,
		ElectionTick:  int(cfg.electionNs / cfg.tickNs),
		HeartbeatTick: int(cfg.heartbeatNs / cfg.tickNs),
		Storage:       cfg.storage,
		Applied:       cfg.machine.Position().Index,

		AsyncStorageWrites:        true,
		PreVote:                   true,
		CheckQuorum:               true,
		StepDownOnRemoval:         false, // it hands over instead, see expel
		DisableProposalForwarding: true,
		ReadOnlyOption:            raft.ReadOnlySafe,
		MaxSizePerMsg:             1 << 20,
		MaxCommittedSizePerReady:  4 << 20,
		MaxInflightMsgs:           512,
		MaxInflightBytes:          64 << 20,
		MaxUncommittedEntriesSize: membersMax * inflightMax * batchWindow, // raft's cannot be changed; ours follows the members
		Logger:                    raftLogger{cfg.log.Sugar()},
	})
	if err != nil {
		return nil, fmt.Errorf("start raft: %w", err)
	}
	c.rn = &rawNode{RawNode: rn, id: cfg.id, stirred: true, due: true}
	st := c.rn.BasicStatus()
	c.term, c.role, c.leader, c.commit = st.GetTerm(), st.RaftState, st.Lead, st.GetCommit()
	c.lastAppended, _ = cfg.storage.LastIndex()
	hs, _, _ := cfg.storage.InitialState() // in memory, never fails
	c.hard.term, c.hard.vote = hs.GetTerm(), hs.GetVote()
	c.clock.base = cfg.base
	c.origin = newOrigin(cfg.epoch)
	c.parked = newParked()
	c.watches = newWatches()
	c.growths = newGrowths()
	// An answer to a ReadIndex of an earlier process may still be on its way.
	if seeded != "read-proved-to-an-earlier-life" {
		c.reads.round = cfg.epoch >> 32 << 48
	}
	c.snaps.lastBytes, c.snaps.lastIndex = cfg.snapLast, c.confirmed.Index
	if c.checkForeignEpoch(); c.fail != nil {
		return nil, c.fail
	}
	if v := cfg.conf.GetVoters(); len(v) == 1 && v[0] == cfg.id {
		// A lone voter need not wait for an election timeout.
		if err := c.rn.Campaign(); err != nil {
			return nil, fmt.Errorf("start raft: %w", err)
		}
	}
	return c, nil
}

// step handles events at one reading of the clocks and says what to do. The
// outputs are valid until the next step. After an error the core is dead.
func (c *core) step(now reading, events []any) (*outputs, error) {
	if c.stats.steps++; c.stats.steps == 1 {
		// Reading the log may have taken long; that is no time without a leader.
		c.noLead, c.tickAt = now.boot, now.boot
	}
	c.now = now
	o := &c.out
	clear(o.sends)
	clear(o.appends)
	*o = outputs{sends: o.sends[:0], snapshots: o.snapshots[:0], appends: o.appends[:0],
		done: o.done[:0], reads: o.reads[:0], dropped: o.dropped[:0]}
	for i, e := range events {
		if c.handle(e); c.fail != nil {
			c.unheard = events[i+1:]
			break
		}
	}
	if c.fail == nil {
		c.tick()
		c.flush()
	}
	c.release()
	return o, c.fail
}

func (c *core) handle(e any) {
	switch e := e.(type) {
	case submitted:
		c.submit(e.reqs)
	case received:
		c.receive(e)
	case batchesCame:
		c.heard(e.from)
		c.takeBatches(e.data)
	case appended:
		c.onAppended(e.jobs)
	case hungup:
		c.onHangup(e.req)
	case undelivered:
		c.parked.giveBack = append(c.parked.giveBack, e.items...)
	case readAsked:
		c.onRead(e.read)
	case unreachable:
		c.rn.ReportUnreachable(e.id)
	case snapshotSent:
		st := raft.SnapshotFinish
		if !e.ok {
			st = raft.SnapshotFailure
		}
		c.rn.ReportSnapshot(e.id, st)
	case snapshotSaved:
		c.onSnapshotSaved(e)
	case peerStatus:
		c.onPeerStatus(e)
	case statusAsked:
		e.reply(c.ownStatus(e.from))
	case viewAsked:
		e.reply(c.view())
	case changeAsked:
		c.onChange(e.change)
	case moveAsked:
		c.onMove(e.move)
	case snapshotAsked:
		c.snaps.wanted = max(c.snaps.wanted, e.index)
	case transferAsked:
		c.transfer()
	case leaveAsked:
		c.leave()
	case stayAsked:
		c.leaving = c.expelled
	case retreatAsked:
		if c.retreat = e.on; e.on {
			c.transfer()
		}
	case watchAsked:
		c.watches.add(e.watch)
	case unwatched:
		c.watches.remove(e.watch)
	case growthAsked:
		c.growths.add(e.growth, c.machine.Position().Index, c.confirmed.Index)
	case growthLeft:
		c.growths.remove(e.growth)
	case copiesAsked:
		c.copies.add(c, e.wait)
	case copiesLeft:
		c.copies.remove(e.wait)
	case diskSeen:
		c.onDisk(e.step)
	case failed:
		c.halt(e.err)
	default:
		panic(fmt.Sprintf("BUG: core got an event of type %T", e))
	}
}

// halt ends the replica; the first reason wins.
func (c *core) halt(err error) {
	if c.fail == nil {
		c.fail = err
	}
}

// receive steps a peer's raft message. Batches never come this way.
func (c *core) receive(e received) {
	if c.muted {
		if e.machine != nil {
			c.out.dropped = append(c.out.dropped, e.m.GetSnapshot().GetMetadata().GetIndex())
		}
		return
	}
	c.heard(e.m.GetFrom())
	if e.m.GetType() == pb.MsgHeartbeat && e.m.GetCommit() > c.lastAppended {
		// A leader names no more than this node has confirmed to it.
		c.halt(fmt.Errorf("this data directory is old or a copy: this node has confirmed entry %d, and its log ends at %d; remove the copy, or let the node join as a new member", e.m.GetCommit(), c.lastAppended))
		return
	}
	if e.m.GetType() == pb.MsgReadIndex && !c.mayAnswerReads() {
		return // who asks asks again
	}
	if e.machine != nil {
		c.snaps.arrived(e.m, e.machine)
	}
	if err := c.rn.Step(e.m); err != nil {
		c.log.Debug("raft refused a message", zap.Stringer("type", e.m.GetType()), zap.Error(err))
	}
}

// tick moves raft's clock and everything that waits for time to pass. Messages
// were handled before, so that a stall does not cause an election by itself.
func (c *core) tick() {
	n := (c.now.boot - c.tickAt) / c.cfg.tickNs
	if n <= 0 {
		return
	}
	c.tickAt += n * c.cfg.tickNs
	c.hardTick()
	for range min(n, ticksMax) {
		c.rn.Tick()
	}
	c.watchDisk()
	c.originTick()
	c.parkedTick()
	c.readsTick()
	c.leaderTick()
	c.pressureTick()
	c.changesTick()
	if c.snaps.wanted > c.snaps.lastIndex {
		c.maybeSnapshot()
	}
}

// flush packs what waits, and runs raft until it has nothing to say.
func (c *core) flush() {
	for {
		for c.fail == nil {
			c.observe()
			c.pack()
			c.propose()
			c.proposeChange()
			if !c.mayHold() {
				c.rn.settle()
			}
			if !c.rn.HasReady() {
				break
			}
			c.ready(c.rn.Ready())
		}
		c.snapshotMark()
		c.observe()
		c.copies.settle(c)
		waiting := len(c.origin.waiting)
		c.settleReads()
		if !c.mayHold() {
			c.rn.settle()
		}
		// A ReadIndex that began, or a dequeue that is to be packed after all, must
		// not wait for the next turn.
		if c.fail != nil || !c.rn.HasReady() && len(c.origin.waiting) == waiting {
			return
		}
	}
}

// ready handles one Ready of raft.
func (c *core) ready(rd raft.Ready) {
	for _, rs := range rd.ReadStates {
		c.onReadState(rs)
	}
	for _, m := range rd.Messages {
		switch m.GetType() {
		case pb.MsgStorageAppend:
			c.appendEntries(m)
		case pb.MsgStorageApply:
			c.applyEntries(m.GetEntries())
			for _, r := range m.GetResponses() {
				_ = c.rn.Step(r) // local responses are never refused
			}
		default:
			c.send(m)
		}
	}
}

func (c *core) send(m *pb.Message) {
	switch {
	case c.muted:
		if m.GetType() == pb.MsgSnap {
			c.rn.ReportSnapshot(m.GetTo(), raft.SnapshotFailure)
		}
	case m.GetType() == pb.MsgSnap:
		c.sendSnapshot(m)
	default:
		if m.GetType() == pb.MsgApp && c.removing(m.GetTo()) {
			c.endAtRemoval(m)
		}
		c.outbox.send(m)
	}
}

// appendEntries hands one MsgStorageAppend to the log writer.
func (c *core) appendEntries(m *pb.Message) {
	if c.needsNoWrite(m) {
		c.respond(m.GetResponses())
		return
	}
	if seeded == "entries-confirmed-before-fsync" {
		for _, r := range m.GetResponses() {
			if r.GetTo() != c.cfg.id {
				c.send(r)
			}
		}
	}
	job := &appendJob{m: m, began: c.now.boot}
	ents := m.GetEntries()
	if len(ents) > 0 {
		c.lastAppended = ents[len(ents)-1].GetIndex()
	}
	if !raft.IsEmptySnap(m.GetSnapshot()) {
		job.machine = c.snaps.take(m.GetSnapshot())
		c.writtenNow(job.machine.Position())
		c.lastAppended = m.GetSnapshot().GetMetadata().GetIndex()
		if n := len(ents); n > 0 {
			c.lastAppended = ents[n-1].GetIndex()
		}
	}
	c.wrote(ents)
	c.changeAppended(ents)
	if c.spec.on && len(ents) > 0 {
		c.provenBy(c.lastAppended)
	}
	job.base = c.clock.base.TimeBase
	c.hard.write(m)
	c.speculate(c.notAhead(ents))
	c.appends = append(c.appends, job)
	c.outbox.add(job)
}

// onAppended delivers the responses of appends that are durable now. A received
// snapshot's machine is swapped in before raft hears of it, so that raft's
// applied index and the machine's agree.
func (c *core) onAppended(jobs []*appendJob) {
	c.wroteAt = c.now.boot
	for _, j := range jobs {
		if len(c.appends) == 0 || c.appends[0] != j {
			panic("BUG: the log writer answered out of order")
		}
		c.appends = c.appends[1:]
		if j.mark != nil {
			c.onMarked(j.mark)
			continue
		}
		if j.machine != nil {
			c.install(j.machine, j.m.GetSnapshot())
		}
		c.respond(j.m.GetResponses())
	}
}

// respond delivers what a durable append answers.
func (c *core) respond(rs []*pb.Message) {
	for _, r := range rs {
		if r.GetTo() == c.cfg.id {
			_ = c.rn.Step(r) // local responses are never refused
		} else {
			c.send(r)
		}
	}
}

// observe notices changes of term, role and leader.
func (c *core) observe() {
	if !c.rn.stirred {
		return
	}
	c.rn.stirred = false
	st := c.rn.BasicStatus()
	c.commit, c.handing = st.GetCommit(), st.LeadTransferee != 0
	if st.GetTerm() == c.term && st.RaftState == c.role && st.Lead == c.leader {
		return
	}
	if st.Lead != c.leader {
		c.stats.leaderChanges++
	}
	c.log.Info("raft role", zap.Uint64("term", st.GetTerm()), zap.String("role", st.RaftState.String()), zap.String("leader", c.nameOf(st.Lead)))
	if st.GetTerm() != c.term || st.RaftState != c.role {
		c.unspeculate()
	}
	was := c.role
	c.term, c.role, c.leader = st.GetTerm(), st.RaftState, st.Lead
	if c.leader == 0 {
		c.noLead = c.now.boot
	}
	switch {
	case c.role == raft.StateLeader:
		c.startLeading()
	case was == raft.StateLeader:
		c.lead = nil
		if c.muted {
			c.log.Warn("stuck disk: leadership is gone, messages flow again")
		}
		c.muted = false
	}
	c.originLeaderChanged()
	c.readsLeaderChanged()
	c.changesLeaderChanged()
}

// watchDisk hands leadership over when an append hangs longer than an election
// timeout; a leader that cannot goes silent, so that the others elect one.
func (c *core) watchDisk() {
	// A long queue that moves is no stuck disk.
	if c.role != raft.StateLeader || len(c.appends) == 0 || c.now.boot-max(c.appends[0].began, c.wroteAt) < c.cfg.electionNs {
		c.moved = 0
		if c.muted {
			// A lone voter stays leader all the time; nothing else ends its silence.
			c.log.Warn("stuck disk: the write has returned, messages flow again")
			c.muted = false
		}
		return
	}
	switch {
	case c.moved == 0:
		c.moved = c.now.boot
		c.log.Warn("stuck disk: handing leadership over", zap.Int64("ms", (c.now.boot-max(c.appends[0].began, c.wroteAt))/1e6))
		c.transfer()
	case !c.muted && c.now.boot-c.moved > c.cfg.electionNs:
		c.log.Error("stuck disk: nobody takes leadership, going silent")
		c.muted = true
	}
}

// transfer moves leadership to the most advanced live voter, if there is one.
func (c *core) transfer() {
	if c.role != raft.StateLeader {
		return
	}
	if to := c.successor(); to != 0 {
		c.log.Info("transferring leadership", zap.String("to", c.nameOf(to)))
		c.rn.TransferLeader(to)
	}
}
