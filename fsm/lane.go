package fsm

import "github.com/tidwall/btree"

// The trees of a queue hold their jobs in lanes, which lie behind each other in
// the order of keys: ready jobs by priority, the others by state, dead ones by
// their reason. Within a lane they lie by sequence. So jobs of some states are
// found without looking at others, and lists by sequence merge lanes.

// lane is a part of a tree: the keys from base to base|seqMax.
type lane struct {
	keys *btree.Map[uint64, Key]
	base uint64
}

// restOrder is the place of a job that is not ready in its queue.
func (j *job) restOrder() uint64 {
	lane := uint64(j.state)
	if j.state == stateDead {
		lane += uint64(j.rare.deadReason)
	}
	return lane<<60 | j.seq
}

// readyLanes returns the lanes of ready jobs, in the order of delivery.
func (q *queue) readyLanes() []lane {
	all := make([]lane, 10, 16)
	for i := range all {
		all[i] = lane{&q.ready, uint64(i) << 60}
	}
	return all
}

func (q *queue) restLane(n uint64) lane { return lane{&q.rest, n << 60} }

func (q *queue) deadLane(reason uint8) lane { return q.restLane(uint64(stateDead) + uint64(reason)) }

// lanes returns the lanes of jobs in some states.
func (q *queue) lanes(states StateSet) (all []lane) {
	if states&StateReady != 0 {
		all = q.readyLanes()
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

func (i *laneIter) seq() uint64 { return i.at.Key() & seqMax }

// stay notes whether the walk is still within the lane.
func (i *laneIter) stay(some bool) {
	i.some = some && i.at.Key() >= i.base && i.at.Key() <= i.base|seqMax
}

// merge shows the jobs of lanes by sequence, beginning with from, up or down,
// until look returns false. look must not change the lanes.
func merge(lanes []lane, from uint64, desc bool, look func(seq uint64, k Key) bool) {
	iters := make([]laneIter, len(lanes))
	for n := range iters {
		i := &iters[n]
		i.lane = lanes[n]
		i.at = i.keys.Iter()
		some := i.at.Seek(i.base | from)
		if desc {
			// Seek goes to the first key that is not before.
			if !some {
				some = i.at.Last()
			} else if i.at.Key() > i.base|from {
				some = i.at.Prev()
			}
		}
		i.stay(some)
	}
	for {
		var next *laneIter
		for n := range iters {
			i := &iters[n]
			if i.some && (next == nil || (i.seq() < next.seq()) != desc) {
				next = i
			}
		}
		if next == nil || !look(next.seq(), next.at.Value()) {
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
