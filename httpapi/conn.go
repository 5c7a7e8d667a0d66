package httpapi

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"raftq/fsm"
)

// errHungUp ends a connection whose client left before its answer.
var errHungUp = errors.New("httpapi: the client hung up before the answer")

// listener wraps what it accepts. With TLS it sits below, so that a conn sees
// the socket.
type listener struct {
	net.Listener
	s    *Server
	once sync.Once
	err  error
}

// Close may be called twice: by Server.Close, and by fasthttp.
func (l *listener) Close() error {
	l.once.Do(func() { l.err = l.Listener.Close() })
	return l.err
}

func (l *listener) Accept() (net.Conn, error) {
	for {
		nc, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		c := &conn{Conn: nc, s: l.s}
		c.attempt = c.tryWrite
		if sc, ok := nc.(syscall.Conn); ok {
			if c.raw, err = sc.SyscallConn(); err != nil {
				c.raw = nil // polled by nobody: written or failed, as any conn
			}
		}
		if l.s.conns.add(c, l.s.opts.MaxConns) {
			return c, nil
		}
		l.s.refuseConn(nc)
	}
}

// refuseConn answers a connection too many, if that takes no waiting.
func (s *Server) refuseConn(nc net.Conn) {
	if s.opts.TLS == nil {
		p := &problem{kind: kindConnsLimit, detail: fmt.Sprintf("at most %d connections at once", s.opts.MaxConns)}
		body := appendProblem(nil, p, nil)
		_ = nc.SetWriteDeadline(time.Now().Add(time.Millisecond)) //nolint:errcheck // then it is not answered
		_, _ = fmt.Fprintf(nc, "HTTP/1.1 503 Service Unavailable\r\nContent-Type: %s\r\nContent-Length: %d\r\nRetry-After: %d\r\nRaftq-Node: %s\r\nConnection: close\r\n\r\n%s",
			typeProblem, len(body), p.kind.retryAfter(), s.nameField, body) //nolint:errcheck // a courtesy
	}
	_ = nc.Close() //nolint:errcheck // nothing was promised
}

// connSet is the open connections of a server.
type connSet struct {
	mu sync.Mutex
	m  map[*conn]struct{}
}

func (s *connSet) add(c *conn, most int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.m) >= most {
		return false
	}
	if s.m == nil {
		s.m = map[*conn]struct{}{}
	}
	s.m[c] = struct{}{}
	return true
}

func (s *connSet) remove(c *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.m, c)
}

// close closes those that pick chooses.
func (s *connSet) close(pick func(*conn) bool) {
	s.mu.Lock()
	var chosen []*conn
	for c := range s.m {
		if pick(c) {
			chosen = append(chosen, c)
		}
	}
	s.mu.Unlock()
	for _, c := range chosen {
		_ = c.Close() //nolint:errcheck // its own goroutine sees it
	}
}

// conn is a client's connection. Everything but Close is called by the one
// goroutine that serves it.
type conn struct {
	net.Conn
	s     *Server
	raw   syscall.RawConn // nil when there is no socket
	heard atomic.Bool     // a byte of the client was read

	// Read deadlines: what was asked for, and what the socket has.
	readBy, readSet time.Time

	// One Write under way.
	p       []byte
	n       int
	err     error
	stalled bool
	attempt func(fd uintptr) bool // tryWrite, bound once

	mu     sync.Mutex // guards what follows; held across poll and write
	left   []fsm.Item // receipts of the answer whose first byte is not written yet
	closed bool
	// linger says that the client may be sending still: read on for a moment
	// before closing, else the reset may overtake the answer.
	linger bool

	watched watch
}

// connOf finds the conn below whatever wraps it.
func connOf(nc net.Conn) *conn {
	switch c := nc.(type) {
	case *conn:
		return c
	case *tls.Conn:
		return connOf(c.NetConn())
	}
	return nil
}

// leave takes the receipts of an answer that is about to be written. From here
// on each is reported exactly once: as written, or given back.
func (c *conn) leave(jobs []fsm.Delivered) {
	items := make([]fsm.Item, len(jobs))
	for i := range jobs {
		items[i] = jobs[i].Receipt().Item()
	}
	c.leaveItems(items)
}

func (c *conn) leaveItems(items []fsm.Item) {
	c.mu.Lock()
	c.left = append(c.left, items...)
	closed := c.closed
	c.mu.Unlock()
	if closed {
		c.abandon()
	}
}

// abandon gives back what was left: its answer will not be written.
func (c *conn) abandon() {
	c.mu.Lock()
	items := c.take()
	c.mu.Unlock()
	c.s.giveBack(items)
}

// take returns what was left, as a slice of its own. c.mu is held.
func (c *conn) take() []fsm.Item {
	if len(c.left) == 0 {
		return nil
	}
	items := append([]fsm.Item(nil), c.left...)
	c.left = c.left[:0]
	return items
}

