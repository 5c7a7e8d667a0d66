package httpapi

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"

	"raftq/fsm"
)

const newsT = "/v1/topics/news"

// bodiesOf are the bodies of an answer's messages, which must follow each other from
// an offset on.
func bodiesOf(t testing.TB, a *answer, from float64) (all []string) {
	t.Helper()
	if a.status != 200 {
		t.Fatalf("%d %s", a.status, a.body)
	}
	for _, m := range a.json(t)["messages"].([]any) {
		m := m.(map[string]any)
		if m["offset"] != from || m["time_ms"] == nil {
			t.Fatalf("want offset %v: %s", from, a.body)
		}
		from++
		all = append(all, m["body"].(string))
	}
	return all
}

// TestAppend proves that messages come in in each form, all or none, byte for byte
// and in order, and that the answer says where they are.
func TestAppend(t *testing.T) {
	s := newServer(t, newInProcess(t), Options{MaxBody: 100})
	next := 0
	append := func(path, body, typ string, n int) {
		t.Helper()
		a := ask(t, s, "POST", path, body, "Content-Type", typ)
		if m := a.json(t); a.status != 201 || m["offset"] != float64(next) || m["count"] != float64(n) || m["committed"] != true || m["topic"] != "a/b" {
			t.Fatalf("%d %s", a.status, a.body)
		}
		next += n
	}
	const topic = "/v1/topics/a%2Fb"
	append(topic+"?header.K=v", "raw", "", 1)
	append(topic, "", "", 1)
	append(topic+"/messages", `{"body":"env","headers":{"b":"2","a":"1"}}`, "", 1)
	append(topic+"/messages", `[{"body":"one"},{"json":{"n": 1}},{"body_base64":"AP8="}]`, "", 3)
	append(topic+"/messages", "{\"body\":\"l1\"}\n\n{\"body\":\"l2\"}\n", mediaNDJSON, 2)
	append(topic+"/messages", string(frame("", "\x00\xff"))+string(frame(`{"headers":{"h":"w"}}`, "")), mediaFrames, 2)
	a := ask(t, s, "GET", topic+"/messages?limit=1000", "", "Accept", mediaFrames)
	var heads, got []string
	for b := []byte(a.body); len(b) > 0; {
		var head, body []byte
		head, b, _ = cutFrame(b)
		body, b, _ = cutFrame(b)
		heads, got = slices.Concat(heads, []string{string(head)}), slices.Concat(got, []string{string(body)})
	}
	if want := []string{"raw", "", "env", "one", `{"n": 1}`, "\x00\xff", "l1", "l2", "\x00\xff", ""}; !slices.Equal(got, want) || a.header("Raftq-Next-Offset") != "10" {
		t.Errorf("got %q, next %s", got, a.header("Raftq-Next-Offset"))
	}
	wantContains(t, heads[0], `"headers":{"K":"v"}`)
	wantContains(t, heads[2], `"offset":2`, `"headers":{"a":"1","b":"2"}`)
	wantContains(t, heads[9], `"headers":{"h":"w"}`)
	for body, want := range map[string]string{
		`[{"body":"x"},{"body":"` + strings.Repeat("x", 101) + `"}]`: "body_too_large",
		`[{"body":"x"},{"body":"y","priority":3}]`:                   "invalid_option",
		`[{"body":"x"},{}]`: "invalid_option",
		`[]`:                "invalid_request",
		`7`:                 "invalid_request",
		`[` + strings.Repeat(`{"body":"x"},`, 1000) + `{"body":"x"}]`: "invalid_option",
	} {
		a := ask(t, s, "POST", topic+"/messages", body)
		if a.status < 400 || a.json(t)["code"] != want {
			t.Errorf("%.40s: %d %s", body, a.status, a.body)
		}
		if strings.HasPrefix(body, `[{"body":"x"},`) && want != "invalid_request" {
			wantContains(t, a.body, "messages")
		}
	}
	wantContains(t, wantProblem(t, ask(t, s, "POST", topic, strings.Repeat("x", 101)), 413, "body_too_large"), "100")
	wantProblem(t, ask(t, s, "POST", topic+"?ttl=1d", "x"), 422, "invalid_option")
	wantContains(t, wantProblem(t, ask(t, s, "POST", "/v1/topics/$x", "x"), 422, "invalid_option"), "reserved")
	if m := ask(t, s, "GET", topic, "").json(t); m["next_offset"] != 10.0 || m["first_offset"] != 0.0 {
		t.Errorf("a refused request appended: %v", m)
	}
	if n := s.stats.appended.Load(); n != 10 {
		t.Errorf("counted %d", n)
	}
}

