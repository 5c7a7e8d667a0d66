package fsm

import (
	"fmt"
	"unsafe"
)

type jobState uint8

const (
	stateDelayed jobState = iota
	stateReady
	stateLeased
	stateHeld
	stateDead
	stateCount
)

var stateNames = [stateCount]string{"delayed", "ready", "leased", "held", "dead"}

const (
	// flagAtMostOnce: handed out once at most. When its lease is over it stays,
	// held, until an ack or its TTL.
	flagAtMostOnce = 1 << iota
	// flagTag: tag is that of the last grant, and its holder did not settle it:
	// the lease lives, or it ended by time alone. A late ack needs it.
	flagTag
	// flagUnique: the job has its unique key.
	flagUnique
	// flagAttempt: the job is leased under an attempt. The state does not have it.
	flagAttempt
	// flagCancel: the holder is asked to stop. The next hand-out clears it.
	flagCancel
	// flagQueueTTL: the TTL is the queue's. The id shows what the enqueue said, so
	// that it is the same whatever the queue's configuration is by then.
	flagQueueTTL
	// flagSlot: the job keeps a slot of its group.
	flagSlot
	flagsEnd
)

const (
	reasonNone = iota
	reasonMaxFailures
	reasonAtMostOnce
	reasonRejected
	reasonCount
)

var reasonNames = [reasonCount]string{"", "max_failures", "at_most_once", "rejected"}

// job is the hot record of a job, 120 bytes. Its key is not in it: the tree of
// jobs holds both. A job is changed only by the machine whose stamp it carries
// (ownJob); others share it and must not see it change.
type job struct {
	seq        uint64 // place among all jobs and waiters ever; kept for life
	enqueuedMs int64
	dueMs      int64  // delayed: ready then, 0 = held back by a pause; leased: over then; dead: removed then; ready: since then, if priorities age; else 0
	expiresMs  int64  // 0 = no TTL
	lastIndex  uint64 // of the last change
	fence      uint64 // index of the last grant
	tag        uint64 // who asked for the last grant; counts with flagTag only
	stamp      uint64
	body       string // immutable; up to 1 KiB it lies behind this record
	rare       *rare  // nil when all is zero; never changed, replaced (setRare)
	leaseMs    uint32 // own default, 0 = 60 s
	heldMs     uint32 // length of the last lease, or heldByOthers
	grant      uint32 // last grant number, never reused
	deliveries uint32 // grants minus those given back
	failures   uint32
	queue      uint32 // number
	node       uint32 // as ids show it
	state      jobState
	priority   uint8
	flags      uint8
}

// rare holds what few jobs have.
type rare struct {
	headers     []Header
	consumer    string // of the last grant
	lastError   string
	maxFailures int32
	deadReason  uint8    // dead, or moved by dead_letter
	more        *more    // nil when all is zero; never changed, replaced
	history     *history // nil when all is zero; never changed, replaced
}

// more holds what still fewer have. It is apart because the rare part is
// replaced by each hand-out to a named consumer.
type more struct {
	group     string
	dedupID   string
	uniqueKey string
}

// history is what happened to a job that failed. Machines of state version 1
// have none.
type history struct {
	deadMs   int64  // when it died, or was moved by dead_letter
	source   string // the queue that dead_letter moved it from
	keepMs   int64  // moved by dead_letter and not dead there: removed then; else 0
	redriven uint32 // times
	nacks    uint32 // failures by nack
}

// Costs of Bytes, about what the heap takes: fixed, because they must be equal
// on all nodes.
const (
	jobCost       = 272 // record, and a place in three trees and a timer
	rareCost      = 64
	moreCost      = 112
	historyCost   = 64
	keyCost       = 160
	keptCost      = 224
	headerCost    = 32
	queueCost     = 640
	settingsCost  = 224
	waiterCost    = 320
	tombstoneCost = 96
	sessionCost   = 1024

	attemptCost    = 192
	attemptJobCost = 24
	groupCost      = 256
)

func (r *rare) zero() bool {
	return r.headers == nil && r.consumer == "" && r.lastError == "" && r.maxFailures == 0 && r.deadReason == 0 && r.more == nil && r.history == nil
}

