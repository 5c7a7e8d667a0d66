package httpapi

import (
	"time"

	"raftq/fsm"
)

// Replica is what this package needs of a node. All methods may be called by
// many goroutines. Errors are *fsm.Error.
type Replica interface {
	// Do submits op and blocks until its answer: committed and applied here.
	// The replica owns op from the call on. A parked dequeue (WaitMs > 0)
	// returns when it is served, with CodeOK and no jobs when the wait is over
	// (that is a 204), or when gone is closed: then it returns without jobs, and
	// whatever the op is handed later is given back by the replica. Jobs that Do
	// returns are the caller's, even when gone is closed by then: it writes them
	// or calls GiveBack. gone may be nil. timeout is at least WaitMs and bounds
	// how long an op may stay uncommitted. An error with Unknown may have been
	// applied.
	// With fast, a leader answers at its append when all that the answer stands on
	// is committed (Result.Fast says so); else it is answered like any other.
	Do(op fsm.Op, fast bool, timeout time.Duration, gone <-chan struct{}) (fsm.Result, error)

	// DoCopies is Do for an op that adds jobs and is answered when so many members
	// have it on disk. When it is not so in time, the jobs are withdrawn: an item's
	// code is CodeNotEnoughReplicas then, or CodeCommitTimeout when the job was handed
	// out before. The answer can come some seconds after timeout. A leader is the
	// quickest to tell.
	DoCopies(op fsm.Op, copies int, timeout time.Duration) (fsm.Result, error)

	// Await blocks until a job has ended, and says how; EndNone when that did not
	// happen in time, or gone is closed. CodeJobNotFound: nothing is known of it.
	Await(key fsm.Key, timeout time.Duration, gone <-chan struct{}) (fsm.JobEnd, fsm.Seen, error)

	// QueueConsistency is a queue's default for requests that do not say, as this
	// node knows it; 0 when it has none. It must be cheap.
	QueueConsistency(queue []byte) uint8

	// TopicConsistency is QueueConsistency for a topic.
	TopicConsistency(topic []byte) uint8

	// Growth tells of a topic's growth, and of that of one that does not exist yet.
	// grown gets an index, the newest alone, whenever a read with that MinIndex may
	// show more than a read that began after the call did, or 0 to say: look again.
	// stop must be called.
	Growth(topic string) (grown <-chan uint64, stop func(), err error)

	// Read runs f on the machine. f must be short, must not keep m, runs on the
	// core's goroutine, and may run more than once: the last time counts.
	Read(how fsm.ReadHow, f func(m *fsm.Machine)) (fsm.Seen, error)

	// GiveBack returns hand-outs whose answer was not written. It never blocks
	// and keeps trying until it is committed or the process ends.
	GiveBack(items []fsm.Item)

	Name() string
	Leader() string // name of the leader as known here, "" when unknown
	// LeaderClient is the leader's client address, "" when that is this node or
	// nobody is known.
	LeaderClient() string
	// Ready is nil when a leader is known and an entry of its term is applied.
	Ready() error
	// Started is nil once the log was replayed and the node's epoch is registered.
	Started() error
	Cluster() Cluster
	Membership
}

// Cluster is what GET /v1/cluster shows, with the JSON names of the API.
type Cluster struct {
	ClusterID    string        `json:"cluster_id"`
	Leader       string        `json:"leader"`
	Term         uint64        `json:"term"`
	CommitIndex  uint64        `json:"commit_index"`
	FeatureLevel uint32        `json:"feature_level"`
	Nodes        []ClusterNode `json:"nodes"`
}

// ClusterNode is one member. Match, applied index and chain are the last that
// this node heard.
type ClusterNode struct {
	Name         string `json:"name"`
	ID           string `json:"id"`
	Role         string `json:"role"`    // voter | learner
	Standby      bool   `json:"standby"` // a learner that becomes a voter only when it is promoted
	Leader       bool   `json:"leader"`
	Client       string `json:"client"`
	Peer         string `json:"peer"`
	MatchIndex   uint64 `json:"match_index"`
	AppliedIndex uint64 `json:"applied_index"`
	Chain        Chain  `json:"chain"`
	Version      string `json:"version"`
	Alive        bool   `json:"alive"`
	Draining     bool   `json:"draining"` // it serves nobody
}

// Chain is the running hash of a node's machine at an index.
type Chain struct {
	Index uint64 `json:"index"`
	Hash  string `json:"hash"`
}
