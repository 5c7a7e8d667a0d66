package fsm

import (
	"encoding/binary"
	"errors"
	"unsafe"
)

// The wire forms of ops and of the encoded state are made of these pieces:
// uvarints, zigzag varints, fixed big-endian words, and strings with a uvarint
// length before them.

var errMalformed = errors.New("fsm: malformed data")

func appendString(b []byte, s string) []byte {
	b = binary.AppendUvarint(b, uint64(len(s)))
	return append(b, s...)
}

func appendBytes(b, s []byte) []byte {
	b = binary.AppendUvarint(b, uint64(len(s)))
	return append(b, s...)
}

// fields reads what the append functions wrote. The first thing that does not
// fit sets bad and empties the rest, so that a caller checks once, at the end.
type fields struct {
	data []byte
	bad  bool
	// views: strings and bytes are views of data, valid as long as data is and
	// not to be kept. Otherwise they are copies.
	views bool
	// within is where the op within an op is decoded into; nil = a new one.
	within *opSet
}

func (f *fields) fail() {
	f.bad = true
	f.data = nil
}

// ok tells whether all was well and nothing is left over.
func (f *fields) ok() bool { return !f.bad && len(f.data) == 0 }

func (f *fields) uvarint() uint64 {
	if len(f.data) > 0 && f.data[0] < 0x80 {
		v := f.data[0]
		f.data = f.data[1:]
		return uint64(v)
	}
	v, n := binary.Uvarint(f.data)
	if n <= 0 {
		f.fail()
		return 0
	}
	f.data = f.data[n:]
	return v
}

func (f *fields) varint() int64 {
	v := f.uvarint()
	return int64(v>>1) ^ -int64(v&1)
}

// int32 reads a varint that must fit.
func (f *fields) int32() int32 {
	v := f.varint()
	if int64(int32(v)) != v {
		f.fail()
	}
	return int32(v)
}

// upTo reads a uvarint that is at most limit.
func (f *fields) upTo(limit uint64) uint64 {
	v := f.uvarint()
	if v > limit {
		f.fail()
		return 0
	}
	return v
}

func (f *fields) u8() byte {
	if len(f.data) < 1 {
		f.fail()
		return 0
	}
	v := f.data[0]
	f.data = f.data[1:]
	return v
}

func (f *fields) u64() uint64 {
	if len(f.data) < 8 {
		f.fail()
		return 0
	}
	v := binary.BigEndian.Uint64(f.data)
	f.data = f.data[8:]
	return v
}

// raw reads a length and returns that many bytes of data itself.
func (f *fields) raw(limit int) []byte {
	n := f.uvarint()
	if n > uint64(limit) || n > uint64(len(f.data)) {
		f.fail()
		return nil
	}
	b := f.data[:n:n]
	f.data = f.data[n:]
	return b
}

func (f *fields) bytes(limit int) []byte {
	b := f.raw(limit)
	if len(b) == 0 {
		return nil
	}
	if f.views {
		return b
	}
	return append([]byte(nil), b...)
}

func (f *fields) text(limit int) string {
	b := f.raw(limit)
	if f.views {
		return viewString(b)
	}
	return string(b)
}

// count reads the number of items that follow, each of at least size bytes: a
// lying count cannot make the caller allocate more than the data justifies.
func (f *fields) count(size int) int {
	n := f.uvarint()
	if n > uint64(len(f.data)/size) {
		f.fail()
		return 0
	}
	return int(n)
}

// viewString returns a string over b's memory: b must not change while the
// string is used.
func viewString(b []byte) string {
	if len(b) == 0 {
		return ""
	}
	return unsafe.String(&b[0], len(b))
}
