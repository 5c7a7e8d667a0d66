package raftnode

import (
	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"
	"go.uber.org/zap"

	"raftq/fsm"
)

const simTick = 10e6

// simNode is a machine with a disk and, while it is up, a process on it: a core,
// and what Node does around one.
type simNode struct {
	w    *world
	i    int
	id   uint64
	name string

	// The machine's clocks.
	bootID   int
	bootedAt int64 // true ns at which bootOff was read
	bootOff  int64
	drift    int64 // ppm
	wallOff  int64 // ms

	disk simDisk

	// The process. life counts starts and ends, so that an event for an
	// earlier process is known as such.
	up      bool
	life    int
	core    *core
	storage *raft.MemoryStorage
	writer  *logWriter
	held    heldFiles
	box     []any
	reqs    []*request
	waking  bool
	wakeAt  int64 // the core's, of the last step
	lazy    bool  // the same
	paused  int64 // until; true ns
	asleep  bool  // no step at all until told: for scripted tests
	gone    bool  // removed, or its disk is lost: it never comes back
	removed map[uint64]bool
	met     map[uint64]bool // who has sent a message
	taken   []*appendJob
	queue   []*appendJob
	busy    bool
	jammed  bool         // a write has failed: the log writer is at its end
	group   []*appendJob // being written
	writes  int          // groups
	polls   map[uint64]*simPoll
	at      uint64 // the core's index after its last step
	before  coreStats
	// restored is the entry whose state it began with or was sent; installs are those
	// that it knows.
	restored, installs uint64
	open               map[*request]*simOp
	reading            map[*read]*simOp
}

func newSimNode(w *world, i int, m fsm.Member) *simNode {
	n := &simNode{w: w, i: i, id: m.ID, name: m.Name}
	if w.opt.drift {
		n.drift = w.faultRand.Int64N(2001) - 1000
	}
	n.wallOff = 1_700_000_000_000 + w.faultRand.Int64N(5000)
	n.bootOff = w.faultRand.Int64N(1e15)
	n.disk = newSimDisk(n)
	return n
}

// now reads the machine's clocks.
func (n *simNode) now() reading {
	d := n.w.now - n.bootedAt
	return reading{boot: n.bootOff + d + d/1e6*n.drift, wall: n.wallOff + n.w.now/1e6}
}

