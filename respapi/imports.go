package respapi

import (
	"slices"
	"sync"
	"time"

	"raftq/fsm"
)

// imports counts, by queue, the jobs that clients of this node got and that other
// nodes had taken in. Disque's clients move to where the jobs come from by such
// figures; here they tell where producers are, no job moves.
type imports struct {
	mu     sync.Mutex
	queues map[string]*importRate
	now    func() time.Time // time.Now, but in tests
}

// importRate is an estimate over the last second or two.
type importRate struct {
	since, before time.Time // begin of the counts
	count, past   int64
	from          map[uint32]time.Time // last job of each node, by the prefix of its id
}

const (
	importQueues = 1024 // counted at a time
	importWindow = 5 * time.Second
)

// note counts a hand-out; self is this node's id.
func (m *imports) note(jobs []fsm.Delivered, self uint64) {
	for i := range jobs {
		if d := &jobs[i]; d.ID.Node != uint32(self>>32) {
			m.one(d.Queue, d.ID.Node)
		}
	}
}

func (m *imports) clock() time.Time {
	if m.now != nil {
		return m.now()
	}
	return time.Now()
}

func (m *imports) one(queue string, node uint32) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.clock()
	r := m.queues[queue]
	if r == nil {
		if m.queues == nil {
			m.queues = map[string]*importRate{}
		}
		if len(m.queues) >= importQueues {
			for name, old := range m.queues {
				if now.Sub(old.since) > importWindow {
					delete(m.queues, name)
				}
			}
			if len(m.queues) >= importQueues {
				return
			}
		}
		r = &importRate{since: now, before: now, from: map[uint32]time.Time{}}
		m.queues[queue] = r
	}
	if now.Sub(r.since) > time.Second {
		r.before, r.past = r.since, r.count
		r.since, r.count = now, 0
	}
	r.count++
	r.from[node] = now
}

// of returns the nodes and the jobs a second of a queue.
func (m *imports) of(queue string) (from []uint32, rate int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.queues[queue]
	now := m.clock()
	if r == nil || now.Sub(r.since) > importWindow {
		delete(m.queues, queue)
		return nil, 0
	}
	for node, at := range r.from {
		if now.Sub(at) > importWindow {
			delete(r.from, node)
			continue
		}
		from = append(from, node)
	}
	slices.Sort(from)
	ms := max(50, now.Sub(r.before).Milliseconds())
	return from, ((r.count+r.past)*1000 + ms - 1) / ms
}
