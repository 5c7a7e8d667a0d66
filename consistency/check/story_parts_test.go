package check

import (
	"strings"
	"testing"
	"time"

	"raftq/fsm"
)

// nowhere is a log time that no story comes to.
const nowhere = 1 << 40

func (s *story) append(topic string, bodies ...string) *Op {
	o := s.op(Append, "")
	op := &fsm.Append{Topic: topic}
	for _, b := range bodies {
		op.Messages = append(op.Messages, fsm.NewMessage{Body: []byte(b)})
	}
	index := s.next(op)
	o.Topics = []TopicPart{{Topic: topic, Bodies: bodies, Offset: s.o.appends[bodies[0]][0].offset}}
	s.end(o, index)
	return o
}

// read reads what there is now, from an offset on.
func (s *story) read(topic string, from uint64, limit int) *Op {
	o := s.op(Read, "")
	s.clock += 5 * time.Millisecond
	t := s.o.topics[topic]
	part := TopicPart{Topic: topic, Offset: from, Limit: limit, First: t.first, Next: t.next(), Trimmed: from < t.first}
	for at := from; !part.Trimmed && at < t.next() && len(part.At) < limit; at++ {
		part.At, part.Bodies = append(part.At, at), append(part.Bodies, t.messages[at-t.first])
	}
	o.Topics = []TopicPart{part}
	s.end(o, uint64(len(s.log))+1)
	return o
}

func (s *story) commit(topic, cursor string, offset, ifMatch uint64, create bool) *Op {
	o := s.op(Commit, "")
	index := s.next(&fsm.SetCursor{Topic: topic, Cursor: cursor, Offset: offset, IfMatch: ifMatch, Create: create})
	o.Topics = []TopicPart{{Topic: topic, Cursor: cursor, Offset: offset, IfMatch: ifMatch, Create: create}}
	told := s.o.told[o.key()]
	last := told[len(told)-1]
	o.Topics[0].Version, o.Code = last.version, codeText(last.code)
	s.end(o, index)
	return o
}

func (s *story) position(topic, cursor string) *Op {
	o := s.op(Position, "")
	s.clock += 5 * time.Millisecond
	c := s.o.topics[topic].cursors[cursor]
	o.Topics = []TopicPart{{Topic: topic, Cursor: cursor, Offset: c.offset, Version: c.version}}
	s.end(o, uint64(len(s.log))+1)
	return o
}

// tx acks what a dequeue got, adds jobs, and appends to topic t.
func (s *story) tx(acks *Op, message string, jobs ...Job) *Op {
	o := s.op(Tx, "")
	tx := &fsm.Tx{}
	settle := &fsm.Settle{}
	for _, d := range acks.Got {
		r, _ := fsm.ParseReceipt(d.Receipt)
		settle.Items = append(settle.Items, fsm.SettleItem{Verb: fsm.VerbAck, Item: r.Item()})
		o.Items = append(o.Items, Item{Receipt: d.Receipt})
	}
	enqueue := &fsm.Enqueue{First: s.first}
	for i := range jobs {
		jobs[i].Priority = -1
		enqueue.Jobs = append(enqueue.Jobs, fsm.NewJob{Queue: jobs[i].Queue, Body: []byte(jobs[i].Body), Priority: 4})
	}
	s.first += uint64(len(jobs))
	o.Jobs = jobs
	tx.Ops = []fsm.Op{settle, enqueue}
	if message != "" {
		tx.Ops = append(tx.Ops, &fsm.Append{Topic: "t", Messages: []fsm.NewMessage{{Body: []byte(message)}}})
		o.Topics = []TopicPart{{Topic: "t", Bodies: []string{message}}}
	}
	index := s.next(tx)
	did := s.o.txs[jobs[0].Body][0]
	o.Aborted = did.aborted
	lines := did.lines
	for i := range o.Items {
		o.Items[i].Code, o.Items[i].Late, o.Items[i].Already = codeText(lines[i].code), lines[i].result.late, lines[i].result.already
	}
	lines = lines[len(o.Items):]
	for i := range jobs {
		o.Made = append(o.Made, Made{ID: idOf(lines[i].result.key), Code: codeText(lines[i].code)})
	}
	if message != "" {
		o.Topics[0].Offset = lines[len(jobs)].offset
	}
	s.end(o, index)
	return o
}