func (r *rare) bytes() int64 {
	if r == nil {
		return 0
	}
	n := rareCost + len(r.consumer) + len(r.lastError)
	if r.history != nil {
		n += historyCost + len(r.history.source)
	}
	for _, h := range r.headers {
		n += headerCost + len(h.Name) + len(h.Value)
	}
	if e := r.more; e != nil {
		n += moreCost + len(e.group) + len(e.dedupID) + len(e.uniqueKey)
	}
	return int64(n)
}

func (j *job) bytes() int64 { return jobCost + int64(len(j.body)) + j.rare.bytes() }

func (r *rare) consumerName() string {
	if r == nil {
		return ""
	}
	return r.consumer
}

// getRare returns the rare part as a value, to change and hand to setRare.
func (j *job) getRare() rare {
	if j.rare == nil {
		return rare{}
	}
	return *j.rare
}

// getMore is as getRare.
func (r *rare) getMore() more {
	if r == nil || r.more == nil {
		return more{}
	}
	return *r.more
}

// past returns the history as a value, to change and hand to setPast.
func (r *rare) past() history {
	if r == nil || r.history == nil {
		return history{}
	}
	return *r.history
}

func (r *rare) setPast(h history) {
	r.history = nil
	if h != (history{}) {
		r.history = &h
	}
}

// moved tells whether dead_letter moved the job here, where it is not dead.
func (j *job) moved() bool {
	return j.rare != nil && j.rare.history != nil && j.rare.history.keepMs != 0
}

// order is the job's place in its queue: priority, then sequence.
func (j *job) order() uint64 { return uint64(9-j.priority)<<60 | j.seq }

const seqMax = 1<<59 - 1

// id returns the id of the job with key k.
func (j *job) id(k Key) ID {
	ttl := int64(0)
	if j.expiresMs != 0 && j.flags&flagQueueTTL == 0 {
		ttl = j.expiresMs - j.enqueuedMs
	}
	return ID{Key: k, Node: j.node, Minutes: ttlMinutes(ttl, j.flags&flagAtMostOnce != 0)}
}

// failuresMax returns the number of failures that makes a job of q dead, -1 =
// none.
func (j *job) failuresMax(q *queue) int64 {
	if j.rare != nil && j.rare.maxFailures != 0 {
		return max(-1, int64(j.rare.maxFailures))
	}
	if n := q.set().config.MaxFailures; n != 0 {
		return int64(n)
	}
	return MaxFailuresDefault
}

// holds tells whether grant and tag are those of the last hand-out, and nobody
// settled it since.
func (j *job) holds(it *Item) bool {
	if seeded == "receipt-not-checked" {
		return it.Grant != 0
	}
	return j.flags&flagTag != 0 && j.grant == it.Grant && j.tag == it.Tag && it.Grant != 0
}

// heldOnce tells whether the job is an at-most-once one whose lease ended by time:
// its holder has it, though the lease is over. It always has a TTL.
func (j *job) heldOnce() bool {
	return j.state == stateHeld && j.flags&(flagAtMostOnce|flagTag) == flagAtMostOnce|flagTag
}

// heldByOthers, in the place of the length of its last lease, says of a job that is
// held after it that more than one request was answered with it: one of them cannot
// give it back.
const heldByOthers = 0

// jobItem is a job with its key: an item of the tree of jobs, the only place
// that holds job pointers.
type jobItem struct {
	key Key
	*job
}

func jobLess(a, b jobItem) bool { return a.key.Less(b.key) }

// find returns the job and its queue, for reading; q is nil when there is none,
// or when its queue was deleted and the job only waits to be reaped.
func (m *Machine) find(k Key) (it jobItem, q *queue) {
	it, ok := m.jobs.Get(jobItem{key: k})
	if !ok {
		return it, nil
	}
	q = m.queueOf(it.queue)
	if q.doomed {
		return jobItem{}, nil
	}
	return it, q
}

// ownJob makes it.job safe to change: its own, or a fresh copy. Call it before
// any change.
func (m *Machine) ownJob(it *jobItem) {
	if it.stamp == m.stamp {
		return
	}
	j := *it.job
	j.stamp = m.stamp
	it.job = &j
	m.jobs.Set(*it)
}

