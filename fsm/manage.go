package fsm

import "encoding/binary"

// Ops by which jobs and queues are managed. Those that name jobs by key take at
// most BatchItemsMax, and answer with an item each.

// Requeue makes jobs ready now, in their old places: delayed, held and leased
// ones, whose holder's receipt is lost. A dead one comes back as by Redrive: with
// a new sequence, its counters reset. Of a ready one nothing changes. An
// at-most-once job that was ever handed out is CodeAtMostOnce. Where nothing
// changes the item says Already.
type Requeue struct {
	Keys []Key
	From StateSet // jobs in other states are left alone; 0 = all
	Nack bool     // counts as a failure by nack, which may be the last one
}

// Hold takes ready, delayed and leased jobs (whose holder's receipt is lost) out
// of hand-out until they are requeued or, with ForMs, for so long. Of a held one
// nothing changes without ForMs; a dead one is CodeJobGone. An at-most-once job
// that was handed out cannot be held for a time (CodeAtMostOnce): it would come
// again. Where nothing changes the item says Already.
type Hold struct {
	Keys  []Key
	From  StateSet // jobs in other states are left alone; 0 = all
	ForMs int64    // 0 = until they are requeued; else ItemResult.LeaseUntil says when they are ready
}

// Cancel asks the holder of a leased job to stop: it sees it in the answer of its
// next Extend (ItemResult.Cancel), reads see it in JobInfo.Cancel, and the next
// hand-out clears it. A ready, delayed or held job is deleted: nobody works on
// it. A dead one is CodeJobGone.
type Cancel struct{ Keys []Key }

// DeleteJobs removes jobs in any state; their tombstones are those of acks.
type DeleteJobs struct{ Keys []Key }

// WithdrawJobs removes jobs that did not reach the copies they were asked to
// have, if they were never handed out; others are CodeTooLate.
type WithdrawJobs struct{ Keys []Key }

// StateSet is a set of job states.
type StateSet uint8

// The states of a job, a bit each.
const (
	StateDelayed StateSet = 1 << iota
	StateReady
	StateLeased
	StateHeld
	StateDead
	StateAll StateSet = 31
)

// ParseState returns the set that holds the state of that name.
func ParseState(name string) (s StateSet, ok bool) {
	for i, n := range stateNames {
		if n == name {
			return 1 << i, true
		}
	}
	return 0, false
}

// Purge drops jobs of these states, at most SweepMax in one entry. Count tells how
// many, maybe 0, More that there are others. UpTo bounds the jobs by their sequence: 0 is
// up to now, and the answer's UpTo is for the ops that go on, so that jobs which
// came meanwhile are spared.
type Purge struct {
	Queue  string
	States StateSet
	UpTo   uint64
}

// Redrive moves dead jobs back in the order of their sequence, at most
// min(Max, SweepMax) in one entry (Max 0 = all), into the queue To or, when it is
// "", the one they died in: the source queue of those that dead_letter moved.
// They get a new sequence, behind what waits; failures, last error and dead
// reason are reset, JobInfo.Redriven counts. Reason "" is any. Count, More and
// UpTo are as for Purge.
type Redrive struct {
	Queue, To, Reason string
	Max               int32
	UpTo              uint64
}

// Pause sets whether a queue takes jobs (In) and hands them out (Out), until
// UntilMs of log time, 0 = until it is changed. It makes the queue.
type Pause struct {
	Queue   string
	In, Out bool
	UntilMs int64
}

// ReleaseConsumer gives back all jobs that a consumer holds, uncounted, except
// at-most-once jobs. At most SweepMax in one entry; Count, More and UpTo are as for
// Purge.
type ReleaseConsumer struct {
	Consumer string
	UpTo     uint64
}

// Alarm says how full the disk of the batch's origin is: 0, or the percentage
// that was passed, 75, 90 or 95.
type Alarm struct{ Disk uint8 }

func (*Requeue) Kind() Kind         { return KindRequeue }
func (*Hold) Kind() Kind            { return KindHold }
func (*Cancel) Kind() Kind          { return KindCancel }
func (*DeleteJobs) Kind() Kind      { return KindDeleteJobs }
func (*WithdrawJobs) Kind() Kind    { return KindWithdrawJobs }
func (*Purge) Kind() Kind           { return KindPurge }
func (*Redrive) Kind() Kind         { return KindRedrive }
func (*Pause) Kind() Kind           { return KindPause }
func (*ReleaseConsumer) Kind() Kind { return KindReleaseConsumer }
func (*Alarm) Kind() Kind           { return KindAlarm }

func keysSize(keys []Key) int { return varintMax + len(keys)*(8+varintMax) }

func appendKeys(b []byte, keys []Key) []byte {
	assertLimit(len(keys), BatchItemsMax, "keys")
	b = binary.AppendUvarint(b, uint64(len(keys)))
	for _, k := range keys {
		b = binary.BigEndian.AppendUint64(b, k.Hi)
		b = binary.AppendUvarint(b, k.Lo)
	}
	return b
}

// keys reads what appendKeys wrote into the memory of buf.
func (f *fields) keys(buf []Key) []Key {
	n := f.count(9)
	if n > BatchItemsMax {
		f.fail()
	}
	keys := buf[:0]
	for range n {
		keys = append(keys, Key{f.u64(), f.uvarint()})
	}
	return keys
}

