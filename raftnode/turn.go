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
			idle = n.box.empty() // a fast request has taken it along
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

// tryTurn runs a turn for a fast request on the request's own goroutine, if the
// core is at rest; false when it is not, and the request is to be submitted. It
// saves a leader the two switches between goroutines that cost more than the
// turn. Requests that wait for a commit gain nothing: they go the usual way, where
// more of them gather in a batch.
func (n *Node) tryTurn(r *request) (bool, *fsm.Error) {
	if !n.view.Load().isLeader || !n.turn.TryLock() {
		return false, nil
	}
	defer func() {
		if p := recover(); p != nil {
			// A handler's panic is survived, a broken core must not be.
			text := fmt.Sprintf("%v\n\n%s", p, debug.Stack())
			go panic(text)
			select {}
		}
		n.turn.Unlock()
	}()
	if n.ended || n.failed != nil {
		return false, nil
	}
	if err := n.box.submit(r, false); err != nil {
		return true, err
	}
	n.step()
	return true, nil
}
