package fsm

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/cespare/xxhash/v2"
)

// The encoded state is a magic and version, then blocks, each of whole records
// of one section: docs/format-state.md. Sections come in the order of these
// numbers, records in that of their keys, so that equal machines give equal
// bytes. Indexes and sums are not in it: Decode builds them again.
//
// A state is written in the oldest version that can say it (Machine.version):
// until every member can read a new version nothing of it is in the log, so a
// snapshot goes to any member, whatever it was built from.
const (
	stateMagic   = "raftqfsm"
	stateVersion = 2 // the newest that this build writes and reads

	sectionMachine  = 1
	sectionMembers  = 2
	sectionSession  = 3
	sectionQueues   = 4
	sectionJobs     = 5
	sectionWaiters  = 6
	sectionTombs    = 7
	sectionDedup    = 8
	sectionKept     = 9
	sectionAttempts = 10
	sectionGroups   = 11
	sectionRemoved  = 16
	sectionTopics   = 20
	sectionSegments = 21
	sectionCursors  = 22
	sectionEnd      = 255

	blockHeader = 5        // length u32 of the records, section u8
	blockBytes  = 64 << 10 // a block is closed when it has that many
	blockMax    = blockBytes + BodyMax + HeadersMax + 1<<20
)

var errState = errors.New("fsm: damaged state")

// encoder writes blocks.
type encoder struct {
	w       io.Writer
	version uint8 // fields of a later one are not written, and must be zero
	digest  xxhash.Digest
	buf     []byte // the open block, header included
	section byte
	err     error
	lastKey Key // of the record before in this block
}

// open starts a block of section.
func (e *encoder) open(section byte) {
	e.close()
	e.section = section
}

// done ends a record.
func (e *encoder) done() {
	if len(e.buf) >= blockHeader+blockBytes {
		e.close()
	}
}

// close writes the open block, if there is anything in it.
func (e *encoder) close() {
	if len(e.buf) > blockHeader {
		binary.BigEndian.PutUint32(e.buf, uint32(len(e.buf)-blockHeader))
		e.buf[4] = e.section
		e.write(e.buf)
	}
	e.buf = append(e.buf[:0], 0, 0, 0, 0, 0)
	e.lastKey = Key{}
}

func (e *encoder) write(b []byte) {
	if e.err == nil {
		e.digest.Write(b)
		_, e.err = e.w.Write(b)
	}
}

func (e *encoder) uvarint(v uint64) { e.buf = binary.AppendUvarint(e.buf, v) }
func (e *encoder) ms(v int64)       { e.buf = binary.AppendUvarint(e.buf, uint64(v)) }
func (e *encoder) u64(v uint64)     { e.buf = binary.BigEndian.AppendUint64(e.buf, v) }
func (e *encoder) u8(v byte)        { e.buf = append(e.buf, v) }
func (e *encoder) text(s string)    { e.buf = appendString(e.buf, s) }
func (e *encoder) key(k Key)        { e.buf = appendKey(e.buf, k) }

func bit(is bool, value byte) (b byte) {
	if is {
		return value
	}
	return 0
}

// Encode writes the whole state; equal machines give equal bytes.
func (m *Machine) Encode(w io.Writer) error {
	e := &encoder{w: w, version: m.version, buf: make([]byte, 0, 4<<10)} // grows to a block
	e.digest.Reset()
	e.write(append([]byte(stateMagic), e.version))

	e.open(sectionMachine)
	m.encodeMachine(e)
	e.open(sectionMembers)
	for i := range m.members {
		e.buf = m.members[i].appendFields(e.buf)
		e.done()
	}
	e.open(sectionSession)
	m.sessions.Scan(func(_ uint64, s *session) bool {
		e.encodeSession(s)
		return e.err == nil
	})
	e.open(sectionQueues)
	m.queues.Scan(func(_ uint32, q *queue) bool {
		e.encodeQueue(q)
		return e.err == nil
	})
	e.open(sectionJobs)
	m.jobs.Scan(func(it jobItem) bool {
		e.encodeJob(it)
		return e.err == nil
	})
	e.open(sectionWaiters)
	m.parked.Scan(func(p parkedItem) bool {
		if seeded != "waiters-not-in-snapshot" {
			e.encodeWaiter(p.waiter)
		}
		return e.err == nil
	})
	e.open(sectionTombs)
	m.tombOrder.Scan(func(ord uint64, k Key) bool {
		if seeded == "acked-ids-not-in-snapshot" {
			return true
		}
		t, _ := m.tombs.Get(tomb{key: k})
		e.uvarint(ord)
		e.u8(t.kind)
		e.key(k)
		e.done()
		return e.err == nil
	})
	m.encodeDedup(e)
	m.encodeKept(e)
	m.encodeAttempts(e)
	m.encodeGroups(e)
	e.open(sectionRemoved)
	for _, r := range m.removed {
		e.u64(r.id)
		e.u8(bit(r.gone, 1))
		e.pastEpochs(r.epochs)
		e.done()
	}
	m.encodeTopics(e)
	e.open(sectionEnd)
	e.u64(e.digest.Sum64())
	e.close()
	if e.err != nil {
		return fmt.Errorf("write state at index %d: %w", m.index, e.err)
	}
	return nil
}

