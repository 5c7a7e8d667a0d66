// Package client is the Go client of raftq.
//
//	c, err := client.New("h1:8080,h2:8080,h3:8080")
//	…
//	defer c.Close()
//	job, err := c.Enqueue(ctx, "mail", body, client.Priority(7))
//	…
//	err = c.Consume(ctx, "mail", func(ctx context.Context, job *client.Job) error {
//		return send(job.Body)
//	}, client.Concurrency(32))
//
// A Client talks to any node of a cluster and goes on to another when one is down,
// hung or cut off, so that the death of a node, of the leader too, is a pause and no
// error. A Consumer is a client that works: it takes jobs, keeps their leases while
// its handler runs, and acks them.
//
// # What is tried again
//
// A request that surely was not applied is sent to the next node at once, and to
// all of them again after a pause that grows, for a minute or until its context
// ends. One whose answer got lost, or that is answered with 504, may have been
// applied. It is sent again only if that can do no harm: reads; acks and extends,
// which do the same when done twice; dequeues, under an attempt id that gives the
// same jobs again; and everything else that has an Idempotency-Key, which the
// client makes itself. What is left is an error with Applied Unknown.
//
// Errors that say something of the queue and not of a node (full, paused, memory)
// are the caller's to know and are returned at once.
//
// # Errors
//
// A call that fails returns an *Error, with the server's stable code: compare it
// with errors.Is and the Err… constants. Calls with several items return a
// *BatchError when some of them failed; the others were done.
//
// # Who owns what
//
// A Client may be used by any number of goroutines. Bodies given to a call are read
// until it returns; bodies of jobs are the caller's.
//
// The package imports nothing but the standard library.
package client
