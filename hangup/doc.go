// Package hangup keeps the client connections of a front end and notices that
// a client left before its answer.
//
// The rule. A client is gone when its FIN or reset arrived before the first byte
// of its answer was written. A front end that is about to write what was handed
// out to a client leaves the receipts with the Conn; Write looks for a hang-up
// right before the system call that carries the first byte, and each hand-out
// ends in exactly one of two ways: counted as written, or given back. So a Write
// that begins with an answer of receipts must hold no other answer's before it.
//
// Who owns what. A Conn is served by one goroutine; Close alone may be called by
// others. Its receipts belong to whoever holds its lock. One goroutine waits on
// the epoll set of the connections whose clients wait.
//
// A client may also stop reading. What such clients hold together is bounded: see
// stalled.go. Above TLS an answer is larger than what the socket sees of it.
//
// The package knows no protocol: it sits below TLS, on the socket.
package hangup
