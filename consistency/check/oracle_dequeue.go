package check

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/cespare/xxhash/v2"

	"raftq/fsm"
)

func (o *oracle) dequeue(h fsm.BatchHeader, op *fsm.Dequeue) error {
	d := o.dequeues[op.Consumer]
	switch {
	case d == nil:
		d = &oDequeue{index: o.index, origin: h.Origin, queues: op.Queues, max: max(1, int(op.Max)), lease: op.LeaseMs, attempt: op.AttemptID}
		o.dequeues[op.Consumer] = d
	case d.origin == h.Origin || d.again:
		return fmt.Errorf("the dequeue marked %q took effect twice", op.Consumer)
	default:
		// A node passed it on to the leader, which found nothing, and goes on itself.
		d.again, d.index = true, o.index
	}
	w := &oWaiter{mark: op.Consumer, origin: h.Origin, epoch: h.Epoch, request: op.Request, deadline: o.now + op.WaitMs, queues: op.Queues, max: max(1, int(op.Max)), lease: op.LeaseMs, attempt: attemptName(op.AttemptID, op.Queues)}
	if w.attempt != "" {
		if o.repeat(d, w.attempt) {
			return nil
		}
		w.seq = o.takeOver(w.attempt)
	}
	o.look(op.Queues)
	switch {
	case o.anyReady(op.Queues):
		o.fill(w)
	case op.WaitMs > 0:
		d.parked = true
		o.park(w)
	}
	return nil
}

func (o *oracle) anyReady(queues []string) bool {
	return slices.ContainsFunc(queues, func(q string) bool { return o.next(o.queue(q)) != nil })
}

// look notes what keeps somebody who asks from jobs that are ready.
func (o *oracle) look(queues []string) {
	for _, name := range queues {
		switch q := o.queue(name); {
		case len(q.ready) == 0:
		case q.out:
			o.did["kept by a pause"]++
		case o.next(q) != q.ready[0]:
			o.did["kept by a group"]++
		}
	}
}

// park lets a dequeue wait, in the place of the try before it or behind all others.
func (o *oracle) park(w *oWaiter) {
	if w.seq == 0 {
		o.seq++
		w.seq = o.seq
	}
	at, _ := slices.BinarySearchFunc(o.waiters, w, func(a, b *oWaiter) int { return cmp.Compare(a.seq, b.seq) })
	o.waiters = slices.Insert(o.waiters, at, w)
	o.at(oTimer{ms: w.deadline, kind: 5, seq: w.seq, waiter: w})
}

// serve: nobody waits for what is there, and the oldest is served first.
func (o *oracle) serve() {
	for i := 0; i < len(o.waiters); i++ {
		w := o.waiters[i]
		if o.sessions[w.origin].away || !o.anyReady(w.queues) {
			continue
		}
		o.waiters = slices.Delete(o.waiters, i, i+1)
		o.fill(w)
		i = -1
	}
}

// fill hands jobs to a dequeue, queue by queue.
func (o *oracle) fill(w *oWaiter) {
	d := o.dequeues[w.mark]
	d.at = o.index
	defer o.begin(w.attempt, d)
	bytes := 0
	for _, name := range w.queues {
		q := o.queue(name)
		for j := o.next(q); j != nil && len(d.jobs) < w.max; j = o.next(q) {
			if bytes > 0 && bytes+len(j.body) > fsm.BatchBytesMax {
				return
			}
			bytes += max(1, len(j.body))
			lease := w.lease
			if lease == 0 {
				lease = j.lease
			}
			if lease == 0 {
				lease = fsm.LeaseDefault
			}
			j.cancel, j.others = false, false
			j.grant++
			j.deliveries++
			j.tag, j.held, j.heldMs = tagOf(w.epoch, w.request), true, lease
			o.move(j, "leased")
			o.due(j, o.now+lease, 2)
			o.granted[oGrantKey{j.key, j.grant}] = w.mark
			d.jobs = append(d.jobs, oGrant{key: j.key, grant: j.grant, tag: j.tag, queue: j.queue, body: j.body, deliveries: j.deliveries, failures: j.failures, prio: j.prio, until: j.due, group: j.group, fence: o.index})
		}
	}
}

// tagOf is the tag of a receipt, as docs/format-log.md says.
func tagOf(epoch, request uint64) uint64 {
	b := binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, epoch), request)
	return xxhash.Sum64(b)
}
