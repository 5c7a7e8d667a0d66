package fsm

import (
	"encoding/binary"

	"github.com/cespare/xxhash/v2"
)

// The chain is a running hash over every entry and its outcome: nodes that
// applied the same entries the same way have the same chain, and nodes whose
// machines came apart do not. It is computed by every node alike, whoever's
// batch it is. Any change of what goes into it needs a new chainVersion.
const chainVersion = 1

// The outcome of an entry is a string of these, in the order in which things
// happened.
const (
	noteTimer  = 1  // kind and sequence, key
	noteOp     = 2  // code
	noteItem   = 3  // code, flags
	noteGrant  = 4  // key, grant number
	noteWaiter = 5  // sequence of the waiter served
	noteReap   = 6  // jobs reaped
	noteFilter = 7  // the sessions took the batch out
	noteEnd    = 8  // machine time
	noteKnown  = 9  // key of the job that a dedup id stands for
	noteReplay = 10 // sequence of a kept result
	noteAppend = 20 // offset of the first message
	noteSweep  = 30 // jobs swept, dropped or let go together
	noteMoved  = 31 // key, queue, sequence
)

func chainGenesis() uint64 {
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], chainVersion)
	return xxhash.Sum64(b[:])
}

// extendChain ends an entry: data is its data, the outcome is in the run.
func (m *Machine) extendChain(data []byte) {
	var b [24]byte
	binary.BigEndian.PutUint64(b[0:], m.chain)
	binary.BigEndian.PutUint64(b[8:], m.index)
	binary.BigEndian.PutUint64(b[16:], m.term)
	o := append(m.run.outcome, noteEnd)
	o = binary.BigEndian.AppendUint64(o, uint64(m.now))
	m.run.outcome = o
	d := &m.run.digest
	d.Reset()
	d.Write(b[:])
	d.Write(data)
	d.Write(o)
	m.chain = d.Sum64()
}

func appendKey(b []byte, k Key) []byte {
	b = binary.BigEndian.AppendUint64(b, k.Hi)
	return binary.BigEndian.AppendUint64(b, k.Lo)
}

func (m *Machine) noteTimer(t timer) {
	o := append(m.run.outcome, noteTimer)
	o = binary.BigEndian.AppendUint64(o, t.ord)
	m.run.outcome = appendKey(o, t.key)
}

func (m *Machine) noteOp(c Code) { m.run.outcome = append(m.run.outcome, noteOp, byte(c)) }

func (m *Machine) noteItem(r *ItemResult) {
	if r.Code != CodeOK {
		m.run.failures++
	}
	m.run.outcome = append(m.run.outcome, noteItem, byte(r.Code), r.flags())
}

func (m *Machine) noteKey(k Key) { m.run.outcome = appendKey(append(m.run.outcome, noteKnown), k) }

func (m *Machine) noteReplay(k *kept) {
	m.run.outcome = binary.BigEndian.AppendUint64(append(m.run.outcome, noteReplay), k.seq)
}

func (m *Machine) noteGrant(k Key, grant uint32) {
	o := appendKey(append(m.run.outcome, noteGrant), k)
	m.run.outcome = binary.BigEndian.AppendUint32(o, grant)
}

func (m *Machine) noteWaiter(w *waiter) {
	m.run.outcome = binary.BigEndian.AppendUint64(append(m.run.outcome, noteWaiter), w.seq)
}

func (m *Machine) noteSweep(jobs int) {
	m.run.outcome = binary.BigEndian.AppendUint32(append(m.run.outcome, noteSweep), uint32(jobs))
}

func (m *Machine) noteMoved(it jobItem) {
	o := appendKey(append(m.run.outcome, noteMoved), it.key)
	o = binary.BigEndian.AppendUint32(o, it.queue)
	m.run.outcome = binary.BigEndian.AppendUint64(o, it.seq)
}

func (m *Machine) noteReap(jobs int) {
	m.run.outcome = binary.BigEndian.AppendUint32(append(m.run.outcome, noteReap), uint32(jobs))
}