// Hash is a hash of Encode's bytes.
func (m *Machine) Hash() uint64 {
	d := xxhash.New()
	if err := m.Encode(d); err != nil {
		panic("BUG: a hash refused bytes: " + err.Error())
	}
	return d.Sum64()
}

func (m *Machine) encodeMachine(e *encoder) {
	e.uvarint(m.index)
	e.uvarint(m.term)
	e.ms(m.now)
	e.uvarint(chainVersion)
	e.u64(m.chain)
	e.uvarint(m.seq)
	e.uvarint(uint64(m.queueNumber))
	e.uvarint(m.tombNumber)
	e.happened(&m.totals)
	e.done()
}

func (e *encoder) happened(c *counters) {
	for _, n := range [...]uint64{c.enqueued, c.delivered, c.acked, c.failed, c.expired, c.deadTotal} {
		e.uvarint(n)
	}
}

func (e *encoder) encodeSession(s *session) {
	e.u64(s.node)
	e.uvarint(s.epoch)
	if seeded == "batch-number-not-in-snapshot" {
		e.uvarint(0)
	} else {
		e.uvarint(s.last)
	}
	e.u8(bit(s.away && seeded != "away-not-in-snapshot", 1))
	e.buf = s.start.appendFields(e.buf)
	if seeded == "fate-not-in-snapshot" {
		e.pastEpochs(nil)
	} else {
		e.pastEpochs(s.past)
	}
	if e.version >= 2 {
		e.u8(s.disk)
	}
	e.done()
}

func (e *encoder) pastEpochs(past []pastEpoch) {
	e.uvarint(uint64(len(past)))
	for _, p := range past {
		e.uvarint(p.epoch)
		e.uvarint(p.last)
	}
}

const (
	queueMade     = 1
	queueDoomed   = 2
	queueSettings = 4 // version 2
	queueTimes    = 8 // version 2

	pauseIn  = 1
	pauseOut = 2
)

func (e *encoder) encodeQueue(q *queue) {
	e.uvarint(uint64(q.number))
	e.u8(bit(q.made, queueMade) | bit(q.doomed, queueDoomed) | bit(q.settings != nil, queueSettings) | bit(q.createdMs != 0, queueTimes))
	e.text(q.name)
	e.ms(q.idleMs)
	e.ms(q.timerMs)
	e.happened(&q.counters)
	if q.createdMs != 0 {
		e.ms(q.createdMs)
		e.ms(q.usedMs)
	}
	if s := q.settings; s != nil {
		e.uvarint(s.version)
		e.uvarint(s.changed)
		e.u8(bit(s.pausedIn, pauseIn) | bit(s.pausedOut, pauseOut))
		e.ms(s.untilMs)
		said := s.config.said()
		e.uvarint(uint64(said))
		e.buf = appendConfig(e.buf, &s.config, said)
	}
	e.done()
}

// need says that the state holds, from this entry on, what only format version
// v and later can say. Raise it before anything of that is made: Encode writes
// no field that is newer than the machine's version.
func (m *Machine) need(v uint8) { m.version = max(m.version, v) }

// flagsInline are the flags in a job's second byte; the others are in its rare
// part.
const flagsInline = flagAtMostOnce | flagTag

// The other bits of a job's second byte.
const (
	stateSameHi = 4 << iota
	stateHasDue
	stateHasExpiry
	stateHasLease
	stateHasGrant
	stateHasRare
)