// start boots the process from the durable state, as boot does.
func (n *simNode) start() {
	w := n.w
	if n.up {
		panic("BUG: started twice")
	}
	n.up = true
	n.life++
	st := n.disk.open()
	machine := n.disk.load(st.Marker.Index)
	n.storage = raft.NewMemoryStorage()
	must(n.storage.ApplySnapshot(&pb.Snapshot{Metadata: &pb.SnapshotMetadata{Index: new(st.Marker.Index), Term: new(st.Marker.Term), ConfState: st.Marker.ConfState}}))
	must(n.storage.SetHardState(st.HardState))
	must(n.storage.Append(st.Entries))
	n.disk.boots++
	now := n.now()
	base := bootBase(st, machine, now)
	draws := uint32(0)
	random32 := func() uint32 {
		draws++
		if w.opt.sameEpochs {
			return draws
		}
		return w.idRand.Uint32()
	}
	cfg := coreConfig{
		id: n.id, name: n.name, tickNs: simTick, heartbeatNs: w.opt.heartbeat, electionNs: w.opt.election,
		epoch: n.disk.boots<<32 | uint64(random32()), random32: random32,
		start: fsm.NodeStart{Client: n.name + ":80", Peer: "http://" + n.name, Version: "sim", FeatureLevel: fsm.FeatureLevel}, version: "sim",
		machine: machine, conf: st.Marker.ConfState, storage: n.storage, base: base,
		snapBytes: 64 << 20, snapEntries: w.opt.snapEntries, now: now,
		log: w.log.Named(n.name),
	}
	var err error
	if n.core, err = newCore(cfg); err != nil {
		w.failf("%s does not start: %v", n.name, err)
	}
	n.writer = newLogWriter(&n.disk, n.storage, st.Marker.Index)
	n.writer.keep = w.opt.keep
	n.writer.marked = n.disk.prune
	n.held = heldFiles{}
	n.box, n.reqs, n.waking, n.paused, n.wakeAt = nil, nil, false, 0, 0
	n.lazy = false
	n.taken, n.queue, n.group, n.busy, n.jammed = nil, nil, nil, false, false
	n.at, n.before = machine.Position().Index, coreStats{}
	n.restored, n.installs = n.at, 0
	n.open, n.reading = map[*request]*simOp{}, map[*read]*simOp{}
	n.polls, n.removed, n.met = map[uint64]*simPoll{}, map[uint64]bool{}, map[uint64]bool{}
	for _, id := range machine.RemovedMembers(true) {
		n.removed[id] = true
	}
	n.follow(machine.Members())
	w.log.Named(n.name).Info("started", zap.Uint64("marker", st.Marker.Index), zap.Int("entries", len(st.Entries)), zap.Uint64("boot", n.disk.boots))
	n.ticker(n.life)
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

// ticker steps the core at least every tick of the machine's time.
func (n *simNode) ticker(life int) {
	n.w.after(simTick-between(n.w.diskRand, 0, 50e3), func() {
		if n.life == life {
			n.step()
			n.ticker(life)
		}
	})
}

// kill ends the process: what is not durable is lost, and so is every answer.
func (n *simNode) kill() {
	w := n.w
	w.note('k', uint64(n.i))
	w.log.Named(n.name).Info("killed")
	n.addStats(&w.stats)
	n.before = coreStats{}
	if len(n.core.outbox.appends)+len(n.core.rn.props) > 0 {
		w.stats.HeldLost++
	}
	n.disk.crash(n.group)
	n.up = false
	n.life++
	n.core, n.storage, n.writer, n.box, n.reqs = nil, nil, nil, nil, nil
	w.check.nodeDied(n)
}

// reboot resets the dead machine's BOOTTIME.
func (n *simNode) reboot() {
	n.bootID++
	n.bootedAt, n.bootOff = n.w.now, between(n.w.faultRand, 1e9, 60e9)
	n.w.stats.Reboots++
}

func (n *simNode) addStats(s *simStats) {
	if n.core == nil {
		return
	}
	a, b := n.core.stats, n.before
	s.LeaderChanges += int(a.leaderChanges - b.leaderChanges)
	s.Installs += int(a.installs - b.installs)
	s.Resent += int(a.resent - b.resent)
	s.GivenBack += int(a.givenBack - b.givenBack)
	s.Hangups += int(a.hangups - b.hangups)
	s.ReadRounds += int(a.readRounds - b.readRounds)
	s.Rollbacks += int(a.rollbacks - b.rollbacks)
	n.before = a
}

// post puts an internal event into the mailbox.
func (n *simNode) post(e any) {
	if n.up {
		n.box = append(n.box, e)
		if !n.lazy || !canWait(e) {
			n.wake()
		}
	}
}

// wake steps the core a moment later, with all that has come by then.
func (n *simNode) wake() {
	if n.waking {
		return
	}
	n.waking = true
	life := n.life
	n.w.after(between(n.w.netRand, 1e3, 60e3), func() {
		if n.life == life {
			n.waking = false
			n.step()
		}
	})
}

func (n *simNode) stopped() bool { return n.asleep || n.w.now < n.paused }

func (n *simNode) step() {
	w := n.w
	if !n.up || n.stopped() {
		return
	}
	events := n.box
	n.box = nil
	if len(n.reqs) > 0 {
		events = append(events, submitted{n.reqs})
		n.reqs = nil
	}
	w.stats.Steps++
	out, err := n.core.step(n.now(), events)
	w.check.stepped(n)
	if err == nil { // a node that ends keeps what it has: its fast answers may go with it
		w.check.held(n, out)
	}
	n.perform(out)
	if err != nil {
		n.ended(err)
		return
	}
	if at := out.wakeAt; at > 0 && at != n.wakeAt {
		if len(n.core.outbox.appends)+len(n.core.rn.props) > 0 {
			w.stats.Held++
		}
		life := n.life
		w.after(at-n.core.now.boot+between(w.diskRand, 0, 300e3), func() {
			if n.life == life {
				n.step()
			}
		})
	}
	n.wakeAt = out.wakeAt
}

// perform does what Node.perform does.
func (n *simNode) perform(out *outputs) {
	w := n.w
	n.lazy = out.lazy
	if len(out.sends)+len(out.appends)+len(out.done)+len(out.reads) > 0 {
		w.note('s', uint64(n.i), uint64(len(out.sends)), uint64(len(out.appends)), uint64(len(out.done)), n.core.machine.Position().Index, n.core.machine.Chain())
	}
	if out.members != nil {
		n.follow(out.members)
	}
	for _, id := range out.gone {
		n.removed[id] = true
	}
	w.check.logChecker.stamping(n)
	if len(out.appends) > 0 {
		w.check.appending(n, out.appends)
		n.queue = append(n.queue, out.appends...)
		n.write()
	}
	for _, m := range out.sends {
		w.check.promised(n, m)
		w.net.send(n, m)
	}
	for _, m := range out.snapshots {
		w.net.sendSnapshot(n, m)
	}
	for _, r := range out.done {
		w.check.done(n, r)
	}
	for _, r := range out.reads {
		w.check.readDone(n, r)
	}
	if out.snapshot != nil {
		job := *out.snapshot
		data := encodeMachine(job.machine)
		life := n.life
		w.after(between(w.diskRand, 1e6, 300e6), func() {
			if n.life == life {
				n.disk.snaps[job.pos.Index] = data
				n.post(snapshotSaved{job: &job, bytes: int64(len(data))})
			}
		})
	}
	for _, index := range out.dropped {
		n.held.drop(index)
	}
	if out.ask {
		for _, m := range n.core.members {
			if p := n.polls[m.ID]; p != nil {
				n.ask(m.ID, p)
			}
		}
	}
}

// simPoll asks one peer for its status, one question at a time.
type simPoll struct {
	busy, again bool
	number      int
}

func (n *simNode) poll(to uint64, p *simPoll) {
	life := n.life
	n.ask(to, p)
	n.w.after(1e9, func() {
		if n.life == life && n.polls[to] == p {
			n.poll(to, p)
		}
	})
}

func (n *simNode) ask(to uint64, p *simPoll) {
	if p.busy {
		p.again = true
		return
	}
	p.busy = true
	p.number++
	number, life, asked := p.number, n.life, n.now().boot
	end := func(s *status) {
		if n.life != life || p.number != number || !p.busy {
			return
		}
		p.busy = false
		if s != nil {
			n.post(peerStatus{*s, asked})
		}
		if p.again {
			p.again = false
			n.ask(to, p)
		}
	}
	if peer := n.w.byID[to]; peer != nil {
		n.w.net.status(n, peer, end)
	}
	n.w.after(2e9, func() { end(nil) })
}
