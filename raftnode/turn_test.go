package raftnode

import "testing"

// TestTurnClock: it says what CLOCK_BOOTTIME says, with few calls, right after a
// suspend too, and never goes back.
func TestTurnClock(t *testing.T) {
	boot, mono, wall := int64(5e12), int64(7e9), int64(1.7e18)
	calls, lag := 0, int64(0)
	pass := func(ns int64) { boot, mono, wall = boot+ns, mono+ns, wall+ns }
	c := turnClock{
		now:  func() (int64, int64) { return mono, wall },
		boot: func() int64 { calls++; b := boot; pass(lag); return b },
	}
	last, reads := int64(0), 0
	read := func(late int64) {
		t.Helper()
		reads++
		got := c.read()
		if got.boot > boot || got.boot < boot-late {
			t.Fatalf("reading %d says %d, and it is %d", reads, got.boot, boot)
		}
		if got.boot < last {
			t.Fatalf("reading %d goes back from %d to %d", reads, last, got.boot)
		}
		if got.wall != wall/1e6 {
			t.Fatalf("reading %d: wall clock %d, and it is %d", reads, got.wall, wall/1e6)
		}
		last = got.boot
	}
	for range 1000 {
		pass(30e3)
		read(0)
	}
	if calls > 7 {
		t.Errorf("%d calls in 30 ms", calls)
	}
	// A suspend: the monotonic clock stands still.
	boot, wall = boot+3600e9, wall+3600e9
	read(0)
	// The wall clock is set back, and forth.
	for _, by := range []int64{-3600e9, 7200e9} {
		wall += by
		pass(1)
		read(0)
	}
	// The goroutine is held up after the call: late by that, until the next one.
	pass(turnClockNs)
	lag = 3e6
	read(3e6)
	lag = 0
	for range 100 {
		pass(100e3)
		read(3e6)
	}
	read(0)
}
