package check

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"raftq/fsm"
)

// story is a history with the log that explains it, made op by op. Tests break
// one or the other and want it to be seen.
type story struct {
	t     testing.TB
	h     History
	log   []Entry
	o     *oracle
	clock time.Duration // of the clients
	ms    int64         // log time
	batch uint64
	first uint64 // counter of the next job
	marks int
}

const (
	nodeOne  = 0xb930015723055ddd
	epochOne = 1<<32 | 7
	second   = time.Second
)

func newStory(t testing.TB) *story {
	s := &story{t: t, o: newOracle(), ms: 1000}
	s.entry(0, &fsm.NodeStart{})
	return s
}

// entry logs a batch of node one, a moment later.
func (s *story) entry(number uint64, ops ...fsm.Op) uint64 {
	s.ms += 10
	s.clock += 10 * time.Millisecond
	h := fsm.BatchHeader{Origin: nodeOne, Epoch: epochOne, Number: number, Term: 2, TimeMs: s.ms}
	e := Entry{Index: uint64(len(s.log)) + 2, Term: 2, Data: fsm.EncodeBatch(h, ops...)}
	s.log = append(s.log, e)
	if err := s.o.apply(e); err != nil {
		s.t.Fatal(err)
	}
	return e.Index
}

func (s *story) next(ops ...fsm.Op) uint64 {
	s.batch++
	return s.entry(s.batch, ops...)
}

// op begins an operation that is answered 2 ms after its entry.
func (s *story) op(kind Kind, queue string) *Op {
	o := &Op{Kind: kind, By: "n1", Queue: queue, Outcome: OK, Call: s.clock}
	s.h.Ops = append(s.h.Ops, o)
	return o
}

func (s *story) end(o *Op, index uint64) {
	s.clock += 2 * time.Millisecond
	o.Index, o.Ret, o.Batch = index, s.clock, fmt.Sprintf("%x.%d.%d", uint64(nodeOne), uint64(epochOne), s.batch)
	s.clock += time.Millisecond
}

func (s *story) wait(d time.Duration) {
	s.clock += d
	s.ms += d.Milliseconds()
	// The leader logs an empty batch when something is due.
	e := Entry{Index: uint64(len(s.log)) + 2, Term: 2, Data: fsm.EncodeBatch(fsm.BatchHeader{TimeMs: s.ms})}
	s.log = append(s.log, e)
	if err := s.o.apply(e); err != nil {
		s.t.Fatal(err)
	}
}

func (s *story) enqueueJobs(queue string, jobs ...Job) *Op {
	o := s.op(Enqueue, queue)
	o.Jobs = jobs
	op := &fsm.Enqueue{First: s.first}
	for i := range jobs {
		if jobs[i].Priority == 0 {
			jobs[i].Priority = -1
		}
		prio := uint8(4)
		if jobs[i].Priority > 0 {
			prio = uint8(jobs[i].Priority)
		}
		op.Jobs = append(op.Jobs, fsm.NewJob{Queue: queue, Body: []byte(jobs[i].Body), Priority: prio, AtMostOnce: jobs[i].AtMostOnce, DelayMs: jobs[i].Delay.Milliseconds(),
			TTLMs: jobs[i].TTL.Milliseconds(), MaxFailures: int32(jobs[i].MaxFailures), DedupID: jobs[i].DedupID, Group: jobs[i].Group, UniqueKey: jobs[i].UniqueKey})
	}
	s.first += uint64(len(jobs))
	index := s.next(op)
	for i := range jobs {
		m := s.o.enqueues[jobs[i].Body][0].result
		o.Made = append(o.Made, Made{ID: idOf(m.key), Duplicate: m.duplicate, Code: codeText(m.code)})
	}
	s.end(o, index)
	return o
}

func idOf(k fsm.Key) string {
	return fsm.ID{Key: k, Node: uint32(nodeOne >> 32), Minutes: 0xffff}.String()
}

func (s *story) enqueue(queue string, bodies ...string) *Op {
	var jobs []Job
	for _, b := range bodies {
		jobs = append(jobs, Job{Body: b})
	}
	return s.enqueueJobs(queue, jobs...)
}

// dequeue takes jobs for 2 s.
func (s *story) dequeue(queue string, max int) *Op {
	o := s.op(Dequeue, queue)
	s.marks++
	o.Max, o.Lease, o.Mark = max, 2*second, fmt.Sprintf("m%d", s.marks)
	if !s.o.anyReady([]string{queue}) {
		s.clock += 5 * time.Millisecond
		s.end(o, uint64(len(s.log))+1)
		return o
	}
	index := s.next(&fsm.Dequeue{Request: uint64(s.marks), Queues: []string{queue}, Max: int32(max), LeaseMs: 2000, Consumer: o.Mark})
	s.got(o)
	s.end(o, index)
	return o
}

func (s *story) got(o *Op) {
	for _, g := range s.o.dequeues[o.Mark].jobs {
		r := fsm.Receipt{ID: fsm.ID{Key: g.key, Node: uint32(nodeOne >> 32), Minutes: 0xffff}, Grant: g.grant, Tag: g.tag}
		o.Got = append(o.Got, Delivery{ID: r.ID.String(), Receipt: r.String(), Queue: g.queue, Body: g.body, Group: g.group, Priority: int(g.prio),
			Deliveries: int(g.deliveries), Failures: int(g.failures), Fence: uint64(g.fence), LeaseUntilMs: g.until})
	}
}

