package wal

import (
	"go.etcd.io/etcd/pkg/v3/crc"
	"go.etcd.io/etcd/pkg/v3/ioutil"
	etcdwal "go.etcd.io/etcd/server/v3/storage/wal"

	"hash"
)

// pageBytes is the page that etcd's encoder aligns its writes to.
const pageBytes = 8 * sectorBytes

// position follows etcd's encoder: it takes every record that the encoder takes
// and knows the segment, the offset and the running CRC without asking. The
// encoder does not tell, and reading the file back would cost what the note saves.
//
// Save begins a new segment when the bytes that have left its buffer reach the
// segment size, so the buffer is part of the position: the same PageWriter, over
// a counter.
type position struct {
	segment  uint64
	flushed  int64 // bytes of the segment that left the buffer
	buffered int64 // bytes that did not
	crc      hash.Hash32
	pages    *ioutil.PageWriter
	zeros    []byte // stands for whatever is written
}

// Write counts what the PageWriter lets go.
func (p *position) Write(b []byte) (int, error) {
	p.flushed += int64(len(b))
	p.buffered -= int64(len(b))
	return len(b), nil
}

func newPosition(segment uint64, offset int64, sum uint32) *position {
	p := &position{segment: segment, flushed: offset, crc: crc.New(sum, crcTable)}
	p.pages = ioutil.NewPageWriter(p, pageBytes, int(offset))
	return p
}

func (p *position) offset() int64 { return p.flushed + p.buffered }

// add takes one record. data nil means that the record has none.
func (p *position) add(kind int64, data []byte) {
	p.crc.Write(data)
	size := recordSize(kind, p.crc.Sum32(), len(data), data != nil)
	p.put(frameHeadBytes) // the encoder writes the length and the rest apart
	p.put(size + padding(size))
}

func (p *position) put(n int) {
	p.buffered += int64(n)
	if n > len(p.zeros) {
		p.zeros = make([]byte, max(n, 1<<16)) // one Write as the encoder's, or the buffer would act differently
	}
	p.pages.Write(p.zeros[:n]) // to a counter: no error
}

func (p *position) flush() { p.pages.Flush() }

// full reports whether Save will begin a new segment instead of syncing.
func (p *position) full() bool { return p.flushed >= etcdwal.SegmentSizeBytes }

// cut follows the beginning of a new segment: its head is a CRC record, the
// metadata and the hard state (nil: none).
func (p *position) cut(metadata, state []byte) {
	p.flush()
	p.segment++
	p.flushed, p.buffered = 0, 0
	p.pages = ioutil.NewPageWriter(p, pageBytes, 0)
	p.add(etcdwal.CrcType, nil)
	p.add(etcdwal.MetadataType, metadata)
	if state != nil {
		p.add(etcdwal.StateType, state)
	}
	p.flush()
	p.pages = ioutil.NewPageWriter(p, pageBytes, int(p.flushed))
}
