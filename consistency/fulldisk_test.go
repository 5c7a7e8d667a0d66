package consistency

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"raftq/consistency/check"
)

// TestNearlyFullDisk lets the disk of one node fill up under load, step by step. From
// 95 % on no node takes new jobs (507, nothing applied), while what makes room goes
// on everywhere; with room again all go on by themselves, and no process has ended.
// Then disks fill up to the last byte, of one node, of the leader, of all: a node may
// end, and says why; it does not come back before there is room, and then does.
// Nothing that was answered is lost.
func TestNearlyFullDisk(t *testing.T) {
	if suiteMode() == "" {
		t.Skip("part of make consistency-quick and longer ones")
	}
	w := newWorldOfDisks(t, 3)
	w.startLoad()
	rounds := byMode(1, 1, 1, 10)
	for range rounds {
		w.load.await(100)
		w.nearlyFull(w.pick(w.others()))
		w.alive()
		for _, nodes := range [][]int{{w.leader()}, {w.pick(w.others(w.leader()))}, w.others()} {
			w.load.await(50)
			w.totallyFull(nodes)
			w.alive()
		}
	}
	least := leastOf(rounds)
	least.Events, least.Terms, least.Windows = []string{"nearly full", "totally full"}, 1, 0
	w.verdict(t.Name(), least)
}

func (w *world) oneJob() []check.Job { return []check.Job{{Body: w.load.body(), Priority: -1}} }

// nearlyFull leaves a node 3 % of its disk.
func (w *world) nearlyFull(node int) {
	const stock = "stock"
	n := w.c.Nodes[node]
	for range 12 {
		w.eventually(10*time.Second, "a stock of jobs", func() bool {
			return w.newClient(-1, node).enqueue(stock, w.oneJob(), false, "").Outcome == check.OK
		})
	}
	var pids []int
	for _, n := range w.c.Nodes {
		pids = append(pids, n.Pid())
	}
	w.during(node, false, "nearly full disk of "+n.Name, func() {
		// 92 %: fast enqueues are refused first, and then all of them.
		w.must(n.Disk.FillTo(92))
		for i := range w.c.Nodes {
			w.refuses(i, true)
			c := w.newClient(-1, i)
			w.eventually(10*time.Second, "a strong enqueue on "+w.c.Nodes[i].Name, func() bool {
				return c.enqueue(stock, w.oneJob(), false, "").Outcome == check.OK
			})
		}
		w.must(n.Disk.FillTo(97))
		for i := range w.c.Nodes {
			w.refuses(i, false)
		}
		for i := range w.c.Nodes {
			c := w.newClient(-1, i)
			for range 3 {
				w.eventually(10*time.Second, "a job and its ack on "+w.c.Nodes[i].Name, func() bool {
					o := c.dequeue(stock, 1, 0, 30*time.Second, false)
					return len(o.Got) == 1 && c.settle(check.Ack, stock, []string{o.Got[0].Receipt}, 0, 0, false).Outcome == check.OK
				})
			}
			w.refuses(i, false) // still
		}
	})
	w.must(n.Disk.Free())
	for i := range w.c.Nodes {
		for _, fast := range []bool{false, true} {
			c := w.newClient(-1, i)
			w.eventually(10*time.Second, fmt.Sprintf("an enqueue on %s, fast %v, with room again", w.c.Nodes[i].Name, fast), func() bool {
				return c.enqueue(stock, w.oneJob(), fast, "").Outcome == check.OK
			})
		}
	}
	for i, n := range w.c.Nodes {
		if n.Pid() != pids[i] || !n.Running() {
			w.t.Errorf("%s ended while a disk was nearly full", n.Name)
		}
	}
}

// refuses waits until a node refuses new jobs because of a disk, and says that it did
// nothing.
func (w *world) refuses(node int, fast bool) {
	w.t.Helper()
	c := w.newClient(-1, node)
	w.eventually(10*time.Second, "a refusal by "+w.c.Nodes[node].Name, func() bool {
		o := c.enqueue("stock", w.oneJob(), fast, "")
		return o.Outcome == check.Failed && strings.HasPrefix(o.Error, "507 ") && strings.Contains(o.Error, "disk_limit")
	})
}

// totallyFull leaves nodes not a byte. One that ends may be started meanwhile, and
// refuse, or say why it cannot run; it must not spoil anything.
func (w *world) totallyFull(nodes []int) {
	w.withoutRoom("totally full disk", nodes, func() {
		for _, i := range nodes {
			w.must(w.c.Nodes[i].Disk.Fill(0))
		}
		w.hold(2*time.Second, 3*time.Second)
		for _, i := range nodes {
			if n := w.c.Nodes[i]; !n.Running() && n.Start() == nil {
				ctx, cancel := context.WithTimeout(w.ctx, time.Second)
				_ = n.Wait(ctx)
				cancel()
				n.Kill9()
			}
		}
	})
}

// tailOf is the end of what a node has said.
func (w *world) tailOf(node int) string {
	text, err := os.ReadFile(w.c.Nodes[node].LogFile)
	w.must(err)
	return string(text[max(0, len(text)-16<<10):])
}
