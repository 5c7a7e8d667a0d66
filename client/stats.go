package client

import "sync/atomic"

// ConsumerStats is what a consumer did so far. A job that was taken ends in one of
// Acked, Nacked, Released, Rejected and LeaseLost, or was Unsettled.
type ConsumerStats struct {
	Taken       uint64 // jobs handed out to it
	Redelivered uint64 // of these, not for the first time
	Handled     uint64 // times that the handler ended
	Panics      uint64 // of these, by a panic

	Acked     uint64 // also jobs that were cancelled
	Late      uint64 // of these, after the lease, which nobody else had
	Nacked    uint64
	Released  uint64
	Rejected  uint64
	LeaseLost uint64 // somebody else has it, or it is gone
	Unsettled uint64 // no node took the answer in time: the job comes again

	Extended  uint64 // leases
	Cancelled uint64 // jobs that somebody asked to stop
	Polls     uint64 // requests for jobs that were answered
	Failures  uint64 // requests of any kind that failed for good and were made anew

	Queued   int // jobs taken and not begun, now
	Running  int // jobs worked on, now
	Settling int // jobs whose ack (or the like) is not answered, now
}

// consumerStats is ConsumerStats while it is counted.
type consumerStats struct {
	taken, redelivered, handled, panics                           atomic.Uint64
	acked, late, nacked, released, rejected, leaseLost, unsettled atomic.Uint64
	extended, cancelled, polls, failures                          atomic.Uint64
	queued, running, settling                                     atomic.Int64
}

// Stats returns what the consumer did so far.
func (k *Consumer) Stats() ConsumerStats {
	s := &k.stats
	return ConsumerStats{
		Taken: s.taken.Load(), Redelivered: s.redelivered.Load(), Handled: s.handled.Load(), Panics: s.panics.Load(),
		Acked: s.acked.Load(), Late: s.late.Load(), Nacked: s.nacked.Load(), Released: s.released.Load(), Rejected: s.rejected.Load(),
		LeaseLost: s.leaseLost.Load(), Unsettled: s.unsettled.Load(),
		Extended: s.extended.Load(), Cancelled: s.cancelled.Load(), Polls: s.polls.Load(), Failures: s.failures.Load(),
		Queued: int(s.queued.Load()), Running: int(s.running.Load()), Settling: int(s.settling.Load()),
	}
}
