package httpapi

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"raftq/fsm"
)

// TestChangesGoToTheLeader proves that a follower passes a change of the members on
// to the leader, by the member's id, and looks for the next one while leadership
// moves; and that a time that is over is told as what may have been done.
func TestChangesGoToTheLeader(t *testing.T) {
	leader, follower := newFake(), newFake()
	follower.leader = listening(t, leader, Options{})
	s := newServer(t, follower, Options{})
	refused := 3
	leader.refuse = func() *fsm.Error {
		if refused--; refused == 0 {
			leader.refuse = nil // the next one is taken
		}
		return fsm.Refuse(fsm.CodeNoLeader, "not any more")
	}
	a := ask(t, s, "POST", "/v1/cluster/members", `{"name":"n4","peer":"http://n4:9080"}`)
	if a.status != 200 || !strings.Contains(a.body, `"name":"n4"`) {
		t.Errorf("%d %s", a.status, a.body)
	}
	if a = ask(t, s, "POST", "/v1/cluster/members/n1/promote", ""); a.status != 200 || !strings.Contains(a.body, `"id":"000000000000004d"`) {
		t.Errorf("%d %s", a.status, a.body)
	}
	if follower.changes != 0 || leader.changes < 4 {
		t.Errorf("the leader was asked %d times, the follower %d", leader.changes, follower.changes)
	}

	leader.refuse = func() *fsm.Error { return fsm.Refuse(fsm.CodeMemberExists, "taken") }
	before := leader.changes
	if a = ask(t, s, "POST", "/v1/cluster/members", `{"name":"n4","peer":"http://n4:9080"}`); a.status != 409 || leader.changes != before+1 {
		t.Errorf("%d %s, asked %d times", a.status, a.body, leader.changes-before)
	}
	began := time.Now()
	leader.refuse = func() *fsm.Error { return fsm.Refuse(fsm.CodeNoLeader, "not any more") }
	if a = ask(t, s, "POST", "/v1/cluster/transfer-leader?timeout=300ms", ""); a.status != 503 || !strings.Contains(a.body, `"applied":"no"`) {
		t.Errorf("%d %s", a.status, a.body)
	}
	leader.refuse = func() *fsm.Error { return &fsm.Error{Code: fsm.CodeNoLeader, Detail: "may be", Unknown: true} }
	if a = ask(t, s, "DELETE", "/v1/cluster/members/n1?timeout=300ms", ""); a.status != 504 || !strings.Contains(a.body, `"applied":"unknown"`) {
		t.Errorf("%d %s", a.status, a.body)
	}
	if d := time.Since(began); d > 5*time.Second {
		t.Errorf("two timeouts of 300 ms took %v", d)
	}
}

// TestMemberNames proves whom a path means: a name, or an id of 16 hexadecimal
// digits; a name wins.
func TestMemberNames(t *testing.T) {
	f := newFake()
	s := newServer(t, f, Options{})
	for path, want := range map[string]struct {
		id   uint64
		name string
	}{
		"n1":               {0xabc, "n1"},
		"n9":               {0, "n9"},
		"0000000000000abc": {0xabc, ""},
		"abc":              {0, "abc"},
	} {
		f.removed = nil
		if a := ask(t, s, "DELETE", "/v1/cluster/members/"+path, ""); a.status != 200 {
			t.Fatalf("%s: %d %s", path, a.status, a.body)
		}
		if len(f.removed) != 1 || f.removed[0].ID != want.id || want.id == 0 && f.removed[0].Name != want.name {
			t.Errorf("%s means %+v", path, f.removed)
		}
	}
}

// TestNewMemberOptions proves that what is wrong with a new member is refused by
// the name of the field.
func TestNewMemberOptions(t *testing.T) {
	s := newServer(t, newFake(), Options{})
	for body, field := range map[string]string{
		`{"name":"n4"}`:                                           "peer",
		`{"name":"n4","peer":"n4:9080"}`:                          "peer",
		`{"name":"n4","peer":"http://n4:9080/x"}`:                 "peer",
		`{"peer":"http://n4:9080"}`:                               "name",
		`{"name":"a b","peer":"http://n4:9080"}`:                  "name",
		`{"name":"n4","peer":"http://n4:9080","role":"leader"}`:   "role",
		`{"name":"n4","peer":"http://n4:9080","join":"xyz"}`:      "join",
		`{"name":"n4","peer":"http://n4:9080","join":"0"}`:        "join",
		`{"name":"n4","peer":"http://n4:9080","replace":"true"}`:  "replace",
		`{"name":"n4","peer":"http://n4:9080","feature_level":0}`: "feature_level",
		`{"name":"n4","peer":"http://n4:9080","name":"n5"}`:       "name",
		`{"name":"n4","peer":"http://n4:9080","color":"red"}`:     "color",
	} {
		if a := ask(t, s, "POST", "/v1/cluster/members", body); a.status != http.StatusUnprocessableEntity || !strings.Contains(a.body, field+":") {
			t.Errorf("%s: %d %s", body, a.status, a.body)
		}
	}
	if a := ask(t, s, "POST", "/v1/cluster/drain", `{"node":"n1","undo":1}`); a.status != http.StatusUnprocessableEntity {
		t.Errorf("%d %s", a.status, a.body)
	}
}

