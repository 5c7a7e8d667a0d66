package main

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// fakeNode answers every request with f and counts them.
func fakeNode(t *testing.T, f http.HandlerFunc) (endpoint string, calls *atomic.Int32) {
	t.Helper()
	calls = &atomic.Int32{}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		calls.Add(1)
		f(w, r)
	}))
	t.Cleanup(srv.Close)
	return srv.Listener.Addr().String(), calls
}

// deadNode is an address where nobody listens.
func deadNode(t *testing.T) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	return ln.Addr().String()
}

func problemAnswer(status int, code string, retryable bool, applied string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(status)
		fmt.Fprintf(w, `{"title":"t","detail":"the detail","status":%d,"code":%q,"retryable":%v,"applied":%q}`, status, code, retryable, applied)
	}
}

func hangUp(w http.ResponseWriter, _ *http.Request) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err == nil {
		conn.Close()
	}
}

func answerJSON(status int, text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		_, _ = io.WriteString(w, text) // a test's server
	}
}

// raftqRun runs one command line.
func raftqRun(t *testing.T, stdin string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	code = run(t.Context(), args, strings.NewReader(stdin), &out, &errs)
	return code, out.String(), errs.String()
}

// The exit code says what became of a request, and the next node is asked only
// when that cannot do the work twice.
func TestExitCodesAndFailover(t *testing.T) {
	ok := answerJSON(201, `{"id":"D-1","queue":"q","committed":true,"duplicate":false}`)
	enqueue, stats := []string{"enqueue", "q", "body"}, []string{"stats", "q"}
	ack := []string{"ack", "r.1.x"}
	acked := answerJSON(200, `{"results":[{"id":"D-1","status":200}]}`)
	nack, nackID := []string{"nack", "r.1.x"}, []string{"nack", "r"}
	for _, c := range []struct {
		name   string
		args   []string
		first  http.HandlerFunc // nil: nobody listens
		second http.HandlerFunc
		code   int
		asked  int32 // of the second node
	}{
		{"not connected", enqueue, nil, ok, exitOK, 1},
		{"no leader", enqueue, problemAnswer(503, "no_leader", true, "no"), ok, exitOK, 1},
		{"lost answer of an enqueue, sent again under its key", enqueue, hangUp, ok, exitOK, 1},
		{"lost answers of an enqueue", enqueue, hangUp, hangUp, exitUnknown, 1},
		{"lost answer of an enqueue, refused then", enqueue, hangUp, problemAnswer(422, "invalid_option", false, "no"), exitRefused, 1},
		{"lost answer of an enqueue, no leader then", enqueue, hangUp, problemAnswer(503, "no_leader", true, "no"), exitUnknown, 1},
		{"lost answer of an ack", ack, hangUp, acked, exitOK, 1},
		{"lost answer of a nack", nack, hangUp, acked, exitOK, 1},
		{"lost answer of a nack by id", nackID, hangUp, acked, exitOK, 1},
		{"lost answer of a read", stats, hangUp, answerJSON(200, `{"queue":"q"}`), exitOK, 1},
		{"commit timeout of an enqueue", enqueue, problemAnswer(504, "commit_timeout", true, "unknown"), ok, exitOK, 1},
		{"commit timeouts of an enqueue", enqueue, problemAnswer(504, "commit_timeout", true, "unknown"), problemAnswer(504, "commit_timeout", true, "unknown"), exitUnknown, 1},
		{"commit timeout of an ack", ack, problemAnswer(504, "commit_timeout", true, "unknown"), acked, exitOK, 1},
		{"refused", enqueue, problemAnswer(422, "invalid_option", false, "no"), ok, exitRefused, 0},
		{"queue full", enqueue, problemAnswer(429, "queue_full", true, "no"), ok, exitUnavailable, 0},
		{"no such queue", stats, problemAnswer(404, "queue_not_found", false, "no"), ok, exitNothing, 0},
		{"not a node of ours", enqueue, answerJSON(502, "<html>"), answerJSON(502, "<html>"), exitUnknown, 1},
		{"a bug", enqueue, problemAnswer(500, "internal", false, "no"), ok, exitFailed, 0},
		{"nobody there", enqueue, nil, nil, exitUnavailable, 0},
		{"both refuse", enqueue, problemAnswer(503, "leaving", true, "no"), problemAnswer(503, "no_leader", true, "no"), exitUnavailable, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			var nodes []string
			asked := &atomic.Int32{}
			for i, f := range []http.HandlerFunc{c.first, c.second} {
				if f == nil {
					nodes = append(nodes, deadNode(t))
					continue
				}
				node, calls := fakeNode(t, f)
				nodes = append(nodes, node)
				if i == 1 {
					asked = calls
				}
			}
			code, out, errs := raftqRun(t, "", append(c.args, "--endpoints", strings.Join(nodes, ","))...)
			if code != c.code || asked.Load() != c.asked {
				t.Errorf("exit code %d, second node asked %d times; want %d, %d\n%s%s", code, asked.Load(), c.code, c.asked, out, errs)
			}
			if code != exitOK && errs == "" {
				t.Error("failed without a word")
			}
		})
	}
}

