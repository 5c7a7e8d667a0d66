package httpapi

import (
	"fmt"
	"strconv"

	"raftq/fsm"
)

// kind is one line of the table of errors: what a code means over HTTP.
type kind struct {
	code      string
	status    int
	title     string
	retryable bool
	retryMs   int // when to come back; sent as Retry-After with 429, 503 and 507
}

// kinds has a line for each code of the machine. 503 and 507 say that surely
// nothing was applied; 504 that nobody knows.
var kinds = func() []kind {
	t := [...]kind{
		fsm.CodeOK:             {status: 200, title: "Done"},
		fsm.CodeInvalidRequest: {status: 400, title: "The request is malformed"},
		fsm.CodeInvalidOption:  {status: 422, title: "An option is unknown or out of range"},
		fsm.CodeBadJobID:       {status: 400, title: "That is not a job id or receipt"},
		fsm.CodeQueueNotFound:  {status: 404, title: "The queue does not exist"},
		fsm.CodeJobNotFound:    {status: 404, title: "The job does not exist"},
		fsm.CodeLeaseLost:      {status: 409, title: "The lease is lost"},
		fsm.CodeJobGone:        {status: 410, title: "The job is gone"},
		fsm.CodeTooLate:        {status: 409, title: "It is too late to extend the lease"},
		fsm.CodeAtMostOnce:     {status: 409, title: "The job is delivered at most once"},
		fsm.CodeQueueNotEmpty:  {status: 409, title: "The queue is not empty"},
		fsm.CodeQueueFull:      {status: 429, title: "The queue is full", retryable: true, retryMs: 1000},
		fsm.CodeQueuePaused:    {status: 409, title: "The queue is paused", retryable: true, retryMs: 1000},
		fsm.CodeEpochTaken:     {status: 500, title: "The node's epoch was refused"},
		fsm.CodeBodyTooLarge:   {status: 413, title: "The body is too large"},
		fsm.CodeNoLeader:       {status: 503, title: "The cluster has no leader", retryable: true, retryMs: 1000},
		fsm.CodeOverloaded:     {status: 503, title: "The node is overloaded", retryable: true, retryMs: 200},
		fsm.CodeLeaving:        {status: 503, title: "The node is leaving; another one will serve you", retryable: true, retryMs: 100},
		fsm.CodeNotFresh:       {status: 503, title: "This node's state is older than asked for", retryable: true, retryMs: 100},
		fsm.CodeLoading:        {status: 503, title: "The node is loading its state", retryable: true, retryMs: 1000},
		fsm.CodeMemoryLimit:    {status: 507, title: "Memory is full", retryable: true, retryMs: 5000},
		fsm.CodeDiskLimit:      {status: 507, title: "The disk is full", retryable: true, retryMs: 5000},
		fsm.CodeCommitTimeout:  {status: 504, title: "It is unknown whether the request was applied", retryable: true, retryMs: 1000},

		fsm.CodeCursorNotFound:      {status: 404, title: "The topic has no such cursor"},
		fsm.CodeAborted:             {status: 409, title: "Nothing was done: another part of the request failed"},
		fsm.CodeNotUnique:           {status: 409, title: "A job with this unique key is not done yet"},
		fsm.CodeIdempotencyMismatch: {status: 422, title: "The idempotency key was used for another request"},
		fsm.CodeETagMismatch:        {status: 412, title: "It has changed meanwhile"},
		fsm.CodeNotEnoughReplicas:   {status: 503, title: "Not enough nodes have a copy", retryable: true, retryMs: 1000},
		fsm.CodeFeatureLevel:        {status: 503, title: "A member of the cluster is too old for this", retryable: true, retryMs: 5000},
		fsm.CodeMemberExists:        {status: 409, title: "The cluster has such a member"},
		fsm.CodeMemberNotFound:      {status: 404, title: "The cluster has no such member"},
		fsm.CodeQuorumAtRisk:        {status: 409, title: "The change could cost the cluster its majority"},
		fsm.CodeTopicNotFound:       {status: 404, title: "There is no such topic"},
		fsm.CodeOffsetTrimmed:       {status: 410, title: "Messages at this offset are not kept any more"},
	}
	for c := range t {
		t[c].code = fsm.Code(c).String()
	}
	return t[:]
}()

