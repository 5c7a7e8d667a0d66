package main

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"raftq/fsm"
)

// What the route says of a removal is what its caller learns.
func TestForget(t *testing.T) {
	const id = 0x1234
	var status int
	var body string
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if got := r.Method + " " + r.URL.String(); got != "DELETE /v1/cluster/members/0000000000001234?timeout=500ms" {
			t.Error(got)
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body) // to a test
	}))
	defer s.Close()
	r := respReplica{rest: s.URL}
	for _, tc := range []struct {
		status int
		body   string
		code   fsm.Code // CodeOK: another error
		unkn   bool
	}{
		{409, `{"status":409,"code":"quorum_at_risk","detail":"no","applied":"no"}`, fsm.CodeQuorumAtRisk, false},
		{504, `{"status":504,"code":"commit_timeout","applied":"unknown"}`, fsm.CodeCommitTimeout, true},
		{404, `{"status":404,"code":"member_not_found","applied":"no"}`, fsm.CodeMemberNotFound, false},
		{503, `{"status":503,"code":"never_heard_of","applied":"no"}`, fsm.CodeOK, false},
		{502, "no", fsm.CodeOK, false},
	} {
		status, body = tc.status, tc.body
		err := r.RemoveMember(id, 500*time.Millisecond)
		var e *fsm.Error
		switch {
		case err == nil, errors.As(err, &e) != (tc.code != fsm.CodeOK):
			t.Errorf("%s: %v", tc.body, err)
		case e != nil && (e.Code != tc.code || e.Unknown != tc.unkn):
			t.Errorf("%s: %+v", tc.body, e)
		}
	}
	status, body = 200, `{}`
	if err := r.RemoveMember(id, 500*time.Millisecond); err != nil {
		t.Error(err)
	}
	s.Close()
	var e *fsm.Error
	if err := r.RemoveMember(id, 500*time.Millisecond); !errors.As(err, &e) || !e.Unknown {
		t.Error(err)
	}
	for listen, want := range map[string]string{"127.0.0.1:80": "http://127.0.0.1:80", ":81": "http://localhost:81", "[::]:82": "http://localhost:82", "[::1]:83": "http://[::1]:83"} {
		if got := ownREST(listen); got != want {
			t.Errorf("%s: %s", listen, got)
		}
	}
}
