package check

import (
	"cmp"
	"fmt"
	"slices"

	"raftq/fsm"
)

// witness holds a history against the committed log.
type witness struct {
	problems
	h     *History
	o     *oracle
	last  uint64
	bound map[*Op]uint64 // entry in which an op took effect
	open  []*Op          // reads and empty answers, by index, until the replay is there
	lasts map[[2]uint64]uint64
}

// Witness replays the log in the oracle and compares every answer with it. The
// replay is nil when the oracle could not go to its end.
func Witness(h *History, log []Entry) (replay *Replay, found []Problem) {
	w := &witness{h: h, o: newOracle(), last: uint64(len(log)) + 1, bound: make(map[*Op]uint64, len(h.Ops)), lasts: map[[2]uint64]uint64{}}
	w.o.expect(h)
	for _, op := range h.Ops {
		if op.Outcome == OK && !op.written() {
			w.open = append(w.open, op)
		}
		if op.Outcome == OK && !op.Fast && op.Index > w.last {
			w.add("witness: complete", "%v, but the log ends at %d", op, w.last)
		}
	}
	slices.SortStableFunc(w.open, func(a, b *Op) int { return cmp.Compare(a.Index, b.Index) })
	w.reads(1)
	for _, e := range log {
		if err := w.o.apply(e); err != nil {
			w.add("witness: replay", "entry %d: %v", e.Index, err)
			return nil, w.all()
		}
		if len(e.Data) > 0 {
			if hd, err := fsm.ReadBatchHeader(e.Data); err == nil && hd.Origin != 0 {
				k := [2]uint64{hd.Origin, hd.Epoch}
				w.lasts[k] = max(w.lasts[k], hd.Number)
			}
		}
		w.reads(e.Index)
	}
	w.asked()
	for _, op := range h.Ops {
		switch op.Kind {
		case Enqueue:
			w.enqueue(op)
		case Dequeue:
			w.dequeue(op)
		case Ack, Nack, Release, Extend, Reject:
			w.settle(op)
		case Append:
			w.append(op)
		case Tx:
			w.tx(op)
		case Commit, Pause, Redrive, Configure, Purge, Hold, Requeue, Cancel:
			w.asks(op)
		case Fate:
			w.fate(op)
		}
	}
	w.lostAnswers()
	w.askedOften()
	w.order()
	return newReplay(h, w.o, log), w.all()
}

// reads compares what was read at an index.
func (w *witness) reads(index uint64) {
	for ; len(w.open) > 0 && w.open[0].Index <= index; w.open = w.open[1:] {
		op := w.open[0]
		if op.Index < index {
			w.add("witness: result", "%v reflects an entry that is not there", op)
			continue
		}
		switch op.Kind {
		case Count:
			c := w.o.counts(op.Queue)
			if op.Missing {
				c.Waiters = 0
			}
			if op.Count != c {
				w.add("witness: result", "%v answers %+v, the log gives %+v", op, op.Count, c)
			}
		case Dequeue:
			if w.o.dequeues[op.Mark] != nil {
				continue
			}
			if op.Attempt != "" && w.o.lives(attemptName(op.Attempt, op.queues())) {
				w.add("witness: attempt", "%v found nothing, though another try of it holds jobs", op)
			}
			w.o.look(op.queues())
			for _, queue := range op.queues() {
				if j := w.o.next(w.o.queue(queue)); j != nil {
					w.add("witness: false empty", "%v found nothing, where %.40q was ready", op, j.body)
				}
			}
		case Peek:
			w.peek(op)
		case Show:
			w.show(op)
		case Read:
			w.read(op)
		case Position:
			w.position(op)
		}
	}
}

// asked: nothing is in the log that nobody asked for.
func (w *witness) asked() {
	sent := map[string]bool{} // messages
	for _, op := range w.h.Ops {
		for i := range op.Jobs {
			if made := w.o.enqueues[op.Jobs[i].Body]; len(made) > 0 {
				made[0].sent = true
			}
			if txs := w.o.txs[op.Jobs[i].Body]; len(txs) > 0 {
				txs[0].sent = true
			}
		}
		if op.Kind == Append || op.Kind == Tx {
			for i := range op.Topics {
				for _, body := range op.Topics[i].Bodies {
					sent[body] = true
				}
			}
		}
		if op.Kind == Dequeue {
			if d := w.o.dequeues[op.Mark]; d != nil {
				d.sent = true
			}
		}
	}
	for body, txs := range w.o.txs {
		if !txs[0].sent {
			w.add("witness: invented", "entry %d holds a transaction with %.60q, which nobody sent", txs[0].index, body)
		}
	}
	for _, made := range w.o.appends {
		for _, body := range made[0].bodies {
			if !sent[body] {
				w.add("witness: invented", "entry %d appends %.60q, which nobody sent", made[0].index, body)
			}
		}
	}
	for body, made := range w.o.enqueues {
		if !made[0].sent {
			w.add("witness: invented", "entry %d enqueues %.60q, which nobody sent", made[0].index, body)
		}
	}
	for mark, d := range w.o.dequeues {
		if !d.sent {
			w.add("witness: invented", "entry %d holds a dequeue of %q, which nobody sent", d.index, mark)
		}
	}
}

