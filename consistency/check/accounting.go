package check

import (
	"cmp"
	"slices"
	"time"
)

// slack is how much earlier than promised something may end, and how much later
// a clock of ours may have seen it.
func slack(d time.Duration) time.Duration { return d/100 + 50*time.Millisecond }

// Summary is what a history is made of.
type Summary struct {
	Ops, OK, Unknown, Failed, Fast  int
	Jobs, FastLost, Delivered, Done int
	Appended, Read                  int          // messages
	Kinds                           [kindEnd]int // OK ones
}

// sent is what is known of a job, by its body.
type sent struct {
	op         *Op
	job        *Job
	queue      string
	made       *Made // nil without an answer
	deliveries []taken
	purged     time.Duration // not purged before, Never when no purge can have hit it
	handled    []*Op         // holds, requeues and cancels that may have had an effect
}

// refused: surely it is not there.
func (s *sent) refused() bool {
	return s.op.Outcome == Failed || s.op.Aborted || s.made != nil && s.made.Code != ""
}

// answered: it is there, somebody was told.
func (s *sent) answered() bool { return s.made != nil && !s.refused() }

// taken is one delivery and what its holder did. Tries of one attempt that were
// answered with the same receipt are one delivery.
type taken struct {
	d        *Delivery
	by       *Op
	again    []*Op         // other tries that got it
	call     time.Duration // nobody who could have been handed it was called before
	acked    *Op           // with success
	proved   bool          // one that was the first of the job, and is not lost
	tried    []*Op         // acks without a known outcome
	givenUp  *Op           // nack or release, of whatever outcome
	extended []*Op
}

