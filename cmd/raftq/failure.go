package main

import (
	"errors"
	"fmt"
	"net/http"
	"strings"

	"raftq/client"
)

// withCode gives an error of the client its exit code.
func withCode(err error) error {
	var e *client.Error
	if !errors.As(err, &e) {
		return err
	}
	return &exitError{codeOf(e), clientError{err}}
}

// clientError is an error of the client within a sentence of ours.
type clientError struct{ error }

func (e clientError) Error() string { return strings.TrimPrefix(e.error.Error(), "raftq: ") }

func (e clientError) Unwrap() error { return e.error }

func codeOf(e *client.Error) int {
	switch {
	case e.Applied == client.Unknown:
		return exitUnknown
	case e.Code == client.ErrBadAnswer:
		return exitFailed
	case e.Status == http.StatusNotFound && e.Code != client.ErrRouteNotFound, e.Status == http.StatusGone:
		return exitNothing
	case e.Code == client.ErrUnreachable, e.Retryable:
		return exitUnavailable
	case e.Status < 500:
		return exitRefused
	}
	return exitFailed
}

// itemsError is the error of a command that named several jobs, some of which
// were refused.
type itemsError struct {
	total int
	lines []string // one for each that was refused
	code  string   // of the first
	exit  int
}

func (e *itemsError) Error() string {
	if e.total == 1 {
		return e.lines[0]
	}
	return fmt.Sprintf("%d of %d failed\n  %s", len(e.lines), e.total, strings.Join(e.lines, "\n  "))
}

// hinted is an error about which a command knows better what to do than its code
// says.
type hinted struct {
	error
	hint string
}

func (e *hinted) Unwrap() error { return e.error }

// hintFor returns what to do about an error, or "".
func hintFor(err error) string {
	var known *hinted
	if errors.As(err, &known) {
		return known.hint
	}
	var items *itemsError
	if errors.As(err, &items) {
		return hints[items.code]
	}
	var e *client.Error
	if !errors.As(err, &e) {
		return ""
	}
	if e.Code == client.ErrNoAnswer && e.Applied == client.NotApplied { // of a read
		return hintSilent
	}
	if hint := hints[string(e.Code)]; hint != "" {
		return hint
	}
	if e.Applied == client.Unknown {
		return hints[string(client.ErrCommitTimeout)]
	}
	return ""
}

// complain writes an error as people read it: what happened, then what to do.
func complain(err error) string {
	msg := err.Error()
	if msg == "" {
		return ""
	}
	text := "raftq: " + msg + "\n"
	if hint := hintFor(err); hint != "" {
		text += "hint: " + hint + "\n"
	}
	return text
}