// TestAppendOnce proves that an append with a key takes effect once, and that the
// repeated answer has the first one's offset.
func TestAppendOnce(t *testing.T) {
	s := newServer(t, newInProcess(t), Options{})
	first := ask(t, s, "POST", newsT, "x", "Idempotency-Key", "k")
	ask(t, s, "POST", newsT, "y")
	again := ask(t, s, "POST", newsT, "x", "Idempotency-Key", "k")
	if first.status != 201 || again.status != 201 || first.body != again.body || again.header("Idempotent-Replay") != "true" {
		t.Errorf("%s, then %d %s", first.body, again.status, again.body)
	}
	wantProblem(t, ask(t, s, "POST", newsT, "z", "Idempotency-Key", "k"), 422, "idempotency_mismatch")
	// The same key for two cursors is two keys.
	for _, c := range []string{"a", "b"} {
		if a := ask(t, s, "PUT", newsT+"/cursors/"+c, `{"offset":1}`, "Idempotency-Key", "k"); a.status != 200 || a.json(t)["cursor"] != c {
			t.Errorf("%s: %d %s", c, a.status, a.body)
		}
	}
	if got := bodiesOf(t, ask(t, s, "GET", newsT+"/messages", ""), 0); !slices.Equal(got, []string{"x", "y"}) {
		t.Errorf("%q", got)
	}
}

// TestFastAppend proves that a fast answer says that it is one and knows no offset.
func TestFastAppend(t *testing.T) {
	s := newServer(t, fastReplica{newInProcess(t)}, Options{})
	a := ask(t, s, "POST", newsT+"?consistency=fast", "x")
	if m := a.json(t); a.status != 202 || m["committed"] != false || m["offset"] != nil || m["count"] != 1.0 || a.header("Raftq-Batch") == "" {
		t.Errorf("%d %s", a.status, a.body)
	}
	f := newFake()
	f.defaults = map[string]uint8{"topic news": fsm.ConsistencyFast, "news": fsm.ConsistencyStrong}
	s = newServer(t, f, Options{})
	ask(t, s, "POST", newsT, "x")
	ask(t, s, "POST", newsT+"?consistency=strong", "x")
	if !slices.Equal(f.asked, []bool{true, false}) {
		t.Errorf("the topic's default: %v", f.asked)
	}
}

