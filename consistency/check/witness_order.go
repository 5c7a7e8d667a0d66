package check

import (
	"cmp"
	"slices"
	"time"
)

// order: what ended before another was called is before it in the log. Fast
// operations count with the place that they got in the end, and only as the later
// one: before the commit they promise no place.
func (w *witness) order() {
	type place struct {
		op    *Op
		index uint64
	}
	var all []place
	for _, op := range w.h.Ops {
		index := op.Index
		if b, ok := w.bound[op]; ok {
			index = b
		} else if op.Fast || op.written() {
			continue
		}
		if op.Outcome == OK {
			all = append(all, place{op, index})
		}
	}
	// From the end of the log on: nobody at a lower index may be called after
	// somebody at a higher one returned. Within an index writes come first.
	slices.SortStableFunc(all, func(a, b place) int { return cmp.Compare(b.index, a.index) })
	var first *Op // the earliest end at higher indexes
	ret := func(o *Op) time.Duration {
		if o == nil {
			return Never
		}
		return o.Ret
	}
	for len(all) > 0 {
		n := 1
		for n < len(all) && all[n].index == all[0].index {
			n++
		}
		group := all[:n]
		all = all[n:]
		earliest := first
		for _, p := range group {
			if ret(first) < p.op.Call {
				w.add("witness: order", "%v at index %d was called after %v had returned at %v", p.op, p.index, first, first.Ret)
			}
			if !p.op.Fast && p.op.Ret < ret(earliest) {
				earliest = p.op
			}
		}
		for _, a := range group {
			for _, b := range group {
				if b.op.written() && a.op.Outcome == OK && !a.op.Fast && a.op.Ret < b.op.Call {
					w.add("witness: order", "%v shares its entry with %v, which returned before", b.op, a.op)
				}
			}
		}
		first = earliest
	}
}
