package wal

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc64"
	"io"
	"os"
	"path/filepath"
)

// The note is a file of two slots, written in turn. Each slot lies in a page of
// its own, so that one torn page write cannot take both.
const (
	noteSlotBytes = 512
	notePageBytes = 4096
	noteFileBytes = 2 * notePageBytes
	noteMagic     = "RQNOTE01"
	noteSumAt     = noteSlotBytes - 8
)

var (
	noteTable   = crc64.MakeTable(crc64.ECMA)
	errNoteSlot = errors.New("wal: not a valid note")
)

// note says how far the log was synced when it was written.
type note struct {
	sequence uint64 // of notes; the higher is the newer
	segment  uint64 // sequence number of the segment
	offset   int64  // end of the last record in it
	crc      uint32 // running CRC there
	hs       hardState
	last     uint64 // last entry, and its term
	lastTerm uint64
	base     TimeBase
	bootID   [16]byte
}

func (n *note) encode(b *[noteSlotBytes]byte) {
	le := binary.LittleEndian
	*b = [noteSlotBytes]byte{}
	copy(b[0:], noteMagic)
	le.PutUint64(b[8:], n.sequence)
	le.PutUint64(b[16:], n.segment)
	le.PutUint64(b[24:], uint64(n.offset))
	le.PutUint32(b[32:], n.crc)
	le.PutUint64(b[40:], n.hs.term)
	le.PutUint64(b[48:], n.hs.vote)
	le.PutUint64(b[56:], n.hs.commit)
	le.PutUint64(b[64:], n.last)
	le.PutUint64(b[72:], n.lastTerm)
	le.PutUint64(b[80:], n.base.Index)
	le.PutUint64(b[88:], n.base.Term)
	le.PutUint64(b[96:], uint64(n.base.StampMs))
	le.PutUint64(b[104:], uint64(n.base.BootNs))
	copy(b[112:128], n.bootID[:])
	le.PutUint64(b[noteSumAt:], crc64.Checksum(b[:noteSumAt], noteTable))
}

// decode accepts exactly what encode makes.
func (n *note) decode(b []byte) error {
	le := binary.LittleEndian
	if len(b) != noteSlotBytes || string(b[:8]) != noteMagic ||
		le.Uint64(b[noteSumAt:]) != crc64.Checksum(b[:noteSumAt], noteTable) {
		return errNoteSlot
	}
	if !allZero(b[36:40]) || !allZero(b[128:noteSumAt]) || int64(le.Uint64(b[24:])) < 0 {
		return errNoteSlot
	}
	*n = note{
		sequence: le.Uint64(b[8:]),
		segment:  le.Uint64(b[16:]),
		offset:   int64(le.Uint64(b[24:])),
		crc:      le.Uint32(b[32:]),
		hs:       hardState{le.Uint64(b[40:]), le.Uint64(b[48:]), le.Uint64(b[56:])},
		last:     le.Uint64(b[64:]),
		lastTerm: le.Uint64(b[72:]),
		base: TimeBase{
			Index:   le.Uint64(b[80:]),
			Term:    le.Uint64(b[88:]),
			StampMs: int64(le.Uint64(b[96:])),
			BootNs:  int64(le.Uint64(b[104:])),
		},
	}
	copy(n.bootID[:], b[112:128])
	return nil
}

// readNote gives the newer valid slot, or nil: a note that is missing or damaged is
// no verdict on the log. One that the system cannot read is an error: what it says
// may be all that tells a lost tail.
func readNote(path string) (*note, error) {
	f, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) || seeded == "note-not-read" {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("wal: open the note: %w", err)
	}
	defer f.Close()
	var newest *note
	var unread error
	for slot := range int64(2) {
		var b [noteSlotBytes]byte
		if _, err := io.ReadFull(io.NewSectionReader(f, slot*notePageBytes, noteSlotBytes), b[:]); err != nil {
			if err != io.EOF && err != io.ErrUnexpectedEOF { // a bad sector: the other slot may do
				unread = err
			}
			continue
		}
		var n note
		if n.decode(b[:]) == nil && (newest == nil || n.sequence > newest.sequence) {
			newest = &n
		}
	}
	if newest == nil && unread != nil && seeded != "unread-note-is-none" {
		return nil, fmt.Errorf("wal: read the note: %w", unread)
	}
	return newest, nil
}

// noteFile writes notes. They are not synced: the page cache outlives the
// process, and a sync here would double the cost of every commit.
type noteFile struct {
	f        *os.File
	sequence uint64
	buf      [noteSlotBytes]byte
}

// openNote opens the file for writing and gives it its full size, written and
// synced, so that later writes need no space. Valid slots stay.
func openNote(path string, sequence uint64) (*noteFile, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("wal: open the note: %w", err)
	}
	if err := fillNote(f); err != nil {
		f.Close()
		return nil, fmt.Errorf("wal: prepare the note: %w", err)
	}
	return &noteFile{f: f, sequence: sequence}, nil
}

func fillNote(f *os.File) error {
	info, err := f.Stat()
	if err != nil || info.Size() == noteFileBytes {
		return err
	}
	if err := f.Truncate(min(info.Size(), noteFileBytes)); err != nil {
		return err
	}
	if size := min(info.Size(), noteFileBytes); size < noteFileBytes {
		if _, err := f.WriteAt(make([]byte, noteFileBytes-size), size); err != nil {
			return err
		}
	}
	if err := f.Sync(); err != nil {
		return err
	}
	return syncDir(filepath.Dir(f.Name()))
}

// write numbers the note and puts it over the older slot.
func (nf *noteFile) write(n *note) error {
	nf.sequence++
	n.sequence = nf.sequence
	n.encode(&nf.buf)
	if _, err := nf.f.WriteAt(nf.buf[:], int64(nf.sequence%2)*notePageBytes); err != nil {
		return fmt.Errorf("wal: write the note: %w", err)
	}
	return nil
}

func (nf *noteFile) close() error { return nf.f.Close() }

func syncDir(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}
