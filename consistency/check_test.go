package consistency

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

// verdict counts what a history shows.
type verdict struct {
	enqueued, unknown, delivered, acked int
	lost, doubled, invented, overlaps   []string
}

func (v verdict) String() string {
	return fmt.Sprintf("%d enqueues answered, %d unknown, %d deliveries, %d jobs acked, lost %d, doubled %d, invented %d, overlapping leases %d",
		v.enqueued, v.unknown, v.delivered, v.acked, len(v.lost), len(v.doubled), len(v.invented), len(v.overlaps))
}

// judge checks a history whose queue was drained at the end.
func (h *history) judge() verdict {
	h.mu.Lock()
	defer h.mu.Unlock()
	var v verdict
	byBody := map[string][]*delivery{}
	for _, d := range h.deliveries {
		v.delivered++
		e := h.enqueues[d.body]
		switch {
		case e == nil:
			v.invented = append(v.invented, fmt.Sprintf("job %s with a body nobody sent: %.40q", d.id, d.body))
			continue
		case e.outcome == refused:
			v.invented = append(v.invented, fmt.Sprintf("job %s was answered as not applied", d.id))
		case e.outcome == done && e.id != d.id:
			v.doubled = append(v.doubled, fmt.Sprintf("body of job %s came as %s", e.id, d.id))
		}
		byBody[d.body] = append(byBody[d.body], d)
	}
	for body, e := range h.enqueues {
		switch e.outcome {
		case done:
			v.enqueued++
		case unknown:
			v.unknown++
		}
		ds := byBody[body]
		slices.SortFunc(ds, func(a, b *delivery) int { return int(a.fence) - int(b.fence) })
		var ackRet time.Duration
		acked := false
		for i, d := range ds {
			if d.id != ds[0].id {
				v.doubled = append(v.doubled, fmt.Sprintf("one enqueue became jobs %s and %s", ds[0].id, d.id))
			}
			if i > 0 {
				p := ds[i-1]
				if p.fence == d.fence {
					v.overlaps = append(v.overlaps, fmt.Sprintf("job %s: grant %d was answered twice", d.id, d.fence))
				}
				// The lease holds from the answer until the first moment at which
				// it can be over: its length from the call on, less the promised 1 % + 50 ms.
				end := p.call + p.lease - p.lease/100 - 50*time.Millisecond
				if p.ackCall > 0 && p.ackCall < end {
					end = p.ackCall
				}
				if d.ret < end && d.call > p.ret {
					v.overlaps = append(v.overlaps, fmt.Sprintf("job %s: given out %v after a grant of %v", d.id, d.ret-p.ret, p.lease))
				}
			}
			if acked && d.call > ackRet {
				v.doubled = append(v.doubled, fmt.Sprintf("job %s handed out %v after its ack was answered", d.id, d.call-ackRet))
			}
			if d.ack == done {
				if !acked || d.ackRet < ackRet {
					ackRet = d.ackRet
				}
				acked = true
			}
		}
		if acked {
			v.acked++
		}
		if e.outcome == done && !acked && !slices.ContainsFunc(ds, func(d *delivery) bool { return d.ackCall > 0 }) {
			v.lost = append(v.lost, fmt.Sprintf("job %s, enqueued at %v, delivered %d times, never acked", e.id, e.ret, len(ds)))
		}
	}
	return v
}

// mustHold fails the test on any breach.
func (v verdict) mustHold(t *testing.T) {
	t.Helper()
	for name, list := range map[string][]string{"lost": v.lost, "doubled": v.doubled, "invented": v.invented, "overlap": v.overlaps} {
		slices.Sort(list)
		for i, s := range list {
			if i == 5 {
				t.Errorf("%s: … and %d more", name, len(list)-5)
				break
			}
			t.Errorf("%s: %s", name, s)
		}
	}
	if v.enqueued == 0 || v.acked == 0 {
		t.Errorf("vacuous: %v", v)
	}
}
