package respapi

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"raftq/fsm"
)

// Every code of the machine has an error reply with one of the words that clients
// know, and a text of one line.
func TestEveryCodeHasAReply(t *testing.T) {
	words := strings.Fields("ERR BADID NOJOB PAUSED TOOLATE NOREPL OOM LEAVING LOADING MAXLEN NOAUTH NOLEADER BUSY")
	for _, code := range fsm.Codes() {
		r := replies[code]
		if r == nil {
			t.Errorf("%v has no reply", code)
			continue
		}
		if !slices.Contains(words, r.word) {
			t.Errorf("%v: unknown word %q", code, r.word)
		}
		if r.text == "" || strings.ContainsAny(r.text, "\r\n") {
			t.Errorf("%v: text %q", code, r.text)
		}
	}
	for code := range replies {
		if !slices.Contains(fsm.Codes(), code) {
			t.Errorf("a reply for %v, which is no code", code)
		}
	}
	for code, word := range map[fsm.Code]string{
		fsm.CodeBadJobID: "BADID", fsm.CodeJobNotFound: "NOJOB", fsm.CodeQueuePaused: "PAUSED", fsm.CodeTooLate: "TOOLATE",
		fsm.CodeNotEnoughReplicas: "NOREPL", fsm.CodeMemoryLimit: "OOM", fsm.CodeDiskLimit: "OOM", fsm.CodeLeaving: "LEAVING",
		fsm.CodeLoading: "LOADING", fsm.CodeQueueFull: "MAXLEN", fsm.CodeCommitTimeout: "NOREPL",
	} {
		if replies[code].word != word {
			t.Errorf("%v is %s, want %s", code, replies[code].word, word)
		}
	}
}

// What may have been applied never says that it was not.
func TestUnknownIsSaid(t *testing.T) {
	for _, code := range fsm.Codes() {
		if r := asRefusal(&fsm.Error{Code: code, Unknown: true}); !strings.Contains(r.text, "unknown") {
			t.Errorf("%v: %v", code, r)
		}
		if r := asRefusal(&fsm.Error{Code: code}); code != fsm.CodeCommitTimeout && strings.Contains(r.text, "unknown") {
			t.Errorf("%v: %v", code, r)
		}
	}
	if r := asRefusal(errors.New("surprise")); r != errInternal {
		t.Error(r)
	}
	if r := ofCode(200); r != errInternal {
		t.Error(r)
	}
}