// What only HTTP knows.
var (
	kindNoRoute    = &kind{code: "route_not_found", status: 404, title: "There is no such route"}
	kindNoMethod   = &kind{code: "method_not_allowed", status: 405, title: "The route does not take this method"}
	kindTimeout    = &kind{code: "request_timeout", status: 408, title: "The request took too long to arrive", retryable: true, retryMs: 1000}
	kindHeaders    = &kind{code: "headers_too_large", status: 431, title: "The request's header fields are too large"}
	kindInternal   = &kind{code: "internal", status: 500, title: "A bug in the server"}
	kindConnsLimit = &kind{code: "overloaded", status: 503, title: "The node has too many connections", retryable: true, retryMs: 1000}
)

func kindOf(c fsm.Code) *kind {
	if int(c) < len(kinds) && kinds[c].status != 0 {
		return &kinds[c]
	}
	return kindInternal
}

// problem is the error that handlers return.
type problem struct {
	kind    *kind
	detail  string // names the field and the limit, or what to do next
	unknown bool   // may have been applied
	allow   string // for 405
	results []byte // a line for each item of what was not done at all, as JSON
	more    []byte // further members, as JSON, each with a comma before it
}

func (p *problem) Error() string { return p.kind.code + ": " + p.detail }

func refuse(c fsm.Code, format string, args ...any) *problem {
	return &problem{kind: kindOf(c), detail: fmt.Sprintf(format, args...)}
}

// invalid refuses an option.
func invalid(option, format string, args ...any) *problem {
	return refuse(fsm.CodeInvalidOption, option+": "+format, args...)
}

// at says which item of a batch a problem is about.
func (p *problem) at(list string, i int) *problem {
	p.detail = list + "[" + strconv.Itoa(i) + "]: " + p.detail
	return p
}

// asProblem turns a replica's error into a problem. An error of another type
// breaks the replica's contract, so nobody knows what it did.
func asProblem(err error) *problem {
	switch e := err.(type) {
	case *problem:
		return e
	case *fsm.Error:
		k := kindOf(e.Code)
		if e.Unknown && k.status == 503 && seeded != "unknown-is-503" {
			k = kindOf(fsm.CodeCommitTimeout) // 503 promises that nothing happened
		}
		return &problem{kind: k, detail: e.Detail, unknown: e.Unknown}
	}
	return &problem{kind: kindInternal, detail: err.Error(), unknown: true}
}

// appendProblem appends the problem as RFC 9457 JSON.
func appendProblem(b []byte, p *problem, instance []byte) []byte {
	b = append(b, `{"type":"/errors/`...)
	b = append(b, p.kind.code...)
	b = append(b, `","title":`...)
	b = appendString(b, p.kind.title)
	b = append(b, `,"status":`...)
	b = strconv.AppendInt(b, int64(p.kind.status), 10)
	b = append(b, `,"detail":`...)
	b = appendString(b, p.detail)
	b = append(b, `,"instance":`...)
	b = appendString(b, instance)
	b = append(b, `,"code":"`...)
	b = append(b, p.kind.code...)
	b = append(b, `","retryable":`...)
	b = strconv.AppendBool(b, p.kind.retryable)
	b = append(b, `,"applied":"`...)
	if p.unknown || p.kind.status == 504 {
		b = append(b, `unknown"`...)
	} else {
		b = append(b, `no"`...)
	}
	if p.kind.retryable {
		b = append(b, `,"retry_after_ms":`...)
		b = strconv.AppendInt(b, int64(p.kind.retryMs), 10)
	}
	if p.results != nil {
		b = append(append(b, `,"results":`...), p.results...)
	}
	b = append(b, p.more...)
	return append(b, "}\n"...)
}

// retryAfter is the Retry-After header's value in seconds, 0 = none.
func (k *kind) retryAfter() int {
	switch k.status {
	case 429, 503, 507:
		return max(1, (k.retryMs+999)/1000)
	}
	return 0
}