func (op *Requeue) size() int      { return keysSize(op.Keys) + 2 }
func (op *Hold) size() int         { return keysSize(op.Keys) + 1 + varintMax }
func (op *Cancel) size() int       { return keysSize(op.Keys) }
func (op *DeleteJobs) size() int   { return keysSize(op.Keys) }
func (op *WithdrawJobs) size() int { return keysSize(op.Keys) }

func (op *Cancel) appendFields(b []byte) []byte       { return appendKeys(b, op.Keys) }
func (op *DeleteJobs) appendFields(b []byte) []byte   { return appendKeys(b, op.Keys) }
func (op *WithdrawJobs) appendFields(b []byte) []byte { return appendKeys(b, op.Keys) }

func (op *Requeue) appendFields(b []byte) []byte {
	assertLimit(int(op.From), int(StateAll), "states")
	return append(appendKeys(b, op.Keys), byte(op.From), bit(op.Nack, 1))
}

func (op *Hold) appendFields(b []byte) []byte {
	assertLimit(int(op.From), int(StateAll), "states")
	b = append(appendKeys(b, op.Keys), byte(op.From))
	return binary.AppendVarint(b, op.ForMs)
}

func (op *Requeue) decode(f *fields) (newer bool) {
	op.Keys = f.keys(op.Keys)
	op.From = StateSet(f.u8())
	flags := f.u8()
	op.Nack = flags&1 != 0
	return op.From > StateAll || flags > 1
}

func (op *Hold) decode(f *fields) (newer bool) {
	op.Keys = f.keys(op.Keys)
	op.From = StateSet(f.u8())
	op.ForMs = f.varint()
	return op.From > StateAll
}

func (op *Cancel) decode(f *fields) (newer bool) {
	op.Keys = f.keys(op.Keys)
	return false
}

func (op *DeleteJobs) decode(f *fields) (newer bool) {
	op.Keys = f.keys(op.Keys)
	return false
}

func (op *WithdrawJobs) decode(f *fields) (newer bool) {
	op.Keys = f.keys(op.Keys)
	return false
}

func (*Requeue) release()      {}
func (*Hold) release()         {}
func (*Cancel) release()       {}
func (*DeleteJobs) release()   {}
func (*WithdrawJobs) release() {}

func appendName(b []byte, name string) []byte {
	assertLimit(len(name), NameMax, "queue name")
	return appendString(b, name)
}

func (op *Purge) size() int { return len(op.Queue) + 3 + 1 + varintMax }

func (op *Purge) appendFields(b []byte) []byte {
	assertLimit(int(op.States), int(StateAll), "states")
	b = append(appendName(b, op.Queue), byte(op.States))
	return binary.AppendUvarint(b, op.UpTo)
}

func (op *Purge) decode(f *fields) (newer bool) {
	op.Queue = f.text(NameMax)
	op.States = StateSet(f.u8())
	op.UpTo = f.uvarint()
	return op.States > StateAll
}

func (op *Purge) release() { *op = Purge{} }

func (op *Redrive) size() int { return len(op.Queue) + len(op.To) + len(op.Reason) + 9 + 2*varintMax }

func (op *Redrive) appendFields(b []byte) []byte {
	assertLimit(len(op.Reason), ReasonMax, "dead reason")
	b = appendString(appendName(appendName(b, op.Queue), op.To), op.Reason)
	b = binary.AppendVarint(b, int64(op.Max))
	return binary.AppendUvarint(b, op.UpTo)
}

func (op *Redrive) decode(f *fields) (newer bool) {
	op.Queue, op.To, op.Reason = f.text(NameMax), f.text(NameMax), f.text(ReasonMax)
	op.Max = f.int32()
	op.UpTo = f.uvarint()
	return false
}

func (op *Redrive) release() { *op = Redrive{} }

func (op *Pause) size() int { return len(op.Queue) + 3 + 1 + varintMax }

func (op *Pause) appendFields(b []byte) []byte {
	b = append(appendName(b, op.Queue), bit(op.In, 1)|bit(op.Out, 2))
	return binary.AppendVarint(b, op.UntilMs)
}

func (op *Pause) decode(f *fields) (newer bool) {
	op.Queue = f.text(NameMax)
	flags := f.u8()
	op.In, op.Out = flags&1 != 0, flags&2 != 0
	op.UntilMs = f.varint()
	return flags > 3
}

func (op *Pause) release() { *op = Pause{} }

func (op *ReleaseConsumer) size() int { return len(op.Consumer) + 3 + varintMax }

func (op *ReleaseConsumer) appendFields(b []byte) []byte {
	assertLimit(len(op.Consumer), ConsumerMax, "consumer")
	return binary.AppendUvarint(appendString(b, op.Consumer), op.UpTo)
}

func (op *ReleaseConsumer) decode(f *fields) (newer bool) {
	op.Consumer = f.text(ConsumerMax)
	op.UpTo = f.uvarint()
	return false
}

func (op *ReleaseConsumer) release() { *op = ReleaseConsumer{} }

func (op *Alarm) size() int { return 1 }

func (op *Alarm) appendFields(b []byte) []byte {
	assertLimit(int(op.Disk), 100, "percent of disk")
	return append(b, op.Disk)
}

func (op *Alarm) decode(f *fields) (newer bool) {
	if op.Disk = f.u8(); op.Disk > 100 {
		f.fail()
	}
	return false
}

func (op *Alarm) release() {}
