package bench

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// shardsMax bounds the memory of histograms.
const shardsMax = 4

// connectMax is how long one connection may take.
const connectMax = 5 * time.Second

// shared is what the parts of one run have in common: the filling before, the
// measured part, and the emptying after.
type shared struct {
	begin    time.Time
	tag      string
	queues   []string
	addrs    []string
	ledger   *ledger      // nil without Config.Check
	seq      atomic.Int64 // jobs that were made
	invented atomic.Int64 // jobs that came and that nobody made
	already  atomic.Int64 // acks of jobs that were acked before
	adrift   atomic.Int64 // jobs at most that dequeues took whose answers were lost
}

// run is one part of a run: its clients, and where they record.
type run struct {
	*shared
	cfg    Config
	paths  []paths
	lines  requestLines
	rec    *recorder
	dialer net.Dialer

	sched    *schedule     // nil in a closed loop
	tokens   chan struct{} // one for each unacked job, nil without a cap
	allowed  atomic.Int64  // requests that may still be sent
	fillLeft atomic.Int64  // jobs that a fill may still send
	fill     *tenthClock   // of enqueues, nil outside a backlog
	drain    *tenthClock   // of acks

	stopCh   chan struct{}
	stopOnce *sync.Once
	over     atomic.Bool // stopCh is closed

	mu    sync.Mutex // the fields below
	conns map[*client]net.Conn
	cut   bool // no new connections
}

func newRun(s *shared, cfg Config) *run {
	r := &run{
		shared: s, cfg: cfg,
		lines:  newRequestLines(&cfg),
		rec:    newRecorder(min(cfg.Connections+cfg.Producers, shardsMax)),
		dialer: net.Dialer{Timeout: connectMax},
		conns:  map[*client]net.Conn{},
	}
	for _, q := range s.queues {
		r.paths = append(r.paths, newPaths(q, &cfg))
	}
	r.allowed.Store(1 << 62)
	if cfg.Requests > 0 {
		r.allowed.Store(cfg.Requests)
	}
	if cfg.Workload == WorkCycle && cfg.Cap > 0 {
		r.tokens = make(chan struct{}, cfg.Cap)
	}
	r.restart()
	return r
}

// restart makes a stopped run ready for another phase.
func (r *run) restart() {
	r.stopCh, r.stopOnce = make(chan struct{}), new(sync.Once)
	r.over.Store(false)
}

// now is the time since the run began, in nanoseconds.
func (r *run) now() int64 { return int64(time.Since(r.begin)) }

// stop ends the phase: nobody begins another turn.
func (r *run) stop() {
	r.stopOnce.Do(func() {
		r.over.Store(true)
		close(r.stopCh)
	})
}

func (r *run) stopped() bool { return r.over.Load() }

// allow takes up to n requests from those that may be sent.
func (r *run) allow(n int) int {
	left := r.allowed.Add(int64(-n)) + int64(n)
	return int(min(max(left, 0), int64(n)))
}

// wantMore takes a batch from what a fill may send.
func (r *run) wantMore() bool { return r.fillLeft.Add(-int64(r.cfg.Batch)) > -int64(r.cfg.Batch) }

// reserve waits until one more job may be unacked.
func (r *run) reserve() bool {
	if r.tokens == nil {
		return true
	}
	select {
	case r.tokens <- struct{}{}:
		return true
	case <-r.stopCh:
		return false
	}
}

// release gives n reservations back. More may come back than were taken: a job
// whose enqueue seemed lost may be acked after all.
func (r *run) release(n int) {
	for ; r.tokens != nil && n > 0; n-- {
		select {
		case <-r.tokens:
		default:
		}
	}
}

func (r *run) enqueueFailed(f *flight) {
	if f.op == opEnqueue {
		r.release(f.jobs)
	}
}

// unknown notes a request that may have been done or not.
func (r *run) unknown(f *flight) {
	switch f.op {
	case opDequeue, opWait:
		r.adrift.Add(int64(r.cfg.Batch))
	case opAck, opNack:
		if r.ledger != nil {
			r.ledger.unsettled(f.held, f.op == opNack)
		}
	}
}

// acked notes jobs whose ack was answered well.
func (r *run) acked(jobs []held, now int64) {
	r.release(len(jobs))
	r.drain.count(len(jobs), now)
	if r.ledger != nil {
		r.ledger.acked(jobs)
	}
}

// track remembers the connection of a client, so that cutAll can end it; nil
// forgets it. It refuses new ones after cutAll.
func (r *run) track(c *client, nc net.Conn) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if nc == nil {
		delete(r.conns, c)
		return true
	}
	if r.cut {
		return false
	}
	r.conns[c] = nc
	return true
}

// cutAll ends all connections; who still waits for an answer gets none.
func (r *run) cutAll() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cut = true
	for _, nc := range r.conns {
		nc.Close()
	}
}

// share is which queues one of n clients uses.
func (r *run) share(i, n int) []int {
	if len(r.queues) <= n {
		return []int{i % len(r.queues)}
	}
	var mine []int
	for q := i; q < len(r.queues); q += n {
		mine = append(mine, q)
	}
	return mine
}

// Run carries out one run. With an error there may be a Result of what was
// measured until then.
func Run(ctx context.Context, cfg Config) (*Result, error) {
	if err := cfg.Complete(); err != nil {
		return nil, err
	}
	s := &shared{begin: time.Now(), tag: newTag(), addrs: cfg.Endpoints}
	for i := range cfg.Queues {
		s.queues = append(s.queues, fmt.Sprintf("bench-%s-%d", s.tag, i))
	}
	if cfg.Check {
		s.ledger = newLedger()
	}
	m := &measurement{shared: s, cfg: cfg, result: &Result{Config: cfg, Start: s.begin}}
	if cfg.Workload != WorkEcho {
		if err := m.findNodes(ctx); err != nil {
			return nil, err
		}
		defer m.cleanUp()
	}
	err := m.carryOut(ctx)
	return m.result, err
}

func newTag() string {
	var b [bodyTagSize]byte
	putHex(b[:], uint64(rand.Uint32()))
	return string(b[:])
}
