package bench

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Teller shows the progress of runs: a bar that is drawn over itself on a
// terminal, a plain line every few seconds elsewhere.
type Teller struct {
	w        io.Writer
	terminal bool
	now      func() time.Time

	mu   sync.Mutex // the fields below, and writing
	name string
	last time.Time
	wide int // of what stands on the terminal's line
}

const (
	barWidth   = 28
	plainEvery = 5 * time.Second
)

// NewTeller writes to w, which is asked whether it is a terminal.
func NewTeller(w io.Writer) *Teller {
	t := &Teller{w: w, now: time.Now}
	if f, ok := w.(*os.File); ok {
		_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
		t.terminal = err == nil
	}
	return t
}

// Begin announces a run.
func (t *Teller) Begin(name string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.name, t.last = name, t.now()
	if t.terminal {
		t.draw(fmt.Sprintf("%s  …", name))
		return
	}
	fmt.Fprintf(t.w, "%s\n", name)
}

// Tell shows how far the run is.
func (t *Teller) Tell(p Progress) {
	t.mu.Lock()
	defer t.mu.Unlock()
	tail := fmt.Sprintf("%3.0f %%  %s  %s ops  %s/s", p.Part*100, p.Phase, formatRate(float64(p.Jobs)), formatRate(p.Rate))
	if p.Errors > 0 {
		tail += fmt.Sprintf("  %d errors", p.Errors)
	}
	if t.terminal {
		full := int(p.Part * barWidth)
		t.draw(fmt.Sprintf("%s  %s%s  %s", t.name, strings.Repeat("█", full), strings.Repeat("░", barWidth-full), tail))
		return
	}
	if now := t.now(); now.Sub(t.last) >= plainEvery {
		t.last = now
		fmt.Fprintf(t.w, "  %s\n", tail)
	}
}

// End wipes the bar away.
func (t *Teller) End() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.terminal {
		t.draw("")
		fmt.Fprint(t.w, "\r")
	}
}

// draw replaces the line; t.mu is held.
func (t *Teller) draw(line string) {
	n := len([]rune(line))
	fmt.Fprintf(t.w, "\r%s%s", line, strings.Repeat(" ", max(0, t.wide-n)))
	t.wide = n
}
