package check

import "time"

// slack is how much earlier than promised something may end, and how much later
// a clock of ours may have seen it.
func slack(d time.Duration) time.Duration { return d/100 + 50*time.Millisecond }

// Summary is what a history is made of.
type Summary struct {
	Ops, OK, Unknown, Failed, Fast  int
	Jobs, FastLost, Delivered, Done int
	Kinds                           [kindEnd]int // OK ones
}

// sent is what is known of a job, by its body.
type sent struct {
	op         *Op
	job        *Job
	made       *Made // nil without an answer
	deliveries []taken
}

// taken is one delivery and what its holder did.
type taken struct {
	d        *Delivery
	by       *Op
	acked    *Op // with success
	tried    *Op // an ack without a known outcome
	givenUp  *Op // nack or release, of whatever outcome
	extended []*Op
}

// gather puts the operations on each job together.
func gather(h *History) (jobs map[string]*sent, p problems) {
	jobs = map[string]*sent{}
	byReceipt := map[string]*taken{}
	for _, op := range h.Ops {
		for i := range op.Jobs {
			s := &sent{op: op, job: &op.Jobs[i]}
			if op.Outcome == OK {
				s.made = &op.Made[i]
			}
			jobs[op.Jobs[i].Body] = s
		}
	}
	for _, op := range h.Ops {
		for i := range op.Got {
			d := &op.Got[i]
			s := jobs[d.Body]
			if s == nil {
				p.add("accounting: invented", "%v got a body that nobody sent: %.80q", op, d.Body)
				continue
			}
			s.deliveries = append(s.deliveries, taken{d: d, by: op})
		}
	}
	for _, s := range jobs {
		for i := range s.deliveries {
			byReceipt[s.deliveries[i].d.Receipt] = &s.deliveries[i]
		}
	}
	for _, op := range h.Ops {
		for i := range op.Items {
			t := byReceipt[op.Items[i].Receipt]
			if t == nil {
				continue
			}
			done := op.Outcome == OK && op.Items[i].Code == ""
			switch op.Kind {
			case Ack:
				switch {
				case done && (t.acked == nil || op.Ret < t.acked.Ret):
					t.acked = op
				case op.Outcome == Unknown:
					t.tried = op
				}
			case Nack, Release:
				if (done || op.Outcome == Unknown) && (t.givenUp == nil || op.Call < t.givenUp.Call) {
					t.givenUp = op
				}
			case Extend:
				if op.Outcome == Unknown || done {
					t.extended = append(t.extended, op)
				}
			}
		}
	}
	return jobs, p
}

// Accounting judges a history whose queues were drained at the end: what was
// answered is neither lost, nor doubled, nor invented. Strong operations only;
// a fast enqueue that is lost is counted, and judged by Witness.
func Accounting(h *History) (Summary, []Problem) {
	var sum Summary
	for _, op := range h.Ops {
		sum.Ops++
		switch op.Outcome {
		case OK:
			sum.OK++
			sum.Kinds[op.Kind]++
			if op.Fast {
				sum.Fast++
			}
		case Failed:
			sum.Failed++
		default:
			sum.Unknown++
		}
	}
	jobs, p := gather(h)
	byID := map[string]string{}
	for body, s := range jobs {
		if s.made != nil {
			sum.Jobs++
		}
		ended, handed := false, false
		var acked *Op
		for _, t := range s.deliveries {
			sum.Delivered++
			handed = true
			if s.op.Outcome == Failed {
				p.add("accounting: failed took effect", "%v, but %s was delivered", s.op, t.d.ID)
			}
			if s.made != nil && !s.made.Duplicate && s.made.ID != t.d.ID {
				p.add("accounting: doubled", "the job answered as %s was delivered as %s", s.made.ID, t.d.ID)
			}
			if was, ok := byID[t.d.ID]; ok && was != body {
				p.add("accounting: altered", "%s was delivered with two bodies: %.60q and %.60q", t.d.ID, was, body)
			}
			byID[t.d.ID] = body
			if t.d.ID != s.deliveries[0].d.ID {
				p.add("accounting: doubled", "one enqueue became jobs %s and %s", t.d.ID, s.deliveries[0].d.ID)
			}
			if t.d.Queue != s.op.Queue || s.job.Priority >= 0 && t.d.Priority != s.job.Priority {
				p.add("accounting: altered", "%s came with queue %s and priority %d, was sent with %s and %d", t.d.ID, t.d.Queue, t.d.Priority, s.op.Queue, s.job.Priority)
			}
			if t.acked != nil || t.tried != nil {
				ended = true
			}
			// A fast ack may be lost, and then the job comes again.
			if t.acked != nil && !t.acked.Fast && (acked == nil || t.acked.Ret < acked.Ret) {
				acked = t.acked
			}
		}
		if acked != nil {
			sum.Done++
			for _, t := range s.deliveries {
				if t.by.Call > acked.Ret {
					p.add("accounting: acked and back", "%s was delivered to %v, after its ack was answered at %v", t.d.ID, t.by, acked.Ret)
				}
			}
		}
		if s.job.AtMostOnce {
			if len(s.deliveries) > 1 {
				p.add("accounting: at most once", "%s was delivered %d times", s.deliveries[0].d.ID, len(s.deliveries))
			}
			continue // a lost answer may be its one delivery
		}
		if s.made != nil && !s.made.Duplicate && !ended && s.job.TTL == 0 && s.job.MaxFailures == 0 {
			if s.op.Fast {
				sum.FastLost++
				continue
			}
			p.add("accounting: lost", "%s of %v, delivered %v (%d times), never acked", s.made.ID, s.op, handed, len(s.deliveries))
		}
	}
	return sum, p.all()
}
