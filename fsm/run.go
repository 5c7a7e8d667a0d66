package fsm

import (
	"github.com/cespare/xxhash/v2"
	"github.com/tidwall/btree"
)

// run is the scratch memory of Apply. Its slices are used again for the next
// entry, except those of applied, which go to the caller.
type run struct {
	applied Applied
	self    Self
	result  *Result // of the op at hand; nil unless the batch is Self's
	depends uint64  // of the op at hand: see Result.Depends
	// answered: the op at hand has FlagAnswered, so its enqueue goes in whatever
	// limits, pauses or keys say by now.
	answered bool
	failures int // items and parts of ops of this entry that failed
	left     int // ops still to come, this one included: sizes the slabs
	sweeps   int // how many jobs the ops of this entry may still sweep: see sweep.go
	ops      opSet
	touched  []uint32 // queues that may have both ready jobs and waiters
	turns    turns
	outcome  []byte
	digest   xxhash.Digest
	lastJob  btree.PathHint // where the last job went in the tree of jobs: the next goes beside it

	// Slabs that items and hand-outs of one entry's results are cut from.
	items     []ItemResult
	delivered []Delivered
}

func (r *run) begin(self Self) {
	r.self = self
	r.result = nil
	r.left = 0
	r.touched = r.touched[:0]
	r.outcome = r.outcome[:0]
}

func (r *run) end() Applied {
	a := r.applied
	r.applied = Applied{}
	r.result = nil
	r.items, r.delivered = nil, nil
	return a
}

// itemSlab returns room for n items.
func (r *run) itemSlab(n int) []ItemResult {
	if cap(r.items)-len(r.items) < n {
		r.items = make([]ItemResult, 0, max(n, r.left))
	}
	at := len(r.items)
	r.items = r.items[:at+n]
	return r.items[at : at : at+n]
}

// deliveredSlab returns room for n hand-outs. Slabs are small: one slow reader
// keeps the whole of its slab alive.
func (r *run) deliveredSlab(n int) []Delivered {
	if cap(r.delivered)-len(r.delivered) < n {
		r.delivered = make([]Delivered, 0, max(n, min(r.left, 16)))
	}
	at := len(r.delivered)
	r.delivered = r.delivered[:at+n]
	return r.delivered[at : at : at+n]
}

func (r *run) handout(request uint64, res Result) {
	if r.applied.Handouts == nil {
		r.applied.Handouts = make([]Handout, 0, 8)
	}
	r.applied.Handouts = append(r.applied.Handouts, Handout{request, res})
}

// countOps counts the ops of a batch, up to the first that is malformed.
func countOps(ops []byte) (n int) {
	for len(ops) > 0 {
		var err error
		if _, ops, err = nextOp(ops); err != nil {
			break
		}
		n++
	}
	return n
}
