package check

import (
	"cmp"
	"slices"
	"time"

	"raftq/fsm"
)

// BlackBox judges what clients can see without knowing the log: order, false
// empty answers, leases that overlap, timers that end early, keys. Each breach is
// certain; what an unknown outcome may explain is passed over.
func BlackBox(h *History) []Problem {
	jobs, p := gather(h)
	p = problems{} // what gather found is accounting's
	configs := h.configs()
	var redrives []*Op
	for _, op := range h.Ops {
		if op.Kind == Redrive && op.Outcome != Failed {
			redrives = append(redrives, op)
		}
	}
	for _, s := range jobs {
		leases(&p, h, s)
		timers(&p, h, s, configs)
		deadLetters(&p, redrives, s, configs)
		handled(&p, s)
	}
	groups(&p, h, jobs)
	pauses(&p, h)
	for queue, q := range byQueue(h, jobs) { // order does not reach output
		q.fifo(&p, queue)
		q.falseEmpty(&p, queue)
		q.purges(&p, h, queue)
	}
	dedup(&p, h)
	attempts(&p, h, jobs)
	unique(&p, jobs)
	return p.all()
}

// leases: nobody gets a job while another one certainly holds it.
func leases(p *problems, h *History, s *sent) {
	ds := slices.Clone(s.deliveries)
	slices.SortFunc(ds, func(a, b taken) int { return cmp.Compare(a.d.Fence, b.d.Fence) })
	for i := 1; i < len(ds); i++ {
		a, b := &ds[i-1], &ds[i]
		if a.d.Fence == b.d.Fence && !a.by.Fast && !b.by.Fast {
			p.add("black box: one grant", "%s: the grant of entry %d was answered to %v and %v", a.d.ID, a.d.Fence, a.by, b.by)
		}
		if end := min(a.holdsUntil(), s.handledBy(a)); b.sure() && b.by.Call > a.by.Ret && b.by.Ret < end && !h.rebooted(a.by.Call, b.by.Ret) {
			p.add("black box: lease", "%s was given to %v at %v, while %v held it until %v at least", a.d.ID, b.by, b.by.Ret, a.by, end)
		}
	}
}

// sure: the hand-out survived. A fast one is known to when it was acked strongly, and
// by nobody before; else the job may be free, and another leader may give it to
// somebody else.
func (t *taken) sure() bool { return !t.by.Fast || t.proved }

// holdsUntil is until when the job is surely that of who got it.
func (t *taken) holdsUntil() time.Duration {
	if t.by.Fast {
		return 0
	}
	end := t.call + t.by.Lease - slack(t.by.Lease)
	// An extend sets a new lease from then on, which may be a shorter one.
	if n := len(t.extended); n == 1 && t.extended[0].Outcome == OK && !t.extended[0].Fast {
		end = t.extended[0].Call + t.extended[0].Lease - slack(t.extended[0].Lease)
	} else {
		for _, e := range t.extended {
			end = min(end, e.Call+e.Lease-slack(e.Lease))
		}
	}
	for _, o := range append([]*Op{t.acked, t.givenUp}, t.tried...) {
		if o != nil {
			end = min(end, o.Call)
		}
	}
	return end
}

// timers: nothing comes before its delay, and a job fails as often as it may.
func timers(p *problems, h *History, s *sent, configs map[string]ConfigPart) {
	for _, t := range s.deliveries {
		if d := s.job.Delay; d > 0 && t.by.Ret < s.op.Call+d-slack(d) && !h.rebooted(s.op.Call, t.by.Ret) {
			p.add("black box: delay", "%s with a delay of %v came %v after it was sent", t.d.ID, d, t.by.Ret-s.op.Call)
		}
		if m := cmp.Or(s.job.MaxFailures, configs[t.d.Queue].MaxFailures); m > 0 && t.d.Failures >= m {
			p.add("black box: max failures", "%s came with %d failures, it may have %d", t.d.ID, t.d.Failures, m)
		}
		g := t.givenUp
		if g == nil || g.Kind != Nack || g.Outcome != OK || g.Fast || t.d.Queue != s.queue || len(s.handled) > 0 {
			continue // from a dead letter queue it may be redriven; or it was requeued
		}
		for _, it := range g.Items {
			if it.Receipt != t.d.Receipt || it.Code != "" || it.Delay == 0 || it.Dead {
				continue
			}
			for _, later := range s.deliveries {
				if later.d.Fence > t.d.Fence && later.by.Ret < g.Call+it.Delay-slack(it.Delay) && !h.rebooted(g.Call, later.by.Ret) {
					p.add("black box: delay", "%s came %v after a nack with a delay of %v", t.d.ID, later.by.Ret-g.Call, it.Delay)
				}
			}
		}
	}
}

// dedup: within the window one id means one job. Log time is never ahead of true
// time but by 1.2 % and 50 ms, see LogTime.
func dedup(p *problems, h *History) {
	const window = fsm.DedupTTLMs*time.Millisecond*988/1000 - 50*time.Millisecond
	type answer struct {
		op   *Op
		made Made
	}
	answers := map[[2]string][]answer{}
	for _, op := range h.Ops {
		if op.Outcome != OK || op.Fast || op.Aborted {
			continue
		}
		for i := range op.Jobs {
			if op.Jobs[i].DedupID != "" && op.Made[i].Code == "" {
				k := [2]string{op.Queue, op.Jobs[i].DedupID}
				answers[k] = append(answers[k], answer{op, op.Made[i]})
			}
		}
	}
	for k, all := range answers { // order does not reach what is found
		for i, a := range all {
			if a.made.Duplicate {
				continue // nobody may know when that job was put in
			}
			for j, b := range all {
				if a.made.ID == b.made.ID || !b.made.Duplicate && j < i || b.made.Duplicate && b.op.Call < a.op.Ret {
					continue
				}
				if max(a.op.Ret, b.op.Ret)-min(a.op.Call, b.op.Call) < window {
					p.add("black box: dedup", "%v and %v with dedup id %q made two jobs", a.op, b.op, k[1])
				}
			}
		}
	}
}