// setRare replaces the rare part and keeps the byte counts.
func (m *Machine) setRare(q *queue, j *job, r rare) {
	before := j.rare.bytes()
	j.rare = nil
	if !r.zero() {
		j.rare = &r
	}
	m.addBytes(q, j.rare.bytes()-before)
}

func (m *Machine) addBytes(q *queue, n int64) {
	q.bytes += n
	m.bytes += n
	if !q.doomed {
		m.totals.bytes += n
	}
}

// timer returns the kind of the timer at dueMs, if the job's state has one.
func (j *job) timer() (timerKind, bool) {
	switch j.state {
	case stateDelayed:
		return timerDelay, j.dueMs != 0
	case stateLeased:
		return timerLease, true
	case stateDead:
		return timerDead, true
	}
	return 0, false
}

// heldBack tells whether the job is due and waits for the end of a pause.
func (j *job) heldBack() bool { return j.state == stateDelayed && j.dueMs == 0 }

// place puts an owned job, new or just taken out, into the trees of its state.
func (m *Machine) place(q *queue, it jobItem, s jobState) {
	it.state = s
	switch s {
	case stateLeased:
		if it.group() != "" {
			it.flags |= flagSlot
		}
	case stateDelayed:
		it.flags &^= flagAttempt // it keeps its slot while it waits for its retry
		if seeded == "group-overtaken-by-retry" {
			it.flags &^= flagSlot
		}
	default:
		it.flags &^= flagAttempt | flagSlot
	}
	q.states[s]++
	if !q.doomed {
		m.totals.states[s]++
	}
	if s == stateReady {
		if q.settings != nil && q.settings.config.AgingMs > 0 {
			it.dueMs = m.now
		}
		q.ready.Set(it.readyOrder(), it.key)
		m.touch(q)
	} else {
		q.rest.Set(it.restOrder(), it.key)
	}
	if kind, ok := it.timer(); ok {
		m.forcing.Set(timer{it.dueMs, kind.order(it.seq), it.key})
	}
	if it.rare != nil || it.heldBack() {
		m.putAside(q, it)
		if name := it.group(); name != "" {
			m.enterGroup(q, it)
			m.restGroup(q, name)
		}
	}
	if q.settings != nil {
		m.retime(q)
	}
}

// take takes a job out of the trees of its state; its place in the tree of jobs
// and its TTL timer stay.
func (m *Machine) take(q *queue, it jobItem) {
	s := it.state
	q.states[s]--
	if !q.doomed {
		m.totals.states[s]--
	}
	if s == stateReady {
		q.ready.Delete(it.readyOrder())
	} else {
		q.rest.Delete(it.restOrder())
	}
	if kind, ok := it.timer(); ok {
		m.forcing.Delete(timer{it.dueMs, kind.order(it.seq), it.key})
	}
	if it.rare != nil || it.heldBack() {
		m.takeAside(q, it)
		if it.group() != "" {
			m.leaveGroup(q, it)
		}
	}
	if s == stateLeased && it.flags&flagAttempt != 0 {
		m.leaseEnds(it.key)
	}
	if q.settings != nil {
		m.retime(q)
	}
}

// move changes the state of an owned job. dueMs is that of the new state.
func (m *Machine) move(q *queue, it jobItem, s jobState, dueMs int64) {
	m.take(q, it)
	it.dueMs = dueMs
	it.lastIndex = m.index
	m.place(q, it, s)
}

// extend moves the end of an owned job's lease.
func (m *Machine) extend(it jobItem, untilMs int64) {
	m.forcing.Delete(timer{it.dueMs, timerLease.order(it.seq), it.key})
	it.dueMs, it.lastIndex = untilMs, m.index
	m.forcing.Set(timer{it.dueMs, timerLease.order(it.seq), it.key})
}

// toReady makes an owned job ready, or holds it back while its queue takes none.
func (m *Machine) toReady(q *queue, it jobItem) {
	if q.set().pausedIn {
		m.move(q, it, stateDelayed, 0)
		return
	}
	m.move(q, it, stateReady, 0)
}