func (w *witness) enqueue(op *Op) {
	first := w.o.enqueues[op.Jobs[0].Body]
	switch {
	case len(first) == 0:
		switch {
		case op.Outcome != OK:
		case op.Fast:
			w.lostFast(op)
		default:
			w.add("witness: lost", "%v is not in the log", op)
		}
		return
	case op.Outcome == Failed:
		w.add("witness: failed took effect", "%v is in entry %d", op, first[0].index)
		return
	case op.Outcome == Unknown:
		return
	}
	at := -1
	for k := range first {
		if uint64(first[k].index) == op.Index {
			at = k
		}
	}
	if at < 0 && op.Fast {
		at = 0 // proposed again under a later leader
	}
	if at < 0 {
		w.add("witness: index", "%v is in entry %d", op, first[0].index)
		return
	}
	w.bound[op] = uint64(first[at].index)
	for i := range op.Jobs {
		made := w.o.enqueues[op.Jobs[i].Body]
		if len(made) != len(first) {
			w.add("witness: whole", "%v: job %d stands %d times in the log, job 0 %d times", op, i, len(made), len(first))
			return
		}
		m, j := made[at], &op.Jobs[i]
		if m.index != first[at].index {
			w.add("witness: whole", "%v is split: job %d is in entry %d, job 0 in %d", op, i, m.index, first[at].index)
		}
		w.made(op, i, &op.Made[i], m.result)
		w.asSent(op, i, m.job, j)
	}
}

// made compares what an enqueue answered for a job with what the log gives.
func (w *witness) made(op *Op, i int, answer *Made, want oResult) {
	id, ok := fsm.ParseID(answer.ID)
	switch {
	case answer.Code != codeText(want.code):
	case want.code != fsm.CodeOK && want.code != fsm.CodeNotUnique:
		return
	case ok && id.Key == want.key && answer.Duplicate == want.duplicate:
		return
	}
	w.add("witness: result", "%v: job %d is answered as %+v, the log gives %+v", op, i, *answer, want)
}

// asSent compares a job in the log with what was sent.
func (w *witness) asSent(op *Op, i int, n *fsm.NewJob, j *Job) {
	if n.Queue != cmp.Or(j.Queue, op.Queue) || j.Priority >= 0 && int(n.Priority) != j.Priority || n.DelayMs != j.Delay.Milliseconds() || n.TTLMs != j.TTL.Milliseconds() ||
		n.AtMostOnce != j.AtMostOnce || n.DedupID != j.DedupID || int(n.MaxFailures) != j.MaxFailures || n.LeaseMs != j.Lease.Milliseconds() || n.Group != j.Group || n.UniqueKey != j.UniqueKey {
		w.add("witness: altered", "%v: job %d stands in the log as %+v, the client sent %+v", op, i, n, j)
	}
}

// codeText is a code as answers show it: nothing, when it is done.
func codeText(c fsm.Code) string {
	if c == fsm.CodeOK {
		return ""
	}
	return c.String()
}

// lostFast: what one life of a node loses is a suffix of its batches, and the life
// is over.
func (w *witness) lostFast(op *Op) {
	var node, epoch, number uint64
	if _, err := fmt.Sscanf(op.Batch, "%x.%d.%d", &node, &epoch, &number); err != nil {
		w.add("witness: fast", "%v names its batch as %q", op, op.Batch)
		return
	}
	if last := w.lasts[[2]uint64{node, epoch}]; number <= last {
		w.add("witness: lost", "%v of batch %d is not in the log, though batch %d of the same life is", op, number, last)
		return
	}
	for _, e := range w.h.Events {
		if e.Ended && e.To >= op.Call && e.Node >= 0 && fmt.Sprintf("n%d", e.Node+1) == op.By {
			return
		}
	}
	w.add("witness: lost", "%v of batch %d is not in the log, and %s lived on", op, number, op.By)
}

