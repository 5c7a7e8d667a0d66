// Package httpapi serves raftq over HTTP: it turns requests into ops, hands
// them to a replica, and turns results into answers.
//
// A request's way: Serve's listener wraps each connection (package hangup), the one
// table of routes (routes.go) finds the handler, options are parsed by one
// switch for query, JSON and frames alike (options.go), the handler builds an
// op and submits it (call.go), and writes JSON, NDJSON, frames or raw bytes
// (delivered.go). Handlers return errors; one place (problem.go) turns them
// into problem+json by the one table of codes.
//
// Who owns what. A call belongs to the goroutine of its connection and is
// reused after the answer. Bytes of a request are fasthttp's: whatever reaches
// an op was copied, and an op belongs to the replica from Do on.
//
// The hang-up rule is package hangup's: a dequeue leaves the receipts of its
// answer with the connection, and each hand-out is counted as written or given
// back to the replica. Every answer is flushed on its own, so a Write never
// carries bytes of two answers.
//
// Readers of topics wait on the replica's word that one has grown (messages.go). An
// answer that goes on (tail.go) is read by its connection's goroutine, a page at a
// time, after the call it came from is over: it holds nothing of it.
//
// The package never changes state on GET, never answers 503 for something
// that may have been applied, and never logs a body.
package httpapi
