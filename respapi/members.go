package respapi

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// membersFor is how long an answer of Replica.Members is used again.
const membersFor = 100 * time.Millisecond

// membersCache keeps the last answer of Replica.Members: ADDJOB needs it each
// time, and it may take a turn of the replica.
type membersCache struct {
	replica Replica
	last    atomic.Pointer[knownMembers]
	asking  sync.Mutex
}

type knownMembers struct {
	Members
	at time.Time
}

func (c *membersCache) get() *knownMembers {
	m := c.last.Load()
	if m != nil && time.Since(m.at) < membersFor {
		return m
	}
	if m == nil {
		c.asking.Lock()
	} else if !c.asking.TryLock() {
		return m // another one is at it
	}
	defer c.asking.Unlock()
	m = &knownMembers{Members: c.replica.Members(), at: time.Now()}
	c.last.Store(m)
	return m
}

// forget makes the next get ask anew.
func (c *membersCache) forget() { c.last.Store(nil) }

// voters counts the nodes that keep jobs, and those of them that are alive.
func (m *Members) voters() (all, alive int) {
	for _, n := range m.Nodes {
		if n.Learner {
			continue
		}
		all++
		if n.Alive {
			alive++
		}
	}
	return max(1, all), alive
}

// copies is what REPLICATE is when it is not said.
func (c *membersCache) copies() int64 {
	all, _ := c.get().voters()
	return int64(min(replicas, all))
}

// enough checks whether n copies can be had, and returns for how many an ADDJOB
// waits: 0 when a majority will do, which it waits for anyway.
func (c *membersCache) enough(n int64) (int, error) {
	all, alive := c.get().voters()
	switch {
	case n <= int64(all/2+1):
		return 0, nil
	case n > int64(alive):
		return 0, refuse("NOREPL", "%d copies are asked for and %d of %d nodes are there; nothing was added", n, alive, all)
	}
	return int(n), nil
}

// nodeName is a node's id in Disque's form, 40 hexadecimal digits. Job ids begin
// with its first eight.
func nodeName(id uint64) string { return fmt.Sprintf("%016x%024x", id, 0) }
