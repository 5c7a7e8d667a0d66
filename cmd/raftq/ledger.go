package main

import (
	"fmt"
	"strings"
	"sync"
	"time"
)

// ledger is what the demo's clients saw, and the judge of it.
type ledger struct {
	victim string // name of the node that is killed

	mu     sync.Mutex
	killed time.Time // zero before
	jobs   map[string]*jobRecord
	// Of the other nodes: first answer to a request begun after the kill, and
	// the slowest that did not wait for a job.
	failover, slowest time.Duration
	errors            map[string]int // by node
	firstErrors       []string       // of nodes other than the victim
}

// jobRecord is one job, by its body.
type jobRecord struct {
	answered bool // the enqueue
	ids      []string
	grants   []uint64 // fences: log index of each delivery
	ackIndex uint64   // log index of the first answered ack, 0 before
}

// firstErrorsMax bounds what is shown of errors that must not be.
const firstErrorsMax = 5

func newLedger(victim string) *ledger {
	return &ledger{victim: victim, jobs: map[string]*jobRecord{}, errors: map[string]int{}}
}

func (l *ledger) job(name string) *jobRecord {
	j := l.jobs[name]
	if j == nil {
		j = &jobRecord{}
		l.jobs[name] = j
	}
	return j
}

// saw notes an id of the job: it must always be the same one.
func (j *jobRecord) saw(id string) {
	for _, known := range j.ids {
		if known == id {
			return
		}
	}
	j.ids = append(j.ids, id)
}

func (l *ledger) sending(name string) { l.locked(func() { l.job(name) }) }
func (l *ledger) notSent(name string) { l.locked(func() { delete(l.jobs, name) }) }
func (l *ledger) markKill()           { l.locked(func() { l.killed = time.Now() }) }

func (l *ledger) enqueued(name, id string) {
	l.locked(func() {
		j := l.job(name)
		j.answered = true
		j.saw(id)
	})
}

func (l *ledger) delivered(name, id string, fence uint64) {
	l.locked(func() {
		j := l.job(name)
		j.saw(id)
		j.grants = append(j.grants, fence)
	})
}

func (l *ledger) acked(name string, index uint64) {
	l.locked(func() {
		if j := l.job(name); j.ackIndex == 0 {
			j.ackIndex = index
		}
	})
}

// answered notes the time that a request took.
func (l *ledger) answered(node string, waits bool, begun, ended time.Time) {
	if node == l.victim || waits {
		return
	}
	l.locked(func() {
		l.slowest = max(l.slowest, ended.Sub(begun))
		if !l.killed.IsZero() && !begun.Before(l.killed) && l.failover == 0 {
			l.failover = ended.Sub(l.killed)
		}
	})
}

func (l *ledger) fail(node, format string, args ...any) {
	l.locked(func() {
		l.errors[node]++
		if node != l.victim && len(l.firstErrors) < firstErrorsMax {
			l.firstErrors = append(l.firstErrors, node+": "+fmt.Sprintf(format, args...))
		}
	})
}

// open counts the jobs that were taken, by an answer or seen by a delivery,
// and are not acked.
func (l *ledger) open() (n int) {
	l.locked(func() {
		for _, j := range l.jobs {
			if j.ackIndex == 0 && (j.answered || len(j.grants) > 0) {
				n++
			}
		}
	})
	return n
}

func (l *ledger) locked(f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f()
}

// demoSum is the outcome.
type demoSum struct {
	wanted, answered    int // enqueues
	unknown, unknownIn  int // answers that got lost; how many of those jobs are there all the same
	delivered, again    int // jobs; further deliveries of the same jobs
	acked               int
	lost, doubled       []string
	failover, slowest   time.Duration
	errors, otherErrors int // seen of the victim, of the others
	firstErrors         []string
	victim              string
}

func (l *ledger) sum(wanted int) demoSum {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := demoSum{wanted: wanted, failover: l.failover, slowest: l.slowest, firstErrors: l.firstErrors, victim: l.victim}
	for node, n := range l.errors {
		if node == l.victim {
			s.errors += n
		} else {
			s.otherErrors += n
		}
	}
	for name, j := range l.jobs {
		if j.answered {
			s.answered++
		} else if s.unknown++; len(j.grants) > 0 {
			s.unknownIn++
		}
		if len(j.grants) > 0 {
			s.delivered++
			s.again += len(j.grants) - 1
		}
		if j.ackIndex > 0 {
			s.acked++
		} else if j.answered || len(j.grants) > 0 {
			s.lost = append(s.lost, name)
		}
		if len(j.ids) > 1 || j.handedOutAfterAck() {
			s.doubled = append(s.doubled, name)
		}
	}
	return s
}

// handedOutAfterAck: an acked job must never be handed out again.
func (j *jobRecord) handedOutAfterAck() bool {
	for _, fence := range j.grants {
		if j.ackIndex > 0 && fence > j.ackIndex {
			return true
		}
	}
	return false
}

// verdict says what is wrong, "" when nothing is.
func (s *demoSum) verdict() string {
	var bad []string
	if n := len(s.lost); n > 0 {
		bad = append(bad, fmt.Sprintf("%d jobs were lost (%s)", n, some(s.lost)))
	}
	if n := len(s.doubled); n > 0 {
		bad = append(bad, fmt.Sprintf("%d jobs were doubled (%s)", n, some(s.doubled)))
	}
	if s.otherErrors > 0 {
		bad = append(bad, fmt.Sprintf("clients of nodes that were not killed saw %d errors:\n  %s", s.otherErrors, strings.Join(s.firstErrors, "\n  ")))
	}
	if s.answered != s.wanted {
		bad = append(bad, fmt.Sprintf("%d enqueues of %d were answered", s.answered, s.wanted))
	}
	return strings.Join(bad, "; ")
}

func some(names []string) string {
	const shown = 3
	if len(names) > shown {
		return strings.Join(names[:shown], "; ") + "; …"
	}
	return strings.Join(names, "; ")
}

// print prints the outcome for people.
func (d *demoRun) print(s demoSum) {
	line := func(what string, value any, note string) {
		if note != "" {
			note = "  " + note
		}
		fmt.Fprintf(d.out, "  %-38s %8v%s\n", what, value, note)
	}
	fmt.Fprintln(d.out)
	line("enqueues answered", s.answered, "")
	unknown := ""
	if s.unknown > 0 {
		unknown = fmt.Sprintf("%s died before it answered; %d turned out to be there, %d not; sent anew", s.victim, s.unknownIn, s.unknown-s.unknownIn)
	}
	line("enqueues of unknown outcome", s.unknown, unknown)
	line("jobs delivered", s.delivered, "")
	again := ""
	if s.again > 0 {
		again = "whoever had them was cut off before the ack"
	}
	line("  of these once more after the lease", s.again, again)
	line("jobs acked", s.acked, "")
	line("lost", len(s.lost), "")
	line("doubled", len(s.doubled), "")
	line("first answer after the kill -9", s.failover.Round(time.Millisecond), "at the other nodes")
	line("slowest request at the other nodes", s.slowest.Round(time.Millisecond), "")
	line("errors seen at the other nodes", s.otherErrors, "")
	line("errors seen at "+s.victim, s.errors, "tried again elsewhere")
}
