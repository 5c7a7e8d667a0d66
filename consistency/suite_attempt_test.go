package consistency

import (
	"errors"
	"math/rand/v2"
	"time"

	"raftq/consistency/check"
)

var errLostAnswer = errors.New("the answer got lost")

// loss is how an answer gets lost between the node and its client.
type loss struct {
	deaf     bool          // it came, and nobody read it: the node knows nothing of that
	patience time.Duration // the client has hung up by then, and the node may notice; 0 = it waits
}

func someLoss(rng *rand.Rand) loss {
	switch rng.IntN(5) {
	case 0, 1:
		return loss{deaf: true}
	case 2:
		return loss{patience: time.Duration(500+rng.IntN(8000)) * time.Microsecond}
	}
	return loss{}
}

const triesMax = 5 // of an attempt

// attempt dequeues under an attempt id, and asks the next node when it has no answer.
// Some answers get lost on purpose; some that came are asked for again, as by somebody
// who does not know. It returns what it holds then, and the last try.
func (l *suiteLoad) attempt(c *suiteClient, rng *rand.Rand, queue string, max int, wait, lease time.Duration, fast bool, more ...string) (*check.Op, []check.Delivery) {
	id := "a" + itoa(l.marks.Add(1))
	home := c.node
	defer func() { c.node, c.loss = home, loss{} }()
	var last *check.Op
	got := map[string]check.Delivery{}
	for try := range triesMax {
		c.loss = loss{}
		if try < triesMax-2 {
			c.loss = someLoss(rng)
		}
		last = c.try(id, queue, max, wait, lease, fast, more...)
		for _, d := range last.Got {
			got[d.Receipt] = d
		}
		if last.Outcome == check.OK && (len(last.Got) == 0 || rng.IntN(4) > 0) || l.stopped() {
			break
		}
		if rng.IntN(3) > 0 {
			c.node = (c.node + 1) % len(l.w.c.Nodes)
		}
	}
	var all []check.Delivery
	for _, d := range got { // their order is nothing to anybody
		all = append(all, d)
	}
	return last, all
}
