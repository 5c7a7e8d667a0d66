package raftnode

import (
	"fmt"
	"runtime/debug"
	"time"

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
	out, err := n.core.step(clocks(), n.events)
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
