package respapi

import (
	"fmt"

	"raftq/fsm"
)

// refusal is an error reply: a word that programs look at, and a text.
type refusal struct{ word, text string }

func (r *refusal) Error() string { return r.word + " " + r.text }

func refuse(word, format string, args ...any) *refusal {
	return &refusal{word, fmt.Sprintf(format, args...)}
}

// Refusals in Disque's words.
var (
	errSyntax   = &refusal{"ERR", "syntax error"}
	errNotInt   = &refusal{"ERR", "value is not an integer or out of range"}
	errBadID    = &refusal{"BADID", "that is not a job id"}
	errNoAuth   = &refusal{"NOAUTH", "authenticate first: AUTH password"}
	errLoading  = &refusal{"LOADING", "the node is loading its state"}
	errLeaving  = &refusal{"LEAVING", "this node leaves the cluster, another one will serve you"}
	errNoJob    = &refusal{"NOJOB", "no such job: it was acked, deleted or expired, or it never was"}
	errNoLease  = &refusal{"NOJOB", "nobody works on this job: its retry time is over, and it is queued again or someone else's"}
	errInternal = &refusal{"ERR", "internal error, see the node's log; it is unknown whether the command was applied"}
)

// replies has a line for each code of the machine.
var replies = map[fsm.Code]*refusal{
	fsm.CodeOK:                  {"ERR", "no error"},
	fsm.CodeInvalidRequest:      {"ERR", "invalid request"},
	fsm.CodeInvalidOption:       {"ERR", "an option is out of range"},
	fsm.CodeBadJobID:            errBadID,
	fsm.CodeQueueNotFound:       {"ERR", "no such queue"},
	fsm.CodeJobNotFound:         errNoJob,
	fsm.CodeJobGone:             errNoJob,
	fsm.CodeLeaseLost:           errNoLease,
	fsm.CodeTooLate:             {"TOOLATE", "half of the job's TTL is over, its next delivery can no longer be postponed"},
	fsm.CodeAtMostOnce:          {"ERR", "the job is delivered at most once (RETRY 0)"},
	fsm.CodeQueueNotEmpty:       {"ERR", "the queue is not empty"},
	fsm.CodeQueueFull:           {"MAXLEN", "the queue is already as long as allowed"},
	fsm.CodeQueuePaused:         {"PAUSED", "the queue takes no jobs while it is paused in input, try later"},
	fsm.CodeEpochTaken:          {"ERR", "the node's epoch was refused"},
	fsm.CodeBodyTooLarge:        {"ERR", "the job's body is too large"},
	fsm.CodeNoLeader:            {"NOLEADER", "no majority of the nodes is there; nothing was applied, try later"},
	fsm.CodeOverloaded:          {"BUSY", "the node has too much to do; nothing was applied, try later"},
	fsm.CodeLeaving:             errLeaving,
	fsm.CodeLoading:             errLoading,
	fsm.CodeMemoryLimit:         {"OOM", "memory is full: no jobs are taken until some are gone"},
	fsm.CodeDiskLimit:           {"OOM", "the disk is nearly full: no jobs are taken until there is room"},
	fsm.CodeCommitTimeout:       {"NOREPL", "not enough nodes confirmed in time: it is unknown whether the command was applied"},
	fsm.CodeNotFresh:            {"ERR", "this node's state is too old, try later"},
	fsm.CodeAborted:             {"ERR", "something else of the same request failed, nothing was applied"},
	fsm.CodeNotUnique:           {"ERR", "a job with the same unique key is not done yet"},
	fsm.CodeIdempotencyMismatch: {"ERR", "the same idempotency key came with another request"},
	fsm.CodeETagMismatch:        {"ERR", "the configuration was changed meanwhile"},
	fsm.CodeNotEnoughReplicas:   {"NOREPL", "not enough nodes have a copy; nothing was added"},
	fsm.CodeFeatureLevel:        {"ERR", "a node of the cluster is too old for this command, update it first"},
	fsm.CodeMemberExists:        {"ERR", "there is such a node already"},
	fsm.CodeMemberNotFound:      {"ERR", "there is no such node"},
	fsm.CodeTopicNotFound:       {"ERR", "there is no such topic"},
	fsm.CodeOffsetTrimmed:       {"ERR", "the topic no longer has that offset"},
	fsm.CodeCursorNotFound:      {"ERR", "the topic has no such cursor"},
	fsm.CodeQuorumAtRisk:        {"ERR", "the cluster could lose its majority by that"},
}

// asRefusal is the error reply for an error of this package or of the replica. An
// error of another type breaks the replica's contract, so nobody knows what it did.
func asRefusal(err error) *refusal {
	switch e := err.(type) {
	case *refusal:
		return e
	case *fsm.Error:
		code := e.Code
		if e.Unknown {
			code = fsm.CodeCommitTimeout // the others promise that nothing happened
		}
		return ofCode(code)
	}
	return errInternal
}

func ofCode(code fsm.Code) *refusal {
	if r := replies[code]; r != nil {
		return r
	}
	return errInternal
}
