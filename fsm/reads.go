package fsm

import "slices"

// QueueInfo is a queue as reads show it.
type QueueInfo struct {
	Queue                                                  string
	Ready, Delayed, Leased, Held, Dead                     int
	Bytes                                                  int64
	Waiters                                                int
	OldestReadyMs                                          int64 // enqueue time of the oldest ready job, 0 = none
	Enqueued, Delivered, Acked, Failed, Expired, DeadTotal uint64
	Config                                                 QueueConfig
	Configured                                             bool
	Version                                                uint64 // of Config; 0 = never configured
	PausedIn, PausedOut                                    bool
	PausedUntilMs                                          int64 // 0 = until changed
	CreatedMs, UsedMs                                      int64 // log time; used: the last enqueue or hand-out; 0 = not known
}

// JobInfo is a job as reads show it; State is one of "delayed", "ready",
// "leased", "held", "dead".
type JobInfo struct {
	Delivered  // Grant and Tag of the current lease; zero when not leased
	State      string
	DeliverMs  int64
	Consumer   string
	DeadReason string
	AtMostOnce bool
	LastIndex  uint64

	UniqueKey, DedupID string
	Cancel             bool   // the holder is asked to stop
	DeadMs             int64  // log time of death, 0 = not dead
	SourceQueue        string // where it died, if dead_letter moved it
	Redriven           uint32 // times
	JobLeaseMs         int64  // own default, 0 = the queue's
	HeldMs             int64  // length of the last lease
}

// Position is the index and the term of the last applied entry, and the log
// time there.
func (m *Machine) Position() Position { return Position{m.index, m.term, m.now} }

// Chain is the running hash over entries, results and timers.
func (m *Machine) Chain() uint64 { return m.chain }

// Bytes is the machine's own count of what its state takes: equal on all nodes.
func (m *Machine) Bytes() int64 { return m.bytes }

// AnyReady tells whether a dequeue of these queues would find a job now.
func (m *Machine) AnyReady(queues []string) bool {
	for _, name := range queues {
		if q := m.queueNamed(name); q != nil && q.handable() {
			return true
		}
	}
	return false
}

// Finds tells whether a dequeue that does not wait would be answered with a job or
// change anything now. If not, it is a read.
func (m *Machine) Finds(op *Dequeue) bool {
	return m.AnyReady(op.Queues) || op.AttemptID != "" && m.attemptOf(attemptKey(op)) != nil
}

// HandedTo returns what the requests were given and nobody settled, for a replica
// that installed a snapshot and must learn what became of its requests: their
// leases, and at-most-once jobs even when the lease is over, because nobody else
// will ever get them. Handouts come in the order of requests, their jobs in enqueue
// order; requests that hold nothing have none.
func (m *Machine) HandedTo(epoch uint64, requests []uint64) []Handout {
	tags := make(map[uint64]int, len(requests))
	for i, r := range requests {
		tags[requestTag(epoch, r)] = i
	}
	found := make([][]jobItem, len(requests))
	look := func(_ uint64, k Key) bool {
		it, _ := m.jobs.Get(jobItem{key: k})
		if i, ok := tags[it.tag]; ok && (it.state == stateLeased || it.heldOnce()) {
			found[i] = append(found[i], it)
		}
		return true
	}
	m.queues.Scan(func(_ uint32, q *queue) bool {
		if !q.doomed {
			merge(q.lanes(StateLeased|StateHeld), 0, false, look)
		}
		return true
	})
	var all []Handout
	for i, items := range found {
		if len(items) == 0 {
			continue
		}
		slices.SortFunc(items, func(a, b jobItem) int {
			if a.seq < b.seq {
				return -1
			}
			return 1
		})
		h := Handout{Request: requests[i], Result: Result{Position: m.Position()}}
		for _, it := range items {
			d := it.delivered(m.queueOf(it.queue))
			if it.heldOnce() {
				d.LeaseUntil = m.now
			}
			h.Result.Jobs = append(h.Result.Jobs, d)
		}
		all = append(all, h)
	}
	return all
}

// Parked tells which of the requests of an epoch are waiters.
func (m *Machine) Parked(node, epoch uint64) []uint64 {
	var requests []uint64
	m.parked.Ascend(parkedItem{node: node}, func(p parkedItem) bool {
		if p.node == node && p.waiter.epoch == epoch {
			requests = append(requests, p.request)
		}
		return p.node == node
	})
	return requests
}

