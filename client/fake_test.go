package client

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"
)

// seen is a request as a fake node got it.
type seen struct {
	node   int
	method string
	path   string // escaped
	query  string
	header http.Header
	body   string
}

// fakes are nodes that answer by a script.
type fakes struct {
	servers []*httptest.Server

	mu     sync.Mutex
	script []answer // one for each request, the last one for all that follow
	got    []seen
}

// answer is one line of a script.
type answer struct {
	status int
	body   string
	header [2]string
	do     func(http.ResponseWriter, *http.Request) // instead
}

func startFakes(t *testing.T, n int, script ...answer) *fakes {
	t.Helper()
	f := &fakes{script: script}
	for i := range n {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { f.serve(i, w, r) }))
		t.Cleanup(s.Close)
		f.servers = append(f.servers, s)
	}
	return f
}

func (f *fakes) endpoints() string {
	var all []string
	for _, s := range f.servers {
		all = append(all, s.URL)
	}
	return strings.Join(all, ",")
}

func (f *fakes) serve(i int, w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	f.mu.Lock()
	f.got = append(f.got, seen{i, r.Method, r.URL.EscapedPath(), r.URL.RawQuery, r.Header.Clone(), string(body)})
	a := f.script[0]
	if len(f.script) > 1 {
		f.script = f.script[1:]
	}
	f.mu.Unlock()
	if a.do != nil {
		a.do(w, r)
		return
	}
	if a.header[0] != "" {
		w.Header().Set(a.header[0], a.header[1])
	}
	w.WriteHeader(a.status)
	_, _ = io.WriteString(w, a.body) // the client may be gone
}

// requests returns what was asked so far.
func (f *fakes) requests() []seen {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]seen(nil), f.got...)
}

// problemOf is an answer as a node refuses with.
func problemOf(status int, code Code, applied Applied, retryable bool) answer {
	return answer{status: status, body: fmt.Sprintf(`{"type":"/errors/%s","title":"T","status":%d,"detail":"D","instance":"/x","code":%q,"retryable":%v,"applied":%q,"retry_after_ms":20}`, code, status, code, retryable, applied)}
}

var (
	created = answer{status: 201, body: `{"id":"D-1","queue":"q","committed":true,"duplicate":false}`}
	// hangUp closes the connection without an answer.
	hangUp = answer{do: func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }}
	// hang answers nothing until the client is gone.
	hang = answer{do: func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }}
)

// fixed makes a client begin at the first node and rest evenly.
func fixed(o *clientOptions) {
	o.rng = rand.New(rand.NewPCG(1, 1))
	o.policy = Ordered
	o.keys = true
	o.retryFor = 300 * time.Millisecond
}

// fakeClient returns a client of fakes that begins with the first.
func fakeClient(t *testing.T, f *fakes, opts ...Option) *Client {
	t.Helper()
	return newTestClient(t, f.endpoints(), append([]Option{fixed}, opts...)...)
}

func mustURL(s string) *url.URL {
	u, err := url.Parse(s)
	if err != nil {
		panic(err)
	}
	return u
}