// drop removes a job for good.
func (m *Machine) drop(q *queue, it jobItem) {
	m.take(q, it)
	if it.expiresMs != 0 {
		m.forcing.Delete(timer{it.expiresMs, timerTTL.order(it.seq), it.key})
	}
	if it.moved() {
		m.forcing.Delete(it.keepTimer())
	}
	m.jobs.Delete(jobItem{key: it.key})
	m.addBytes(q, -it.bytes())
	m.freeUnique(q, it)
	m.ended(it.key)
	if name := it.group(); name != "" {
		m.restGroup(q, name)
	}
}

// ended tells the replica that a job which it watches is done or dead.
func (m *Machine) ended(k Key) {
	r := &m.run
	if len(r.self.Watched) == 0 {
		return
	}
	if _, watched := r.self.Watched[k]; watched {
		r.applied.Ended = append(r.applied.Ended, k)
	}
}

// expire drops a job whose time is over, or for which there is no room.
func (m *Machine) expire(q *queue, it jobItem) {
	q.expired++
	m.totals.expired++
	m.drop(q, it)
	m.remember(it.key, tombExpired)
}

// fail counts a failure of an owned job whose lease ended; what becomes of it
// is the caller's to say. It is true when the job must be dead.
func (m *Machine) fail(q *queue, j *job) bool {
	j.failures++
	q.failed++
	m.totals.failed++
	limit := j.failuresMax(q)
	return limit >= 0 && int64(j.failures) >= limit
}

// Bodies up to bodyInlineMax lie behind their job in one allocation, whose size
// is one of Go's size classes.
const bodyInlineMax = 1024

type sized[B any] struct {
	job
	tail B
}

func allocate[B any](body []byte) *job {
	s := new(sized[B])
	tail := unsafe.Slice((*byte)(unsafe.Pointer(&s.tail)), unsafe.Sizeof(s.tail))
	copy(tail, body)
	s.body = viewString(tail[:len(body)])
	return &s.job
}

// inline lists the allocations: up to max bytes of body. Above 512 bytes an
// object with pointers has a header of 8 bytes.
var inline = [...]struct {
	max  int
	make func([]byte) *job
}{
	{128 - 120, allocate[[128 - 120]byte]},
	{144 - 120, allocate[[144 - 120]byte]},
	{160 - 120, allocate[[160 - 120]byte]},
	{176 - 120, allocate[[176 - 120]byte]},
	{192 - 120, allocate[[192 - 120]byte]},
	{208 - 120, allocate[[208 - 120]byte]},
	{224 - 120, allocate[[224 - 120]byte]},
	{240 - 120, allocate[[240 - 120]byte]},
	{256 - 120, allocate[[256 - 120]byte]},
	{288 - 120, allocate[[288 - 120]byte]},
	{320 - 120, allocate[[320 - 120]byte]},
	{352 - 120, allocate[[352 - 120]byte]},
	{384 - 120, allocate[[384 - 120]byte]},
	{416 - 120, allocate[[416 - 120]byte]},
	{448 - 120, allocate[[448 - 120]byte]},
	{480 - 120, allocate[[480 - 120]byte]},
	{512 - 120, allocate[[512 - 120]byte]},
	{576 - 128, allocate[[576 - 128]byte]},
	{640 - 128, allocate[[640 - 128]byte]},
	{704 - 128, allocate[[704 - 128]byte]},
	{768 - 128, allocate[[768 - 128]byte]},
	{896 - 128, allocate[[896 - 128]byte]},
	{1024 - 128, allocate[[1024 - 128]byte]},
	{1152 - 128, allocate[[1152 - 128]byte]},
}

// inlineOf maps (body length + 7) / 8 to a line of inline.
var inlineOf = func() (t [bodyInlineMax/8 + 1]uint8) {
	line := 0
	for i := range t {
		for inline[line].max < 8*i {
			line++
		}
		t[i] = uint8(line)
	}
	return t
}()

// newJob returns a job with a copy of body and nothing else.
func newJob(body []byte) *job {
	if len(body) > bodyInlineMax {
		return &job{body: string(body)}
	}
	return inline[inlineOf[(len(body)+7)/8]].make(body)
}

// nextSeq returns the next place among jobs and waiters.
func (m *Machine) nextSeq() uint64 {
	m.seq++
	if m.seq > seqMax {
		panic(fmt.Sprintf("BUG: sequence %d over", m.seq))
	}
	return m.seq
}
