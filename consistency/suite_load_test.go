package consistency

import (
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"raftq/consistency/check"
)

// The queues of the load; others are in suite_parts_load_test.go. A window queue
// (windowPrefix and a number) is in use for a moment, without timers and fast
// operations, for the general checker.
const (
	hotQueue     = "hot"   // first in, first out
	timedQueue   = "timed" // delays, TTLs, dedup ids, failure limits, priorities
	onceQueue    = "once"  // at most once
	keyedQueue   = "keyed" // idempotency keys, sent again until answered
	windowPrefix = "w-"

	windowOps  = 1000 // of all clients
	windowHeld = 25   // of a client until it gives up what it holds
	backlogMax = 1500 // jobs; above it nobody enqueues
	batchMax   = 32
	heldMax    = 3 // dequeues that a user has not settled
)

// How long a window is in use, and for how long its jobs are handed out: a window is
// checked until the first lease may be over. The longer forms have windows of up to
// windowOps operations, which go on over most faults; the others, of a hundred.
var (
	windowFor   = time.Duration(byMode(400, 400, 4000, 4000)) * time.Millisecond
	windowLease = time.Duration(byMode(4, 4, 10, 10)) * time.Second
)

// suiteLoad is the clients of a run: two on each node, two that roam, and four on
// the window queue.
type suiteLoad struct {
	w       *world
	stop    chan struct{}
	wg      sync.WaitGroup
	bodies  atomic.Int64
	marks   atomic.Int64
	backlog atomic.Int64
	done    atomic.Int64 // answers
	parts   suiteParts
	turning sync.Mutex
	window  *windowTurn // the latest
}

// windowTurn is the window queue in use.
type windowTurn struct {
	queue string
	until time.Time
	ops   atomic.Int64
	ended atomic.Bool // before its time
}

func (t *windowTurn) over() bool {
	return t.ended.Load() || time.Now().After(t.until) || t.ops.Load() >= windowOps
}

func (w *world) startLoad() {
	l := &suiteLoad{w: w, stop: make(chan struct{})}
	w.load = l
	l.setUp()
	l.startParts()
	n := len(w.c.Nodes)
	for i := range 2*n + 2 {
		rng := rand.New(rand.NewPCG(w.seed, uint64(100+i)))
		node, roams := i%n, i >= 2*n
		l.wg.Go(func() { l.user(w.newClient(i, node), rng, roams) })
	}
	for i := range 4 {
		rng := rand.New(rand.NewPCG(w.seed, uint64(200+i)))
		l.wg.Go(func() { l.windows(w.newClient(50+i, i%n), rng) })
	}
}

func (l *suiteLoad) stopped() bool {
	select {
	case <-l.stop:
		return true
	case <-l.w.ctx.Done():
		return true
	default:
		return false
	}
}

func (l *suiteLoad) end() {
	select {
	case <-l.stop:
	default:
		close(l.stop)
	}
	l.wg.Wait()
}

// body makes one that nobody else has; some are long, some are mostly zeros, as a
// damaged log is told from a torn one by its zeros.
func (l *suiteLoad) body() string { return "b" + itoa(l.bodies.Add(1)) }

func (l *suiteLoad) bodyOf(rng *rand.Rand) string {
	b := l.body()
	switch rng.IntN(60) {
	case 0, 1, 2:
		return b + "." + strings.Repeat("\x00", 600+rng.IntN(3000))
	case 3, 4:
		return b + "." + strings.Repeat("long ", 200+rng.IntN(2000))
	case 5:
		if rng.IntN(4) == 0 {
			return b + "." + strings.Repeat("large ", 10_000)
		}
	}
	return b
}

// await waits until the load has got n more answers.
func (l *suiteLoad) await(n int64) {
	l.w.t.Helper()
	n += l.done.Load()
	l.w.eventually(30*time.Second, "answers under load", func() bool { return l.done.Load() >= n })
}

// pace keeps a client from spinning against a node that is down, and leaves the
// machine some time for the nodes.
func (l *suiteLoad) pace(o *check.Op) {
	d := 2 * time.Millisecond
	if o.Outcome == check.OK {
		l.done.Add(1)
	} else {
		d = 25 * time.Millisecond
	}
	select {
	case <-time.After(d):
	case <-l.stop:
	}
}

// recount asks how many jobs there are: whose TTL ended, and whose ack had a lost answer,
// nobody has told. A long run would end with users that only wait.
func (l *suiteLoad) recount() {
	if n := l.w.waiting(l.w.others()[0]); n >= 0 {
		l.backlog.Store(n)
	}
}

// held is what a user holds of a queue.
type held struct {
	queue    string
	receipts []string
}

