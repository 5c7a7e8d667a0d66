package main

import (
	"strings"
	"testing"
	"time"
)

// The judge of the demo finds what it is there for.
func TestLedgerVerdict(t *testing.T) {
	for _, c := range []struct {
		name   string
		seen   func(l *ledger)
		wanted int
		want   string // in the verdict, "" = all is well
	}{
		{"all well", func(l *ledger) {
			l.sending("a")
			l.enqueued("a", "D-1")
			l.delivered("a", "D-1", 10)
			l.acked("a", 11)
		}, 1, ""},
		{"again after its lease, before the ack", func(l *ledger) {
			l.enqueued("a", "D-1")
			l.delivered("a", "D-1", 10)
			l.delivered("a", "D-1", 20)
			l.acked("a", 21)
		}, 1, ""},
		{"unknown and never there", func(l *ledger) { l.sending("a") }, 0, ""},
		{"unknown, there and acked", func(l *ledger) {
			l.sending("a")
			l.delivered("a", "D-1", 10)
			l.acked("a", 11)
		}, 0, ""},
		{"not sent", func(l *ledger) {
			l.sending("a")
			l.notSent("a")
		}, 1, "0 enqueues of 1"},
		{"never delivered", func(l *ledger) { l.enqueued("a", "D-1") }, 1, "1 jobs were lost (a)"},
		{"never acked", func(l *ledger) {
			l.sending("a")
			l.delivered("a", "D-1", 10)
		}, 0, "1 jobs were lost (a)"},
		{"delivered after its ack", func(l *ledger) {
			l.enqueued("a", "D-1")
			l.delivered("a", "D-1", 10)
			l.acked("a", 11)
			l.delivered("a", "D-1", 12)
		}, 1, "1 jobs were doubled (a)"},
		{"two ids", func(l *ledger) {
			l.enqueued("a", "D-1")
			l.delivered("a", "D-1", 10)
			l.delivered("a", "D-2", 9)
			l.acked("a", 11)
		}, 1, "1 jobs were doubled (a)"},
		{"error at the victim", func(l *ledger) { l.fail("n1", "refused") }, 0, ""},
		{"error elsewhere", func(l *ledger) { l.fail("n2", "refused: %d", 7) }, 0, "1 errors:\n  n2: refused: 7"},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := newLedger("n1")
			c.seen(l)
			s := l.sum(c.wanted)
			got := s.verdict()
			if c.want == "" && got != "" || !strings.Contains(got, c.want) {
				t.Errorf("verdict %q, want %q", got, c.want)
			}
		})
	}
}

// Only requests of the other nodes begun after the kill tell the failover.
func TestLedgerFailover(t *testing.T) {
	l := newLedger("n1")
	before := time.Now()
	l.markKill()
	after := l.killed
	l.answered("n2", false, before.Add(-time.Second), after.Add(time.Second)) // under way at the kill
	l.answered("n1", false, after, after.Add(time.Second))                    // the victim's
	l.answered("n2", true, after, after.Add(time.Second))                     // waited for a job
	l.answered("n2", false, after, after.Add(3*time.Second))
	l.answered("n2", false, after, after.Add(4*time.Second))
	if s := l.sum(0); s.failover != 3*time.Second || s.slowest != 4*time.Second {
		t.Errorf("failover %v, slowest %v; want 3s, 4s", s.failover, s.slowest)
	}
}
