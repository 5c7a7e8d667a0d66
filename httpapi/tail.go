package httpapi

import (
	"errors"
	"io"
	"time"

	"raftq/fsm"
)

const (
	tailsMax = 1024 // answers that go on, of one node
	// tailBytes is how much of a topic a tail holds that its client has not taken: so
	// much, or one larger message.
	tailBytes = 16 << 10
	tailLimit = 256 // messages
)

// tail is the body of an answer that goes on as the topic grows, a message a line. It
// ends at to, after as many messages as limit says, or when nothing came for as long
// as wait says. When it cannot go on, because the messages went before the client had
// read so far or because the node leaves, a last line is the problem.
//
// It is read by the connection's goroutine and by nothing else. Messages are written
// out when their page is read, so a client that is slow holds a page, and no memory of
// the topic.
type tail struct {
	span    span
	s       *Server
	how     fsm.ReadHow
	wait    time.Duration
	left    int // messages, -1 = no limit
	base64  bool
	path    []byte // for problems
	gone    <-chan struct{}
	grown   <-chan uint64
	stop    func()
	pending []byte // lines that were not read yet: buf[at:]
	buf     []byte
	ended   bool
	timer   *time.Timer
}

// tail answers with a stream. What can be said at once is, with its status.
func (c *call) tail(s *span) error {
	if c.s.tails.Add(1) > tailsMax {
		c.s.tails.Add(-1)
		return refuse(fsm.CodeOverloaded, "%d answers go on by now, the most that a node takes; ask another one", tailsMax)
	}
	o := &c.opts
	t := &tail{span: *s, s: c.s, how: c.readHow(), wait: time.Duration(o.waitMs) * time.Millisecond, left: -1, base64: o.base64,
		path: append([]byte(nil), c.ctx.URI().PathOriginal()...)}
	if o.given.has(optLimit) {
		t.left = o.limit
	}
	if c.conn != nil {
		t.gone = c.conn.Gone()
	}
	var err error
	if t.grown, t.stop, err = c.s.replica.Growth(s.topic); err != nil {
		c.s.tails.Add(-1)
		return err
	}
	seen, err := t.fill()
	if err != nil {
		t.Close() //nolint:errcheck // never fails
		return err
	}
	c.pos, c.nowMs = seen.Position, max(seen.NowMs, seen.TimeMs)
	if o.fast {
		c.stale = seen.StaleMs
	}
	res := &c.ctx.Response
	res.SetStatusCode(200)
	res.Header.SetContentTypeBytes(typeNDJSON)
	res.ImmediateHeaderFlush = true
	res.SetBodyStream(t, -1)
	return nil
}

// fill reads the next page into pending.
func (t *tail) fill() (fsm.Seen, error) {
	limit := tailLimit
	if t.left >= 0 {
		limit = min(limit, t.left)
	}
	var p messagePage
	seen, err := t.s.replica.Read(t.how, func(m *fsm.Machine) { p = t.span.page(m, limit, tailBytes) })
	if err != nil {
		return seen, err
	}
	if no := t.span.problem(&p); no != nil {
		return seen, no
	}
	if len(p.list) == 0 {
		t.ended = p.next >= t.span.to
		return seen, nil
	}
	t.span.went(&p)
	b := t.buf[:0]
	for i := range p.list {
		b = append(appendMessage(b, &p.list[i], t.base64), '\n')
	}
	if t.pending = b; cap(b) <= 2*scratchMax {
		t.buf = b
	}
	if t.left >= 0 {
		t.left -= len(p.list)
	}
	t.ended = t.left == 0 || t.span.from >= t.span.to
	return seen, nil
}

// errGone ends an answer that nobody reads any more.
var errGone = errors.New("the client hung up")

// Read implements io.Reader: it waits for the next lines.
func (t *tail) Read(b []byte) (int, error) {
	for len(t.pending) == 0 {
		if t.ended {
			return 0, io.EOF
		}
		if _, err := t.fill(); err != nil {
			t.end(err)
			break
		}
		if len(t.pending) > 0 || t.ended {
			continue
		}
		if err := t.await(); err != nil {
			return 0, err
		}
	}
	n := copy(b, t.pending)
	t.pending = t.pending[n:]
	return n, nil
}

// end makes a problem the last line.
func (t *tail) end(err error) {
	t.pending, t.ended = appendProblem(t.buf[:0], asProblem(err), t.path), true
}

// await waits until the topic has grown.
func (t *tail) await() error {
	if t.timer == nil {
		t.timer = time.NewTimer(t.wait)
	} else {
		t.timer.Reset(t.wait)
	}
	select {
	case index := <-t.grown:
		t.how.MinIndex = max(t.how.MinIndex, index)
	case <-t.timer.C:
		t.ended = true
	case <-t.gone:
		if !t.s.leaving.Load() {
			return errGone
		}
		t.end(refuse(fsm.CodeLeaving, "go on at another node"))
	}
	return nil
}

// Close implements io.Closer.
func (t *tail) Close() error {
	if t.timer != nil {
		t.timer.Stop()
	}
	t.stop()
	t.s.tails.Add(-1)
	return nil
}
