// Package fsm is the deterministic machine of raftq: queues, jobs, leases,
// waiters, topics, timers and sessions as a pure function of the log.
//
// Batches go in by Machine.Apply, one per log entry, and come out as results
// for the node that sent them. The package also owns the wire form of batches
// (docs/format-log.md) and of the encoded state (docs/format-state.md).
//
// # Ownership
//
// A Machine belongs to one goroutine. Copy gives a second one in O(1): the
// B-trees are copy-on-write, and the records they point to carry the stamp of
// the machine that may change them. A record with another stamp is shared: it is
// copied before the first change (ownJob, ownQueue, ownSession). So a copy never
// changes by what its original does, and may be read or encoded elsewhere
// meanwhile.
//
// What results hold (bodies, texts) is immutable and may outlive the machine;
// slices in results belong to the caller. Entry data is not kept.
//
// # Invariants
//
//   - Only the tree of jobs holds jobs; other indexes hold keys.
//   - A queue never has both a job to hand out and a waiter, after any op.
//   - What indexes hold of a job changes only while the job is in none of them:
//     between take and place.
//   - No entry sweeps more than SweepMax jobs, whatever its ops ask for.
//   - After an entry every timer is later than the machine's time.
//   - A grant number of a job is used once. A receipt acts only on the hand-out
//     that it proves.
//   - Sums (bytes, totals, states) equal what a count would give. Check counts.
//   - Equal logs give equal machines, chains and encoded bytes, whatever was
//     copied, encoded or restored on the way.
//
// # What it never does
//
// It reads no clock, draws no random number, starts no goroutine, takes no
// lock, does no I/O but what Encode and Decode are given, uses no floats, and
// lets no map order reach anything that leaves it.
package fsm
