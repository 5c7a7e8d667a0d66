package check

import (
	"slices"
	"strings"
	"time"
)

// attempt names the attempt of a dequeue, "" when it has none: an id counts for one
// list of queues.
func (o *Op) attempt() string { return attemptName(o.Attempt, o.queues()) }

// firstTries are the calls of the first tries of all attempts.
func firstTries(h *History) map[string]time.Duration {
	first := map[string]time.Duration{}
	for _, op := range h.Ops {
		if op.Attempt == "" {
			continue
		}
		if was, ok := first[op.attempt()]; !ok || op.Call < was {
			first[op.attempt()] = op.Call
		}
	}
	return first
}

// took notes a delivery. An answer that repeats one of its own attempt is no other one;
// of both that one counts which promises more, or was there first.
func (s *sent) took(d *Delivery, op *Op, call time.Duration) {
	at := slices.IndexFunc(s.deliveries, func(t taken) bool {
		return op.Attempt != "" && t.d.Receipt == d.Receipt && t.by.attempt() == op.attempt()
	})
	if at < 0 {
		s.deliveries = append(s.deliveries, taken{d: d, by: op, call: call})
		return
	}
	t := &s.deliveries[at]
	other := op
	if t.by.Fast && !op.Fast || t.by.Fast == op.Fast && op.Ret < t.by.Ret {
		t.d, t.by, other = d, op, t.by
	}
	t.again = append(t.again, other)
}

// attempts: who asks again while the leases live and nobody has settled anything gets
// the same jobs with the same receipts.
func attempts(p *problems, h *History, jobs map[string]*sent) {
	tries, settled := map[string][]*Op{}, map[string]time.Duration{}
	for _, op := range h.Ops {
		if op.Attempt != "" && op.Outcome == OK && !op.Fast {
			tries[op.attempt()] = append(tries[op.attempt()], op)
		}
		for i := range op.Items {
			if was, ok := settled[op.Items[i].Receipt]; !ok || op.Call < was {
				settled[op.Items[i].Receipt] = op.Call
			}
		}
	}
	first := firstTries(h)
	for name, all := range tries { // order does not reach output
		for _, a := range all {
			until := first[name] + a.Lease - slack(a.Lease)
			for i := range a.Got {
				if s := jobs[a.Got[i].Body]; s == nil || s.job.TTL > 0 {
					until = 0
				} else {
					until = min(until, s.handledBy(&taken{call: first[name]}))
				}
				if at, ok := settled[a.Got[i].Receipt]; ok {
					until = min(until, at)
				}
			}
			for _, b := range all {
				if b.Call > a.Ret && b.Ret < until && len(a.Got) > 0 && receipts(a) != receipts(b) && !h.rebooted(first[name], b.Ret) {
					p.add("black box: attempt", "%v and %v are one attempt, and got %.200s and %.200s", a, b, receipts(a), receipts(b))
				}
			}
		}
	}
}

func receipts(op *Op) string {
	var all []string
	for i := range op.Got {
		all = append(all, op.Got[i].Receipt)
	}
	return strings.Join(all, " ")
}
