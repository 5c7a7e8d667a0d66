package fsm

// Limits that the edge checks before an op is packed, and the codec asserts.
const (
	NameMax       = 255           // bytes of a queue name
	BodyMax       = 16 << 20      // hard limit of a job's body
	HeadersMax    = 16 << 10      // names and values of a job's headers together
	BatchItemsMax = 1000          // items of one request
	BatchBytesMax = 8 << 20       // bodies of one request with several jobs, and of one hand-out, or one larger body
	KeyMax        = 128           // idempotency, dedup and unique keys
	KeyedMax      = 640           // scope and idempotency key of a Keyed
	NestedMax     = 32 << 20      // bytes of an op within a Keyed or Tx
	ReasonMax     = 64            // a redrive's dead reason
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
	TimersPerEntry     = 10_000  // timers fired and jobs reaped by one entry
	EpochsKept         = 32      // past epochs of a session, for fate
	CursorsMax         = 1000    // cursors of a topic
	TopicBytesDefault  = 1 << 30 // that a topic keeps when its configuration says nothing
	SweepMax           = 10_000  // jobs of one purge, redrive or release of a consumer
	ScanMax            = 10_000  // jobs or queues that one page of a read looks at

	DedupTTLMs    = 5 * 60_000 // of a dedup id that says nothing
	DedupTTLMinMs = 1000
	DedupTTLMaxMs = 7 * 86400_000
	IdempotencyMs = 3600_000 // how long the result of a Keyed is kept
)
