package client

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"
)

// Code is the stable name of an error. Codes are errors themselves, to be
// compared with errors.Is:
//
//	if errors.Is(err, client.ErrQueueFull) { … }
type Code string

// Error returns the code.
func (c Code) Error() string { return string(c) }

// Codes of the servers.
const (
	ErrInvalidRequest    = Code("invalid_request")
	ErrInvalidOption     = Code("invalid_option")
	ErrBadJobID          = Code("bad_job_id")
	ErrUnauthenticated   = Code("unauthenticated")
	ErrForbidden         = Code("forbidden")
	ErrQueueNotFound     = Code("queue_not_found")
	ErrJobNotFound       = Code("job_not_found")
	ErrRouteNotFound     = Code("route_not_found")
	ErrTopicNotFound     = Code("topic_not_found")
	ErrCursorNotFound    = Code("cursor_not_found")
	ErrMemberNotFound    = Code("member_not_found")
	ErrMethodNotAllowed  = Code("method_not_allowed")
	ErrRequestTimeout    = Code("request_timeout")
	ErrLeaseLost         = Code("lease_lost")
	ErrQueuePaused       = Code("queue_paused")
	ErrQueueNotEmpty     = Code("queue_not_empty")
	ErrTooLate           = Code("too_late")
	ErrNotUnique         = Code("not_unique")
	ErrAtMostOnce        = Code("at_most_once")
	ErrAborted           = Code("aborted")
	ErrMemberExists      = Code("member_exists")
	ErrQuorumAtRisk      = Code("quorum_at_risk")
	ErrJobGone           = Code("job_gone")
	ErrOffsetTrimmed     = Code("offset_trimmed")
	ErrETagMismatch      = Code("etag_mismatch")
	ErrBodyTooLarge      = Code("body_too_large")
	ErrIdempotency       = Code("idempotency_mismatch")
	ErrQueueFull         = Code("queue_full")
	ErrRateLimited       = Code("rate_limited")
	ErrHeadersTooLarge   = Code("headers_too_large")
	ErrInternal          = Code("internal")
	ErrEpochTaken        = Code("epoch_taken")
	ErrNoLeader          = Code("no_leader")
	ErrNotEnoughReplicas = Code("not_enough_replicas")
	ErrLeaving           = Code("leaving")
	ErrLoading           = Code("loading")
	ErrOverloaded        = Code("overloaded")
	ErrNotFresh          = Code("not_fresh")
	ErrFeatureLevel      = Code("feature_level")
	ErrCommitTimeout     = Code("commit_timeout")
	ErrMemoryLimit       = Code("memory_limit")
	ErrDiskLimit         = Code("disk_limit")
)

// Codes of the client.
const (
	// ErrUnreachable: no node could be reached, so nothing was done.
	ErrUnreachable = Code("unreachable")
	// ErrNoAnswer: the request was sent and its answer never came.
	ErrNoAnswer = Code("no_answer")
	// ErrBadAnswer: what came is not an answer of raftq.
	ErrBadAnswer = Code("bad_answer")
	// ErrJobCancelled is the cause of a handler's context that ends because
	// somebody cancelled the job.
	ErrJobCancelled = Code("job_cancelled")
	// ErrDraining is the cause of a handler's context that ends because the
	// consumer's time for finishing is over.
	ErrDraining = Code("draining")
)

// Applied says what a failed call did to the state.
type Applied string

// What a failed call did.
const (
	NotApplied Applied = "no"      // surely nothing
	Unknown    Applied = "unknown" // all of it or nothing; nobody knows yet
)

// Error is a call that failed. It tells about the whole call, all its attempts:
// when an earlier attempt may have been applied, Applied is Unknown whatever
// the last one said. Of several nodes that failed it is the error that says most: what
// a node answered before one that was silent, and that before one that is down.
type Error struct {
	Code        Code
	Status      int    // of the HTTP answer, 0 when none came
	Title       string // what the code means
	Detail      string // what is wrong here: names the field and the limit
	Retryable   bool   // the same call may go well later
	Applied     Applied
	RetryAfter  time.Duration // when to come back; 0 when nobody said
	Node        string        // address of the node that this is from
	Attempts    int           // how often the call was sent, or tried to
	FirstOffset uint64        // of ErrOffsetTrimmed: where the topic begins now
	Items       []*ItemError  // of a Tx or an EnqueueAtomic: the parts that were the reason

	cause error // of a request without an answer
}

