package httpapi

import (
	"fmt"
	"net/url"
	"strings"
	"testing"
)

// TestLignum proves that Lignum's routes answer as Lignum does, to any content type,
// and that they are the topics of /v1.
func TestLignum(t *testing.T) {
	s := newServer(t, newInProcess(t), Options{MaxBody: 1000})
	post := func(body string) *answer { return ask(t, s, "POST", "/api/message", body) }
	get := func(body string) *answer {
		return ask(t, s, "GET", "/api/message", body, "Content-Type", "application/x-www-form-urlencoded")
	}
	if a := ask(t, s, "GET", "/api/topics", ""); a.status != 200 || a.body != "[]\n" {
		t.Errorf("%d %q", a.status, a.body)
	}
	if a := post(`{"topic":"test","message":"this is a \"test\"\n\u00e9"}`); a.status != 200 || a.body != `{"status": "message commited", "data": "this is a \"test\"\né"}` || a.header("Content-Type") != "application/json" {
		t.Errorf("%d %s", a.status, a.body)
	}
	post(`{"topic":"test","message":"two"}`)
	ask(t, s, "POST", "/v1/topics/test", "three")
	for body, want := range map[string]string{
		`{"topic":"test","from":0,"to":3}`:   `{"messages":[{"Id":0,"Data":"this is a \"test\"\né"},{"Id":1,"Data":"two"},{"Id":2,"Data":"three"}],"count":3}` + "\n",
		`{"topic":"test","from":1,"to":2}`:   `{"messages":[{"Id":1,"Data":"two"}],"count":1}` + "\n",
		`{"topic":"test","from":2,"to":900}`: `{"messages":[{"Id":2,"Data":"three"}],"count":1}` + "\n",
		`{"topic":"test","to":1}`:            `{"messages":[{"Id":0,"Data":"this is a \"test\"\né"}],"count":1}` + "\n",
		`{"topic":"test","from":7,"to":9}`:   `{"messages":[],"count":0}` + "\n",
	} {
		if a := get(body); a.status != 200 || a.body != want {
			t.Errorf("%s: %d %s", body, a.status, a.body)
		}
	}
	for body, want := range map[string]string{
		`{"topic":"test"`:                   "unexpected EOF",
		``:                                  "EOF",
		`{"topic":"test","to":1,"x":2}`:     `json: unknown field "x"`,
		`{"topic":"","from":0,"to":1}`:      "message topic not specified",
		`{"topic":"none","from":0,"to":1}`:  "topic does not exist",
		`{"topic":"test","from":1,"to":1}`:  "invalid message range (must: from<to)",
		`{"topic":"test","from":-1,"to":1}`: "cannot unmarshal number -1",
		"{\"topic\":\"\xff\"}":              "not UTF-8",
	} {
		a := get(body)
		if a.status != 400 || !strings.Contains(a.body, want) || a.header("Content-Type") != "text/plain; charset=utf-8" {
			t.Errorf("%q: %d %s", body, a.status, a.body)
		}
		if strings.Contains(body, `"to"`) {
			continue
		}
		if a := post(body); a.status != 400 || !strings.Contains(a.body, want) {
			t.Errorf("%q: %d %s", body, a.status, a.body)
		}
	}
	if a := post(`{"topic":"` + strings.Repeat("t", 256) + `","message":""}`); a.status != 400 {
		t.Errorf("%d %s", a.status, a.body)
	}
	wantProblem(t, post(`{"topic":"test","message":"`+strings.Repeat("x", 1001)+`"}`), 413, "body_too_large")
	if a := ask(t, s, "GET", "/api/topics", ""); a.body != `[{"name":"test","message_count":3}]`+"\n" {
		t.Errorf("%s", a.body)
	}
	ask(t, s, "DELETE", "/v1/topics/test/messages?before=1", "")
	if a := get(`{"topic":"test","from":0,"to":2}`); a.status != 400 || !strings.Contains(a.body, "begins at offset 1") {
		t.Errorf("%d %s", a.status, a.body)
	}
	if a := ask(t, s, "GET", "/ping", ""); a.status != 200 || a.body != "PONG" {
		t.Errorf("%d %s", a.status, a.body)
	}
	if a := ask(t, s, "POST", "/api/follower/register", `{"id":"n4"}`); a.status != 410 || !strings.Contains(a.body, "--join") {
		t.Errorf("%d %s", a.status, a.body)
	}
}

// TestLignumLong proves that a long range comes whole, over several pages of the
// machine.
func TestLignumLong(t *testing.T) {
	s := newServer(t, newInProcess(t), Options{})
	var b strings.Builder
	for i := range 1000 {
		fmt.Fprintf(&b, `,{"body":"%d"}`, i)
	}
	for range 3 {
		if a := ask(t, s, "POST", "/v1/topics/"+url.PathEscape("a b")+"/messages", "["+b.String()[1:]+"]"); a.status != 201 {
			t.Fatalf("%d %s", a.status, a.body)
		}
	}
	a := ask(t, s, "GET", "/api/message", `{"topic":"a b","from":1,"to":2999}`)
	list := a.json(t)["messages"].([]any)
	if len(list) != 2998 || a.json(t)["count"] != 2998.0 {
		t.Fatalf("%d messages", len(list))
	}
	for i, m := range list {
		if m := m.(map[string]any); m["Id"] != float64(i+1) || m["Data"] != fmt.Sprint((i+1)%1000) {
			t.Fatalf("message %d: %v", i, m)
		}
	}
}
