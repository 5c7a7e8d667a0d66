package check

import (
	"cmp"
	"fmt"
	"slices"

	"raftq/fsm"
)

func (o *oracle) queue(name string) *oQueue {
	q := o.queues[name]
	if q == nil {
		q = &oQueue{name: name, busy: map[string]int{}}
		o.queues[name] = q
	}
	return q
}

// count is the number of the queue's jobs in a state.
func (q *oQueue) count(state string) *int {
	switch state {
	case "ready":
		return &q.counts.Ready
	case "delayed":
		return &q.counts.Delayed
	case "leased":
		return &q.counts.Leased
	case "held":
		return &q.counts.Held
	case "dead":
		return &q.counts.Dead
	}
	return new(int)
}

// move takes a job from its state to another one; "" is nowhere. It takes a slot of
// its group when it is handed out, and keeps it while it waits for its retry.
func (o *oracle) move(j *oJob, state string) {
	q := o.queue(j.queue)
	*q.count(j.state)--
	*q.count(state)++
	at, _ := slices.BinarySearchFunc(q.ready, j, func(a, b *oJob) int {
		if a.prio != b.prio {
			return int(b.prio) - int(a.prio)
		}
		return int(int64(a.seq) - int64(b.seq))
	})
	switch {
	case j.state == "ready" && at == 0:
		q.ready[0] = nil
		q.ready = q.ready[1:]
	case j.state == "ready":
		q.ready = slices.Delete(q.ready, at, at+1)
	}
	if state == "ready" {
		q.ready = slices.Insert(q.ready, at, j)
	}
	slot := j.group != "" && (state == "leased" || state == "delayed" && j.slot)
	if slot != j.slot {
		q.busy[j.group] += map[bool]int{true: 1, false: -1}[slot]
		j.slot = slot
	}
	if j.back {
		q.heldBack--
		j.back = false
	}
	j.state = state
	j.life++
}

// next is the job that the queue hands out next, nil when there is none: of a group
// that has a job out, none.
func (o *oracle) next(q *oQueue) *oJob {
	if q.out {
		return nil
	}
	for _, j := range q.ready {
		if j.group == "" || q.busy[j.group] == 0 {
			return j
		}
	}
	return nil
}

// toReady makes a job ready, or holds it back while its queue takes none.
func (o *oracle) toReady(j *oJob) {
	if o.queue(j.queue).in {
		o.move(j, "delayed")
		j.back = true
		o.queue(j.queue).heldBack++
		o.did["held back by a pause"]++
		return
	}
	o.move(j, "ready")
}

func (o *oracle) pause(op *fsm.Pause) {
	q := o.queue(op.Queue)
	over := op.UntilMs != 0 && op.UntilMs <= o.now
	q.in, q.out = op.In && !over, op.Out && !over
	q.pauses++
	if (q.in || q.out) && op.UntilMs > 0 {
		o.at(oTimer{ms: op.UntilMs, kind: 14, queue: q, life: q.pauses})
	}
	if !q.in {
		o.letGo(q)
	}
	o.tell(pauseKey(op.Queue, op.In, op.Out, op.UntilMs), oTold{})
}

func pauseKey(queue string, in, out bool, untilMs int64) string {
	return fmt.Sprintf("pause %q in %v out %v until %d", queue, in, out, untilMs)
}

// letGo makes ready what a pause held back.
func (o *oracle) letGo(q *oQueue) {
	if q.heldBack == 0 {
		return
	}
	for _, j := range o.jobsOf(q.name) {
		if j.back {
			o.move(j, "ready")
		}
	}
}

// jobsOf are the jobs of a queue in the order of their sequence.
func (o *oracle) jobsOf(queue string) (all []*oJob) {
	for _, j := range o.jobs { // sorted below
		if j.queue == queue {
			all = append(all, j)
		}
	}
	slices.SortFunc(all, func(a, b *oJob) int { return cmp.Compare(a.seq, b.seq) })
	return all
}

func (o *oracle) tell(key string, t oTold) {
	t.index = o.index
	o.told[key] = append(o.told[key], t)
}

func (o *oracle) configure(op *fsm.Configure) error {
	c := op.Config
	q := o.queue(op.Queue)
	q.maxFailures, q.deadLetter = c.MaxFailures, c.DeadLetter
	c.MaxFailures, c.DeadLetter = 0, ""
	if c != (fsm.QueueConfig{}) || op.Fields != fsm.AllFields || op.IfMatch != 0 || op.Create {
		return fmt.Errorf("the oracle knows no configuration like %+v", op)
	}
	o.tell(configKey(op.Queue, int(q.maxFailures), q.deadLetter), oTold{})
	return nil
}

func configKey(queue string, maxFailures int, deadLetter string) string {
	return fmt.Sprintf("configure %q: %d failures, then %q", queue, maxFailures, deadLetter)
}

// bury makes a job dead: it stays, or begins anew in the dead letter queue, but
// once only.
func (o *oracle) bury(j *oJob, reason string) {
	to := o.queue(j.queue).deadLetter
	o.freeUnique(j)
	j.reason = reason
	if to == "" || to == j.queue || j.source != "" {
		o.move(j, "dead")
		return
	}
	o.did["dead letter"]++
	source := j.queue
	o.relocate(j, to)
	j.source = source
	if j.amo {
		o.move(j, "dead")
		return
	}
	j.failures = 0
	o.toReady(j)
}

// relocate takes a job to the end of another queue, or of its own.
func (o *oracle) relocate(j *oJob, to string) {
	o.move(j, "")
	o.seq++
	j.seq, j.queue = o.seq, to
}

// redrive brings back what died in a queue, or was moved into it and is not handed
// out.
func (o *oracle) redrive(op *fsm.Redrive) error {
	if op.To != "" || op.Reason != "" || op.Max <= 0 || op.UpTo != 0 {
		return fmt.Errorf("the oracle knows no redrive like %+v", op)
	}
	n := 0
	for _, j := range o.jobsOf(op.Queue) {
		if j.state != "dead" && (j.source == "" || j.state == "leased") || j.reason != "max_failures" && j.reason != "rejected" || n == int(op.Max) {
			continue
		}
		if j.unique != "" {
			return fmt.Errorf("the oracle redrives no job with a unique key: %v", j.key)
		}
		n++
		to := op.Queue
		if j.source != "" {
			to = j.source
		}
		o.relocate(j, to)
		j.source, j.reason, j.held, j.failures = "", "", false, 0
		j.redriven++
		o.toReady(j)
		o.did["redrive"]++
	}
	o.tell(redriveKey(op.Queue, int(op.Max)), oTold{count: n})
	return nil
}

func redriveKey(queue string, max int) string { return fmt.Sprintf("redrive %q up to %d", queue, max) }

// purge drops what is ready or delayed. Nothing is remembered of it.
func (o *oracle) purge(op *fsm.Purge) error {
	if op.States != fsm.StateReady|fsm.StateDelayed || op.UpTo != 0 {
		return fmt.Errorf("the oracle knows no purge like %+v", op)
	}
	n := 0
	for _, j := range o.jobsOf(op.Queue) {
		if j.state == "ready" || j.state == "delayed" {
			o.drop(j)
			n++
		}
	}
	o.did["purged"] += n
	o.tell(purgeKey(op.Queue), oTold{count: n})
	return nil
}

func purgeKey(queue string) string { return fmt.Sprintf("purge %q", queue) }
