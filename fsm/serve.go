package fsm

// touch notes that q got a job or a waiter, or a slot of a group: serve will look at
// it.
func (m *Machine) touch(q *queue) {
	r := &m.run
	if q.ready.Len() == 0 || q.waiters.Len() == 0 || q.doomed || q.set().pausedOut && seeded != "pause-ignored" {
		return
	}
	if n := len(r.touched); n > 0 && r.touched[n-1] == q.number {
		return
	}
	r.touched = append(r.touched, q.number)
}

// serve hands the jobs of touched queues to the oldest waiters, each
// filled up to its max from its queues, left to right. Afterwards no queue has
// both. The oldest waiter of all touched queues comes first, else a younger
// one could take a job of another queue from under an older one's nose.
func (m *Machine) serve() {
	r := &m.run
	if len(r.touched) == 0 {
		return
	}
	for _, number := range r.touched {
		m.turn(number)
	}
	r.touched = r.touched[:0]
	for len(r.turns) > 0 {
		t := r.turns.pop()
		if w := m.firstWaiter(t.queue); w != nil && w.seq == t.seq {
			m.serveWaiter(w)
		}
		m.turn(t.queue)
	}
}

// turn lines a queue up with its first waiter, if it has both a job to hand out
// and a waiter. Waiters only leave while serve runs, so a turn never comes too late.
func (m *Machine) turn(number uint32) {
	if w := m.firstWaiter(number); w != nil {
		m.run.turns.push(turn{w.seq, number})
	}
}

// firstWaiter returns the oldest waiter of a queue that has a job to hand out.
func (m *Machine) firstWaiter(number uint32) *waiter {
	q, ok := m.queues.Get(number)
	if !ok || !q.handable() {
		return nil
	}
	_, w, _ := q.waiters.Min()
	if seeded == "youngest-waiter-first" {
		_, w, _ = q.waiters.Max()
	}
	return w
}

// turn is a queue's place in line: the sequence of its first waiter.
type turn struct {
	seq   uint64
	queue uint32
}

// turns is a heap, the lowest sequence first.
type turns []turn

func (h *turns) push(t turn) {
	s := append(*h, t)
	for i := len(s) - 1; i > 0; {
		up := (i - 1) / 2
		if s[up].seq <= s[i].seq {
			break
		}
		s[up], s[i] = s[i], s[up]
		i = up
	}
	*h = s
}

func (h *turns) pop() turn {
	s := *h
	first, last := s[0], len(s)-1
	s[0] = s[last]
	s = s[:last]
	for i := 0; ; {
		low := 2*i + 1
		if low+1 < len(s) && s[low+1].seq < s[low].seq {
			low++
		}
		if low >= len(s) || s[i].seq <= s[low].seq {
			break
		}
		s[i], s[low] = s[low], s[i]
		i = low
	}
	*h = s
	return first
}

func (m *Machine) serveWaiter(w *waiter) {
	r := &m.run
	g := grantee{
		tag: requestTag(w.epoch, w.request), leaseMs: w.leaseMs, consumer: w.consumer, attempt: w.attempt,
		wanted: w.node == r.self.Origin && w.epoch == r.self.Epoch,
	}
	// Out first: with its waiter, a queue's last job must not find it waiting.
	m.unpark(w)
	m.noteWaiter(w)
	m.fill(w.queues, &g, w.max)
	m.begin(w.attempt, g.given)
	if g.wanted {
		r.handout(w.request, Result{Position: m.Position(), Jobs: g.jobs})
	}
}
