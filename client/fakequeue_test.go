package client

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// fakeQueue is a queue behind a transport: what a consumer needs of a cluster, in
// this process, so that synctest's clock rules it.
type fakeQueue struct {
	t     *testing.T
	began time.Time
	lease time.Duration

	mu      sync.Mutex
	came    chan struct{} // closed and made anew when jobs come
	ready   []*Job
	grants  int
	leased  map[string]*Job // by receipt
	acked   map[string]bool
	attempt map[string][]*Job
	events  []event
	polls   []url.Values
	hasty   bool   // nothing is waited for
	frozen  string // a host that does nothing
	looks   int    // at /readyz
	held    int    // the most that were leased at once
	now     int    // extends under way
	most    int    // of them at once
	// refuse answers instead, when it returns a status.
	refuse func(path string) (status int, code Code, applied Applied)
	// lose tells that what was done is not answered.
	lose func(path string) bool
	// extended answers an item of an extend.
	extended func(receipt string) string
}

// event is something that was done with a job.
type event struct {
	at      time.Duration // since the beginning
	what    string        // ack, nack, release, reject, extend, release-consumer
	job     string        // id
	rest    string        // delay and error
	request int           // events of one request have the same
}

func newFakeQueue(t *testing.T, lease time.Duration) *fakeQueue {
	return &fakeQueue{t: t, began: time.Now(), lease: lease, came: make(chan struct{}), leased: map[string]*Job{}, acked: map[string]bool{}, attempt: map[string][]*Job{}}
}

// put adds jobs named by their ids.
func (q *fakeQueue) put(ids ...string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, id := range ids {
		q.ready = append(q.ready, &Job{ID: id, Queue: "q", Body: []byte("body of " + id), Priority: 4})
	}
	close(q.came)
	q.came = make(chan struct{})
}

func numbered(n int) (ids []string) {
	for i := range n {
		ids = append(ids, fmt.Sprintf("j%d", i))
	}
	return ids
}

// RoundTrip implements http.RoundTripper.
func (q *fakeQueue) RoundTrip(r *http.Request) (*http.Response, error) {
	var body []byte
	if r.Body != nil {
		var err error
		if body, err = io.ReadAll(r.Body); err != nil {
			return nil, err
		}
	}
	path := r.URL.Path
	q.mu.Lock()
	refuse := q.refuse
	q.mu.Unlock()
	if q.isFrozen(r.URL.Host) {
		<-r.Context().Done()
		return nil, r.Context().Err()
	}
	if path == "/readyz" {
		q.mu.Lock()
		defer q.mu.Unlock()
		q.looks++
		return q.response(200, nil), nil
	}
	if path == "/v1/extend" {
		q.mu.Lock()
		q.now++
		q.most = max(q.most, q.now)
		q.mu.Unlock()
		defer func() {
			q.mu.Lock()
			q.now--
			q.mu.Unlock()
		}()
	}
	if refuse != nil {
		switch status, code, applied := refuse(path); {
		case status == -1: // it never answers
			<-r.Context().Done()
			return nil, r.Context().Err()
		case status != 0:
			a := problemOf(status, code, applied, status >= 500)
			return q.response(status, []byte(a.body)), nil
		}
	}
	res, err := q.carryOut(r, body)
	q.mu.Lock()
	defer q.mu.Unlock()
	if err == nil && q.lose != nil && q.lose(path) {
		return nil, io.ErrUnexpectedEOF
	}
	return res, err
}

func (q *fakeQueue) carryOut(r *http.Request, body []byte) (*http.Response, error) {
	switch path := r.URL.Path; {
	case strings.HasSuffix(path, "/dequeue"):
		return q.dequeue(r)
	case r.Method == http.MethodDelete:
		q.note(event{what: "release-consumer", job: path})
		return q.response(200, []byte(`{"released":0}`)), nil
	default:
		return q.settle(strings.TrimPrefix(path, "/v1/"), body)
	}
}

func (q *fakeQueue) isFrozen(host string) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.frozen == host
}

func (q *fakeQueue) response(status int, body []byte) *http.Response {
	return &http.Response{
		StatusCode: status, Status: strconv.Itoa(status), ContentLength: int64(len(body)), Body: io.NopCloser(bytes.NewReader(body)),
		Header: http.Header{"Raftq-Time": {strconv.FormatInt(time.Now().UnixMilli(), 10)}},
	}
}

