package fsm

import (
	"cmp"
	"slices"
)

// The naive model's groups, fairness and aging.

// mGroup is a group of a queue while a job of it is ready or keeps a slot.
type mGroup struct {
	queue *mQueue
	name  string
	turn  uint64
	freed uint64 // see group.freed
}

func (m *model) groupOf(q *mQueue, name string) *mGroup {
	for _, g := range m.groups {
		if g.queue == q && g.name == name {
			return g
		}
	}
	return nil
}

func (m *model) busy(q *mQueue, name string) (n int32) {
	for _, j := range m.jobs {
		if j.queue == q && j.group == name && j.slot {
			n++
		}
	}
	return n
}

// settleGroup makes or forgets a group, after a job of it changed.
func (m *model) settleGroup(q *mQueue, name string) {
	if name == "" {
		return
	}
	counts := slices.ContainsFunc(m.jobs, func(j *mJob) bool {
		return j.queue == q && j.group == name && (j.slot || j.state == "ready")
	})
	g := m.groupOf(q, name)
	if counts && g == nil {
		m.seq++
		m.groups = append(m.groups, &mGroup{queue: q, name: name, turn: m.seq})
	} else if !counts && g != nil {
		m.groups = slices.DeleteFunc(m.groups, func(e *mGroup) bool { return e == g })
	}
	if !m.grouped(q) {
		q.loose = 0
	}
}

func (m *model) grouped(q *mQueue) bool {
	return slices.ContainsFunc(m.groups, func(g *mGroup) bool { return g.queue == q })
}

// unslot frees the job's slot.
func (m *model) unslot(j *mJob) {
	if j.slot {
		j.slot = false
		m.groupOf(j.queue, j.group).freed = m.pos.Index
	}
}

// next returns the job of q that is handed out next.
func (m *model) next(q *mQueue) *mJob {
	if q.PausedOut {
		return nil
	}
	// What is not behind another one of its group, nor of a group without a slot.
	var open []*mJob
	seen := map[string]bool{}
	for _, j := range m.in(q, "ready") {
		if j.group != "" && (seen[j.group] || m.busy(q, j.group) >= max(1, q.Config.GroupLimit)) {
			continue
		}
		seen[j.group] = true
		open = append(open, j)
	}
	turn := func(j *mJob) uint64 {
		if !q.Config.Fair || !m.grouped(q) {
			return 0
		} else if j.group == "" {
			return q.loose
		}
		return m.groupOf(q, j.group).turn
	}
	var best *mJob
	bestPrio := int64(0)
	for prio := range uint8(10) {
		var level []*mJob
		for _, j := range open {
			if j.prio == prio {
				level = append(level, j)
			}
		}
		if len(level) == 0 {
			continue
		}
		first := level[0] // they come by sequence
		aged := int64(prio)
		if q.Config.AgingMs > 0 {
			since := first.since
			if since == 0 {
				since = first.enqueued
			}
			aged = min(9, aged+(m.pos.TimeMs-since)/q.Config.AgingMs)
		}
		j := slices.MinFunc(level, func(a, b *mJob) int { return cmp.Or(cmp.Compare(turn(a), turn(b)), cmp.Compare(a.seq, b.seq)) })
		before := best == nil || aged > bestPrio || aged == bestPrio &&
			(turn(j) < turn(best) || turn(j) == turn(best) && j.seq < best.seq)
		if before {
			best, bestPrio = j, aged
		}
	}
	return best
}

// takeTurn puts the group of a job that is handed out behind all others.
func (m *model) takeTurn(j *mJob) {
	q := j.queue
	if !q.Config.Fair || !m.grouped(q) {
		return
	}
	m.seq++
	if j.group == "" {
		q.loose = m.seq
	} else {
		m.groupOf(q, j.group).turn = m.seq
	}
}
