// Package check judges what clients of a cluster saw. It holds no product code
// and talks to nobody: a driver records a History, this package says what in it
// breaks the contract.
//
// # Levels
//
//   - Accounting: nothing lost, invented, doubled, nothing handed out after its ack.
//   - Witness: every answer names the log entry that it reflects. The committed log,
//     merged from the nodes' files, is replayed in a naive machine (oracle.go) that
//     shares no code with the product's but the decoder; every answer must be what
//     the replay gives at that entry, and entries must be in an order that clocks
//     allow. It trusts no claim: a wrong index is a wrong result or a wrong order.
//   - Black box: order, false empty answers, overlapping leases, early timers, groups,
//     pauses and dead letters, from the clients' clocks alone.
//   - Topics: offsets, bytes, order, what was seen stays, cursors; also without the log.
//   - Linear: short windows in a general checker of linearizability (porcupine). What
//     an unknown outcome did there is taken from the replay.
//   - Chains: nodes that say they are at the same entry say the same running hash.
//
// # What a History must have
//
// One monotonic clock for all times. Each operation has one outcome: OK, Failed
// (surely without effect, now and later) or Unknown. Bodies are unique; a dequeue
// carries its mark as consumer, so that the log shows whose it is; a transaction has a
// job, a pause an end and a redrive a maximum that no other has. Clients do not
// retry behind the recorder's back, except with an idempotency key.
//
// Every checker returns Problems, each a breach that is certain. A run that tested
// too little is a breach as well (vacuous.go).
package check
