package check

import (
	"cmp"
	"slices"
	"time"
)

// groups: of a group one job is handed out at a time, and the next one only when
// what was put in before it is done.
func groups(p *problems, h *History, jobs map[string]*sent) {
	byGroup := map[[2]string][]*sent{}
	for _, s := range jobs { // sorted below
		if s.job.Group != "" && !s.refused() && s.job.timeless() {
			k := [2]string{s.queue, s.job.Group}
			byGroup[k] = append(byGroup[k], s)
		}
	}
	for _, all := range byGroup { // order does not reach output
		oneOut(p, h, all)
		inTurn(p, all)
	}
}

// oneOut: no two jobs of a group are held at once.
func oneOut(p *problems, h *History, all []*sent) {
	var ds []*taken
	for _, s := range all {
		for i := range s.deliveries {
			ds = append(ds, &s.deliveries[i])
		}
	}
	slices.SortFunc(ds, func(a, b *taken) int { return cmp.Compare(a.by.Ret, b.by.Ret) })
	// Who holds longest, of those that had their answer before the next was called.
	var holder *taken
	until := time.Duration(0)
	byCall := slices.Clone(ds)
	slices.SortFunc(byCall, func(a, b *taken) int { return cmp.Compare(a.by.Call, b.by.Call) })
	last := map[*Op]*taken{}
	for _, b := range byCall {
		for ; len(ds) > 0 && ds[0].by.Ret < b.by.Call; ds = ds[1:] {
			if end := ds[0].holdsUntil(); end > until {
				holder, until = ds[0], end
			}
		}
		switch {
		case !b.sure():
		case last[b.by] != nil && last[b.by].d.ID != b.d.ID:
			p.add("black box: group", "%v got %s and %s of group %q at once", b.by, last[b.by].d.ID, b.d.ID, b.d.Group)
		case holder != nil && holder.d.ID != b.d.ID && b.by.Ret < until && !h.rebooted(holder.by.Call, b.by.Ret):
			p.add("black box: group", "%s was given to %v at %v, while %v held %s of group %q until %v at least", b.d.ID, b.by, b.by.Ret, holder.by, holder.d.ID, b.d.Group, until)
		}
		last[b.by] = b
	}
}

// inTurn: a job is not handed out before the jobs of its group are done that were
// answered before it was sent.
func inTurn(p *problems, all []*sent) {
	type span struct {
		s    *sent
		ends time.Duration // not before
	}
	var before []span
	for _, s := range all {
		if !s.answered() || s.op.Fast {
			continue
		}
		ends := Never
		for i := range s.deliveries {
			t := &s.deliveries[i]
			if t.acked != nil {
				ends = min(ends, t.acked.Call)
			}
			for _, o := range t.tried {
				ends = min(ends, o.Call)
			}
			if t.d.Deliveries >= 15 {
				ends = 0 // it may be dead
			}
		}
		before = append(before, span{s, ends})
	}
	slices.SortFunc(before, func(a, b span) int { return cmp.Compare(a.s.op.Ret, b.s.op.Ret) })
	all = slices.Clone(all)
	slices.SortFunc(all, func(a, b *sent) int { return cmp.Compare(a.op.Call, b.op.Call) })
	late := map[int]span{} // by priority: who is done last
	for _, s := range all {
		for ; len(before) > 0 && before[0].s.op.Ret < s.op.Call; before = before[1:] {
			prio := before[0].s.job.Priority
			if was, ok := late[prio]; !ok || before[0].ends > was.ends {
				late[prio] = before[0]
			}
		}
		x, ok := late[s.job.Priority]
		for i := range s.deliveries {
			if t := &s.deliveries[i]; ok && t.sure() && t.by.Ret < x.ends {
				p.add("black box: group order", "%.40q of group %q was delivered at %v; %.40q was answered before it was sent, and not acked before %v", s.job.Body, s.job.Group, t.by.Ret, x.s.job.Body, x.ends)
				break
			}
		}
	}
}

