package check

import (
	"cmp"
	"slices"
	"time"
)

// topicView is what is seen of a topic.
type topicView struct {
	at     map[uint64]string // offset → body
	offset map[string]uint64 // body → offset
	reads  []*Op             // with an answer
	writes []*Op             // appends, and transactions that append
	keep   uint64            // messages, 0 = all
}

// Topics judges what clients see of topics, without the log: a message that was
// answered is at its offset with its bytes for ever, or until it is trimmed by the
// rule; offsets have no gaps and follow real time; what somebody saw stays; nobody
// goes back; cursors move one at a time.
func Topics(h *History) []Problem {
	var p problems
	sender := map[string]*Op{}
	views := map[string]*topicView{}
	view := func(topic string) *topicView {
		if views[topic] == nil {
			views[topic] = &topicView{at: map[uint64]string{}, offset: map[string]uint64{}, keep: uint64(h.configs()["topic "+topic].MaxCount)}
		}
		return views[topic]
	}
	for _, op := range h.Ops {
		if op.Kind != Append && op.Kind != Tx {
			continue
		}
		for i := range op.Topics {
			t := &op.Topics[i]
			for _, body := range t.Bodies {
				sender[body] = op
			}
			if len(t.Bodies) > 0 {
				view(t.Topic).writes = append(view(t.Topic).writes, op)
			}
		}
	}
	for _, op := range h.Ops {
		if op.Outcome != OK || op.Aborted || op.Missing {
			continue
		}
		for i := range op.Topics {
			t := &op.Topics[i]
			v := view(t.Topic)
			if op.Kind == Read {
				v.reads = append(v.reads, op)
			}
			if op.Kind == Append && op.Fast {
				continue // its offset is not known
			}
			for k, body := range t.Bodies {
				at := t.Offset + uint64(k)
				if op.Kind == Read {
					if t.At[k] != at {
						p.add("topic: gap", "%v from %d shows offset %d as message %d", op, t.Offset, t.At[k], k)
					}
					by := sender[body]
					switch {
					case by == nil:
						p.add("topic: invented", "%v shows %.60q at %d, which nobody sent", op, body, at)
					case by.Outcome == Failed || by.Aborted:
						p.add("topic: failed took effect", "%v shows %.60q at %d, of %v", op, body, at, by)
					}
				}
				if was, ok := v.at[at]; ok && was != body {
					p.add("topic: bytes", "%v: offset %d is %.60q, and was %.60q", op, at, body, was)
				}
				if was, ok := v.offset[body]; ok && was != at {
					p.add("topic: doubled", "%v: %.60q is at %d and at %d", op, body, was, at)
				}
				v.at[at], v.offset[body] = body, at
			}
		}
	}
	for name, v := range views { // order does not reach output
		v.order(&p, name)
		v.pages(&p, h, name)
	}
	cursors(&p, h)
	return p.all()
}

// end is where an operation shows the topic to end, 0 when it does not say.
func (v *topicView) end(op *Op, topic string) uint64 {
	for i := range op.Topics {
		switch t := &op.Topics[i]; {
		case t.Topic != topic || op.Outcome != OK || op.Aborted:
		case op.Kind == Read:
			return t.Next
		case !op.Fast && len(t.Bodies) > 0:
			return t.Offset + uint64(len(t.Bodies))
		}
	}
	return 0
}

// order: what was answered before another was sent is before it.
func (v *topicView) order(p *problems, name string) {
	ends := slices.DeleteFunc(slices.Clone(v.writes), func(o *Op) bool { return v.end(o, name) == 0 })
	slices.SortFunc(ends, func(a, b *Op) int { return cmp.Compare(a.Ret, b.Ret) })
	calls := slices.Clone(v.writes)
	slices.SortFunc(calls, func(a, b *Op) int { return cmp.Compare(a.Call, b.Call) })
	var last *Op
	end := uint64(0)
	for _, op := range calls {
		for ; len(ends) > 0 && ends[0].Ret < op.Call; ends = ends[1:] {
			if e := v.end(ends[0], name); e > end {
				last, end = ends[0], e
			}
		}
		for i := range op.Topics {
			t := &op.Topics[i]
			if t.Topic != name || len(t.Bodies) == 0 {
				continue
			}
			if at, ok := v.offset[t.Bodies[0]]; ok && at < end {
				p.add("topic: order", "%v is at %d, though %v had ended at %d before it was called", op, at, last, end)
			}
			for k := 1; k < len(t.Bodies); k++ {
				a, ok := v.offset[t.Bodies[k-1]]
				b, there := v.offset[t.Bodies[k]]
				if ok && there && b != a+1 {
					p.add("topic: whole", "%v: its messages %d and %d are at %d and %d", op, k-1, k, a, b)
				}
			}
		}
	}
}