// settle does something with the jobs of a dequeue.
func (s *story) settle(kind Kind, of *Op, delay time.Duration) *Op {
	o := s.op(kind, of.Queue)
	var items []fsm.Item
	for _, d := range of.Got {
		r, _ := fsm.ParseReceipt(d.Receipt)
		it := r.Item()
		it.DelayMs = delay.Milliseconds()
		items = append(items, it)
		o.Items = append(o.Items, Item{Receipt: d.Receipt, Delay: delay})
	}
	var op fsm.Op
	switch kind {
	case Ack:
		op = &fsm.Ack{Items: items}
	case Nack:
		op = &fsm.Nack{Items: items}
	case Release:
		op = &fsm.Release{Items: items}
	case Reject:
		op = &fsm.Reject{Items: items}
	case Extend:
		op = &fsm.Extend{Items: items}
		o.Lease = 2 * second
	}
	index := s.next(op)
	for i := range items {
		done := s.o.items[oItem{kind, items[i].Key, items[i].Grant, items[i].Tag}]
		res := done[len(done)-1].result
		if res.code != fsm.CodeOK {
			o.Items[i].Code = res.code.String()
		}
		o.Items[i].Late, o.Items[i].Already, o.Items[i].Dead = res.late, res.already, res.dead
	}
	s.end(o, index)
	return o
}

func (s *story) count(queue string) *Op {
	o := s.op(Count, queue)
	s.clock += 5 * time.Millisecond
	o.Count = s.o.counts(queue)
	s.end(o, uint64(len(s.log))+1)
	return o
}

// whole is a story with a bit of everything, and its parts.
type whole struct {
	*story
	a, b, empty, read            *Op
	first, second, again         *Op
	nack, ack, drained, drainAck *Op
}

func newWhole(t *testing.T) *whole {
	w := &whole{story: newStory(t)}
	w.a = w.enqueue("q", "one", "two")
	w.b = w.enqueue("q", "three")
	w.read = w.count("q")
	w.first = w.dequeue("q", 1)
	w.second = w.dequeue("q", 2)
	w.empty = w.dequeue("q", 1)
	w.nack = w.settle(Nack, w.first, 0)
	w.again = w.dequeue("q", 1)
	w.ack = w.settle(Ack, w.again, 0)
	w.drainAck = w.settle(Ack, w.second, 0)
	w.drained = w.dequeue("q", 5)
	return w
}

// all runs every checker on the story.
func (s *story) all() []Problem {
	_, p := Accounting(&s.h)
	replay, more := Witness(&s.h, s.log)
	p = append(p, more...)
	p = append(p, BlackBox(&s.h)...)
	p = append(p, Topics(&s.h)...)
	_, l := Linear(&s.h, "q", replay)
	return append(p, l...)
}

// wants demands a problem of a check, by the beginning of its name.
func wants(t *testing.T, found []Problem, check string) {
	t.Helper()
	for _, p := range found {
		if strings.HasPrefix(p.Check, check) {
			return
		}
	}
	t.Errorf("not seen as %q; found: %v", check, found)
}

// Stories that hold are found to hold.
func TestGoodStories(t *testing.T) {
	stories := map[string]func(s *story){
		"everything": nil,
		"a lease that ends, a late ack": func(s *story) {
			s.enqueue("t", "x")
			d := s.dequeue("t", 1)
			s.wait(3 * second)
			late := s.settle(Ack, d, 0)
			if !late.Items[0].Late {
				t.Error("not late")
			}
			if again := s.settle(Ack, d, 0); !again.Items[0].Already {
				t.Error("not already")
			}
		},
		"a delay, a TTL, a dedup id": func(s *story) {
			s.enqueueJobs("t", Job{Body: "d", Delay: second}, Job{Body: "ttl", TTL: second / 2}, Job{Body: "k1", DedupID: "k"}, Job{Body: "k2", DedupID: "k"})
			s.wait(2 * second)
			s.settle(Ack, s.dequeue("t", 5), 0)
			s.count("t")
		},
		"at most once": func(s *story) {
			s.enqueueJobs("t", Job{Body: "once", AtMostOnce: true})
			s.dequeue("t", 1)
			s.wait(3 * second)
			s.dequeue("t", 1)
			s.count("t")
		},
		"the last failure": func(s *story) {
			s.enqueueJobs("t", Job{Body: "poison", MaxFailures: 2})
			s.settle(Nack, s.dequeue("t", 1), 100*time.Millisecond)
			s.wait(second)
			if n := s.settle(Nack, s.dequeue("t", 1), 0); !n.Items[0].Dead {
				t.Error("not dead")
			}
			s.dequeue("t", 1)
		},
		"several queues": func(s *story) {
			s.enqueue("r", "right")
			s.enqueue("l", "left")
			o := s.op(Dequeue, "l")
			o.More, o.Mark, o.Max, o.Lease = []string{"r"}, "both", 3, 2*second
			index := s.next(&fsm.Dequeue{Request: 600, Queues: []string{"l", "r"}, Max: 3, LeaseMs: 2000, Consumer: "both"})
			s.got(o)
			s.end(o, index)
			if len(o.Got) != 2 || o.Got[0].Body != "left" {
				t.Errorf("%+v", o.Got)
			}
			s.settle(Ack, o, 0)
		},
		"a shorter lease": func(s *story) {
			s.enqueue("t", "x")
			d := s.dequeue("t", 1)
			s.wait(second)
			s.settle(Extend, d, 0)
			s.wait(3 * second)
			s.settle(Ack, s.dequeue("t", 1), 0)
		},
	}
	for name, tell := range stories {
		t.Run(name, func(t *testing.T) {
			s := newWhole(t).story
			if tell != nil {
				tell(s)
			}
			for _, p := range s.all() {
				t.Error(p)
			}
		})
	}
}
