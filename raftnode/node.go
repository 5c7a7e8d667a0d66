package raftnode

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/raft/v3"
	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"raftq/failpoint"
	"raftq/fsm"
	"raftq/snapshot"
	"raftq/wal"
)

var (
	errDiverged = errors.New("this node's state differs from a majority of the voters: it must not serve; remove its data and let it join as a new member")
	errStopped  = errors.New("the node has stopped")
)

// Node is a running replica: the core with its goroutines, files and peers.
type Node struct {
	cfg     Config
	log     *zap.Logger
	id      uint64
	cluster uint64
	box     *mailbox
	wal     *wal.Log
	storage *raft.MemoryStorage
	writer  *logWriter
	peers   *transport
	dir     *dataDir
	view    atomic.Pointer[view]
	held    heldFiles
	gone    atomic.Pointer[map[uint64]bool] // removed members that nobody needs any more; a map is never changed
	newest  atomic.Uint64                   // index of the newest snapshot file that has a marker

	// turn is held by the goroutine that runs the core: that of run, or one that
	// brings something and finds the core at rest.
	turn     sync.Mutex
	core     *core
	events   []any // spare, for the mailbox
	requests []*request
	clock    turnClock
	later    *time.Timer // for what the core keeps back
	wakeAt   int64       // what later is set to
	ended    bool
	failed   error // of a step; run ends the replica

	quit     chan struct{} // close: the run goroutine ends
	quitOnce sync.Once
	done     chan struct{}
	err      error // before done is closed
	wg       sync.WaitGroup
	pool     sync.Pool // of *request

	diskPercent atomic.Uint64 // used, of the data directory's filesystem
	defaults    defaults
	growths     atomic.Int64 // readers that wait for messages
}

// view is what other goroutines may know of the core, published after a step
// when it changed.
type view struct {
	leader string
	// leaderClient is the leader's client address; "" when it is this node, or
	// not known.
	leaderClient string
	ready        bool
	started      bool
	leaving      bool
	settled      bool // leaving, and nothing of this node's own is unapplied
	isLeader     bool
	term         uint64
	voters       int
	members      int

	// For /metrics: at most factsEvery old.
	at     int64 // boot ns
	stats  coreStats
	facts  machineFacts
	parked int
	commit uint64
}

// factsEvery is how often the facts for /metrics are taken while they change.
// Taking them has a price beyond their copying: they are of a committed machine,
// and one that was shown is copied before the next entry changes it.
const factsEvery = int64(100 * time.Millisecond)

// Open boots the replica from its data directory, which the first start makes,
// and starts it. It does not wait for a leader.
func Open(cfg Config) (*Node, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	b, err := boot(cfg)
	if err != nil {
		return nil, err
	}
	n := &Node{cfg: cfg, log: cfg.Logger, id: b.core.id, cluster: b.cluster, box: newMailbox(), wal: b.log, storage: b.storage, dir: b.dir,
		quit: make(chan struct{}), done: make(chan struct{})}
	n.later = time.NewTimer(time.Hour)
	n.clock = newTurnClock()
	n.pool.New = func() any { return &request{done: make(chan struct{}, 1)} }
	n.view.Store(&view{})
	n.gone.Store(&map[uint64]bool{})
	n.setGone(b.core.machine.RemovedMembers(true))
	if n.core, err = newCore(b.core); err != nil {
		b.close()
		return nil, err
	}
	n.writer = newLogWriter(b.log, b.storage, b.core.machine.Position().Index)
	if cfg.SnapshotEntries > 0 {
		n.writer.keep = min(keepEntries, cfg.SnapshotEntries)
	}
	n.writer.report = func(jobs []*appendJob) { n.deliver(appended{jobs}) }
	n.writer.fail = func(err error) { n.box.post(failed{fmt.Errorf("write the log: %w", err)}) }
	n.newest.Store(b.core.machine.Position().Index)
	n.writer.marked = n.prune
	if n.peers, err = newTransport(n, b.core.machine); err != nil {
		b.close()
		return nil, err
	}
	n.writer.start()
	n.peers.start()
	n.wg.Go(n.run)
	n.wg.Go(n.watchFilesystem)
	return n, nil
}

