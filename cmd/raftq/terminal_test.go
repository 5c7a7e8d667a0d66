package main

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// openTerminal makes a terminal of a size. What is written to it comes to seen.
func openTerminal(t *testing.T, rows, cols uint16) (tty *os.File, seen *watchedBuffer) {
	t.Helper()
	tty, _, seen = openKeyboard(t, rows, cols)
	return tty, seen
}

// openKeyboard is openTerminal with a way to type.
func openKeyboard(t *testing.T, rows, cols uint16) (tty, keyboard *os.File, seen *watchedBuffer) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Skip("no terminals here:", err)
	}
	t.Cleanup(func() { master.Close() })
	fd := int(master.Fd())
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0)
	}
	if err == nil {
		err = unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: rows, Col: cols})
	}
	if err != nil {
		t.Fatal(err)
	}
	if tty, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tty.Close() })
	seen = &watchedBuffer{want: termShowCursor, seen: make(chan struct{})}
	go func() { _, _ = io.Copy(seen, master) }() // until it is closed
	return tty, master, seen
}

// screenOf plays what a terminal was told and returns its lines.
func screenOf(text string, rows int) []string {
	lines := make([]string, rows)
	at := 0
	for _, part := range regexp.MustCompile(`\x1b\[\??[0-9]*[A-Za-z]|\r\n|\r|[^\x1b\r]+`).FindAllString(text, -1) {
		switch part {
		case termClearAll:
			clear(lines)
		case termHome:
			at = 0
		case "\r\n":
			at++
		case termClearRest:
			clear(lines[min(at, rows):])
		case termClearLine, termHideCursor, termShowCursor, "\r":
		default:
			lines[at] = part
		}
	}
	return lines
}

// statsNode answers /v1/queues with counts that grow by 30 with each request.
func statsNode(t *testing.T, queues int) string {
	t.Helper()
	var n atomic.Int64
	node, _ := fakeNode(t, func(w http.ResponseWriter, _ *http.Request) {
		k := n.Add(1)
		var all []string
		for i := range queues {
			all = append(all, fmt.Sprintf(`{"queue":"q%02d","ready":%d,"enqueued_total":%d,"acked_total":%d}`, i, k, 30*k, 15*k))
		}
		_, _ = io.WriteString(w, `{"queues":[`+strings.Join(all, ",")+`]}`) // a test's server
	})
	return node
}

// On a terminal the figures are drawn in place, no wider and no longer than the
// window, with rates from the second time on; the cursor comes back at the end.
func TestWatchOnTerminal(t *testing.T) {
	const rows, cols = 8, 60
	tty, seen := openTerminal(t, rows, cols)
	t.Setenv("TERM", "xterm")
	code := run(t.Context(), []string{"stats", "--watch=100ms", "--frames", "3", "--endpoints", statsNode(t, 9)}, strings.NewReader(""), tty, io.Discard)
	if code != exitOK {
		t.Fatalf("exit code %d\n%s", code, seen)
	}
	select {
	case <-seen.seen:
	case <-time.After(10 * time.Second):
		t.Fatalf("the cursor does not come back: %q", seen)
	}
	screen := screenOf(seen.String(), rows)
	for i, line := range screen {
		if n := len([]rune(line)); n > cols {
			t.Errorf("line %d has %d characters: %q", i, n, line)
		}
	}
	if !strings.HasPrefix(screen[0], "every 100ms, at ") || !strings.HasPrefix(screen[1], "QUEUE  READY") ||
		!strings.HasPrefix(screen[2], "all       27") || !strings.HasPrefix(screen[3], "q00        3") ||
		!strings.HasPrefix(screen[6], "… 6 more") || screen[7] != "" {
		t.Errorf("screen:\n%s", strings.Join(screen, "\n"))
	}
	if strings.Count(seen.String(), termClearAll) != 1 || strings.Count(seen.String(), termHome) != 3 {
		t.Errorf("not drawn in place: %q", seen)
	}
}

