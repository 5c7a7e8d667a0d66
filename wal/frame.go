package wal

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"math/bits"
)

// A record in a segment is a frame: 8 bytes length, the record, padding to 8.
// The record is the protobuf message {1: type, 2: crc, 3: data}. The CRC chains
// over the data of all records; it covers neither length nor type nor padding,
// so everything else about a frame has exactly one valid form, which is checked.

const (
	frameHeadBytes = 8
	sectorBytes    = 512

	// recordHeadMax is the most that stands before the data: type, CRC, data length.
	recordHeadMax = 2 + 6 + 11
)

var crcTable = crc32.MakeTable(crc32.Castagnoli)

type record struct {
	kind int64
	crc  uint32
	data []byte // nil if the field is absent
}

func uvarintLen(x uint64) int { return (bits.Len64(x|1) + 6) / 7 }

// recordSize is the size of an encoded record. Type and crc are set always, even
// to zero, because their fields are pointers; data is there if it is not nil.
func recordSize(kind int64, crc uint32, data int, hasData bool) int {
	n := 1 + uvarintLen(uint64(kind)) + 1 + uvarintLen(uint64(crc))
	if hasData {
		n += 1 + uvarintLen(uint64(data)) + data
	}
	return n
}

func padding(size int) int { return -size & 7 }

// splitLength takes a frame's length field apart; ok is false if no writer makes it.
func splitLength(l uint64) (size, pad int64, ok bool) {
	size = int64(l & (1<<56 - 1))
	pad = -size & 7
	high := byte(l >> 56)
	if pad == 0 {
		return size, pad, high == 0
	}
	return size, pad, high == 0x80|byte(pad)
}

var errNotCanonical = errors.New("the record is not as a writer encodes it")

// recordHead reads what stands before a record's data. dataLen is -1 if there is none.
func recordHead(b []byte) (kind int64, crc uint32, head, dataLen int, err error) {
	if len(b) < 4 || b[0] != 0x08 || b[1] == 0 || b[1] >= 0x80 || b[2] != 0x10 {
		return 0, 0, 0, 0, errNotCanonical
	}
	kind = int64(b[1])
	i := 3
	c, n := canonicalUvarint(b[i:])
	if n == 0 || c > 1<<32-1 {
		return 0, 0, 0, 0, errNotCanonical
	}
	crc = uint32(c)
	i += n
	if i == len(b) {
		return kind, crc, i, -1, nil
	}
	if b[i] != 0x1a {
		return 0, 0, 0, 0, errNotCanonical
	}
	d, n := canonicalUvarint(b[i+1:])
	if n == 0 || d > 1<<40 {
		return 0, 0, 0, 0, errNotCanonical
	}
	return kind, crc, i + 1 + n, int(d), nil
}

func parseRecord(b []byte) (record, error) {
	kind, crc, head, dataLen, err := recordHead(b)
	if err != nil {
		return record{}, err
	}
	r := record{kind: kind, crc: crc}
	if dataLen >= 0 {
		r.data = b[head:]
	}
	if len(r.data) != max(dataLen, 0) {
		return record{}, errNotCanonical
	}
	return r, nil
}

func canonicalUvarint(b []byte) (uint64, int) {
	x, n := binary.Uvarint(b)
	if n <= 0 || n != uvarintLen(x) {
		return 0, 0
	}
	return x, n
}

// looksTorn tells a write that a power cut interrupted from damage. frame is
// what is in the file from the frame's start at offset off, length field first.
// Sectors of a preallocated file are written whole or not at all, so a torn frame
// has a sector that is still zero, and the sectors that are there are right.
func looksTorn(frame []byte, off int64, complete bool) bool {
	first := int(sectorBytes - off%sectorBytes)
	first = min(first, len(frame))
	if allZero(frame[:first]) {
		return true
	}
	if head := frame[frameHeadBytes:max(first, frameHeadBytes)]; len(head) >= recordHeadMax {
		// Length field and record head are in one written sector: they must agree.
		size, _, ok := splitLength(binary.LittleEndian.Uint64(frame))
		_, _, n, dataLen, err := recordHead(head)
		if !ok || err != nil || int64(n+max(dataLen, 0)) != size {
			return false
		}
	}
	if !complete {
		return true
	}
	for i := first; i < len(frame); i += sectorBytes {
		if allZero(frame[i:min(i+sectorBytes, len(frame))]) {
			return true
		}
	}
	return false
}

func allZero(b []byte) bool {
	for _, c := range b {
		if c != 0 {
			return false
		}
	}
	return true
}
