package fsm

import (
	"strings"

	"github.com/tidwall/btree"
)

// groups is the index of a queue's jobs that have a group. A queue has one while
// some of them are ready or keep a slot; it is changed with the queue.
//
// A group has group_limit slots. A job takes one when it is handed out and keeps it
// until it is done, dead, held, or ready again: also while it waits for its retry,
// so that what comes behind it in the group stays behind it. At-most-once jobs
// whose lease is over are held, and keep none: nobody will get them again. A group
// whose slots are all taken is passed over; jobs without a group never are.
//
// The first ready jobs of the groups are listed by the slots that their groups have
// taken, so that a change of group_limit moves nothing, and both by sequence and by
// turn, so that a change of fair does not either.
type groups struct {
	byName   btree.Map[string, uint32] // numbers of groups
	byNumber btree.Map[uint32, *group]
	last     uint32 // number last given
	jobs     btree.BTreeG[groupJob]
	firsts   btree.BTreeG[groupPlace] // ranked by sequence
	turns    btree.BTreeG[groupPlace] // ranked by turn
	ready    int
	// loose is the turn of the jobs without group: when the queue is fair they take
	// turns with the groups as if they were one.
	loose uint64
}

// group is changed only by the machine whose stamp it carries.
type group struct {
	stamp  uint64
	name   string
	number uint32 // within this index of this machine; not part of the state
	busy   int    // slots taken
	ready  int    // jobs
	first  groupJob
	turn   uint64 // sequence of its last turn: the lowest is next
	// freed is the index of the last entry that freed a slot: a hand-out stands on
	// it. It is not part of the state: after a restore all that is committed.
	freed uint64
}

// groupJob is a ready job of a group; order is its job.order.
type groupJob struct {
	group uint32
	order uint64
	key   Key
}

func groupJobLess(a, b groupJob) bool {
	return a.group < b.group || a.group == b.group && a.order < b.order
}

// groupPlace is the place of a group among those with ready jobs.
type groupPlace struct {
	busy  int
	level uint8  // 9 − priority of its first job
	rank  uint64 // sequence of its first job, or its turn
	group uint32
}

func groupPlaceLess(a, b groupPlace) bool {
	switch {
	case a.busy != b.busy:
		return a.busy < b.busy
	case a.level != b.level:
		return a.level < b.level
	}
	return a.rank < b.rank
}

func newGroups() *groups {
	return &groups{jobs: tree(groupJobLess), firsts: tree(groupPlaceLess), turns: tree(groupPlaceLess)}
}

// fresh is as that of the queue's trees.
func (g *groups) fresh() *groups {
	if g == nil {
		return nil
	}
	c := *g
	c.byName, c.byNumber = fresh(g.byName), fresh(g.byNumber)
	jobs, firsts, turns := g.jobs, g.firsts, g.turns
	c.jobs, c.firsts, c.turns = *jobs.IsoCopy(), *firsts.IsoCopy(), *turns.IsoCopy()
	return &c
}

func (j *job) group() string {
	if j.rare == nil || j.rare.more == nil {
		return ""
	}
	return j.rare.more.group
}

func (e *group) level() uint8 { return uint8(e.first.order >> 60) }
func (e *group) seqPlace() groupPlace {
	return groupPlace{e.busy, e.level(), e.first.order & seqMax, e.number}
}
func (e *group) turnPlace() groupPlace { return groupPlace{e.busy, e.level(), e.turn, e.number} }
func (e *group) bytes() int64          { return groupCost + int64(len(e.name)) }

// named returns a group, for reading; nil when it has nothing ready and nothing
// busy.
func (g *groups) named(name string) *group {
	if g == nil {
		return nil
	}
	number, _ := g.byName.Get(name)
	e, _ := g.byNumber.Get(number)
	return e
}

// newGroup adds a group to an owned queue.
func (m *Machine) newGroup(q *queue, name string, turn uint64) *group {
	if q.groups == nil {
		q.groups = newGroups()
	}
	g := q.groups
	g.last++ // 2³² groups of one life of an index are never reached
	e := &group{stamp: m.stamp, name: strings.Clone(name), number: g.last, turn: turn}
	g.byName.Set(e.name, e.number)
	g.byNumber.Set(e.number, e)
	m.bytes += e.bytes()
	return e
}

// ownGroup returns a group of an owned queue to change.
func (m *Machine) ownGroup(q *queue, e *group) *group {
	if e.stamp == m.stamp {
		return e
	}
	c := *e
	c.stamp = m.stamp
	q.groups.byNumber.Set(c.number, &c)
	return &c
}

