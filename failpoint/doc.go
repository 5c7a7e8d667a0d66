// Package failpoint lets tests end a node at a chosen point of its code, and set its
// wall clock wrong. A build with the tag "failpoints" has both; in every other one
// the functions are empty and compile away, and the variables below are refused at the
// start like any that no setting is named after.
//
//	RAFTQ_FAILPOINT=name[:n]      the process ends, with status Status, at the n-th hit
//	                              (the first, if n is not said): at once, as by kill -9
//	RAFTQ_CLOCK_OFFSET_FILE=path  what the file says, in ms, is added to the wall clock;
//	                              it is looked at every few milliseconds
//
// It imports nothing of ours, and whoever writes files or sends may import it.
package failpoint

// Status is what a process ends with at a failpoint.
const Status = 86

// The points, each at the place in the code that it is named after.
const (
	LogBeforeWrite   = "log.before-write"   // a group of appends, before anything of it is written
	LogSynced        = "log.synced"         // the log is synced, the note does not say so yet
	LogWritten       = "log.written"        // synced, and nobody knows
	LogBeforeMarker  = "log.before-marker"  // the hard state of a snapshot's marker is written, the marker is not
	LogAfterMarker   = "log.after-marker"   // the marker is written, what follows it is not
	LogNewSegment    = "log.new-segment"    // a segment has begun
	LogReleased      = "log.released"       // one segment is gone, others may have to follow
	SnapshotWritten  = "snapshot.written"   // the temporary file is whole, not synced
	SnapshotSynced   = "snapshot.synced"    // and synced
	SnapshotRenamed  = "snapshot.renamed"   // and under its name, the directory not synced
	SnapshotDurable  = "snapshot.durable"   // and that
	SnapshotMarked   = "snapshot.marked"    // the log has the marker, nothing is released
	SnapshotPruning  = "snapshot.pruning"   // the log is released, old files are still there
	InstallReceived  = "install.received"   // a snapshot came and is decoded, raft has not heard of it
	InstallUnmarked  = "install.unmarked"   // raft has taken it, the log has not
	InstallMarked    = "install.marked"     // the log begins with it, raft's storage does not
	InstallSwapped   = "install.swapped"    // the machine is that of the snapshot
	SendBefore       = "send.before"        // messages to others are ready
	ReplyBefore      = "reply.before"       // operations are applied, their clients do not know
	ConfBeforeApply  = "conf.before-apply"  // a change of members is committed, raft does not know
	ConfAfterApply   = "conf.after-apply"   // raft knows
	BootLogOpen      = "boot.log-open"      // a start has opened the log
	BootCounterSaved = "boot.counter-saved" // and has counted itself
)

// Points are all of them.
var Points = []string{
	LogBeforeWrite, LogSynced, LogWritten, LogBeforeMarker, LogAfterMarker, LogNewSegment, LogReleased,
	SnapshotWritten, SnapshotSynced, SnapshotRenamed, SnapshotDurable, SnapshotMarked, SnapshotPruning,
	InstallReceived, InstallUnmarked, InstallMarked, InstallSwapped,
	SendBefore, ReplyBefore, ConfBeforeApply, ConfAfterApply, BootLogOpen, BootCounterSaved,
}