// TestDrain proves that a node without another one that would serve is not
// drained, and that the drain of another node is passed on to that one.
func TestDrain(t *testing.T) {
	here, there := newFake(), newFake()
	s := newServer(t, here, Options{})
	if a := ask(t, s, "POST", "/v1/cluster/drain", ""); a.status != http.StatusConflict || here.changes != 0 {
		t.Errorf("the only node: %d %s", a.status, a.body)
	}
	there.others = []ClusterNode{{Name: "n3", Role: "voter", Alive: true}}
	here.others = []ClusterNode{{Name: "n7", Client: listening(t, there, Options{}), Alive: true, Role: "voter"}}
	// There it is n1, as every fake is: whoever is asked by another node is meant.
	if a := ask(t, s, "POST", "/v1/cluster/drain", `{"node":"n7"}`); a.status != http.StatusNotFound {
		t.Errorf("n7 does not know itself: %d %s", a.status, a.body)
	}
	if a := ask(t, s, "POST", "/v1/cluster/drain", `{"node":"n1"}`); a.status != 200 || here.changes != 1 {
		t.Errorf("%d %s", a.status, a.body)
	}
	// A removal drains the member first.
	here.removed, there.changes = nil, 0
	here.member = fsm.Member{ID: 7, Name: "n7"}
	if a := ask(t, s, "DELETE", "/v1/cluster/members/n7", ""); a.status != 200 || there.changes != 1 || len(here.removed) != 1 {
		t.Errorf("%d %s; %d drains, removed %+v", a.status, a.body, there.changes, here.removed)
	}
}

// TestRemovalHalfDone proves that a removal of which an attempt may have been carried
// out is told as unknown, whatever the last attempt was refused with, and says what
// to do; and that a member which stays, for sure, serves again.
func TestRemovalHalfDone(t *testing.T) {
	leader, follower, member := newFake(), newFake(), newFake()
	follower.leader = listening(t, leader, Options{})
	member.others = []ClusterNode{{Name: "n3", Role: "voter", Alive: true}}
	follower.others = []ClusterNode{{Name: "n7", ID: "0000000000000007", Client: listening(t, member, Options{}), Alive: true, Role: "voter"}}
	leader.others = follower.others
	s := newServer(t, follower, Options{})
	for _, c := range []struct {
		code          fsm.Code
		unknown       bool // of the first attempt
		status        int
		says, applied string
		undrained     int // asked of the member
	}{
		{fsm.CodeMemberNotFound, true, 404, "Ask again by the id 0000000000000007", "unknown", 0},
		{fsm.CodeQuorumAtRisk, true, 409, "Ask again by the id 0000000000000007", "unknown", 0},
		{fsm.CodeOverloaded, true, 504, "Ask again by the id 0000000000000007", "unknown", 0},
		{fsm.CodeQuorumAtRisk, false, 409, "at the end", "no", 0},
		{fsm.CodeOverloaded, false, 503, "at the end", "no", 1},
		{fsm.CodeNoLeader, false, 503, "at the end", "no", 1},
	} {
		attempts := 0
		member.changes = 0
		leader.refuse = func() *fsm.Error {
			if attempts++; attempts == 1 {
				return &fsm.Error{Code: fsm.CodeNoLeader, Detail: "at first", Unknown: c.unknown}
			}
			return fsm.Refuse(c.code, "at the end")
		}
		a := ask(t, s, "DELETE", "/v1/cluster/members/n7?timeout=300ms", "")
		if a.status != c.status || !strings.Contains(a.body, c.says) || !strings.Contains(a.body, `"applied":"`+c.applied+`"`) {
			t.Errorf("%v after unknown=%v: %d %s", c.code, c.unknown, a.status, a.body)
		}
		if member.changes != c.undrained {
			t.Errorf("%v after unknown=%v: the member was asked %d times to serve again", c.code, c.unknown, member.changes)
		}
	}
}