// list puts a group into its places, unlist takes it out: whatever these read of it
// changes in between.
func (g *groups) list(e *group) {
	if e.ready > 0 {
		g.firsts.Set(e.seqPlace())
		g.turns.Set(e.turnPlace())
	}
}

func (g *groups) unlist(e *group) {
	if e.ready > 0 {
		g.firsts.Delete(e.seqPlace())
		g.turns.Delete(e.turnPlace())
	}
}

// counts tells whether the group of the job counts it.
func (j *job) counts() bool { return j.state == stateReady || j.flags&flagSlot != 0 }

// enterGroup counts a job of a group that has just been placed in an owned queue.
func (m *Machine) enterGroup(q *queue, it jobItem) {
	if !it.counts() {
		return
	}
	e := q.groups.named(it.group())
	if e == nil {
		e = m.newGroup(q, it.group(), m.nextSeq())
	}
	q.groups.enter(m.ownGroup(q, e), it)
}

func (g *groups) enter(e *group, it jobItem) {
	g.unlist(e)
	if it.state == stateReady {
		j := groupJob{e.number, it.order(), it.key}
		g.jobs.Set(j)
		g.ready++
		if e.ready++; e.ready == 1 || j.order < e.first.order {
			e.first = j
		}
	} else {
		e.busy++
	}
	g.list(e)
}

// leaveGroup counts a job of a group out that is being taken out of its places.
func (m *Machine) leaveGroup(q *queue, it jobItem) {
	if !it.counts() {
		return
	}
	g := q.groups
	e := m.ownGroup(q, g.named(it.group()))
	g.unlist(e)
	if it.state == stateReady {
		j := groupJob{e.number, it.order(), it.key}
		g.jobs.Delete(j)
		g.ready--
		if e.ready--; e.ready > 0 && j.order == e.first.order {
			g.jobs.Ascend(groupJob{group: e.number}, func(next groupJob) bool {
				e.first = next
				return false
			})
		}
	} else {
		e.busy--
		e.freed = m.index
		m.touch(q)
	}
	g.list(e)
}

// restGroup forgets a group that has nothing ready and nothing busy. Call it after
// the last of it may have left.
func (m *Machine) restGroup(q *queue, name string) {
	if q.groups == nil {
		return
	}
	g := q.groups
	e := g.named(name)
	if e == nil || e.ready+e.busy > 0 {
		return
	}
	g.byName.Delete(name)
	g.byNumber.Delete(e.number)
	m.bytes -= e.bytes()
	if g.byName.Len() == 0 {
		q.groups = nil
	}
}

// takeTurn puts the group of a job that is handed out behind all others.
func (m *Machine) takeTurn(q *queue, it jobItem) {
	if q.groups == nil || !q.set().config.Fair {
		return
	}
	name := it.group()
	if name == "" {
		q.groups.loose = m.nextSeq()
		return
	}
	e := m.ownGroup(q, q.groups.named(name))
	q.groups.unlist(e)
	e.turn = m.nextSeq()
	q.groups.list(e)
}

func (q *queue) groupLimit() int { return max(1, int(q.set().config.GroupLimit)) }

// free tells whether a group with ready jobs has a slot.
func (g *groups) free(limit int) bool {
	p, some := g.firsts.Min()
	return some && p.busy < limit
}

func (m *Machine) encodeGroups(e *encoder) {
	e.open(sectionGroups)
	m.queues.Scan(func(number uint32, q *queue) bool {
		if q.groups == nil {
			return true
		}
		turn := func(name string, turn uint64) {
			e.uvarint(uint64(number))
			e.text(name)
			e.uvarint(turn)
			e.done()
		}
		if q.groups.loose != 0 {
			turn("", q.groups.loose)
		}
		q.groups.byName.Scan(func(name string, n uint32) bool {
			g, _ := q.groups.byNumber.Get(n)
			turn(name, g.turn)
			return e.err == nil
		})
		return e.err == nil
	})
}

// group reads the turn of a group of which jobs were read.
func (d *decoder) group(f *fields) error {
	q := d.queues[uint32(f.upTo(1<<32-1))]
	name, turn := string(f.raw(KeyMax)), f.upTo(seqMax)
	if f.bad || q == nil || q.groups == nil {
		return errState
	}
	d.seqs = append(d.seqs, turn)
	if name == "" {
		if q.groups.loose != 0 {
			return errState
		}
		q.groups.loose = turn
		return nil
	}
	e := q.groups.named(name)
	if e == nil || e.turn != 0 || turn == 0 {
		return errState
	}
	q.groups.unlist(e)
	e.turn = turn
	q.groups.list(e)
	return nil
}
