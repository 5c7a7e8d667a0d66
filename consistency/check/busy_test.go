package check

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"raftq/fsm"
)

// busy is a window as the suite makes them: clients that enqueue, take, settle and
// count at the same time, in entries that some of them share. Each call is open for
// up to slow, and some answers are lost.
type busy struct {
	*story
	rng     *rand.Rand
	clients []*busyClient
	slow    time.Duration
	lost    int // of a hundred answers
	bodies  int
}

type busyClient struct {
	op      *Op
	at      time.Duration // when the op takes effect
	ends    time.Duration // of its answer behind that
	mine    []string      // receipts
	waiting bool
	request uint64
	free    time.Duration
}

// newBusy tells so many operations.
func newBusy(t testing.TB, seed uint64, clients, ops int, slow time.Duration, lost int) *busy {
	b := &busy{story: newStory(t), rng: rand.New(rand.NewPCG(seed, 1)), slow: slow, lost: lost}
	for range clients {
		b.clients = append(b.clients, &busyClient{})
	}
	for ops > 0 {
		for _, c := range b.clients {
			if c.op == nil && ops > 0 {
				ops--
				b.call(c)
			}
		}
		b.step()
	}
	for b.open() {
		b.step()
	}
	return b
}

func (b *busy) some(d time.Duration) time.Duration { return time.Duration(b.rng.Int64N(int64(d) + 1)) }

func (b *busy) call(c *busyClient) {
	o := &Op{Queue: "q", By: "n1", Outcome: OK, Ret: Never, Call: c.free + b.some(2*time.Millisecond)}
	for i := range b.clients {
		if b.clients[i] == c {
			o.Client = i
		}
	}
	switch r := b.rng.IntN(100); {
	case r < 28:
		o.Kind = Enqueue
		for range 1 + b.rng.IntN(2) {
			b.bodies++
			o.Jobs = append(o.Jobs, Job{Body: fmt.Sprintf("b%d", b.bodies), Priority: -1})
		}
	case r < 75 || len(c.mine) == 0:
		b.marks++
		o.Kind, o.Max, o.Lease, o.Mark = Dequeue, 1+b.rng.IntN(3), time.Hour, fmt.Sprintf("m%d", b.marks)
		o.Wait = time.Duration(b.rng.IntN(2)) * 50 * time.Millisecond
	case r < 97:
		o.Kind = [...]Kind{Ack, Ack, Ack, Nack, Release}[b.rng.IntN(5)]
		n := 1 + b.rng.IntN(len(c.mine))
		for _, receipt := range c.mine[:n] {
			o.Items = append(o.Items, Item{Receipt: receipt})
		}
		c.mine = c.mine[n:]
	default:
		o.Kind = Count
	}
	c.op, c.at, c.ends = o, o.Call+b.some(b.slow), b.some(b.slow)
	b.h.Ops = append(b.h.Ops, o)
}

func (b *busy) open() bool {
	for _, c := range b.clients {
		if c.op != nil {
			return true
		}
	}
	return false
}

// step makes an entry of the first operations that are to take effect, or lets
// those end that wait for nothing.
func (b *busy) step() {
	var first *busyClient
	for _, c := range b.clients {
		if c.op != nil && !c.waiting && (first == nil || c.at < first.at) {
			first = c
		}
	}
	if first == nil { // all wait, until they find nothing
		var over fsm.Withdraw
		for _, c := range b.clients {
			if c.op != nil {
				over.Requests = append(over.Requests, c.request)
			}
		}
		b.next(&over)
		for _, c := range b.clients {
			if c.op != nil {
				b.done(c, b.clock, b.last())
			}
		}
		return
	}
	now := max(first.at, b.clock)
	var asks []fsm.Op
	var here, reads []*busyClient
	for _, c := range b.clients {
		if c.op == nil || c.waiting || c.at > now+b.slow/8 {
			continue
		}
		now = max(now, c.at)
		if op := b.asks(c); op != nil {
			asks, here = append(asks, op), append(here, c)
		} else {
			reads = append(reads, c)
		}
	}
	b.clock = now
	index := b.last()
	if len(asks) > 0 {
		b.clock -= 10 * time.Millisecond // that entry lets pass
		index = b.next(asks...)
	}
	for _, c := range here {
		b.answer(c, index)
	}
	for _, c := range reads {
		c.op.Count = b.o.counts("q")
		b.done(c, b.clock, b.last())
	}
	for _, c := range b.clients {
		if c.op != nil && c.waiting && len(b.o.dequeues[c.op.Mark].jobs) > 0 {
			b.answer(c, index)
		}
	}
}

func (b *busy) last() uint64 { return uint64(len(b.log)) + 1 }

// asks is what a client's operation is in the log, nil if it only reads.
func (b *busy) asks(c *busyClient) fsm.Op {
	o := c.op
	var items []fsm.Item
	for i := range o.Items {
		r, _ := fsm.ParseReceipt(o.Items[i].Receipt)
		items = append(items, r.Item())
	}
	switch o.Kind {
	case Enqueue:
		op := &fsm.Enqueue{First: b.first}
		for i := range o.Jobs {
			op.Jobs = append(op.Jobs, fsm.NewJob{Queue: "q", Body: []byte(o.Jobs[i].Body), Priority: 4})
		}
		b.first += uint64(len(o.Jobs))
		return op
	case Dequeue:
		c.request = uint64(b.marks)<<8 | uint64(o.Client)
		return &fsm.Dequeue{Request: c.request, Queues: []string{"q"}, Max: int32(o.Max), LeaseMs: o.Lease.Milliseconds(), WaitMs: 1000 * o.Wait.Milliseconds(), Consumer: o.Mark}
	case Ack:
		return &fsm.Ack{Items: items}
	case Nack:
		return &fsm.Nack{Items: items}
	case Release:
		return &fsm.Release{Items: items}
	}
	return nil
}

// answer notes what an entry came to for a client.
func (b *busy) answer(c *busyClient, index uint64) {
	o := c.op
	switch o.Kind {
	case Enqueue:
		for i := range o.Jobs {
			o.Made = append(o.Made, Made{ID: idOf(b.o.enqueues[o.Jobs[i].Body][0].result.key)})
		}
	case Dequeue:
		b.took(o)
		if c.waiting = len(o.Got) == 0 && o.Wait > 0; c.waiting {
			return
		}
	}
	b.done(c, b.clock, index)
}

// took is what the log hands to a dequeue.
func (b *busy) took(o *Op) {
	d := b.o.dequeues[o.Mark]
	for _, g := range d.jobs {
		r := fsm.Receipt{ID: fsm.ID{Key: g.key, Node: uint32(nodeOne >> 32), Minutes: 0xffff}, Grant: g.grant, Tag: g.tag}
		o.Got = append(o.Got, Delivery{ID: r.ID.String(), Receipt: r.String(), Queue: g.queue, Body: g.body, Priority: int(g.prio),
			Deliveries: int(g.deliveries), Failures: int(g.failures), Fence: uint64(d.at), LeaseUntilMs: g.until})
	}
}

// done ends a client's operation, or loses its answer.
func (b *busy) done(c *busyClient, at time.Duration, index uint64) {
	o := c.op
	o.Index, o.Ret = index, at+c.ends
	c.op, c.waiting, c.free = nil, false, o.Ret
	if b.rng.IntN(100) < b.lost {
		o.Outcome, o.Ret, o.Got, o.Made, o.Index = Unknown, Never, nil, nil, 0
	}
	for i := range o.Got {
		c.mine = append(c.mine, o.Got[i].Receipt)
	}
}
