package client

import (
	"context"
	"fmt"
	"net/http"
)

// TxOp is a part of a Tx: a Settlement, a NewJob with a queue, a TxAppend or a
// TxCursor.
type TxOp interface{ txOp() any }

func (s Settlement) txOp() any {
	it := s.item()
	it.Op = s.Verb
	return it
}

func (j NewJob) txOp() any {
	var head jobHead
	for _, f := range j.Options {
		f.jobOption(&head)
	}
	m := head.object()
	m["op"], m["queue"], m["body_base64"] = "enqueue", j.Queue, j.Body
	if j.Body == nil {
		m["body_base64"] = ""
	}
	return m
}

// TxAppend appends a message to a topic.
type TxAppend struct {
	Topic string
	NewMessage
}

func (a TxAppend) txOp() any {
	m := map[string]any{"op": "append", "topic": a.Topic, "body_base64": a.Body}
	if a.Body == nil {
		m["body_base64"] = ""
	}
	if len(a.Headers) > 0 {
		m["headers"] = a.Headers
	}
	return m
}

// TxCursor sets a position in a topic, only when it still has a version if IfMatch
// says one: 0 is that of a position which was never set.
type TxCursor struct {
	Topic, Cursor string
	Offset        uint64
	IfMatch       *uint64
}

func (p TxCursor) txOp() any {
	m := map[string]any{"op": "cursor", "topic": p.Topic, "cursor": p.Cursor, "offset": p.Offset}
	if p.IfMatch != nil {
		m["if_match"] = *p.IfMatch
	}
	return m
}

// TxResult is what became of one part of a Tx.
type TxResult struct {
	Settled          // of a Settlement; of a NewJob the ID of the job
	Duplicate bool   // of a NewJob: its DedupID was seen
	Offset    uint64 // of a TxAppend
	Version   uint64 // of a TxCursor
}

// Tx does several things all or none, in one step that nobody sees half of: acks of
// what was worked on together with the jobs that come of it, for instance. The
// results are in the order of ops. When a part cannot be done nothing is: the error
// is ErrAborted, and its Items say which parts were the reason.
func (c *Client) Tx(ctx context.Context, ops []TxOp, opts ...WriteOption) ([]TxResult, error) {
	if len(ops) == 0 || len(ops) > itemsMax {
		return nil, refuse("ops: 1 to %d of them, not %d", itemsMax, len(ops))
	}
	var o call
	for _, f := range opts {
		f.writeOption(&o)
	}
	list := make([]any, len(ops))
	for i, op := range ops {
		list[i] = op.txOp()
	}
	r := c.begin(ctx, &o, http.MethodPost, "/v1/tx", RepeatKeyed)
	if err := r.jsonBody(map[string]any{"items": list}); err != nil {
		return nil, err
	}
	var got settleAnswer
	ans, err := c.send(ctx, &o, r, &got)
	if err != nil {
		return nil, err
	}
	if len(got.Results) != len(ops) {
		return nil, notUnderstood(ans, fmt.Errorf("%d results for %d ops", len(got.Results), len(ops)))
	}
	all := make([]TxResult, len(ops))
	for i := range got.Results {
		all[i] = TxResult{got.Results[i].Settled, got.Results[i].Duplicate, got.Results[i].Offset, got.Results[i].Version}
	}
	return all, nil
}
