package hangup

import (
	"container/list"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"raftq/fsm"
)

const (
	// deadlineSlack is how much too early an idle connection may be closed; it
	// saves setting a timer for each request.
	deadlineSlack = 10 * time.Second
	lingerMax     = time.Second // reading on after an answer to a broken request
)

// errHungUp ends a connection whose client left before its answer.
var errHungUp = errors.New("the client hung up before the answer")

// Conn is a client's connection. Everything but Close is called by the one
// goroutine that serves it.
type Conn struct {
	net.Conn
	conns *Conns
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

	// Of stalled, and guarded by its lock.
	place      *list.Element
	placeBytes int
}

// Of finds the Conn below whatever wraps it, nil when there is none.
func Of(nc net.Conn) *Conn {
	switch c := nc.(type) {
	case *Conn:
		return c
	case *tls.Conn:
		return Of(c.NetConn())
	}
	return nil
}

// Items are the receipts of a hand-out, for Leave.
func Items(jobs []fsm.Delivered) []fsm.Item {
	items := make([]fsm.Item, len(jobs))
	for i := range jobs {
		items[i] = jobs[i].Receipt().Item()
	}
	return items
}

// Leave takes the receipts of an answer that is about to be written. From here
// on each is reported exactly once: as written, or given back.
func (c *Conn) Leave(items []fsm.Item) {
	c.mu.Lock()
	c.left = append(c.left, items...)
	closed := c.closed
	c.mu.Unlock()
	if closed {
		c.Abandon()
	}
}

// Abandon gives back what was left: its answer will not be written.
func (c *Conn) Abandon() {
	c.mu.Lock()
	items := c.take()
	c.mu.Unlock()
	c.conns.giveBack(items)
}

// take returns what was left, as a slice of its own. c.mu is held.
func (c *Conn) take() []fsm.Item {
	if len(c.left) == 0 {
		return nil
	}
	items := append([]fsm.Item(nil), c.left...)
	c.left = c.left[:0]
	return items
}

// Write writes p whole or fails. When receipts were left, it looks for a
// hang-up right before the system call that carries the first byte.
func (c *Conn) Write(p []byte) (int, error) {
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
		c.conns.stalled.leave(c)
		_ = c.Conn.SetWriteDeadline(time.Time{}) //nolint:errcheck // the next write tells
	}
	if err != nil {
		c.Abandon() // empty once a byte was written
	}
	return c.n, err
}

// tryWrite is called with the socket writable, and again when it would block.
func (c *Conn) tryWrite(fd uintptr) (done bool) {
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
				if c.stalled {
					c.conns.stalled.moved(c)
				} else {
					c.conns.stalled.enter(c, len(c.p))
				}
				c.stalled = true
				_ = c.Conn.SetWriteDeadline(time.Now().Add(c.conns.WriteTimeout)) //nolint:errcheck // a closed conn fails the write
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
func (c *Conn) writeOnce(fd int) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return 0, net.ErrClosed
	}
	if len(c.left) == 0 {
		return unix.Write(fd, c.p[c.n:])
	}
	if hungUp(fd) && seeded != "written-to-nobody" {
		return 0, errHungUp
	}
	n, err := unix.Write(fd, c.p[c.n:])
	if n > 0 {
		c.conns.opts.Written.Add(uint64(len(c.left)))
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
func (c *Conn) writePlain(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	c.mu.Lock()
	var items []fsm.Item
	if n > 0 {
		c.conns.opts.Written.Add(uint64(len(c.left)))
		c.left = c.left[:0]
	} else {
		items = c.take()
	}
	c.mu.Unlock()
	c.conns.giveBack(items)
	return n, err
}

// SetWriteDeadline does nothing: Write has its own deadline, counted from when
// the client stopped taking bytes. Handlers call it through fasthttp to have
// their answer flushed at once.
func (c *Conn) SetWriteDeadline(time.Time) error { return nil }

// Heard tells whether a byte of the client was read. Any goroutine may ask.
func (c *Conn) Heard() bool { return c.heard.Load() }

// Gone returns the channel that is closed when the client hangs up, or when the
// front end leaves. It is the same for the connection's life.
func (c *Conn) Gone() <-chan struct{} { return c.conns.watcher.gone(c) }

// SetReadDeadline is set twice for each request, so it only takes a note.
func (c *Conn) SetReadDeadline(t time.Time) error {
	c.readBy = t
	return nil
}

// SetDeadline is for reads alone, too.
func (c *Conn) SetDeadline(t time.Time) error { return c.SetReadDeadline(t) }

// Read hands the noted deadline to the socket, unless the one that it has is
// the same within deadlineSlack, early.
func (c *Conn) Read(p []byte) (int, error) {
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
func (c *Conn) Close() error {
	c.mu.Lock()
	items := c.take()
	drain := c.linger && !c.closed
	c.closed = true
	c.mu.Unlock()
	c.conns.giveBack(items)
	c.conns.watcher.forget(c)
	c.conns.remove(c)
	if drain {
		c.drain()
	}
	return c.Conn.Close()
}

// Linger asks Close to read on for a moment, so that the client gets an answer
// that was written while it was still sending.
func (c *Conn) Linger() {
	c.mu.Lock()
	c.linger = true
	c.mu.Unlock()
}

// drain ends our side and reads what the client still sends, for a moment.
func (c *Conn) drain() {
	if hc, ok := c.Conn.(interface{ CloseWrite() error }); ok && hc.CloseWrite() == nil {
		_ = c.Conn.SetReadDeadline(time.Now().Add(lingerMax)) //nolint:errcheck // then the read fails
		_, _ = io.Copy(io.Discard, c.Conn)                    //nolint:errcheck // we close either way
	}
}
