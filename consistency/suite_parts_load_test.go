package consistency

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	"raftq/consistency/check"
)

// What the load has beside plain queues.
const (
	groupedQueue = "grouped" // groups
	poisonQueue  = "poison"  // two failures, then graves
	gravesQueue  = "graves"
	stepsQueue   = "steps"   // transactions: each acks a step and adds the next
	handledQueue = "handled" // jobs that are held, requeued and cancelled
	purgedQueue  = "purged"  // emptied again and again
	pausedPrefix = "paused-" // paused again and again
	newsTopic    = "news"    // keeps all
	ringTopic    = "ring"    // keeps ringKeeps
	ringKeeps    = 60

	pausesOfQueue = 25 // then the next queue is paused
)

// suiteParts is the state of that load.
type suiteParts struct {
	paused  atomic.Int64 // number of the queue that is paused
	unlike  atomic.Int64 // makes pauses and redrives unlike each other
	pauseMs int64        // until of the last pause that ends; the pauser's
}

func (l *suiteLoad) pausedQueue() string { return pausedPrefix + itoa(l.parts.paused.Load()) }

// setUp tells the queues and topics what to do.
func (l *suiteLoad) setUp() {
	c := l.w.newClient(-1, 0)
	for _, one := range []struct {
		queue string
		p     check.ConfigPart
	}{
		{poisonQueue, check.ConfigPart{MaxFailures: 2, DeadLetter: gravesQueue}},
		{gravesQueue, check.ConfigPart{}},
		{purgedQueue, check.ConfigPart{}},
		{"", check.ConfigPart{Topic: newsTopic}},
		{"", check.ConfigPart{Topic: ringTopic, MaxCount: ringKeeps}},
	} {
		l.w.eventually(10*time.Second, "a configuration", func() bool { return c.configure(one.queue, one.p).Outcome == check.OK })
	}
}

// startParts begins what goes on beside the users of queues: a user of topics on
// each node, two of transactions, and one who pauses and redrives.
func (l *suiteLoad) startParts() {
	n := len(l.w.c.Nodes)
	for i := range n {
		rng := rand.New(rand.NewPCG(l.w.seed, uint64(300+i)))
		l.wg.Go(func() { l.topics(l.w.newClient(100+i, i), rng) })
	}
	for i := range 2 {
		rng := rand.New(rand.NewPCG(l.w.seed, uint64(400+i)))
		l.wg.Go(func() { l.transactions(l.w.newClient(120+i, i%n), rng) })
	}
	rng := rand.New(rand.NewPCG(l.w.seed, 500))
	l.wg.Go(func() { l.pauses(l.w.newClient(130, n-1), rng) })
}

// rest waits a while, or for the end.
func (l *suiteLoad) rest(d time.Duration) {
	select {
	case <-time.After(d):
	case <-l.stop:
	}
}

// reader is where one is in a topic, and what was seen of its cursors.
type reader struct{ at, end uint64 }

// topics appends, reads strongly and fast, with and without waiting, and moves the
// two cursors that all share.
func (l *suiteLoad) topics(c *suiteClient, rng *rand.Rand) {
	at := map[string]*reader{newsTopic: {}, ringTopic: {}}
	for !l.stopped() {
		topic := [...]string{newsTopic, ringTopic}[rng.IntN(2)]
		cursor := [...]string{"blue", "red"}[rng.IntN(2)]
		me := at[topic]
		var o *check.Op
		switch r := rng.IntN(100); {
		case r < 35:
			bodies := make([]string, 1+rng.IntN(4))
			for i := range bodies {
				bodies[i] = l.bodyOf(rng)
			}
			o = c.append(topic, bodies, rng.IntN(10) < 3)
		case r < 78:
			from := me.at
			if rng.IntN(8) == 0 {
				from = uint64(rng.Int64N(int64(me.end) + 2))
			}
			o = c.read(topic, from, 1+rng.IntN(50), time.Duration(rng.IntN(3))*75*time.Millisecond, rng.IntN(10) < 4)
			if t := &o.Topics[0]; o.Outcome == check.OK && !o.Missing && !t.Empty {
				me.end = max(me.end, t.Next)
				if me.at = min(from+uint64(len(t.Bodies)), t.Next); t.Trimmed {
					me.at = t.First
				}
			}
		case r < 90:
			if o = c.position(topic, cursor); o.Outcome == check.OK {
				l.pace(o)
				o = c.commit(topic, cursor, me.at, o.Topics[0].Version)
			}
		default:
			o = c.position(topic, cursor)
		}
		l.pace(o)
		l.rest(8 * time.Millisecond)
	}
}

