package fsm

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/cespare/xxhash/v2"
)

// Decode reads what Encode wrote, and checks it. It reads no byte further.
func Decode(r io.Reader) (*Machine, error) {
	d := &decoder{r: r, m: empty(), queues: map[uint32]*restoring{}}
	d.digest.Reset()
	if err := d.all(); err != nil {
		return nil, fmt.Errorf("read state: %w", err)
	}
	return d.m, nil
}

// decoder builds a machine from blocks.
type decoder struct {
	r      io.Reader
	digest xxhash.Digest
	buf    []byte
	m      *Machine
	queues map[uint32]*restoring
	timers []timer
	seqs   []uint64 // of all jobs and waiters
	last   Key      // of the job before in this block

	lastDedup   *queueKey
	lastAttempt string
}

// restoring gathers a queue's jobs: they come in the order of their keys.
type restoring struct {
	*queue
	ready, rest []place
}

type place struct {
	ord uint64
	key Key
}

func (d *decoder) all() error {
	head := make([]byte, len(stateMagic)+1)
	if _, err := io.ReadFull(d.r, head); err != nil {
		return err
	}
	switch {
	case string(head[:len(stateMagic)]) != stateMagic:
		return fmt.Errorf("no magic: %w", errState)
	case head[len(stateMagic)] > stateVersion:
		return fmt.Errorf("version %d: %w", head[len(stateMagic)], ErrNewer)
	case head[len(stateMagic)] == 0:
		return fmt.Errorf("version 0: %w", errState)
	}
	d.m.version = head[len(stateMagic)]
	d.digest.Write(head)
	section := byte(0)
	for {
		sum := d.digest.Sum64()
		next, err := d.block()
		if err != nil {
			return err
		}
		if next < section || (section == 0) != (next == sectionMachine) {
			return fmt.Errorf("section %d after %d: %w", next, section, errState)
		}
		section = next
		if section == sectionEnd {
			if len(d.buf) != 8 || binary.BigEndian.Uint64(d.buf) != sum {
				return fmt.Errorf("checksum: %w", errState)
			}
			return d.finish()
		}
		if err := d.records(section); err != nil {
			return err
		}
	}
}

// block reads a block into d.buf and returns its section.
func (d *decoder) block() (section byte, err error) {
	var head [blockHeader]byte
	if _, err := io.ReadFull(d.r, head[:]); err != nil {
		return 0, noEOF(err)
	}
	n := int(binary.BigEndian.Uint32(head[:]))
	if n == 0 || n > blockMax {
		return 0, fmt.Errorf("block of %d bytes: %w", n, errState)
	}
	d.buf = slices.Grow(d.buf[:0], min(n, 4*blockBytes))
	for len(d.buf) < n {
		// In steps: a lying length allocates little more than the file holds.
		step := min(n-len(d.buf), 1<<20)
		d.buf = slices.Grow(d.buf, step)
		at := len(d.buf)
		d.buf = d.buf[:at+step]
		if _, err := io.ReadFull(d.r, d.buf[at:]); err != nil {
			return 0, noEOF(err)
		}
	}
	d.digest.Write(head[:])
	d.digest.Write(d.buf)
	return head[4], nil
}

// noEOF: a state that ends before its end is damaged.
func noEOF(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}

func (d *decoder) records(section byte) error {
	f := &fields{data: d.buf, views: true}
	d.last = Key{}
	for len(f.data) > 0 {
		var err error
		switch section {
		case sectionMachine:
			err = d.machine(f)
		case sectionMembers:
			err = d.member(f)
		case sectionSession:
			err = d.session(f)
		case sectionQueues:
			err = d.queue(f)
		case sectionJobs:
			err = d.job(f)
		case sectionWaiters:
			err = d.waiter(f)
		case sectionTombs:
			err = d.tomb(f)
		case sectionDedup:
			err = d.dedup(f)
		case sectionKept:
			err = d.kept(f)
		case sectionAttempts:
			err = d.attempt(f)
		case sectionGroups:
			err = d.group(f)
		case sectionTopics:
			err = d.topic(f)
		case sectionSegments:
			err = d.segment(f)
		case sectionCursors:
			err = d.cursor(f)
		case sectionRemoved:
			err = d.removed(f)
		default:
			return fmt.Errorf("section %d: %w", section, ErrNewer)
		}
		if err == nil && (f.bad || section > sectionTombs && d.m.version < 2) {
			err = errState
		}
		if err != nil {
			return fmt.Errorf("record of section %d: %w", section, err)
		}
	}
	return nil
}

