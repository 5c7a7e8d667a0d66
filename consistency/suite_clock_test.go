package consistency

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"raftq/consistency/check"
)

// clocks are the wall clocks of a world's nodes, which a build with failpoints takes
// to be off by what a file says.
type clocks struct {
	w   *world
	off []int64 // ms, by node
}

// newClocks prepares nodes that are not started yet.
func newClocks(w *world) *clocks {
	c := &clocks{w, make([]int64, len(w.c.Nodes))}
	for i, n := range w.c.Nodes {
		n.Binary = binaryWith(w.t, "failpoints")
		n.Env = append(n.Env, "RAFTQ_CLOCK_OFFSET_FILE="+c.path(i))
		w.must(os.WriteFile(c.path(i), []byte("0"), 0o644))
	}
	return c
}

func (c *clocks) path(i int) string {
	return filepath.Join(c.w.c.Dir(), c.w.c.Nodes[i].Name+".clock")
}

// set sets clocks wrong; a file is replaced, so that nobody reads half of one.
func (c *clocks) set(ms int64, nodes ...int) {
	c.w.t.Helper()
	for _, i := range nodes {
		c.off[i] = ms
		c.w.must(os.WriteFile(c.path(i)+".new", []byte(fmt.Sprint(ms)), 0o644))
		c.w.must(os.Rename(c.path(i)+".new", c.path(i)))
	}
}

// jump sets clocks wrong and waits until the nodes have noticed.
func (c *clocks) jump(ms int64, nodes ...int) {
	c.w.t.Helper()
	c.set(ms, nodes...)
	for _, i := range nodes {
		said := fmt.Sprintf("the wall clock is off by %d ms", ms)
		c.w.eventually(10*time.Second, c.w.c.Nodes[i].Name+" has a clock that is off", func() bool {
			text, _ := os.ReadFile(c.w.c.Nodes[i].LogFile)
			return strings.Contains(string(text), said)
		})
	}
}

// sane proves that log time goes on as true time does: between two strong writes of
// one term. How far it may be ahead over the whole run is the checkers' to see.
func (c *clocks) sane(what string) {
	w := c.w
	w.t.Helper()
	write := func() *check.Op {
		cl := w.newClient(-1, w.leaderOr(0))
		var o *check.Op
		w.eventually(10*time.Second, "a strong write while clocks are off", func() bool {
			o = cl.enqueue("alive", []check.Job{{Body: w.load.body(), Priority: -1}}, false, "")
			return o.Outcome == check.OK
		})
		return o
	}
	a := write()
	w.hold(500*time.Millisecond, time.Second)
	b := write()
	if a.Term != b.Term {
		return // a new leader's log time may be late
	}
	passed := time.Duration(b.TimeMs-a.TimeMs) * time.Millisecond
	least, most := b.Call-a.Ret, b.Ret-a.Call
	if passed < least-least/50-20*time.Millisecond || passed > most+most/50+20*time.Millisecond {
		w.t.Errorf("%s: log time moved by %v in %v to %v", what, passed, least, most)
	}
}

// TestClocks sets wall clocks wrong under load: jumps of a second to an hour, forth
// and back, of the leader, a follower, all; strobes; drift. Nothing may end early, and
// log time goes on as true time does. A new leader comes up meanwhile.
func TestClocks(t *testing.T) {
	if suiteMode() == "" {
		t.Skip("part of make consistency-quick and longer ones")
	}
	w := layOutWorld(t, 3)
	c := newClocks(w)
	w.start()
	w.startLoad()
	rounds, kinds := byMode(1, 1, 1, 8), byMode(7, 3, 7, 7)
	for range rounds {
		far := []int64{1000, 10_000, 60_000, 3_600_000}[w.rng.IntN(4)]
		list := []struct {
			what  string
			nodes func() []int
			do    func(nodes []int)
		}{
			{"jump ahead of the leader", func() []int { return []int{w.leader()} }, func(n []int) { c.jump(far, n...) }},
			{"jump back of the leader", func() []int { return []int{w.leader()} }, func(n []int) { c.jump(-far, n...) }},
			{"jump of a follower", func() []int { return []int{w.pick(w.others(w.leader()))} }, func(n []int) { c.jump(far, n...) }},
			{"jump ahead of all", func() []int { return w.others() }, func(n []int) { c.jump(far, n...) }},
			{"jump back of all", func() []int { return w.others() }, func(n []int) { c.jump(-far, n...) }},
			{"strobe of a majority", func() []int { return w.some(2) }, func(n []int) {
				for k := range int64(50) {
					c.set((k%2*2-1)*far, n...)
					w.hold(5*time.Millisecond, 30*time.Millisecond)
				}
			}},
			{"drift of all", func() []int { return w.others() }, func(n []int) {
				for k := range int64(100) { // 5 %
					c.set(k, n...)
					w.hold(20*time.Millisecond, 20*time.Millisecond)
				}
			}},
		}
		for _, k := range w.rng.Perm(len(list))[:kinds] {
			f := list[k]
			w.load.await(50)
			nodes := f.nodes()
			w.during(nodes[0], false, fmt.Sprintf("clock: %s (%s, %d ms)", f.what, w.names(nodes), far), func() {
				f.do(nodes)
				c.sane(f.what)
				if w.rng.IntN(3) == 0 {
					w.kill(w.leader())
					w.heal()
					c.sane(f.what + ", a new leader")
				}
				c.jump(0, nodes...)
			})
			w.alive()
		}
	}
	least := leastOf(kinds * rounds)
	least.Events, least.Terms = []string{"clock: "}, 1
	if kinds == 7 {
		least.Events = []string{"ahead of the leader", "back of all", "strobe", "drift"}
	}
	w.verdict(t.Name(), least)
}
