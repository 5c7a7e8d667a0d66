package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
)

// ledger keeps what became of every job of a run, four bytes each. Jobs are
// numbered from 0, so it is a list of blocks, made as the run goes on.
type ledger struct {
	blocks [ledgerBlocks]atomic.Pointer[[ledgerBlock]atomic.Uint32]
	mu     sync.Mutex // makes blocks
	lost   atomic.Int64
}

const (
	ledgerBlock  = 1 << 16
	ledgerBlocks = 1 << 12 // 268 million jobs; what comes after is not checked, and counted
)

// One job's word: an enqueue's outcome, then counters that stop at their end.
const (
	jobSending   = 1 << 0 // an enqueue was or will be written; no answer: unknown
	jobEnqueued  = 1 << 1 // answered well
	jobRefused   = 1 << 2 // answered as not done, or never written
	jobAfterAck  = 1 << 3 // delivered after its ack was answered
	jobUnsettled = 1 << 4 // the answer to its ack or nack was lost

	deliveredShift, ackedShift, nackedShift = 8, 16, 24
	counterMask                             = 255
)

func newLedger() *ledger { return &ledger{} }

func (l *ledger) word(seq int64) *atomic.Uint32 {
	if seq < 0 || seq >= ledgerBlock*ledgerBlocks {
		l.lost.Add(1)
		return new(atomic.Uint32)
	}
	p := &l.blocks[seq/ledgerBlock]
	if p.Load() == nil {
		l.mu.Lock()
		if p.Load() == nil {
			p.Store(new([ledgerBlock]atomic.Uint32))
		}
		l.mu.Unlock()
	}
	return &p.Load()[seq%ledgerBlock]
}

func (l *ledger) mark(seq int64, n int, bit uint32) {
	for i := range int64(n) {
		l.word(seq + i).Or(bit)
	}
}

func (l *ledger) sending(seq int64, n int)  { l.mark(seq, n, jobSending) }
func (l *ledger) enqueued(seq int64, n int) { l.mark(seq, n, jobEnqueued) }
func (l *ledger) refused(seq int64, n int)  { l.mark(seq, n, jobRefused) }

func (l *ledger) delivered(seq int64) {
	w := l.word(seq)
	if w.Load()>>ackedShift&counterMask > 0 {
		w.Or(jobAfterAck)
	}
	count(w, deliveredShift)
}

func (l *ledger) acked(jobs []held) {
	for i := range jobs {
		count(l.word(jobs[i].seq), ackedShift)
	}
}

func (l *ledger) nacked(jobs []held) {
	for i := range jobs {
		count(l.word(jobs[i].seq), nackedShift)
	}
}

// unsettled notes jobs whose ack or nack may have been done or not; after a nack
// they may come again.
func (l *ledger) unsettled(jobs []held, nack bool) {
	for i := range jobs {
		l.word(jobs[i].seq).Or(jobUnsettled)
	}
	if nack {
		l.nacked(jobs)
	}
}

func count(w *atomic.Uint32, shift int) {
	for {
		v := w.Load()
		if v>>shift&counterMask == counterMask || w.CompareAndSwap(v, v+1<<shift) {
			return
		}
	}
}

// Check is what the ledger says at the end.
type Check struct {
	Jobs        int64 `json:"jobs"`     // made
	Enqueued    int64 `json:"enqueued"` // answered well
	Refused     int64 `json:"refused"`
	Unknown     int64 `json:"unknown"` // no answer: may be there or not
	Delivered   int64 `json:"delivered"`
	Acked       int64 `json:"acked"`
	Drained     int64 `json:"drained"`             // of the acked, those that were taken out at the end
	Unsettled   int64 `json:"unsettled,omitempty"` // delivered, the answer to their ack was lost
	Adrift      int64 `json:"adrift,omitempty"`    // leased by dequeues whose answers were lost: they come when their leases are over
	Missing     int64 `json:"missing"`             // enqueued, never delivered, and not adrift
	NotAcked    int64 `json:"not_acked"`
	Again       int64 `json:"again"`     // delivered more often than once and each nack
	AfterAck    int64 `json:"after_ack"` // delivered after the ack was answered
	AckedTwice  int64 `json:"acked_twice"`
	RefusedCame int64 `json:"refused_came"` // answered as not done, and delivered
	Invented    int64 `json:"invented"`     // not a job of this run
	Unchecked   int64 `json:"unchecked,omitempty"`
}

