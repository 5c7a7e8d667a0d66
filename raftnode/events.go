package raftnode

import (
	pb "go.etcd.io/raft/v3/raftpb"

	"raftq/fsm"
	"raftq/wal"
)

// reading is one look at the clocks: CLOCK_BOOTTIME in ns and the wall clock in
// ms. The core never looks itself.
type reading struct {
	boot int64
	wall int64
}

// Events. Each is handled by core.handle.
type (
	// submitted are client requests in arrival order.
	submitted struct{ reqs []*request }
	// hungup: the client of a request is gone.
	hungup struct{ req *request }
	// undelivered: answers with these hand-outs were not written.
	undelivered struct{ items []fsm.Item }
	// reading of the state, by a client.
	readAsked struct{ read *read }
	// received is a raft message of a peer; machine comes with MsgSnap.
	received struct {
		m       *pb.Message
		machine *fsm.Machine
	}
	// batchesCame are batches of another node, in order.
	batchesCame struct {
		from uint64
		data [][]byte
	}
	// appended: the log writer made these appends durable, in order.
	appended struct{ jobs []*appendJob }
	// unreachable and snapshotSent come from the transport.
	unreachable  struct{ id uint64 }
	snapshotSent struct {
		id uint64
		ok bool
	}
	// snapshotSaved: the file of a snapshotJob is whole and durable, or failed.
	snapshotSaved struct {
		job   *snapshotJob
		bytes int64
		err   error
	}
	// peerStatus is what a peer said of itself when it was asked at boot ns asked.
	peerStatus struct {
		status status
		asked  int64
	}
	// statusAsked wants the node's own status, for a peer.
	statusAsked struct {
		from  uint64
		reply func(status)
	}
	// viewAsked wants what /v1/cluster shows.
	viewAsked struct{ reply func(Status) }
	// changeAsked wants a change of the members, moveAsked another leader.
	changeAsked struct{ change *change }
	moveAsked   struct{ move *move }
	// snapshotAsked wants a snapshot at index or behind it, for a node that joins.
	snapshotAsked struct{ index uint64 }
	// transferAsked moves leadership away before a stop.
	transferAsked struct{}
	// leaveAsked refuses what waits and what comes: the node stops, or is drained.
	leaveAsked struct{}
	// stayAsked lets a drained node serve again.
	stayAsked struct{}
	// retreatAsked: clients should go elsewhere, or may come again.
	retreatAsked struct{ on bool }
	// failed: an I/O error ends the replica.
	failed struct{ err error }
)

// canWait tells whether an event only says that entries are safe: on a leader for
// whose entries nobody waits it can wait for the next turn.
func canWait(e any) bool {
	switch e := e.(type) {
	case appended:
		return true
	case received:
		switch e.m.GetType() {
		case pb.MsgAppResp:
			return !e.m.GetReject()
		case pb.MsgHeartbeatResp:
			return len(e.m.GetContext()) == 0
		}
	}
	return false
}

// appendJob is one MsgStorageAppend for the log writer.
type appendJob struct {
	m       *pb.Message
	base    wal.TimeBase // log time's base after these entries
	machine *fsm.Machine // of m.Snapshot; swapped in when the job is durable
	mark    *markJob     // instead of m: a snapshot of our own
	began   int64        // boot ns
}

// markJob puts the marker of our own snapshot into the log, then compacts.
type markJob struct {
	state  *pb.HardState
	marker wal.Marker
	keep   uint64 // entries above stay in memory for slow followers
}

// snapshotJob is a machine copy to write to a file.
type snapshotJob struct {
	machine *fsm.Machine
	pos     fsm.Position
	conf    *pb.ConfState
}

// outputs is what a step wants done. Slices are reused by the next step.
type outputs struct {
	sends     []*pb.Message // to peers, in order
	snapshots []*pb.Message // MsgSnap: with the file of that index
	appends   []*appendJob  // to the log writer, in order
	done      []*request    // answered: wake them
	reads     []*read       // answered
	snapshot  *snapshotJob
	dropped   []uint64     // received snapshots that raft ignored: their files are free
	ask       bool         // ask all peers for their status now
	members   []fsm.Member // the committed table, when it has changed
	gone      []uint64     // removed members that nobody needs any more
	wakeAt    int64        // boot ns: step then, something is kept back; 0 = nothing is
	lazy      bool         // nobody waits: what canWait says may wait for the next step
}