// TestReadMessages proves what from, to, since and limit choose, and what is said
// past the ends.
func TestReadMessages(t *testing.T) {
	r := newInProcess(t)
	s := newServer(t, r, Options{})
	wantProblem(t, ask(t, s, "GET", newsT+"/messages", ""), 404, "topic_not_found")
	for i := range 10 {
		ask(t, s, "POST", newsT, fmt.Sprint("m", i))
	}
	read := func(query string) *answer { return ask(t, s, "GET", newsT+"/messages?"+query, "") }
	all := func(from, to int) (list []string) {
		for i := from; i < to; i++ {
			list = append(list, fmt.Sprint("m", i))
		}
		return list
	}
	for query, want := range map[string][3]int{ // from, to, next
		"":                                   {0, 10, 10},
		"from=3":                             {3, 10, 10},
		"from=3&to=5":                        {3, 5, 5},
		"to=4":                               {0, 4, 4},
		"from=3&limit=2":                     {3, 5, 5},
		"from=3&to=5&limit=9":                {3, 5, 5},
		"from=9&to=99":                       {9, 10, 10},
		"from=10":                            {10, 10, 10},
		"from=5&to=5":                        {5, 5, 5},
		"from=70":                            {70, 70, 70}, // a node that lags: it goes on there
		"since=2001-01-01T00:00:00Z":         {0, 10, 10},
		"since=2001-01-01T00:00:00Z&limit=1": {0, 1, 1},
		"since=2101-01-01T00:00:00Z":         {10, 10, 10},
		"consistency=fast&from=8":            {8, 10, 10},
	} {
		a := read(query)
		if got := bodiesOf(t, a, float64(want[0])); !slices.Equal(got, all(want[0], want[1])) {
			t.Errorf("%s: %q", query, got)
		}
		if m := a.json(t); m["next"] != float64(want[2]) || m["first_offset"] != 0.0 || m["next_offset"] != 10.0 || a.header("Raftq-Next-Offset") != fmt.Sprint(want[2]) {
			t.Errorf("%s: %s", query, a.body)
		}
	}
	// A message's own time is where since begins.
	at := read("from=4&limit=1").json(t)["messages"].([]any)[0].(map[string]any)["time"].(string)
	if first := read("since=" + url.QueryEscape(at)).json(t)["messages"].([]any)[0].(map[string]any); first["offset"].(float64) > 4 || first["time"] != at {
		t.Errorf("since %s: %v", at, first)
	}
	for _, query := range []string{"from=1&since=2001-01-01T00:00:00Z", "from=4&to=3", "limit=0", "limit=1001", "from=-1", "since=yesterday"} {
		wantProblem(t, read(query), 422, "invalid_option")
	}
	if a := ask(t, s, "DELETE", newsT+"/messages?before=6", ""); a.status != 200 || a.json(t)["purged"] != 6.0 {
		t.Errorf("%d %s", a.status, a.body)
	}
	a := read("from=2")
	wantContains(t, wantProblem(t, a, 410, "offset_trimmed"), "begins at offset 6")
	if a.json(t)["first_offset"] != 6.0 {
		t.Errorf("%s", a.body)
	}
	bodiesOf(t, read(""), 6)
	wantProblem(t, ask(t, s, "DELETE", newsT+"/messages", ""), 422, "invalid_option")
	lines := strings.Split(strings.TrimSuffix(ask(t, s, "GET", newsT+"/messages?from=8&encoding=base64", "", "Accept", mediaNDJSON).body, "\n"), "\n")
	if len(lines) != 2 || !strings.Contains(lines[1], `"body_base64":"bTk="`) || !strings.HasPrefix(lines[1], `{"offset":9,`) {
		t.Errorf("%q", lines)
	}
}

