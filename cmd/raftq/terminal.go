package main

import (
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// terminal is where a person looks at, when it is one.
type terminal struct {
	w           io.Writer
	rows, width int // 0: not a terminal
}

// terminalOf looks at what a command writes to. Its size is that of now.
func terminalOf(w io.Writer) terminal {
	t := terminal{w: w}
	f, ok := w.(*os.File)
	if !ok {
		return t
	}
	size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	if err != nil || size.Col == 0 || size.Row == 0 || os.Getenv("TERM") == "dumb" {
		return t
	}
	t.rows, t.width = int(size.Row), int(size.Col)
	return t
}

func (t terminal) isTerminal() bool { return t.width > 0 }

// What a terminal is told. Redrawing from the upper left corner and clearing
// what is left does not flicker, as clearing first would.
const (
	termHome       = "\x1b[H"
	termClearLine  = "\x1b[K"
	termClearRest  = "\x1b[J"
	termClearAll   = "\x1b[2J"
	termHideCursor = "\x1b[?25l"
	termShowCursor = "\x1b[?25h"
)

// status shows one line that the next one replaces. Off a terminal it shows
// nothing: logs are no place for it.
func (t terminal) status(format string, args ...any) {
	if t.isTerminal() {
		fmt.Fprint(t.w, "\r"+clip(fmt.Sprintf(format, args...), t.width-1)+termClearLine)
	}
}

// statusDone removes the line.
func (t terminal) statusDone() {
	if t.isTerminal() {
		fmt.Fprint(t.w, "\r"+termClearLine)
	}
}
