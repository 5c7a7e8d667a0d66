package main

import "errors"

// Exit codes. Scripts rely on them: a number keeps its meaning.
const (
	exitOK          = 0
	exitFailed      = 1
	exitUsage       = 2
	exitNothing     = 3
	exitRefused     = 4
	exitUnavailable = 5
	exitUnknown     = 6
	exitRemoved     = 7
)

const exitHelp = `Exit codes:
  0  done
  1  failed for a reason that is none of the others
  2  the command line or the configuration is wrong
  3  nothing there: no job came, or the queue or job does not exist or is gone
  4  refused: the server answered with an error; doing it again will not help
  5  not done: no node could be reached, or the cluster cannot take it now; try again
  6  unknown: the answer got lost; it may have been done or not
  7  serve: this node was removed from its cluster; starting it again will not help`

// exitError is an error that ends the process with a certain code.
type exitError struct {
	code int
	err  error // nil: end without a word
}

func (e *exitError) Error() string {
	if e.err == nil {
		return ""
	}
	return e.err.Error()
}

func (e *exitError) Unwrap() error { return e.err }

// exitCode is the code of an error that is not nil.
func exitCode(err error) int {
	var e *exitError
	if errors.As(err, &e) {
		return e.code
	}
	return exitFailed
}