// user does a bit of everything.
func (l *suiteLoad) user(c *suiteClient, rng *rand.Rand, roams bool) {
	var mine []held
	var old []string // receipts that are used up
	asked := ""      // batch of a fast answer
	var byID handled // jobs of handledQueue
	for !l.stopped() {
		if roams {
			c.node = rng.IntN(len(l.w.c.Nodes))
		}
		fast := rng.IntN(10) < 3
		queue := [...]string{hotQueue, hotQueue, timedQueue, timedQueue, onceQueue, keyedQueue, groupedQueue, groupedQueue, poisonQueue, l.pausedQueue(), purgedQueue, handledQueue}[rng.IntN(12)]
		switch r := rng.IntN(100); {
		case queue == purgedQueue && rng.IntN(6) == 0:
			o := c.purge(queue)
			l.pace(o)
			l.backlog.Add(-int64(o.Moved))
		case queue == handledQueue && rng.IntN(3) == 0:
			l.handle(c, rng, &byID, byID.known)
		// Who holds much gives it up: a job whose lease ends again and again is dead
		// at last, which looks like a loss.
		case r < 38 && l.backlog.Load() < backlogMax && len(mine) < heldMax:
			o := l.enqueue(c, rng, queue, fast)
			l.pace(o)
			if o.Fast && rng.IntN(4) == 0 {
				asked = o.Batch
			}
			if queue == handledQueue {
				byID.saw(o)
				for range 3 { // soon: many are taken within moments
					l.handle(c, rng, &byID, byID.known)
				}
			}
		case r < 72 && len(mine) < heldMax:
			lease := time.Duration(1500+rng.IntN(2500)) * time.Millisecond
			if queue == poisonQueue && rng.IntN(3) == 0 {
				queue = gravesQueue
			}
			var more []string
			if queue == hotQueue && rng.IntN(4) == 0 {
				more = []string{keyedQueue, timedQueue}[rng.IntN(2):]
			}
			max, wait := 1+rng.IntN(12), time.Duration(rng.IntN(3))*100*time.Millisecond
			var got []check.Delivery
			if rng.IntN(3) == 0 {
				var o *check.Op
				o, got = l.attempt(c, rng, queue, max, wait, lease, fast, more...)
				l.pace(o)
			} else {
				o := c.dequeue(queue, max, wait, lease, fast, more...)
				l.pace(o)
				got = o.Got
			}
			if len(got) > 0 {
				h := held{queue: queue}
				for _, d := range got {
					h.receipts = append(h.receipts, d.Receipt)
				}
				mine = append(mine, h)
				if queue == gravesQueue || queue == poisonQueue {
					l.pace(c.show(got[0].ID))
				}
				if queue == handledQueue { // from under its holder
					l.handle(c, rng, &byID, []string{got[0].ID})
				}
			}
		case r < 96 && len(mine) > 0:
			i := rng.IntN(len(mine))
			h := mine[i]
			kind := check.Ack
			switch rng.IntN(20) {
			case 0, 1:
				kind = check.Nack
			case 2:
				kind = check.Release
			case 3:
				kind = check.Extend
			}
			if h.queue == poisonQueue && rng.IntN(2) == 0 {
				kind = [...]check.Kind{check.Nack, check.Nack, check.Reject}[rng.IntN(3)]
			}
			delay := time.Duration(rng.IntN(2)*300) * time.Millisecond
			o := c.settle(kind, h.queue, h.receipts, delay, 3*time.Second, fast)
			l.pace(o)
			if kind == check.Ack && o.Outcome == check.OK {
				l.backlog.Add(-int64(len(h.receipts)))
			}
			if kind != check.Extend {
				mine = append(mine[:i], mine[i+1:]...)
				old = append(old[max(0, len(old)-20):], h.receipts...)
			}
		case r < 98 && len(old) > 0:
			// A receipt that is used up must do nothing.
			l.pace(c.settle(check.Ack, "", old[rng.IntN(len(old)):][:1], 0, 0, false))
		case r == 98 && asked != "" && rng.IntN(2) == 0:
			l.pace(c.fate(asked))
		case r == 98:
			l.pace(c.peek(queue, 1+rng.IntN(5)))
		default:
			l.pace(c.count(queue))
		}
	}
}