// perform does what a step asked for.
func (n *Node) perform(out *outputs) {
	n.box.lazy.Store(out.lazy) // before anything that leads to events
	if len(out.done) > 0 {
		failpoint.Hit(failpoint.ReplyBefore)
	}
	for _, r := range out.done {
		r.done <- struct{}{}
	}
	for _, r := range out.reads {
		r.done <- struct{}{}
	}
	if len(out.appends) > 0 {
		n.writer.push(out.appends)
	}
	if out.members != nil {
		// Before the messages: some may be the first to a new member.
		n.peers.setMembers(out.members)
	}
	if len(out.gone) > 0 {
		n.setGone(out.gone)
	}
	if len(out.sends) > 0 {
		failpoint.Hit(failpoint.SendBefore)
		n.peers.send(out.sends)
	}
	for _, m := range out.snapshots {
		n.peers.sendSnapshot(m)
	}
	n.publish()
	if out.snapshot != nil {
		job := *out.snapshot
		n.wg.Go(func() { n.writeSnapshot(&job) })
	}
	for _, index := range out.dropped {
		n.held.drop(index)
	}
	if out.ask {
		n.peers.askAll()
	}
}

// publish lets other goroutines know what changed: what decides about requests at
// once, the facts for /metrics now and then. It runs with every tick too, so a
// node that has come to rest shows its last state.
func (n *Node) publish() {
	c := n.core
	old := n.view.Load()
	n.defaults.follow(c)
	n.box.queued.Store(int64(len(c.origin.waiting)))
	n.box.queuedBytes.Store(int64(c.origin.queuedBytes))
	v := view{ready: c.leader != 0 && c.machine.Position().Term == c.term, started: c.origin.registered, leaving: c.leaving, term: c.term, isLeader: c.leader == c.cfg.id,
		settled: c.leaving && c.settled()}
	same := v.ready == old.ready && v.started == old.started && v.leaving == old.leaving && v.settled == old.settled && v.term == old.term &&
		v.isLeader == old.isLeader && c.stats.leaderChanges == old.stats.leaderChanges
	// A leader's client address may come after the leader is known.
	lacks := old.leaderClient == "" && c.leader != 0 && !v.isLeader
	v.members, v.voters = len(c.members), len(c.conf.GetVoters())
	same = same && v.members == old.members && v.voters == old.voters
	if same && !lacks && c.now.boot-old.at < factsEvery {
		return
	}
	v.leader = c.nameOf(c.leader)
	if s, ok := c.machine.Session(c.leader); ok && c.leader != c.cfg.id {
		v.leaderClient = s.Start.Client
	}
	v.at, v.stats, v.parked, v.commit = c.now.boot, c.stats, len(c.parked.byNumber), c.commit
	m := c.committed()
	v.facts = machineFacts{m.Position(), m.Bytes(), m.Totals(), m.MemoryLimit(), m.DiskAlarm()}
	n.view.Store(&v)
}

// end answers everybody who waits and says why the replica ended. n.turn is held.
func (n *Node) end(err error) {
	n.ended = true
	n.perform(n.core.last())
	events, requests := n.box.close()
	c := n.core
	refuse := func(r *request) {
		if r.state == reqPacked || r.state == reqParked {
			r.err = &fsm.Error{Code: fsm.CodeCommitTimeout, Detail: errStopped.Error(), Unknown: true}
		} else {
			r.err = fsm.Refuse(fsm.CodeLeaving, "%v; ask another one", errStopped)
		}
		r.state = reqEnded
		r.done <- struct{}{}
	}
	for _, b := range c.origin.inflight {
		for _, r := range b.reqs {
			if r != nil && r.state == reqPacked {
				refuse(r)
			}
		}
	}
	for _, r := range c.origin.waiting {
		if r.state == reqWaiting {
			refuse(r)
		}
	}
	for _, r := range c.parked.waits {
		refuse(r)
	}
	for _, r := range requests {
		r.state = reqWaiting
		refuse(r)
	}
	reads := c.reads.list
	for _, e := range append(c.unheard, events...) {
		switch e := e.(type) {
		case submitted:
			for _, r := range e.reqs {
				refuse(r)
			}
		case readAsked:
			reads = append(reads, e.read)
		case statusAsked:
			e.reply(status{})
		case viewAsked:
			e.reply(Status{})
		case changeAsked:
			e.change.refuse(fsm.CodeLeaving, "%v; ask another one", errStopped)
		case moveAsked:
			e.move.reply(fsm.Refuse(fsm.CodeLeaving, "%v; ask another one", errStopped))
		}
	}
	c.endChanges()
	for _, r := range reads {
		if r.empty != nil {
			if r.empty.state == reqWaiting {
				refuse(r.empty)
			}
			continue
		}
		r.err = fsm.Refuse(fsm.CodeLeaving, "%v; ask another one", errStopped)
		r.done <- struct{}{}
	}
	if err != nil {
		n.log.Error("the replica ends", zap.Error(err))
	}
	n.err = err
	close(n.done)
}