// TestTopicRoutes proves a topic's life: configured, trimmed, listed, deleted, and
// begun again at 0.
func TestTopicRoutes(t *testing.T) {
	s := newServer(t, newInProcess(t), Options{})
	wantProblem(t, ask(t, s, "GET", newsT, ""), 404, "topic_not_found")
	wantProblem(t, ask(t, s, "DELETE", newsT, ""), 404, "topic_not_found")
	a := ask(t, s, "PUT", newsT, `{"max_count":3,"max_age":"7d","consistency":"strong"}`, "If-None-Match", "*")
	if a.status != 200 || a.header("Etag") != fmt.Sprintf(`"%v"`, a.json(t)["version"]) {
		t.Fatalf("%d %s", a.status, a.body)
	}
	tag := a.header("Etag")
	wantProblem(t, ask(t, s, "PUT", newsT, `{}`, "If-None-Match", "*"), 412, "etag_mismatch")
	ask(t, s, "POST", newsT+"/messages", `[{"body":"1"},{"body":"2"},{"body":"3"},{"body":"4"},{"body":"5"}]`)
	got := ask(t, s, "GET", newsT, "")
	m := got.json(t)
	if got.header("Etag") != tag || m["first_offset"] != 2.0 || m["next_offset"] != 5.0 || m["configured"] != true || m["bytes"] != 78.0 || m["last_at_ms"] == nil {
		t.Errorf("%s", got.body)
	}
	wantContains(t, got.body, `"config":{"max_count":3,"max_bytes":1073741824,"max_age":"7d","consistency":"strong"}`)
	// What a read shows may be sent back, and what is not said is the default.
	config := got.body[strings.Index(got.body, `"config":`)+9 : len(got.body)-2]
	if a := ask(t, s, "PUT", newsT, config, "If-Match", tag); a.status != 200 {
		t.Errorf("%d %s", a.status, a.body)
	}
	wantProblem(t, ask(t, s, "PUT", newsT, config, "If-Match", tag), 412, "etag_mismatch")
	ask(t, s, "PUT", newsT, `{"max_count":null}`)
	wantContains(t, ask(t, s, "GET", newsT, "").body, `"config":{"max_count":0,"max_bytes":1073741824,"max_age":null,"consistency":null}`)
	for _, body := range []string{`{"max_count":-1}`, `{"max_age":7}`, `{"lease":"1m"}`, `{"consistency":"maybe"}`} {
		wantProblem(t, ask(t, s, "PUT", newsT, body), 422, "invalid_option")
	}
	for _, name := range []string{"news/a", "news/b", "old"} {
		ask(t, s, "POST", "/v1/topics/"+url.PathEscape(name), "x")
	}
	if all := walkPages(t, s, "/v1/topics?limit=2", "topics", "topic", func(int) {}); !slices.Equal(all, []string{"news", "news/a", "news/b", "old"}) {
		t.Errorf("%q", all)
	}
	if all := walkPages(t, s, "/v1/topics?limit=1&prefix=news", "topics", "topic", func(int) {}); !slices.Equal(all, []string{"news", "news/a", "news/b"}) {
		t.Errorf("%q", all)
	}
	wantContains(t, wantProblem(t, ask(t, s, "GET", "/v1/queues?cursor="+string(cursorText(listOfTopics, []byte("a"))), ""), 422, "invalid_option"), "cursor")
	if a := ask(t, s, "DELETE", newsT, ""); a.status != 200 || a.json(t)["deleted"] != 3.0 {
		t.Errorf("%d %s", a.status, a.body)
	}
	if a := ask(t, s, "POST", newsT, "x"); a.json(t)["offset"] != 0.0 {
		t.Errorf("%d %s", a.status, a.body)
	}
}

// TestCursors proves that a position is kept, moved by who saw it last alone, and
// never past the end.
func TestCursors(t *testing.T) {
	s := newServer(t, newInProcess(t), Options{})
	const c = newsT + "/cursors/w%2F1"
	wantProblem(t, ask(t, s, "PUT", c, `{"offset":0}`), 404, "topic_not_found")
	ask(t, s, "POST", newsT+"/messages", `[{"body":"1"},{"body":"2"}]`)
	wantProblem(t, ask(t, s, "GET", c, ""), 404, "cursor_not_found")
	first := ask(t, s, "PUT", c, `{"offset":1}`, "If-Match", `"0"`)
	if m := first.json(t); first.status != 200 || m["offset"] != 1.0 || m["cursor"] != "w/1" {
		t.Fatalf("%d %s", first.status, first.body)
	}
	wantContains(t, wantProblem(t, ask(t, s, "PUT", c, `{"offset":2}`, "If-None-Match", "*"), 412, "etag_mismatch"), "has a cursor")
	got := ask(t, s, "GET", c, "")
	if got.body != first.body || got.header("Etag") != first.header("Etag") || got.header("Etag") == "" {
		t.Errorf("%s, want %s", got.body, first.body)
	}
	if a := ask(t, s, "PUT", c, `{"offset":2}`, "If-Match", got.header("Etag")); a.status != 200 {
		t.Errorf("%d %s", a.status, a.body)
	}
	wantProblem(t, ask(t, s, "PUT", c, `{"offset":0}`, "If-Match", got.header("Etag")), 412, "etag_mismatch")
	wantContains(t, wantProblem(t, ask(t, s, "PUT", c, `{"offset":3}`), 422, "invalid_option"), "above the topic's next offset")
	for _, body := range []string{`{}`, `{"offset":-1}`, `{"offset":"1"}`, `{"offset":1,"x":1}`} {
		wantProblem(t, ask(t, s, "PUT", c, body), 422, "invalid_option")
	}
	ask(t, s, "PUT", newsT+"/cursors/a", `{"offset":0}`)
	list := ask(t, s, "GET", newsT+"/cursors", "").json(t)["cursors"].([]any)
	if len(list) != 2 || list[0].(map[string]any)["cursor"] != "a" || list[1].(map[string]any)["offset"] != 2.0 {
		t.Errorf("%v", list)
	}
	wantProblem(t, ask(t, s, "DELETE", c, "", "If-Match", got.header("Etag")), 412, "etag_mismatch")
	for range 2 {
		if a := ask(t, s, "DELETE", c, ""); a.status != 200 {
			t.Errorf("%d %s", a.status, a.body)
		}
	}
	wantProblem(t, ask(t, s, "GET", c, ""), 404, "cursor_not_found")
	wantProblem(t, ask(t, s, "PUT", newsT+"/cursors/"+strings.Repeat("c", 129), `{"offset":0}`), 422, "invalid_option")
}

