package hangup

import (
	"math"
	"syscall"

	"golang.org/x/sys/unix"
)

// reserveMax is how many descriptors of the process are kept for what is not a
// client's connection: the log, snapshots, the other nodes, requests that are passed
// on. A log that cannot open its next file ends the process, so clients must not be
// able to take the last ones.
const reserveMax = 1024

// descriptors returns how many of the process's descriptors connections may take.
func descriptors() int {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return math.MaxInt
	}
	most := min(limit.Cur, math.MaxInt32)
	return int(most - min(reserveMax, most/2))
}

// scarce tells whether a new connection leaves too few descriptors. The kernel gives
// the lowest that is free, so its number says how many are in use, by whomever.
func (s *Conns) scarce(raw syscall.RawConn) (is bool) {
	err := raw.Control(func(fd uintptr) { is = fd >= uintptr(s.fds) })
	return err == nil && is
}
