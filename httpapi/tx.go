package httpapi

import (
	"strings"

	"raftq/fsm"
)

// txItem is one line of a transaction: a job to settle, or one to add.
type txItem struct {
	settle settleItem // verb nil: the item adds job
	part   int        // which of the tx's ops holds it
	at     int        // and which of that op's items it is
}

// txList is a transaction while it is read. What follows each other and goes into
// one op does.
type txList struct {
	c     *call
	items []txItem
	ops   []fsm.Op
	jobs  jobList
}

// tx does all of a list or none, in one log entry. Its items are those of a settle,
// and enqueues, which are envelopes with an op and a queue.
func (c *call) tx() error {
	// One copy of the whole request; the jobs' bodies are slices of it.
	l := txList{c: c, jobs: jobList{s: c.s, body: append([]byte(nil), c.ctx.Request.Body()...)}}
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
	if string(name) == "enqueue" {
		return l.readJob(r)
	}
	it := txItem{settle: settleItem{item: fsm.Item{DelayMs: -1}, verb: verbOf(name)}}
	if it.settle.verb == nil {
		return invalid("op", "want enqueue, ack, nack, release, reject or extend")
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
	l.jobs.queue, l.jobs.named = "", true
	if err := l.jobs.envelope(r); err != nil {
		return err
	}
	op, ok := l.last().(*fsm.Enqueue)
	if !ok {
		op = &fsm.Enqueue{}
		l.ops = append(l.ops, op)
	}
	op.Jobs = append(op.Jobs, l.jobs.jobs[len(l.jobs.jobs)-1])
	l.items = append(l.items, txItem{part: len(l.ops) - 1, at: len(op.Jobs) - 1})
	return nil
}

func (l *txList) last() fsm.Op {
	if len(l.ops) == 0 {
		return nil
	}
	return l.ops[len(l.ops)-1]
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
		if it.part >= len(res.Parts) || it.at >= len(res.Parts[it.part].Items) {
			return asProblem(errShortResult)
		}
		if i > 0 {
			b = append(b, ',')
		}
		r, id, status := &res.Parts[it.part].Items[it.at], it.settle.id, 200
		if it.settle.verb == nil {
			id, status = r.ID, 201
		}
		switch {
		case r.Code != fsm.CodeOK:
			if r.Code != fsm.CodeAborted {
				reasons = append(reasons, (&problem{detail: r.Code.String()}).at("items", i).detail)
			}
			if it.settle.verb == nil {
				b = append(appendItemError(append(b, '{'), r.Code, ""), '}')
				continue
			}
		case c.replay || res.Code != fsm.CodeOK:
		case it.settle.verb == nil:
			c.s.stats.enqueued.Add(1)
		default:
			it.settle.verb.count(c.s.stats).Add(1)
		}
		b = appendItem(b, id, r, status)
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
