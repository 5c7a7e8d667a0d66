package bench

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// measurement is one Run on its way.
type measurement struct {
	*shared
	cfg    Config
	nodes  []node
	result *Result
	before usage
	leader string // at the beginning
}

// usage is what was used up to a point in time.
type usage struct {
	at     time.Time
	cpu    float64 // of this process
	allocs uint64
	nodes  []nodeCounters
}

func (m *measurement) note(format string, args ...any) {
	m.result.Notes = append(m.result.Notes, fmt.Sprintf(format, args...))
}

// findNodes asks the cluster who its nodes are. A server that does not know
// the route is measured all the same.
func (m *measurement) findNodes(ctx context.Context) error {
	view, err := askCluster(ctx, m.cfg.Endpoints)
	if err != nil {
		return err
	}
	m.nodes, m.leader = view.nodes(m.cfg.Endpoints), view.Leader
	if !m.cfg.LeaderOnly {
		return nil
	}
	i := slices.IndexFunc(m.nodes, func(n node) bool { return n.name == view.Leader && view.Leader != "" })
	if i < 0 {
		return fmt.Errorf("leader-only: no node is known as leader")
	}
	m.addrs = []string{m.nodes[i].addr}
	return nil
}

// carryOut does all parts of the run in their order.
func (m *measurement) carryOut(ctx context.Context) error {
	r := newRun(m.shared, m.cfg)
	if m.cfg.Workload == WorkDequeue {
		if err := m.prefill(ctx); err != nil {
			return err
		}
	}
	err := m.measure(ctx, r)
	m.fillIn(r)
	if err != nil {
		return err
	}
	m.afterwards(ctx)
	if m.ledger != nil {
		return m.check(ctx, r)
	}
	return nil
}

// measure does the measured part.
func (m *measurement) measure(ctx context.Context, r *run) error {
	total := time.Duration(m.cfg.Duration)
	p := phase{
		run: r, name: m.cfg.Workload, warmup: time.Duration(m.cfg.Warmup), measured: total,
		clients: m.clients(r), atStart: func() { m.before = m.use(ctx) },
	}
	if m.cfg.Workload != WorkBacklog {
		err := p.carryOut(ctx)
		m.addUse(ctx, r)
		return err
	}
	r.fillLeft.Store(int64(m.cfg.Jobs))
	r.fill = newTenthClock(r.now(), m.cfg.Jobs)
	p.name, p.goal, p.warmup = "fill", int64(m.cfg.Jobs), 0
	if err := p.carryOut(ctx); err != nil {
		return err
	}
	r.restart()
	filled := r.fill.jobs.Load()
	r.drain = newTenthClock(r.now(), int(filled))
	q := phase{run: r, name: "drain", measured: total, goal: 2 * filled, atStart: func() {}, clients: m.clientsOf(r, (*client).drainLoop)}
	err := q.carryOut(ctx)
	m.addUse(ctx, r)
	m.result.Tenths = []Tenths{r.fill.tenths("fill"), r.drain.tenths("drain")}
	if n := r.drain.jobs.Load(); n < filled {
		m.note("drained %d of %d jobs only: the time was over", n, filled)
	}
	return err
}

// clients are the connections of the workload and what each does.
func (m *measurement) clients(r *run) []worker {
	switch m.cfg.Workload {
	case WorkDequeue:
		return m.clientsOf(r, (*client).dequeueLoop)
	case WorkMixed:
		return m.clientsOf(r, (*client).mixedLoop)
	case WorkBacklog:
		return m.clientsOf(r, (*client).fillLoop)
	case WorkWaiters:
		return m.producersAnd(r, m.cfg.Producers, (*client).enqueueLoop, m.cfg.Connections)
	case WorkCycle:
		if m.cfg.Producers > 0 {
			return m.producersAnd(r, m.cfg.Producers, (*client).cappedLoop, m.cfg.Connections-m.cfg.Producers)
		}
		return m.clientsOf(r, (*client).cycleLoop)
	}
	return m.clientsOf(r, (*client).enqueueLoop)
}

func (m *measurement) clientsOf(r *run, loop func(*client)) (all []worker) {
	for i := range m.cfg.Connections {
		all = append(all, worker{newClient(r, i, r.share(i, m.cfg.Connections)), loop})
	}
	return all
}

func (m *measurement) producersAnd(r *run, producers int, loop func(*client), consumers int) (all []worker) {
	for i := range producers {
		all = append(all, worker{newClient(r, i, r.share(i, producers)), loop})
	}
	for i := range consumers {
		all = append(all, worker{newClient(r, producers+i, r.share(i, consumers)), (*client).consumeLoop})
	}
	return all
}

// Bounds of the filling and the emptying that are not measured.
const (
	prefillMax = 10 * time.Minute
	stallMax   = 15 * time.Second
)

// prefill puts the jobs of a dequeue workload in, in strong batches.
func (m *measurement) prefill(ctx context.Context) error {
	cfg := m.side(min(m.cfg.Connections, 8))
	r := newRun(m.shared, cfg)
	r.fillLeft.Store(int64(m.cfg.Jobs))
	p := phase{run: r, name: "put jobs in", measured: prefillMax, stall: stallMax, goal: int64(m.cfg.Jobs), atStart: func() {}}
	for i := range cfg.Connections {
		p.clients = append(p.clients, worker{newClient(r, i, r.share(i, cfg.Connections)), (*client).fillLoop})
	}
	if err := p.carryOut(ctx); err != nil {
		return err
	}
	if f := r.rec.failures(); len(f) > 0 {
		return fmt.Errorf("put %d jobs in: %d errors, %s first", m.cfg.Jobs, f[0].Count, f[0].Code)
	}
	return nil
}

