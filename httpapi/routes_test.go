package httpapi

import (
	"strings"
	"testing"
)

// TestRoutesFound proves that each line of the table is reached by its own
// path and method, and that each other method is refused with Allow.
func TestRoutesFound(t *testing.T) {
	f := newFake()
	s := newServer(t, f, Options{})
	for i := range routes {
		r := &routes[i]
		path := strings.NewReplacer("{q}", "x", "{id}", "x", "{c}", "x", "{t}", "x", "{cursor}", "x", "*", "cmdline").Replace(r.pattern)
		var params [2][]byte
		at := s.tree.find([]byte(path), &params)
		if at == nil || at.method([]byte(r.method)) == nil || at.method([]byte(r.method)).pattern != r.pattern {
			t.Errorf("%s %s is not found", r.method, path)
			continue
		}
		a := ask(t, s, "BREW", path, "")
		wantContains(t, wantProblem(t, a, 405, "method_not_allowed"), r.method)
		wantContains(t, a.header("Allow"), r.method)
	}
	if a := ask(t, s, "HEAD", "/livez", ""); a.status != 200 {
		t.Errorf("HEAD: %d", a.status)
	}
}

// TestRoutesMissing proves that a wrong path says what was probably meant.
func TestRoutesMissing(t *testing.T) {
	s := newServer(t, newFake(), Options{})
	for path, hint := range map[string]string{
		"/queues/q/enqueue":      "paths begin with /v1: /v1/queues/q/enqueue",
		"/v1/queues/q/enqueue/":  "without the slash at the end",
		"/v1/queues/a/b/enqueue": "%2F",
		"/v1/queues/q/lease":     "/dequeue",
		"/":                      "routes are",
		"/v1":                    "routes are",
		"/v2/ack":                "routes are",
	} {
		wantContains(t, wantProblem(t, ask(t, s, "POST", path, ""), 404, "route_not_found"), hint)
	}
}

// TestProbes proves what probes say and that livez says it always.
func TestProbes(t *testing.T) {
	f := newFake()
	s := newServer(t, f, Options{Version: "v1.2.3"})
	for _, path := range []string{"/livez", "/readyz", "/startupz", "/version", "/v1/cluster"} {
		if a := ask(t, s, "GET", path, ""); a.status != 200 || a.header("Content-Type") != "application/json" || a.header("Raftq-Node") != "n1" || a.header("Raftq-Leader") != "n2" {
			t.Errorf("%s: %d %s", path, a.status, a.body)
		}
	}
	wantContains(t, ask(t, s, "GET", "/version", "").body, "v1.2.3")
	wantContains(t, ask(t, s, "GET", "/v1/cluster", "").body, `"cluster_id":"c0ffee"`, `"role":"voter"`)
	wantContains(t, ask(t, s, "GET", "/debug/pprof/cmdline?x=1", "").body, "httpapi")
	f.err = errNotYet
	wantProblem(t, ask(t, s, "GET", "/readyz", ""), 503, "no_leader")
	wantProblem(t, ask(t, s, "GET", "/startupz", ""), 503, "loading")
	if a := ask(t, s, "GET", "/livez", ""); a.status != 200 {
		t.Errorf("livez: %d", a.status)
	}
}
