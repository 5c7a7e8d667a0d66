package fsm

import "github.com/tidwall/btree"

// The trees of a queue hold their jobs in lanes, which lie behind each other in
// the order of keys: ready jobs by priority, the others by state, dead ones by
// their reason. Within a lane they lie by sequence. So jobs of some states are
// found without looking at others, and lists by sequence merge lanes.

// lane is a part of a tree: the keys from base to last. What is added to base is
// called the place; in all lanes but those of delivery it is the sequence.
type lane struct {
	keys       *btree.Map[uint64, Key]
	base, last uint64
}

// Ready jobs lie behind each other by priority, those with a group behind the
// others.
const (
	readyShift = 59
	groupLane  = 16
)

// readyOrder is the place of a ready job in its queue.
func (j *job) readyOrder() uint64 {
	if j.group() != "" {
		return groupLane<<readyShift | j.deliveryPlace()
	}
	return j.deliveryPlace()
}

// restOrder is the place of a job that is not ready in its queue.
func (j *job) restOrder() uint64 {
	lane := uint64(j.state)
	if j.state == stateDead {
		lane += uint64(j.rare.deadReason)
	}
	return lane<<60 | j.seq
}

// deliveryPlace is the place of a job in deliveryLanes.
func (j *job) deliveryPlace() uint64 {
	if seeded == "priority-ignored" {
		return j.seq
	}
	return uint64(9-j.priority)<<readyShift | j.seq
}

// readyLanes returns the lanes of ready jobs of a priority.
func (q *queue) readyLanes(priority uint64) []lane {
	base := (9 - priority) << readyShift
	all := []lane{{&q.ready, base, base | seqMax}}
	if q.groups != nil {
		base |= groupLane << readyShift
		all = append(all, lane{&q.ready, base, base | seqMax})
	}
	return all
}

// deliveryLanes returns lanes of all ready jobs; the place in them is that in the
// order of delivery, as it is while nothing ages, no group is passed over and the
// queue is not fair.
func (q *queue) deliveryLanes() []lane {
	all := []lane{{&q.ready, 0, looseMax}}
	if q.groups != nil {
		all = append(all, lane{&q.ready, looseMax + 1, ^uint64(0)})
	}
	return all
}

func (q *queue) restLane(n uint64) lane { return lane{&q.rest, n << 60, n<<60 | seqMax} }

func (q *queue) deadLane(reason uint8) lane { return q.restLane(uint64(stateDead) + uint64(reason)) }

// lanes returns the lanes of jobs in some states.
func (q *queue) lanes(states StateSet) (all []lane) {
	if states&StateReady != 0 {
		for p := range uint64(10) {
			all = append(all, q.readyLanes(p)...)
		}
	}
	for _, s := range [...]jobState{stateDelayed, stateLeased, stateHeld} {
		if states&(1<<s) != 0 {
			all = append(all, q.restLane(uint64(s)))
		}
	}
	if states&StateDead != 0 {
		for reason := uint8(reasonNone + 1); reason < reasonCount; reason++ {
			all = append(all, q.deadLane(reason))
		}
	}
	return all
}

// laneIter walks a lane.
type laneIter struct {
	lane
	at   btree.MapIter[uint64, Key]
	some bool // at is within the lane
}

func (i *laneIter) place() uint64 { return i.at.Key() - i.base }

// stay notes whether the walk is still within the lane.
func (i *laneIter) stay(some bool) {
	i.some = some && i.at.Key() >= i.base && i.at.Key() <= i.last
}

// merge shows the jobs of lanes by place, beginning with from, up or down, until
// look returns false. look must not change the lanes.
func merge(lanes []lane, from uint64, desc bool, look func(place uint64, k Key) bool) {
	iters := make([]laneIter, len(lanes))
	for n := range iters {
		i := &iters[n]
		i.lane = lanes[n]
		i.at = i.keys.Iter()
		some := i.at.Seek(i.base + from)
		if desc {
			// Seek goes to the first key that is not before.
			if !some {
				some = i.at.Last()
			} else if i.at.Key() > i.base+from {
				some = i.at.Prev()
			}
		}
		i.stay(some)
	}
	for {
		var next *laneIter
		for n := range iters {
			i := &iters[n]
			if i.some && (next == nil || (i.place() < next.place()) != desc) {
				next = i
			}
		}
		if next == nil || !look(next.place(), next.at.Value()) {
			return
		}
		if desc {
			next.stay(next.at.Prev())
		} else {
			next.stay(next.at.Next())
		}
	}
}

// sweep returns the first jobs of lanes by sequence, at most limit and none beyond
// upTo, and whether there are others.
func sweep(lanes []lane, upTo uint64, limit int) (jobs []place, more bool) {
	merge(lanes, 0, false, func(seq uint64, k Key) bool {
		if seq > upTo {
			return false
		}
		if more = len(jobs) == limit; !more {
			jobs = append(jobs, place{seq, k})
		}
		return !more
	})
	return jobs, more
}