// Elsewhere the frames follow each other, and with -o json they are lines.
func TestWatchElsewhere(t *testing.T) {
	code, out, errs := raftqRun(t, "", "stats", "--watch=50ms", "--frames", "2", "--endpoints", statsNode(t, 1))
	frames := strings.Split(out, "\n\n")
	if code != exitOK || len(frames) != 2 || strings.Contains(out, "\x1b") {
		t.Fatalf("exit code %d\n%s%s", code, out, errs)
	}
	if f := strings.Fields(strings.Split(frames[0], "\n")[1]); f[0] != "q00" || f[1] != "1" || f[7] != "-" {
		t.Errorf("first frame: %q", frames[0])
	}
	if f := strings.Fields(strings.Split(frames[1], "\n")[1]); f[1] != "2" || f[7] == "-" || f[7] == "0" {
		t.Errorf("second frame: %q", frames[1])
	}
	code, out, _ = raftqRun(t, "", "stats", "-o", "json", "--watch=50ms", "--frames", "3", "--endpoints", statsNode(t, 2))
	if code != exitOK || strings.Count(out, "\n") != 3 || strings.Count(out, `{"queues":[{"queue":"q00"`) != 3 {
		t.Errorf("json: exit code %d\n%s", code, out)
	}
}

// A node that fails in between is told in the frame, over the figures of before;
// one that fails at first ends the command.
func TestWatchBearsFailure(t *testing.T) {
	var n atomic.Int32
	node, _ := fakeNode(t, func(w http.ResponseWriter, r *http.Request) {
		if n.Add(1) == 2 {
			problemAnswer(503, "no_leader", true, "no")(w, r)
			return
		}
		answerJSON(200, `{"queues":[{"queue":"q","ready":7}]}`)(w, r)
	})
	code, out, errs := raftqRun(t, "", "stats", "--watch=50ms", "--frames", "3", "--endpoints", node)
	frames := strings.Split(out, "\n\n")
	if code != exitOK || len(frames) != 3 || !strings.HasPrefix(frames[1], "raftq: the detail (no_leader)\n") || !strings.Contains(frames[1], "q          7") {
		t.Errorf("exit code %d\n%s%s", code, out, errs)
	}
	if code, _, errs := raftqRun(t, "", "stats", "--watch=50ms", "--endpoints", deadNode(t)); code != exitUnavailable || !strings.Contains(errs, "raftq serve") {
		t.Errorf("exit code %d\n%s", code, errs)
	}
}

// Rates are of the time between two looks, and of no queue that was made anew.
func TestRates(t *testing.T) {
	at := time.Now()
	queue := func(name string, enqueued, delivered, acked, failed uint64) queueView {
		q := queueView{}
		q.Queue, q.EnqueuedTotal, q.DeliveredTotal, q.AckedTotal, q.FailedTotal = name, enqueued, delivered, acked, failed
		return q
	}
	var r rates
	cells := func(lines []string, row int) string { return strings.Join(strings.Fields(lines[row])[7:], " ") }
	lines := r.table([]queueView{queue("a", 100, 50, 40, 3), queue("b", 10, 0, 0, 0)}, at)
	if cells(lines, 1) != "- - - -" || cells(lines, 2) != "- - - -" {
		t.Errorf("first: %q", lines)
	}
	lines = r.table([]queueView{queue("a", 300, 51, 40, 3), queue("b", 2, 0, 0, 0), queue("c", 5, 0, 0, 0)}, at.Add(2*time.Second))
	for i, want := range []string{"", "100 0.5 0 0", "100 0.5 0 0", "- - - -", "- - - -"} {
		if i > 0 && cells(lines, i) != want {
			t.Errorf("line %d: %q, want %q", i, lines[i], want)
		}
	}
}

// Progress of a long input shows on a terminal alone, and leaves nothing behind.
func TestStatusLine(t *testing.T) {
	tty, seen := openTerminal(t, 5, 20)
	t.Setenv("TERM", "xterm")
	line := terminalOf(tty)
	line.status("%d jobs, and more than fits in here", 7)
	line.statusDone()
	if _, err := io.WriteString(tty, termShowCursor); err != nil {
		t.Fatal(err)
	}
	<-seen.seen
	if want := "\r7 jobs, and more t…" + termClearLine + "\r" + termClearLine + termShowCursor; seen.String() != want {
		t.Errorf("%q, want %q", seen, want)
	}
	t.Setenv("TERM", "dumb")
	if terminalOf(tty).isTerminal() {
		t.Error("a dumb terminal is told what it does not understand")
	}
	var log strings.Builder
	off := terminalOf(&log)
	off.status("nothing")
	off.statusDone()
	if log.Len() > 0 {
		t.Errorf("progress in a log: %q", log.String())
	}
}