// transactions takes steps: it acks one and adds the next, tells a topic of it, puts
// a job beside it, moves a cursor. Some cannot be done: the lease is lost, or somebody
// else has moved the cursor.
func (l *suiteLoad) transactions(c *suiteClient, rng *rand.Rand) {
	version, end := uint64(0), uint64(0)
	for !l.stopped() {
		got := c.dequeue(stepsQueue, 1+rng.IntN(2), 0, 3*time.Second, false)
		l.pace(got)
		if len(got.Got) == 0 {
			if got.Outcome == check.OK {
				l.pace(c.enqueue(stepsQueue, []check.Job{{Body: l.body(), Priority: -1}, {Body: l.body(), Priority: -1}}, false, ""))
			}
			continue
		}
		var receipts []string
		for _, d := range got.Got {
			receipts = append(receipts, d.Receipt)
		}
		lost := rng.IntN(10) == 0
		if lost {
			l.pace(c.settle(check.Release, stepsQueue, receipts, 0, 0, false))
		}
		jobs := []check.Job{{Queue: stepsQueue, Body: l.bodyOf(rng), Priority: -1}}
		switch r := rng.IntN(6); {
		case l.backlog.Load() >= backlogMax:
		case r < 2:
			jobs = append(jobs, check.Job{Queue: hotQueue, Body: l.body(), Priority: -1})
		case r == 2:
			jobs = append(jobs, check.Job{Queue: groupedQueue, Body: l.body(), Priority: -1, Group: group(rng)})
		case r == 3:
			jobs = append(jobs, check.Job{Queue: l.pausedQueue(), Body: l.body(), Priority: -1})
		}
		var message, cursor *check.TopicPart
		if rng.IntN(3) > 0 {
			message = &check.TopicPart{Topic: newsTopic, Bodies: []string{l.body(), l.body()}[:1+rng.IntN(2)]}
		}
		if rng.IntN(3) == 0 {
			cursor = &check.TopicPart{Topic: newsTopic, Cursor: "tx", Offset: end, IfMatch: version, Create: version == 0}
		}
		o := c.tx(stepsQueue, receipts, jobs, message, cursor)
		l.pace(o)
		switch {
		case o.Outcome != check.OK:
		case o.Aborted:
			if !lost {
				l.pace(c.settle(check.Ack, stepsQueue, receipts, 0, 0, false))
			}
			if p := c.position(newsTopic, "tx"); p.Outcome == check.OK {
				version = p.Topics[0].Version
			}
		default:
			l.backlog.Add(int64(len(jobs) - 1))
			for i := range o.Topics {
				if t := &o.Topics[i]; t.Cursor != "" {
					version = t.Version
				} else {
					end = max(end, t.Offset+1)
				}
			}
		}
		l.rest(10 * time.Millisecond)
	}
}

func group(rng *rand.Rand) string { return fmt.Sprintf("g%d", rng.IntN(8)) }

