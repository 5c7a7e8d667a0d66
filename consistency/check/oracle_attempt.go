package check

import (
	"slices"
	"strings"
)

// oAttempt is what the tries of one dequeue were given, while a lease of it lives.
type oAttempt struct {
	jobs []*oTried
}

// oTried is a hand-out, and the dequeues that were answered with it. It is given back
// when each of them gave it back: none says which one it is.
type oTried struct {
	job   *oJob
	grant uint32
	fence int64
	by    []*oDequeue
	backs int
}

// lives: nothing but the lease holds an attempt together.
func (t *oTried) lives() bool { return t.job.state == "leased" && t.job.grant == t.grant }

// attemptName is the id together with the queues: another list is another attempt.
func attemptName(id string, queues []string) string {
	if id == "" {
		return ""
	}
	return id + " of " + strings.Join(queues, " ")
}

// lives tells whether an attempt that comes again is answered with what it was given.
func (o *oracle) lives(attempt string) bool {
	a := o.attempts[attempt]
	return a != nil && slices.ContainsFunc(a.jobs, (*oTried).lives)
}

// begin notes what a dequeue was handed, for those who ask again.
func (o *oracle) begin(attempt string, d *oDequeue) {
	if attempt == "" {
		return
	}
	a := &oAttempt{}
	for i := range d.jobs {
		if g := &d.jobs[i]; g.fence == o.index {
			a.jobs = append(a.jobs, &oTried{job: o.jobs[g.key], grant: g.grant, fence: g.fence, by: []*oDequeue{d}})
		}
	}
	o.attempts[attempt] = a
}

// repeat answers a dequeue that comes again with the leases that live.
func (o *oracle) repeat(d *oDequeue, attempt string) bool {
	if !o.lives(attempt) {
		return false
	}
	d.at, d.repeat, d.jobs = o.index, true, nil
	for _, t := range o.attempts[attempt].jobs {
		j := t.job
		if !t.lives() {
			continue
		}
		t.by = append(t.by, d)
		d.jobs = append(d.jobs, oGrant{key: j.key, grant: j.grant, tag: j.tag, queue: j.queue, body: j.body, deliveries: j.deliveries, failures: j.failures,
			prio: j.prio, until: j.due, group: j.group, fence: t.fence})
	}
	o.did["attempt answered again"]++
	return true
}

// takeOver ends the wait of an earlier try, and says its place, 0 when there is none.
func (o *oracle) takeOver(attempt string) (seq uint64) {
	o.leave(func(w *oWaiter) bool {
		if w.attempt != attempt {
			return false
		}
		seq = w.seq
		o.did["wait taken over"]++
		return true
	})
	return seq
}

// tried finds the last hand-out of a job in its attempt, nil when there is none.
func (o *oracle) tried(j *oJob) *oTried {
	d := o.dequeues[o.granted[oGrantKey{j.key, j.grant}]]
	a := o.attempts[attemptName(d.attempt, d.queues)]
	if a == nil {
		return nil
	}
	for _, t := range a.jobs {
		if t.job == j && t.grant == j.grant {
			return t
		}
	}
	return nil
}

// keptByAnother tells whether a hand-out that one gives back was answered to others of
// its attempt, who keep it.
func (o *oracle) keptByAnother(j *oJob) bool {
	t := o.tried(j)
	if t == nil || !t.lives() {
		return false
	}
	if t.backs++; t.backs < len(t.by) {
		o.did["attempt gave back alone"]++
		return true
	}
	return false
}

// sharedAtTheEnd tells whether, as a lease ends, more than one has the job. Then none of them
// gives it back later: the other one's client may have it. Since feature level 3, that is.
func (o *oracle) sharedAtTheEnd(j *oJob) bool {
	level := uint32(1<<32 - 1)
	for _, s := range o.sessions {
		level = min(level, s.level)
	}
	t := o.tried(j)
	return level >= 3 && t != nil && len(t.by)-t.backs > 1
}

// holders are those who were answered with the last hand-out of a job.
func (o *oracle) holders(j *oJob) []*oDequeue {
	if t := o.tried(j); t != nil {
		return t.by
	}
	return []*oDequeue{o.dequeues[o.granted[oGrantKey{j.key, j.grant}]]}
}

// gaveBack tells whether one of several tries gave back a hand-out that others keep.
func (o *oracle) gaveBack(g oGrant) bool {
	d := o.dequeues[o.granted[oGrantKey{g.key, g.grant}]]
	a := o.attempts[attemptName(d.attempt, d.queues)]
	return a != nil && slices.ContainsFunc(a.jobs, func(t *oTried) bool { return t.job.key == g.key && t.grant == g.grant && t.backs > 0 })
}