// randomID is the id that a dequeue makes up for itself.
var randomID = regexp.MustCompile(`attempt_id=[A-Z2-7]{26}\b`)

// exchange is what a command sends and what it is answered.
type exchange struct{ request, answer string } // "METHOD target body", "status body"

// commandCase is a command line, what it sends, and what it prints.
type commandCase struct {
	name      string
	args      []string
	stdin     string
	exchanges []exchange
	code      int
	out       string
	errs      string // in standard error
}

// answerTime is the log time of the answers that commandCases are given.
const answerTime = "1893456000000" // 2030-01-01T00:00:00Z

func (c *commandCase) check(t *testing.T) {
	var mu sync.Mutex
	var seen []string
	node, _ := fakeNode(t, func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		mu.Lock()
		defer mu.Unlock()
		if err != nil || len(seen) >= len(c.exchanges) {
			t.Errorf("unexpected request %s %s, %v", r.Method, r.RequestURI, err)
			return
		}
		answer := c.exchanges[len(seen)].answer
		seen = append(seen, r.Method+" "+randomID.ReplaceAllString(r.RequestURI, "attempt_id=RANDOM")+" "+string(body))
		status, text, _ := strings.Cut(answer, " ")
		n := 0
		_, _ = fmt.Sscan(status, &n) // of a table
		w.Header().Set("Raftq-Time", answerTime)
		w.WriteHeader(n)
		_, _ = io.WriteString(w, text) // a test's server
	})
	t.Setenv("RAFTQ_ENDPOINTS", node)
	code, out, errs := raftqRun(t, c.stdin, c.args...)
	if code != c.code || out != c.out || !strings.Contains(errs, c.errs) {
		t.Errorf("exit code %d, want %d; output\n%s\n%q, want\n%q\n%s", code, c.code, out, out, c.out, errs)
	}
	mu.Lock()
	defer mu.Unlock()
	if len(seen) != len(c.exchanges) {
		t.Fatalf("%d requests, want %d", len(seen), len(c.exchanges))
	}
	for i, e := range c.exchanges {
		if seen[i] != e.request {
			t.Errorf("request %d\n%q, want\n%q", i, seen[i], e.request)
		}
	}
}

