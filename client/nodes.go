package client

import (
	"fmt"
	"math/rand/v2"
	"net/url"
	"strings"
	"sync"
	"time"
)

// Policy says which node a request goes to first.
type Policy uint8

const (
	// Spread takes the nodes in turn, beginning anywhere.
	Spread Policy = iota
	// Ordered takes the first node of the list that is well.
	Ordered
)

// How long a node that failed is passed over: doubled each time, less up to a
// quarter at random, so that many clients do not come back at once.
const (
	restMin = 250 * time.Millisecond
	restMax = 10 * time.Second
)

// nodes chooses among the endpoints. A node that failed rests: others are
// preferred, and when its rest is over one request tries it while the others
// still pass it over. When all rest, the one whose rest ends first is asked all
// the same: a rest is advice, and never the reason for an error.
type nodes struct {
	policy Policy
	now    func() time.Time // monotonic

	mu   sync.Mutex
	rng  *rand.Rand
	next int // whose turn it is
	all  []*node
}

// node is one endpoint.
type node struct {
	base string // scheme://host:port
	addr string // host:port

	// Guarded by the mutex of nodes.
	fails    int       // in a row
	failedAt time.Time // the last time
	until    time.Time // rests until then
}

func newNodes(endpoints string, policy Policy, tls bool, now func() time.Time, rng *rand.Rand) (*nodes, error) {
	s := &nodes{policy: policy, now: now, rng: rng}
	for e := range strings.SplitSeq(endpoints, ",") {
		e = strings.TrimSpace(e)
		if e == "" {
			continue
		}
		if !strings.Contains(e, "://") {
			if tls {
				e = "https://" + e
			} else {
				e = "http://" + e
			}
		}
		u, err := url.Parse(e)
		switch {
		case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || u.Port() == "" ||
			strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.User != nil:
			return nil, fmt.Errorf("raftq: endpoints: %q is not host:port", e)
		case u.Scheme == "http" && tls:
			return nil, fmt.Errorf("raftq: endpoints: %q is plain http, but TLS is configured", e)
		}
		for _, n := range s.all {
			if n.addr == u.Host {
				return nil, fmt.Errorf("raftq: endpoints: %s is named twice", u.Host)
			}
		}
		s.all = append(s.all, &node{base: u.Scheme + "://" + u.Host, addr: u.Host})
	}
	if len(s.all) == 0 {
		return nil, fmt.Errorf("raftq: endpoints: none given")
	}
	if policy == Spread {
		s.next = rng.IntN(len(s.all))
	}
	return s, nil
}

// pick returns the node to ask, none of those tried already. It returns nil when
// all were tried.
func (s *nodes) pick(tried []*node) *node {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	var best *node
	bestAt := 0
	for i := range s.all {
		at := (s.next + i) % len(s.all)
		n := s.all[at]
		if contains(tried, n) {
			continue
		}
		if !n.until.After(now) {
			best, bestAt = n, at
			break
		}
		if best == nil || n.until.Before(best.until) {
			best, bestAt = n, at
		}
	}
	if best == nil {
		return nil
	}
	if s.policy == Spread {
		s.next = (bestAt + 1) % len(s.all)
	}
	if best.fails > 0 {
		best.until = now.Add(s.rest(best.fails)) // this request alone finds out how it is
	}
	return best
}

func contains(list []*node, n *node) bool {
	for _, x := range list {
		if x == n {
			return true
		}
	}
	return false
}

// rest is how long a node rests after so many failures in a row.
func (s *nodes) rest(fails int) time.Duration {
	d := min(restMin<<min(fails-1, 16), restMax)
	return d - time.Duration(s.rng.Int64N(int64(d/4)))
}

// well notes that a node answered, and tells whether it had failed before.
func (s *nodes) well(n *node) (again bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	again = n.fails > 0
	n.fails, n.until = 0, time.Time{}
	return again
}

// failed notes that a node did not answer a request that was sent at a time.
// Requests that were under way when it failed before count as that failure. It
// returns how long the node rests, 0 when nothing new was learnt, and whether it was
// well until now.
func (s *nodes) failed(n *node, sent time.Time) (rests time.Duration, first bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	if sent.Before(n.failedAt) {
		return 0, false
	}
	n.fails++
	n.failedAt = now
	d := s.rest(n.fails)
	n.until = now.Add(d)
	return d, n.fails == 1
}

// busy lets a node rest that is well but asked to be spared.
func (s *nodes) busy(n *node, d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if until := s.now().Add(min(d, restMax)); until.After(n.until) {
		n.until = until
	}
}
