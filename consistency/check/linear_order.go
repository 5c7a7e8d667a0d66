package check

import (
	"cmp"
	"fmt"
	"slices"

	"raftq/fsm"
)

// certify tells whether an order of a window's operations proves that they are
// linearizable: it is one of all of them, it puts none before another that had ended
// when it was called, and the model gives each answer in it. It does not matter where
// the order comes from.
func (m *queueModel) certify(ops, order []*Op) error {
	left := map[*Op]bool{}
	for _, op := range ops {
		left[op] = true
	}
	var s lState
	var latest *Op // was called last of those so far: each takes effect then, or at its own call
	for _, op := range order {
		if !left[op] {
			return fmt.Errorf("%v is none of them, or stands there twice", op)
		}
		delete(left, op)
		if latest != nil && op.Ret < latest.Call {
			return fmt.Errorf("%v returned at %v, before %v was called at %v, and stands behind it", op, op.Ret, latest, latest.Call)
		}
		if latest == nil || op.Call > latest.Call {
			latest = op
		}
		ok, next := m.step(s, op)
		if !ok {
			return fmt.Errorf("%v cannot have answered so there: %s", op, op.describe())
		}
		s = next
	}
	for _, op := range ops {
		if left[op] {
			return fmt.Errorf("%v has no place in it", op)
		}
	}
	return nil
}

// logOrder is the order in which the log has a window's operations: by entry, and in
// an entry by place. A dequeue that waited got its jobs as soon as they were there.
// Reads, and dequeues that found nothing and are not in the log, stand behind the
// entry that they reflect. What has no place is left out.
func (m *queueModel) logOrder(ops []*Op, r *Replay) (order []*Op) {
	if r == nil {
		return nil
	}
	byEntry := map[uint64][]*Op{}
	for _, op := range ops {
		at := r.at(op)
		byEntry[at] = append(byEntry[at], op)
	}
	indexes := make([]uint64, 0, len(byEntry))
	for index, here := range byEntry {
		indexes = append(indexes, index)
		slices.SortStableFunc(here, func(a, b *Op) int { return cmp.Compare(a.Call, b.Call) })
	}
	slices.Sort(indexes)
	var s lState
	do := func(op *Op) bool {
		ok, next := m.step(s, op)
		if ok {
			s, order = next, append(order, op)
		}
		return ok
	}
	for _, index := range indexes {
		asked := r.asked(index)
		own := make([][]*Op, len(asked)) // the window's operation that each of the entry is, if any
		var waiting, behind []*Op        // dequeues that get jobs here; reads
		for _, op := range byEntry[index] {
			at := slices.IndexFunc(asked, func(names []string) bool { return slices.Contains(names, op.logName()) })
			switch {
			case at >= 0:
				own[at] = append(own[at], op)
			case op.Kind == Dequeue && len(op.Got) > 0:
				waiting = append(waiting, op)
			default:
				behind = append(behind, op)
			}
		}
		for _, ops := range own {
			for _, op := range ops {
				if op.Kind == Dequeue && len(op.Got) > 0 {
					waiting = append(waiting, op)
				} else if !do(op) {
					return append(order, op)
				}
			}
			for i := 0; i < len(waiting); i++ {
				if do(waiting[i]) {
					waiting = slices.Delete(waiting, i, i+1)
					i = -1
				}
			}
		}
		for _, op := range append(waiting, behind...) {
			if !do(op) {
				return append(order, op)
			}
		}
	}
	return order
}

// at is the entry in which an operation took effect, or which it reflects.
func (r *Replay) at(op *Op) uint64 {
	if d := r.o.dequeues[op.Mark]; op.Kind == Dequeue && d != nil {
		if len(op.Got) > 0 {
			return uint64(d.at)
		}
		return uint64(d.index) // nothing was there, so that it had to wait
	}
	return op.Index
}

// asked are the names of what an entry's operations ask for, in their order.
func (r *Replay) asked(index uint64) (all [][]string) {
	if index < 2 || index-2 >= uint64(len(r.log)) || len(r.log[index-2].Data) == 0 {
		return nil
	}
	_, ops, err := fsm.DecodeOps(r.log[index-2].Data)
	if err != nil {
		return nil
	}
	for _, op := range ops {
		all = append(all, logNames(op))
	}
	return all
}

// logNames are what an operation of the log can be known by.
func logNames(op fsm.Op) (names []string) {
	items := func(kind Kind, items []fsm.Item) {
		for i := range items {
			names = append(names, itemName(kind, items[i].Key, items[i].Grant, items[i].Tag))
		}
	}
	switch op := op.(type) {
	case *fsm.Enqueue:
		for i := range op.Jobs {
			names = append(names, Enqueue.String()+" "+string(op.Jobs[i].Body))
		}
	case *fsm.Dequeue:
		names = append(names, Dequeue.String()+" "+op.Consumer)
	case *fsm.Ack:
		items(Ack, op.Items)
	case *fsm.Nack:
		items(Nack, op.Items)
	case *fsm.Release:
		items(Release, op.Items)
	case *fsm.GiveBack: // see Replay.handed
		items(Release, op.Items)
	}
	return names
}

func itemName(kind Kind, key fsm.Key, grant uint32, tag uint64) string {
	return fmt.Sprintf("%v %v %d %d", kind, key, grant, tag)
}

// logName is one of the names of an operation in the log, "" if it has none.
func (o *Op) logName() string {
	switch o.Kind {
	case Enqueue:
		return Enqueue.String() + " " + o.Jobs[0].Body
	case Dequeue:
		return Dequeue.String() + " " + o.Mark
	case Ack, Nack, Release:
		if r, ok := fsm.ParseReceipt(o.Items[0].Receipt); ok {
			return itemName(o.Kind, r.ID.Key, r.Grant, r.Tag)
		}
	}
	return ""
}