// awaitEnd waits for the end of a request; false when its client left first, and the
// core takes it back. A core that has ended takes nothing back: a hand-out may be in
// the log, so then the request's own end tells what is known of it.
func (n *Node) awaitEnd(r *request, gone <-chan struct{}) (ended bool) {
	if gone == nil {
		<-r.done
		return true
	}
	select {
	case <-r.done:
		return true
	case <-gone:
	}
	if n.box.post(hungup{r}) {
		return false
	}
	<-r.done
	return true
}

// Do submits op and blocks until it is committed and applied on this node; with
// fast, on the leader, until it is appended. See httpapi.Replica.
func (n *Node) Do(op fsm.Op, fast bool, timeout time.Duration, gone <-chan struct{}) (fsm.Result, error) {
	r := n.pool.Get().(*request)
	*r = request{op: op, fast: fast, timeout: int64(timeout), bytes: fsm.Size(op), done: r.done}
	if err := n.submit(r); err != nil {
		return fsm.Result{}, err
	}
	if !n.awaitEnd(r, gone) {
		return fsm.Result{}, fsm.Refuse(fsm.CodeLeaving, "the client left")
	}
	res, err := r.res, r.err
	if r.state == reqAnswered {
		// The core has let go of it.
		r.op, r.res = nil, fsm.Result{}
		n.pool.Put(r)
	}
	if err != nil {
		return fsm.Result{}, err
	}
	return res, nil
}

// Read runs f on the machine, on the core's goroutine, and returns what it saw.
// f may run more than once; the last time counts.
func (n *Node) Read(how fsm.ReadHow, f func(m *fsm.Machine)) (fsm.Seen, error) {
	r := &read{f: f, how: how, done: make(chan struct{}, 1)}
	if !n.box.post(readAsked{r}) {
		return fsm.Seen{}, fsm.Refuse(fsm.CodeLeaving, "%v; ask another one", errStopped)
	}
	<-r.done
	if r.err != nil {
		return fsm.Seen{}, r.err
	}
	seen := fsm.Seen{Position: r.pos, StaleMs: (r.age + 1e6 - 1) / 1e6, NowMs: r.at}
	if r.age < 0 {
		seen.StaleMs = -1
	}
	return seen, nil
}

// GiveBack returns hand-outs whose answer was not written; it does not block.
func (n *Node) GiveBack(items []fsm.Item) { n.box.post(undelivered{items}) }

// Name is the node's own name.
func (n *Node) Name() string { return n.cfg.Name }

// Leader is the leader's name as known here, "" when unknown.
func (n *Node) Leader() string { return n.view.Load().leader }

// LeaderClient is the client address of the leader, "" when that is this node or
// nobody is known.
func (n *Node) LeaderClient() string { return n.view.Load().leaderClient }

// Ready is nil when a leader is known and an entry of its term is applied here.
func (n *Node) Ready() error {
	v := n.view.Load()
	switch {
	case v.leaving:
		return fsm.Refuse(fsm.CodeLeaving, "this node is stopping")
	case !v.started:
		return fsm.Refuse(fsm.CodeLoading, "the node has not registered with a leader yet")
	case !v.ready:
		return fsm.Refuse(fsm.CodeNoLeader, "no leader is known, or no entry of its term is applied yet")
	}
	return nil
}

// Started is nil once the log is replayed and this start is registered.
func (n *Node) Started() error {
	if !n.view.Load().started {
		return fsm.Refuse(fsm.CodeLoading, "the node has not registered with a leader yet")
	}
	return nil
}

