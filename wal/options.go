package wal

import (
	"errors"
	"fmt"
	"sync"

	etcdwal "go.etcd.io/etcd/server/v3/storage/wal"
	"go.etcd.io/raft/v3/raftpb"
	"go.uber.org/zap"
)

// Limits and defaults.
const (
	// DefaultSegmentBytes is the size at which a segment is closed and the next
	// one begun. Two are preallocated at any time.
	DefaultSegmentBytes = 64 << 20

	segmentBytesMin = 4 << 10
)

// Options says where a log lies.
type Options struct {
	// Dir holds the segments and nothing else: etcd's package takes a directory
	// with a *.wal file for a log and removes the directory it creates one in.
	Dir string
	// NotePath is the side file of the lost-tail check, outside Dir.
	NotePath string
	// SegmentBytes is the same for all logs that a process has open at a time,
	// because etcd's package keeps it in a global. Default DefaultSegmentBytes.
	SegmentBytes int64
	// ArchiveDir takes released segments; if empty they are deleted.
	ArchiveDir string
	// BootID is this boot of the operating system: a BOOTTIME of another boot
	// means nothing.
	BootID [16]byte
	// Fresh: the log was just created, so that a missing note means nothing.
	Fresh  bool
	Logger *zap.Logger
}

// Marker says that a snapshot file for Index exists. ConfState is that of Index.
type Marker struct {
	Index, Term uint64
	ConfState   *raftpb.ConfState
}

// TimeBase is log time's base for the last stamped entry of the log.
type TimeBase struct {
	Index, Term uint64 // the entry
	StampMs     int64  // log time it carries
	BootNs      int64  // CLOCK_BOOTTIME when this node wrote it
}

// State is what Open found.
type State struct {
	Metadata  []byte
	Marker    Marker            // the snapshot to start from
	HardState *raftpb.HardState // Commit lies between Marker.Index and the last entry
	Entries   []*raftpb.Entry   // contiguous from Marker.Index+1
	// Base is log time's base as the note has it; nil if the note says nothing.
	// The log may go on behind it.
	Base *TimeBase
	// SameBoot is set if Base was written in this boot of the system, so that
	// its BootNs can be compared with the clock.
	SameBoot bool
	// TornTail is set if records after the note were torn, and cut.
	TornTail bool
	// Noted is set if a note confirmed the log; without one a lost tail would
	// not have been seen.
	Noted bool
}

func (o *Options) check() error {
	if o.Dir == "" || o.NotePath == "" {
		return errors.New("wal: Dir and NotePath must be set")
	}
	if o.SegmentBytes == 0 {
		o.SegmentBytes = DefaultSegmentBytes
	}
	if o.SegmentBytes < segmentBytesMin {
		return fmt.Errorf("wal: SegmentBytes %d is below %d", o.SegmentBytes, segmentBytesMin)
	}
	if o.Logger == nil {
		o.Logger = zap.NewNop()
	}
	return nil
}

// segmentSize guards etcd's global segment size: it may change only while this
// process has no log open, because an open log compares its offset with it and
// our position follows that comparison.
var segmentSize struct {
	sync.Mutex
	users int
}

func acquireSegmentSize(n int64) error {
	segmentSize.Lock()
	defer segmentSize.Unlock()
	if segmentSize.users > 0 && etcdwal.SegmentSizeBytes != n {
		return fmt.Errorf("wal: segment size %d asked for while a log with %d is open in this process",
			n, etcdwal.SegmentSizeBytes)
	}
	if etcdwal.SegmentSizeBytes != n {
		etcdwal.SegmentSizeBytes = n
	}
	segmentSize.users++
	return nil
}

func releaseSegmentSize() {
	segmentSize.Lock()
	defer segmentSize.Unlock()
	segmentSize.users--
}
