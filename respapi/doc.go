// Package respapi serves raftq to clients of Disque: its protocol (RESP2), its
// commands, options, defaults, reply types, refusals and error words.
//
// A command's way: the reader (reader.go) takes all whole commands that a client
// has sent, a train. The one table (table.go) says how
// many arguments each has and what runs it. Commands of one kind that stand
// behind one another in a train share an op: sixteen pipelined ADDJOBs are one
// Enqueue and wait for one commit. Replies go out in the order of the commands.
// Refusals of the machine become error replies by one table (errors.go).
//
// Who owns what. A session belongs to the goroutine of its connection; others
// touch only what its lock guards (CLIENT LIST). Arguments are views of the
// reader's buffer: whatever reaches an op was copied, and an op belongs to the
// replica from Do on.
//
// The hang-up rule is package hangup's. A GETJOB's answer is the beginning of its
// Write, with its receipts left at the connection, so each hand-out is counted as
// written or given back.
//
// ASYNC and FASTACK ask for a fast answer: a leader gives it at its append. On
// another node they are answered at commit, which is later and stronger; HELLO
// names the leader first for clients that want the difference.
//
// The package never logs a job's body, and never changes state for a command
// that asks.
package respapi
