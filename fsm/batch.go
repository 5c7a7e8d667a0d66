package fsm

import (
	"encoding/binary"
	"errors"
)

// A batch is the data of one log entry:
//
//	version  u8     batchVersion
//	flags    u8     0
//	origin   u64    node id; 0 = the leader itself (timers due, node away)
//	epoch    u64    of the origin
//	number   u64    within the epoch, 0 = node start
//	term     u64    the term it is addressed to
//	time     i64    log time in ms, stamped by the leader
//	ops      …      until the end: kind u8, flags u8, length u32, fields
//
// Integers of the header are big-endian and at fixed offsets, so that the leader
// stamps a copy without decoding it. docs/format-log.md has the fields of each op.
const (
	batchVersion = 1

	offOrigin = 2
	offEpoch  = 10
	offNumber = 18
	offTerm   = 26
	offTime   = 34

	// BatchHeaderSize is where the ops begin.
	BatchHeaderSize = 42

	opHeaderSize = 6
)

// Flags of an op, at a fixed place in its header, so that a mark moves nothing.
const (
	// FlagAnswered marks an enqueue that was answered as fast, itself or within a
	// Keyed: it is inserted whatever limits, pauses or keys say by now.
	FlagAnswered = 1
	// FlagVoid makes an op a no-op in its place.
	FlagVoid = 2
)

// BatchHeader is the fixed part of a batch.
type BatchHeader struct {
	Origin, Epoch, Number, Term uint64
	TimeMs                      int64
}

var (
	errShortBatch = errors.New("fsm: batch shorter than its header")
	// ErrNewer means that the log holds something this build does not know.
	ErrNewer = errors.New("fsm: this build is older than its cluster")
)

// ReadBatchHeader decodes the header of an entry's data.
func ReadBatchHeader(b []byte) (h BatchHeader, err error) {
	if len(b) < BatchHeaderSize {
		return h, errShortBatch
	}
	if b[0] != batchVersion {
		return h, ErrNewer
	}
	h.Origin = binary.BigEndian.Uint64(b[offOrigin:])
	h.Epoch = binary.BigEndian.Uint64(b[offEpoch:])
	h.Number = binary.BigEndian.Uint64(b[offNumber:])
	h.Term = binary.BigEndian.Uint64(b[offTerm:])
	h.TimeMs = int64(binary.BigEndian.Uint64(b[offTime:]))
	return h, nil
}

// AppendBatchHeader appends h; ops follow by AppendOp.
func AppendBatchHeader(b []byte, h BatchHeader) []byte {
	b = append(b, batchVersion, 0)
	b = binary.BigEndian.AppendUint64(b, h.Origin)
	b = binary.BigEndian.AppendUint64(b, h.Epoch)
	b = binary.BigEndian.AppendUint64(b, h.Number)
	b = binary.BigEndian.AppendUint64(b, h.Term)
	return binary.BigEndian.AppendUint64(b, uint64(h.TimeMs))
}

// SetBatchTerm addresses b to a term, in place.
func SetBatchTerm(b []byte, term uint64) { binary.BigEndian.PutUint64(b[offTerm:], term) }

// SetBatchTime stamps b, in place.
func SetBatchTime(b []byte, ms int64) { binary.BigEndian.PutUint64(b[offTime:], uint64(ms)) }

// MarkOp sets a flag on the op whose header begins at b[0], in place.
func MarkOp(b []byte, flag byte) { b[1] |= flag }

// AppendOp appends op with its header.
func AppendOp(b []byte, op Op) []byte {
	n := len(b)
	b = append(b, byte(op.Kind()), 0, 0, 0, 0, 0)
	b = op.appendFields(b)
	binary.BigEndian.PutUint32(b[n+2:], uint32(len(b)-n-opHeaderSize))
	return b
}

// EncodeBatch returns a whole batch.
func EncodeBatch(h BatchHeader, ops ...Op) []byte {
	size := BatchHeaderSize
	for _, op := range ops {
		size += Size(op)
	}
	b := AppendBatchHeader(make([]byte, 0, size), h)
	for _, op := range ops {
		b = AppendOp(b, op)
	}
	return b
}
