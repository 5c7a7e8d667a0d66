package main

import (
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"raftq/client"
)

// headerVariable is the beginning of the variables that hold a job's headers.
const headerVariable = "RAFTQ_HEADER_"

// workVariables are what a command of work finds in its environment, besides the
// headers. A node that is started there does not take them for settings.
var workVariables = []string{
	"RAFTQ_JOB_ID", "RAFTQ_QUEUE", "RAFTQ_RECEIPT", "RAFTQ_PRIORITY", "RAFTQ_GROUP", "RAFTQ_DELIVERIES", "RAFTQ_FAILURES",
	"RAFTQ_ENQUEUED_AT", "RAFTQ_FENCE", "RAFTQ_WORKER",
}

// isWorkVariable tells whether a variable is one that work sets.
func isWorkVariable(name string) bool {
	return slices.Contains(workVariables, name) || strings.HasPrefix(name, headerVariable)
}

// environ is the environment of a command: ours, without what an outer work left
// in it, and the facts of the job.
func (w *worker) environ(number int, job *client.Job) []string {
	env := slices.DeleteFunc(os.Environ(), func(e string) bool {
		name, _, _ := strings.Cut(e, "=")
		return isWorkVariable(name) || name == "RAFTQ_ENDPOINTS"
	})
	env = append(env,
		"RAFTQ_JOB_ID="+job.ID,
		"RAFTQ_QUEUE="+job.Queue,
		"RAFTQ_RECEIPT="+job.Receipt,
		"RAFTQ_PRIORITY="+strconv.Itoa(job.Priority),
		"RAFTQ_GROUP="+job.Group,
		"RAFTQ_DELIVERIES="+strconv.Itoa(job.Deliveries),
		"RAFTQ_FAILURES="+strconv.Itoa(job.Failures),
		"RAFTQ_ENQUEUED_AT="+job.EnqueuedAt.UTC().Format(time.RFC3339Nano),
		"RAFTQ_FENCE="+strconv.FormatUint(job.Fence, 10),
		"RAFTQ_WORKER="+strconv.Itoa(number),
		"RAFTQ_ENDPOINTS="+strings.Join(w.Endpoints(), ","),
	)
	for _, name := range slices.Sorted(maps.Keys(job.Headers)) {
		env = append(env, headerVariable+variableName(name)+"="+job.Headers[name])
	}
	// A queue's name may be any bytes; a zero ends a variable.
	return slices.DeleteFunc(env, func(e string) bool { return strings.ContainsRune(e, 0) })
}

// variableName is a header's name as part of a variable's.
func variableName(header string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z':
			return r - 'a' + 'A'
		case r >= 'A' && r <= 'Z', r >= '0' && r <= '9':
			return r
		}
		return '_'
	}, header)
}
