package check

import (
	"fmt"
	"math"
	"sync"
	"time"
)

// Never is the Ret of an operation without an answer.
const Never = time.Duration(math.MaxInt64)

// Kind is what an operation asks for.
type Kind uint8

// The kinds of operations.
const (
	Enqueue Kind = iota
	Dequeue
	Ack
	Nack
	Release
	Extend
	Count // a strong read of a queue's counts
	Reject
	Peek      // the ready jobs of a queue, in the order of delivery
	Show      // a job
	Tx        // acks, enqueues, appends and commits, all or none
	Append    // to a topic
	Read      // of a topic, strong or fast
	Commit    // of a cursor
	Position  // a read of a cursor
	Pause     // of a queue, or its end
	Redrive   // of a dead letter queue
	Configure // a queue or a topic
	Fate      // of a fast answer's batch, which is Mark; Code is the answer
	Purge     // of a queue's ready and delayed jobs
	Hold      // of a job, whose id is Mark, until it is requeued; Did says what was done, Code why not
	Requeue   // of a job: ready now
	Cancel    // of a job: deleted, or its holder is asked to stop
	kindEnd
)

var kindNames = [kindEnd]string{"enqueue", "dequeue", "ack", "nack", "release", "extend", "count",
	"reject", "peek", "show", "tx", "append", "read", "commit", "position", "pause", "redrive", "configure", "fate", "purge", "hold", "requeue", "cancel"}

func (k Kind) String() string { return kindNames[k] }

// Outcome is what an answer says about an operation's effect.
type Outcome uint8

// Outcomes.
const (
	Unknown Outcome = iota // no answer, or one that does not know
	OK
	Failed // surely had and will have no effect
)

func (o Outcome) String() string { return [...]string{"unknown", "ok", "failed"}[o] }

// Op is one operation of a client. The client writes it until Recorder.End.
type Op struct {
	Kind      Kind
	Client    int
	Node      int           // asked
	By        string        // name of the node that answered
	Call, Ret time.Duration // Ret is Never without an answer
	Outcome   Outcome
	Fast      bool // answered before the commit; a read: of the node's own state
	Batch     string
	Index     uint64 // that the answer reflects
	Term      uint64
	TimeMs    int64 // log time there
	Error     string

	Queue string
	Jobs  []Job // Enqueue: what was asked for
	Made  []Made
	More  []string // Dequeue: queues to the right of Queue
	Mark  string   // Dequeue: the consumer
	// Attempt of a Dequeue: those with one id are tries of one dequeue, of which
	// answers got lost.
	Attempt string
	Max     int
	Wait    time.Duration
	Lease   time.Duration // Dequeue, Extend
	Got     []Delivery
	Items   []Item // Ack, Nack, Release, Extend, Reject; Tx: what it acks
	Count   Counts
	IDs     []string // Peek: what came
	Parts            // of kinds that few operations are of
	// Missing: there is no such queue, because nobody has put a job into it; its
	// waiters are not shown.
	Missing bool
}

func (o *Op) String() string {
	return fmt.Sprintf("%v of client %d at %v on %s (called %v, index %d, %v)", o.Kind, o.Client, o.Node, o.names(), o.Call.Round(time.Microsecond), o.Index, o.Outcome)
}

// queues are those that a dequeue asks, left to right.
func (o *Op) queues() []string { return append([]string{o.Queue}, o.More...) }

// written tells whether the op is a write with an entry of its own.
func (o *Op) written() bool {
	switch o.Kind {
	case Count, Peek, Show, Read, Position, Fate:
		return false
	}
	return o.Kind != Dequeue || len(o.Got) > 0
}

// Job is one job of an enqueue.
type Job struct {
	Body        string // unique in the history
	Queue       string // of a job in a Tx; else the operation's
	Priority    int    // -1 = not said
	Delay, TTL  time.Duration
	Lease       time.Duration
	AtMostOnce  bool
	MaxFailures int
	DedupID     string
	Group       string
	UniqueKey   string
}

// timeless: it is ready at once and stays so until somebody takes it, though
// others of its group may be in its way.
func (j *Job) timeless() bool {
	return j.Delay == 0 && j.TTL == 0 && j.DedupID == "" && j.MaxFailures == 0
}

// Made is what an enqueue answered for a job.
type Made struct {
	ID        string // of one that is not unique: of the job that has the key
	Duplicate bool
	Code      string // "" = it is there
}

