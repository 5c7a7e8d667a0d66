package fsm

import (
	"encoding/binary"
	"fmt"

	"github.com/cespare/xxhash/v2"
)

// attempt is what a dequeue with an attempt id was given, while one of the leases
// lives, or that it waits. The same attempt again is answered from it. It is
// changed only by the machine whose stamp it carries (ownAttempt).
//
// A job that is leased under an attempt has flagAttempt, and a line in the tree of
// tried jobs, until its lease ends.
type attempt struct {
	stamp uint64
	key   string
	jobs  []attemptJob // as they were handed out; those whose lease ended count for nothing
	live  int          // the others
	// waiter: it waits, and has no jobs.
	waiter *waiter
}

// attemptJob is a job of an attempt. holders are the requests that were answered
// with it: it is given back when all of them gave it back.
type attemptJob struct {
	key     Key
	grant   uint32
	holders uint32
}

// attemptKey is the id together with the queues, whose list is part of it.
func attemptKey(op *Dequeue) string {
	var d xxhash.Digest
	d.Reset()
	var b [binary.MaxVarintLen64]byte
	for _, name := range op.Queues {
		d.Write(binary.AppendUvarint(b[:0], uint64(len(name))))
		d.WriteString(name)
	}
	return op.AttemptID + string(binary.BigEndian.AppendUint64(b[:0], d.Sum64()))
}

// tried names the attempt that a job is leased under.
type tried struct {
	key     Key
	attempt string
}

func triedLess(a, b tried) bool { return a.key.Less(b.key) }

// under tells whether the job is leased as the attempt was given it.
func (j *attemptJob) under(it jobItem) bool { return it.flags&flagAttempt != 0 && it.grant == j.grant }

const attemptKeyMax = KeyMax + 8

func (a *attempt) bytes() int64 {
	if a.waiter != nil {
		return 0 // in the waiter's
	}
	return attemptCost + int64(len(a.key)) + int64(a.live)*attemptJobCost
}

func (m *Machine) attemptOf(key string) *attempt {
	a, _ := m.attempts.Get(key)
	return a
}

func (m *Machine) ownAttempt(a *attempt) *attempt {
	if a.stamp == m.stamp {
		return a
	}
	c := *a
	c.stamp = m.stamp
	c.jobs = append([]attemptJob(nil), a.jobs...)
	m.attempts.Set(c.key, &c)
	return &c
}

// again answers a dequeue that comes again, from the leases that live. It is
// false when there are none: then the dequeue is as new, and seq is the place of
// the waiter that it takes over, 0 = none.
func (m *Machine) again(op *Dequeue, key string) (answered bool, seq uint64) {
	a := m.attemptOf(key)
	if a == nil {
		return false, 0
	}
	if w := a.waiter; w != nil {
		m.unpark(w)
		return false, w.seq
	}
	res := m.run.result
	n := 0
	for i := range a.jobs {
		it, q := m.find(a.jobs[i].key)
		if q == nil || !a.jobs[i].under(it) {
			continue
		}
		a = m.ownAttempt(a)
		a.jobs[i].holders++
		m.depend(it)
		m.noteGrant(it.key, it.grant)
		n++
		if res != nil {
			res.Jobs = append(res.Jobs, it.delivered(q))
		}
	}
	if n == 0 {
		// All of them are in queues that are deleted.
		m.dropAttempt(a)
	}
	return n > 0, 0
}

// begin notes what an attempt was given; the jobs have flagAttempt.
func (m *Machine) begin(key string, jobs []attemptJob) {
	if key == "" || len(jobs) == 0 {
		return
	}
	for _, j := range jobs {
		m.tried.Set(tried{j.key, key})
	}
	a := &attempt{stamp: m.stamp, key: key, jobs: jobs, live: len(jobs)}
	m.attempts.Set(key, a)
	m.bytes += a.bytes()
}

// leaseEnds notes that the lease of a job with flagAttempt ends.
func (m *Machine) leaseEnds(k Key) {
	t, _ := m.tried.Delete(tried{key: k})
	a := m.ownAttempt(m.attemptOf(t.attempt))
	m.bytes -= a.bytes()
	if a.live--; a.live == 0 {
		m.attempts.Delete(a.key)
		return
	}
	m.bytes += a.bytes()
}

// dropAttempt forgets an attempt although leases of it live.
func (m *Machine) dropAttempt(a *attempt) {
	for _, j := range a.jobs {
		if it, ok := m.jobs.Get(jobItem{key: j.key}); ok && j.under(it) {
			m.ownJob(&it)
			it.flags &^= flagAttempt
			m.tried.Delete(tried{key: j.key})
		}
	}
	m.bytes -= a.bytes()
	m.attempts.Delete(a.key)
}

// shared tells whether the lease that is given back was answered to another
// request of the same attempt as well: that one keeps it.
func (m *Machine) shared(it jobItem) bool {
	if it.flags&flagAttempt == 0 {
		return false
	}
	t, _ := m.tried.Get(tried{key: it.key})
	a := m.ownAttempt(m.attemptOf(t.attempt))
	for i := range a.jobs {
		if j := &a.jobs[i]; j.key == it.key && j.under(it) {
			j.holders--
			return j.holders > 0
		}
	}
	panic(fmt.Sprintf("BUG: job %v is leased under an attempt that does not know it", ID{Key: it.key}))
}

// others tells whether the lease was answered to more than one request that did not
// give it back.
func (m *Machine) others(it jobItem) bool {
	if it.flags&flagAttempt == 0 {
		return false
	}
	t, _ := m.tried.Get(tried{key: it.key})
	for _, j := range m.attemptOf(t.attempt).jobs {
		if j.key == it.key && j.under(it) {
			return j.holders > 1
		}
	}
	return false
}

// encodeAttempts writes the attempts that have leases; those that wait are their
// waiters'.
func (m *Machine) encodeAttempts(e *encoder) {
	e.open(sectionAttempts)
	m.attempts.Scan(func(key string, a *attempt) bool {
		if a.waiter != nil || seeded == "attempt-not-in-snapshot" {
			return true
		}
		e.text(key)
		e.uvarint(uint64(a.live))
		for _, j := range a.jobs {
			if it, ok := m.jobs.Get(jobItem{key: j.key}); ok && j.under(it) {
				e.key(j.key)
				e.uvarint(uint64(j.holders))
			}
		}
		e.done()
		return e.err == nil
	})
}

func (d *decoder) attempt(f *fields) error {
	m := d.m
	key := string(f.raw(attemptKeyMax))
	n := f.count(17)
	if n == 0 || key <= d.lastAttempt || m.attemptOf(key) != nil {
		return errState
	}
	d.lastAttempt = key
	jobs := make([]attemptJob, n)
	for i := range jobs {
		j := &jobs[i]
		j.key = Key{f.u64(), f.u64()}
		j.holders = uint32(f.upTo(1<<32 - 1))
		it, ok := m.jobs.Get(jobItem{key: j.key})
		if !ok || it.state != stateLeased || it.flags&flagAttempt != 0 || j.holders == 0 {
			return errState
		}
		j.grant = it.grant
		it.flags |= flagAttempt
	}
	m.begin(key, jobs)
	return nil
}
