package raftnode

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// TestFifo compares a fifo with a slice, and sees that it keeps nothing that was
// taken out.
func TestFifo(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	var q fifo[*int]
	var want []*int
	for i := range 100_000 {
		// Grows, shrinks, and runs empty.
		if r.IntN(100) < 50+40*(1-2*(i/2000%2)) || len(want) == 0 {
			v := new(i)
			q.push(v)
			want = append(want, v)
		} else {
			if got := q.pop(); got != want[0] {
				t.Fatalf("step %d: popped %v, want %v", i, got, want[0])
			}
			want = want[1:]
		}
		if q.len() != len(want) || i%97 == 0 && !slices.Equal(q.all(), want) {
			t.Fatalf("step %d: %d items, want %d", i, q.len(), len(want))
		}
		if i%101 == 0 {
			whole := q.items[:cap(q.items)]
			for k, v := range whole {
				if v != nil && (k < q.head || k >= len(q.items)) {
					t.Fatalf("step %d: keeps an item that was taken out, at %d of %d", i, k, len(whole))
				}
			}
		}
	}
	if cap(q.items) > 4*fifoKept {
		t.Errorf("room for %d items", cap(q.items))
	}
}
