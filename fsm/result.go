package fsm

import "fmt"

// Code says how an op, or one item of it, ended. The names are the stable codes
// of the API; front ends map them to their protocol in one table.
type Code uint8

const (
	CodeOK Code = iota
	CodeInvalidRequest
	CodeInvalidOption
	CodeBadJobID
	CodeQueueNotFound
	CodeJobNotFound
	CodeLeaseLost  // the receipt is old: someone else holds the job, or it is free again
	CodeJobGone    // the job reached its TTL
	CodeTooLate    // extend past half of the TTL
	CodeAtMostOnce // release or requeue of an at-most-once job
	CodeQueueNotEmpty
	CodeQueueFull
	CodeQueuePaused
	CodeEpochTaken // node start refused
	CodeBodyTooLarge
	CodeNoLeader      // not applied
	CodeOverloaded    // not applied
	CodeLeaving       // not applied
	CodeLoading       // not applied
	CodeMemoryLimit   // not applied
	CodeDiskLimit     // not applied
	CodeCommitTimeout // unknown
	CodeNotFresh      // a read: this node's state is older than was asked for
	CodeAborted       // Tx, atomic Enqueue: undone, or not tried, because something else of it failed
	CodeNotUnique     // a job with the unique key is not done
	CodeIdempotencyMismatch
	CodeETagMismatch
	CodeNotEnoughReplicas // not applied, or withdrawn
	CodeFeatureLevel      // not applied: some member does not know this yet
	CodeMemberExists
	CodeMemberNotFound
	CodeQuorumAtRisk // a member change that could cost the quorum
	CodeTopicNotFound
	CodeOffsetTrimmed // a read before the oldest message that is kept
	CodeCursorNotFound
	codeCount
)

var codeNames = [codeCount]string{
	"ok", "invalid_request", "invalid_option", "bad_job_id", "queue_not_found", "job_not_found",
	"lease_lost", "job_gone", "too_late", "at_most_once", "queue_not_empty", "queue_full", "queue_paused",
	"epoch_taken", "body_too_large", "no_leader", "overloaded", "leaving", "loading", "memory_limit", "disk_limit",
	"commit_timeout", "not_fresh", "aborted", "not_unique", "idempotency_mismatch", "etag_mismatch", "not_enough_replicas",
	"feature_level", "member_exists", "member_not_found", "quorum_at_risk",
	"topic_not_found", "offset_trimmed", "cursor_not_found",
}

// String returns the code's stable name.
func (c Code) String() string {
	if c < codeCount {
		return codeNames[c]
	}
	return fmt.Sprintf("code(%d)", uint8(c))
}

// Codes returns all codes, for tables that must cover each.
func Codes() []Code {
	all := make([]Code, codeCount)
	for i := range all {
		all[i] = Code(i)
	}
	return all
}

// Error is a refusal before or instead of a result.
type Error struct {
	Code    Code
	Detail  string // names the field and the limit, or what to do next
	Unknown bool   // true: may have been applied; false: surely not
}

func (e *Error) Error() string { return e.Code.String() + ": " + e.Detail }

// Refuse returns an *Error for something that was surely not applied.
func Refuse(c Code, format string, args ...any) *Error {
	return &Error{Code: c, Detail: fmt.Sprintf(format, args...)}
}

// Position is a place in the log: an index, its term, and the log time there in
// ms since the Unix epoch.
type Position struct {
	Index, Term uint64
	TimeMs      int64
}

// Result is the outcome of one op. It shares no mutable memory with the
// machine: bodies and strings are immutable, slices belong to the receiver.
type Result struct {
	Position Position
	Batch    BatchRef // Fast: to ask for its fate
	Code     Code     // of the op as a whole; items have their own
	Fast     bool     // answered at the leader's append, not committed yet
	Parked   bool     // Dequeue: became a waiter, the answer follows as a Handout
	Replay   bool     // Keyed: nothing was applied, this is what the first one answered
	More     bool     // Purge, Redrive, ReleaseConsumer: there are others, up to UpTo
	Count    int      // Append: messages; DeleteTopic, PurgeTopic: messages dropped; DeleteQueue, Purge, Redrive, ReleaseConsumer: jobs dropped or moved
	UpTo     uint64   // Purge, Redrive, ReleaseConsumer: the sequence that bounded this op
	Offset   uint64   // Append: of the first message; not known before the commit
	Version  uint64   // Configure, ConfigureTopic, SetCursor: the new version of the configuration, at least 1
	// Depends is the highest index at which anything that the op read, and whose
	// loss would change its answer, was changed last. A fast answer needs it
	// committed.
	Depends uint64
	Items   []ItemResult // an item each, or a job each of Enqueue
	Jobs    []Delivered  // Dequeue
	Parts   []Result     // Tx: an op each
}

// ItemResult is the outcome of one item, in request order.
type ItemResult struct {
	Code       Code
	Late       bool  // Ack: the lease was over, nobody else had the job
	Already    bool  // Ack: acked before; Requeue, Hold: nothing was changed
	Dead       bool  // Nack, Reject: the job is dead
	Duplicate  bool  // Enqueue: the dedup id was known; ID is the first job's
	Cancel     bool  // Extend: the holder is asked to stop
	ID         ID    // the job's; of one that is not there only the key is known. CodeNotUnique: of the job that has the key
	LeaseUntil int64 // Extend, Hold for a time: log ms
}

// Delivered is one hand-out of a job.
type Delivered struct {
	ID         ID
	Grant      uint32
	Tag        uint64
	Queue      string
	Body       string // immutable bytes
	Headers    []Header
	Priority   uint8
	Deliveries uint32 // including this one
	Failures   uint32
	Nacks      uint32 // failures by nack; the others are leases that were over
	EnqueuedMs int64
	LeaseUntil int64  // log ms
	ExpiresMs  int64  // 0 = no TTL
	Fence      uint64 // log index of the grant
	LastError  string
	Group      string
}

// Receipt is the proof of this hand-out.
func (d *Delivered) Receipt() Receipt { return Receipt{ID: d.ID, Grant: d.Grant, Tag: d.Tag} }

// Handout answers a request that was parked.
type Handout struct {
	Request uint64
	Result  Result
}
