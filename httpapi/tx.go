package httpapi

import (
	"strconv"
	"strings"

	"raftq/fsm"
)

// txItem is one line of a transaction: a job to settle or to add, a message to
// append, or a position to commit.
type txItem struct {
	kind   txKind
	settle settleItem // of txSettle
	part   int        // which of the tx's ops holds it
	at     int        // and which of that op's items it is
}

type txKind uint8

const (
	txSettle txKind = iota
	txEnqueue
	txAppend
	txCursor
)

// txList is a transaction while it is read. What follows each other and goes into
// one op does.
type txList struct {
	c              *call
	items          []txItem
	ops            []fsm.Op
	jobs, messages jobList
}

// tx does all of a list or none, in one log entry. Its items are those of a settle,
// enqueues and appends, which are envelopes with an op and a queue or topic, and
// positions of cursors.
func (c *call) tx() error {
	l := txList{c: c, jobs: c.newList(jobOptions, "jobs", "")}
	l.jobs.named = "queue"
	l.messages = jobList{s: c.s, allowed: messageOptions, what: "messages", named: "topic", body: l.jobs.body}
	r := jsonReader{b: l.jobs.body}
	err := r.itemList(func(n int) error {
		if err := l.read(&r); err != nil {
			return asProblem(err).at("items", n)
		}
		return nil
	})
	if err == nil {
		err = r.end()
	}
	if err != nil {
		return err
	}
	if l.jobs.replicate > 0 {
		return invalid("replicate", "not within a transaction")
	}
	if l.jobs.bytes+l.messages.bytes > fsm.BatchBytesMax && len(l.items) > 1 {
		return refuse(fsm.CodeBodyTooLarge, "the bodies of a transaction have at most %d bytes together", fsm.BatchBytesMax)
	}
	res, err := c.submit(&fsm.Tx{Ops: l.ops}, c.timeout(), nil)
	if err != nil {
		return err
	}
	return l.answer(&res)
}

func (l *txList) read(r *jsonReader) error {
	name, err := opOf(*r)
	if err != nil {
		return err
	}
	switch string(name) {
	case "enqueue":
		return l.readJob(r)
	case "append":
		return l.readMessage(r)
	case "cursor":
		return l.readCursor(r)
	}
	it := txItem{settle: settleItem{item: fsm.Item{DelayMs: -1}, verb: verbOf(name)}}
	if it.settle.verb == nil {
		return invalid("op", "want enqueue, ack, nack, release, reject, extend, append or cursor")
	}
	if err := it.settle.read(r, true); err != nil {
		return err
	}
	if it.settle.bad {
		return refuse(fsm.CodeBadJobID, "neither a receipt nor an id of this cluster")
	}
	op, ok := l.last().(*fsm.Settle)
	if !ok {
		op = &fsm.Settle{}
		l.ops = append(l.ops, op)
	}
	op.Items = append(op.Items, fsm.SettleItem{Verb: it.settle.verb.kind, Item: it.settle.item})
	it.part, it.at = len(l.ops)-1, len(op.Items)-1
	l.items = append(l.items, it)
	return nil
}

func (l *txList) readJob(r *jsonReader) error {
	l.jobs.queue = ""
	if err := l.jobs.envelope(r); err != nil {
		return err
	}
	op, ok := l.last().(*fsm.Enqueue)
	if !ok {
		op = &fsm.Enqueue{}
		l.ops = append(l.ops, op)
	}
	op.Jobs = append(op.Jobs, l.jobs.jobs[len(l.jobs.jobs)-1])
	l.items = append(l.items, txItem{kind: txEnqueue, part: len(l.ops) - 1, at: len(op.Jobs) - 1})
	return nil
}

func (l *txList) readMessage(r *jsonReader) error {
	m := &l.messages
	m.queue, m.jobs = "", m.jobs[:0]
	if err := m.envelope(r); err != nil {
		return err
	}
	op, ok := l.last().(*fsm.Append)
	if !ok || op.Topic != m.queue {
		op = &fsm.Append{Topic: m.queue}
		l.ops = append(l.ops, op)
	}
	op.Messages = append(op.Messages, m.messages()...)
	l.items = append(l.items, txItem{kind: txAppend, part: len(l.ops) - 1, at: len(op.Messages) - 1})
	return nil
}

