package httpapi

import (
	"time"

	"raftq/fsm"
)

// Limits of this front end; those of ops are in package fsm.
const (
	maxBodyDefault = 1 << 20  // bytes of one job's body
	requestSlack   = 1 << 20  // bytes of a request beyond its jobs' bodies
	headBytesMax   = 16 << 10 // request line and header fields
	connsDefault   = 64 << 10
	writeBuffer    = 4 << 10

	readTimeout = 30 * time.Second // a whole request, from its first byte
	idleTimeout = 2 * time.Minute  // between requests of a connection

	timeoutDefault = 30 * time.Second
	timeoutMax     = 55 * time.Second
	// waitGrace is how long a dequeue's commit may take beyond its wait.
	waitGrace = 5 * time.Second

	// withdrawMax is how long taking jobs back may take that did not get the copies
	// they asked for.
	withdrawMax = 5 * time.Second

	listDefault = 100
	listMax     = 1000
	jsonDepth   = 64

	jobsGaugeQueues = 100     // queues with a series of their own
	jobsGaugeScan   = 100_000 // queues looked at for that
	jobsGaugePage   = 1000    // queues of one read

	replicateMax = 1000 // more than any cluster's members

	headerNameMax = 128 // bytes of a job header's name
	headersMax    = 256 // headers of a job
)

// requestBytesMax bounds a request's body: a batch of the largest size, or one
// job of the largest size, as base64 and with an envelope around it.
func requestBytesMax(maxBody int) int {
	return max(maxBody, fsm.BatchBytesMax)/3*4 + requestSlack
}
