package check

import (
	"cmp"
	"slices"
	"time"
)

// unique: while a job with a unique key is surely not done no other one is taken, and
// who is refused is told of a job that has the key, and may not be done.
func unique(p *problems, jobs map[string]*sent) {
	byKey := map[[2]string][]*sent{}
	byID := map[string]*sent{}
	for _, s := range jobs { // sorted below
		if s.job.UniqueKey == "" || s.op.Fast || s.op.Outcome != OK {
			continue
		}
		k := [2]string{s.queue, s.job.UniqueKey}
		byKey[k] = append(byKey[k], s)
		if s.answered() {
			byID[s.made.ID] = s
		}
	}
	for k, all := range byKey { // order does not reach output
		slices.SortFunc(all, func(a, b *sent) int { return cmp.Compare(a.op.Call, b.op.Call) })
		for _, b := range all {
			holder := byID[b.made.ID]
			switch {
			case b.made.Code != "" && b.made.Code != "not_unique":
			case b.refused() && holder == nil: // nobody was told of it
			case b.refused() && (holder.queue != b.queue || holder.job.UniqueKey != b.job.UniqueKey || holder.op.Call > b.op.Ret):
				p.add("black box: unique key", "%v was refused for %s, which has not the key %q", b.op, b.made.ID, k[1])
			case b.refused() && holder.doneBy() < b.op.Call:
				p.add("black box: unique key", "%v was refused for %s, which was done at %v", b.op, b.made.ID, holder.doneBy())
			case b.refused():
			default:
				for _, a := range all {
					if a != b && a.answered() && a.op.Ret < b.op.Call && b.op.Ret < a.livesUntil() {
						p.add("black box: unique key", "%v was taken with key %q, though %v had it and was not done before %v", b.op, k[1], a.op, a.livesUntil())
					}
				}
			}
		}
	}
}

// doneBy is when somebody was told that the job is done; Never if nobody was.
func (s *sent) doneBy() time.Duration {
	done := Never
	for i := range s.deliveries {
		if t := &s.deliveries[i]; t.acked != nil && !t.acked.Fast {
			done = min(done, t.acked.Ret)
		}
	}
	return done
}

// livesUntil is until when the job is surely not done.
func (s *sent) livesUntil() time.Duration {
	until := s.purged
	for i := range s.deliveries {
		t := &s.deliveries[i]
		for _, o := range append([]*Op{t.acked}, t.tried...) {
			if o != nil {
				until = min(until, o.Call)
			}
		}
		if t.d.Deliveries >= 15 {
			return 0 // it may be dead
		}
	}
	if s.job.TTL > 0 || len(s.deliveries) == 0 {
		return 0 // nobody knows its end
	}
	return until
}

// purges are those that may have had an effect.
func (h *History) purges() (all []*Op) {
	for _, op := range h.Ops {
		if op.Kind == Purge && op.Outcome != Failed {
			all = append(all, op)
		}
	}
	return all
}

// purges: what was there, and with nobody, when a queue was purged does not come.
func (q *queueView) purges(p *problems, h *History, queue string) {
	for _, purge := range h.purges() {
		if purge.Queue != queue || purge.Outcome != OK {
			continue
		}
		for _, x := range q.plain {
			if x.first == nil || x.s.op.Outcome != OK || x.s.op.Fast || x.from >= purge.Call || x.first.call <= purge.Ret {
				continue
			}
			if !q.mayHold(x.from, purge.Ret) && !q.mayPass(x.from, purge.Ret) {
				p.add("black box: purge", "%s: %.40q was answered at %v, and came for the first time at %v, after %v", queue, x.s.job.Body, x.from, x.first.by.Ret, purge)
			}
		}
	}
}