// pauses: while a queue surely hands nothing out, nobody gets a job of it, and
// while it takes none, no job is put in.
func pauses(p *problems, h *History) {
	type span struct {
		PausePart
		from, to time.Duration
	}
	ops := map[string][]*Op{}
	for _, op := range h.Ops {
		if op.Kind == Pause && op.Outcome != Failed {
			ops[op.Queue] = append(ops[op.Queue], op)
		}
	}
	spans := map[string][]span{}
	for queue, list := range ops {
		slices.SortFunc(list, func(a, b *Op) int { return cmp.Compare(a.Call, b.Call) })
		for i, op := range list {
			if op.Outcome == Unknown {
				break // nobody knows from here on
			}
			to := Never
			if i+1 < len(list) {
				to = list[i+1].Call
			}
			if u := op.Paused.UntilMs; u > 0 {
				// Log time runs 1 % fast at most.
				d := time.Duration(u-op.TimeMs) * time.Millisecond
				to = min(to, op.Call+d-slack(d))
			}
			if !op.Paused.ends() && !h.rebooted(op.Call, to) {
				spans[queue] = append(spans[queue], span{*op.Paused, op.Ret, to})
			}
		}
	}
	tries := firstTries(h)
	for _, op := range h.Ops {
		if op.Outcome != OK || op.Fast || op.Kind != Dequeue && op.Kind != Enqueue {
			continue
		}
		all, call := spans[op.Queue], op.Call
		if op.Attempt != "" {
			call = tries[op.attempt()] // may have got them, and the answer is another one
		}
		i, _ := slices.BinarySearchFunc(all, call, func(s span, t time.Duration) int { return cmp.Compare(s.from, t) })
		if i == 0 || op.Ret >= all[i-1].to {
			continue
		}
		s := all[i-1]
		if s.Out && len(op.Got) > 0 {
			p.add("black box: pause", "%v got %d jobs, while the queue hands nothing out from %v to %v", op, len(op.Got), s.from, s.to)
		}
		for i := range op.Made {
			if s.In && op.Made[i].Code == "" && !op.Made[i].Duplicate {
				p.add("black box: pause", "%v was taken, while the queue takes nothing from %v to %v", op, s.from, s.to)
				break
			}
		}
	}
}

// deadLetters: a job is in the dead letter queue after as many failures as it may
// have, and back only by a redrive.
func deadLetters(p *problems, redrives []*Op, s *sent, configs map[string]ConfigPart) {
	c := configs[s.queue]
	if c.DeadLetter == "" {
		return
	}
	ds := slices.Clone(s.deliveries)
	slices.SortFunc(ds, func(a, b taken) int { return cmp.Compare(a.d.Fence, b.d.Fence) })
	limit := cmp.Or(s.job.MaxFailures, c.MaxFailures)
	for i := range ds {
		b := &ds[i]
		rejected := slices.ContainsFunc(ds[:i], func(t taken) bool { return t.givenUp != nil && t.givenUp.Kind == Reject })
		if b.d.Queue == c.DeadLetter && b.d.Deliveries <= limit && !rejected && !b.by.Fast {
			p.add("black box: dead letter", "%s is in %s at its delivery %d, it may fail %d times", b.d.ID, b.d.Queue, b.d.Deliveries, limit)
		}
		if i == 0 || ds[i-1].d.Queue != c.DeadLetter || b.d.Queue == c.DeadLetter || !b.sure() || !ds[i-1].sure() {
			continue
		}
		a := &ds[i-1]
		if !slices.ContainsFunc(redrives, func(o *Op) bool {
			return o.Queue == c.DeadLetter && o.Call < b.by.Ret && (o.Ret > a.by.Call)
		}) {
			p.add("black box: redrive", "%s was in %s at %v and is in %s at %v, without a redrive", a.d.ID, a.d.Queue, a.by.Ret, b.d.Queue, b.by.Ret)
		}
	}
}