// TestTxTopics proves that jobs, messages and positions change together or not at all.
func TestTxTopics(t *testing.T) {
	r := newInProcess(t)
	s := newServer(t, r, Options{})
	tx := func(items string) *answer { return ask(t, s, "POST", "/v1/tx", `{"items":[`+items+`]}`) }
	ask(t, s, "POST", newsT, "first")
	before := r.m.Position().Index
	a := tx(`{"op":"append","topic":"news","body":"a","headers":{"k":"v"}},{"op":"append","topic":"news","body_base64":"Yg=="},{"op":"append","topic":"other","json":1},` +
		`{"op":"cursor","topic":"news","cursor":"w","offset":3,"if_match":0},{"op":"enqueue","queue":"q","body":"job"}`)
	if a.status != 200 || r.m.Position().Index != before+1 {
		t.Fatalf("%d %s", a.status, a.body)
	}
	results := a.json(t)["results"].([]any)
	for i, want := range []map[string]any{{"offset": 1.0, "status": 201.0}, {"offset": 2.0, "status": 201.0}, {"offset": 0.0, "status": 201.0}, {"status": 200.0}, {"status": 201.0}} {
		for k, v := range want {
			if results[i].(map[string]any)[k] != v {
				t.Errorf("item %d: %v", i, results[i])
			}
		}
	}
	if got := ask(t, s, "GET", newsT+"/cursors/w", ""); got.header("Etag") != fmt.Sprintf(`"%v"`, results[3].(map[string]any)["version"]) {
		t.Errorf("%s", got.body)
	}
	for item, why := range map[string]string{
		`{"op":"cursor","topic":"news","cursor":"w","offset":3,"if_match":0}`: "items[1]: etag_mismatch",
		`{"op":"cursor","topic":"none","cursor":"w","offset":0}`:              "items[1]: topic_not_found",
		`{"op":"cursor","topic":"news","cursor":"w","offset":9}`:              "items[1]: invalid_option",
	} {
		a := tx(`{"op":"append","topic":"news","body":"lost"},` + item)
		wantContains(t, wantProblem(t, a, 409, "aborted"), why)
		if lines := a.json(t)["results"].([]any); lines[0].(map[string]any)["code"] != "aborted" {
			t.Errorf("%v", lines)
		}
	}
	for _, item := range []string{`{"op":"append","body":"x"}`, `{"op":"append","topic":"$a","body":"x"}`, `{"op":"append","topic":"t","body":"x","delay":"1s"}`, `{"op":"cursor","topic":"news","cursor":"w"}`, `{"op":"cursor","topic":"news","cursor":"w","offset":0,"x":1}`,
		`{"op":"cursor","op":"cursor","topic":"news","cursor":"w","offset":0}`, `{"op":"append","topic":"a","topic":"b","body":"x"}`} {
		wantContains(t, wantProblem(t, tx(item), 422, "invalid_option"), "items[0]")
	}
	if got := bodiesOf(t, ask(t, s, "GET", newsT+"/messages", ""), 0); !slices.Equal(got, []string{"first", "a", "b"}) {
		t.Errorf("%q", got)
	}
	if n := s.stats.appended.Load(); n != 4 {
		t.Errorf("counted %d", n)
	}
}
