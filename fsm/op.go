package fsm

// Kind is the wire number of an op. Numbers are never reused; a kind the
// build does not know stops the node ("older than its cluster").
type Kind uint8

const (
	KindNodeStart   Kind = 1  // batch 0 of an epoch
	KindNodeAway    Kind = 2  // leader: a node does not answer
	KindNodeBack    Kind = 3  // the marked node: I am here
	KindEnqueue     Kind = 4  // one or more jobs
	KindDequeue     Kind = 5  // hand out, or wait
	KindAck         Kind = 6  // done
	KindNack        Kind = 7  // failed: counts, may be delayed
	KindRelease     Kind = 8  // given back by the holder, uncounted
	KindExtend      Kind = 9  // new lease from now
	KindWithdraw    Kind = 10 // drop parked requests of the own epoch
	KindGiveBack    Kind = 11 // undelivered hand-outs of the own node
	KindDeleteQueue Kind = 12

	KindReject          Kind = 13 // dead at once
	KindSettle          Kind = 14 // a mixed list of acks, nacks and so on
	KindTx              Kind = 15 // several ops, all or none
	KindKeyed           Kind = 16 // an op under an idempotency key
	KindRequeue         Kind = 17 // ready now
	KindHold            Kind = 18 // not handed out until requeued
	KindCancel          Kind = 19 // the worker is asked to stop
	KindDeleteJobs      Kind = 20
	KindWithdrawJobs    Kind = 21 // not replicated in time
	KindPurge           Kind = 22 // drop a queue's jobs by state
	KindRedrive         Kind = 23 // dead jobs back
	KindPause           Kind = 24
	KindConfigure       Kind = 25
	KindReleaseConsumer Kind = 26 // give back all that a consumer holds
	KindAlarm           Kind = 27 // the own node's disk

	KindAppend         Kind = 28 // messages at a topic's end
	KindConfigureTopic Kind = 29
	KindDeleteTopic    Kind = 30
	KindPurgeTopic     Kind = 31
	KindSetCursor      Kind = 32 // a consumer's position in a topic

	KindMember Kind = 33 // leader: a change of the member table

	kindEnd Kind = 34
)

// Op is one command of a batch: what one request asks for. The concrete types
// are the pointer types of op.go, nested.go, manage.go and topicop.go. An Op belongs to its maker until it is
// handed to a replica, and is read-only from then on (it may be encoded again).
type Op interface {
	Kind() Kind
	// appendFields appends the op's fields, without kind and length.
	appendFields(b []byte) []byte
	// size is an upper bound of what appendFields appends, in bytes.
	size() int
	// decode reads what appendFields wrote, into the memory of the op that was
	// there before. It is true when a newer build wrote it.
	decode(f *fields) (newer bool)
	// release forgets what the op was decoded from and keeps its slices.
	release()
}

// Size returns an upper bound of the bytes that op takes in a batch.
func Size(op Op) int { return op.size() + opHeaderSize }

// Header is one user header of a job. Lists are sorted by name at the edge and
// names are unique.
type Header struct{ Name, Value string }

// NodeStart registers the epoch of its batch for the batch's origin. It drops
// the waiters of the origin's older epochs. Refused (CodeEpochTaken) when
// another session or any job carries the epoch, or the origin is no member or
// has an epoch with the same or a higher boot counter.
type NodeStart struct {
	Client       string // advertised client address, host:port
	Peer         string // advertised peer URL
	Version      string // build version, for people
	FeatureLevel uint32
	MaxMemory    int64 // --max-memory in bytes, 0 = none
}

// NodeAway marks the session of Node as away: its waiters keep their places
// but are passed over. Only in batches of origin 0. No effect when Epoch is not
// the session's.
type NodeAway struct{ Node, Epoch uint64 }

// NodeBack clears the mark of its batch's origin.
type NodeBack struct{}

// Enqueue adds jobs, in order. Job i gets the id (batch epoch, First+i).
type Enqueue struct {
	First  uint64 // id counter of the first job, set by the replica
	Atomic bool   // all or none
	Jobs   []NewJob
}

// NewJob is what a client says of one job. Zero values mean "not said".
type NewJob struct {
	Queue       string
	Body        []byte
	Headers     []Header
	Priority    uint8 // 0–9, higher first; the edge fills in the default 4
	AtMostOnce  bool
	DelayMs     int64  // from the entry's log time; 0 = none
	AtMs        int64  // absolute log time; used when DelayMs is 0
	LeaseMs     int64  // the job's own default lease; 0 = queue's, then 60 s
	TTLMs       int64  // 0 = none (1 day for at most once)
	MaxFailures int32  // -1 = never dead, 0 = the queue's (default 20)
	Group       string // at most one of a group is leased at a time; "" = none
	DedupID     string // within DedupTTLMs another job with it in this queue is the same job: Duplicate
	DedupTTLMs  int64  // 0 = 5 min
	UniqueKey   string // refused (CodeNotUnique) while a job of the queue with it is not done
	MaxLen      int64  // this call's own limit on the queue's length (CodeQueueFull); 0 = none
}

// Dequeue hands out up to Max ready jobs of the queues, left to right. With
// WaitMs and nothing ready it becomes a waiter until log time + WaitMs.
type Dequeue struct {
	Request  uint64 // number of the request within its epoch, set by the replica
	Queues   []string
	Max      int32
	LeaseMs  int64 // 0 = job's, queue's, 60 s
	WaitMs   int64
	Consumer string
	// AttemptID makes a repeated dequeue harmless: the same id of the same list of
	// queues again, while one of its leases lives, gets the same jobs with the same
	// receipts and hands out nothing new. At most KeyMax bytes; "" = none.
	AttemptID string
}

// Item names a job in Ack, Nack, Release, Reject, Extend and Settle: by receipt (Grant and Tag
// count) or, with ByID, by id alone.
type Item struct {
	Key     Key
	ByID    bool
	Grant   uint32
	Tag     uint64
	DelayMs int64  // Nack: -1 = not said (the queue's backoff decides)
	LeaseMs int64  // Extend: new lease from now; 0 = the length it had
	Error   string // Nack, Reject: kept as the job's last error
}

// Ack ends jobs: they are gone, and a tombstone remembers them for a while.
type Ack struct{ Items []Item }

// Nack gives jobs back as failed; dead at max_failures.
type Nack struct{ Items []Item }

// Release gives jobs back uncounted as failures (the delivery still counts).
type Release struct{ Items []Item }

// Reject makes leased jobs dead at once, with the reason "rejected"
// ("at_most_once" for at-most-once jobs).
type Reject struct{ Items []Item }

// Extend sets new leases from the entry's log time.
type Extend struct{ Items []Item }

// Withdraw drops parked requests of the batch's own epoch. A request that is
// not parked (already served, or unknown) is skipped.
type Withdraw struct{ Requests []uint64 }

// GiveBack returns hand-outs whose answer was never written: the jobs take
// their old places and the deliveries are uncounted. Allowed for at-most-once
// jobs too. Items whose grant or tag does not match are skipped.
type GiveBack struct{ Items []Item }

// DeleteQueue removes a queue: refused with CodeQueueNotEmpty unless Force
// when it holds jobs in any state.
type DeleteQueue struct {
	Queue string
	Force bool
}
