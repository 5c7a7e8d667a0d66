package respapi

import (
	"time"

	"raftq/fsm"
)

// Replica is what this package needs of a node. All methods may be called by
// many goroutines. Errors are *fsm.Error.
type Replica interface {
	// Do submits op and blocks until its answer: committed and applied here, with
	// fast on a leader appended. The replica owns op from the call on. A parked
	// dequeue returns without jobs when its wait is over, or when gone is closed.
	// Jobs that Do returns are the caller's: it writes them or calls GiveBack. An
	// error with Unknown may have been applied.
	Do(op fsm.Op, fast bool, timeout time.Duration, gone <-chan struct{}) (fsm.Result, error)
	// DoCopies is Do for an Enqueue that is answered when so many nodes have it on
	// their disks. Where they do not in time its jobs are taken back, if nobody got
	// one, and the error is CodeNotEnoughReplicas; else it is Unknown.
	DoCopies(op fsm.Op, copies int, timeout time.Duration) (fsm.Result, error)
	// Read runs f on the machine. f must be short, must not keep m, and may run
	// more than once: the last time counts.
	Read(how fsm.ReadHow, f func(m *fsm.Machine)) (fsm.Seen, error)
	// GiveBack returns hand-outs whose answer was not written. It never blocks.
	GiveBack(items []fsm.Item)
	// Started is nil once the log was replayed and the node is known to its cluster.
	Started() error
	// RemoveMember removes a node from the cluster.
	RemoveMember(id uint64, timeout time.Duration) error
	// SetLeaving makes the node one that leads no more and tells the others so, or
	// takes that back.
	SetLeaving(leaving bool)
	// Snapshot writes one, if there is something to write, and waits for it at most
	// so long; without a time it only begins.
	Snapshot(wait time.Duration) error
	// Members are the nodes of the cluster as this one knows them, itself among
	// them, sorted by id.
	Members() Members
}

// Members is a cluster.
type Members struct {
	Self   uint64 // id
	Leader uint64 // id, 0 = unknown
	Nodes  []Member
}

// Member is one node of a cluster.
type Member struct {
	ID      uint64
	Name    string
	RESP    string // host:port for clients of this protocol, "" = not known
	Learner bool
	Leaving bool // it asked clients to go elsewhere
	Alive   bool // heard of lately; always of itself
}
