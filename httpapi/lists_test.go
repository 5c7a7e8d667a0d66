package httpapi

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"raftq/fsm"
)

// walkPages walks a list, calling between after each page, and returns the field of all
// entries.
func walkPages(t *testing.T, s *Server, path, list, field string, between func(page int)) (all []string) {
	t.Helper()
	next := ""
	for n := 0; ; n++ {
		a := ask(t, s, "GET", path+next, "")
		if a.status != 200 {
			t.Fatalf("%s: %d %s", path+next, a.status, a.body)
		}
		m := a.json(t)
		for _, e := range m[list].([]any) {
			all = append(all, e.(map[string]any)[field].(string))
		}
		cursor, ok := m["next_cursor"].(string)
		if !ok {
			return all
		}
		next = "&cursor=" + cursor
		between(n)
	}
}

// TestJobLists proves the lists of a queue's jobs: by state and order, from page to
// page, none twice and none left out.
func TestJobLists(t *testing.T) {
	s := newServer(t, newInProcess(t), Options{})
	add := func(options string, n int) {
		for i := range n {
			if a := ask(t, s, "POST", enqueueQ+"?"+options, fmt.Sprint(options, i)); a.status != 201 {
				t.Fatal(a.body)
			}
		}
	}
	add("priority=1", 3)
	add("priority=9", 3)
	add("delay=1h", 3)
	ask(t, s, "POST", dequeueQ+"?max=2", "")
	list := func(query string) []string {
		return walkPages(t, s, "/v1/queues/q/jobs?limit=2&"+query, "jobs", "body", func(int) {})
	}
	all := []string{"priority=10", "priority=11", "priority=12", "priority=90", "priority=91", "priority=92", "delay=1h0", "delay=1h1", "delay=1h2"}
	ready := []string{"priority=92", "priority=10", "priority=11", "priority=12"}
	for query, want := range map[string][]string{
		"": all, "state=ready": ready, "state=delayed": all[6:], "state=leased": all[3:5], "state=dead": nil, "state=held": nil,
		"state=ready,delayed": append(slices.Clone(all[:3]), all[5:]...), "state=delayed,ready,leased,held,dead": all,
	} {
		if got := list(query); !slices.Equal(got, want) {
			t.Errorf("%q: %q, want %q", query, got, want)
		}
		backwards := slices.Clone(want)
		slices.Reverse(backwards)
		if got := list(query + "&order=desc"); !slices.Equal(got, backwards) {
			t.Errorf("%q from the end: %q, want %q", query, got, backwards)
		}
	}
	wantContains(t, wantProblem(t, ask(t, s, "GET", "/v1/queues/q/jobs?state=gone", ""), 422, "invalid_option"), "delayed, ready, leased, held, dead")
	wantContains(t, wantProblem(t, ask(t, s, "GET", "/v1/queues/q/jobs?order=up", ""), 422, "invalid_option"), "asc or desc")
	next := ask(t, s, "GET", "/v1/queues/q/jobs?state=ready&limit=1", "").json(t)["next_cursor"].(string)
	for _, query := range []string{"state=delayed", "state=ready&order=desc", ""} {
		wantContains(t, wantProblem(t, ask(t, s, "GET", "/v1/queues/q/jobs?"+query+"&cursor="+next, ""), 422, "invalid_option"), "cursor")
	}
	wantProblem(t, ask(t, s, "GET", "/v1/queues?cursor="+next, ""), 422, "invalid_option")
	wantProblem(t, ask(t, s, "GET", "/v1/queues/none/jobs", ""), 404, "queue_not_found")

	// The other forms have the cursor as a field.
	a := ask(t, s, "GET", "/v1/queues/q/jobs?state=ready&limit=1", "", "Accept", "application/x-ndjson")
	if a.header("Raftq-Next-Cursor") != next || strings.Count(a.body, "\n") != 1 || !json.Valid([]byte(a.body)) {
		t.Errorf("lines: %q, cursor %q", a.body, a.header("Raftq-Next-Cursor"))
	}
	a = ask(t, s, "GET", "/v1/queues/q/jobs?state=ready&limit=1", "", "Accept", "application/vnd.raftq.frames")
	if a.header("Raftq-Next-Cursor") != next || !strings.HasSuffix(a.body, "\x00\x00\x00\x0bpriority=92") {
		t.Errorf("frames: %q", a.body)
	}
}

