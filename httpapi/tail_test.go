package httpapi

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"raftq/fsm"
)

// TestMessagesWait proves on a real node that a long poll is answered by the first
// message that comes, of its topic alone, and with 204 when none does.
func TestMessagesWait(t *testing.T) {
	s := newServer(t, openLive(t), Options{})
	addr := listen(t, s)
	ask(t, s, "POST", newsT, "0")
	if a := ask(t, s, "GET", newsT+"/messages?wait=10s", ""); bodiesOf(t, a, 0)[0] != "0" {
		t.Errorf("what is there is not waited for: %s", a.body)
	}
	for i, how := range []string{"", "&consistency=fast"} {
		c := dial(t, addr)
		c.send(fmt.Sprintf("GET %s/messages?from=%d&wait=20s%s HTTP/1.1\r\nHost: x\r\n\r\n", newsT, i+1, how))
		s.awaitReaders(t, 1)
		ask(t, s, "POST", "/v1/topics/other", "x")
		ask(t, s, "POST", newsT, fmt.Sprint(i+1))
		if got := bodiesOf(t, c.receive("GET"), float64(i+1)); len(got) != 1 || got[0] != fmt.Sprint(i+1) {
			t.Errorf("%q", got)
		}
		s.awaitReaders(t, 0)
	}
	a := ask(t, s, "GET", newsT+"/messages?from=3&wait=10ms", "")
	if a.status != 204 || a.body != "" || a.header("Raftq-Next-Offset") != "3" {
		t.Errorf("%d %s", a.status, a.body)
	}
	wantProblem(t, ask(t, s, "GET", "/v1/topics/none/messages?wait=10s", ""), 404, "topic_not_found")
	// One that waits for what lies ahead is not woken by what comes before.
	c := dial(t, addr)
	c.send("GET " + newsT + "/messages?from=5&wait=20s HTTP/1.1\r\nHost: x\r\n\r\n")
	s.awaitReaders(t, 1)
	ask(t, s, "POST", newsT+"/messages", `[{"body":"3"},{"body":"4"}]`)
	ask(t, s, "POST", newsT, "5")
	bodiesOf(t, c.receive("GET"), 5)
	// A client that leaves ends its wait.
	c = dial(t, addr)
	c.send("GET " + newsT + "/messages?from=6&wait=50s HTTP/1.1\r\nHost: x\r\n\r\n")
	s.awaitReaders(t, 1)
	c.Close()
	s.awaitReaders(t, 0)
}

// awaitReaders waits until so many readers wait, by what a node refuses.
func (s *Server) awaitReaders(t *testing.T, n int64) {
	t.Helper()
	spin(t, fmt.Sprint(n, " readers"), func() bool { return s.replica.(liveReplica).Readers() == n })
}