func (q *fakeQueue) dequeue(r *http.Request) (*http.Response, error) {
	query := r.URL.Query()
	limit, err := strconv.Atoi(query.Get("max"))
	if err != nil {
		return nil, err
	}
	wait, err := time.ParseDuration(query.Get("wait"))
	if err != nil {
		return nil, err
	}
	lease := q.lease
	if s := query.Get("lease"); s != "" {
		if lease, err = time.ParseDuration(s); err != nil {
			return nil, err
		}
	}
	q.mu.Lock()
	q.polls = append(q.polls, query)
	if q.hasty {
		wait = 0
	}
	q.mu.Unlock()
	timer := time.NewTimer(wait)
	defer timer.Stop()
	for {
		q.mu.Lock()
		if q.frozen == r.URL.Host {
			q.mu.Unlock()
			<-r.Context().Done()
			return nil, r.Context().Err()
		}
		jobs := q.take(limit, lease, query.Get("attempt_id"))
		came := q.came
		q.mu.Unlock()
		if len(jobs) > 0 {
			var b []byte
			for _, j := range jobs {
				head, err := json.Marshal(j)
				if err != nil {
					return nil, err
				}
				b = appendFrame(b, head, j.Body)
			}
			return q.response(200, b), nil
		}
		select {
		case <-came:
		case <-timer.C:
			return q.response(204, nil), nil
		case <-r.Context().Done():
			return nil, r.Context().Err()
		}
	}
}

func (q *fakeQueue) take(limit int, lease time.Duration, attempt string) []*Job {
	if jobs := q.attempt[attempt]; attempt != "" && len(jobs) > 0 {
		return jobs
	}
	var jobs []*Job
	for len(jobs) < limit && len(q.ready) > 0 {
		j := *q.ready[0]
		q.ready = q.ready[1:]
		q.grants++
		j.Deliveries++
		j.Receipt = fmt.Sprintf("%s.%d.tag", j.ID, q.grants)
		j.LeaseUntil = time.Now().Add(lease)
		q.leased[j.Receipt] = &j
		jobs = append(jobs, &j)
	}
	q.held = max(q.held, len(q.leased))
	q.attempt[attempt] = jobs
	return jobs
}

// settle does what the items say, or what extended says instead.
func (q *fakeQueue) settle(verb string, body []byte) (*http.Response, error) {
	var in struct {
		Items []item `json:"items"`
	}
	if err := json.Unmarshal(body, &in); err != nil {
		return nil, err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	request := len(q.events)
	var out []string
	for _, it := range in.Items {
		j := q.leased[it.Receipt]
		if j == nil && verb == "ack" && q.acked[it.Receipt] {
			out = append(out, `{"id":"x","status":200,"already":true}`)
			continue
		}
		if j == nil {
			out = append(out, `{"status":409,"code":"lease_lost","detail":"x"}`)
			continue
		}
		q.events = append(q.events, event{time.Since(q.began), verb, j.ID, strings.TrimSpace(it.Delay + " " + it.Error), request})
		if verb == "extend" {
			out = append(out, q.extend(j, it))
			continue
		}
		delete(q.leased, it.Receipt)
		q.acked[it.Receipt] = verb == "ack"
		out = append(out, fmt.Sprintf(`{"id":%q,"status":200}`, j.ID))
	}
	return q.response(200, []byte(`{"results":[`+strings.Join(out, ",")+`]}`)), nil
}

func (q *fakeQueue) extend(j *Job, it item) string {
	if q.extended != nil {
		if s := q.extended(j.Receipt); s != "" {
			return s
		}
	}
	lease := q.lease
	if it.Lease != "" {
		lease, _ = time.ParseDuration(it.Lease)
	}
	until, _ := time.Now().Add(lease).MarshalJSON()
	return fmt.Sprintf(`{"id":%q,"status":200,"lease_until":%s}`, j.ID, until)
}

func (q *fakeQueue) note(e event) {
	q.mu.Lock()
	defer q.mu.Unlock()
	e.at, e.request = time.Since(q.began), len(q.events)
	q.events = append(q.events, e)
}

// did lists what was done with jobs, as "what id rest", without the end's
// release of the consumer.
func (q *fakeQueue) did() (all []string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, e := range q.events {
		if e.what != "release-consumer" {
			all = append(all, strings.TrimSpace(e.what+" "+e.job+" "+e.rest))
		}
	}
	return all
}

// setRefuse changes what is refused.
func (q *fakeQueue) setRefuse(f func(path string) (int, Code, Applied)) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.refuse = f
}

func (q *fakeQueue) client(opts ...Option) *Client {
	c, err := New("h1:1,h2:1", append([]Option{WithTransport(q), func(o *clientOptions) { o.keys = true }}, opts...)...)
	if err != nil {
		q.t.Fatal(err)
	}
	return c
}