// TestCursorsStayGood proves that a walk over pages shows each job once that is there
// from its beginning to its end, whatever comes and goes meanwhile.
func TestCursorsStayGood(t *testing.T) {
	s := newServer(t, newInProcess(t), Options{})
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 1))
	add := func(body string) string {
		a := ask(t, s, "POST", fmt.Sprintf("%s?priority=%d", enqueueQ, rnd.IntN(10)), body)
		return a.json(t)["id"].(string)
	}
	for round := range 20 {
		stay := map[string]int{}
		var passing []string
		for i := range 60 {
			if id := add(fmt.Sprint(round, i)); i%2 == 0 {
				stay[id] = 0
			} else {
				passing = append(passing, id)
			}
		}
		query := []string{"state=ready", "state=ready&order=desc", "", "order=desc"}[round%4]
		got := walkPages(t, s, fmt.Sprintf("/v1/queues/q/jobs?limit=%d&%s", 1+rnd.IntN(9), query), "jobs", "id", func(page int) {
			for range 1 + rnd.IntN(3) {
				if len(passing) > 0 {
					i := rnd.IntN(len(passing))
					if a := ask(t, s, "DELETE", "/v1/jobs/"+passing[i], ""); a.status != 200 {
						t.Fatalf("delete: %d %s", a.status, a.body)
					}
					passing = slices.Delete(passing, i, i+1)
				}
				if page < 40 {
					add("new")
				}
			}
		})
		for _, id := range got {
			if n, ok := stay[id]; ok {
				stay[id] = n + 1
			}
		}
		for id, n := range stay {
			if n != 1 {
				t.Errorf("round %d, %q: job %s was shown %d times", round, query, id, n)
			}
		}
		ask(t, s, "DELETE", "/v1/queues/q/jobs", "")
	}
}

// TestPagesFit proves that a page has at most 8 MiB of bodies, or one larger job, and
// that the next one goes on where it ended.
func TestPagesFit(t *testing.T) {
	s := newServer(t, newInProcess(t), Options{MaxBody: fsm.BodyMax})
	big := strings.Repeat("x", 3<<20)
	for i := range 5 {
		ask(t, s, "POST", enqueueQ, fmt.Sprint(i)+big)
	}
	ask(t, s, "POST", enqueueQ, "5"+strings.Repeat("x", 12<<20))
	ask(t, s, "POST", enqueueQ, "6")
	sizes := 0
	bodies := walkPages(t, s, "/v1/queues/q/jobs?state=ready", "jobs", "body", func(int) { sizes++ })
	var order string
	for _, b := range bodies {
		order += b[:1]
	}
	if order != "0123456" || sizes != 4 {
		t.Errorf("jobs %q on %d pages, want 2, 2, 1, the large one, the last", order, sizes+1)
	}
}

// TestQueueLists proves the filters, and that a cursor survives what happens to the
// queue that it names.
func TestQueueLists(t *testing.T) {
	s := newServer(t, newInProcess(t), Options{})
	for i, name := range []string{"a", "b", "c", "d", "e"} {
		for range i {
			ask(t, s, "POST", "/v1/queues/"+name+"/enqueue", "")
		}
		ask(t, s, "PUT", "/v1/queues/"+name, "{}")
	}
	for query, want := range map[string]string{"": "abcde", "min_len=2": "cde", "max_len=0": "a", "min_len=1&max_len=3": "bcd", "prefix=c": "c", "min_len=9": ""} {
		got := walkPages(t, s, "/v1/queues?limit=2&"+query, "queues", "queue", func(int) {})
		if strings.Join(got, "") != want {
			t.Errorf("%q: %q, want %q", query, got, want)
		}
	}
	got := walkPages(t, s, "/v1/queues?limit=2", "queues", "queue", func(page int) {
		if page == 0 {
			ask(t, s, "DELETE", "/v1/queues/b?force=true", "")
			ask(t, s, "PUT", "/v1/queues/ab", "{}")
		}
	})
	if strings.Join(got, "") != "abcde" {
		t.Errorf("with changes between: %q", got)
	}
}

// TestConsumers proves that what a consumer holds is listed page by page and given
// back uncounted, and that others keep theirs.
func TestConsumers(t *testing.T) {
	s := newServer(t, newInProcess(t), Options{})
	for range 5 {
		ask(t, s, "POST", enqueueQ, "x")
	}
	ask(t, s, "POST", "/v1/queues/once/enqueue?at_most_once=true", "x")
	ask(t, s, "POST", dequeueQ+"?max=3&consumer=w%2F1", "")
	ask(t, s, "POST", "/v1/queues/once/dequeue?consumer=w%2F1", "")
	ask(t, s, "POST", dequeueQ+"?max=2&consumer=w2", "")
	held := func(c string) int {
		return len(walkPages(t, s, "/v1/consumers/"+c+"?limit=1", "jobs", "id", func(int) {}))
	}
	if held("w%2F1") != 4 || held("w2") != 2 || held("w3") != 0 {
		t.Errorf("held: %d, %d, %d", held("w%2F1"), held("w2"), held("w3"))
	}
	if a := ask(t, s, "DELETE", "/v1/consumers/w%2F1", ""); a.status != 200 || a.body != `{"consumer":"w/1","released":3}`+"\n" {
		t.Errorf("%d %s", a.status, a.body)
	}
	if held("w%2F1") != 1 || held("w2") != 2 || counts(t, s, "q")["ready"] != 3.0 || counts(t, s, "q")["failed_total"] != 0.0 {
		t.Errorf("afterwards: %d, %d, %v", held("w%2F1"), held("w2"), counts(t, s, "q"))
	}
	wantContains(t, wantProblem(t, ask(t, s, "GET", "/v1/consumers/"+strings.Repeat("x", 129), ""), 422, "invalid_option"), "128")
}
