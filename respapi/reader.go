package respapi

import (
	"bytes"

	"fmt"
	"io"
	"strings"
)

// reader reads a client's commands into a bounded buffer.
type reader struct {
	src        io.Reader
	buf        []byte
	start, end int // of what was read and not taken
	max        int // bytes of one command
}

// errProtocol ends a connection: what follows cannot be told apart.
type errProtocol struct{ text string }

func (e *errProtocol) Error() string { return "Protocol error: " + e.text }

// next takes the next command if it is there whole. Its arguments are views of
// the buffer that the next fill may move; an empty command has none. They are
// appended to spare.
func (r *reader) next(spare [][]byte) (args [][]byte, ok bool, err error) {
	packet := r.buf[r.start:r.end]
	var rest []byte
	switch {
	case len(packet) == 0:
		return nil, false, nil
	case packet[0] == '*':
		args, rest, ok, err = parseArray(packet, spare, r.max)
	case packet[0] == '$':
		err = &errProtocol{"expected '*' or a command, got '$'"}
	default:
		args, rest, ok, err = parseInline(packet, spare)
	}
	if err != nil || !ok {
		return nil, false, err
	}
	r.start = r.end - len(rest)
	return args, true, nil
}

// parseArray reads a command as clients send it; ok is false when p does not hold
// it whole. Each try begins at the first byte; argsMax bounds what that costs.
func parseArray(p []byte, args [][]byte, most int) (_ [][]byte, rest []byte, ok bool, err error) {
	n, p, ok, err := parseLength(p, "multibulk", argsMax)
	for range n {
		if len(p) > 0 && p[0] != '$' {
			return nil, nil, false, &errProtocol{fmt.Sprintf("expected '$', got %q", p[0])}
		}
		var size int
		if size, p, ok, err = parseLength(p, "bulk", most); err != nil || !ok || len(p) < size+2 {
			return nil, nil, false, err
		}
		if p[size] != '\r' || p[size+1] != '\n' {
			return nil, nil, false, &errProtocol{"invalid bulk length"}
		}
		args, p = append(args, p[:size]), p[size+2:]
	}
	return args, p, ok, err
}

// parseLength reads a kind's letter, a number from 0 to most, and the line's end.
func parseLength(p []byte, what string, most int) (n int, rest []byte, ok bool, err error) {
	const digits = 20
	end := bytes.IndexByte(p[:min(len(p), digits+3)], '\n')
	if end < 0 && len(p) <= digits+2 {
		return 0, nil, false, nil
	}
	if end < 3 || p[end-1] != '\r' {
		return 0, nil, false, &errProtocol{"invalid " + what + " length"}
	}
	v, number := integer(p[1 : end-1])
	if !number || v < 0 || v > int64(most) {
		return 0, nil, false, &errProtocol{fmt.Sprintf("invalid %s length, want 0 to %d", what, most)}
	}
	return int(v), p[end+1:], true, nil
}

// parseInline reads a command as people type it: a line of words between blanks,
// or between quotes, in which a backslash makes the next letter special.
func parseInline(p []byte, args [][]byte) (_ [][]byte, rest []byte, ok bool, err error) {
	end := bytes.IndexByte(p[:min(len(p), inlineMax)], '\n')
	if end < 0 {
		if len(p) >= inlineMax {
			err = &errProtocol{"too big inline request"}
		}
		return nil, nil, false, err
	}
	line, rest := bytes.TrimSuffix(p[:end], []byte{'\r'}), p[end+1:]
	for {
		if line = bytes.TrimLeft(line, " \t"); len(line) == 0 {
			return args, rest, true, nil
		}
		if len(args) == argsMax {
			return nil, nil, false, &errProtocol{fmt.Sprintf("a command has at most %d arguments", argsMax)}
		}
		var word []byte
		switch q := line[0]; q {
		case '"', '\'':
			if word, line, ok = unquote(line[1:], q); !ok || len(line) > 0 && line[0] != ' ' && line[0] != '\t' {
				return nil, nil, false, &errProtocol{"unbalanced quotes in request"}
			}
		default:
			n := bytes.IndexAny(line, " \t")
			if n < 0 {
				n = len(line)
			}
			word, line = line[:n], line[n:]
		}
		args = append(args, word)
	}
}

// unquote reads up to the quote q and returns what follows it.
func unquote(p []byte, q byte) (word, rest []byte, ok bool) {
	word = make([]byte, 0, len(p))
	for i := 0; i < len(p); i++ {
		switch c := p[i]; {
		case c == q:
			return word, p[i+1:], true
		case c != '\\' || i+1 == len(p) || q == '\'' && p[i+1] != '\'':
			word = append(word, c)
		case p[i+1] == 'x' && i+3 < len(p) && hexDigit(p[i+2]) >= 0 && hexDigit(p[i+3]) >= 0:
			word = append(word, byte(hexDigit(p[i+2])<<4|hexDigit(p[i+3])))
			i += 3
		default:
			i++
			switch c = p[i]; c {
			case 'n':
				c = '\n'
			case 'r':
				c = '\r'
			case 't':
				c = '\t'
			case 'b':
				c = '\b'
			case 'a':
				c = '\a'
			}
			word = append(word, c)
		}
	}
	return nil, nil, false
}

// hexDigit is its value, -1 for another byte.
func hexDigit(c byte) int {
	return strings.IndexByte("0123456789abcdef", bytes.ToLower([]byte{c})[0])
}

// fill reads more. Views that next returned are worth nothing afterwards.
func (r *reader) fill() (n int, err error) {
	if r.start == r.end {
		r.start, r.end = 0, 0
		if len(r.buf) > bufferKept {
			r.buf = nil
		}
	}
	switch {
	case r.buf == nil:
		r.buf = make([]byte, bufferMin)
	case r.end < len(r.buf):
	case r.start > 0:
		r.end = copy(r.buf, r.buf[r.start:r.end])
		r.start = 0
	case len(r.buf) >= r.max:
		return 0, &errProtocol{fmt.Sprintf("a command has at most %d bytes", r.max)}
	default:
		r.grow(2 * len(r.buf))
	}
	n, err = r.src.Read(r.buf[r.end:])
	r.end += n
	if n > 0 && r.end == len(r.buf) && len(r.buf) < bufferKept {
		r.grow(bufferKept) // a pipeline
	}
	if n > 0 {
		return n, nil
	}
	return 0, err
}

func (r *reader) grow(n int) {
	b := make([]byte, min(n, r.max))
	r.end = copy(b, r.buf[r.start:r.end])
	r.start, r.buf = 0, b
}
