package respapi

import "time"

const (
	maxBodyDefault = 1 << 20 // bytes of one job's body
	commandSlack   = 1 << 20 // bytes of a command beyond a body
	argsMax        = 4096    // arguments of a command
	argsKept       = 8192    // those of a train for which a session keeps memory
	inlineMax      = 64 << 10
	connsDefault   = 10_000
	connsMax       = 1 << 20
	passwordMax    = 512
	slowlogMax     = 10_000
	cursorsMax     = 4096 // scans that go on
	scanDefault    = 100
	pageMax        = 1000     // of one look at the machine
	peekMax        = 100_000  // jobs of one QPEEK
	replyBytes     = 32 << 20 // after which a scan or a peek ends
	jobBytes       = 512      // of a job in one, without its body

	closePause  = 50 * time.Millisecond
	acceptPause = 50 * time.Millisecond

	bufferMin   = 4 << 10
	bufferKept  = 64 << 10 // a larger buffer is let go when it is empty
	trainMax    = 1024     // commands taken at once
	flushAt     = 256 << 10
	trainBytes  = 8 << 20 // bodies of one op
	wordsLogged = 128     // bytes of an argument, in logs and error replies

	timeoutDefault = 30 * time.Second // of commands that name none
	timeoutMin     = 100 * time.Millisecond
	timeoutMax     = 365 * 24 * time.Hour // stands for none
	// waitGrace is how long a GETJOB's commit may take beyond its wait.
	waitGrace = 5 * time.Second

	// Disque's rule for a job that does not say.
	ttlDefault  = 24 * 3600 // s
	retryShare  = 10        // of the TTL
	retryCapSec = 300
	replicas    = 3
)