func (f *fields) ms() int64 { return int64(f.upTo(1<<63 - 1)) }

func (f *fields) happened(c *counters) {
	for _, n := range [...]*uint64{&c.enqueued, &c.delivered, &c.acked, &c.failed, &c.expired, &c.deadTotal} {
		*n = f.uvarint()
	}
}

func (d *decoder) machine(f *fields) error {
	m := d.m
	m.index = f.uvarint()
	m.term = f.uvarint()
	m.now = f.ms()
	if v := f.uvarint(); v != chainVersion && !f.bad {
		return fmt.Errorf("chain version %d: %w", v, ErrNewer)
	}
	m.chain = f.u64()
	m.seq = f.upTo(seqMax)
	m.queueNumber = uint32(f.upTo(1<<32 - 1))
	m.tombNumber = f.uvarint()
	f.happened(&m.totals)
	if len(f.data) > 0 {
		return fmt.Errorf("%d bytes left over: %w", len(f.data), ErrNewer)
	}
	return nil
}

func (d *decoder) member(f *fields) error {
	var m Member
	f.views = false
	newer := m.decode(f)
	f.views = true
	limit := byte(memberFlagsEnd)
	if d.m.version < 2 {
		limit = memberLearner << 1
	}
	if newer || m.flags() >= limit {
		return fmt.Errorf("member flags %#x: %w", m.flags(), ErrNewer)
	}
	if n := len(d.m.members); n > 0 && d.m.members[n-1].ID >= m.ID {
		return errState
	}
	d.m.members = append(d.m.members, m)
	return nil
}

func (d *decoder) removed(f *fields) error {
	r := removedMember{id: f.u64(), gone: f.upTo(1) == 1, epochs: f.pastEpochs()}
	if d.m.version < 2 || d.m.isMember(r.id) || d.m.Removed(r.id) || len(r.epochs) > EpochsKept+1 {
		return errState
	}
	d.m.removed = append(d.m.removed, r)
	return nil
}

func (f *fields) pastEpochs() (past []pastEpoch) {
	for range f.count(2) {
		past = append(past, pastEpoch{f.uvarint(), f.uvarint()})
	}
	return past
}

func (d *decoder) tomb(f *fields) error {
	m := d.m
	t := tomb{ord: f.uvarint(), kind: f.u8(), key: Key{f.u64(), f.u64()}}
	if last, _, _ := m.tombOrder.Max(); t.ord <= last || t.ord > m.tombNumber || t.kind != tombAcked && t.kind != tombExpired {
		return errState
	}
	m.addTomb(t)
	if m.tombs.Len() != m.tombOrder.Len() || m.tombs.Len() > TombstonesMax {
		return errState
	}
	return nil
}

func (d *decoder) dedup(f *fields) error {
	m := d.m
	k := &queueKey{
		kind: keyDedup, queue: uint32(f.upTo(1<<32 - 1)), text: string(f.raw(KeyMax)), untilMs: f.ms(), seq: f.upTo(seqMax),
		id: ID{Key{f.u64(), f.u64()}, uint32(f.upTo(1<<32 - 1)), uint16(f.upTo(1<<16 - 1))},
	}
	q := d.queues[k.queue]
	last := d.lastDedup
	d.lastDedup = k
	if f.bad || q == nil || k.text == "" || k.untilMs <= m.now || last != nil && !keyLess(last, k) {
		return errState
	}
	d.seqs = append(d.seqs, k.seq)
	m.addKey(k)
	return nil
}

func (d *decoder) session(f *fields) error {
	s := &session{stamp: d.m.stamp, node: f.u64(), epoch: f.uvarint(), last: f.uvarint(), away: f.upTo(1) == 1}
	f.views = false
	s.start.decode(f)
	f.views = true
	s.past = f.pastEpochs()
	if d.m.version >= 2 {
		if s.disk = f.u8(); !diskStep(s.disk) {
			f.fail()
		}
	}
	if last, _, some := d.m.sessions.Max(); some && s.node <= last || !d.m.isMember(s.node) || len(s.past) > EpochsKept {
		return errState
	}
	d.m.bytes += sessionCost + (&session{}).startBytes(&s.start)
	d.m.sessions.Load(s.node, s)
	return nil
}

