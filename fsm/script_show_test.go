package fsm

import (
	"fmt"
	"strings"
	"time"
)

type markedOp struct {
	Op
	flag byte
}

func (s *script) result(op Op, r Result) string {
	if v, ok := op.(markedOp); ok {
		op = v.Op
	}
	var b strings.Builder
	if k, ok := op.(*Keyed); ok {
		op = k.Op
		b.WriteString("keyed ")
	}
	b.WriteString(strings.ToLower(strings.TrimPrefix(fmt.Sprintf("%T", op), "*fsm.")))
	if d, ok := op.(*Dequeue); ok {
		fmt.Fprintf(&b, " r%d", d.Request)
	}
	b.WriteByte(':')
	if r.Code != CodeOK {
		fmt.Fprintf(&b, " %v", r.Code)
	}
	if r.Parked {
		b.WriteString(" parked")
	}
	if r.Replay {
		b.WriteString(" replay")
	}
	for i := range r.Parts {
		b.WriteString("\n  " + strings.TrimSuffix(s.result(op.(*Tx).Ops[i], r.Parts[i]), "\n"))
	}
	if r.Count > 0 {
		fmt.Fprintf(&b, " %d jobs", r.Count)
	}
	if r.More {
		fmt.Fprintf(&b, " more, up to %d", r.UpTo)
	}
	if r.Version > 0 {
		fmt.Fprintf(&b, " version %d", r.Version)
	}
	for i, it := range r.Items {
		label := s.names[it.ID.Key]
		if e, ok := op.(*Enqueue); ok {
			name := string(e.Jobs[i].Body)
			switch {
			case it.Duplicate || it.Code == CodeNotUnique:
				label = name + ":" + label // it is another job
			case it.Code == CodeOK:
				label = name
				s.names[it.ID.Key] = name
				s.jobs[name] = []Receipt{{ID: it.ID}}
			case label == "":
				label = name
			}
		}
		fmt.Fprintf(&b, " %s=%v", label, it.Code)
		if it.Duplicate {
			b.WriteString(",duplicate")
		}
		if it.Late {
			b.WriteString(",late")
		}
		if it.Already {
			b.WriteString(",already")
		}
		if it.Dead {
			b.WriteString(",dead")
		}
		if it.Cancel {
			b.WriteString(",cancel")
		}
		if it.LeaseUntil != 0 {
			b.WriteString(",until " + show(it.LeaseUntil))
		}
	}
	b.WriteString(s.delivered(r.Jobs))
	return b.String() + "\n"
}

func (s *script) delivered(jobs []Delivered) string {
	var b strings.Builder
	for _, d := range jobs {
		s.jobs[d.Body] = append(s.jobs[d.Body], d.Receipt())
		fmt.Fprintf(&b, " %s#%d(%s until %s", d.Body, d.Grant, d.Queue, show(d.LeaseUntil))
		if d.Deliveries != d.Grant {
			fmt.Fprintf(&b, " deliveries %d", d.Deliveries)
		}
		if d.Failures > 0 {
			fmt.Fprintf(&b, " failures %d", d.Failures)
		}
		if d.LastError != "" {
			fmt.Fprintf(&b, " error %q", d.LastError)
		}
		if len(d.Headers) > 0 {
			fmt.Fprintf(&b, " headers %v", d.Headers)
		}
		if d.Fence != s.m.Position().Index+1 && d.Fence != s.m.Position().Index {
			fmt.Fprintf(&b, " fence %d", d.Fence)
		}
		b.WriteByte(')')
	}
	return b.String()
}

func (s *script) handouts(node string, all []Handout) string {
	var b strings.Builder
	for _, h := range all {
		fmt.Fprintf(&b, "%s r%d:%s\n", node, h.Request, s.delivered(h.Result.Jobs))
	}
	return b.String()
}

func show(ms int64) string { return (time.Duration(ms) * time.Millisecond).String() }

func showQueue(q QueueInfo) string {
	var b strings.Builder
	if q.PausedIn {
		b.WriteString("; paused in")
	}
	if q.PausedOut {
		b.WriteString("; paused out")
	}
	if q.PausedUntilMs != 0 {
		b.WriteString(" until " + show(q.PausedUntilMs))
	}
	return fmt.Sprintf("%s ready %d delayed %d leased %d held %d dead %d waiters %d oldest %s; enqueued %d delivered %d acked %d failed %d expired %d dead %d",
		q.Queue, q.Ready, q.Delayed, q.Leased, q.Held, q.Dead, q.Waiters, show(q.OldestReadyMs),
		q.Enqueued, q.Delivered, q.Acked, q.Failed, q.Expired, q.DeadTotal) + b.String()
}

func (s *script) showJob(name string) string {
	list := s.jobs[name]
	if len(list) == 0 {
		return "never made"
	}
	j, code := s.m.Job(list[0].ID.Key)
	if code != CodeOK {
		return code.String()
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s in %s priority %d deliveries %d failures %d last %d", j.ID, j.State, j.Queue, j.Priority, j.Deliveries, j.Failures, j.LastIndex)
	for _, f := range []struct {
		name string
		ms   int64
	}{{"deliver", j.DeliverMs}, {"lease until", j.LeaseUntil}, {"expires", j.ExpiresMs}} {
		if f.ms != 0 {
			fmt.Fprintf(&b, " %s %s", f.name, show(f.ms))
		}
	}
	for _, f := range [][2]string{{"consumer", j.Consumer}, {"error", j.LastError}, {"reason", j.DeadReason}, {"dedup", j.DedupID}, {"unique", j.UniqueKey}, {"group", j.Group}} {
		if f[1] != "" {
			fmt.Fprintf(&b, " %s %s", f[0], f[1])
		}
	}
	if j.Grant != 0 {
		fmt.Fprintf(&b, " grant %d fence %d", j.Grant, j.Fence)
	}
	if j.AtMostOnce {
		b.WriteString(" at most once")
	}
	if j.Cancel {
		b.WriteString(" cancel")
	}
	if j.DeadMs != 0 {
		b.WriteString(" died " + show(j.DeadMs))
	}
	if j.SourceQueue != "" {
		b.WriteString(" from " + j.SourceQueue)
	}
	for _, n := range []struct {
		name string
		n    uint32
	}{{"nacks", j.Nacks}, {"redriven", j.Redriven}} {
		if n.n != 0 {
			fmt.Fprintf(&b, " %s %d", n.name, n.n)
		}
	}
	return b.String()
}