func (l *suiteLoad) enqueue(c *suiteClient, rng *rand.Rand, queue string, fast bool) *check.Op {
	jobs := make([]check.Job, 1)
	if rng.IntN(2) == 0 {
		jobs = make([]check.Job, 1+rng.IntN(batchMax))
	}
	if queue == groupedQueue { // they go out one by one
		jobs = jobs[:min(len(jobs), 3)]
	}
	key := ""
	for i := range jobs {
		j := &jobs[i]
		j.Body, j.Priority = l.bodyOf(rng), -1
		switch queue {
		case timedQueue:
			switch rng.IntN(8) {
			case 0:
				j.Delay = time.Duration(100+rng.IntN(900)) * time.Millisecond
			case 1:
				j.TTL = time.Duration(500+rng.IntN(4000)) * time.Millisecond
			case 2:
				j.DedupID = "d" + itoa(rng.Int64N(200))
			case 3:
				j.MaxFailures = 2 + rng.IntN(2)
			case 4:
				j.Priority = rng.IntN(10)
			case 5, 6:
				j.UniqueKey = "u" + itoa(rng.Int64N(8))
			}
		case onceQueue:
			j.AtMostOnce = true
		case groupedQueue:
			if rng.IntN(5) > 0 {
				j.Group = group(rng)
			}
		}
	}
	if queue == keyedQueue {
		key, fast = "k"+jobs[0].Body[:min(16, len(jobs[0].Body))], false
	}
	o := c.enqueue(queue, jobs, fast, strings.TrimRight(strings.ReplaceAll(key, "\x00", ""), ". "))
	for i := range o.Made {
		if o.Made[i].Code == "" && !o.Made[i].Duplicate {
			l.backlog.Add(1)
		}
	}
	return o
}

// turn returns the window queue of this moment.
func (l *suiteLoad) turn() *windowTurn {
	l.turning.Lock()
	defer l.turning.Unlock()
	if l.window == nil || l.window.over() {
		l.window = &windowTurn{queue: windowPrefix + itoa(l.marks.Add(1)), until: time.Now().Add(windowFor)}
	}
	return l.window
}

// lastOfWindow does what the window in use is not checked beyond: no other begins
// before it is done, and one begins then. A window that begins meanwhile could not be
// checked at all.
func (l *suiteLoad) lastOfWindow(do func()) {
	l.turning.Lock()
	defer l.turning.Unlock()
	do()
	if l.window != nil {
		l.window.ended.Store(true)
	}
}

// windows uses one window queue after the other; what it holds of one it gives up
// before the next.
func (l *suiteLoad) windows(c *suiteClient, rng *rand.Rand) {
	for !l.stopped() {
		turn := l.turn()
		var mine []string
		ops := 0
		for ; !turn.over() && ops < windowHeld && !l.stopped(); ops++ {
			turn.ops.Add(1)
			switch r := rng.IntN(100); {
			// Fewer jobs come than could be taken: the order of those that wait is
			// what a general checker has to guess, so there must not be many.
			case r < 28:
				jobs := make([]check.Job, 1+rng.IntN(2))
				for i := range jobs {
					jobs[i] = check.Job{Body: l.body(), Priority: -1}
				}
				l.pace(c.enqueue(turn.queue, jobs, false, ""))
			case r < 75 || len(mine) == 0:
				o := c.dequeue(turn.queue, 1+rng.IntN(3), time.Duration(rng.IntN(2)*50)*time.Millisecond, windowLease, false)
				l.pace(o)
				for _, d := range o.Got {
					mine = append(mine, d.Receipt)
				}
			case r < 97:
				kind := [...]check.Kind{check.Ack, check.Ack, check.Ack, check.Nack, check.Release}[rng.IntN(5)]
				n := 1 + rng.IntN(len(mine))
				l.pace(c.settle(kind, turn.queue, mine[:n], 0, 0, false))
				mine = mine[n:]
			default:
				l.pace(c.count(turn.queue))
			}
		}
		if len(mine) > 0 {
			l.pace(c.settle(check.Ack, turn.queue, mine, 0, 0, false))
		}
	}
}

// drain empties all queues, on every node in turn, until they are empty.
func (w *world) drain() {
	w.t.Helper()
	queues := map[string]bool{}
	for _, o := range w.rec.History().Ops {
		if o.Queue != "" {
			queues[o.Queue] = true
		}
	}
	clients := make([]*suiteClient, len(w.c.Nodes))
	for i := range clients {
		clients[i] = w.newClient(drainClient, i)
	}
	turn := 0
	// What dies meanwhile is in the graves then.
	delete(queues, gravesQueue)
	order := append(slices.Sorted(maps.Keys(queues)), gravesQueue)
	for _, queue := range order {
		w.eventually(60*time.Second, "an empty queue "+queue, func() bool {
			turn++
			c := clients[turn%len(clients)]
			o := c.dequeue(queue, 200, 0, 5*time.Second, false)
			if len(o.Got) > 0 {
				var receipts []string
				for _, d := range o.Got {
					receipts = append(receipts, d.Receipt)
				}
				c.settle(check.Ack, queue, receipts, 0, 0, false)
				return false
			}
			n := c.count(queue)
			return n.Outcome == check.OK && n.Count.Ready+n.Count.Delayed+n.Count.Leased == 0
		})
	}
}

// drainClient is the number of those who empty the queues at the end.
const drainClient = -2
