package raftnode

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/cryptotest"

	"github.com/cespare/xxhash/v2"
	"go.uber.org/zap"

	"raftq/fsm"
)

// world is a cluster under a virtual clock: the real cores and the real log
// writers' code, with clocks, network, disks, clients and faults made up from
// one seed. One goroutine runs it, event by event, so the same seed gives the
// same run. Anything wrong is a panic with a *simFailure, caught by runWorld.
type world struct {
	seed uint64
	opt  simOptions
	log  *zap.Logger
	now  int64 // true time in ns
	seq  uint64
	heap []simEvent

	nodes    []*simNode
	byID     map[uint64]*simNode
	members  []fsm.Member
	net      network
	check    *checker
	nemesis  nemesis
	changing changing
	clients  []*simClient

	netRand, diskRand, clientRand, faultRand, idRand *rand.Rand

	trace  xxhash.Digest
	events int
	phase  string // for messages
	cut    simCut // the same
	stats  simStats
}

// simStats is what a run did; batches of runs that did nothing interesting fail.
type simStats struct {
	Seeds, Ops, OK, Refused, Unknown, Entries, Steps, Events                                   int
	LeaderChanges, Installs, Resent, GivenBack, Away, Hangups, Handouts, EmptyReads            int
	Kills, Reboots, Pauses, Partitions, Jumps, Stalls, OldSnapshots, LostTails, Stops          int
	Fast, FastLost, Voids, Rollbacks, Held, HeldLost                                           int
	Joins, Removals, LeaderRemovals, Retired, Wiped, Moves, QuorumRefusals                     int
	Faults, DiskErrors, Rotten, SnapTwice, Edges                                               int
	Side, SideRefused, SideTx, SideGrants, DeadLetters                                         int
	Replays, ReplaysElsewhere, ReplaysLater, ReplaysOutlived, ReplaysRestored, Mismatches      int
	Attempts, AttemptsElsewhere, AttemptsLater, AttemptsOutlived, AttemptsRestored, WaitsTaken int
	Rejects, Settles, NotUnique, Purged, Redriven, Released, Shared                            int
	Filtered, StaleReceipts, LateAcks, EpochsRefused, ReadRounds, FromSnapshot                 int
	VirtualMs                                                                                  int64
}

type simEvent struct {
	at  int64
	seq uint64
	do  func()
}

// simFailure is what a checker found.
type simFailure struct{ text string }

func (w *world) failf(format string, args ...any) {
	panic(&simFailure{fmt.Sprintf("%s at %s: ", w.phase, ms(w.now)) + fmt.Sprintf(format, args...)})
}

func ms(ns int64) string { return fmt.Sprintf("%.3f ms", float64(ns)/1e6) }

// simOptions are drawn from the seed: each run has its own mix.
type simOptions struct {
	nodes       int
	ops         int
	heartbeat   int64 // ns
	election    int64
	snapEntries uint64
	keep        uint64 // entries in memory below a snapshot
	wire        bool   // messages are encoded and decoded on their way
	sameEpochs  bool   // first draws of random32 are equal on all nodes
	drift       bool

	delayMin, delayMax int64 // of a message
	drop, dup, reorder float64
	diskMin, diskMax   int64 // of one write
	stall              float64
	partial            float64 // of a write under way is durable after a crash
	snapStall          float64 // of snapshots come in while the disk hangs

	clients             int
	thinkMax            int64
	burst               float64
	faults              []faultKind
	skip                []int // of the faults that come, those that do not happen
	faultEvery          int64
	changeEvery         int64 // of the members; 0 = never
	delays, ttls, prios float64
	once                float64
	fast                float64 // of the ops that may be
	eager               bool    // most ops are fast and go to the leader: nobody waits for what it appends
	waits               float64
	hangups             float64
	side                float64 // of operations are of the side's: topics, transactions, groups, pauses, ...
	edges               float64 // of jobs are settled in the moment in which their lease ends
	reads               float64
	retries             float64 // of dequeues are attempts, and so are other ops sent again
	timeoutMax          int64
	queues              int
}

func drawOptions(seed uint64, ops int) simOptions {
	r := rand.New(rand.NewPCG(seed, 0x0b))
	chance := func(p float64) bool { return r.Float64() < p }
	o := simOptions{
		nodes: 3, ops: ops, heartbeat: 100e6, election: 1000e6,
		snapEntries: 30 + r.Uint64N(170), keep: r.Uint64N(60), wire: chance(0.1), sameEpochs: chance(0.1), drift: chance(0.7),
		delayMin: 100e3, delayMax: int64(1+r.IntN(5)) * 1e6,
		diskMin: 100e3, diskMax: 3e6,
		partial: 0.5,
		clients: 6 + r.IntN(25), thinkMax: int64(20+r.IntN(400)) * 1e6, burst: r.Float64() * 0.5,
		faultEvery: int64(400+r.IntN(4000)) * 1e6,
		queues:     1 + r.IntN(4), waits: 0.5, hangups: 0.05, reads: 0.05, timeoutMax: 5000e6,
	}
	if chance(0.8) {
		o.fast = 0.3
	}
	switch {
	case chance(0.1):
		o.nodes = 1
	case chance(0.15):
		o.nodes = 5
	}
	if chance(0.5) {
		o.heartbeat, o.election = 30e6, 300e6
	}
	if chance(0.4) {
		o.drop = r.Float64() * 0.1
	}
	if chance(0.4) {
		o.dup = r.Float64() * 0.1
	}
	if chance(0.4) {
		o.reorder = r.Float64() * 0.2
	}
	if chance(0.3) {
		o.stall = r.Float64() * 0.01
	}
	pick := func(p *float64, most float64) {
		if chance(0.6) {
			*p = r.Float64() * most
		}
	}
	pick(&o.delays, 0.4)
	pick(&o.ttls, 0.3)
	pick(&o.prios, 0.6)
	pick(&o.once, 0.3)
	pick(&o.waits, 1)
	pick(&o.hangups, 0.4)
	pick(&o.reads, 0.5)
	if chance(0.3) {
		o.timeoutMax = int64(20+r.IntN(500)) * 1e6
	}
	for k := range faultKinds {
		if chance(0.4) {
			o.faults = append(o.faults, k)
		}
	}
	if chance(0.1) {
		o.faults = nil
	}
	if o.eager = chance(0.3); o.eager {
		o.fast, o.thinkMax, o.waits, o.reads = 0.97, int64(2+r.IntN(20))*1e6, 0.1, o.reads/10
		// What such a world is for ends with its leader.
		for range 4 {
			o.faults = append(o.faults, faultKillLeader, faultIsolateLeader)
		}
		o.faultEvery = int64(100+r.IntN(400)) * 1e6
	}
	if chance(0.3) {
		o.changeEvery = int64(200+r.IntN(2000)) * 1e6
	}
	pick(&o.edges, 0.4)
	pick(&o.snapStall, 0.5)
	pick(&o.side, 0.3)
	pick(&o.retries, 0.5)
	return o
}