// Delivery is one job of a dequeue's answer.
type Delivery struct {
	ID, Receipt, Queue, Body string
	Group                    string
	Priority                 int
	Deliveries, Failures     int
	Fence                    uint64
	LeaseUntilMs             int64
}

// Item is a line of an ack, nack, release or extend.
type Item struct {
	Receipt string
	Delay   time.Duration // Nack
	// The answer.
	Status        int
	Code          string // "" = done
	Late, Already bool
	Dead          bool
	Cancel        bool // Extend: the holder is asked to stop
}

// Counts are a queue's jobs by state.
type Counts struct{ Ready, Delayed, Leased, Held, Dead, Waiters int }

// Event is something that was done to the cluster, or happened in it.
type Event struct {
	From, To time.Duration // To = From for a moment
	Node     int           // -1 = all, or none in particular
	What     string
	// Ended: the node's process ended, and with it what it alone had.
	Ended bool
	// Reboot: a majority lost its boot at once, so that nobody knows how much time
	// has passed: leases and delays may end early.
	Reboot bool
}

// rebooted tells whether a majority lost its boot between two moments.
func (h *History) rebooted(from, to time.Duration) bool {
	for _, e := range h.Events {
		if e.Reboot && e.From < to && e.To > from {
			return true
		}
	}
	return false
}

// Chain is a node's claim of its state's running hash at an index.
type Chain struct {
	Node  string
	Index uint64
	Hash  string
}

// History is what was recorded. It is read when recording has ended.
type History struct {
	Ops    []*Op
	Events []Event
	Chains []Chain
}

// Recorder collects a History on one monotonic clock.
type Recorder struct {
	base time.Time

	mu    sync.Mutex
	h     History
	ok    int
	kinds [kindEnd]int // OK ones, as in a Summary
}

// NewRecorder starts the clock.
func NewRecorder() *Recorder {
	return &Recorder{base: time.Now()}
}

// Now is the time on the recorder's clock.
func (r *Recorder) Now() time.Duration { return time.Since(r.base) }

// Begin notes that a client is about to send o.
func (r *Recorder) Begin(o *Op) {
	o.Ret = Never
	r.mu.Lock()
	r.h.Ops = append(r.h.Ops, o)
	o.Call = r.Now()
	r.mu.Unlock()
}

// End notes that o is over. An unknown outcome never returns.
func (r *Recorder) End(o *Op) {
	if o.Outcome != Unknown {
		o.Ret = r.Now()
	}
	if o.Outcome == OK {
		r.mu.Lock()
		r.ok++
		r.kinds[o.Kind]++
		r.mu.Unlock()
	}
}

// Enough tells whether so many operations of each kind are done as a run must have.
func (r *Recorder) Enough(least Least) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for k, n := range least.Kinds {
		if r.kinds[k] < n {
			return false
		}
	}
	return r.ok >= least.Ops
}

// Event notes what happened from a moment until now.
func (r *Recorder) Event(e Event) {
	e.To = r.Now()
	r.mu.Lock()
	r.h.Events = append(r.h.Events, e)
	r.mu.Unlock()
}

// Chain notes a node's claim.
func (r *Recorder) Chain(c Chain) {
	r.mu.Lock()
	r.h.Chains = append(r.h.Chains, c)
	r.mu.Unlock()
}

// History hands out what was recorded. Nobody may record any more.
func (r *Recorder) History() *History {
	r.mu.Lock()
	defer r.mu.Unlock()
	return &r.h
}

// Problem is one breach of the contract.
type Problem struct {
	Check string // which checker, which rule
	Text  string
}

func (p Problem) String() string { return p.Check + ": " + p.Text }

// problems collects breaches of a checker; after many of a kind it only counts.
type problems struct {
	list []Problem
	more map[string]int
}

const problemsMax = 20 // of a rule

func (p *problems) add(check, format string, args ...any) {
	if p.more == nil {
		p.more = map[string]int{}
	}
	if p.more[check]++; p.more[check] <= problemsMax {
		p.list = append(p.list, Problem{check, fmt.Sprintf(format, args...)})
	}
}

func (p *problems) all() []Problem {
	for check, n := range p.more {
		if n > problemsMax {
			p.list = append(p.list, Problem{check, fmt.Sprintf("and %d more", n-problemsMax)})
		}
	}
	return p.list
}