// What the commands send that put jobs in, take them and answer for them, and what
// they print.
func TestClientCommands(t *testing.T) {
	for _, c := range []commandCase{
		{
			name: "enqueue an argument", args: []string{"enqueue", "a/b c", "hi", "--priority", "7", "--delay", "5m", "--at-most-once", "--header", "k=v=w"},
			exchanges: []exchange{{"POST /v1/queues/a%2Fb%20c/enqueue?at_most_once=true&delay=5m&header.k=v%3Dw&priority=7&timeout=10s hi", `201 {"id":"D-1"}`}},
			out:       "D-1\n",
		},
		{
			name: "enqueue standard input", args: []string{"enqueue", "q"}, stdin: "from a\npipe\n",
			exchanges: []exchange{{"POST /v1/queues/q/enqueue?timeout=10s from a\npipe\n", `201 {"id":"D-1"}`}},
			out:       "D-1\n",
		},
		{
			name: "enqueue as json", args: []string{"enqueue", "q", "-", "-o", "json"}, stdin: "x",
			exchanges: []exchange{{"POST /v1/queues/q/enqueue?timeout=10s x", `201 {"id":"D-1","new":1}`}},
			out:       `{"id":"D-1","new":1}` + "\n",
		},
		{
			name: "dequeue", args: []string{"dequeue", "q", "--max", "3", "--wait", "5s", "--consistency", "fast"},
			exchanges: []exchange{{"POST /v1/queues/q/dequeue?attempt_id=RANDOM&consistency=fast&max=3&timeout=10s&wait=5s ", `200 {"jobs":[{"id":"D-1","receipt":"D-1.1.t","body":"one"},{"id":"D-2","receipt":"D-2.1.t","body":"two\nlines"},{"id":"D-3","receipt":"D-3.1.t","body_base64":"/w=="}]}`}},
			out:       "D-1.1.t\tone\nD-2.1.t\t\"two\\nlines\"\nD-3.1.t\t\"\\xff\"\n",
		},
		{
			name: "dequeue and ack", args: []string{"dequeue", "q", "--ack"},
			exchanges: []exchange{
				{"POST /v1/queues/q/dequeue?attempt_id=RANDOM&timeout=10s ", `200 {"jobs":[{"id":"D-1","receipt":"D-1.1.t","body":"two\nlines"}]}`},
				{`POST /v1/ack?timeout=10s {"items":[{"receipt":"D-1.1.t"}]}`, `200 {"results":[{"id":"D-1","status":200}]}`},
			},
			out: "two\nlines\n",
		},
		{
			name: "dequeue nothing", args: []string{"dequeue", "q", "--ack"},
			exchanges: []exchange{{"POST /v1/queues/q/dequeue?attempt_id=RANDOM&timeout=10s ", "204 "}},
			code:      exitNothing,
		},
		{
			name: "ack", args: []string{"ack", "D-1.1.t", "D-2"},
			exchanges: []exchange{{`POST /v1/ack?timeout=10s {"items":[{"receipt":"D-1.1.t"},{"id":"D-2"}]}`, `200 {"results":[{"id":"D-1","status":200},{"id":"D-2","status":200,"already":true}]}`}},
			out:       "D-1 acked\nD-2 was acked before\n",
		},
		{
			name: "ack in part", args: []string{"ack", "D-1.1.t", "D-2.1.t"},
			exchanges: []exchange{{`POST /v1/ack?timeout=10s {"items":[{"receipt":"D-1.1.t"},{"receipt":"D-2.1.t"}]}`, `207 {"results":[{"id":"D-1","status":200,"late":true},{"id":"D-2","status":409,"code":"lease_lost"}]}`}},
			code:      exitRefused,
			out:       "D-1 acked, after its lease\n",
		},
		{
			name: "nack", args: []string{"nack", "D-1.1.t", "--delay", "10s", "--error", "boom"},
			exchanges: []exchange{{`POST /v1/nack?timeout=10s {"items":[{"receipt":"D-1.1.t","delay":"10s","error":"boom"}]}`, `200 {"results":[{"id":"D-1","status":200}]}`}},
			out:       "D-1 given back\n",
		},
		{
			name: "nack of the last time", args: []string{"nack", "D-1.1.t"},
			exchanges: []exchange{{`POST /v1/nack?timeout=10s {"items":[{"receipt":"D-1.1.t"}]}`, `200 {"results":[{"id":"D-1","status":200,"dead":true}]}`}},
			out:       "D-1 dead after its last failure\n",
		},
		{
			name: "nack as json, in part", args: []string{"nack", "D-1.1.t", "D-2.1.t", "-o", "json", "--timeout", "5s"},
			exchanges: []exchange{{`POST /v1/nack?timeout=5s {"items":[{"receipt":"D-1.1.t"},{"receipt":"D-2.1.t"}]}`, `207 {"results":[{"id":"D-1","status":200,"dead":true},{"id":"D-2","status":410,"code":"job_gone","new":1}]}`}},
			code:      exitNothing,
			out:       `{"results":[{"id":"D-1","status":200,"dead":true},{"id":"D-2","status":410,"code":"job_gone","new":1}]}` + "\n",
		},
		{
			name: "release", args: []string{"release", "D-1.1.t", "--consistency", "fast"},
			exchanges: []exchange{{`POST /v1/release?consistency=fast&timeout=10s {"items":[{"receipt":"D-1.1.t"}]}`, `200 {"results":[{"id":"D-1","status":200}]}`}},
			out:       "D-1 given back\n",
		},
		{
			name: "fate", args: []string{"fate", "ab.1.2"},
			exchanges: []exchange{{"GET /v1/log/fate?batch=ab.1.2 ", `200 {"batch":"ab.1.2","fate":"pending"}`}},
			out:       "pending\n",
		},
		{
			name: "fate as json", args: []string{"fate", "ab.1.2", "-o", "json"},
			exchanges: []exchange{{"GET /v1/log/fate?batch=ab.1.2 ", `200 {"batch":"ab.1.2","fate":"lost"}`}},
			out:       `{"batch":"ab.1.2","fate":"lost"}` + "\n",
		},
		{
			name: "extend", args: []string{"extend", "D-1.1.t", "--lease", "5m"},
			exchanges: []exchange{{`POST /v1/extend?timeout=10s {"items":[{"receipt":"D-1.1.t","lease":"5m"}]}`, `200 {"results":[{"id":"D-1","status":200,"lease_until":"2030-01-01T00:00:00Z"}]}`}},
			out:       "D-1 yours until 2030-01-01T00:00:00Z\n",
		},
		{
			name: "stats of all, in pages", args: []string{"stats", "--prefix", "m"},
			exchanges: []exchange{
				{"GET /v1/queues?limit=1000&prefix=m ", `200 {"queues":[{"queue":"mail","ready":3,"leased":1,"bytes":2048,"oldest_ready_age_ms":1500,"enqueued_total":9}],"next_cursor":"c"}`},
				{"GET /v1/queues?cursor=c&limit=1000&prefix=m ", `200 {"queues":[{"queue":"mail2"}]}`},
			},
			out: "QUEUE  READY  LEASED  DELAYED  HELD  DEAD  WAITERS  OLDEST  BYTES  ENQUEUED  DELIVERED  ACKED  FAILED\n" +
				"mail       3       1        0     0     0        0    1.5s  2 KiB         9          0      0       0\n" +
				"mail2      0       0        0     0     0        0       -    0 B         0          0      0       0\n",
		},
		{
			name: "cluster", args: []string{"cluster"},
			exchanges: []exchange{{"GET /v1/cluster ", `200 {"cluster_id":"ab","leader":"n1","term":3,"commit_index":9,"nodes":[{"name":"n1","role":"voter","leader":true,"client":"a:1","peer":"http://a:2","match_index":9,"applied_index":9,"version":"v1","alive":true},{"name":"n2","role":"voter","client":"b:1","peer":"http://b:2","match_index":8,"applied_index":7,"version":"v1"}]}`}},
			out: "cluster ab, leader n1, term 3, commit index 9\n" +
				"NODE  ROLE    STATE  CLIENT  PEER        MATCH  APPLIED  BEHIND  VERSION\n" +
				"n1    leader  up     a:1     http://a:2      9        9       0  v1\n" +
				"n2    voter   DOWN   b:1     http://b:2      8        7       2  v1\n",
		},
		{name: "bad header", args: []string{"enqueue", "q", "x", "--header", "novalue"}, code: exitUsage},
		{name: "bad output", args: []string{"stats", "-o", "xml"}, code: exitUsage},
		{name: "missing queue", args: []string{"dequeue"}, code: exitUsage},
		{name: "missing receipts", args: []string{"ack"}, code: exitUsage},
	} {
		t.Run(c.name, c.check)
	}
}