func (d *decoder) queue(f *fields) error {
	q := &queue{stamp: d.m.stamp, number: uint32(f.upTo(1<<32 - 1))}
	flags := f.u8()
	q.made, q.doomed = flags&queueMade != 0, flags&queueDoomed != 0
	q.name = string(f.raw(NameMax))
	q.idleMs, q.timerMs = f.ms(), f.ms()
	f.happened(&q.counters)
	known := byte(queueMade | queueDoomed)
	if d.m.version >= 2 {
		known |= queueSettings | queueTimes
	}
	if flags&^known != 0 {
		return fmt.Errorf("queue flags %#x: %w", flags, ErrNewer)
	}
	if flags&queueTimes != 0 {
		q.createdMs, q.usedMs = f.ms(), f.ms()
		if !q.made || q.createdMs == 0 || q.createdMs > q.usedMs || q.usedMs > d.m.now+1 {
			return fmt.Errorf("times of queue %d: %w", q.number, errState)
		}
	}
	if flags&queueSettings != 0 {
		if err := d.settings(f, q); err != nil {
			return err
		}
	}
	// A timer may have fired 1 ms after the time at which its entry stopped.
	if last, _, some := d.m.queues.Max(); some && q.number <= last || q.timerMs != 0 && q.timerMs <= d.m.now || q.idleMs > d.m.now+1 {
		return fmt.Errorf("queue %d: %w", q.number, errState)
	}
	d.m.queues.Load(q.number, q)
	d.queues[q.number] = &restoring{queue: q}
	d.m.bytes += q.cost()
	if q.doomed {
		d.m.doomed.Load(q.number, struct{}{})
	} else if _, twice := d.m.names.Set(q.name, q.number); twice {
		return fmt.Errorf("queue %q twice: %w", q.name, errState)
	}
	if q.timerMs != 0 {
		d.m.passive.Set(timer{q.timerMs, timerIdle.order(uint64(q.number)), Key{}})
	}
	return nil
}

func (d *decoder) settings(f *fields, q *queue) error {
	s := settings{version: f.uvarint(), changed: f.uvarint()}
	pause := f.u8()
	s.pausedIn, s.pausedOut = pause&pauseIn != 0, pause&pauseOut != 0
	s.untilMs = f.ms()
	said := f.uvarint()
	if pause > pauseIn|pauseOut || said > uint64(AllFields) {
		return fmt.Errorf("settings of queue %d: %w", q.number, ErrNewer)
	}
	f.config(&s.config, ConfigFields(said))
	s.config.DeadLetter = strings.Clone(s.config.DeadLetter)
	if f.bad || q.doomed || !q.made || s.changed > d.m.index || s.config.said() != ConfigFields(said) ||
		s.untilMs != 0 && (pause == 0 || s.untilMs <= d.m.now) {
		return fmt.Errorf("settings of queue %d: %w", q.number, errState)
	}
	q.settings = &s
	d.m.noteConsistency(q.name, s.config.Consistency)
	return nil
}

func (d *decoder) job(f *fields) error {
	b0, b1 := f.u8(), f.u8()
	var k Key
	if b1&stateSameHi != 0 {
		k = Key{d.last.Hi, d.last.Lo + f.uvarint()}
	} else {
		k = Key{f.u64(), f.u64()}
	}
	d.last = k
	h := job{
		seq: f.upTo(seqMax), enqueuedMs: f.ms(), lastIndex: f.uvarint(),
		queue: uint32(f.upTo(1<<32 - 1)), node: uint32(f.upTo(1<<32 - 1)), failures: uint32(f.upTo(1<<32 - 1)),
		state: jobState(b0 & 15), priority: b0 >> 4, flags: b1 & flagsInline, stamp: d.m.stamp,
	}
	if b1&stateHasDue != 0 {
		h.dueMs = f.ms()
	}
	if b1&stateHasExpiry != 0 {
		h.expiresMs = f.ms()
	}
	if b1&stateHasLease != 0 {
		h.leaseMs = uint32(f.upTo(LeaseMaxMs))
	}
	if b1&stateHasGrant != 0 {
		h.grant = uint32(f.upTo(1<<32 - 1))
		h.deliveries = uint32(f.upTo(uint64(h.grant)))
		h.heldMs = uint32(f.upTo(LeaseMaxMs))
		h.fence = f.uvarint()
		if h.flags&flagTag != 0 {
			h.tag = f.u64()
		}
	}
	if b1&stateHasRare != 0 {
		if err := d.rare(f, &h); err != nil {
			return err
		}
	}
	body := f.raw(BodyMax)
	q := d.queues[h.queue]
	if f.bad || q == nil || !d.plausible(k, &h) {
		return fmt.Errorf("job %v: %w", ID{Key: k}, errState)
	}
	j := newJob(body)
	h.body = j.body
	*j = h
	return d.addJob(q, jobItem{k, j})
}

