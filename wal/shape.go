package wal

import (
	"fmt"
)

// hardState is raftpb.HardState as a value.
type hardState struct{ term, vote, commit uint64 }

// run is a stretch of entries of one term, up to the next run.
type run struct{ first, term uint64 }

// shape is the log without its bodies: which indexes it has, in which terms, and
// the hard state. The fold at boot and the writer step it with every record, so
// that what one asserts when it writes the other asserts when it reads.
//
// The first segment may begin anywhere in the log, so the shape starts open:
// until the first entry it does not know what was before. Markers older than
// that first entry tell nothing and change nothing.
type shape struct {
	seen     bool   // any entry or marker
	entered  bool   // any entry: from here on every record can be judged
	base     uint64 // index before the first entry known
	baseTerm uint64 // 0: not known
	solid    bool   // base is a snapshot's: no entry at or below it may come
	runs     []run
	last     uint64

	hs       hardState
	commitOK uint64 // highest commit that the log had entries or a snapshot for
}

func (s *shape) lastTerm() uint64 {
	if len(s.runs) > 0 {
		return s.runs[len(s.runs)-1].term
	}
	return s.baseTerm
}

// term of an index; 0 if it is not known.
func (s *shape) term(index uint64) uint64 {
	if index == s.base {
		return s.baseTerm
	}
	if index < s.base || index > s.last {
		return 0
	}
	lo, hi := 0, len(s.runs)
	for lo < hi {
		mid := (lo + hi) / 2
		if s.runs[mid].first <= index {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return s.runs[lo-1].term
}

// has reports whether the log contains the entry (or starts right behind it).
func (s *shape) has(index, term uint64) bool {
	if !s.seen || index < s.base || index > s.last {
		return false
	}
	return s.term(index) == term
}

// entry applies an entry record: it drops all entries at or above its index.
func (s *shape) entry(index, term uint64) error {
	if index == 0 || term == 0 {
		return fmt.Errorf("entry with index %d, term %d", index, term)
	}
	if index <= s.commitOK {
		return fmt.Errorf("entry %d overwrites the committed part of the log (commit %d)", index, s.commitOK)
	}
	switch {
	case !s.entered && (!s.seen || index != s.last+1):
		// The head of the log was released: what came before is not known.
		s.base, s.baseTerm, s.solid, s.last = index-1, 0, false, index-1
	case index > s.last+1:
		return fmt.Errorf("entry %d after %d: the records between are missing", index, s.last)
	case index <= s.base:
		if s.solid {
			return fmt.Errorf("entry %d at or below snapshot %d", index, s.base)
		}
		s.base, s.baseTerm, s.last, s.runs = index-1, 0, index-1, s.runs[:0]
	}
	if prev := s.term(index - 1); term < prev {
		return fmt.Errorf("entry %d of term %d follows one of term %d", index, term, prev)
	}
	for len(s.runs) > 0 && s.runs[len(s.runs)-1].first >= index {
		s.runs = s.runs[:len(s.runs)-1]
	}
	if len(s.runs) == 0 || s.runs[len(s.runs)-1].term != term {
		s.runs = append(s.runs, run{index, term})
	}
	s.seen, s.entered, s.last = true, true, index
	if s.hs.commit > s.last {
		return fmt.Errorf("entry %d is the last, but commit is %d", index, s.hs.commit)
	}
	s.commitOK = max(s.commitOK, s.hs.commit)
	return nil
}

// state applies a hard state record.
func (s *shape) state(h hardState) error {
	old := s.hs
	switch {
	case h.term == 0:
		return fmt.Errorf("hard state without a term")
	case h.term < old.term:
		return fmt.Errorf("hard state of term %d after term %d", h.term, old.term)
	case h.term == old.term && old.vote != 0 && h.vote != old.vote:
		return fmt.Errorf("second vote in term %d: %x, then %x", h.term, old.vote, h.vote)
	case h.term < s.lastTerm():
		return fmt.Errorf("hard state of term %d after an entry of term %d", h.term, s.lastTerm())
	case h.commit < s.commitOK:
		return fmt.Errorf("commit falls from %d to %d", s.commitOK, h.commit)
	case s.entered && h.commit > s.last:
		return fmt.Errorf("commit %d is above the last entry %d", h.commit, s.last)
	}
	s.hs = h
	if !s.seen || h.commit <= s.last {
		s.commitOK = max(s.commitOK, h.commit)
	}
	return nil
}

// markerKind says what a marker means to the log as it is.
type markerKind int

const (
	markerOld   markerKind = iota // below the start of the log: no use any more
	markerOwn                     // of an entry of the log
	markerReset                   // not in the log: another node's snapshot, it replaces everything
)

// kind tells a marker of the log from another node's. The writer sees to it that
// the hard state before the former has its index as committed, before the latter
// never; so a replay knows them apart even where it does not know the entries.
func (s *shape) kind(index, term uint64) (markerKind, error) {
	switch {
	case !s.seen || index > s.commit() && !s.has(index, term):
		return markerReset, nil
	case index < s.base:
		return markerOld, nil
	case index == s.base && s.baseTerm == 0 || s.has(index, term):
		return markerOwn, nil
	case !s.entered && index > s.base:
		return markerReset, nil // the entries between two snapshots of a released head
	}
	return 0, fmt.Errorf("snapshot marker %d of term %d contradicts a committed entry of term %d", index, term, s.term(index))
}

// marker applies a marker record.
func (s *shape) marker(index, term uint64) (markerKind, error) {
	k, err := s.kind(index, term)
	if err != nil {
		return 0, err
	}
	if index > 0 && term == 0 || term > s.hs.term {
		return 0, fmt.Errorf("snapshot marker %d of term %d in term %d", index, term, s.hs.term)
	}
	switch k {
	case markerOwn:
		if index > s.hs.commit && index > s.commitOK {
			return 0, fmt.Errorf("snapshot marker %d above commit %d", index, s.hs.commit)
		}
		if index == s.base && s.baseTerm == 0 {
			s.baseTerm = term
		}
	case markerReset:
		s.seen, s.solid = true, true
		s.base, s.baseTerm, s.last = index, term, index
		s.runs = s.runs[:0]
		// A snapshot holds committed state only, so its marker raises commit, whether
		// or not the hard state that says so was written behind it.
		s.commitOK = max(s.commitOK, index)
	}
	if s.hs.commit <= s.last {
		s.commitOK = max(s.commitOK, s.hs.commit)
	}
	return k, nil
}

// commit is the highest index known to be committed.
func (s *shape) commit() uint64 { return max(s.hs.commit, s.commitOK) }

func (s *shape) clone() shape {
	c := *s
	c.runs = append([]run(nil), s.runs...)
	return c
}