func (w *witness) dequeue(op *Op) {
	d := w.o.dequeues[op.Mark]
	if d != nil && (!slices.Equal(d.queues, op.queues()) || d.max != max(1, op.Max) || d.lease != op.Lease.Milliseconds() || d.attempt != op.Attempt) {
		w.add("witness: altered", "%v stands in entry %d for up to %d of %v, for %d ms", op, d.index, d.max, d.queues, d.lease)
		return
	}
	if op.Outcome != OK {
		return // nothing of it, or handed out and lost on the way: the lease ends it
	}
	if len(op.Got) == 0 {
		if d == nil {
			return // a read, see reads
		}
		for _, g := range d.jobs {
			if !g.back && w.live(g, d) && !w.o.gaveBack(g) {
				w.add("witness: result", "%v found nothing, but entry %d gives it %s, which is not given back", op, d.at, g.body)
			}
		}
		return
	}
	if d != nil && d.again {
		// What the first of the two nodes was handed, it gave back.
		d.jobs = slices.DeleteFunc(d.jobs, func(g oGrant) bool { return g.back })
	}
	if d == nil {
		if !op.Fast {
			w.add("witness: lost", "%v with %d jobs is not in the log", op, len(op.Got))
		}
		return
	}
	if len(op.Got) != len(d.jobs) || !op.Fast && uint64(d.at) > op.Index {
		w.add("witness: result", "%v got %d jobs, entry %d gives %d", op, len(op.Got), d.at, len(d.jobs))
		return
	}
	w.bound[op] = uint64(d.at)
	for i, g := range d.jobs {
		got := &op.Got[i]
		r, ok := fsm.ParseReceipt(got.Receipt)
		if !ok || r.ID.Key != g.key || r.Grant != g.grant || r.Tag != g.tag || got.Queue != g.queue || got.Body != g.body || got.Group != g.group || got.Priority != int(g.prio) ||
			got.Deliveries != int(g.deliveries) || got.Failures != int(g.failures) || got.LeaseUntilMs != g.until || got.Fence != uint64(g.fence) {
			if !op.Fast || g.key == r.ID.Key {
				w.add("witness: result", "%v got %.200v, entry %d gives %.200v", op, *got, d.at, g)
			}
			return
		}
		if g.back {
			w.add("witness: result", "%v got %s, which was given back as not written", op, got.ID)
		}
	}
}

// live: nothing but the end of time may hide a hand-out that nobody got.
func (w *witness) live(g oGrant, d *oDequeue) bool {
	for _, e := range w.h.Events {
		if e.Ended {
			return false // its node may have died before it could give it back
		}
	}
	return d.parked
}

func (w *witness) settle(op *Op) {
	for i := range op.Items {
		it := &op.Items[i]
		r, ok := fsm.ParseReceipt(it.Receipt)
		if !ok {
			w.add("witness: recording", "%v: %q is no receipt", op, it.Receipt)
			return
		}
		dones := w.o.items[oItem{op.Kind, r.ID.Key, r.Grant, r.Tag}]
		at := slices.IndexFunc(dones, func(d oDone) bool { return uint64(d.index) == op.Index })
		switch {
		case op.Outcome == Unknown:
			return
		case op.Outcome == Failed:
			if len(dones) > 0 && w.onlyOne(op.Kind, it.Receipt) {
				w.add("witness: failed took effect", "%v of %s is in entry %d", op, it.Receipt, dones[0].index)
			}
			return
		case at < 0 && op.Fast:
			return // at another place, or lost: then the job comes again
		case at < 0:
			w.add("witness: lost", "%v of %s is not in its entry", op, it.Receipt)
			return
		}
		w.bound[op] = op.Index
		// One that was not answered and the one after it may share an entry: nothing tells
		// which is which, so the answer is that of one of them.
		if !slices.ContainsFunc(dones[at:], func(d oDone) bool { return uint64(d.index) == op.Index && it.is(&d.result) }) {
			want := &dones[at].result
			w.add("witness: result", "%v of %s answers %+v, the log gives %q %+v", op, it.Receipt, *it, codeText(want.code), *want)
		}
	}
}

func (it *Item) is(r *oResult) bool {
	return it.Code == codeText(r.code) && it.Late == r.late && it.Already == r.already && it.Dead == r.dead && it.Cancel == r.cancel
}

// onlyOne: no other operation of the kind names the receipt.
func (w *witness) onlyOne(kind Kind, receipt string) bool {
	n := 0
	for _, op := range w.h.Ops {
		if op.Kind != kind {
			continue
		}
		for i := range op.Items {
			if op.Items[i].Receipt == receipt {
				n++
			}
		}
	}
	return n == 1
}
