package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
)

// linesNode takes jobs and makes an id of each line; refuse says which lines are
// refused one by one. It returns the keys and the bodies that it got.
type linesNode struct {
	mu     sync.Mutex
	keys   []string
	bodies []string
	jobs   []map[string]any
	refuse map[string]string // body: what it is answered
	fail   map[int]http.HandlerFunc
}

func (n *linesNode) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.keys = append(n.keys, r.Header.Get("Idempotency-Key"))
	if f := n.fail[len(n.keys)]; f != nil {
		f(w, r)
		return
	}
	var jobs []map[string]any
	if err := json.NewDecoder(r.Body).Decode(&jobs); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	results := make([]string, len(jobs))
	status := 201
	for i, j := range jobs {
		var body []byte
		text, _ := json.Marshal(j["body_base64"])
		_ = json.Unmarshal(text, &body) // of base64
		n.bodies, n.jobs = append(n.bodies, string(body)), append(n.jobs, j)
		results[i] = fmt.Sprintf(`{"id":"D-%s","status":201}`, body)
		if text := n.refuse[string(body)]; text != "" {
			results[i], status = text, 207
		}
	}
	w.WriteHeader(status)
	_, _ = io.WriteString(w, `{"results":[`+strings.Join(results, ",")+`]}`) // a test's server
}

func numbered(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "%d\n", i+1)
	}
	return b.String()
}

// Each line is a job with the same options, in order; ids come in that order.
func TestEnqueueLines(t *testing.T) {
	n := &linesNode{}
	node, calls := fakeNode(t, n.ServeHTTP)
	code, out, errs := raftqRun(t, numbered(1201), "enqueue", "q", "--lines", "--priority", "7", "--at-most-once", "--delay", "5s", "--header", "a=b", "--endpoints", node)
	var want strings.Builder
	for i := range 1201 {
		fmt.Fprintf(&want, "D-%d\n", i+1)
	}
	if code != exitOK || out != want.String() || !strings.HasPrefix(errs, "raftq: 1201 jobs are in q, after ") {
		t.Errorf("exit code %d, %d bytes printed\n%s", code, len(out), errs)
	}
	if calls.Load() < 3 || len(n.bodies) != 1201 {
		t.Errorf("%d jobs in %d requests", len(n.bodies), calls.Load())
	}
	if text, _ := json.Marshal(n.jobs[1200]); string(text) != `{"at_most_once":true,"body_base64":"MTIwMQ==","delay":"5s","headers":{"a":"b"},"priority":7}` {
		t.Errorf("job = %s", text)
	}
	for i, key := range n.keys {
		if len(key) != 26 || i > 0 && key == n.keys[i-1] {
			t.Errorf("keys = %q", n.keys)
		}
	}
}

// With a key of the user's, each batch has a part of it, the same in each run.
func TestEnqueueLinesKeys(t *testing.T) {
	n := &linesNode{}
	node, _ := fakeNode(t, n.ServeHTTP)
	for range 2 {
		if code, _, errs := raftqRun(t, numbered(1100), "enqueue", "q", "--lines", "-q", "--idempotency-key", "k", "--endpoints", node); code != exitOK {
			t.Fatalf("exit code %d\n%s", code, errs)
		}
	}
	if got := strings.Join(n.keys, " "); got != "k.1 k.2 k.3 k.1 k.2 k.3" {
		t.Errorf("keys = %s", got)
	}
}

// Lines that are refused alone are told by number, and the others go on.
func TestEnqueueLinesRefused(t *testing.T) {
	n := &linesNode{refuse: map[string]string{"3": `{"status":413,"code":"body_too_large","detail":"too much"}`, "700": `{"status":409,"code":"not_unique","id":"D-x"}`}}
	node, _ := fakeNode(t, n.ServeHTTP)
	code, out, errs := raftqRun(t, numbered(1000), "enqueue", "q", "--lines", "--endpoints", node)
	if code != exitRefused || strings.Count(out, "\n") != 998 || !strings.Contains(errs, "2 of 1000 failed\n  line 3: too much (body_too_large)\n  line 700: not_unique\n") {
		t.Errorf("exit code %d, %d lines\n%s", code, strings.Count(out, "\n"), errs)
	}
	code, out, _ = raftqRun(t, "3\n4\n", "enqueue", "q", "--lines", "-o", "json", "--endpoints", node)
	want := `{"line":1,"id":"","status":413,"code":"body_too_large","detail":"too much"}` + "\n" + `{"line":2,"id":"D-4","status":201}` + "\n"
	if code != exitRefused || out != want {
		t.Errorf("json: exit code %d\n%s, want\n%s", code, out, want)
	}
}

