package check

import (
	"cmp"
	"fmt"
	"slices"

	"raftq/fsm"
)

// append: as an enqueue, it stands once in the log, whole, and at its offset.
func (w *witness) append(op *Op) {
	t := &op.Topics[0]
	made := w.o.appends[t.Bodies[0]]
	switch {
	case len(made) > 1:
		w.add("witness: twice", "%v is in entries %d and %d", op, made[0].index, made[1].index)
	case len(made) == 0 && op.Outcome == OK && op.Fast:
		w.lostFast(op)
	case len(made) == 0 && op.Outcome == OK:
		w.add("witness: lost", "%v is not in the log", op)
	case len(made) == 0 || op.Outcome == Unknown:
	case op.Outcome == Failed:
		w.add("witness: failed took effect", "%v is in entry %d", op, made[0].index)
	case !op.Fast && uint64(made[0].index) != op.Index:
		w.add("witness: index", "%v is in entry %d", op, made[0].index)
	case made[0].topic != t.Topic || !slices.Equal(made[0].bodies, t.Bodies):
		w.add("witness: altered", "%v stands in entry %d with %d messages of topic %q", op, made[0].index, len(made[0].bodies), made[0].topic)
	default:
		w.bound[op] = uint64(made[0].index)
		if !op.Fast && t.Offset != made[0].offset {
			w.add("witness: result", "%v is answered as offset %d, the log gives %d", op, t.Offset, made[0].offset)
		}
	}
}

// tx: all of it is in one entry, and each line is as the log gives it.
func (w *witness) tx(op *Op) {
	txs := w.o.txs[op.Jobs[0].Body]
	switch {
	case len(txs) > 1:
		w.add("witness: twice", "%v is in entries %d and %d", op, txs[0].index, txs[1].index)
		return
	case len(txs) == 0 && op.Outcome == OK:
		w.add("witness: lost", "%v is not in the log", op)
		return
	case len(txs) == 0 || op.Outcome == Unknown:
		return
	case op.Outcome == Failed:
		w.add("witness: failed took effect", "%v is in entry %d", op, txs[0].index)
		return
	case uint64(txs[0].index) != op.Index:
		w.add("witness: index", "%v is in entry %d", op, txs[0].index)
		return
	}
	tx := &txs[0]
	w.bound[op] = op.Index
	n := len(op.Items) + len(op.Jobs)
	for i := range op.Topics {
		n += len(op.Topics[i].Bodies)
		if op.Topics[i].Cursor != "" {
			n++
		}
	}
	switch {
	case tx.aborted != op.Aborted:
		w.add("witness: result", "%v is answered as aborted %v, the log gives %v", op, op.Aborted, tx.aborted)
		return
	case len(tx.lines) != n || len(tx.jobs) != len(op.Jobs):
		w.add("witness: whole", "%v has %d lines, entry %d has %d", op, n, tx.index, len(tx.lines))
		return
	}
	lines := tx.lines
	line := func() oLine {
		l := lines[0]
		lines = lines[1:]
		return l
	}
	differs := func(what string, answer any, l oLine) {
		w.add("witness: result", "%v: %s is answered as %+v, the log gives %q %+v", op, what, answer, l.code, l)
	}
	for i := range op.Items {
		it, l := &op.Items[i], line()
		if it.Code != codeText(l.code) || !op.Aborted && (it.Late != l.result.late || it.Already != l.result.already) {
			differs("an ack", *it, l)
		}
	}
	for i := range op.Jobs {
		l := line()
		want := l.result
		want.code = l.code
		w.made(op, i, &op.Made[i], want)
		w.asSent(op, i, &tx.jobs[i], &op.Jobs[i])
	}
	for i := range op.Topics {
		t := &op.Topics[i]
		for k := range t.Bodies {
			l := line()
			if !op.Aborted && t.Offset+uint64(k) != l.offset {
				differs("a message", *t, l)
			}
		}
		if len(t.Bodies) > 0 && !slices.Equal(tx.appends[t.Topic], t.Bodies) {
			w.add("witness: altered", "%v appends %d messages in the log", op, len(tx.appends[t.Topic]))
		}
		if t.Cursor == "" {
			continue
		}
		if l := line(); !op.Aborted && t.Version != l.version {
			differs("a cursor", *t, l)
		}
	}
}

