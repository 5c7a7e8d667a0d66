// Package raftnode is one replica: it gathers its clients' operations into
// batches, orders them with the other members through raft, applies the log to
// the machine (package fsm), and answers each client once its own machine has
// applied the entry.
//
// # Owners
//
// The core (type core) is a plain value: step takes events and a reading of the
// clocks, and returns outputs; it does no I/O, starts no goroutine and reads no
// clock, so a simulator drives the very same code. It alone owns raft's RawNode,
// the machine and every waiting request. Node gives it a goroutine, two
// mailboxes and real outputs:
//
//   - one goroutine at a time runs the core: its own, or that of a fast request, a
//     peer's message or a finished write that finds it at rest, so that none needs
//     to be woken;
//   - one log writer owns the write-ahead log and appends to raft's storage;
//   - rafthttp's goroutines carry messages;
//   - a snapshot writer works on a copy of the machine;
//   - received snapshots are verified and decoded in rafthttp's handler.
//
// The mailbox for clients is bounded (full means overloaded, and nothing was
// applied); the internal one never blocks its sender and is bounded by raft's own
// limits.
//
// # Batches
//
// A node numbers its batches within its epoch (one process life) and has at most
// inflightMax of them unapplied; the next one closes when a place frees. Each is
// addressed to a term and sent to that term's leader. It is sent again, in
// order, whenever the leader changes or nothing moves, until the node's own
// machine has applied it: the machine's session table makes that exactly once.
// An op that was packed is never refused; at its deadline it is answered as
// unknown and its batch goes on.
//
// # Files
//
//	core.go      the core: a turn, raft's Ready, roles
//	events.go    what goes into a turn and what comes out
//	origin.go    this node's own batches
//	parked.go    dequeues that wait, hang-ups, hand-outs nobody took
//	leader.go    what only a leader does: filter, stamp, timers, node away
//	clock.go     log time
//	reads.go     linearizable reads
//	apply.go     committed entries, snapshots taken and installed
//	speculate.go a leader's machine ahead of the commit, and back
//	fast.go      answers before the commit
//	members.go   the member table and raft's configuration
//	change.go    changes of the members, on the leader
//	vet.go       which of them are refused, and when a learner has caught up
//	membership.go  changes of the members, as front ends ask for them
//	join.go      the data directory of a new node
//	rejoin.go    a damaged log is set aside, and the node comes back as a new member
//	lend.go      snapshots for nodes that join
//	status.go    what members tell each other, and show
//	rawnode.go   raft, asked no more than needed, given proposals together
//	hardstate.go raft's promises on their way to the log
//	outbox.go    what leaves the core, and when
//	node.go      goroutines and mailboxes around the core
//	turn.go      who runs the core
//	writer.go    the log writer
//	transport.go peers: rafthttp, snapshots, status
//	boot.go      data directory: genesis, restart, epochs
package raftnode