// Whoever asks the port of the nodes among themselves is told so.
func TestPeerPortHint(t *testing.T) {
	node, _ := fakeNode(t, http.NotFound)
	code, _, errs := raftqRun(t, "", "stats", "--endpoints", node)
	if code == exitOK || !strings.Contains(errs, node+" does not know /v1/queues; is this the peer port?") {
		t.Errorf("exit code %d, %s", code, errs)
	}
}

// A read that is not answered was surely not done: the hint does not say otherwise.
func TestSilentReadHint(t *testing.T) {
	node, _ := fakeNode(t, hangUp)
	for command, unsure := range map[string]bool{"stats": false, "cluster": false, "enqueue q x": true} {
		code, _, errs := raftqRun(t, "", append(strings.Fields(command), "--endpoints", node)...)
		if (code == exitUnknown) != unsure || strings.Contains(errs, "may have been done") != unsure || !strings.Contains(errs, "hint: ") {
			t.Errorf("%s: exit code %d, %s", command, code, errs)
		}
	}
}

// A fast answer is told from one that is committed, beside the output.
func TestFastAnswerIsTold(t *testing.T) {
	node, _ := fakeNode(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Raftq-Batch", "ab.1.2")
		w.WriteHeader(http.StatusAccepted)
		_, _ = io.WriteString(w, `{"id":"D-1","committed":false,"jobs":[{"receipt":"D-1.1.t","body":"x"}],"results":[{"id":"D-1","status":200}]}`) // a test's server
	})
	for _, args := range [][]string{{"enqueue", "q", "x"}, {"dequeue", "q"}, {"ack", "D-1.1.t"}, {"nack", "D-1.1.t"}, {"release", "D-1.1.t"}, {"extend", "D-1.1.t", "-o", "json"}} {
		code, out, errs := raftqRun(t, "", append(args, "--consistency", "fast", "--endpoints", node)...)
		if code != exitOK || !strings.HasPrefix(errs, "raftq: not committed yet; batch ab.1.2 (ask: raftq fate ab.1.2)\n") || strings.Contains(out, "ab.1.2") {
			t.Errorf("%v: exit code %d\n%s%s", args, code, out, errs)
		}
	}
}

// Endpoints are addresses or base URLs, and nothing else.
func TestEndpoints(t *testing.T) {
	node, _ := fakeNode(t, answerJSON(200, `{"queues":[]}`))
	for _, good := range []string{node, "http://" + node + "/", deadNode(t) + ", " + node + ","} {
		if code, _, errs := raftqRun(t, "", "stats", "--endpoints", good); code != exitOK {
			t.Errorf("--endpoints %q: exit code %d\n%s", good, code, errs)
		}
	}
	for _, bad := range []string{",", "h1", "ftp://h1:1", "http://h1", "http://h1:1/path"} {
		if code, _, errs := raftqRun(t, "", "stats", "--endpoints", bad); code != exitUsage || !strings.Contains(errs, "endpoints: ") {
			t.Errorf("--endpoints %q: exit code %d\n%s", bad, code, errs)
		}
	}
}