func newWorld(seed uint64, opt simOptions, log *zap.Logger) *world {
	stream := func(n uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, n)) }
	w := &world{seed: seed, opt: opt, log: log, phase: "start", byID: map[uint64]*simNode{},
		netRand: stream(1), diskRand: stream(2), clientRand: stream(3), faultRand: stream(4), idRand: stream(5)}
	w.trace.Reset()
	cfg := Config{ClusterToken: "sim"}
	for i := range opt.nodes {
		name := fmt.Sprintf("n%d", i+1)
		cfg.InitialCluster = append(cfg.InitialCluster, Member{Name: name, Peer: "http://" + name})
	}
	w.members, _ = cfg.members()
	w.check = newChecker(w)
	for i, m := range w.members {
		n := newSimNode(w, i, m)
		w.nodes = append(w.nodes, n)
		w.byID[m.ID] = n
	}
	w.net = newNetwork(w)
	return w
}

// start boots all nodes and lets the clients in.
func (w *world) start() {
	for _, n := range w.nodes {
		n.start()
	}
	w.phase = "safety"
}

func between(r *rand.Rand, lo, hi int64) int64 {
	if hi <= lo {
		return lo
	}
	return lo + r.Int64N(hi-lo+1)
}

// after schedules do.
func (w *world) after(ns int64, do func()) {
	w.seq++
	e := simEvent{w.now + max(ns, 0), w.seq, do}
	h := append(w.heap, e)
	i := len(h) - 1
	for i > 0 {
		p := (i - 1) / 2
		if !h[i].before(&h[p]) {
			break
		}
		h[i], h[p] = h[p], h[i]
		i = p
	}
	w.heap = h
}

func (e *simEvent) before(o *simEvent) bool { return e.at < o.at || e.at == o.at && e.seq < o.seq }

// next runs one event.
func (w *world) next() bool {
	h := w.heap
	if len(h) == 0 {
		return false
	}
	e := h[0]
	n := len(h) - 1
	h[0] = h[n]
	h[n] = simEvent{}
	h = h[:n]
	for i := 0; ; {
		c := 2*i + 1
		if c >= n {
			break
		}
		if c+1 < n && h[c+1].before(&h[c]) {
			c++
		}
		if !h[c].before(&h[i]) {
			break
		}
		h[i], h[c] = h[c], h[i]
		i = c
	}
	w.heap = h
	w.now = e.at
	w.events++
	e.do()
	return true
}

// run goes on until done, or for at most ns of virtual time; it tells which.
func (w *world) run(ns int64, done func() bool) bool {
	end := w.now + ns
	for !done() {
		if len(w.heap) == 0 || w.heap[0].at > end {
			w.now = end
			return false
		}
		w.next()
	}
	return true
}

// note adds to the trace hash: the same seed must give the same trace.
func (w *world) note(kind byte, v ...uint64) {
	var b [8]byte
	b[0] = kind
	w.trace.Write(b[:1])
	binary.LittleEndian.PutUint64(b[:], uint64(w.now))
	w.trace.Write(b[:])
	for _, x := range v {
		binary.LittleEndian.PutUint64(b[:], x)
		w.trace.Write(b[:])
	}
}

// runWorld is one whole run: faults under load, then everything heals and the
// cluster must come to rest with nothing lost.
func runWorld(t *testing.T, run simRun, log func(*world) *zap.Logger) (st simStats, trace uint64, failure string) {
	cryptotest.SetGlobalRandom(t, run.seed)
	w := newWorld(run.seed, run.options(), zap.NewNop())
	w.cut = run.cut
	if log != nil {
		w.log = log(w)
	}
	defer func() {
		st, trace = w.sum(), w.trace.Sum64()
		if p := recover(); p != nil {
			failure = w.describe(p)
		}
	}()
	w.start()
	w.startClients()
	w.startNemesis()
	w.startChanges()
	w.run(600e9, func() bool { return w.check.answered >= w.opt.ops })
	w.settle()
	return
}

func (w *world) sum() simStats {
	s := w.stats
	s.Seeds, s.Events, s.VirtualMs = 1, w.events, w.now/1e6
	s.Entries = len(w.check.entries)
	for _, n := range w.nodes {
		n.addStats(&s)
	}
	return s
}