// pauses pauses a queue, in or out or both, and ends that or lets it end by itself;
// now and then it redrives the dead letters. When it does not know what became of a
// pause, or after some, it goes on to another queue.
func (l *suiteLoad) pauses(c *suiteClient, rng *rand.Rand) {
	p := &l.parts
	logMs := int64(0)
	put := func(queue string, delay time.Duration) {
		if c.enqueue(queue, []check.Job{{Body: l.body(), Priority: -1, Delay: delay}}, false, "").Outcome == check.OK {
			l.backlog.Add(1)
		}
	}
	for n := 1; !l.stopped(); n++ {
		c.node = rng.IntN(len(l.w.c.Nodes)) // one that is cut off would keep it from most pauses
		queue := l.pausedQueue()
		in, out := rng.IntN(2) == 0, rng.IntN(2) == 0
		out = out || !in
		long := time.Duration(100+rng.IntN(300)) * time.Millisecond
		byItself := logMs > 0 && rng.IntN(3) == 0
		until := time.Now().Add(24*time.Hour).UnixMilli() + p.unlike.Add(1)
		if byItself {
			until = max(logMs+long.Milliseconds(), p.pauseMs+1)
			p.pauseMs = until
		}
		if out {
			put(queue, 0)
		}
		if in { // it becomes ready while the queue takes none
			put(queue, (long / 2).Truncate(time.Millisecond))
		}
		o := c.pause(queue, in, out, until)
		l.pace(o)
		known := o.Outcome == check.OK
		if known {
			logMs = o.TimeMs
			if out { // somebody asks for what the pause keeps
				l.pace(c.dequeue(queue, 1, 0, 3*time.Second, false))
			}
			l.rest(long)
		}
		if !byItself || !known {
			o = c.pause(queue, false, false, 0)
			l.pace(o)
			if known = known && o.Outcome == check.OK; known {
				logMs = o.TimeMs
			}
		}
		if !known || n%pausesOfQueue == 0 {
			p.paused.Add(1)
			logMs = 0
		}
		l.rest(long)
		if n%3 == 0 {
			l.pace(c.redrive(gravesQueue, 1_000_000+int(p.unlike.Add(1))))
		}
	}
}

// handled is what a user knows of jobs that may be held, requeued and cancelled.
type handled struct{ known, held []string }

// saw notes the last jobs of an enqueue.
func (h *handled) saw(o *check.Op) {
	for i := range o.Made {
		h.known = append(h.known[max(0, len(h.known)-7):], o.Made[i].ID)
	}
}

// handle does something to one of some jobs by its id, or requeues one that was held:
// few stay held, as nobody can work on those.
func (l *suiteLoad) handle(c *suiteClient, rng *rand.Rand, h *handled, from []string) {
	kind := [...]check.Kind{check.Hold, check.Hold, check.Requeue, check.Cancel, check.Cancel}[rng.IntN(5)]
	if len(h.held) > 0 && (len(h.held) > 4 || kind == check.Requeue && rng.IntN(2) == 0) {
		from, kind = h.held, check.Requeue
	}
	if len(from) == 0 {
		return
	}
	i := rng.IntN(len(from))
	o := c.handle(kind, handledQueue, from[i])
	l.pace(o)
	switch {
	case kind == check.Hold && o.Outcome != check.Failed && o.Code == "":
		h.held = append(h.held, o.Mark)
	case kind == check.Requeue && o.Outcome == check.OK:
		h.held = slices.DeleteFunc(h.held, func(id string) bool { return id == o.Mark })
	case kind == check.Cancel && o.Outcome == check.OK && o.Code == "" && o.Did == "":
		l.backlog.Add(-1)
	}
}

// letGo requeues every job that somebody may have held.
func (w *world) letGo() {
	w.t.Helper()
	c := w.newClient(drainClient, w.others()[0])
	held := map[string]bool{}
	for _, o := range w.rec.History().Ops {
		if o.Kind == check.Hold && o.Outcome != check.Failed && o.Code == "" {
			held[o.Mark] = true
		}
	}
	for id := range held { // order is nothing to anybody
		w.eventually(10*time.Second, "the end of a hold", func() bool { return c.handle(check.Requeue, handledQueue, id).Outcome == check.OK })
	}
}

// unpause ends all pauses, and readTopics reads both topics from end to end on each
// node: what is there at the end of a run.
func (w *world) unpause() {
	w.t.Helper()
	members := w.others()
	for i := range w.load.parts.paused.Load() + 1 {
		c := w.newClient(drainClient, members[int(i)%len(members)])
		w.eventually(10*time.Second, "the end of a pause", func() bool {
			return c.pause(pausedPrefix+itoa(i), false, false, 0).Outcome == check.OK
		})
	}
}

func (w *world) readTopics() {
	w.t.Helper()
	for _, i := range w.others() {
		c := w.newClient(drainClient, i)
		for _, topic := range []string{newsTopic, ringTopic} {
			from := uint64(0)
			w.eventually(60*time.Second, "the whole of "+topic, func() bool {
				o := c.read(topic, from, 1000, 0, false)
				t := &o.Topics[0]
				switch {
				case o.Outcome != check.OK:
					return false
				case t.Trimmed:
					from = t.First
					return false
				}
				from += uint64(len(t.Bodies))
				return from == t.Next
			})
		}
	}
}