func (c *counters) info() QueueInfo {
	return QueueInfo{
		Ready: c.states[stateReady], Delayed: c.states[stateDelayed], Leased: c.states[stateLeased],
		Held: c.states[stateHeld], Dead: c.states[stateDead], Bytes: c.bytes,
		Enqueued: c.enqueued, Delivered: c.delivered, Acked: c.acked, Failed: c.failed,
		Expired: c.expired, DeadTotal: c.deadTotal,
	}
}

func (m *Machine) queueInfo(q *queue) QueueInfo {
	info := q.info()
	info.Queue = q.name
	info.Waiters = q.waiters.Len()
	s := q.set()
	info.Config, info.Version, info.Configured = s.config, s.version, s.version != 0
	info.PausedIn, info.PausedOut, info.PausedUntilMs = s.pausedIn, s.pausedOut, s.untilMs
	info.CreatedMs, info.UsedMs = q.createdMs, q.usedMs
	info.OldestReadyMs = m.oldestReady(q)
	return info
}

// oldestReady looks at the first job of each priority.
func (m *Machine) oldestReady(q *queue) int64 {
	oldest := uint64(seqMax)
	var first Key
	for p := range uint64(10) {
		for _, l := range q.readyLanes(p) {
			l.keys.Ascend(l.base, func(order uint64, k Key) bool {
				if seq := order & seqMax; seq < oldest {
					oldest, first = seq, k
				}
				return false
			})
		}
	}
	if oldest == seqMax {
		return 0
	}
	it, _ := m.jobs.Get(jobItem{key: first})
	return it.enqueuedMs
}

// Queue returns a queue; ok is false when it does not exist.
func (m *Machine) Queue(name string) (q QueueInfo, ok bool) {
	e := m.queueNamed(name)
	if e == nil || !e.made {
		return q, false
	}
	return m.queueInfo(e), true
}

// QueueCount is how many names have a queue, those that are only waited for included.
func (m *Machine) QueueCount() int { return m.names.Len() }

// Totals sums over all queues; cheap (kept as running sums). The counts of what
// happened (Enqueued to DeadTotal) never fall: they include queues that are
// gone. Waiters include those of nodes that are away; OldestReadyMs is 0.
func (m *Machine) Totals() QueueInfo {
	info := m.totals.info()
	info.Waiters = m.parked.Len()
	return info
}

// Job returns a job. The code is CodeOK, CodeJobNotFound, or CodeJobGone (acked
// or past its TTL, while its tombstone lives).
func (m *Machine) Job(k Key) (JobInfo, Code) {
	it, q := m.find(k)
	if q == nil {
		if m.gone(k) == CodeJobNotFound {
			return JobInfo{}, CodeJobNotFound
		}
		return JobInfo{}, CodeJobGone
	}
	return m.jobInfo(q, it), CodeOK
}

func (m *Machine) jobInfo(q *queue, it jobItem) JobInfo {
	info := JobInfo{
		Delivered: it.delivered(q), State: stateNames[it.state],
		AtMostOnce: it.flags&flagAtMostOnce != 0, LastIndex: it.lastIndex,
	}
	if it.state != stateLeased {
		info.Grant, info.Tag, info.LeaseUntil = 0, 0, 0
	} else if it.rare != nil {
		info.Consumer = it.rare.consumer
	}
	if it.heldBack() {
		info.DeliverMs = q.set().untilMs
	} else if it.state == stateDelayed {
		info.DeliverMs = it.dueMs
	}
	if it.rare != nil {
		info.DeadReason = reasonNames[it.rare.deadReason]
	}
	x := it.rare.getMore()
	info.UniqueKey, info.DedupID = x.uniqueKey, x.dedupID
	h := it.rare.past()
	info.DeadMs, info.SourceQueue, info.Redriven, info.Nacks = h.deadMs, h.source, h.redriven, h.nacks
	if it.state == stateDead && h.deadMs == 0 {
		info.DeadMs = it.dueMs - DeadTTLMs // it died before machines kept it
	}
	info.Cancel = it.flags&flagCancel != 0
	info.JobLeaseMs, info.HeldMs = int64(it.leaseMs), int64(it.heldMs)
	return info
}