func (e *encoder) encodeJob(it jobItem) {
	e.u8(byte(it.state) | it.priority<<4)
	same := it.key.Hi == e.lastKey.Hi
	rare := it.rare != nil || it.flags&^(flagsInline|flagAttempt) != 0
	e.u8(it.flags&flagsInline | bit(same, stateSameHi) | bit(it.dueMs != 0, stateHasDue) | bit(it.expiresMs != 0, stateHasExpiry) |
		bit(it.leaseMs != 0, stateHasLease) | bit(it.grant != 0, stateHasGrant) | bit(rare, stateHasRare))
	if same {
		e.uvarint(it.key.Lo - e.lastKey.Lo)
	} else {
		e.key(it.key)
	}
	e.lastKey = it.key
	e.uvarint(it.seq)
	e.ms(it.enqueuedMs)
	e.uvarint(it.lastIndex)
	e.uvarint(uint64(it.queue))
	e.uvarint(uint64(it.node))
	if seeded == "failures-not-in-snapshot" {
		e.uvarint(0)
	} else {
		e.uvarint(uint64(it.failures))
	}
	if it.dueMs != 0 {
		e.ms(it.dueMs)
	}
	if it.expiresMs != 0 {
		e.ms(it.expiresMs)
	}
	if it.leaseMs != 0 {
		e.uvarint(uint64(it.leaseMs))
	}
	if it.grant != 0 {
		e.uvarint(uint64(it.grant))
		e.uvarint(uint64(it.deliveries))
		e.uvarint(uint64(it.heldMs))
		e.uvarint(it.fence)
		if it.flags&flagTag != 0 {
			e.u64(it.tag)
		}
	}
	if rare {
		e.encodeRare(it)
	}
	e.text(it.body)
	e.done()
}

// Bits of a job's rare part: its fields, in this order. Version 1 has the first
// five, always, and no mask.
const (
	rareConsumer = 1 << iota
	rareLastError
	rareMaxFailures
	rareDeadReason
	rareHeaders
	rareFlags
	rareGroup
	rareDedupID
	rareUniqueKey
	rareHistory
	rareMaskEnd
)

func (e *encoder) encodeRare(it jobItem) {
	r := it.getRare()
	x := r.getMore()
	mask := uint64(1<<5 - 1)
	if e.version >= 2 {
		mask = 0
		set := func(is bool, bit uint64) {
			if is {
				mask |= bit
			}
		}
		set(r.consumer != "", rareConsumer)
		set(r.lastError != "", rareLastError)
		set(r.maxFailures != 0, rareMaxFailures)
		set(r.deadReason != reasonNone, rareDeadReason)
		set(len(r.headers) > 0, rareHeaders)
		set(it.flags&^(flagsInline|flagAttempt) != 0, rareFlags)
		set(x.group != "", rareGroup)
		set(x.dedupID != "", rareDedupID)
		set(x.uniqueKey != "", rareUniqueKey)
		set(r.history != nil, rareHistory)
		e.uvarint(mask)
	}
	if mask&rareConsumer != 0 {
		e.text(r.consumer)
	}
	if mask&rareLastError != 0 {
		e.text(r.lastError)
	}
	if mask&rareMaxFailures != 0 {
		e.buf = binary.AppendVarint(e.buf, int64(r.maxFailures))
	}
	if mask&rareDeadReason != 0 {
		e.u8(r.deadReason)
	}
	if mask&rareHeaders != 0 {
		e.buf = appendHeaders(e.buf, r.headers)
	}
	if mask&rareFlags != 0 {
		e.u8(it.flags &^ (flagsInline | flagAttempt))
	}
	if mask&rareGroup != 0 {
		e.text(x.group)
	}
	if mask&rareDedupID != 0 {
		e.text(x.dedupID)
	}
	if mask&rareUniqueKey != 0 {
		e.text(x.uniqueKey)
	}
	if mask&rareHistory != 0 {
		h := r.history
		e.ms(h.deadMs)
		e.text(h.source)
		e.ms(h.keepMs)
		e.uvarint(uint64(h.redriven))
		e.uvarint(uint64(h.nacks))
	}
}

// encodeDedup writes the dedup ids; unique keys are those of the jobs that have
// flagUnique.
func (m *Machine) encodeDedup(e *encoder) {
	e.open(sectionDedup)
	m.keys.Scan(func(k *queueKey) bool {
		if k.kind == keyDedup && seeded != "dedup-not-in-snapshot" {
			e.uvarint(uint64(k.queue))
			e.text(k.text)
			e.ms(k.untilMs)
			e.uvarint(k.seq)
			e.key(k.id.Key)
			e.uvarint(uint64(k.id.Node))
			e.uvarint(uint64(k.id.Minutes))
			e.done()
		}
		return e.err == nil
	})
}

func (e *encoder) encodeWaiter(w *waiter) {
	e.u64(w.node)
	e.uvarint(w.request)
	e.uvarint(w.epoch)
	e.uvarint(w.seq)
	e.ms(w.deadlineMs)
	e.buf = binary.AppendVarint(e.buf, w.leaseMs)
	e.uvarint(uint64(w.max))
	e.text(w.consumer)
	e.uvarint(uint64(len(w.queues)))
	for _, q := range w.queues {
		e.text(q)
	}
	if e.version >= 2 {
		e.text(w.attempt)
	}
	e.done()
}