// Write writes p whole or fails. When receipts were left, it looks for a
// hang-up right before the system call that carries the first byte.
func (c *conn) Write(p []byte) (int, error) {
	if c.raw == nil {
		return c.writePlain(p)
	}
	c.p, c.n, c.err = p, 0, nil
	err := c.raw.Write(c.attempt)
	if err == nil {
		err = c.err
	}
	c.p = nil
	if c.stalled {
		c.stalled = false
		_ = c.Conn.SetWriteDeadline(time.Time{}) //nolint:errcheck // the next write tells
	}
	if err != nil {
		c.abandon() // empty once a byte was written
	}
	return c.n, err
}

// tryWrite is called with the socket writable, and again when it would block.
func (c *conn) tryWrite(fd uintptr) (done bool) {
	moved := false
	for c.n < len(c.p) {
		n, err := c.writeOnce(int(fd))
		if n > 0 {
			c.n += n
			moved = true
			continue
		}
		switch err {
		case unix.EINTR:
		case unix.EAGAIN:
			if moved || !c.stalled { // a slow client is not one that stopped
				c.stalled = true
				_ = c.Conn.SetWriteDeadline(time.Now().Add(c.s.writeTimeout)) //nolint:errcheck // a closed conn fails the write
			}
			return false
		default:
			c.err = err
			return true
		}
	}
	return true
}

// writeOnce is one system call. The lock makes poll, write and the report one
// step for a Close by another goroutine.
func (c *conn) writeOnce(fd int) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return 0, net.ErrClosed
	}
	if len(c.left) == 0 {
		return unix.Write(fd, c.p[c.n:])
	}
	if hungUp(fd) {
		return 0, errHungUp
	}
	n, err := unix.Write(fd, c.p[c.n:])
	if n > 0 {
		c.s.stats.written.Add(uint64(len(c.left)))
		c.left = c.left[:0]
	}
	return n, err
}

// hungUp tells whether the client's FIN or reset has arrived. Bytes that wait
// to be read do not count.
func hungUp(fd int) bool {
	p := [1]unix.PollFd{{Fd: int32(fd), Events: unix.POLLRDHUP}}
	for {
		n, err := unix.Poll(p[:], 0)
		if err == unix.EINTR {
			continue
		}
		return err == nil && n > 0 && p[0].Revents&(unix.POLLRDHUP|unix.POLLHUP|unix.POLLERR) != 0
	}
}

// writePlain serves connections that are no sockets.
func (c *conn) writePlain(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	c.mu.Lock()
	var items []fsm.Item
	if n > 0 {
		c.s.stats.written.Add(uint64(len(c.left)))
		c.left = c.left[:0]
	} else {
		items = c.take()
	}
	c.mu.Unlock()
	c.s.giveBack(items)
	return n, err
}

// SetWriteDeadline does nothing: Write has its own deadline, counted from when
// the client stopped taking bytes. Handlers call it through fasthttp to have
// their answer flushed at once.
func (c *conn) SetWriteDeadline(time.Time) error { return nil }

// SetReadDeadline is set twice for each request, so it only takes a note.
func (c *conn) SetReadDeadline(t time.Time) error {
	c.readBy = t
	return nil
}

// SetDeadline is for reads alone, too.
func (c *conn) SetDeadline(t time.Time) error { return c.SetReadDeadline(t) }

// Read hands the noted deadline to the socket, unless the one that it has is
// the same within deadlineSlack, early.
func (c *conn) Read(p []byte) (int, error) {
	if early := c.readBy.Sub(c.readSet); early < 0 || early > deadlineSlack {
		if err := c.Conn.SetReadDeadline(c.readBy); err != nil {
			return 0, err
		}
		c.readSet = c.readBy
	}
	n, err := c.Conn.Read(p)
	if n > 0 && !c.heard.Load() {
		c.heard.Store(true)
	}
	return n, err
}

// Close may be called by any goroutine, and twice.
func (c *conn) Close() error {
	c.mu.Lock()
	items := c.take()
	drain := c.linger && !c.closed
	c.closed = true
	c.mu.Unlock()
	c.s.giveBack(items)
	c.s.watcher.forget(c)
	c.s.conns.remove(c)
	if drain {
		c.drain()
	}
	return c.Conn.Close()
}

// lingerOnClose asks Close to drain.
func (c *conn) lingerOnClose() {
	c.mu.Lock()
	c.linger = true
	c.mu.Unlock()
}

// drain ends our side and reads what the client still sends, for a moment.
func (c *conn) drain() {
	if hc, ok := c.Conn.(interface{ CloseWrite() error }); ok && hc.CloseWrite() == nil {
		_ = c.Conn.SetReadDeadline(time.Now().Add(lingerMax)) //nolint:errcheck // then the read fails
		_, _ = io.Copy(io.Discard, c.Conn)                    //nolint:errcheck // we close either way
	}
}

// giveBack returns hand-outs whose answer was not written.
func (s *Server) giveBack(items []fsm.Item) {
	if len(items) == 0 {
		return
	}
	s.stats.undelivered.Add(uint64(len(items)))
	s.replica.GiveBack(items)
}
