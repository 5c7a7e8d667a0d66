package consistency

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"raftq/failpoint"
)

// TestFailpoints ends a node at each point of its code, under load, starts it again,
// and lets every checker look. A point that is not reached fails the test.
func TestFailpoints(t *testing.T) {
	if suiteMode() == "" {
		t.Skip("part of make consistency-quick and longer ones")
	}
	w := newWorld(t, 3)
	w.startLoad()
	points := failpoint.Points
	tried := 0
	for range byMode(1, 1, 1, 5) {
		order := w.rng.Perm(len(points))
		if suiteMode() == "quick" {
			order = order[:6]
		}
		for _, k := range order {
			w.load.await(50)
			w.endAt(points[k])
			w.heal()
			w.alive()
			tried++
		}
	}
	least := leastOf(tried)
	least.Events, least.Terms = []string{"failpoint"}, 2
	w.verdict(t.Name(), least)
}

// endAt ends a node at a point: the leader or a follower, at one of the first hits.
func (w *world) endAt(point string) {
	w.t.Helper()
	i := w.pick(w.others())
	n := w.c.Nodes[i]
	kind, _, _ := strings.Cut(point, ".")
	hit := 1
	switch kind {
	case "log", "send", "reply":
		hit += w.rng.IntN(3)
	}
	plain, env := n.Binary, n.Env
	begun := time.Now()
	w.ended(fmt.Sprintf("failpoint %s:%d", point, hit), []int{i}, func() {
		if kind == "install" {
			w.leaveBehind(i)
		} else {
			n.Kill9()
		}
		n.Binary, n.Env = binaryWith(w.t, "failpoints"), append(env[:len(env):len(env)], fmt.Sprintf("RAFTQ_FAILPOINT=%s:%d", point, hit))
		w.must(n.Start())
		done := make(chan struct{})
		if kind == "conf" {
			go func() {
				defer close(done)
				w.changeNobody(w.others(i)[0], n.Ended())
			}()
		} else {
			close(done)
		}
		w.endsBy(n, failpoint.Status, fmt.Sprintf("failpoint %s, hit %d", point, hit))
		<-done
		n.Binary, n.Env = plain, env
		w.hold(0, 500*time.Millisecond)
	})
	w.t.Logf("%s:%d of %s: %v", point, hit, n.Name, time.Since(begun).Round(time.Millisecond))
}

// changeNobody adds a learner that is nowhere and removes it, again and again, until
// a node has ended: each is a change of members.
func (w *world) changeNobody(at int, until <-chan struct{}) {
	url := "http://" + w.c.Nodes[at].Client + "/v1/cluster/members"
	send := func(method, path, body string) int {
		a, err := newSuiteHTTP().do(w.ctx, method, url+path+"?timeout=2s", []byte(body), map[string]string{"Content-Type": "application/json"})
		if err == nil && (a.status == http.StatusBadRequest || a.status == http.StatusUnprocessableEntity) {
			w.t.Errorf("%s of a member: %d %s", method, a.status, a.body)
		}
		return a.status // 0: no answer
	}
	for over := false; ; {
		send("POST", "", `{"name":"nobody","peer":"http://198.18.255.1:9080","role":"learner"}`)
		gone := send("DELETE", "/nobody", "")
		if over && (gone < 300 && gone > 0 || gone == http.StatusNotFound) || w.ctx.Err() != nil {
			return
		}
		select {
		case <-until:
			over = true
		case <-time.After(20 * time.Millisecond): // between two changes
		}
	}
}