// key is what the log holds of an operation that has no mark of its own.
func (o *Op) key() string {
	switch o.Kind {
	case Commit:
		t := &o.Topics[0]
		return cursorKey(t.Topic, t.Cursor, t.Offset, t.IfMatch, t.Create)
	case Pause:
		return pauseKey(o.Queue, o.Paused.In, o.Paused.Out, o.Paused.UntilMs)
	case Redrive:
		return redriveKey(o.Queue, o.Max)
	case Hold, Requeue, Cancel:
		id, ok := fsm.ParseID(o.Mark)
		if !ok {
			return "no id: " + o.Mark
		}
		return jobKey(o.Kind, id.Key)
	case Purge:
		return purgeKey(o.Queue)
	case Configure:
		if o.Config.Topic != "" {
			return topicKey(o.Config.Topic, o.Config.MaxCount)
		}
		return configKey(o.Queue, o.Config.MaxFailures, o.Config.DeadLetter)
	}
	return ""
}

// asks: it is in its entry, with the result that was answered. Several that look the
// same may share an entry: each has one of the results.
func (w *witness) asks(op *Op) {
	if op.Outcome != OK {
		return // see askedOften
	}
	var told *oTold
	list := w.o.told[op.key()]
	for i := range list {
		t := &list[i]
		if uint64(t.index) != op.Index || op.Code != codeText(t.code) || op.Did != t.did || t.answers {
			continue
		}
		if told = t; op.sameCounts(t) {
			break
		}
	}
	if told == nil {
		w.add("witness: lost", "%v, %q %q, is not in its entry", op, op.key(), op.Code)
		return
	}
	told.answers = true
	w.bound[op] = op.Index
	switch {
	case op.sameCounts(told):
	case op.Kind == Commit:
		w.add("witness: result", "%v answers version %d, the log gives %d", op, op.Topics[0].Version, told.version)
	default:
		w.add("witness: result", "%v answers %d, the log gives %d", op, op.Moved, told.count)
	}
}

// sameCounts tells whether the numbers that an answer has are the log's.
func (o *Op) sameCounts(t *oTold) bool {
	switch o.Kind {
	case Commit:
		return o.Code != "" || o.Topics[0].Version == t.version
	case Redrive, Purge:
		return o.Moved == t.count
	}
	return true
}

// askedOften: what has no mark of its own stands in the log as often as it was sent,
// at most.
func (w *witness) askedOften() {
	sent := map[string]int{}
	refused := map[string]int{}
	for _, op := range w.h.Ops {
		k := op.key()
		switch {
		case k == "":
		case op.Outcome == Failed:
			refused[k]++
		default:
			sent[k]++
		}
	}
	for k, told := range w.o.told {
		switch n := sent[k]; {
		case len(told) <= n:
		case n > 0:
			w.add("witness: twice", "%s is in the log %d times, last in entry %d, and was sent %d times", k, len(told), told[len(told)-1].index, n)
		case refused[k] > 0:
			w.add("witness: failed took effect", "%s is in entry %d", k, told[0].index)
		default:
			w.add("witness: invented", "entry %d holds what nobody sent: %s", told[0].index, k)
		}
	}
}

// peek: the first ready jobs, in the order of delivery.
func (w *witness) peek(op *Op) {
	ready := w.o.queue(op.Queue).ready
	ready = ready[:min(op.Max, len(ready))]
	same := len(ready) == len(op.IDs)
	for i := 0; same && i < len(ready); i++ {
		id, ok := fsm.ParseID(op.IDs[i])
		same = ok && id.Key == ready[i].key
	}
	if !same {
		w.add("witness: result", "%v shows %d jobs, %v, the log gives %d", op, len(op.IDs), op.IDs, len(ready))
	}
}

