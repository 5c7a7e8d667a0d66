package fsm

// Limits that the edge checks before an op is packed, and the codec asserts.
const (
	NameMax       = 255           // bytes of a queue name
	BodyMax       = 16 << 20      // hard limit of a job's body
	HeadersMax    = 16 << 10      // names and values of a job's headers together
	BatchItemsMax = 1000          // items of one request
	BatchBytesMax = 8 << 20       // bodies of one request with several jobs, and of one hand-out, or one larger body
	KeyMax        = 128           // idempotency, dedup and unique keys
	QueuesMax     = 64            // queues of one dequeue
	ErrorTextMax  = 1024          // a nack's error text
	ConsumerMax   = 128           // a consumer's name
	LeaseMaxMs    = 12 * 3600_000 // 12 h
	LeaseDefault  = 60_000        // ms
	WaitMaxMs     = 55_000
	TTLMaxMs      = 10 * 365 * 86400_000 // 10 years
	DelayMaxMs    = 10 * 365 * 86400_000

	PriorityDefault    = 4
	MaxFailuresDefault = 20
	AtMostOnceTTLMs    = 86400_000
	DeadTTLMs          = 14 * 86400_000
	QueueIdleMs        = 5 * 60_000
	TombstonesMax      = 100_000
	TimersPerEntry     = 10_000 // timers fired and jobs reaped by one entry
	EpochsKept         = 32     // past epochs of a session, for fate
)
