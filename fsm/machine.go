package fsm

import (
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/tidwall/btree"
)

// Machine is the state: a pure function of the log. It is used by one goroutine
// (the replica's core); a Copy may be read by another, as long as nobody
// applies to that copy.
type Machine struct {
	index, term uint64
	now         int64 // log time in ms; never falls
	chain       uint64
	seq         uint64 // last given to a job or waiter
	queueNumber uint32 // last given to a queue
	tombNumber  uint64 // last given to a tombstone
	bytes       int64
	totals      counters        // over all queues that are not doomed
	members     []Member        // sorted by id; never changed, replaced
	removed     []removedMember // in the order in which they went; never changed, replaced
	version     uint8           // format version of the state: see need

	// stamp marks the jobs, queues and sessions that this machine may change.
	// No other machine has it; Copy gives a new one to both.
	stamp uint64

	jobs     btree.BTreeG[jobItem]
	names    btree.Map[string, uint32] // queue numbers of names; no doomed ones
	queues   btree.Map[uint32, *queue]
	doomed   btree.Map[uint32, struct{}] // queues with jobs to reap
	sessions btree.Map[uint64, *session]
	parked   btree.BTreeG[parkedItem]
	// The timers of jobs force an entry, those of waiters and idle queues do not.
	forcing   btree.BTreeG[timer]
	passive   btree.BTreeG[timer]
	lapses    btree.BTreeG[lapse]
	keys      btree.BTreeG[*queueKey]
	kept      btree.BTreeG[*kept]
	attempts  btree.Map[string, *attempt]
	tried     btree.BTreeG[tried]
	tombs     btree.BTreeG[tomb]
	tombOrder btree.Map[uint64, Key]
	back      btree.BTreeG[aside]         // jobs held back by a pause
	thaw      btree.Map[uint32, struct{}] // queues with jobs held back, whose pause is over
	moved     btree.BTreeG[aside]         // jobs in dead letter queues, not dead there and not leased
	consumers btree.BTreeG[aside]         // leased jobs with a consumer

	topics     btree.Map[uint32, *topic]
	topicNames btree.Map[string, uint32]
	topicBytes int64 // of all messages, with their costs

	// Limits; other than the constants in tests only.
	timersMax  int // TimersPerEntry
	tombsMax   int // TombstonesMax
	handOutMax int // BatchBytesMax
	sweepMax   int // SweepMax
	scanMax    int // ScanMax

	consistencies consistencies

	run run // scratch of Apply; nothing in it outlives an entry
}

// Self says whose results Apply shall build: those of batches of this origin
// and epoch, and of its parked requests. Watched are the jobs whose end it waits
// for (Applied.Ended), with how many wait for each; Apply only reads it, and it
// reaches neither state nor chain.
type Self struct {
	Origin, Epoch uint64
	Watched       map[Key]int
	Topics        map[string]int // whose growth it waits for (Applied.Grown)
}

// Applied is what one entry did, as far as its replica must know.
type Applied struct {
	Position Position
	Header   BatchHeader // zero for an empty entry
	Effect   bool        // false: empty entry, or a batch that the sessions filter out (wrong epoch or number)
	Mine     bool        // Effect, and of Self
	Results  []Result    // Mine: one for each op, in order
	Handouts []Handout   // jobs for parked requests of Self (from any entry)
	Fired    int         // timers
	Ended    []Key       // of Self.Watched: jobs that are acked, deleted, expired or dead since
	Grown    []string    // of Self.Topics: topics that got messages, or are gone
	Members  []Member    // the member table, when the entry has changed it; read-only
	Gone     uint64      // a removed member that nobody needs any more
}

// SessionInfo is what the machine knows of a node's current epoch.
type SessionInfo struct {
	Node, Epoch, LastBatch uint64
	Away                   bool
	Waiters                int
	Disk                   uint8 // the step of the last Alarm
	Start                  NodeStart
}

// lastStamp is the last stamp given to any machine. Stamps tell machines of one
// process apart; they reach neither results nor encoded state.
var lastStamp atomic.Uint64

func tree[T any](less func(a, b T) bool) btree.BTreeG[T] {
	return *btree.NewBTreeGOptions(less, btree.Options{NoLocks: true})
}

