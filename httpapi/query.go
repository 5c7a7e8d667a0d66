package httpapi

import (
	"bytes"

	"raftq/fsm"
)

// query walks a query string without allocating. Names and values are valid
// until the answer.
type query struct {
	rest []byte
	buf  []byte // decoded values; only grows, so earlier ones stay valid
}

// next returns the next option; ok is false at the end.
func (q *query) next() (name, val []byte, ok bool, err error) {
	for len(q.rest) > 0 {
		pair := q.rest
		if i := bytes.IndexByte(pair, '&'); i >= 0 {
			pair, q.rest = pair[:i], pair[i+1:]
		} else {
			q.rest = nil
		}
		if len(pair) == 0 {
			continue
		}
		name, val = pair, nil
		if i := bytes.IndexByte(pair, '='); i >= 0 {
			name, val = pair[:i], pair[i+1:]
		}
		if name, err = q.decode(name); err == nil {
			val, err = q.decode(val)
		}
		return name, val, err == nil, err
	}
	return nil, nil, false, nil
}

func (q *query) decode(b []byte) ([]byte, error) {
	var err error
	start := len(q.buf)
	if bytes.IndexByte(b, '%') < 0 && bytes.IndexByte(b, '+') < 0 {
		return b, nil
	}
	q.buf, err = appendDecoded(q.buf, b, true)
	return q.buf[start:len(q.buf):len(q.buf)], err
}

// appendDecoded appends b percent-decoded once; a plus means a space in a
// query, and itself in a path.
func appendDecoded(dst, b []byte, plus bool) ([]byte, error) {
	for i := 0; i < len(b); i++ {
		c := b[i]
		switch {
		case c == '+' && plus:
			c = ' '
		case c == '%':
			high, low := -1, -1
			if i+2 < len(b) {
				high, low = unhex(b[i+1]), unhex(b[i+2])
			}
			if high < 0 || low < 0 {
				return dst, refuse(fsm.CodeInvalidRequest, "%q has a %% without two hex digits; write %%25 for a percent sign", b)
			}
			c = byte(high<<4 | low)
			i += 2
		}
		dst = append(dst, c)
	}
	return dst, nil
}
