package raftnode

import (
	"testing"
	"time"

	"go.uber.org/goleak"

	"raftq/fsm"
)

// awaited is what an Await returned.
type awaited struct {
	end fsm.JobEnd
	err error
}

func (tr *trio) await(i int, id fsm.ID, timeout time.Duration, gone <-chan struct{}) chan awaited {
	got := make(chan awaited, 1)
	go func() {
		end, _, err := tr.nodes[i].Await(id.Key, timeout, gone)
		got <- awaited{end, err}
	}()
	return got
}

func (tr *trio) do(i int, op fsm.Op) fsm.Result {
	tr.t.Helper()
	res, err := tr.nodes[i].Do(op, false, 10*time.Second, nil)
	if err != nil || res.Code != fsm.CodeOK {
		tr.t.Fatalf("%T: %v %+v", op, err, res)
	}
	return res
}

// TestAwait proves that whoever waits on one node for the end of a job hears of it
// when it is acked, rejected, expired, purged or gone with its queue through another,
// also when it had ended before; that an unknown job is said to be one; and that waits which are over leave
// nothing behind.
func TestAwait(t *testing.T) {
	defer goleak.VerifyNone(t)
	tr := newTrio(t)
	tr.openAll()
	acked, rejected, untouched := enqueueOn(t, tr.nodes[0], "a"), enqueueOn(t, tr.nodes[0], "b"), enqueueOn(t, tr.nodes[0], "c")
	expiring := tr.do(0, &fsm.Enqueue{Jobs: []fsm.NewJob{{Queue: "other", TTLMs: 300, Priority: 4}}}).Items[0].ID
	purged := tr.do(0, &fsm.Enqueue{Jobs: []fsm.NewJob{{Queue: "purged", Priority: 4}}}).Items[0].ID
	dropped := tr.do(0, &fsm.Enqueue{Jobs: []fsm.NewJob{{Queue: "dropped", Priority: 4}}}).Items[0].ID
	onPurged, onDropped := tr.await(2, purged, time.Minute, nil), tr.await(2, dropped, time.Minute, nil)
	onAcked := tr.await(2, acked, time.Minute, nil)
	again := tr.await(2, acked, time.Minute, nil)
	onRejected := tr.await(2, rejected, time.Minute, nil)
	onExpired := tr.await(2, expiring, time.Minute, nil)
	gone := make(chan struct{})
	onGone := tr.await(2, untouched, time.Minute, gone)
	watched := func() (n int) {
		ch := make(chan int, 1)
		tr.nodes[2].box.post(viewAsked{func(Status) { ch <- tr.nodes[2].core.watches.n }}) // answered by the core
		return <-ch
	}
	await(t, "seven watches", func() bool { return watched() == 7 })
	rounds := tr.nodes[2].view.Load().stats.readRounds

	jobs := tr.do(1, &fsm.Dequeue{Queues: []string{"q"}, Max: 2}).Jobs
	tr.do(1, &fsm.Ack{Items: []fsm.Item{jobs[0].Receipt().Item()}})
	tr.do(1, &fsm.Reject{Items: []fsm.Item{jobs[1].Receipt().Item()}})
	tr.do(1, &fsm.Purge{Queue: "purged", States: fsm.StateAll})
	tr.do(1, &fsm.DeleteQueue{Queue: "dropped", Force: true})
	for what, c := range map[string]struct {
		got  chan awaited
		want fsm.End
	}{"acked": {onAcked, fsm.EndDone}, "the second of two": {again, fsm.EndDone}, "rejected": {onRejected, fsm.EndDead}, "expired": {onExpired, fsm.EndExpired},
		"purged": {onPurged, fsm.EndDone}, "gone with its queue": {onDropped, fsm.EndDone}} {
		if a := <-c.got; a.err != nil || a.end.End != c.want {
			t.Errorf("%s: %v %+v", what, a.err, a.end)
		}
	}
	close(gone)
	if a := <-onGone; a.err != nil || a.end.End != fsm.EndNone {
		t.Errorf("gone: %v %+v", a.err, a.end)
	}
	if a := <-tr.await(2, acked, time.Minute, nil); a.err != nil || a.end.End != fsm.EndDone {
		t.Errorf("ended before: %v %+v", a.err, a.end)
	}
	if a := <-tr.await(2, untouched, 10*time.Millisecond, nil); a.err != nil || a.end.End != fsm.EndNone {
		t.Errorf("not in time: %v %+v", a.err, a.end)
	}
	never := fsm.ID{Key: fsm.Key{Hi: 1, Lo: 1}}
	if a := <-tr.await(2, never, time.Minute, nil); a.err == nil || a.err.(*fsm.Error).Code != fsm.CodeJobNotFound {
		t.Errorf("never was: %v %+v", a.err, a.end)
	}
	await(t, "no watches", func() bool { return watched() == 0 })
	// Each wait takes two reads, which share rounds: nobody asks again and again.
	if n := tr.nodes[2].view.Load().stats.readRounds - rounds; n > 20 {
		t.Errorf("%d rounds for ten waits", n)
	}

	left := tr.await(2, untouched, time.Minute, nil)
	await(t, "a watch", func() bool { return watched() == 1 })
	tr.close(2)
	if a := <-left; a.err == nil || a.err.(*fsm.Error).Code != fsm.CodeLeaving {
		t.Errorf("the node left: %v %+v", a.err, a.end)
	}
	tr.closeAll()
}

// TestWatchesBounded proves that the list of watches has an end and forgets.
func TestWatchesBounded(t *testing.T) {
	w := newWatches()
	var all []*watch
	for i := range watchesMax {
		x := &watch{key: fsm.Key{Lo: uint64(i % 1000)}, wake: make(chan struct{}, 1)}
		w.add(x)
		all = append(all, x)
	}
	over := &watch{wake: make(chan struct{}, 1)}
	if w.add(over); !over.refused || w.n != watchesMax {
		t.Errorf("one too many: refused %v, %d kept", over.refused, w.n)
	}
	w.remove(over) // was never in
	for i, x := range all {
		if w.remove(x); i%7 == 0 {
			w.remove(x)
		}
	}
	if w.n != 0 || len(w.count) != 0 || len(w.of) != 0 {
		t.Errorf("%d left, %d counted, %d listed", w.n, len(w.count), len(w.of))
	}
}