// Verdict says what is wrong, nothing when all is well.
func (c *Check) Verdict() string {
	var bad []string
	for _, f := range []struct {
		n    int64
		what string
	}{
		{c.Missing, "never delivered"}, {c.NotAcked, "not acked"}, {c.Again, "delivered again without a nack"},
		{c.AfterAck, "delivered after their ack"}, {c.AckedTwice, "acked twice"},
		{c.RefusedCame, "refused and delivered all the same"}, {c.Invented, "invented"}, {c.Unchecked, "not checked"},
	} {
		if f.n > 0 {
			bad = append(bad, fmt.Sprintf("%d %s", f.n, f.what))
		}
	}
	if len(bad) == 0 {
		return ""
	}
	return "check failed: jobs " + strings.Join(bad, ", ")
}

// sum goes through the jobs up to seq.
func (l *ledger) sum(seq int64) *Check {
	c := &Check{Jobs: seq, Unchecked: l.lost.Load()}
	for i := range min(seq, ledgerBlock*ledgerBlocks) {
		v := l.word(i).Load()
		delivered, acked, nacked := v>>deliveredShift&counterMask, v>>ackedShift&counterMask, v>>nackedShift&counterMask
		add := func(n *int64, when bool) {
			if when {
				*n++
			}
		}
		enqueued, refused := v&jobEnqueued != 0, v&jobRefused != 0
		add(&c.Enqueued, enqueued)
		add(&c.Refused, refused)
		add(&c.Unknown, !enqueued && !refused)
		add(&c.Delivered, delivered > 0)
		add(&c.Acked, acked > 0)
		add(&c.Missing, enqueued && delivered == 0)
		add(&c.NotAcked, delivered > 0 && acked == 0 && v&jobUnsettled == 0)
		add(&c.Unsettled, delivered > 0 && acked == 0 && v&jobUnsettled != 0)
		add(&c.Again, delivered > nacked+1)
		add(&c.AfterAck, v&jobAfterAck != 0)
		add(&c.AckedTwice, acked > 1)
		add(&c.RefusedCame, refused && delivered > 0)
	}
	return c
}

// check takes out what is left, and judges.
func (m *measurement) check(ctx context.Context, measured *run) error {
	cfg := m.side(1)
	r := newRun(m.shared, cfg)
	p := phase{run: r, name: "check", measured: prefillMax, stall: stallMax, goal: 2 * max(1, m.seq.Load()-measured.rec.sums(opAck).jobs), atStart: func() {}}
	for i := range m.queues {
		c := newClient(r, 0, []int{i})
		p.clients = []worker{{c, (*client).drainLoop}}
		if err := p.carryOut(ctx); err != nil {
			return err
		}
		r.restart()
	}
	for _, e := range r.rec.failures() {
		m.result.Errors = append(m.result.Errors, ErrorCount{Op: e.Op + " (check)", Code: e.Code, Count: e.Count})
	}
	sum := m.ledger.sum(m.seq.Load())
	sum.Drained = r.rec.sums(opAck).jobs
	sum.Adrift = min(sum.Missing, m.adrift.Load(), m.leased(ctx))
	sum.Missing -= sum.Adrift
	sum.Invented = m.invented.Load()
	sum.AckedTwice += m.already.Load()
	m.result.Check = sum
	return nil
}

// leased is how many jobs of the run's queues are leased, by the queues' own
// word; 0 when they do not tell.
func (m *measurement) leased(ctx context.Context) (n int64) {
	if m.adrift.Load() == 0 {
		return 0
	}
	for _, q := range m.queues {
		for _, addr := range m.addrs {
			status, body, err := ask(ctx, http.MethodGet, addr, "/v1/queues/"+q)
			if err != nil || status != http.StatusOK {
				continue
			}
			var stats struct{ Leased int64 }
			if json.Unmarshal(body, &stats) == nil {
				n += stats.Leased
				break
			}
		}
	}
	return n
}
