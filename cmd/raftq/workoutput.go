package main

import (
	"bytes"
	"io"
	"strings"
	"sync"
	"unicode/utf8"
)

// lineMax is how much of a line is kept together; a longer one is broken.
const lineMax = 64 << 10

// shared is a writer that several write to.
type shared struct {
	mu sync.Mutex
	w  io.Writer
}

func (s *shared) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.w.Write(b)
}

// prefixer writes whole lines, each with a prefix and in one piece. Close writes
// what has no newline yet.
type prefixer struct {
	w      io.Writer
	prefix string
	rest   []byte // an unfinished line, without the prefix
}

func (p *prefixer) Write(b []byte) (int, error) {
	n := len(b)
	for {
		i := bytes.IndexByte(b, '\n')
		if i < 0 {
			break
		}
		if err := p.line(append(p.rest, b[:i]...)); err != nil {
			return n - len(b), err
		}
		p.rest, b = p.rest[:0], b[i+1:]
	}
	if p.rest = append(p.rest, b...); len(p.rest) > lineMax {
		err := p.line(p.rest)
		p.rest = p.rest[:0]
		return n, err
	}
	return n, nil
}

func (p *prefixer) line(text []byte) error {
	_, err := io.WriteString(p.w, p.prefix+string(text)+"\n")
	return err
}

func (p *prefixer) Close() error {
	if len(p.rest) == 0 {
		return nil
	}
	rest := p.rest
	p.rest = nil
	return p.line(rest)
}

// lastLine remembers the last line that says something.
type lastLine struct {
	last, rest []byte
}

func (l *lastLine) Write(b []byte) (int, error) {
	for line := range bytes.Lines(b) {
		l.rest = append(l.rest, line[:min(len(line), lineMax-min(lineMax, len(l.rest)))]...)
		if line[len(line)-1] == '\n' {
			l.turn()
		}
	}
	return len(b), nil
}

func (l *lastLine) turn() {
	if text := bytes.TrimSpace(l.rest); len(text) > 0 {
		l.last = append(l.last[:0], text...)
	}
	l.rest = l.rest[:0]
}

// line returns the last line, as UTF-8.
func (l *lastLine) line() string {
	l.turn()
	return strings.ToValidUTF8(string(l.last), "\uFFFD")
}

// clipBytes cuts a text to so many bytes, between two characters.
func clipBytes(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	cut := limit - len("…")
	for cut > 0 && !utf8.RuneStart(text[cut]) {
		cut--
	}
	return text[:max(cut, 0)] + "…"
}
