package raftnode

import (
	"time"

	"raftq/fsm"
)

const (
	// watchesMax bounds the clients of this node that wait for the end of a job.
	watchesMax = 65_536
	// awaitGrace is how long looking may take beyond the wait.
	awaitGrace = 5 * time.Second
)

// watches wakes those who wait for the end of a job. The machine is told which jobs
// are watched and says which of them an entry has ended; at its commit whoever
// waits is woken, and looks by a read. Nothing is asked again and again.
type watches struct {
	count map[fsm.Key]int // for fsm.Self
	of    map[fsm.Key][]*watch
	n     int
}

// watch is one client that waits. It belongs to the core between watchAsked and
// unwatched; wake and refused are its voice.
type watch struct {
	key     fsm.Key
	wake    chan struct{} // of one place: woken once is enough
	refused bool          // too many wait; set before a read that was asked later is answered
}

// Events of watches.
type (
	watchAsked struct{ watch *watch }
	unwatched  struct{ watch *watch }
)

func newWatches() watches {
	return watches{count: map[fsm.Key]int{}, of: map[fsm.Key][]*watch{}}
}

func (w *watches) add(x *watch) {
	if w.n == watchesMax {
		x.refused = true
		return
	}
	w.n++
	w.count[x.key]++
	w.of[x.key] = append(w.of[x.key], x)
}

func (w *watches) remove(x *watch) {
	list := w.of[x.key]
	for i := range list {
		if list[i] != x {
			continue
		}
		w.n--
		list[i] = list[len(list)-1]
		list[len(list)-1] = nil
		w.of[x.key] = list[:len(list)-1]
		if w.count[x.key]--; w.count[x.key] == 0 {
			delete(w.count, x.key)
			delete(w.of, x.key)
		}
		return
	}
}

// ended wakes those who wait for a job.
func (w *watches) ended(k fsm.Key) {
	for _, x := range w.of[k] {
		x.signal()
	}
}

// all wakes everybody: the machine is another one now, or the node leaves.
func (w *watches) all() {
	for _, list := range w.of {
		for _, x := range list {
			x.signal()
		}
	}
}

func (x *watch) signal() {
	select {
	case x.wake <- struct{}{}:
	default:
	}
}

// Await blocks until a job has ended and says how, EndNone when that did not happen
// within timeout, or gone is closed. CodeJobNotFound: nothing is known of it. A job
// that was there and left no trace was deleted with others, by a purge or with its
// queue: those are not remembered one by one. See httpapi.Replica.
func (n *Node) Await(key fsm.Key, timeout time.Duration, gone <-chan struct{}) (fsm.JobEnd, fsm.Seen, error) {
	w := &watch{key: key, wake: make(chan struct{}, 1)}
	if !n.box.post(watchAsked{w}) {
		return fsm.JobEnd{}, fsm.Seen{}, fsm.Refuse(fsm.CodeLeaving, "%v; ask another one", errStopped)
	}
	defer n.box.post(unwatched{w})
	over := time.NewTimer(timeout)
	defer over.Stop()
	began := time.Now()
	for there := false; ; there = true {
		var end fsm.JobEnd
		var code fsm.Code
		left := max(timeout-time.Since(began), 0) + awaitGrace
		// Linearizable, and behind the watch: what ended before is seen, what ends
		// after wakes.
		seen, err := n.Read(fsm.ReadHow{Strong: true, TimeoutMs: left.Milliseconds()}, func(m *fsm.Machine) {
			end, code = m.JobEnd(key)
		})
		switch {
		case err != nil:
			return fsm.JobEnd{}, seen, err
		case w.refused:
			return fsm.JobEnd{}, seen, fsm.Refuse(fsm.CodeOverloaded, "%d clients wait for jobs on this node, the most it takes", watchesMax)
		case code == fsm.CodeJobNotFound && there:
			return fsm.JobEnd{End: fsm.EndDone}, seen, nil
		case code != fsm.CodeOK:
			return fsm.JobEnd{}, seen, fsm.Refuse(code, "nothing is known of this job")
		case end.End != fsm.EndNone:
			return end, seen, nil
		}
		select {
		case <-w.wake:
		case <-over.C:
			return end, seen, nil
		case <-gone:
			return end, seen, nil
		case <-n.done:
			return end, seen, fsm.Refuse(fsm.CodeLeaving, "%v; ask another one", errStopped)
		}
	}
}