func (l *txList) readCursor(r *jsonReader) error {
	var o options
	ops := 0
	err := r.members(func(name []byte) error {
		v, err := r.value()
		if err == nil && string(name) == "op" {
			if ops++; ops == 1 {
				return nil
			}
			return invalid("op", "given twice")
		}
		if err != nil {
			return err
		}
		return o.set(name, v, commitOptions)
	})
	switch {
	case err != nil:
		return err
	case !o.given.has(optTopic), !o.given.has(optCursorName), !o.given.has(optOffset):
		return invalid("cursor", "name a topic, a cursor and an offset")
	}
	l.ops = append(l.ops, &fsm.SetCursor{Topic: o.topic, Cursor: o.cursorName, Offset: o.offset, IfMatch: o.ifMatch, Create: o.given.has(optIfMatch) && o.ifMatch == 0})
	l.items = append(l.items, txItem{kind: txCursor, part: len(l.ops) - 1})
	return nil
}

func (l *txList) last() fsm.Op {
	if len(l.ops) == 0 {
		return nil
	}
	return l.ops[len(l.ops)-1]
}

// result returns what became of an item: of an own line of its op's result, or of
// the whole op, when it has no lines.
func (it *txItem) result(res *fsm.Result) (r *fsm.ItemResult, ok bool) {
	if it.part >= len(res.Parts) {
		return nil, false
	}
	part := &res.Parts[it.part]
	if it.kind == txAppend || it.kind == txCursor {
		return &fsm.ItemResult{Code: part.Code}, true
	}
	if it.at >= len(part.Items) {
		return nil, false
	}
	return &part.Items[it.at], true
}

// answer writes a line for each item. When the transaction was not done the lines
// say why, and the problem names the items that were the reason.
func (l *txList) answer(res *fsm.Result) error {
	c := l.c
	if res.Code != fsm.CodeOK && res.Code != fsm.CodeAborted {
		return refuse(res.Code, "nothing of the transaction was done")
	}
	var reasons []string
	b := append([]byte(nil), `[`...)
	for i := range l.items {
		it := &l.items[i]
		r, ok := it.result(res)
		if !ok {
			return asProblem(errShortResult)
		}
		if i > 0 {
			b = append(b, ',')
		}
		if r.Code != fsm.CodeOK && r.Code != fsm.CodeAborted {
			reasons = append(reasons, (&problem{detail: r.Code.String()}).at("items", i).detail)
		}
		if res.Code == fsm.CodeOK && r.Code == fsm.CodeOK && !c.replay {
			it.count(c.s.stats)
		}
		b = it.append(b, r, &res.Parts[it.part])
	}
	b = append(b, ']')
	if res.Code != fsm.CodeOK {
		p := refuse(res.Code, "nothing of the transaction was done: %s", strings.Join(reasons, "; "))
		p.results = b
		return p
	}
	c.out = append(c.appendUncommitted(append(append(c.out[:0], `{"results":`...), b...)), "}\n"...)
	return c.answer(200, typeJSON)
}

func (it *txItem) count(s *stats) {
	switch it.kind {
	case txSettle:
		it.settle.verb.count(s).Add(1)
	case txEnqueue:
		s.enqueued.Add(1)
	case txAppend:
		s.appended.Add(1)
	}
}

// append appends the item's line.
func (it *txItem) append(b []byte, r *fsm.ItemResult, part *fsm.Result) []byte {
	switch {
	case it.kind == txSettle:
		return appendItem(b, it.settle.id, r, 200)
	case r.Code != fsm.CodeOK:
		return append(appendItemError(append(b, '{'), r.Code, ""), '}')
	case it.kind == txEnqueue:
		return appendItem(b, r.ID, r, 201)
	case it.kind == txAppend:
		b = strconv.AppendUint(append(b, `{"offset":`...), part.Offset+uint64(it.at), 10)
		return append(b, `,"status":201}`...)
	}
	b = strconv.AppendUint(append(b, `{"version":`...), part.Version, 10)
	return append(b, `,"status":200}`...)
}
