package bench

import (
	"bytes"
	"errors"
	"fmt"
	"io"
)

// Limits of an answer; one that exceeds them ends its connection.
const (
	answerHeadMax = 64 << 10
	answerBodyMax = 64 << 20
)

var errAnswer = errors.New("the answer is not understood")

// response is one answer. Its slices lie in the reader's buffer and hold until
// the next one is read.
type response struct {
	status  int
	receipt []byte // Raftq-Receipt
	body    []byte
	fast    bool // 202, or Raftq-Batch: answered before the commit
	close   bool // the server closes the connection after it
}

// reader reads answers, one after the other, however they are cut into reads.
// It knows as much of HTTP/1.1 as raftq's answers need: Content-Length, and
// none for 204 and 304.
type reader struct {
	src  io.Reader
	buf  []byte
	r, w int // buf[r:w] is read and not used
}

func newReader(src io.Reader) *reader { return &reader{src: src, buf: make([]byte, 16<<10)} }

// next reads the next answer into resp.
func (d *reader) next(resp *response) error {
	head, err := d.head()
	if err != nil {
		return err
	}
	length, err := resp.parse(head)
	if err != nil {
		return err
	}
	at := len(head) // from d.r, which fill may move
	for d.w-d.r < at+length {
		if err := d.fill(at + length); err != nil {
			return noEOF(err)
		}
	}
	if resp.receipt != nil { // fill may have moved the head
		resp.receipt = headerValue(d.buf[d.r:d.r+at], "raftq-receipt")
	}
	resp.body = d.buf[d.r+at : d.r+at+length]
	d.r += at + length
	return nil
}

// head returns the status line and the header fields, with the empty line.
func (d *reader) head() ([]byte, error) {
	searched := 0
	for {
		have := d.buf[d.r:d.w]
		if i := bytes.Index(have[searched:], []byte("\r\n\r\n")); i >= 0 {
			return have[:searched+i+4], nil
		}
		searched = max(0, len(have)-3)
		if len(have) > answerHeadMax {
			return nil, fmt.Errorf("%w: its head is longer than %d bytes", errAnswer, answerHeadMax)
		}
		if err := d.fill(len(have) + 1); err != nil {
			if len(have) > 0 {
				err = noEOF(err)
			}
			return nil, err
		}
	}
}

// fill reads once, with room for at least want unused bytes in all.
func (d *reader) fill(want int) error {
	if d.r == d.w {
		d.r, d.w = 0, 0
	}
	if d.r+want > len(d.buf) || d.w == len(d.buf) {
		buf := d.buf
		if want > len(buf) {
			buf = make([]byte, max(want, 2*len(buf)))
		}
		d.w = copy(buf, d.buf[d.r:d.w])
		d.r, d.buf = 0, buf
	}
	n, err := d.src.Read(d.buf[d.w:])
	d.w += n
	if n > 0 {
		return nil
	}
	if err == nil {
		err = io.ErrNoProgress
	}
	return err
}

func noEOF(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}

// parse reads the head and returns the body's length.
func (resp *response) parse(head []byte) (length int, err error) {
	*resp = response{}
	// HTTP/1.1 201 …
	if len(head) < 14 || !bytes.HasPrefix(head, []byte("HTTP/1.")) {
		return 0, fmt.Errorf("%w: it begins with %.20q", errAnswer, head)
	}
	status, ok := number(head[9:12])
	if !ok || status < 200 {
		return 0, fmt.Errorf("%w: status %q", errAnswer, head[9:12])
	}
	resp.status, length, resp.fast = status, -1, status == 202
	lines := head[bytes.IndexByte(head, '\n')+1:]
	for len(lines) > 2 {
		end := bytes.IndexByte(lines, '\n')
		if end < 2 {
			return 0, fmt.Errorf("%w: a header line of %d bytes", errAnswer, end)
		}
		line := lines[:end-1]
		lines = lines[end+1:]
		// Only these fields matter; their first letters tell them from most others.
		switch line[0] | 0x20 {
		case 'c':
			if v := fieldValue(line, "content-length"); v != nil {
				if length, ok = number(v); !ok {
					return 0, fmt.Errorf("%w: content-length %q", errAnswer, v)
				}
			} else if v := fieldValue(line, "connection"); v != nil {
				resp.close = equalFold(v, "close")
			}
		case 'r':
			if v := fieldValue(line, "raftq-receipt"); v != nil {
				resp.receipt = v
			} else if fieldValue(line, "raftq-batch") != nil {
				resp.fast = true
			}
		case 't':
			if v := fieldValue(line, "transfer-encoding"); v != nil {
				return 0, fmt.Errorf("%w: transfer-encoding %q", errAnswer, v)
			}
		}
	}
	switch {
	case resp.status == 204 || resp.status == 304:
		return 0, nil
	case length < 0:
		return 0, fmt.Errorf("%w: it has no content-length", errAnswer)
	case length > answerBodyMax:
		return 0, fmt.Errorf("%w: %d bytes", errAnswer, length)
	}
	return length, nil
}

// headerValue looks a field up in a whole head.
func headerValue(head []byte, name string) []byte {
	for len(head) > 0 {
		end := bytes.IndexByte(head, '\n')
		if end < 1 {
			return nil
		}
		if v := fieldValue(head[:end-1], name); v != nil {
			return v
		}
		head = head[end+1:]
	}
	return nil
}

// fieldValue returns the value of a header line if it has that name (lower
// case), else nil.
func fieldValue(line []byte, name string) []byte {
	if len(line) <= len(name) || line[len(name)] != ':' || !equalFold(line[:len(name)], name) {
		return nil
	}
	return bytes.TrimSpace(line[len(name)+1:])
}

// equalFold compares with a lower-case text of letters and dashes.
func equalFold(b []byte, lower string) bool {
	if len(b) != len(lower) {
		return false
	}
	for i, c := range b {
		if c >= 'A' && c <= 'Z' {
			c |= 0x20
		}
		if c != lower[i] {
			return false
		}
	}
	return true
}

func number(b []byte) (n int, ok bool) {
	if len(b) == 0 || len(b) > 10 {
		return 0, false
	}
	for _, c := range b {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = n*10 + int(c-'0')
	}
	return n, true
}