// lines reads a stream's lines as they come.
func lines(t *testing.T, addr, query string) (next func() map[string]any, end func() error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	t.Cleanup(cancel)
	req, err := http.NewRequestWithContext(ctx, "GET", "http://"+addr+newsT+"/messages?"+query, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Accept", mediaNDJSON)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { res.Body.Close() })
	if res.StatusCode != 200 || res.Header.Get("Content-Type") != mediaNDJSON || res.Header.Get("Raftq-Index") == "" {
		t.Fatalf("%d %v", res.StatusCode, res.Header)
	}
	sc := bufio.NewScanner(res.Body)
	sc.Buffer(nil, 1<<20)
	return func() map[string]any {
			t.Helper()
			if !sc.Scan() {
				t.Fatalf("the stream ends: %v", sc.Err())
			}
			var m map[string]any
			if err := json.Unmarshal(sc.Bytes(), &m); err != nil {
				t.Fatalf("%v in %q", err, sc.Bytes())
			}
			return m
		}, func() error {
			t.Helper()
			if sc.Scan() {
				t.Errorf("it goes on: %s", sc.Bytes())
			}
			return sc.Err()
		}
}

// TestTail proves on a real node that a stream shows what is there and then each
// message as it comes, in order and whole, and how it ends.
func TestTail(t *testing.T) {
	s := newServer(t, openLive(t), Options{})
	addr := listen(t, s)
	for _, how := range []string{"", "&consistency=fast"} {
		ask(t, s, "POST", newsT, "0")
		next, _ := lines(t, addr, "wait=20s"+how)
		for i := range 600 { // several pages
			if m := next(); m["offset"] != float64(i) || m["body"] != fmt.Sprint(i) {
				t.Fatalf("line %d: %v", i, m)
			}
			switch {
			case i == 0: // many at once
				var b strings.Builder
				for j := 1; j < 500; j++ {
					fmt.Fprintf(&b, `,{"body":"%d"}`, j)
				}
				ask(t, s, "POST", newsT+"/messages", "["+b.String()[1:]+"]")
			case i >= 499: // one by one
				ask(t, s, "POST", newsT, fmt.Sprint(i+1))
			}
		}
		ask(t, s, "DELETE", newsT, "")
		m := next()
		if m["body"] == "600" {
			m = next()
		}
		if m["code"] != "topic_not_found" {
			t.Errorf("after the topic's end: %v", m)
		}
	}
	ask(t, s, "POST", newsT+"/messages", `[{"body":"0"},{"body":"1"},{"body":"2"},{"body":"3"}]`)
	for query, n := range map[string]int{"from=1&to=3&wait=20s": 2, "limit=3&wait=20s": 3, "from=2&to=2&wait=20s": 0, "from=3&wait=20ms": 1, "from=4&wait=20ms": 0} {
		next, end := lines(t, addr, query)
		for range n {
			next()
		}
		if err := end(); err != nil {
			t.Errorf("%s: %v", query, err)
		}
	}
	s.awaitReaders(t, 0)
	if a := ask(t, s, "GET", "/v1/topics/none/messages?wait=1s", "", "Accept", mediaNDJSON); a.status != 404 {
		t.Errorf("%d %s", a.status, a.body)
	}
	// A client that leaves ends its stream; a server that does ends it with the reason.
	ctx, cancel := context.WithCancel(t.Context())
	req, _ := http.NewRequestWithContext(ctx, "GET", "http://"+addr+newsT+"/messages?wait=50s", nil)
	req.Header.Set("Accept", mediaNDJSON)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	s.awaitReaders(t, 1)
	cancel()
	res.Body.Close()
	s.awaitReaders(t, 0)
	next, end := lines(t, addr, "from=4&wait=50s")
	s.awaitReaders(t, 1)
	closed := make(chan struct{})
	go func() { defer close(closed); closeServer(t, s) }()
	if m := next(); m["code"] != "leaving" {
		t.Errorf("%v", m)
	}
	if err := end(); err != nil {
		t.Error(err)
	}
	<-closed
}

// TestTailSlow proves that a client that does not read holds a page of its tail and
// not the topic, that it is cut off by a purge with the offset to go on from, and
// that there is a bound on tails.
func TestTailSlow(t *testing.T) {
	r := newInProcess(t)
	s := newServer(t, r, Options{})
	body := strings.Repeat("x", 1<<10)
	for range 100 {
		if _, err := r.Do(&fsm.Append{Topic: "news", Messages: []fsm.NewMessage{{Body: []byte(body)}}}, false, time.Second, nil); err != nil {
			t.Fatal(err)
		}
	}
	stop := func() {}
	read := &tail{s: s, span: span{topic: "news", fixed: true, to: 1 << 60}, left: -1, wait: time.Second, stop: stop, how: fsm.ReadHow{Strong: true}}
	s.tails.Add(1)
	defer read.Close()
	if _, err := read.fill(); err != nil || read.span.from == 0 || read.span.from > 20 {
		t.Fatalf("%v, a page of %d KiB", err, read.span.from)
	}
	ask(t, s, "DELETE", newsT+"/messages?before=90", "")
	var got strings.Builder
	for b := make([]byte, 4096); ; {
		n, err := read.Read(b)
		got.Write(b[:n])
		if err != nil {
			break
		}
	}
	all := strings.Split(strings.TrimSpace(got.String()), "\n")
	last := all[len(all)-1]
	wantContains(t, last, `"code":"offset_trimmed"`, `"first_offset":90`)
	for i, line := range all[:len(all)-1] {
		if !strings.HasPrefix(line, fmt.Sprintf(`{"offset":%d,`, i)) {
			t.Errorf("line %d: %.40s", i, line)
		}
	}
	if cap(read.buf) > 4*tailBytes {
		t.Errorf("it holds %d bytes", cap(read.buf))
	}
	s.tails.Store(tailsMax)
	wantContains(t, wantProblem(t, ask(t, s, "GET", newsT+"/messages?wait=1s", "", "Accept", mediaNDJSON), 503, "overloaded"), "another")
	s.tails.Store(1)
}