// Error names what went wrong, the code, and what is not plain from it.
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString("raftq: ")
	switch {
	case e.Detail != "" && e.Title != "" && namesOnly(e.Status):
		b.WriteString(strings.ToLower(e.Title[:1]) + e.Title[1:] + ": " + e.Detail)
	case e.Detail != "":
		b.WriteString(e.Detail)
	case e.Title != "":
		b.WriteString(e.Title)
	case e.cause != nil:
		b.WriteString(e.cause.Error())
	}
	fmt.Fprintf(&b, " (%s", e.Code)
	if e.Applied == Unknown {
		b.WriteString("; it may have been done or not")
	}
	if e.Attempts > 1 {
		fmt.Fprintf(&b, "; %d attempts", e.Attempts)
	}
	b.WriteByte(')')
	return b.String()
}

// namesOnly: with what is not there, or not in the right state, the detail names the
// thing, and the title says what is wrong with it.
func namesOnly(status int) bool {
	switch status {
	case http.StatusNotFound, http.StatusConflict, http.StatusGone, http.StatusPreconditionFailed, http.StatusTooManyRequests:
		return true
	}
	return false
}

// Is compares the code.
func (e *Error) Is(target error) bool {
	c, ok := target.(Code)
	return ok && c == e.Code
}

// Unwrap returns why no answer came, for instance context.DeadlineExceeded, and the
// errors of Items.
func (e *Error) Unwrap() []error {
	var all []error
	if e.cause != nil {
		all = append(all, e.cause)
	}
	for _, item := range e.Items {
		all = append(all, item)
	}
	return all
}

// ItemError is an item of a batch that failed.
type ItemError struct {
	Index int    // its place in the request
	ID    string // of its job, where there is one; with ErrNotUnique the job that has the key
	Err   *Error
}

// Unwrap returns the item's error.
func (e *ItemError) Unwrap() error { return e.Err }

// Error names the item.
func (e *ItemError) Error() string { return fmt.Sprintf("item %d: %v", e.Index, e.Err) }

// BatchError says which items of a batch failed; all others were done. errors.Is
// and errors.As look into each of them.
type BatchError struct {
	Items []*ItemError // in the order of the request
	Total int          // items of the request
}

// Error names the first item that failed.
func (e *BatchError) Error() string {
	return fmt.Sprintf("raftq: %d of %d items failed; %v", len(e.Items), e.Total, e.Items[0])
}

// Unwrap returns the errors of the items.
func (e *BatchError) Unwrap() []error {
	all := make([]error, len(e.Items))
	for i, item := range e.Items {
		all[i] = item
	}
	return all
}

// add notes a failed item.
func (e *BatchError) add(index int, id string, err *Error) {
	e.Items = append(e.Items, &ItemError{Index: index, ID: id, Err: err})
}

// at returns the error of an item, nil when it went well.
func (e *BatchError) at(index int) *Error {
	i, found := slices.BinarySearchFunc(e.Items, index, func(item *ItemError, index int) int { return item.Index - index })
	if !found {
		return nil
	}
	return e.Items[i].Err
}

// or returns the error, nil when no item failed.
func (e *BatchError) or() error {
	if len(e.Items) == 0 {
		return nil
	}
	return e
}

// refuse is an error of the caller that needs no node to be found.
func refuse(format string, args ...any) *Error {
	return &Error{Code: ErrInvalidOption, Applied: NotApplied, Detail: fmt.Sprintf(format, args...)}
}

// ended is the error of a call whose context ended between two attempts.
func ended(ctx context.Context, last *Error) *Error {
	if last == nil {
		return &Error{Code: ErrUnreachable, Applied: NotApplied, Retryable: true, cause: endOf(ctx)}
	}
	e := *last
	e.cause = endOf(ctx)
	if last.cause != nil {
		e.cause = errors.Join(e.cause, last.cause)
	}
	return &e
}

// endOf says why a context ended: its error, and the cause when there is another.
func endOf(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if errors.Is(cause, err) {
		return cause
	}
	return fmt.Errorf("%w: %w", err, cause)
}
