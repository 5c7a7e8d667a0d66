package raftnode

import (
	"fmt"
	"runtime/debug"
	"time"

	"raftq/failpoint"
	"raftq/fsm"
)

// run is the core's own goroutine.
func (n *Node) run() {
	ticker := time.NewTicker(n.cfg.Tick)
	defer ticker.Stop()
	defer n.later.Stop()
	for {
		idle := false
		select {
		case <-n.box.wake:
			idle = n.box.empty() // another goroutine has taken it along
		case <-ticker.C:
		case <-n.later.C:
		case <-n.quit:
			n.turn.Lock()
			n.end(nil)
			n.turn.Unlock()
			return
		}
		if idle {
			continue
		}
		n.turn.Lock()
		n.step()
		err := n.failed
		if err != nil {
			n.end(err)
		}
		n.turn.Unlock()
		if err != nil {
			return
		}
	}
}

// turnClock is clocks for the turns of a core, of which there may be many in a
// moment: it makes the system call once in turnClockNs and goes on from there by a
// clock that needs none, but stands still in a suspend. The wall clock does not, so
// that the two move apart tells of one. It never goes back.
type turnClock struct {
	now  func() (mono, wall int64) // ns; mono may stand still in a suspend
	boot func() int64

	mono, wall int64 // right after the last call of boot
	base       int64 // what that said, 0 = none yet
	last       int64
}

const turnClockNs = 5e6

func newTurnClock() turnClock {
	began := time.Now()
	return turnClock{boot: bootTime, now: func() (mono, wall int64) {
		now := time.Now()
		return int64(now.Sub(began)), now.UnixNano() + failpoint.WallOffset()
	}}
}

func (t *turnClock) read() reading {
	mono, wall := t.now()
	passed := mono - t.mono
	if apart := wall - t.wall - passed; t.base == 0 || passed >= turnClockNs || max(apart, -apart) > 1e6 {
		t.base = t.boot()
		mono, wall = t.now()
		t.mono, t.wall, passed = mono, wall, 0
	}
	t.last = max(t.last, t.base+passed)
	return reading{boot: t.last, wall: wall / 1e6}
}

// step is one turn of the core with all that waits. n.turn is held. After a
// failure run must end the replica.
func (n *Node) step() {
	if n.failed != nil {
		return
	}
	n.events, n.requests = n.box.take(n.events, n.requests)
	if len(n.requests) > 0 {
		n.events = append(n.events, submitted{n.requests})
	}
	out, err := n.core.step(n.clock.read(), n.events)
	n.perform(out)
	if n.failed = err; err != nil {
		return // run sees it with the next tick, at the latest
	}
	if out.wakeAt > 0 && out.wakeAt != n.wakeAt {
		n.later.Reset(time.Duration(out.wakeAt - n.core.now.boot))
	}
	n.wakeAt = out.wakeAt
}

// tryStep runs a turn here and now, if the core is at rest. It saves those who bring
// something, and the answer to a fast request, a switch to another goroutine, which
// costs more than the turn.
func (n *Node) tryStep() bool {
	if !n.turn.TryLock() {
		return false
	}
	defer func() {
		if p := recover(); p != nil {
			// Servers survive a handler's panic; a broken core must not be.
			text := fmt.Sprintf("%v\n\n%s", p, debug.Stack())
			go panic(text)
			select {}
		}
		n.turn.Unlock()
	}()
	if n.ended || n.failed != nil {
		return false
	}
	n.step()
	return true
}

// deliver puts an event and has its turn run, on this goroutine if that is possible;
// false when the core has ended.
func (n *Node) deliver(e any) bool {
	wake, ok := n.box.put(e)
	if wake && !n.tryStep() {
		n.box.signal()
	}
	return ok
}

// submit brings a request to the core. A fast one runs its turn itself on a leader.
// What waits for a commit gains nothing by that: it goes to the core's goroutine, and
// more of it gathers in a batch.
func (n *Node) submit(r *request) *fsm.Error {
	wake, err := n.box.submit(r)
	if err != nil || r.fast && n.view.Load().isLeader && n.tryStep() {
		return err
	}
	if wake {
		n.box.signal()
	}
	return nil
}
