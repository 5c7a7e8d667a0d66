package check

import (
	"fmt"

	"raftq/fsm"
)

// oTx is a transaction that stood in the log, with an oTold for each of its items:
// acks, then jobs, then messages and cursors, as the workload writes them.
type oTx struct {
	index   int64
	sent    bool // by a client of the history
	aborted bool
	lines   []oLine
	jobs    []fsm.NewJob
	appends map[string][]string // bodies by topic
}

// oLine is what one item came to.
type oLine struct {
	code    fsm.Code
	result  oResult // of an ack or a job
	offset  uint64  // of a message
	version uint64  // of a cursor
}

// tx looks first whether something would fail, and then does all or none. That is
// another way than that of the machine, which does it and undoes it.
func (o *oracle) tx(h fsm.BatchHeader, op *fsm.Tx) error {
	tx := oTx{index: o.index, appends: map[string][]string{}}
	grown := map[string]int{}
	for _, part := range op.Ops {
		switch part := part.(type) {
		case *fsm.Settle:
			for i := range part.Items {
				if part.Items[i].Verb != fsm.VerbAck {
					return fmt.Errorf("the oracle knows acks alone within a transaction: %+v", part.Items[i])
				}
				tx.add(o.mayAck(&part.Items[i].Item))
			}
		case *fsm.Enqueue:
			if err := known(part); err != nil {
				return err
			}
			for i := range part.Jobs {
				n := &part.Jobs[i]
				if n.DedupID != "" || n.UniqueKey != "" {
					return fmt.Errorf("the oracle knows no dedup ids and unique keys within a transaction")
				}
				code := fsm.CodeOK
				if o.queue(n.Queue).in {
					code = fsm.CodeQueuePaused
				}
				tx.add(code)
				tx.jobs = append(tx.jobs, *n)
			}
		case *fsm.Append:
			for range part.Messages {
				tx.add(fsm.CodeOK)
			}
			grown[part.Topic] += len(part.Messages)
			tx.appends[part.Topic] = append(tx.appends[part.Topic], bodiesOf(part)...)
		case *fsm.SetCursor:
			tx.add(o.mayMove(part, grown[part.Topic]))
		default:
			return fmt.Errorf("the oracle knows no %T within a transaction", part)
		}
	}
	if len(tx.jobs) == 0 {
		return fmt.Errorf("a transaction without a job, of which nobody knows whose it is")
	}
	if tx.aborted {
		o.did["tx aborted"]++
		for i := range tx.lines {
			if l := &tx.lines[i]; l.code == fsm.CodeOK {
				l.code = fsm.CodeAborted
			}
		}
	} else {
		o.did["tx"]++
		o.doTx(h, op, &tx)
	}
	body := string(tx.jobs[0].Body)
	o.txs[body] = append(o.txs[body], tx)
	return nil
}

func (t *oTx) add(code fsm.Code) {
	t.lines = append(t.lines, oLine{code: code})
	t.aborted = t.aborted || code != fsm.CodeOK
}

// mayAck is what an ack would come to.
func (o *oracle) mayAck(it *fsm.Item) fsm.Code {
	j := o.jobs[it.Key]
	switch {
	case j != nil && j.holds(it):
		return fsm.CodeOK
	case j != nil:
		return fsm.CodeLeaseLost
	}
	code, ok := o.gone[it.Key]
	if !ok {
		return fsm.CodeJobNotFound
	}
	return code
}

func (o *oracle) doTx(h fsm.BatchHeader, op *fsm.Tx, tx *oTx) {
	at := 0
	line := func() *oLine {
		at++
		return &tx.lines[at-1]
	}
	for _, part := range op.Ops {
		switch part := part.(type) {
		case *fsm.Settle:
			for i := range part.Items {
				it := &part.Items[i].Item
				l := line()
				if j := o.jobs[it.Key]; j != nil {
					l.result = o.ack(j, it)
				} else {
					l.result.already = true
				}
			}
		case *fsm.Enqueue:
			for _, res := range o.enqueue(h, part, false) {
				line().result = res
			}
		case *fsm.Append:
			offset := o.appendTo(part)
			for i := range part.Messages {
				line().offset = offset + uint64(i)
			}
		case *fsm.SetCursor:
			o.moveCursor(part)
			line().version = uint64(o.index)
		}
	}
}
