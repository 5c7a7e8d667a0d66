package httpapi

import (
	"errors"
	"strings"
	"testing"

	"raftq/fsm"
)

// TestEveryCode proves that each code of the machine has a line in the table,
// travels as a problem with the right words, and says whether a retry is safe.
func TestEveryCode(t *testing.T) {
	statuses := map[string]int{
		"invalid_request": 400, "invalid_option": 422, "bad_job_id": 400, "queue_not_found": 404, "job_not_found": 404,
		"lease_lost": 409, "queue_paused": 409, "too_late": 409, "at_most_once": 409, "job_gone": 410, "body_too_large": 413,
		"queue_full": 429, "no_leader": 503, "leaving": 503, "loading": 503, "not_fresh": 503, "overloaded": 503, "commit_timeout": 504,
		"memory_limit": 507, "disk_limit": 507, "queue_not_empty": 409, "epoch_taken": 500,
		"aborted": 409, "not_unique": 409, "idempotency_mismatch": 422, "etag_mismatch": 412, "not_enough_replicas": 503,
		"feature_level": 503, "member_exists": 409, "member_not_found": 404, "quorum_at_risk": 409,
		"topic_not_found": 404, "cursor_not_found": 404, "offset_trimmed": 410,
	}
	for _, code := range fsm.Codes() {
		if code == fsm.CodeOK {
			continue
		}
		f := newFake()
		s := newServer(t, f, Options{})
		for _, viaError := range []bool{true, false} {
			f.answer = func(fsm.Op) (fsm.Result, error) {
				if viaError {
					return fsm.Result{}, fsm.Refuse(code, "because")
				}
				return fsm.Result{Position: f.position(), Code: code}, nil
			}
			a := ask(t, s, "POST", enqueueQ, "x")
			want, ok := statuses[code.String()]
			if !ok {
				t.Fatalf("no status known for %s; is it in the table of kinds?", code)
			}
			wantProblem(t, a, want, code.String())
			m := a.json(t)
			if m["instance"] != enqueueQ || strings.TrimSpace(m["title"].(string)) == "" {
				t.Errorf("%s", a.body)
			}
			unknown := want == 504
			if (m["applied"] == "unknown") != unknown {
				t.Errorf("%s: applied %v", code, m["applied"])
			}
			retry := want == 429 || want == 503 || want == 507
			if (a.header("Retry-After") != "") != retry {
				t.Errorf("%s: Retry-After %q", code, a.header("Retry-After"))
			}
			if retry && (m["retryable"] != true || m["retry_after_ms"] == nil) {
				t.Errorf("%s: %s", code, a.body)
			}
			if a.header("Raftq-Node") != "n1" || a.header("Raftq-Leader") != "n2" || (a.header("Raftq-Index") != "") == viaError {
				t.Errorf("%s: header fields", code)
			}
		}
		// As one item of several.
		f.answer = func(op fsm.Op) (fsm.Result, error) {
			return fsm.Result{Position: f.position(), Items: []fsm.ItemResult{{}, {Code: code}}}, nil
		}
		a := ask(t, s, "POST", "/v1/queues/q/jobs", `[{"body":"1"},{"body":"2"}]`)
		if a.status != 207 || !strings.Contains(a.body, `"code":"`+code.String()+`"`) {
			t.Errorf("%s as an item: %d %s", code, a.status, a.body)
		}
	}
	if kindOf(fsm.Code(255)).status != 500 {
		t.Error("an unknown code is not an internal error")
	}
}

// TestUnknownOutcome proves that an error which may have been applied says so,
// whatever its code, and that a replica's odd error does as well.
func TestUnknownOutcome(t *testing.T) {
	f := newFake()
	s := newServer(t, f, Options{})
	for _, err := range []error{&fsm.Error{Code: fsm.CodeCommitTimeout}, &fsm.Error{Code: fsm.CodeLeaving, Unknown: true}, errors.New("odd")} {
		f.answer = func(fsm.Op) (fsm.Result, error) { return fsm.Result{}, err }
		if m := ask(t, s, "POST", enqueueQ, "x").json(t); m["applied"] != "unknown" || m["status"] == float64(503) {
			t.Errorf("%v: %v", err, m)
		}
	}
}

// TestPanic proves that a bug in a handler answers 500 and ends nothing.
func TestPanic(t *testing.T) {
	f := newFake()
	s := newServer(t, f, Options{})
	f.answer = func(fsm.Op) (fsm.Result, error) { panic("bug") }
	wantProblem(t, ask(t, s, "POST", enqueueQ, "x"), 500, "internal")
	f.answer = nil
	if a := ask(t, s, "POST", enqueueQ, "x"); a.status != 201 {
		t.Errorf("afterwards: %d", a.status)
	}
}
