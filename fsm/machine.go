package fsm

import "io"

// Machine is the state: a pure function of the log. It is used by one goroutine
// (the replica's core); a Copy may be read by another, as long as nobody
// applies to that copy.
type Machine struct{}

// Member is a line of the replicated member table.
type Member struct {
	ID      uint64
	Name    string
	Peer    string // peer URL
	Learner bool
}

// Self says whose results Apply shall build: those of batches of this origin
// and epoch, and of its parked requests.
type Self struct{ Origin, Epoch uint64 }

// Applied is what one entry did, as far as its replica must know.
type Applied struct {
	Position Position
	Header   BatchHeader // zero for an empty entry
	Effect   bool        // false: empty entry, or a batch that the sessions filter out (wrong epoch or number)
	Mine     bool        // Effect, and of Self
	Results  []Result    // Mine: one for each op, in order
	Handouts []Handout   // jobs for parked requests of Self (from any entry)
	Fired    int         // timers
}

// SessionInfo is what the machine knows of a node's current epoch.
type SessionInfo struct {
	Node, Epoch, LastBatch uint64
	Away                   bool
	Waiters                int
	Start                  NodeStart
}

// QueueInfo is a queue as reads show it.
type QueueInfo struct {
	Queue                                                  string
	Ready, Delayed, Leased, Held, Dead                     int
	Bytes                                                  int64
	Waiters                                                int
	OldestReadyMs                                          int64 // enqueue time of the oldest ready job, 0 = none
	Enqueued, Delivered, Acked, Failed, Expired, DeadTotal uint64
}

// JobInfo is a job as reads show it; State is one of "delayed", "ready",
// "leased", "held", "dead".
type JobInfo struct {
	Delivered  // Grant and Tag of the current lease; zero when not leased
	State      string
	DeliverMs  int64
	Consumer   string
	DeadReason string
	AtMostOnce bool
	LastIndex  uint64
}

// New returns the genesis machine: log time 0, the given members, index 1, term 1.
func New(members []Member) *Machine { panic("not yet") }

// Apply applies the entry at index, which must be Index()+1. data is the
// entry's data (empty for raft's own entries); it is not kept. An error means
// that this build cannot go on (ErrNewer, or a malformed batch): the node stops.
func (m *Machine) Apply(index, term uint64, data []byte, self Self) (Applied, error) {
	panic("not yet")
}

// Index and Term are those of the last applied entry, Now the log time in ms.
func (m *Machine) Position() Position { panic("not yet") }

// Chain is the running hash over entries, results and timers.
func (m *Machine) Chain() uint64 { panic("not yet") }

// NextDue is the log time in ms at which the next timer that forces an entry
// fires (delay, lease, TTL; now, when jobs of deleted queues wait to be
// reaped). ok is false when there is none. Waiters never force one.
func (m *Machine) NextDue() (ms int64, ok bool) { panic("not yet") }

// Members returns the table, sorted by id.
func (m *Machine) Members() []Member { panic("not yet") }

// Session returns the session of a node; ok is false when it never started.
func (m *Machine) Session(node uint64) (s SessionInfo, ok bool) { panic("not yet") }

// Sessions returns all sessions, sorted by node.
func (m *Machine) Sessions() []SessionInfo { panic("not yet") }

// EpochUsed tells whether a session or a job carries the epoch.
func (m *Machine) EpochUsed(epoch uint64) bool { panic("not yet") }

// AnyReady tells whether a dequeue of these queues would find a job now.
func (m *Machine) AnyReady(queues []string) bool { panic("not yet") }

// HandedTo returns the leases that the request holds, for a replica that
// installed a snapshot and must learn what its parked requests were given.
func (m *Machine) HandedTo(epoch uint64, requests []uint64) []Handout { panic("not yet") }

// Parked tells which of the requests of an epoch are waiters.
func (m *Machine) Parked(node, epoch uint64) []uint64 { panic("not yet") }

// Queue returns a queue; ok is false when it does not exist.
func (m *Machine) Queue(name string) (q QueueInfo, ok bool) { panic("not yet") }

// Queues returns up to limit queues with names after cursor, in name order.
func (m *Machine) Queues(prefix, cursor string, limit int) []QueueInfo { panic("not yet") }

// Totals sums over all queues; cheap (kept as running sums).
func (m *Machine) Totals() QueueInfo { panic("not yet") }

// Job returns a job. The code is CodeOK, CodeJobNotFound, or CodeJobGone (acked
// while its tombstone lives).
func (m *Machine) Job(k Key) (JobInfo, Code) { panic("not yet") }

// Bytes is the machine's own count of what its state takes: equal on all nodes.
func (m *Machine) Bytes() int64 { panic("not yet") }

// Copy returns a second machine with the same state, in O(1) for any number of
// jobs. Both may be applied to from then on, by one goroutine each.
func (m *Machine) Copy() *Machine { panic("not yet") }

// Encode writes the whole state; equal machines give equal bytes.
func (m *Machine) Encode(w io.Writer) error { panic("not yet") }

// Decode reads what Encode wrote, and checks it.
func Decode(r io.Reader) (*Machine, error) { panic("not yet") }

// Hash is a hash of Encode's bytes.
func (m *Machine) Hash() uint64 { panic("not yet") }

// Check verifies every invariant; for tests and after Decode. O(state).
func (m *Machine) Check() error { panic("not yet") }
