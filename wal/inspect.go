package wal

// Report is what Inspect finds in a log.
type Report struct {
	Segments  []SegmentReport
	Metadata  []byte
	Term      uint64
	Vote      uint64
	Commit    uint64
	First     uint64 // first and last entry; First > Last: none
	Last      uint64
	LastTerm  uint64
	Markers   []Marker // in file order
	HasNote   bool     // a valid note exists
	Note      NoteReport
	Confirmed bool  // the note fits the log
	TornTail  bool  // Open would cut something behind the last record
	Err       error // why Open would refuse the log; nil: it would not
}

// SegmentReport is one file.
type SegmentReport struct {
	Name    string
	Bytes   int64 // of the file
	Used    int64 // of its records
	Records int
}

// NoteReport is the note's content.
type NoteReport struct {
	Sequence           uint64
	Segment            uint64
	Offset             int64
	CRC                uint32
	Term, Vote, Commit uint64
	Last, LastTerm     uint64
	Base               TimeBase
	BootID             [16]byte
}

// Inspect reads a log and changes nothing. The log may be of a running replica;
// then it can appear torn at its end. An error means that it could not be read
// or is not there.
func Inspect(opts Options) (*Report, error) {
	if err := opts.check(); err != nil {
		return nil, err
	}
	n, err := readNote(opts.NotePath)
	if err != nil {
		return nil, err
	}
	s, err := scanLog(opts.Dir, n)
	if err != nil {
		return nil, err
	}
	r := &Report{
		Metadata: s.metadata,
		Term:     s.shape.hs.term, Vote: s.shape.hs.vote, Commit: s.shape.commit(),
		First: s.shape.base + 1, Last: s.shape.last, LastTerm: s.shape.lastTerm(),
		Markers: s.markers, Confirmed: s.noteFound && s.noteDiff == "",
	}
	r.TornTail, r.Err = s.judge()
	if r.Err == nil {
		_, _, r.Err = s.choose(nil)
	}
	for _, g := range s.segments {
		r.Segments = append(r.Segments, SegmentReport{g.name, g.size, g.used, g.records})
	}
	if n != nil {
		r.HasNote = true
		r.Note = NoteReport{
			Sequence: n.sequence, Segment: n.segment, Offset: n.offset, CRC: n.crc,
			Term: n.hs.term, Vote: n.hs.vote, Commit: n.hs.commit,
			Last: n.last, LastTerm: n.lastTerm, Base: n.base, BootID: n.bootID,
		}
	}
	return r, nil
}