// plausible checks what can be checked of one job by itself.
func (d *decoder) plausible(k Key, j *job) bool {
	m := d.m
	if last, some := m.jobs.Max(); some && !last.key.Less(k) {
		return false
	}
	_, timed := j.timer()
	since := j.state == stateReady && m.version >= 2 && j.dueMs <= m.now+1 // ready since then
	if j.heldBack() && m.version < 2 || timed != (j.dueMs != 0) && !since || timed && j.dueMs <= m.now || j.expiresMs != 0 && j.expiresMs <= m.now {
		return false
	}
	h := j.rare.past()
	// A timer may have fired 1 ms after the time at which its entry stopped.
	if h.deadMs > m.now+1 || j.moved() && (j.state == stateDead || h.source == "" || h.keepMs <= m.now || j.flags&flagAtMostOnce != 0) {
		return false
	}
	slot := j.flags&flagSlot != 0
	if slot && (j.group() == "" || j.state != stateLeased && j.state != stateDelayed) || j.state == stateLeased && slot != (j.group() != "") {
		return false
	}
	if j.state == stateLeased && (j.deliveries == 0 || j.heldMs == 0 || j.flags&flagTag == 0) {
		return false
	}
	return j.state < stateCount && j.priority <= 9 && j.lastIndex <= m.index && j.fence <= m.index && j.enqueuedMs <= m.now &&
		(j.state == stateDead || j.moved()) == (j.rare != nil && j.rare.deadReason != reasonNone)
}

func (d *decoder) rare(f *fields, j *job) error {
	mask := uint64(1<<5 - 1)
	if d.m.version >= 2 {
		mask = f.uvarint()
	}
	var r rare
	var x more
	if mask&rareConsumer != 0 {
		r.consumer = string(f.raw(ConsumerMax))
	}
	if mask&rareLastError != 0 {
		r.lastError = string(f.raw(ErrorTextMax))
	}
	if mask&rareMaxFailures != 0 {
		r.maxFailures = int32(f.varint())
	}
	if mask&rareDeadReason != 0 {
		if r.deadReason = f.u8(); r.deadReason >= reasonCount {
			f.fail()
		}
	}
	if mask&rareHeaders != 0 {
		r.headers = cloneHeaders(f.headers())
	}
	if mask&rareFlags != 0 {
		flags := f.u8()
		if flags >= flagsEnd {
			return fmt.Errorf("job flags %#x: %w", flags, ErrNewer)
		}
		j.flags |= flags
	}
	if mask&rareGroup != 0 {
		x.group = string(f.raw(KeyMax))
	}
	if mask&rareDedupID != 0 {
		x.dedupID = string(f.raw(KeyMax))
	}
	if mask&rareUniqueKey != 0 {
		x.uniqueKey = string(f.raw(KeyMax))
	}
	if mask&rareHistory != 0 {
		r.setPast(history{
			deadMs: f.ms(), source: string(f.raw(NameMax)), keepMs: f.ms(),
			redriven: uint32(f.upTo(1<<32 - 1)), nacks: uint32(f.upTo(1<<32 - 1)),
		})
	}
	if mask >= rareMaskEnd {
		return fmt.Errorf("rare fields %#x: %w", mask, ErrNewer)
	}
	if x != (more{}) {
		r.more = &x
	}
	if !r.zero() {
		j.rare = &r
	}
	return nil
}

// addJob puts a job into the tree of jobs and leaves its other places to finish.
func (d *decoder) addJob(q *restoring, it jobItem) error {
	m := d.m
	if it.flags&flagUnique != 0 {
		if _, ok := m.takeUnique(q.queue, it); !ok || it.uniqueKey() == "" || it.state == stateDead {
			return fmt.Errorf("unique key of job %v: %w", ID{Key: it.key}, errState)
		}
	}
	m.jobs.Load(it)
	d.seqs = append(d.seqs, it.seq)
	m.addBytes(q.queue, it.bytes())
	q.states[it.state]++
	if !q.doomed {
		m.totals.states[it.state]++
	}
	if it.state == stateReady {
		q.ready = append(q.ready, place{it.readyOrder(), it.key})
	} else {
		q.rest = append(q.rest, place{it.restOrder(), it.key})
	}
	if kind, ok := it.timer(); ok && (seeded != "delay-lost-by-restart" || kind != timerDelay) {
		d.timers = append(d.timers, timer{it.dueMs, kind.order(it.seq), it.key})
	}
	if it.expiresMs != 0 {
		d.timers = append(d.timers, timer{it.expiresMs, timerTTL.order(it.seq), it.key})
	}
	if it.moved() {
		d.timers = append(d.timers, it.keepTimer())
	}
	m.putAside(q.queue, it)
	if name := it.group(); name != "" && it.counts() {
		e := q.groups.named(name)
		if e == nil {
			e = m.newGroup(q.queue, name, 0)
		}
		q.groups.enter(e, it)
	}
	return nil
}