func (s *story) pause(queue string, in, out bool, until int64) *Op {
	o := s.op(Pause, queue)
	o.Paused = &PausePart{in, out, until}
	index := s.next(&fsm.Pause{Queue: queue, In: in, Out: out, UntilMs: until})
	o.TimeMs = s.ms
	s.end(o, index)
	return o
}

func (s *story) configure(queue string, maxFailures int, deadLetter string) *Op {
	o := s.op(Configure, queue)
	o.Config = &ConfigPart{MaxFailures: maxFailures, DeadLetter: deadLetter}
	s.end(o, s.next(&fsm.Configure{Queue: queue, Config: fsm.QueueConfig{MaxFailures: int32(maxFailures), DeadLetter: deadLetter}, Fields: fsm.AllFields}))
	return o
}

func (s *story) keep(topic string, n int64) *Op {
	o := s.op(Configure, "")
	o.Config = &ConfigPart{Topic: topic, MaxCount: n}
	s.end(o, s.next(&fsm.ConfigureTopic{Topic: topic, Config: fsm.TopicConfig{MaxCount: n}, Fields: fsm.AllTopicFields}))
	return o
}

func (s *story) redrive(queue string, max int) *Op {
	o := s.op(Redrive, queue)
	o.Max = max
	index := s.next(&fsm.Redrive{Queue: queue, Max: int32(max)})
	o.Moved = s.o.told[o.key()][0].count
	s.end(o, index)
	return o
}

func (s *story) show(d Delivery) *Op {
	o := s.op(Show, "")
	s.clock += 5 * time.Millisecond
	o.Mark, o.Facts = d.ID, &Facts{State: "gone"}
	id, _ := fsm.ParseID(d.ID)
	if j := s.o.jobs[id.Key]; j != nil {
		*o.Facts = Facts{j.state, j.queue, j.source, j.reason, j.body, j.group, int(j.deliveries), int(j.failures), j.redriven}
	}
	s.end(o, uint64(len(s.log))+1)
	return o
}

func (s *story) peek(queue string, max int) *Op {
	o := s.op(Peek, queue)
	s.clock += 5 * time.Millisecond
	o.Max = max
	for _, j := range s.o.queue(queue).ready[:min(max, len(s.o.queue(queue).ready))] {
		o.IDs = append(o.IDs, idOf(j.key))
	}
	s.end(o, uint64(len(s.log))+1)
	return o
}

// parts is a story of topics, transactions, groups, pauses and dead letters.
type parts struct {
	*story
	appended, more, page, fast, tail       *Op // topic t
	created, moved, refused, position      *Op // cursor c of t
	trimmed, old                           *Op // topic short, that keeps 2
	work, tx, aborted, step                *Op // transactions
	one, two, first, ack, second           *Op // group g
	out, nothing, in, turned, on, got      *Op // queue p, paused
	poison, fail, last, grave, seen, again *Op // queue bad, of one failure
	redrive                                *Op
	peek                                   *Op
}