func empty() *Machine {
	return &Machine{
		stamp:   lastStamp.Add(1),
		jobs:    tree(jobLess),
		parked:  tree(parkedLess),
		forcing: tree(timerLess),
		passive: tree(timerLess),
		lapses:  tree(lapseLess),
		keys:    tree(keyLess),
		kept:    tree(keptLess),
		tried:   tree(triedLess),
		tombs:   tree(tombLess),
		back:    tree(asideLess), moved: tree(asideLess), consumers: tree(asideLess),

		timersMax:  TimersPerEntry,
		tombsMax:   TombstonesMax,
		handOutMax: BatchBytesMax,
		sweepMax:   SweepMax,
		scanMax:    ScanMax,
	}
}

// New returns the genesis machine: log time 0, the given members, index 1, term 1.
func New(members []Member) *Machine {
	m := empty()
	m.index, m.term, m.version = 1, 1, 1
	m.chain = chainGenesis()
	m.members = slices.Clone(members)
	slices.SortFunc(m.members, func(a, b Member) int {
		if a.ID < b.ID {
			return -1
		}
		return 1
	})
	return m
}

// Copy returns a second machine with the same state, in O(1) for any number of
// jobs. Both may be applied to from then on, by one goroutine each. Copy itself
// counts as applying.
func (m *Machine) Copy() *Machine {
	// Both get a new stamp: what carries the old one is shared from now on.
	m.stamp = lastStamp.Add(1)
	c := &Machine{
		index: m.index, term: m.term, now: m.now, chain: m.chain, seq: m.seq, queueNumber: m.queueNumber,
		tombNumber: m.tombNumber, bytes: m.bytes, totals: m.totals, members: m.members, removed: m.removed, version: m.version,
		stamp:     lastStamp.Add(1),
		jobs:      *m.jobs.IsoCopy(),
		names:     *m.names.IsoCopy(),
		queues:    *m.queues.IsoCopy(),
		doomed:    *m.doomed.IsoCopy(),
		sessions:  *m.sessions.IsoCopy(),
		parked:    *m.parked.IsoCopy(),
		forcing:   *m.forcing.IsoCopy(),
		passive:   *m.passive.IsoCopy(),
		lapses:    *m.lapses.IsoCopy(),
		keys:      *m.keys.IsoCopy(),
		kept:      *m.kept.IsoCopy(),
		attempts:  *m.attempts.IsoCopy(),
		tried:     *m.tried.IsoCopy(),
		tombs:     *m.tombs.IsoCopy(),
		tombOrder: *m.tombOrder.IsoCopy(),
		back:      *m.back.IsoCopy(),
		thaw:      *m.thaw.IsoCopy(),
		moved:     *m.moved.IsoCopy(),
		consumers: *m.consumers.IsoCopy(),
		topics:    *m.topics.IsoCopy(), topicNames: *m.topicNames.IsoCopy(), topicBytes: m.topicBytes,
		timersMax: m.timersMax, tombsMax: m.tombsMax, handOutMax: m.handOutMax, sweepMax: m.sweepMax, scanMax: m.scanMax,
	}
	c.consistencies = m.consistencies.copied()
	return c
}

// Apply applies the entry at index, which must be Index()+1. data is the
// entry's data (empty for raft's own entries); it is not kept. An error means
// that this build cannot go on (ErrNewer, or a malformed batch): the node stops.
func (m *Machine) Apply(index, term uint64, data []byte, self Self) (Applied, error) {
	if index != m.index+1 || term < m.term {
		panic(fmt.Sprintf("BUG: entry %d of term %d applied at index %d of term %d", index, term, m.index, m.term))
	}
	m.index, m.term = index, term
	m.run.begin(self)
	if len(data) > 0 {
		if err := m.applyBatch(data); err != nil {
			return Applied{}, fmt.Errorf("apply entry %d: %w", index, err)
		}
	}
	m.extendChain(data)
	m.run.applied.Position = m.Position()
	return m.run.end(), nil
}