// side is the configuration of a part that is not measured: strong batches.
func (m *measurement) side(connections int) Config {
	c := m.cfg
	c.Workload, c.Consistency, c.Rate, c.Requests, c.Pipeline, c.Cap, c.Producers = WorkBatch, Strong, 0, 0, 1, 0, 0
	c.Connections = connections
	c.Batch = max(1, min(100, batchBytesMax/(c.Size+8)))
	return c
}

// use reads the counters of the nodes and of this process.
func (m *measurement) use(ctx context.Context) usage {
	u := usage{at: time.Now(), nodes: scrapeAll(ctx, m.nodes)}
	var ru syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &ru) == nil {
		u.cpu = float64(ru.Utime.Nano()+ru.Stime.Nano()) / 1e9
	}
	var ms runtime.MemStats
	runtime.ReadMemStats(&ms)
	u.allocs = ms.Mallocs
	return u
}

// addUse puts what was used since the beginning into the result.
func (m *measurement) addUse(ctx context.Context, r *run) {
	after := m.use(context.WithoutCancel(ctx))
	var requests int64
	for o := range opCount {
		if sum := r.rec.sums(o); o.isRequest() {
			requests += sum.requests + sum.empty
		}
	}
	m.result.Generator.CPUSeconds = after.cpu - m.before.cpu
	if requests > 0 {
		m.result.Generator.AllocsPerRequest = float64(after.allocs-m.before.allocs) / float64(requests)
	}
	for i, n := range m.nodes {
		if i >= len(m.before.nodes) {
			break
		}
		b, a := m.before.nodes[i], after.nodes[i]
		if b.err != nil || a.err != nil {
			m.note("the counters of %s could not be read", n.name)
			continue
		}
		m.result.Nodes = append(m.result.Nodes, n.use(b, a))
	}
}

// afterwards notes what makes the numbers doubtful.
func (m *measurement) afterwards(ctx context.Context) {
	if m.cfg.Workload == WorkEcho {
		return
	}
	if view, err := askCluster(ctx, m.cfg.Endpoints); err == nil && view.Leader != m.leader {
		m.note("the leader changed from %s to %s during the run", m.leader, view.Leader)
	}
	for _, o := range m.result.Ops {
		if i := slices.Index(opNames[:], o.Name); m.cfg.Consistency == Fast && op(i).writes() && o.Fast < o.Requests {
			m.note("fast %s: %d of %d were answered before the commit, the others waited for it", o.Name, o.Fast, o.Requests)
		}
	}
}

// fillIn puts what was recorded into the result.
func (m *measurement) fillIn(r *run) {
	from, until := r.rec.from.Load(), r.rec.until.Load()
	if from > until {
		m.note("it was over before the warm-up was: nothing is measured")
	}
	m.result.Seconds = max(0, float64(until-from)/1e9)
	m.result.Errors = r.rec.failures()
	for o := range opCount {
		sum, h := r.rec.sums(o), r.rec.total[o]
		if h == nil && sum.requests+sum.empty == 0 {
			continue
		}
		if h == nil {
			h = newHistogram()
		}
		res := OpResult{
			Name: opNames[o], Requests: sum.requests, Jobs: sum.jobs, Fast: sum.fast, Empty: sum.empty,
			Latency: latencyOf(h), Curve: curveOf(h), Series: r.rec.series[o], Statuses: map[int]int64{},
		}
		seconds := m.result.Seconds
		if clock := map[op]*tenthClock{opEnqueue: r.fill, opDequeue: r.drain, opAck: r.drain}[o]; clock != nil {
			seconds, sum.inWindow = clock.seconds(), sum.jobs
		}
		if seconds > 0 {
			res.Rate = float64(sum.inWindow) / seconds
		}
		for status, n := range sum.statuses {
			if n > 0 {
				res.Statuses[status] = int64(n)
			}
		}
		m.result.Ops = append(m.result.Ops, res)
	}
}

// cleanUpMax bounds the deletion of the run's queues, cleanUpNotes what is said of
// each that stays, or is kept.
const (
	cleanUpMax   = time.Minute
	cleanUpNotes = 8
)

// cleanUp deletes the queues that the run made.
func (m *measurement) cleanUp() {
	if m.cfg.Keep {
		some := m.queues[:min(len(m.queues), cleanUpNotes)]
		m.note("kept the queues %s%s", strings.Join(some, ", "), andMore(len(m.queues)-len(some)))
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), cleanUpMax)
	defer cancel()
	var (
		next   atomic.Int64
		lock   sync.Mutex
		stayed int
		group  sync.WaitGroup
	)
	for range min(len(m.queues), m.cfg.Connections, 64) {
		group.Go(func() {
			for i := next.Add(1) - 1; i < int64(len(m.queues)); i = next.Add(1) - 1 {
				err := deleteQueue(ctx, m.addrs, m.queues[i])
				if err == nil {
					continue
				}
				lock.Lock()
				if stayed++; stayed <= cleanUpNotes {
					m.note("queue %s could not be deleted: %v", m.queues[i], err)
				}
				lock.Unlock()
			}
		})
	}
	group.Wait()
	if more := stayed - cleanUpNotes; more > 0 {
		m.note("%d more queues could not be deleted", more)
	}
}

// andMore ends a list that leaves out n.
func andMore(n int) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf(" and %d more", n)
}
