package check

import (
	"encoding/binary"
	"fmt"
	"slices"

	"raftq/fsm"
)

// oracle is a second machine: the rules of queues as a person would write them
// down, with slices and searches. From the product it has the decoder of batches
// and the numbers of docs/semantics.md. It knows what the workloads use and
// refuses the rest, so that nothing is passed over.
type oracle struct {
	now, index int64
	seq        uint64
	jobs       map[fsm.Key]*oJob
	queues     map[string]*oQueue
	waiters    []*oWaiter // oldest first
	sessions   map[uint64]*oSession
	removed    map[uint64]bool      // nodes that were members
	gone       map[fsm.Key]fsm.Code // CodeOK = acked
	timers     oTimers
	dedup      map[[2]string]fsm.Key
	unique     map[[2]string]*oJob // by queue and key, until they are done
	kept       map[string][]oResult
	topics     map[string]*oTopic
	thawing    []*oQueue // pauses that ended by time
	attempts   map[string]*oAttempt
	err        error // what it has no rule for

	// What the log did for clients.
	dequeues map[string]*oDequeue // by mark
	granted  map[oGrantKey]string // mark of the dequeue
	enqueues map[string][]oMade   // by body, each time it stood in the log
	items    map[oItem][]oDone    // by verb and receipt
	appends  map[string][]oMade   // by the first body
	txs      map[string][]oTx     // by the body of the first job
	told     map[string][]oTold   // what says nothing of its own, by all that it says
	did      map[string]int       // how often something happened that a run must see
}

type oJob struct {
	key                  fsm.Key
	queue, body          string
	seq                  uint64
	prio                 uint8
	state                string
	amo, held            bool // held: the last receipt is good
	cancel               bool // its holder is asked to stop
	others               bool // held by more than one when its lease ended
	lease, due, expires  int64
	born                 int64
	grant                uint32
	tag                  uint64
	deliveries, failures uint32
	maxFailures          int32
	life                 int // of timers: those of an earlier one mean nothing
	heldMs               int64
	group, unique        string
	slot                 bool   // it keeps the group's slot
	back                 bool   // held back by a pause
	source, reason       string // of one that died
	redriven             int
}

type oQueue struct {
	name        string
	ready       []*oJob // by priority, then sequence
	busy        map[string]int
	counts      Counts
	in, out     bool // paused
	heldBack    int  // jobs
	pauses      int  // how many there were: of timers, those of an earlier one mean nothing
	maxFailures int32
	deadLetter  string
}

type oWaiter struct {
	mark                   string
	origin, epoch, request uint64
	deadline               int64
	queues                 []string
	max                    int
	lease                  int64
	seq                    uint64 // its place
	attempt                string
}

type oSession struct {
	epoch, last uint64
	away        bool
	level       uint32 // what its build can do
}

// oDequeue is what a dequeue was handed.
type oDequeue struct {
	index  int64 // of its entry
	sent   bool  // by a client of the history
	origin uint64
	again  bool // a second node has sent it
	parked bool
	// Of an attempt: others may have been answered with its jobs too.
	attempt string
	repeat  bool // it was answered with what another try had been given
	jobs    []oGrant
	at      int64 // entry of the hand-out
	queues  []string
	max     int
	lease   int64
}

type oGrant struct {
	key                  fsm.Key
	grant                uint32
	tag                  uint64
	queue, body, group   string
	deliveries, failures uint32
	prio                 uint8
	until                int64
	fence                int64 // entry of the hand-out
	back                 bool  // given back later, in entry backAt
	backAt               int64
}

type oGrantKey struct {
	key   fsm.Key
	grant uint32
}

type oMade struct {
	index  int64
	sent   bool // by a client of the history
	result oResult
	job    *fsm.NewJob
	// Of an append.
	offset uint64
	topic  string
	bodies []string
}

// oTold is something that was asked for, and what it came to.
type oTold struct {
	index   int64
	code    fsm.Code
	version uint64
	count   int
	did     string
	answers bool // one operation of those that look the same
}

// oResult is what an item or a job of an enqueue came to.
type oResult struct {
	key           fsm.Key
	code          fsm.Code
	duplicate     bool
	late, already bool
	dead          bool
	cancel        bool
}

type oItem struct {
	kind  Kind
	key   fsm.Key
	grant uint32
	tag   uint64
}

type oDone struct {
	index  int64
	result oResult
}

func newOracle() *oracle {
	return &oracle{jobs: map[fsm.Key]*oJob{}, queues: map[string]*oQueue{}, sessions: map[uint64]*oSession{}, removed: map[uint64]bool{}, gone: map[fsm.Key]fsm.Code{},
		dedup: map[[2]string]fsm.Key{}, unique: map[[2]string]*oJob{}, kept: map[string][]oResult{}, attempts: map[string]*oAttempt{},
		dequeues: map[string]*oDequeue{}, granted: map[oGrantKey]string{}, enqueues: map[string][]oMade{}, items: map[oItem][]oDone{},
		topics: map[string]*oTopic{}, appends: map[string][]oMade{}, txs: map[string][]oTx{}, told: map[string][]oTold{}, did: map[string]int{}}
}

// expect makes room for what a history asks for: maps that grow are most of what a
// long one costs.
func (o *oracle) expect(h *History) {
	var n [kindEnd]int
	jobs, items := 0, 0
	for _, op := range h.Ops {
		n[op.Kind]++
		jobs += len(op.Jobs)
		items += len(op.Items)
	}
	o.enqueues = make(map[string][]oMade, jobs)
	o.gone = make(map[fsm.Key]fsm.Code, jobs)
	o.granted = make(map[oGrantKey]string, jobs)
	o.dequeues = make(map[string]*oDequeue, n[Dequeue])
	o.items = make(map[oItem][]oDone, items)
	o.appends = make(map[string][]oMade, n[Append]+n[Tx])
	o.txs = make(map[string][]oTx, n[Tx])
}

