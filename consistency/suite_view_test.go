package consistency

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"raftq/consistency/check"
	"raftq/fsm"
)

// suiteView is GET /v1/cluster.
type suiteView struct {
	Leader string
	Term   uint64
	Nodes  []struct {
		Name, ID, Peer string
		Role           string
		Alive          bool
		Applied        uint64 `json:"applied_index"`
		Chain          struct {
			Index uint64
			Hash  string
		}
	}
}

// alive tells whether a node hears of another one.
func (v suiteView) alive(name string) bool {
	for _, n := range v.Nodes {
		if n.Name == name {
			return n.Alive
		}
	}
	return false
}

func (w *world) view(ctx context.Context, node int) (v suiteView, err error) {
	a, err := newSuiteHTTP().do(ctx, "GET", "http://"+w.c.Nodes[node].Client+"/v1/cluster", nil, nil)
	if err != nil {
		return v, err
	}
	return v, json.Unmarshal(a.body, &v)
}

// meet learns the members as they were at the beginning.
func (w *world) meet() {
	w.t.Helper()
	v, err := w.view(w.ctx, 0)
	if err != nil {
		w.t.Fatal(err)
	}
	for _, n := range v.Nodes {
		id, err := strconv.ParseUint(n.ID, 16, 64)
		if err != nil {
			w.t.Fatal(err)
		}
		w.genesis = append(w.genesis, fsm.Member{ID: id, Name: n.Name, Peer: n.Peer})
		for i := range w.c.Nodes {
			if w.links != nil && w.c.Nodes[i].Name == n.Name {
				w.links.learn(i, n.ID)
			}
		}
	}
}

// watch notes each node's running hash and its leader, ten times a second.
func (w *world) watch() {
	ctx, cancel := context.WithCancel(w.ctx)
	w.watching, w.watched = cancel, make(chan struct{})
	go func() {
		defer close(w.watched)
		for tick := time.NewTicker(100 * time.Millisecond); ; {
			select {
			case <-ctx.Done():
				tick.Stop()
				return
			case <-tick.C:
			}
			for i := range w.c.Nodes {
				if w.c.Nodes[i].Running() {
					w.note(ctx, i)
				}
			}
		}
	}()
}

func (w *world) note(ctx context.Context, i int) {
	short, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
	defer cancel()
	v, err := w.view(short, i)
	if err != nil {
		return // down, paused or busy
	}
	for _, m := range v.Nodes {
		if m.Name == w.c.Nodes[i].Name && m.Chain.Index > 0 {
			w.rec.Chain(check.Chain{Node: m.Name, Index: m.Chain.Index, Hash: m.Chain.Hash})
		}
	}
}

func (w *world) unwatch() {
	if w.watching != nil {
		w.watching()
		<-w.watched
	}
}

// metrics are a node's; empty when it does not answer.
func (w *world) metrics(node int) string {
	short, cancel := context.WithTimeout(w.ctx, time.Second)
	defer cancel()
	a, err := newSuiteHTTP().do(short, "GET", "http://"+w.c.Nodes[node].Client+"/metrics", nil, nil)
	if err != nil {
		return ""
	}
	return string(a.body)
}

// metric is one of them, -1 = not known.
func (w *world) metric(node int, name string) float64 {
	for line := range strings.Lines(w.metrics(node)) {
		if v, ok := strings.CutPrefix(strings.TrimSpace(line), name+" "); ok {
			f, err := strconv.ParseFloat(v, 64)
			if err == nil {
				return f
			}
		}
	}
	return -1
}

// waiting is how many jobs somebody may still want, -1 = not known.
func (w *world) waiting(node int) (n int64) {
	n = -1
	for line := range strings.Lines(w.metrics(node)) {
		labels, ok := strings.CutPrefix(strings.TrimSpace(line), "raftq_jobs{")
		labels, v, found := strings.Cut(labels, "} ")
		f, err := strconv.ParseFloat(v, 64)
		if !ok || !found || err != nil {
			continue
		}
		for _, state := range []string{"ready", "delayed", "leased"} {
			if strings.HasSuffix(labels, `state="`+state+`"`) {
				n = max(n, 0) + int64(f)
			}
		}
	}
	return n
}

// agree waits until all nodes say the same of the same entry.
func (w *world) agree() {
	w.t.Helper()
	w.eventually(30*time.Second, "nodes with equal state", func() bool {
		seen := map[string]bool{}
		for _, i := range w.others() {
			n := w.c.Nodes[i]
			v, err := w.view(w.ctx, i)
			if err != nil {
				return false
			}
			for _, m := range v.Nodes {
				if m.Name == n.Name {
					seen[fmt.Sprint(m.Chain.Index, m.Chain.Hash)] = true
				}
			}
			w.note(w.ctx, i)
		}
		return len(seen) == 1
	})
}
