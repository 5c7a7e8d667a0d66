// Package consistency checks raftq's promises on real processes: real disks,
// real sockets, kill -9. It holds only tests; the simulator that checks the same
// promises under a virtual clock lives beside the code it drives, in raftnode.
//
// A recorder (record_test.go) notes every operation of every client with one
// monotonic clock; the checker (check_test.go) judges the whole history:
//
//   - no job whose enqueue was answered is lost, and none is invented or changed;
//   - no job is handed out after its ack was answered;
//   - nobody holds a job while another one's lease runs;
//   - an operation that was answered "not applied" never took effect.
//
// The suite (suite_*_test.go) puts every kind of operation and of fault together:
// nodes in network namespaces with disks of their own (package cluster) or file
// systems of ours (package faultfs), clients on all of them, faults from a catalogue,
// and the checkers of package check, which hold every answer against the replicated
// log. docs/testing.md says what that proves.
//
// The default run is short; RAFTQ_CONSISTENCY (make consistency-quick, consistency,
// consistency-long) makes the suite longer, and RAFTQ_CRASH_ROUNDS (make test-crash)
// the crash test.
package consistency
