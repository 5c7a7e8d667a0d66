package raftnode

import (
	"slices"

	"raftq/fsm"
)

// growthsMax bounds the readers of this node that wait for messages of a topic.
const growthsMax = 65_536

// growths wakes those who wait for messages of a topic. The machine is told which
// topics are waited for and says of each entry which of them it has made grow; at
// its commit their readers are woken, and look by a read.
//
// A leader applies entries before they are committed. What it had applied when a
// reader came was applied without telling of growth, and a weak read does not show
// it yet: such a reader is woken once more when the last of it is committed.
type growths struct {
	count map[string]int // for fsm.Self
	of    map[string][]*growth
	early []*growth // came when the machine was ahead of what is committed
}

// growth is one reader that waits. It belongs to the core between growthAsked and
// growthLeft; wake is its voice.
type growth struct {
	topic string
	head  uint64      // the machine's index when it came
	wake  chan uint64 // of one place: an index that a read must have reached to show it
}

// Events of growths.
type (
	growthAsked struct{ growth *growth }
	growthLeft  struct{ growth *growth }
)

func newGrowths() growths {
	return growths{count: map[string]int{}, of: map[string][]*growth{}}
}

func (g *growths) add(x *growth, head, confirmed uint64) {
	x.head = head
	g.count[x.topic]++
	g.of[x.topic] = append(g.of[x.topic], x)
	if head > confirmed {
		g.early = append(g.early, x)
	}
}

func (g *growths) remove(x *growth) {
	is := func(o *growth) bool { return o == x }
	g.early = slices.DeleteFunc(g.early, is)
	list := g.of[x.topic]
	i := slices.IndexFunc(list, is)
	if i < 0 {
		return
	}
	list[i] = list[len(list)-1]
	list[len(list)-1] = nil
	g.of[x.topic] = list[:len(list)-1]
	if g.count[x.topic]--; g.count[x.topic] == 0 {
		delete(g.count, x.topic)
		delete(g.of, x.topic)
	}
}

// committed wakes whom a committed entry concerns.
func (g *growths) committed(a *fsm.Applied) {
	index := a.Position.Index
	for _, topic := range a.Grown {
		for _, x := range g.of[topic] {
			x.signal(index)
		}
	}
	if len(g.early) == 0 {
		return
	}
	keep := g.early[:0]
	for _, x := range g.early {
		if x.head > index {
			keep = append(keep, x)
			continue
		}
		x.signal(x.head)
	}
	clear(g.early[len(keep):])
	g.early = keep
}

// all wakes everybody: the machine is another one now, or the node leaves.
func (g *growths) all() {
	for _, list := range g.of {
		for _, x := range list {
			x.signal(0)
		}
	}
}

// signal leaves the newest index for the reader. The core alone sends.
func (x *growth) signal(index uint64) {
	select {
	case earlier := <-x.wake:
		index = max(index, earlier)
	default:
	}
	x.wake <- index
}

// Growth tells of a topic's growth, and of that of one that does not exist yet:
// grown has an index whenever a read at that index may show more than one that was
// asked for before. It has one place, for the newest. stop must be called. See
// httpapi.Replica.
func (n *Node) Growth(topic string) (grown <-chan uint64, stop func(), err error) {
	if n.growths.Add(1) > growthsMax {
		n.growths.Add(-1)
		return nil, nil, fsm.Refuse(fsm.CodeOverloaded, "%d readers wait for messages on this node, the most it takes", growthsMax)
	}
	x := &growth{topic: topic, wake: make(chan uint64, 1)}
	if !n.box.post(growthAsked{x}) {
		n.growths.Add(-1)
		return nil, nil, fsm.Refuse(fsm.CodeLeaving, "%v; ask another one", errStopped)
	}
	return x.wake, func() {
		n.growths.Add(-1)
		n.box.post(growthLeft{x})
	}, nil
}

// Readers is how many wait for messages of topics on this node.
func (n *Node) Readers() int64 { return n.growths.Load() }