// gather puts the operations on each job together.
func gather(h *History) (jobs map[string]*sent, p problems) {
	jobs = map[string]*sent{}
	attempts, purges := firstTries(h), h.purges()
	byID := map[string][]*Op{}
	for _, op := range h.Ops {
		if (op.Kind == Hold || op.Kind == Requeue || op.Kind == Cancel) && op.Outcome != Failed && op.Code == "" {
			byID[op.Mark] = append(byID[op.Mark], op)
		}
	}
	byReceipt := map[string]*taken{}
	for _, op := range h.Ops {
		for i := range op.Jobs {
			s := &sent{op: op, job: &op.Jobs[i], queue: cmp.Or(op.Jobs[i].Queue, op.Queue), purged: Never}
			for _, p := range purges {
				if p.Queue == s.queue && p.Ret > op.Call {
					s.purged = min(s.purged, p.Call)
				}
			}
			if op.Outcome == OK {
				s.made = &op.Made[i]
				s.handled = byID[s.made.ID]
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
			s.took(d, op, min(op.Call, cmp.Or(attempts[op.attempt()], op.Call)))
		}
	}
	for _, s := range jobs {
		for i := range s.deliveries {
			byReceipt[s.deliveries[i].d.Receipt] = &s.deliveries[i]
			if s.made == nil { // its enqueue had no answer, and who got it knows its id
				s.handled = byID[s.deliveries[i].d.ID]
			}
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
			case Ack, Tx:
				t.proved = t.proved || done && !op.Fast && !op.Items[i].Already
				switch {
				case done && (t.acked == nil || op.Ret < t.acked.Ret):
					t.acked = op
				case op.Outcome == Unknown:
					t.tried = append(t.tried, op)
				}
			case Nack, Release, Reject:
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

// seenTx are the transactions without an answer of which something was seen.
func seenTx(h *History, jobs map[string]*sent) map[*Op]bool {
	read := map[string]bool{}
	for _, op := range h.Ops {
		if op.Kind != Read {
			continue
		}
		for i := range op.Topics {
			for _, body := range op.Topics[i].Bodies {
				read[body] = true
			}
		}
	}
	seen := map[*Op]bool{}
	for _, op := range h.Ops {
		if op.Kind != Tx || op.Outcome != Unknown {
			continue
		}
		for i := range op.Jobs {
			seen[op] = seen[op] || len(jobs[op.Jobs[i].Body].deliveries) > 0
		}
		for i := range op.Topics {
			for _, body := range op.Topics[i].Bodies {
				seen[op] = seen[op] || read[body]
			}
		}
	}
	return seen
}

// wholeTx: of a transaction all is there or nothing. Nothing that it adds goes
// unseen in a history that was drained.
func wholeTx(p *problems, h *History, jobs map[string]*sent, seen map[*Op]bool) {
	for _, op := range h.Ops {
		if op.Kind != Tx {
			continue
		}
		for i := range op.Jobs {
			s := jobs[op.Jobs[i].Body]
			if there := len(s.deliveries) > 0; op.Outcome == Unknown && seen[op] && !there {
				p.add("accounting: half a transaction", "%v: something of it was seen, %.60q never", op, s.job.Body)
			}
		}
	}
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
			for i := range op.Topics {
				if n := len(op.Topics[i].Bodies); op.Kind == Read {
					sum.Read += n
				} else if !op.Aborted {
					sum.Appended += n
				}
			}
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
	configs := h.configs()
	seen := seenTx(h, jobs)
	wholeTx(&p, h, jobs, seen)
	byID := map[string]string{}
	for body, s := range jobs {
		if s.answered() {
			sum.Jobs++
		}
		ended, handed := false, false
		var acked *Op
		for _, t := range s.deliveries {
			sum.Delivered++
			handed = true
			if s.refused() {
				p.add("accounting: failed took effect", "%v, but %s was delivered", s.op, t.d.ID)
			}
			if s.answered() && !s.made.Duplicate && s.made.ID != t.d.ID {
				p.add("accounting: doubled", "the job answered as %s was delivered as %s", s.made.ID, t.d.ID)
			}
			if was, ok := byID[t.d.ID]; ok && was != body {
				p.add("accounting: altered", "%s was delivered with two bodies: %.60q and %.60q", t.d.ID, was, body)
			}
			byID[t.d.ID] = body
			if t.d.ID != s.deliveries[0].d.ID {
				p.add("accounting: doubled", "one enqueue became jobs %s and %s", t.d.ID, s.deliveries[0].d.ID)
			}
			moved := t.d.Queue != "" && t.d.Queue == configs[s.queue].DeadLetter
			if t.d.Queue != s.queue && !moved || s.job.Priority >= 0 && t.d.Priority != s.job.Priority || t.d.Group != s.job.Group {
				p.add("accounting: altered", "%s came with queue %s, priority %d and group %q, was sent with %s, %d and %q", t.d.ID, t.d.Queue, t.d.Priority, t.d.Group, s.queue, s.job.Priority, s.job.Group)
			}
			if t.acked != nil || slices.ContainsFunc(t.tried, func(o *Op) bool { return o.Kind != Tx || seen[o] }) {
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
				for _, by := range append(t.again, t.by) {
					// A leader that was deposed and does not know it hands out fast what it has; an
					// ack of that is told that it was done already.
					if by.Call > acked.Ret && (!by.Fast || t.proved) {
						p.add("accounting: acked and back", "%s was delivered to %v, after its ack was answered at %v", t.d.ID, by, acked.Ret)
					}
				}
			}
		}
		if s.job.AtMostOnce {
			if len(s.deliveries) > 1 {
				p.add("accounting: at most once", "%s was delivered %d times", s.deliveries[0].d.ID, len(s.deliveries))
			}
			continue // a lost answer may be its one delivery
		}
		if s.answered() && !s.made.Duplicate && !ended && s.job.TTL == 0 && s.purged == Never && !s.cancelled() && s.job.MaxFailures == 0 {
			if s.op.Fast {
				sum.FastLost++
				continue
			}
			p.add("accounting: lost", "%s of %v, delivered %v (%d times), never acked", s.made.ID, s.op, handed, len(s.deliveries))
		}
	}
	return sum, p.all()
}
