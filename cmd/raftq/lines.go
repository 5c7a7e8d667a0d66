package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"time"
)

// Limits of one request of enqueue --lines: well below those of the API.
const (
	linesPerRequest = 500
	bytesPerRequest = 2 << 20 // or one longer line
	// linesLinger is how long a line waits for company when the input pauses.
	linesLinger = 50 * time.Millisecond
)

// inputLine is one line of the input, without its newline.
type inputLine struct {
	number int64 // from 1
	text   []byte
}

// lineReader cuts an input into batches of lines. It reads in a goroutine of
// its own, so that a batch need not wait for an input that pauses, and no
// further ahead than a batch.
type lineReader struct {
	in    chan inputLine
	err   error // why the input ended, io.EOF if well; set before in is closed
	whole bool
	over  *inputLine // did not fit into the last batch
	limit int
}

// newLineReader begins to read lines of at most limit bytes; empty ones are
// skipped. With whole, batches are cut by number and bytes alone, never by
// time: the same input gives the same batches. The goroutine ends with the input.
func newLineReader(r io.Reader, limit int, whole bool) *lineReader {
	l := &lineReader{in: make(chan inputLine, linesPerRequest), limit: limit, whole: whole}
	go func() {
		l.err = l.read(bufio.NewReaderSize(r, 64<<10))
		close(l.in)
	}()
	return l
}

func (l *lineReader) read(in *bufio.Reader) error {
	for n := int64(1); ; n++ {
		text, err := l.readLine(in)
		if err != nil && !errors.Is(err, io.EOF) {
			return fmt.Errorf("line %d: %w", n, err)
		}
		if len(text) > 0 {
			l.in <- inputLine{n, text}
		}
		if err != nil {
			return err
		}
	}
}

// readLine returns a line of its own memory; io.EOF comes with the last one.
func (l *lineReader) readLine(in *bufio.Reader) ([]byte, error) {
	var line []byte
	for {
		part, err := in.ReadSlice('\n')
		if n := len(part); n > 0 && part[n-1] == '\n' {
			part = part[:n-1]
		}
		if line = append(line, part...); len(line) > l.limit {
			return nil, fmt.Errorf("is longer than %s, the largest body there can be", formatSize(int64(l.limit)))
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return line, err
		}
	}
}

// batch returns the next lines; none means that the input has ended, and err
// says how.
func (l *lineReader) batch() (lines []inputLine, err error) {
	size := 0
	if l.over != nil {
		lines, size, l.over = append(lines, *l.over), len(l.over.text), nil
	}
	var linger <-chan time.Time
	for len(lines) < linesPerRequest {
		if linger == nil && !l.whole && len(lines) > 0 {
			linger = time.After(linesLinger)
		}
		select {
		case line, ok := <-l.in:
			if !ok {
				if len(lines) > 0 {
					return lines, nil // and the end comes with the next call
				}
				return nil, l.err
			}
			if size += len(line.text); size > bytesPerRequest && len(lines) > 0 {
				l.over = &line
				return lines, nil
			}
			lines = append(lines, line)
		case <-linger:
			return lines, nil
		}
	}
	return lines, nil
}