func (d *decoder) waiter(f *fields) error {
	w := &waiter{
		node: f.u64(), request: f.uvarint(), epoch: f.uvarint(), seq: f.upTo(seqMax), deadlineMs: f.ms(),
		leaseMs: f.varint(), max: int(f.upTo(BatchItemsMax)), consumer: string(f.raw(ConsumerMax)),
	}
	n := f.count(1)
	for range n {
		w.queues = append(w.queues, string(f.raw(NameMax)))
	}
	if d.m.version >= 2 {
		w.attempt = string(f.raw(attemptKeyMax))
	}
	s, ok := d.m.sessions.Get(w.node)
	last, some := d.m.parked.Max()
	p := parkedItem{w.node, w.request, w}
	if f.bad || !ok || s.epoch != w.epoch || w.deadlineMs <= d.m.now || n > QueuesMax || some && !parkedLess(last, p) || d.m.attemptOf(w.attempt) != nil {
		return errState
	}
	d.m.keep(s, w)
	d.seqs = append(d.seqs, w.seq)
	for i, name := range w.queues {
		q := d.m.queueNamed(name)
		switch {
		case q == nil && !s.away:
			return errState
		case q != nil:
			w.queues[i] = q.name
			if !s.away {
				if _, twice := q.waiters.Set(w.seq, w); twice {
					return errState
				}
			}
		}
	}
	return nil
}

// finish builds the trees whose order is not that of the records.
func (d *decoder) finish() error {
	m := d.m
	slices.Sort(d.seqs)
	for i, seq := range d.seqs {
		if seq == 0 || seq > m.seq || i > 0 && seq == d.seqs[i-1] {
			return fmt.Errorf("sequence %d twice or to come: %w", seq, errState)
		}
	}
	slices.SortFunc(d.timers, func(a, b timer) int {
		return cmp.Or(cmp.Compare(a.ms, b.ms), cmp.Compare(a.ord, b.ord))
	})
	if err := d.finishTopics(); err != nil {
		return err
	}
	for _, t := range d.timers {
		m.forcing.Load(t)
	}
	var err error
	m.queues.Scan(func(number uint32, q *queue) bool {
		if err = d.queues[number].build(m); err != nil {
			return false
		}
		if q.settings != nil {
			m.setPauseTimer(q)
		}
		if !q.doomed && !q.set().pausedIn && m.holdsBack(q) {
			m.thaw.Load(number, struct{}{})
		}
		return true
	})
	return err
}

// build fills the queue's trees.
func (q *restoring) build(m *Machine) error {
	byOrder := func(a, b place) int { return cmp.Compare(a.ord, b.ord) }
	slices.SortFunc(q.ready, byOrder)
	slices.SortFunc(q.rest, byOrder)
	for _, p := range q.ready {
		q.queue.ready.Load(p.ord, p.key)
	}
	for _, p := range q.rest {
		q.queue.rest.Load(p.ord, p.key)
	}
	if q.groups != nil {
		lost := false
		q.groups.byNumber.Scan(func(_ uint32, e *group) bool {
			lost = lost || e.turn == 0
			return !lost
		})
		if lost {
			return fmt.Errorf("queue %q: a group without a turn: %w", q.name, errState)
		}
	}
	if q.handable() && q.waiters.Len() > 0 {
		return fmt.Errorf("queue %q: ready jobs and waiters: %w", q.name, errState)
	}
	ok := q.made || (q.waiters.Len() > 0 || m.hasDedups(q.queue)) && q.jobs() == 0
	if q.doomed {
		ok = (q.jobs() > 0 || m.hasDedups(q.queue)) && q.timerMs == 0
	} else if q.made && q.idle() && !q.keeps() {
		ok = q.timerMs != 0
	}
	if !ok {
		return fmt.Errorf("queue %q has no reason to be: %w", q.name, errState)
	}
	return nil
}
