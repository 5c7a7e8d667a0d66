package consistency

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"raftq/cluster"
	"raftq/consistency/check"
	"raftq/fsm"
)

// world is one run of the suite: a cluster, what is done to it, and what its
// clients see.
type world struct {
	t     *testing.T
	ctx   context.Context
	c     *cluster.Cluster
	rec   *check.Recorder
	rng   *rand.Rand // of the faults
	seed  uint64
	links *faultNet // of nodes that are not isolated
	load  *suiteLoad
	via   atomic.Pointer[[]string] // where clients reach the nodes instead, see cutAnswers

	archive  string
	genesis  []fsm.Member
	out      map[int]bool // nodes that are no members: spare, or removed
	lives    int          // archives made
	earlier  []string     // archives of logs that nodes began anew
	damaged  map[int]bool // nodes whose files were damaged: their logs may be unreadable
	reborn   map[int]bool // nodes that rejoined by themselves: what they first were is removed
	watching context.CancelFunc
	watched  chan struct{}
}

// suiteMode says how long the suite runs: "" (part of every test run), "quick",
// "normal" or "long".
func suiteMode() string { return os.Getenv("RAFTQ_CONSISTENCY") }

// byMode picks a number for the mode.
func byMode(short, quick, normal, long int) int {
	switch suiteMode() {
	case "quick":
		return quick
	case "normal":
		return normal
	case "long":
		return long
	}
	return short
}

// newWorldOfDisks is newWorld for tests whose nodes need disks of their own.
func newWorldOfDisks(t *testing.T, nodes int) *world {
	t.Helper()
	w := newWorld(t, nodes)
	if w.c.Net == nil {
		t.Skip("nodes have no disks of their own here")
	}
	return w
}

// newWorld starts a cluster whose snapshots and log segments are small, so that
// both come and go within seconds.
func newWorld(t *testing.T, nodes int, args ...string) *world {
	t.Helper()
	w := layOutWorld(t, nodes, args...)
	w.start()
	return w
}

// layOutWorld is newWorld without starting.
func layOutWorld(t *testing.T, nodes int, args ...string) *world {
	t.Helper()
	return layOutSpared(t, nodes, 0, args...)
}

// layOutSpared is layOutWorld with nodes that are no members yet.
func layOutSpared(t *testing.T, nodes, spare int, args ...string) *world {
	t.Helper()
	if testing.Short() {
		t.Skip("real processes under faults")
	}
	seed := uint64(time.Now().UnixNano())
	if v, err := strconv.ParseUint(os.Getenv("RAFTQ_CONSISTENCY_SEED"), 10, 64); err == nil {
		seed = v
	}
	t.Logf("seed %d (RAFTQ_CONSISTENCY_SEED repeats the choice of faults and operations, not their timing)", seed)
	dir, err := os.MkdirTemp("", "raftq-suite-")
	if err != nil {
		t.Fatal(err)
	}
	o := cluster.Options{Binary: binary, Dir: dir, Nodes: nodes, Isolated: true,
		Args: append([]string{"--snapshot-entries", "300", "--segment-bytes", "128KiB"}, args...)}
	why := cluster.CanIsolate()
	if os.Getenv("RAFTQ_PLAIN") != "" {
		why = fmt.Errorf("RAFTQ_PLAIN is set")
	}
	if why != nil {
		t.Logf("plain processes instead of isolated ones, so no power cuts, no full, failing, stuck or wiped disks, and no lost packets: %v", why)
		o.Isolated = false
	}
	c, err := cluster.New(o)
	if err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, ctx: t.Context(), c: c, rec: check.NewRecorder(), seed: seed, rng: rand.New(rand.NewPCG(seed, 1)), archive: filepath.Join(dir, "archive"), damaged: map[int]bool{}, reborn: map[int]bool{}, out: map[int]bool{}}
	t.Cleanup(func() {
		w.unwatch()
		c.Close()
		if t.Failed() {
			t.Log("logs and timelines stay in", dir)
		} else {
			os.RemoveAll(dir)
		}
	})
	for range spare {
		w.out[len(c.Nodes)] = true
		if _, err := c.Add(); err != nil {
			t.Fatal(err)
		}
	}
	if !o.Isolated {
		w.links = interpose(t, c)
	}
	for _, n := range c.Nodes {
		w.newArchive(n)
	}
	return w
}

// start starts the nodes and what watches them.
func (w *world) start() {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.ctx, 60*time.Second)
	defer cancel()
	for _, i := range w.others() {
		w.must(w.c.Nodes[i].Start())
	}
	w.must(w.ready(ctx))
	w.meet()
	w.watch()
}

const archiveFlag = "--wal-archive"

// newArchive gives a node a place for the segments it releases: the log of a new life
// has names that an earlier one had.
func (w *world) newArchive(n *cluster.Node) {
	w.t.Helper()
	w.lives++
	dir := filepath.Join(w.archive, fmt.Sprintf("%s.%d", n.Name, w.lives))
	w.must(os.MkdirAll(dir, 0o755))
	if was := archiveOf(n); was != "" {
		w.earlier = append(w.earlier, was)
		n.Args[slices.Index(n.Args, archiveFlag)+1] = dir
		return
	}
	n.Args = append(n.Args, archiveFlag, dir)
}