// apply takes the next entry. An error means that the oracle cannot go on.
func (o *oracle) apply(e Entry) error {
	o.index = int64(e.Index)
	if len(e.Data) == 0 {
		return nil
	}
	h, ops, err := fsm.DecodeOps(e.Data)
	if err != nil {
		return err
	}
	if h.TimeMs < o.now && h.Origin != 0 {
		// The machine's own time may be held back by many timers, never the stamp.
		return fmt.Errorf("log time falls: %d ms after %d ms", h.TimeMs, o.now)
	}
	o.fire(max(o.now, h.TimeMs))
	o.serve()
	if !o.admits(h, ops) {
		return nil
	}
	flags := flagsOf(e.Data)
	for i, op := range ops {
		if flags[i]&fsm.FlagVoid == 0 {
			if err := o.op(h, op, flags[i]&fsm.FlagAnswered != 0); err != nil {
				return err
			}
		}
		o.serve()
	}
	return o.err
}

func flagsOf(data []byte) (flags []byte) {
	for b := data[fsm.BatchHeaderSize:]; len(b) >= 6; b = b[6+binary.BigEndian.Uint32(b[2:]):] {
		flags = append(flags, b[1])
	}
	return flags
}

// admits: of each life of a node the batches count once and in order.
func (o *oracle) admits(h fsm.BatchHeader, ops []fsm.Op) bool {
	if h.Origin == 0 {
		return true
	}
	s := o.sessions[h.Origin]
	if h.Number == 0 {
		if s != nil && h.Epoch>>32 <= s.epoch>>32 || o.removed[h.Origin] {
			return false
		}
		for _, other := range o.sessions {
			if other.epoch == h.Epoch {
				return false
			}
		}
		o.sessions[h.Origin] = &oSession{epoch: h.Epoch}
		o.leave(func(w *oWaiter) bool { return w.origin == h.Origin })
		return true
	}
	if s == nil || s.epoch != h.Epoch || s.last+1 != h.Number {
		return false
	}
	s.last = h.Number
	return true
}

func (o *oracle) leave(which func(*oWaiter) bool) { o.waiters = slices.DeleteFunc(o.waiters, which) }

func (o *oracle) op(h fsm.BatchHeader, op fsm.Op, answered bool) error {
	switch op := op.(type) {
	case *fsm.Alarm:
	case *fsm.NodeStart:
		o.sessions[h.Origin].level = op.FeatureLevel
	case *fsm.MemberChange:
		// The last voter cannot go; nobody asks for that here.
		if op.Verb == fsm.MemberRemove {
			o.removed[op.Member.ID] = true
			delete(o.sessions, op.Member.ID)
			o.leave(func(w *oWaiter) bool { return w.origin == op.Member.ID })
		}
	case *fsm.NodeAway:
		if s := o.sessions[op.Node]; s != nil && s.epoch == op.Epoch {
			s.away = true
		}
	case *fsm.NodeBack:
		o.sessions[h.Origin].away = false
	case *fsm.Withdraw:
		o.leave(func(w *oWaiter) bool {
			return w.origin == h.Origin && w.epoch == h.Epoch && slices.Contains(op.Requests, w.request)
		})
	case *fsm.Enqueue:
		if err := known(op); err != nil {
			return err
		}
		o.enqueue(h, op, answered)
	case *fsm.Keyed:
		inner, ok := op.Op.(*fsm.Enqueue)
		if !ok {
			return fmt.Errorf("the oracle knows no %T under a key", op.Op)
		}
		if err := known(inner); err != nil {
			return err
		}
		before, known := o.kept[op.Key]
		if known && !answered {
			for i := range inner.Jobs {
				o.made(&inner.Jobs[i], before[i])
			}
			return nil
		}
		res := o.enqueue(h, inner, answered)
		if !known {
			o.kept[op.Key] = res
		}
	case *fsm.Dequeue:
		return o.dequeue(h, op)
	case *fsm.Ack:
		o.settle(Ack, op.Items, o.ack)
	case *fsm.Nack:
		o.settle(Nack, op.Items, o.nack)
	case *fsm.Release:
		o.settle(Release, op.Items, o.release)
	case *fsm.Extend:
		o.settle(Extend, op.Items, o.extend)
	case *fsm.Reject:
		o.settle(Reject, op.Items, o.reject)
	case *fsm.GiveBack:
		o.giveBack(op.Items)
	case *fsm.Pause:
		o.pause(op)
	case *fsm.Redrive:
		return o.redrive(op)
	case *fsm.Hold:
		return o.hold(op)
	case *fsm.Requeue:
		return o.requeue(op)
	case *fsm.Cancel:
		return o.cancel(op)
	case *fsm.Purge:
		return o.purge(op)
	case *fsm.Configure:
		return o.configure(op)
	case *fsm.Append:
		o.appendTo(op)
	case *fsm.SetCursor:
		return o.setCursor(op)
	case *fsm.ConfigureTopic:
		return o.configureTopic(op)
	case *fsm.Tx:
		return o.tx(h, op)
	default:
		return fmt.Errorf("the oracle knows no %T", op)
	}
	return nil
}

// counts of a queue, as a read shows them.
func (o *oracle) counts(name string) Counts {
	c := o.queue(name).counts
	for _, w := range o.waiters {
		if slices.Contains(w.queues, name) && !o.sessions[w.origin].away {
			c.Waiters++
		}
	}
	return c
}