// Status asks the core for what /v1/cluster shows.
func (n *Node) Status() Status {
	ch := make(chan Status, 1)
	if !n.box.post(viewAsked{func(s Status) { ch <- s }}) {
		return Status{ClusterID: n.cluster}
	}
	s := <-ch
	s.ClusterID = n.cluster
	return s
}

// Retreat tells the other members whether clients should go elsewhere. Nothing is
// refused, but leadership moves.
func (n *Node) Retreat(on bool) { n.box.post(retreatAsked{on}) }

// ID is the node's raft id.
func (n *Node) ID() uint64 { return n.id }

// Done is closed when the replica ended, by Close or by itself.
func (n *Node) Done() <-chan struct{} { return n.done }

// Err says why the replica ended by itself; nil after Close. Valid once Done is
// closed.
func (n *Node) Err() error {
	select {
	case <-n.done:
		return n.err
	default:
		return nil
	}
}

// Close drains, stops everything and closes the log. Stop the front ends
// between Drain and Close, so that no answer is cut off.
func (n *Node) Close(ctx context.Context) error {
	if err := n.Drain(ctx); err != nil {
		n.log.Warn("stopping without having drained", zap.Error(err))
	}
	n.quitOnce.Do(func() { close(n.quit) })
	<-n.done
	n.peers.stop()
	n.wg.Wait()
	n.writer.close()
	return errors.Join(n.wal.Close(), n.dir.close())
}

// bootTime reads CLOCK_BOOTTIME, which runs through a suspend. It takes a system call.
func bootTime() int64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		panic(fmt.Sprintf("CLOCK_BOOTTIME: %v", err))
	}
	return ts.Nano()
}

// clocks reads both clocks.
func clocks() reading {
	return reading{boot: bootTime(), wall: (time.Now().UnixNano() + failpoint.WallOffset()) / 1e6}
}

// writeSnapshot writes a machine copy to a file, slowly enough that requests do
// not notice.
func (n *Node) writeSnapshot(job *snapshotJob) {
	info, err := snapshot.Write(n.dir.snapDir(), snapshot.Header{ClusterID: n.cluster, Index: job.pos.Index, Term: job.pos.Term, ConfState: job.conf, TimeMs: job.pos.TimeMs},
		throttle(snapshotRate), job.machine.Encode)
	n.box.post(snapshotSaved{job: job, bytes: info.Size, err: err})
}

// snapshotRate bounds how fast a snapshot is written, in bytes of state a second.
const snapshotRate = 64 << 20

// throttle returns a function that sleeps when bytes come faster than rate.
func throttle(rate int) func(int) {
	began, bytes := time.Now(), 0
	return func(n int) {
		bytes += n
		if ahead := time.Duration(bytes)*time.Second/time.Duration(rate) - time.Since(began); ahead > time.Millisecond {
			time.Sleep(ahead)
		}
	}
}

// prune deletes snapshot files that nobody needs: those before oldest, which the
// log reaches back to, if they are not on their way to a peer. Newer files are not
// counted: some may have been received and never installed, and the two that have
// a marker must not go for them.
func (n *Node) prune(index, oldest uint64, received bool) {
	n.newest.Store(index)
	if received {
		n.held.drop(index)
	}
	gone, err := snapshot.Prune(n.dir.snapDir(), 1, func(i uint64) bool { return i >= oldest || n.held.has(i) })
	if err != nil {
		n.log.Warn("old snapshots not deleted", zap.Error(err))
	}
	for _, f := range gone {
		n.log.Info("deleted", zap.String("snapshot", f))
	}
}

// heldFiles counts who needs a snapshot file.
type heldFiles struct {
	mu sync.Mutex
	n  map[uint64]int
}

func (h *heldFiles) hold(index uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.n == nil {
		h.n = map[uint64]int{}
	}
	h.n[index]++
}

func (h *heldFiles) drop(index uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch n := h.n[index]; {
	case n < 1:
		panic(fmt.Sprintf("BUG: snapshot file %d let go of more often than held", index))
	case n == 1:
		delete(h.n, index)
	default:
		h.n[index] = n - 1
	}
}

func (h *heldFiles) has(index uint64) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.n[index] > 0
}

func removeFile(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}