// show: all that is known of a job.
func (w *witness) show(op *Op) {
	id, ok := fsm.ParseID(op.Mark)
	if !ok {
		w.add("witness: recording", "%v: %q is no id", op, op.Mark)
		return
	}
	want := Facts{State: "none"}
	if j := w.o.jobs[id.Key]; j != nil {
		want = Facts{State: j.state, Queue: j.queue, Source: j.source, Reason: j.reason, Body: j.body, Group: j.group,
			Deliveries: int(j.deliveries), Failures: int(j.failures), Redriven: j.redriven}
	} else if _, gone := w.o.gone[id.Key]; gone {
		want.State = "gone"
	}
	if *op.Facts != want {
		w.add("witness: result", "%v shows %+v, the log gives %+v", op, *op.Facts, want)
	}
}

// read: the messages of a topic from an offset on.
func (w *witness) read(op *Op) {
	t := &op.Topics[0]
	topic := w.o.topics[t.Topic]
	if op.Missing || topic == nil {
		if op.Missing != (topic == nil) {
			w.add("witness: result", "%v: the topic is missing %v, the log says %v", op, op.Missing, topic == nil)
		}
		return
	}
	want := TopicPart{First: topic.first, Next: topic.next()}
	var bodies []string
	switch {
	case t.Offset < topic.first:
		want.Trimmed = true
	case t.Offset < topic.next():
		bodies = topic.messages[t.Offset-topic.first:]
		bodies = bodies[:min(t.Limit, len(bodies))]
	}
	if t.Trimmed {
		want.Next = t.Next // not said
	}
	if t.Empty {
		want.First, want.Next = t.First, t.Next
	}
	if t.Trimmed != want.Trimmed || t.First != want.First || t.Next != want.Next || !slices.Equal(t.Bodies, bodies) {
		w.add("witness: result", "%v from %d shows %d messages, topic %d to %d, trimmed %v; the log gives %d messages, topic %d to %d, trimmed %v",
			op, t.Offset, len(t.Bodies), t.First, t.Next, t.Trimmed, len(bodies), want.First, want.Next, want.Trimmed)
		return
	}
	for i, at := range t.At {
		if at != t.Offset+uint64(i) {
			w.add("witness: result", "%v from %d: message %d has offset %d", op, t.Offset, i, at)
			return
		}
	}
}

// position: where a cursor is.
func (w *witness) position(op *Op) {
	t := &op.Topics[0]
	var want oCursor
	if topic := w.o.topics[t.Topic]; topic != nil {
		want = topic.cursors[t.Cursor]
	}
	if (oCursor{t.Offset, t.Version}) != want {
		w.add("witness: result", "%v answers %d, version %d, the log gives %+v", op, t.Offset, t.Version, want)
	}
}

// fate: what is said to be committed is in the log, and what is said to be lost is
// not, now and later.
func (w *witness) fate(op *Op) {
	if op.Outcome != OK {
		return
	}
	var node, epoch, number uint64
	if _, err := fmt.Sscanf(op.Mark, "%x.%d.%d", &node, &epoch, &number); err != nil {
		w.add("witness: recording", "%v: %q is no batch", op, op.Mark)
		return
	}
	last, some := w.lasts[[2]uint64{node, epoch}]
	there := some && number <= last
	if op.Code == "committed" && !there || op.Code == "lost" && there {
		w.add("witness: fate", "%v: batch %s is said to be %s, the log has those of its life up to %d", op, op.Mark, op.Code, last)
	}
}

// names is what an operation is about.
func (o *Op) names() string {
	name := o.Queue
	for i := range o.Topics {
		name = cmp.Or(name, fmt.Sprintf("topic %s %s", o.Topics[i].Topic, o.Topics[i].Cursor))
	}
	return name
}

// lostAnswers counts the dequeues whose client had no answer, asked again, and got what
// it had been given.
func (w *witness) lostAnswers() {
	untold := map[string]int64{} // entry in which an attempt without an answer took jobs
	for _, op := range w.h.Ops {
		if d := w.o.dequeues[op.Mark]; op.Attempt != "" && op.Outcome == Unknown && d != nil && len(d.jobs) > 0 {
			untold[op.attempt()] = d.at
		}
	}
	for _, op := range w.h.Ops {
		d := w.o.dequeues[op.Mark]
		if at, lost := untold[op.attempt()]; lost && op.Outcome == OK && len(op.Got) > 0 && d != nil && d.repeat && d.at > at {
			w.o.did["lost answer had again"]++
		}
	}
}