// queueView is what order and emptiness of a queue are judged by.
type queueView struct {
	plain   []plain // jobs that were ready from their answer on
	empties []*Op
	vague   []*Op // dequeues that may hold anything
}

type plain struct {
	s     *sent
	from  time.Duration // certainly ready from here
	until time.Duration // to here: nobody who could have taken it was called before
	first *taken        // the first delivery, if it is certain that it is the first
}

func byQueue(h *History, jobs map[string]*sent) map[string]*queueView {
	views := map[string]*queueView{}
	view := func(name string) *queueView {
		if views[name] == nil {
			views[name] = &queueView{}
		}
		return views[name]
	}
	configs, paused := h.configs(), map[string]bool{}
	for _, op := range h.Ops {
		if op.Kind == Pause {
			paused[op.Queue] = true
		}
		if op.Kind != Dequeue {
			continue
		}
		for _, queue := range op.queues() {
			switch v := view(queue); {
			case op.Outcome == Unknown || op.Fast || op.Outcome == Failed && op.Wait > 0:
				v.vague = append(v.vague, op)
			case op.Outcome == OK && len(op.Got) == 0:
				v.empties = append(v.empties, op)
			}
		}
	}
	for _, s := range jobs {
		// What happens in a queue that pauses or buries, and within a group, has rules
		// of its own.
		if !s.job.timeless() || s.refused() || s.job.Group != "" || paused[s.queue] || configs[s.queue].MaxFailures != 0 {
			continue
		}
		x := plain{s: s, from: s.op.Ret, until: s.purged}
		for _, o := range s.handled {
			x.until = min(x.until, o.Call)
		}
		for i := range s.deliveries {
			t := &s.deliveries[i]
			x.until = min(x.until, t.call)
			if t.d.Deliveries == 1 && !t.by.Fast {
				x.first = t
			}
		}
		view(s.queue).plain = append(view(s.queue).plain, x)
	}
	return views
}

// memory is how long a hand-out that nobody saw may keep a job from others: its
// wait, its lease, and the time of a change of leader.
func memory(o *Op) time.Duration { return o.Wait + o.Lease + 15*time.Second }

// mayHold: a dequeue of unknown outcome may have had a job between two moments.
func (q *queueView) mayHold(from, to time.Duration) bool {
	return slices.ContainsFunc(q.vague, func(o *Op) bool { return o.Call < to && o.Call+memory(o) > from })
}

// mayPass: a wait that ended empty may have been handed a job and given it back.
func (q *queueView) mayPass(from, to time.Duration) bool {
	return slices.ContainsFunc(q.empties, func(o *Op) bool { return o.Wait > 0 && o.Call < to && o.Ret+2*time.Second > from })
}

// fifo: of two jobs of a priority, of which one was answered before the other was
// sent, the earlier is not delivered after the other's first delivery was over.
func (q *queueView) fifo(p *problems, queue string) {
	a := slices.DeleteFunc(slices.Clone(q.plain), func(x plain) bool { return x.s.op.Outcome != OK || x.s.op.Fast })
	slices.SortFunc(a, func(x, y plain) int { return cmp.Compare(x.from, y.from) })
	b := slices.DeleteFunc(slices.Clone(q.plain), func(x plain) bool { return x.first == nil })
	slices.SortFunc(b, func(x, y plain) int { return cmp.Compare(x.s.op.Call, y.s.op.Call) })
	late := map[int]plain{} // by priority: who begins last, of those answered
	for _, y := range b {
		for ; len(a) > 0 && a[0].from < y.s.op.Call; a = a[1:] {
			prio := a[0].s.job.Priority
			if was, ok := late[prio]; !ok || a[0].until > was.until {
				late[prio] = a[0]
			}
		}
		x, ok := late[y.s.job.Priority]
		if ok && x.until > y.first.by.Ret && !q.mayHold(x.from, y.first.by.Ret) && !q.mayPass(x.from, y.first.by.Ret) {
			p.add("black box: order", "%s: %.40q was sent after %.40q was answered, and delivered at %v, the other not before %v", queue, y.s.job.Body, x.s.job.Body, y.first.by.Ret, x.until)
		}
	}
}

// falseEmpty: nobody finds a queue empty in which a job certainly was.
func (q *queueView) falseEmpty(p *problems, queue string) {
	a := slices.DeleteFunc(slices.Clone(q.plain), func(x plain) bool { return x.s.op.Outcome != OK || x.s.op.Fast })
	slices.SortFunc(a, func(x, y plain) int { return cmp.Compare(x.from, y.from) })
	es := slices.Clone(q.empties)
	slices.SortFunc(es, func(x, y *Op) int { return cmp.Compare(x.Call, y.Call) })
	var latest plain
	for _, e := range es {
		for ; len(a) > 0 && a[0].from < e.Call; a = a[1:] {
			if a[0].until > latest.until {
				latest = a[0]
			}
		}
		if latest.s != nil && latest.until > e.Ret && !q.mayHold(latest.from, e.Ret) && !q.mayPass(latest.from, e.Call) {
			p.add("black box: false empty", "%s: %v found nothing, though %.40q was answered at %v and taken by nobody before %v", queue, e, latest.s.job.Body, latest.from, latest.until)
		}
	}
}
