package check

import (
	"cmp"
	"slices"
	"sort"
	"time"

	"raftq/fsm"
)

// Replay is what the log did, for those who ask after Witness.
type Replay struct {
	// Did counts what happened: "kept by a group", "dead letter", "tx" and so on.
	Did map[string]int

	o      *oracle
	log    []Entry
	proofs []proof // by index
}

// proof that an entry was committed: somebody was answered so.
type proof struct {
	index uint64
	ret   time.Duration // the first such answer at this index or above
}

func newReplay(h *History, o *oracle, log []Entry) *Replay {
	r := &Replay{Did: o.did, o: o, log: log}
	for _, op := range h.Ops {
		if op.Outcome == OK && !op.Fast && op.Index > 0 {
			r.proofs = append(r.proofs, proof{op.Index, op.Ret})
		}
	}
	slices.SortFunc(r.proofs, func(a, b proof) int { return cmp.Compare(a.index, b.index) })
	for i := len(r.proofs) - 2; i >= 0; i-- {
		r.proofs[i].ret = min(r.proofs[i].ret, r.proofs[i+1].ret)
	}
	return r
}

// by is when an entry was committed, at the latest: when somebody had an answer that
// reflects it.
func (r *Replay) by(index int64) time.Duration {
	i := sort.Search(len(r.proofs), func(i int) bool { return r.proofs[i].index >= uint64(index) })
	if i == len(r.proofs) {
		return Never
	}
	return r.proofs[i].ret
}

// untold tells whether a dequeue was handed jobs of which its answer says nothing: its
// client had left or was told that nothing came, and the jobs were given back, or the
// node ended before it could.
func (r *Replay) untold(op *Op) bool {
	if r == nil || op.Kind != Dequeue {
		return false
	}
	d := r.o.dequeues[op.Mark]
	return d != nil && len(d.jobs) > 0 && (len(op.Got) == 0 || slices.ContainsFunc(d.jobs, func(g oGrant) bool { return g.back }))
}

// resolve says what an operation of unknown outcome did, or a dequeue with untold
// jobs: nothing, or one or two operations whose answers and times the log gives.
// ok is false when it cannot be told.
func (r *Replay) resolve(op *Op) (did []*Op, ok bool) {
	switch op.Kind {
	case Enqueue:
		made := r.o.enqueues[op.Jobs[0].Body]
		if len(made) == 0 {
			return nil, true
		}
		return []*Op{r.happened(op, made[0].index)}, len(made) == 1
	case Dequeue:
		return r.handed(op)
	case Ack, Nack, Release:
		return r.settled(op)
	}
	return nil, !op.written() || op.Outcome == Failed
}

// happened is an operation that took effect in an entry.
func (r *Replay) happened(op *Op, index int64) *Op {
	c := *op
	c.Outcome, c.Index, c.Ret = OK, uint64(index), r.by(index)
	return &c
}

// handed is a dequeue with what the log gave it, and a release of what it gave back.
func (r *Replay) handed(op *Op) (did []*Op, ok bool) {
	d := r.o.dequeues[op.Mark]
	switch {
	case d == nil || len(d.jobs) == 0:
		return nil, true
	case d.again:
		return nil, false
	}
	taken := r.happened(op, d.at)
	taken.Got = nil
	back := map[int64][]Item{}
	for _, g := range d.jobs {
		receipt := receiptOf(g)
		taken.Got = append(taken.Got, Delivery{Body: g.body, Receipt: receipt})
		if g.back {
			back[g.backAt] = append(back[g.backAt], Item{Receipt: receipt})
		}
	}
	did = append(did, taken)
	for at, items := range back {
		given := r.happened(op, at)
		given.Kind, given.Items, given.Got = Release, items, nil
		did = append(did, given)
	}
	return did, true
}

// receiptOf is a receipt of a hand-out that nobody got: it is like no other.
func receiptOf(g oGrant) string {
	return fsm.Receipt{ID: fsm.ID{Key: g.key}, Grant: g.grant, Tag: g.tag}.String()
}

// settled is a settle with the results that the log gives. Nobody else may have
// named its receipts.
func (r *Replay) settled(op *Op) (did []*Op, ok bool) {
	items := slices.Clone(op.Items)
	at := int64(0)
	for i := range items {
		it := &items[i]
		receipt, valid := fsm.ParseReceipt(it.Receipt)
		if !valid {
			return nil, false
		}
		dones := r.o.items[oItem{op.Kind, receipt.ID.Key, receipt.Grant, receipt.Tag}]
		switch {
		case len(dones) == 0 && at == 0 && i == len(items)-1:
			return nil, true
		case len(dones) == 0 && at == 0:
			continue
		case len(dones) != 1 || at != 0 && dones[0].index != at || at == 0 && i > 0:
			return nil, false
		}
		at = dones[0].index
		it.Code, it.Already = codeText(dones[0].result.code), dones[0].result.already
	}
	c := r.happened(op, at)
	c.Items = items
	return []*Op{c}, true
}