// pages: a read shows all that it can, and nobody goes back: a strong one not
// behind anything that was answered before, a fast one not behind what its node showed.
func (v *topicView) pages(p *problems, h *History, name string) {
	type mark struct {
		ret time.Duration
		end uint64
		op  *Op
	}
	var marks []mark
	perNode := map[int][]mark{}
	for _, op := range slices.Concat(v.writes, v.reads) {
		if e := v.end(op, name); e > 0 {
			m := mark{op.Ret, e, op}
			marks = append(marks, m)
			if op.Kind == Read && op.Fast {
				perNode[op.Node] = append(perNode[op.Node], m)
			}
		}
	}
	sort := func(ms []mark) { slices.SortFunc(ms, func(a, b mark) int { return cmp.Compare(a.ret, b.ret) }) }
	sort(marks)
	for _, ms := range perNode {
		sort(ms)
	}
	reads := slices.Clone(v.reads)
	slices.SortFunc(reads, func(a, b *Op) int { return cmp.Compare(a.Call, b.Call) })
	var highest mark
	nodes := map[int]mark{}
	for _, op := range reads {
		t := &op.Topics[0]
		for ; len(marks) > 0 && marks[0].ret < op.Call; marks = marks[1:] {
			if marks[0].end > highest.end {
				highest = marks[0]
			}
		}
		for ms := perNode[op.Node]; len(ms) > 0 && ms[0].ret < op.Call; ms = ms[1:] {
			if ms[0].end >= nodes[op.Node].end {
				nodes[op.Node] = ms[0]
			}
			perNode[op.Node] = ms[1:]
		}
		was := highest
		if op.Fast {
			if was = nodes[op.Node]; was.op != nil && h.ended(op.Node, was.op.Call, op.Ret) {
				continue // its process ended in between
			}
		}
		switch {
		case t.Empty && t.Offset < was.end:
			p.add("topic: false empty", "%v from %d found nothing, though %v had shown the topic up to %d before", op, t.Offset, was.op, was.end)
		case t.Empty || t.Trimmed && t.Next == 0:
		case t.Next < was.end:
			p.add("topic: back", "%v shows the topic up to %d, though %v had shown it up to %d before", op, t.Next, was.op, was.end)
		}
		if t.Empty || t.Trimmed {
			continue
		}
		if n := int(min(uint64(t.Limit), max(t.Next, t.Offset)-t.Offset)); len(t.Bodies) != n {
			p.add("topic: short", "%v from %d shows %d messages of a topic up to %d, %d were asked for", op, t.Offset, len(t.Bodies), t.Next, t.Limit)
		}
		first := uint64(0)
		if v.keep > 0 && t.Next > v.keep {
			first = t.Next - v.keep
		}
		if t.First != first {
			p.add("topic: retention", "%v shows the topic from %d to %d, it is to keep %d", op, t.First, t.Next, v.keep)
		}
	}
}

// ended tells whether a node's process may have ended between two moments.
func (h *History) ended(node int, from, to time.Duration) bool {
	return slices.ContainsFunc(h.Events, func(e Event) bool {
		return e.Ended && (e.Node == node || e.Node < 0) && e.From < to && e.To > from
	})
}

// cursors: each version of a cursor is moved on by one commit at most, and nobody
// sees an older one than was answered before.
func cursors(p *problems, h *History) {
	type one struct {
		op *Op
		t  *TopicPart
	}
	byName := map[[2]string][]one{}
	for _, op := range h.Ops {
		if op.Outcome != OK || op.Aborted || op.Code != "" || op.Missing {
			continue
		}
		for i := range op.Topics {
			if t := &op.Topics[i]; t.Cursor != "" {
				k := [2]string{t.Topic, t.Cursor}
				byName[k] = append(byName[k], one{op, t})
			}
		}
	}
	for _, all := range byName { // order does not reach output
		at := map[uint64]one{}
		moved := map[uint64]one{}
		rets := slices.Clone(all)
		slices.SortFunc(rets, func(a, b one) int { return cmp.Compare(a.op.Ret, b.op.Ret) })
		slices.SortFunc(all, func(a, b one) int { return cmp.Compare(a.op.Call, b.op.Call) })
		var newest one
		for _, c := range all {
			for ; len(rets) > 0 && rets[0].op.Ret < c.op.Call; rets = rets[1:] {
				if newest.t == nil || rets[0].t.Version > newest.t.Version {
					newest = rets[0]
				}
			}
			if was, ok := at[c.t.Version]; ok && was.t.Offset != c.t.Offset {
				p.add("cursor: one version", "%v and %v answer version %d with %d and %d", was.op, c.op, c.t.Version, was.t.Offset, c.t.Offset)
			}
			at[c.t.Version] = c
			if newest.t != nil && c.t.Version < newest.t.Version {
				p.add("cursor: back", "%v answers version %d, %v had answered %d before", c.op, c.t.Version, newest.op, newest.t.Version)
			}
			if c.op.Kind == Position || c.t.IfMatch == 0 && !c.t.Create {
				continue
			}
			if was, ok := moved[c.t.IfMatch]; ok {
				p.add("cursor: If-Match", "%v and %v both moved it on from version %d", was.op, c.op, c.t.IfMatch)
			}
			moved[c.t.IfMatch] = c
			if newest.t != nil && c.t.IfMatch < newest.t.Version {
				p.add("cursor: If-Match", "%v moved it on from version %d, %v had answered %d before", c.op, c.t.IfMatch, newest.op, newest.t.Version)
			}
		}
	}
}
