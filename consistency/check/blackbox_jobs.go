package check

import "time"

// cancelled: a cancel may have deleted the job.
func (s *sent) cancelled() bool {
	for _, o := range s.handled {
		if o.Kind == Cancel && o.Did == "" {
			return true
		}
	}
	return false
}

// handledBy is when somebody may have taken the job from who got it.
func (s *sent) handledBy(t *taken) time.Duration {
	by := Never
	for _, o := range s.handled {
		if o.Kind != Cancel && o.Ret > t.call {
			by = min(by, o.Call)
		}
	}
	return by
}

// handled: a job that was cancelled while nobody had it does not come, and one that is
// held comes only when it is requeued.
func handled(p *problems, s *sent) {
	for _, o := range s.handled {
		if o.Outcome != OK || o.Kind == Requeue || o.Did == "cancel" {
			continue
		}
		until := Never
		for _, r := range s.handled {
			if r.Kind == Requeue && r.Ret > o.Call {
				until = min(until, r.Call)
			}
		}
		for i := range s.deliveries {
			switch t := &s.deliveries[i]; {
			case t.by.Call <= o.Ret || !t.sure():
			case o.Kind == Cancel:
				p.add("black box: cancel", "%s was delivered to %v, after %v had deleted it", t.d.ID, t.by, o)
			case t.by.Ret < until:
				p.add("black box: hold", "%s was delivered to %v, while it was held since %v, until %v at least", t.d.ID, t.by, o, until)
			}
		}
	}
}