func newParts(t *testing.T) *parts {
	s := newStory(t)
	p := &parts{story: s}
	p.appended = s.append("t", "m0", "m1")
	p.more = s.append("t", "m2")
	p.page = s.read("t", 1, 10)
	p.fast = s.read("t", 0, 2)
	p.fast.Fast, p.fast.Batch = true, ""
	p.created = s.commit("t", "c", 1, 0, true)
	p.moved = s.commit("t", "c", 2, p.created.Topics[0].Version, false)
	p.refused = s.commit("t", "c", 3, p.created.Topics[0].Version, false)
	p.position = s.position("t", "c")
	s.keep("short", 2)
	s.append("short", "s0", "s1", "s2")
	p.trimmed = s.read("short", 0, 5)
	p.old = s.read("short", 1, 5)

	s.enqueue("w", "work")
	p.work = s.dequeue("w", 1)
	p.tx = s.tx(p.work, "told", Job{Body: "next", Queue: "w"}, Job{Body: "beside", Queue: "v"})
	stale := *p.work
	stale.Got = append([]Delivery(nil), p.work.Got...)
	p.step = s.dequeue("w", 1)
	r := p.step.Got[0].Receipt
	stale.Got[0].Receipt = r[:strings.LastIndex(r, ".")] + ".0000000000000000"
	p.aborted = s.tx(&stale, "untold", Job{Body: "undone", Queue: "w"})
	s.settle(Ack, p.step, 0)
	s.settle(Ack, s.dequeue("v", 1), 0)
	p.tail = s.read("t", 3, 10)

	p.one = s.enqueueJobs("g", Job{Body: "g1", Group: "g"}, Job{Body: "g2", Group: "g"})
	p.two = s.enqueueJobs("g", Job{Body: "g3", Group: "g"})
	p.peek = s.peek("g", 2)
	p.first = s.dequeue("g", 5)
	s.dequeue("g", 5)
	p.ack = s.settle(Ack, p.first, 0)
	p.second = s.dequeue("g", 5)
	s.settle(Ack, p.second, 0)
	s.settle(Ack, s.dequeue("g", 5), 0)

	s.enqueue("p", "held")
	p.out = s.pause("p", false, true, nowhere)
	p.nothing = s.dequeue("p", 1)
	p.in = s.pause("p", true, false, nowhere+1)
	p.turned = s.enqueue("p", "not taken")
	p.got = s.dequeue("p", 1)
	s.settle(Nack, p.got, 0)
	s.dequeue("p", 1)
	p.on = s.pause("p", false, false, 0)
	s.settle(Ack, s.dequeue("p", 1), 0)

	s.configure("bad", 1, "graves")
	p.poison = s.enqueue("bad", "poison")
	p.last = s.dequeue("bad", 1)
	p.fail = s.settle(Nack, p.last, 0)
	p.grave = s.dequeue("graves", 1)
	p.seen = s.show(p.grave.Got[0])
	s.settle(Release, p.grave, 0)
	p.redrive = s.redrive("graves", 1000001)
	p.again = s.dequeue("bad", 1)
	s.settle(Ack, p.again, 0)
	return p
}

// Stories of all these hold.
func TestGoodParts(t *testing.T) {
	p := newParts(t)
	if p.aborted.Aborted == p.tx.Aborted || p.refused.Code == "" || len(p.nothing.Got)+len(p.first.Got) != 1 || p.turned.Made[0].Code == "" ||
		len(p.grave.Got) != 1 || p.seen.Facts.Source != "bad" || p.redrive.Moved != 1 || len(p.again.Got) != 1 || !p.trimmed.Topics[0].Trimmed {
		t.Fatalf("not the story that was meant: %+v", p)
	}
	for _, problem := range p.all() {
		t.Error(problem)
	}
	replay, _ := Witness(&p.h, p.log)
	for _, what := range []string{"tx", "tx aborted", "kept by a group", "kept by a pause", "held back by a pause", "refused by a pause", "dead letter", "redrive", "trimmed"} {
		if replay.Did[what] == 0 {
			t.Errorf("%q did not happen: %v", what, replay.Did)
		}
	}
}

// A pause ends by itself; what it held back comes then, in its order.
func TestPauseUntil(t *testing.T) {
	s := newStory(t)
	s.enqueue("p", "a", "b")
	d := s.dequeue("p", 2)
	until := s.ms + 500
	s.pause("p", true, true, until)
	s.settle(Nack, d, 0)
	s.wait(400 * time.Millisecond)
	if early := s.dequeue("p", 2); len(early.Got) > 0 {
		t.Error("early")
	}
	s.wait(second)
	if again := s.dequeue("p", 2); len(again.Got) != 2 || again.Got[0].Body != "a" {
		t.Errorf("%+v", again.Got)
	}
	for _, problem := range s.all() {
		if problem.Check != "accounting: lost" {
			t.Error(problem)
		}
	}
}