// What ends it says after which line, and how to go on.
func TestEnqueueLinesStops(t *testing.T) {
	full := problemAnswer(429, "queue_full", true, "no")
	for _, c := range []struct {
		name string
		fail http.HandlerFunc
		args []string
		code int
		want string
	}{
		{"full", full, nil, exitUnavailable, "stopped after line 500, 500 jobs put in (go on with tail -n +501 of the input): t: the detail (queue_full)\nhint: take jobs out"},
		{"full, with a key", full, []string{"--idempotency-key", "k"}, exitUnavailable, "stopped after line 500, 500 jobs put in (go on with the same command): "},
		{"lost answer", hangUp, []string{"--retry-for", "0s"}, exitUnknown, "(go on with tail -n +501 of the input, but the next lines may have been put in: see the queue): "},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := &linesNode{fail: map[int]http.HandlerFunc{}}
			for i := 2; i < 20; i++ {
				n.fail[i] = c.fail
			}
			node, _ := fakeNode(t, n.ServeHTTP)
			code, out, errs := raftqRun(t, numbered(1000), append([]string{"enqueue", "q", "--lines", "--endpoints", node}, c.args...)...)
			if code != c.code || strings.Count(out, "\n") != 500 || !strings.Contains(errs, c.want) {
				t.Errorf("exit code %d, %d lines\n%s", code, strings.Count(out, "\n"), errs)
			}
		})
	}
}

// A batch whose answer got lost is sent again under its key, without being told.
func TestEnqueueLinesGoesOn(t *testing.T) {
	n := &linesNode{fail: map[int]http.HandlerFunc{2: hangUp, 3: hangUp, 4: problemAnswer(503, "no_leader", true, "no")}}
	node, _ := fakeNode(t, n.ServeHTTP)
	code, _, errs := raftqRun(t, numbered(1000), "enqueue", "q", "--lines", "-q", "--endpoints", node)
	if code != exitOK || len(n.bodies) != 1000 || len(n.keys) != 5 || n.keys[1] != n.keys[2] || n.keys[1] != n.keys[4] {
		t.Errorf("exit code %d, %d jobs, keys %q\n%s", code, len(n.bodies), n.keys, errs)
	}
}

// What the body is read from.
func TestEnqueueInput(t *testing.T) {
	t.Chdir(t.TempDir())
	touchWith(t, "body", "of a file\n\xff")
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"argument"}, "argument"}, {nil, "from stdin\n"}, {[]string{"-"}, "from stdin\n"},
		{[]string{"--file", "-"}, "from stdin\n"}, {[]string{"--file", "body"}, "of a file\n\xff"}, {[]string{""}, ""},
	} {
		var got []byte
		node, _ := fakeNode(t, func(w http.ResponseWriter, r *http.Request) {
			got, _ = io.ReadAll(r.Body)
			answerJSON(201, `{"id":"D-1"}`)(w, r)
		})
		if code, _, errs := raftqRun(t, "from stdin\n", append([]string{"enqueue", "q", "--endpoints", node}, c.args...)...); code != exitOK || string(got) != c.want {
			t.Errorf("%q: exit code %d, body %q\n%s", c.args, code, got, errs)
		}
	}
	for want, args := range map[string][]string{
		"give one of them":         {"q", "x", "--file", "body"},
		"no such file":             {"q", "--file", "missing"},
		"is not a whole number":    {"q", "--lines", "--priority", "high"},
		`header: "x" is not name=`: {"q", "--lines", "--header", "x"},
	} {
		if code, _, errs := raftqRun(t, "", append([]string{"enqueue"}, args...)...); code != exitUsage || !strings.Contains(errs, want) {
			t.Errorf("%q: exit code %d\n%s", args, code, errs)
		}
	}
}
