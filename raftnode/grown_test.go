package raftnode

import (
	"testing"
	"time"

	"go.uber.org/goleak"

	"raftq/fsm"
)

func (tr *trio) append(i int, topic, body string) {
	tr.t.Helper()
	tr.do(i, &fsm.Append{Topic: topic, Messages: []fsm.NewMessage{{Body: []byte(body)}}})
}

// next reads a topic's next offset on a node, as soon as it has the index.
func (tr *trio) next(i int, topic string, index uint64) (next uint64) {
	tr.t.Helper()
	_, err := tr.nodes[i].Read(fsm.ReadHow{MinIndex: index, TimeoutMs: 10_000}, func(m *fsm.Machine) {
		info, _ := m.Topic(topic)
		next = info.Next
	})
	if err != nil {
		tr.t.Fatal(err)
	}
	return next
}

// TestGrowth proves that a reader on any node hears of each message that comes to its
// topic through another, also to one that did not exist, and of no other topic's; that
// what it hears of is shown by a weak read; and that readers leave nothing behind.
func TestGrowth(t *testing.T) {
	defer goleak.VerifyNone(t)
	tr := newTrio(t)
	tr.openAll()
	for i := range tr.nodes {
		grown, stop, err := tr.nodes[i].Growth("t")
		if err != nil {
			t.Fatal(err)
		}
		from := tr.next(i, "t", 0)
		for range 20 {
			tr.append((i+1)%3, "other", "x")
			tr.append((i+1)%3, "t", "x")
			for next := from; next == from; {
				select {
				case index := <-grown:
					if next = tr.next(i, "t", index); next > from+1 {
						t.Fatalf("node %d: %d after %d", i, next, from)
					}
				case <-time.After(10 * time.Second):
					t.Fatalf("node %d heard nothing of message %d", i, from)
				}
			}
			from++
		}
		stop()
		if n := tr.nodes[i].Readers(); n != 0 {
			t.Errorf("node %d: %d readers left", i, n)
		}
	}
	gone, stop, err := tr.nodes[0].Growth("t")
	if err != nil {
		t.Fatal(err)
	}
	tr.do(2, &fsm.DeleteTopic{Topic: "t"})
	for deadline := time.After(10 * time.Second); ; {
		select {
		case index := <-gone:
			if tr.next(0, "t", index) == 0 {
				deadline = nil
			}
		case <-deadline:
			t.Fatal("a topic that goes wakes nobody")
		}
		if deadline == nil {
			break
		}
	}
	stop()
	leaver := tr.nodes[1]
	grown, stop, err := leaver.Growth("never")
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	tr.close(1)
	select {
	case <-grown:
	case <-time.After(10 * time.Second):
		t.Error("a node that leaves wakes nobody")
	}
	if _, _, err := leaver.Growth("t"); err == nil || err.(*fsm.Error).Code != fsm.CodeLeaving {
		t.Errorf("after its end: %v", err)
	}
	tr.closeAll()
}

// TestGrowthEarly proves that a reader who came while the machine was ahead of what
// is committed is woken when that is committed, once, with the index to look at.
func TestGrowthEarly(t *testing.T) {
	g := newGrowths()
	early, late := &growth{topic: "t", wake: make(chan uint64, 1)}, &growth{topic: "t", wake: make(chan uint64, 1)}
	g.add(early, 10, 7)
	g.add(late, 10, 10)
	at := func(index uint64, grown ...string) {
		g.committed(&fsm.Applied{Position: fsm.Position{Index: index}, Grown: grown})
	}
	want := func(x *growth, index uint64) {
		t.Helper()
		select {
		case got := <-x.wake:
			if got != index {
				t.Errorf("woken at %d, want %d", got, index)
			}
		default:
			if index != 0 {
				t.Errorf("not woken at %d", index)
			}
		}
	}
	at(9)
	want(early, 0)
	at(10)
	want(early, 10)
	want(late, 0)
	at(11, "u", "t")
	at(12, "t")
	at(13, "u")
	want(early, 12) // the newest
	want(late, 12)
	g.add(&growth{topic: "u", wake: make(chan uint64, 1)}, 20, 13)
	g.remove(g.of["u"][0])
	g.remove(early)
	g.remove(early)
	g.remove(late)
	if len(g.count) != 0 || len(g.of) != 0 || len(g.early) != 0 {
		t.Errorf("left: %v %v %v", g.count, g.of, g.early)
	}
}
