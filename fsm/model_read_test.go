package fsm

import (
	"slices"
	"strings"
)

func (m *model) queueInfo(q *mQueue) QueueInfo {
	info := q.QueueInfo
	info.Queue = q.name
	info.Configured = q.Version != 0
	for _, j := range m.jobs {
		if j.queue == q {
			info.Bytes += j.bytes()
		}
	}
	info.Ready, info.Delayed, info.Leased = len(m.in(q, "ready")), len(m.in(q, "delayed")), len(m.in(q, "leased"))
	info.Held, info.Dead = len(m.in(q, "held")), len(m.in(q, "dead"))
	info.Waiters = len(m.waiting(q.name))
	oldest := uint64(1 << 63)
	for _, j := range m.in(q, "ready") {
		if j.seq < oldest {
			oldest, info.OldestReadyMs = j.seq, j.enqueued
		}
	}
	return info
}

func (m *model) infos() (all []QueueInfo, total QueueInfo) {
	total = m.gone
	for _, q := range m.queues {
		if q.doomed {
			continue
		}
		info := m.queueInfo(q)
		addCounts(&total, &info)
		total.Bytes += info.Bytes
		total.Ready += info.Ready
		total.Delayed += info.Delayed
		total.Leased += info.Leased
		total.Held += info.Held
		total.Dead += info.Dead
		if q.made {
			all = append(all, info)
		}
	}
	total.Waiters = len(m.waiters)
	slices.SortFunc(all, func(a, b QueueInfo) int { return strings.Compare(a.Queue, b.Queue) })
	return all, total
}

func (m *model) jobInfo(k Key) (JobInfo, Code) {
	j := m.job(k)
	if j == nil {
		if c := m.goneCode(k); c == CodeJobNotFound {
			return JobInfo{}, c
		}
		return JobInfo{}, CodeJobGone
	}
	info := JobInfo{
		Delivered: j.delivered(), State: j.state, DeadReason: j.reason, AtMostOnce: j.amo, LastIndex: j.last, UniqueKey: j.unique, DedupID: j.dedup,
		Cancel: j.cancel, DeadMs: j.deadMs, SourceQueue: j.source, Redriven: j.redriven, JobLeaseMs: j.lease, HeldMs: j.held,
	}
	if j.state == "dead" && j.deadMs == 0 {
		info.DeadMs = j.due - DeadTTLMs
	}
	if j.state == "leased" {
		info.Consumer = j.consumer
	} else {
		info.Grant, info.Tag, info.LeaseUntil = 0, 0, 0
	}
	if j.heldBack() {
		info.DeliverMs = j.queue.PausedUntilMs
	} else if j.state == "delayed" {
		info.DeliverMs = j.due
	}
	return info, CodeOK
}

func (m *model) nextDue() (ms int64, ok bool) {
	if slices.ContainsFunc(m.queues, func(q *mQueue) bool { return q.doomed }) {
		return m.pos.TimeMs, true
	}
	if len(m.thawing()) > 0 {
		return m.pos.TimeMs, true
	}
	for _, q := range m.queues {
		if t := q.PausedUntilMs; t != 0 && m.pauseForces(q) && (!ok || t < ms) {
			ms, ok = t, true
		}
	}
	for _, j := range m.jobs {
		for _, t := range []int64{j.due, j.expires, j.keep} {
			if t != 0 && (!ok || t < ms) {
				ms, ok = t, true
			}
		}
	}
	return ms, ok
}
