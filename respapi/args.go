package respapi

import (
	"math"
	"strconv"

	"raftq/fsm"
)

// integer reads a number as Disque does: digits, a minus in front at most, no
// further zeros.
func integer(b []byte) (n int64, ok bool) {
	digits := b
	if len(b) > 1 && b[0] == '-' {
		digits = b[1:]
	}
	if len(digits) == 0 || digits[0] < '0' || digits[0] > '9' || digits[0] == '0' && len(b) > 1 {
		return 0, false
	}
	n, err := strconv.ParseInt(string(b), 10, 64)
	return n, err == nil
}

// timeoutMs reads a timeout in ms; 0 is none.
func timeoutMs(b []byte) (int64, error) {
	n, ok := integer(b)
	switch {
	case !ok:
		return 0, refuse("ERR", "timeout is not an integer or out of range")
	case n < 0:
		return 0, refuse("ERR", "timeout is negative")
	}
	return min(n, timeoutMax.Milliseconds()), nil
}

// queueName checks a queue's name and copies it.
func queueName(b []byte) (string, error) {
	switch {
	case len(b) == 0:
		return "", refuse("ERR", "a queue's name has at least one byte")
	case len(b) > fsm.NameMax:
		return "", refuse("ERR", "a queue's name has at most %d bytes, this one %d", fsm.NameMax, len(b))
	case b[0] == '$':
		return "", refuse("ERR", "queue names that begin with $ are reserved")
	}
	return string(b), nil
}

// jobID reads a job's id. One in the right form that no node of this cluster
// made (its check is wrong) is known to nobody: known is false.
func jobID(b []byte) (id fsm.ID, known bool, err error) {
	if id, ok := fsm.ParseID(b); ok {
		return id, true, nil
	}
	if len(b) != fsm.IDLen || b[0] != 'D' || b[1] != '-' || b[10] != '-' || b[35] != '-' {
		return id, false, errBadID
	}
	return id, false, nil
}

// whole is a number of seconds, rounded up, of a time in ms.
func whole(ms int64) int64 {
	if ms <= 0 {
		return 0
	}
	if ms > math.MaxInt64-999 {
		return ms / 1000
	}
	return (ms + 999) / 1000
}
