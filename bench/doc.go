// Package bench is raftq's load generator and its reports. It speaks HTTP like
// any client and knows nothing of the server's packages, so that its numbers
// are those of a user.
//
// Run carries out one Config: it finds the nodes, opens the connections, warms
// up, measures, and returns a Result. A Report holds Results side by side, in
// groups; WriteTable, WriteHTML, WriteMarkdown and JSON show it.
//
// How it measures:
//
//   - Each connection is one goroutine with its own buffers (client.go). It
//     writes one or more requests at once and reads their answers in order, so
//     pipelining needs no second goroutine. Nothing is allocated per request.
//   - Closed loop: a connection sends again when it was answered. Open loop: a
//     schedule gives out sending times (schedule.go), and a latency counts from
//     the time at which the request should have been sent, so a slow server
//     cannot hide behind a slow generator.
//   - Latencies go into HDR histograms (recorder.go), three digits exact,
//     taken out once a second for the course over time.
//   - What was sent before the end of the warm-up is not counted. What was sent
//     within the measured time is, however late it was answered. Rates count
//     answers within the measured time.
//   - No error is hidden: each is counted by operation and code, and a lost
//     answer counts for every request that waited on that connection.
//
// A job's body begins with a tag of the run, the job's number and its sending
// time (body.go): that gives the time from producer to consumer, and lets
// Config.Check prove that every job was delivered and acked once (ledger.go).
//
// It never keeps a run going without a bound: duration, requests and the time
// for answers are all limited, and the queues it made are deleted at the end.
package bench
