package check

import (
	"testing"
	"time"
)

func TestLogTime(t *testing.T) {
	at := func(index uint64, call, ret, ms time.Duration) *Op {
		return &Op{Kind: Enqueue, Outcome: OK, Index: index, Call: call * time.Millisecond, Ret: ret * time.Millisecond, TimeMs: int64(1_000_000 + ms)}
	}
	if p := LogTime(&History{Ops: []*Op{at(3, 0, 10, 5), at(5, 5000, 5020, 5080), at(4, 900, 1500, 1000), at(6, 9000, 9001, 6000)}}); len(p) > 0 {
		t.Error("true time, 1 % fast, and late:", p)
	}
	h := &History{Ops: []*Op{at(3, 0, 10, 5), at(4, 1000, 1010, 1200)}}
	wants(t, LogTime(h), "black box: log time")
	h.Events = []Event{{From: 500 * time.Millisecond, To: 600 * time.Millisecond, Reboot: true}}
	if p := LogTime(h); len(p) > 0 {
		t.Error("all rebooted:", p)
	}
	// Late, and then in time again: that is ahead of what it was.
	h = &History{Ops: []*Op{at(3, 0, 10, 5), at(4, 10_000, 10_010, 2000), at(5, 11_000, 11_010, 11_000)}}
	wants(t, LogTime(h), "black box: log time")
	// A fast answer of a leader that died, and what stands at its index now.
	lost := at(4, 1000, 1001, 1500)
	lost.Fast = true
	if p := LogTime(&History{Ops: []*Op{at(3, 2900, 3010, 3000), lost, at(4, 3000, 3020, 3010)}}); len(p) > 0 {
		t.Error("a lost entry:", p)
	}
}