// keepLog copies the segments that a node still has to those that it released,
// before its disk or its log is lost: it may be the last one that has them.
func (w *world) keepLog(n *cluster.Node) {
	w.t.Helper()
	files, err := filepath.Glob(filepath.Join(n.DataDir, "log", "wal", "*.wal"))
	w.must(err)
	for _, path := range files {
		to := filepath.Join(archiveOf(n), filepath.Base(path))
		if _, err := os.Stat(to); err == nil {
			continue // a crash came between its copy and its removal
		}
		b, err := os.ReadFile(path)
		w.must(err)
		w.must(os.WriteFile(to, b, 0o600))
	}
}

func archiveOf(n *cluster.Node) string {
	if i := slices.Index(n.Args, archiveFlag); i >= 0 {
		return n.Args[i+1]
	}
	return ""
}

// eventually polls until ok.
func (w *world) eventually(within time.Duration, what string, ok func() bool) {
	w.t.Helper()
	end := time.Now().Add(within)
	for !ok() {
		if time.Now().After(end) {
			w.t.Fatalf("not within %v: %s\n%s", within, what, w.tails())
		}
		time.Sleep(20 * time.Millisecond) // between polls of a condition
	}
}

// tails are the ends of the nodes' logs.
func (w *world) tails() string {
	var b strings.Builder
	for _, n := range w.c.Nodes {
		text, err := os.ReadFile(n.LogFile)
		lines := strings.Split(strings.TrimSpace(string(text)), "\n")
		fmt.Fprintf(&b, "--- %s, running %v, %v\n%s\n", n.Name, n.Running(), err, strings.Join(lines[max(0, len(lines)-8):], "\n"))
	}
	return b.String()
}

func (w *world) leader() int {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.ctx, 20*time.Second)
	defer cancel()
	i, err := w.c.Leader(ctx)
	if err != nil {
		w.t.Fatalf("%v\n%s", err, w.tails())
	}
	return i
}

// ready waits until all members serve.
func (w *world) ready(ctx context.Context) error {
	for _, i := range w.others() {
		if err := w.c.Nodes[i].WaitReady(ctx); err != nil {
			return err
		}
	}
	return nil
}

// others are all members but some.
func (w *world) others(but ...int) (all []int) {
next:
	for i := range w.c.Nodes {
		if w.out[i] {
			continue
		}
		for _, b := range but {
			if i == b {
				continue next
			}
		}
		all = append(all, i)
	}
	return all
}

// alive waits until every node serves and a strong write is answered on each: the
// liveness that every fault must leave behind.
func (w *world) alive() {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.ctx, 30*time.Second)
	defer cancel()
	if err := w.ready(ctx); err != nil {
		w.t.Fatalf("after the heal: %v\n%s", err, w.tails())
	}
	for _, i := range w.others() {
		w.writes(i)
	}
	w.load.recount()
}

// writes waits until a node answers a strong write.
func (w *world) writes(i int) {
	w.t.Helper()
	c := w.newClient(-1, i)
	w.eventually(10*time.Second, "a strong write on "+w.c.Nodes[i].Name, func() bool {
		return c.enqueue("alive", []check.Job{{Body: w.load.body(), Priority: -1}}, false, "").Outcome == check.OK
	})
}

// verdict ends the run: the load stops, the queues are drained, the nodes agree
// and stop, and every checker looks at what was recorded.
func (w *world) verdict(name string, least check.Least) {
	w.t.Helper()
	// A machine that stands still for a while makes no run that tests too little.
	for end := time.Now().Add(time.Minute); !w.rec.Enough(least) && time.Now().Before(end); {
		time.Sleep(20 * time.Millisecond) // between polls of a condition
	}
	w.load.end()
	w.alive()
	w.unpause()
	w.letGo()
	w.drain()
	w.readTopics()
	w.agree()
	w.unwatch()
	ctx, cancel := context.WithTimeout(w.ctx, 30*time.Second)
	defer cancel()
	if err := w.c.Stop(ctx); err != nil {
		w.t.Errorf("stop: %v", err)
	}
	h := w.rec.History()
	logs := map[string]map[uint64]check.Entry{}
	for i, n := range w.c.Nodes {
		entries, stopped, err := check.ReadLog(filepath.Join(n.DataDir, "log", "wal"), archiveOf(n))
		if err != nil {
			w.t.Errorf("the log of %s: %v", n.Name, err)
		}
		if stopped != nil && !w.damaged[i] {
			w.t.Errorf("the log of %s cannot be read to its end: %v", n.Name, stopped)
		}
		logs[n.Name] = entries
	}
	for _, dir := range w.earlier {
		entries, _, err := check.ReadLog(dir)
		if err != nil {
			w.t.Errorf("the log of an earlier life in %s: %v", dir, err)
		}
		logs[filepath.Base(dir)] = entries
	}
	r := check.Judge(h, logs, w.genesis, windowPrefix, least)
	r.Name, r.Seed, r.Isolated, r.Nodes = name, w.seed, w.c.Net != nil, len(w.c.Nodes)
	reports.add(r)
	w.t.Log(r.Summary())
	for _, one := range r.Windows {
		if one.Skipped != "" {
			w.t.Log("window skipped: ", one.Skipped)
		}
	}
	for _, p := range r.Problems {
		w.t.Error(p)
	}
	if w.t.Failed() {
		for _, path := range r.Keep(w.c.Dir()) {
			w.t.Log("kept", path)
		}
	}
}
