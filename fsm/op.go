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
)

// Op is one command of a batch: what one request asks for. The concrete types
// are the pointer types of this file. An Op belongs to its maker until it is
// handed to a replica, and is read-only from then on (it may be encoded again).
type Op interface {
	Kind() Kind
	// appendFields appends the op's fields, without kind and length.
	appendFields(b []byte) []byte
	// size is an upper bound of what appendFields appends, in bytes.
	size() int
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
	DelayMs     int64 // from the entry's log time; 0 = none
	AtMs        int64 // absolute log time; used when DelayMs is 0
	LeaseMs     int64 // the job's own default lease; 0 = queue's, then 60 s
	TTLMs       int64 // 0 = none (1 day for at most once)
	MaxFailures int32 // -1 = never dead, 0 = the queue's (default 20)
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
}

// Item names a job in Ack, Nack, Release and Extend: by receipt (Grant and Tag
// count) or, with ByID, by id alone.
type Item struct {
	Key     Key
	ByID    bool
	Grant   uint32
	Tag     uint64
	DelayMs int64  // Nack: -1 = not said (the queue's backoff decides)
	LeaseMs int64  // Extend: new lease from now; 0 = the length it had
	Error   string // Nack: kept as the job's last error
}

// Ack ends jobs: they are gone, and a tombstone remembers them for a while.
type Ack struct{ Items []Item }

// Nack gives jobs back as failed; dead at max_failures.
type Nack struct{ Items []Item }

// Release gives jobs back uncounted as failures (the delivery still counts).
type Release struct{ Items []Item }

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
