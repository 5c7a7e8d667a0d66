// Package cluster runs real raftq processes on loopback: it starts, kills,
// stops and restarts them, waits until they serve, and says who leads. The
// commands local and demo use it, and so do the tests that break things.
//
// Isolated nodes (Options.Isolated; root only) run in network namespaces of their
// own, on disk images of their own: links between them can be cut (Network) and
// power too (Cluster.PowerCut, Disk).
//
// A Cluster owns its processes, with the namespaces and disks of isolated ones, and
// nothing else: it signals only children of its own that it has not reaped yet, so
// a process id that was used again is never hit. Each child runs in a process group of its own (Ctrl-C in the
// terminal reaches the parent alone) and dies with the parent.
//
// On disk, below Options.Dir: a data directory for each node (n1, n2, …), its
// log (n1.log, …; appended to at a restart) and the file "pids" with a line
// "pid starttime name" for each running process; starttime is field 22 of
// /proc/PID/stat, which tells a process from a later one with the same id.
//
// The package speaks HTTP to the nodes and imports no other package of raftq.
// It never waits by sleeping for a fixed time; it polls a condition, and an
// ended process ends the wait with the last lines of its log.
package cluster