func (m *Machine) applyBatch(data []byte) error {
	h, err := ReadBatchHeader(data)
	if err != nil {
		return err
	}
	if data[1] != 0 {
		return fmt.Errorf("batch flags %#x: %w", data[1], ErrNewer)
	}
	r := &m.run
	r.sweeps = m.sweepMax
	a := &r.applied
	a.Header = h
	a.Fired = m.fireTimers(max(m.now, h.TimeMs))
	m.thawing(m.reap(m.timersMax - a.Fired))
	m.serve()

	ops := data[BatchHeaderSize:]
	a.Effect = m.admits(h, ops)
	if !a.Effect {
		r.outcome = append(r.outcome, noteFilter)
		return nil
	}
	if h.Origin != 0 && h.Number != 0 {
		m.ownSession(h.Origin).last = h.Number
	}
	a.Mine = h.Origin == r.self.Origin && h.Epoch == r.self.Epoch && h.Origin != 0
	if a.Mine {
		r.left = countOps(ops)
		a.Results = make([]Result, 0, r.left)
	}
	for len(ops) > 0 {
		var raw rawOp
		if raw, ops, err = nextOp(ops); err != nil {
			return err
		}
		r.depends = 0
		if a.Mine {
			a.Results = append(a.Results, Result{Position: m.Position()})
			r.result = &a.Results[len(a.Results)-1]
		}
		code, err := m.applyRaw(h, raw)
		if err != nil {
			return err
		}
		m.noteOp(code)
		if r.result != nil {
			r.result.Code, r.result.Depends = code, r.depends
		}
		r.left--
		m.serve()
	}
	return nil
}

// applyRaw decodes an op and applies it.
func (m *Machine) applyRaw(h BatchHeader, raw rawOp) (Code, error) {
	if raw.flags&FlagVoid != 0 {
		return CodeOK, nil
	}
	m.run.answered = raw.flags&FlagAnswered != 0
	op, err := m.run.ops.decode(raw, true)
	if err != nil {
		return 0, err
	}
	code := CodeInvalidRequest
	if allowed(h, raw.kind) {
		if m.version < stateVersion {
			m.need(uint8(LevelOf(op)))
		}
		code = m.applyOp(h, op)
	}
	op.release()
	return code, nil
}

// allowed tells whether a batch may hold ops of a kind: node starts are alone
// in batches 0, node away and changes of the members in those of origin 0.
func allowed(h BatchHeader, kind Kind) bool {
	switch {
	case h.Origin == 0:
		return kind == KindNodeAway || kind == KindMember
	case h.Number == 0:
		return kind == KindNodeStart
	}
	return kind != KindNodeAway && kind != KindNodeStart && kind != KindMember
}

// applyOp applies one op; its result, if wanted, is in the run.
func (m *Machine) applyOp(h BatchHeader, op Op) Code {
	switch op := op.(type) {
	case *NodeStart:
		return m.nodeStart(h, op)
	case *NodeAway:
		return m.nodeAway(op)
	case *NodeBack:
		return m.nodeBack(h)
	case *Enqueue:
		return m.enqueue(h, op)
	case *Dequeue:
		return m.dequeue(h, op)
	case *Ack:
		return m.settle(op.Items, ackItem)
	case *Nack:
		return m.settle(op.Items, nackItem)
	case *Release:
		return m.settle(op.Items, releaseItem)
	case *Extend:
		return m.settle(op.Items, extendItem)
	case *Withdraw:
		return m.withdraw(h, op)
	case *GiveBack:
		return m.settle(op.Items, giveBackItem)
	case *DeleteQueue:
		return m.deleteQueue(op)
	case *Append:
		return m.appendMessages(op)
	case *ConfigureTopic:
		return m.configureTopic(op)
	case *DeleteTopic:
		return m.deleteTopic(op)
	case *PurgeTopic:
		return m.purgeTopic(op)
	case *SetCursor:
		return m.setCursor(op)
	case *MemberChange:
		return m.changeMember(op)
	case *Tx:
		return m.tx(h, op)
	case *Keyed:
		return m.keyed(h, op)
	case *Alarm:
		return m.alarm(h, op)
	case *Reject:
		return m.settle(op.Items, rejectItem)
	case *Settle:
		return m.settleMixed(op.Items)
	case *Requeue:
		return m.requeue(op)
	case *Hold:
		return m.hold(op)
	case *Cancel:
		return m.byKey(op.Keys, cancelJob)
	case *DeleteJobs:
		return m.byKey(op.Keys, deleteJob)
	case *WithdrawJobs:
		return m.byKey(op.Keys, withdrawJob)
	case *Purge:
		return m.purge(op)
	case *Redrive:
		return m.redrive(op)
	case *Pause:
		return m.pause(op)
	case *Configure:
		return m.configure(op)
	case *ReleaseConsumer:
		return m.releaseConsumer(op)
	}
	panic(fmt.Sprintf("BUG: op of kind %d is decoded and not applied", op.Kind()))
}
