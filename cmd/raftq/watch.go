package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// watch shows the figures again and again, until so many frames or Ctrl-C, which
// is its normal end.
func (v *statsView) watch(every time.Duration, frames int) error {
	ctx, stop := signal.NotifyContext(v.cmd.Context(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	v.cmd.SetContext(ctx)
	s := &screen{w: v.out()}
	defer s.close()
	var last rates
	next := time.Now()
	for n := 1; ; n++ {
		queues, at, err := v.look()
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil && n == 1:
			return err
		case v.json:
		case err != nil: // the next time may go well
			err = s.draw([]string{strings.TrimSpace(complain(err))}, last.lines, every)
		default:
			err = s.draw(nil, last.table(queues, at), every)
		}
		if err != nil {
			return err
		}
		if n == frames {
			return nil
		}
		if next = next.Add(every); time.Until(next) < 0 {
			next = time.Now()
		}
		if sleepUntil(ctx, next) != nil {
			return nil
		}
	}
}

func sleepUntil(ctx context.Context, t time.Time) error {
	timer := time.NewTimer(time.Until(t))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// rates turns totals into what happens in a second.
type rates struct {
	at     time.Time
	totals map[string]totals
	lines  []string // of the last table
}

// table returns the lines of a table of queues with their rates since the last
// call; a queue that is new, or was made anew, has none yet.
func (r *rates) table(queues []queueView, at time.Time) []string {
	seconds := at.Sub(r.at).Seconds()
	now := map[string]totals{}
	rows := make([][]string, 0, len(queues)+1)
	var sum queueView
	var sums [4]float64
	for i := range queues {
		q := &queues[i]
		t := q.totals()
		now[q.Queue] = t
		cells := [4]string{"-", "-", "-", "-"}
		if before, ok := r.totals[q.Queue]; ok && seconds > 0 && t.notBelow(before) {
			for k, v := range t.since(before, seconds) {
				cells[k] = formatRate(v)
				sums[k] += v
			}
		}
		rows = append(rows, []string{
			printable([]byte(q.Queue)), count(q.Ready), count(q.Leased), count(q.Delayed), count(q.Dead), count(q.Waiters), q.oldest(),
			cells[0], cells[1], cells[2], cells[3],
		})
		sum.Ready, sum.Leased, sum.Delayed, sum.Dead = sum.Ready+q.Ready, sum.Leased+q.Leased, sum.Delayed+q.Delayed, sum.Dead+q.Dead
		sum.Waiters, sum.OldestReadyMs = sum.Waiters+q.Waiters, max(sum.OldestReadyMs, q.OldestReadyMs)
	}
	if len(queues) > 1 {
		row := []string{"all", count(sum.Ready), count(sum.Leased), count(sum.Delayed), count(sum.Dead), count(sum.Waiters), sum.oldest()}
		for _, v := range sums {
			if r.totals == nil {
				row = append(row, "-")
			} else {
				row = append(row, formatRate(v))
			}
		}
		rows = append([][]string{row}, rows...)
	}
	r.at, r.totals = at, now
	var b bytes.Buffer
	_ = table(&b, []string{"QUEUE", ">READY", ">LEASED", ">DELAYED", ">DEAD", ">WAIT", ">OLDEST", ">IN/S", ">OUT/S", ">ACK/S", ">FAIL/S"}, rows) // to memory
	r.lines = strings.Split(strings.TrimSuffix(b.String(), "\n"), "\n")
	return r.lines
}

func (t totals) notBelow(o totals) bool {
	return t.enqueued >= o.enqueued && t.delivered >= o.delivered && t.acked >= o.acked && t.failed >= o.failed
}

func (t totals) since(o totals, seconds float64) [4]float64 {
	return [4]float64{
		float64(t.enqueued-o.enqueued) / seconds, float64(t.delivered-o.delivered) / seconds,
		float64(t.acked-o.acked) / seconds, float64(t.failed-o.failed) / seconds,
	}
}

// formatRate writes a number of things a second.
func formatRate(v float64) string {
	if v > 0 && v < 10 {
		return strconv.FormatFloat(v, 'f', 1, 64)
	}
	return strconv.FormatFloat(v, 'f', 0, 64)
}

// screen shows frames: in place on a terminal, one after the other elsewhere.
type screen struct {
	w     io.Writer
	drawn bool
}

// draw shows a frame: notes, then lines as far as there is room.
func (s *screen) draw(notes, lines []string, every time.Duration) error {
	var b strings.Builder
	t := terminalOf(s.w) // each time: it may have been resized
	if !t.isTerminal() {
		if s.drawn {
			b.WriteString("\n")
		}
		for _, line := range append(notes, lines...) {
			b.WriteString(line + "\n")
		}
		s.drawn = true
		_, err := io.WriteString(s.w, b.String())
		return err
	}
	if !s.drawn {
		b.WriteString(termHideCursor + termClearAll)
		s.drawn = true
	}
	all := append([]string{fmt.Sprintf("every %s, at %s; Ctrl-C ends", formatAge(every), time.Now().Format(time.TimeOnly))}, notes...)
	all = append(all, lines...)
	if room := t.rows - 1; len(all) > room {
		hidden := len(all) - room + 1
		all = append(all[:room-1], fmt.Sprintf("… %d more: a larger window or --prefix shows them", hidden))
	}
	b.WriteString(termHome)
	for _, line := range all {
		b.WriteString(clip(line, t.width) + termClearLine + "\r\n")
	}
	b.WriteString(termClearRest)
	_, err := io.WriteString(s.w, b.String())
	return err
}

// close gives the terminal back.
func (s *screen) close() {
	if s.drawn && terminalOf(s.w).isTerminal() {
		_, _ = io.WriteString(s.w, termShowCursor) // nobody to tell
	}
}
