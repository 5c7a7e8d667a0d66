package client

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
)

// manual is a clock that a test moves.
type manual struct{ at time.Time }

func newManual() *manual { return &manual{time.Unix(1_700_000_000, 0)} }

func (m *manual) now() time.Time { return m.at }

func testNodes(t *testing.T, endpoints string, p Policy, clock *manual) *nodes {
	t.Helper()
	s, err := newNodes(endpoints, p, false, clock.now, rand.New(rand.NewPCG(1, 2)))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// picks names the nodes that the next n requests go to.
func picks(s *nodes, n int) string {
	var all []string
	for range n {
		all = append(all, s.pick(nil).addr)
	}
	return strings.Join(all, " ")
}

func TestSpreadTakesTurns(t *testing.T) {
	s := testNodes(t, "a:1,b:1,c:1", Spread, newManual())
	s.next = 1
	if got := picks(s, 6); got != "b:1 c:1 a:1 b:1 c:1 a:1" {
		t.Error(got)
	}
}

// Clients begin at different nodes.
func TestSpreadBeginsAnywhere(t *testing.T) {
	first := map[string]bool{}
	for seed := range uint64(50) {
		s, err := newNodes("a:1,b:1,c:1", Spread, false, time.Now, rand.New(rand.NewPCG(seed, 0)))
		if err != nil {
			t.Fatal(err)
		}
		first[s.pick(nil).addr] = true
	}
	if len(first) != 3 {
		t.Errorf("50 clients begin at %v", first)
	}
}

func TestOrderedTakesTheFirst(t *testing.T) {
	clock := newManual()
	s := testNodes(t, "a:1,b:1,c:1", Ordered, clock)
	if got := picks(s, 3); got != "a:1 a:1 a:1" {
		t.Error(got)
	}
	s.failed(s.all[0], clock.now())
	if got := picks(s, 2); got != "b:1 b:1" {
		t.Errorf("with a resting: %s", got)
	}
	clock.at = clock.at.Add(restMax)
	if got := picks(s, 2); got != "a:1 b:1" {
		t.Errorf("a rested: one request tries it: %s", got)
	}
	s.well(s.all[0])
	if got := picks(s, 2); got != "a:1 a:1" {
		t.Errorf("a is well: %s", got)
	}
}

// One call asks each node once, those at rest last.
func TestPickOfOneCall(t *testing.T) {
	clock := newManual()
	s := testNodes(t, "a:1,b:1,c:1", Ordered, clock)
	s.failed(s.all[0], clock.now())
	clock.at = clock.at.Add(time.Millisecond)
	s.failed(s.all[1], clock.now())
	s.failed(s.all[1], clock.now().Add(time.Millisecond)) // longer
	var tried []*node
	var got []string
	for n := s.pick(tried); n != nil; n = s.pick(tried) {
		tried = append(tried, n)
		got = append(got, n.addr)
	}
	if !slices.Equal(got, []string{"c:1", "a:1", "b:1"}) {
		t.Error(got)
	}
}

// A rest doubles with each failure up to a limit, less at most a quarter, and ends
// with an answer.
func TestRestDoubles(t *testing.T) {
	clock := newManual()
	s := testNodes(t, "a:1,b:1", Ordered, clock)
	n := s.all[0]
	want := restMin
	for i := range 12 {
		d, first := s.failed(n, clock.now())
		if first != (i == 0) {
			t.Errorf("failure %d is the first: %v", i+1, first)
		}
		if d > want || d < want-want/4 {
			t.Errorf("failure %d: rests %v, want up to a quarter less than %v", i+1, d, want)
		}
		want = min(2*want, restMax)
		clock.at = clock.at.Add(d)
	}
	if !s.well(n) || s.well(n) {
		t.Error("it is well again once")
	}
	if d, first := s.failed(n, clock.now()); d > restMin || !first {
		t.Errorf("after an answer: rests %v, the first failure: %v", d, first)
	}
}

// Requests that were under way together when a node died are one failure.
func TestFailuresTogether(t *testing.T) {
	clock := newManual()
	s := testNodes(t, "a:1,b:1", Ordered, clock)
	sent := clock.now()
	clock.at = clock.at.Add(time.Millisecond)
	if d, _ := s.failed(s.all[0], sent); d == 0 {
		t.Error("the first failure is none")
	}
	clock.at = clock.at.Add(time.Millisecond)
	if d, _ := s.failed(s.all[0], sent); d != 0 || s.all[0].fails != 1 {
		t.Errorf("%d failures", s.all[0].fails)
	}
	if d, _ := s.failed(s.all[0], clock.now()); d == 0 || s.all[0].fails != 2 {
		t.Errorf("a later one: %d failures", s.all[0].fails)
	}
}

// A node that is busy is spared, and is well.
func TestBusy(t *testing.T) {
	clock := newManual()
	s := testNodes(t, "a:1,b:1", Ordered, clock)
	s.busy(s.all[0], 200*time.Millisecond)
	if got := picks(s, 2); got != "b:1 b:1" {
		t.Error(got)
	}
	clock.at = clock.at.Add(200 * time.Millisecond)
	if got := picks(s, 2); got != "a:1 a:1" {
		t.Error(got)
	}
	s.busy(s.all[0], time.Hour)
	if got := s.all[0].until.Sub(clock.now()); got > restMax {
		t.Errorf("spared for %v", got)
	}
}

func TestEndpoints(t *testing.T) {
	for _, tc := range []struct {
		in   string
		tls  bool
		want string // bases, or a piece of the error
		ok   bool
	}{
		{"h1:8080", false, "[http://h1:8080]", true},
		{" h1:8080 , http://h2:8080/ ,", false, "[http://h1:8080 http://h2:8080]", true},
		{"h1:8080,https://h2:8080", false, "[http://h1:8080 https://h2:8080]", true},
		{"h1:8080", true, "[https://h1:8080]", true},
		{"[::1]:8080", false, "[http://[::1]:8080]", true},
		{"", false, "none given", false},
		{" , ", false, "none given", false},
		{"h1", false, `"http://h1" is not host:port`, false},
		{":8080", false, "is not host:port", false},
		{"ftp://h1:8080", false, "is not host:port", false},
		{"http://h1:8080/v1", false, "is not host:port", false},
		{"http://u:p@h1:8080", false, "is not host:port", false},
		{"http://h1:8080", true, "TLS is configured", false},
		{"h1:8080,h1:8080", false, "named twice", false},
	} {
		s, err := newNodes(tc.in, Ordered, tc.tls, time.Now, rand.New(rand.NewPCG(0, 0)))
		if tc.ok {
			var got []string
			for _, n := range s.all {
				got = append(got, n.base)
			}
			if err != nil || fmt.Sprint(got) != tc.want {
				t.Errorf("%q: %v %v, want %s", tc.in, got, err, tc.want)
			}
		} else if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%q: %v, want an error with %q", tc.in, err, tc.want)
		}
	}
}
