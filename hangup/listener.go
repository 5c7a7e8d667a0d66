package hangup

import (
	"errors"
	"fmt"
	"net"
	"sync"
	"syscall"
	"time"
)

// listener makes a Conn of what it accepts.
type listener struct {
	net.Listener
	conns  *Conns
	once   sync.Once
	err    error
	closed chan struct{}
}

func (l *listener) Close() error {
	l.once.Do(func() {
		close(l.closed)
		l.err = l.Listener.Close()
	})
	return l.err
}

// Accept fails only when the listener was closed: what else goes wrong, a lack of
// descriptors or memory above all, passes, and clients must not end the server by
// connecting.
func (l *listener) Accept() (net.Conn, error) {
	pause := time.Duration(0)
	for {
		nc, err := l.Listener.Accept()
		if err != nil {
			if errors.Is(err, net.ErrClosed) || !l.pause(&pause) {
				return nil, err
			}
			continue
		}
		pause = 0
		if c := l.take(nc); c != nil {
			return c, nil
		}
	}
}

// pause waits before the next try, longer each time, up to a second; false when the
// listener was closed.
func (l *listener) pause(d *time.Duration) bool {
	*d = min(max(2**d, 5*time.Millisecond), time.Second)
	t := time.NewTimer(*d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-l.closed:
		return false
	}
}

// take makes a Conn of a connection, or refuses it.
func (l *listener) take(nc net.Conn) *Conn {
	s := l.conns
	c := &Conn{Conn: nc, conns: s}
	c.attempt = c.tryWrite
	if sc, ok := nc.(syscall.Conn); ok {
		var err error
		if c.raw, err = sc.SyscallConn(); err != nil {
			c.raw = nil // polled by nobody: written or failed, as any conn
		}
	}
	switch {
	case c.raw != nil && s.scarce(c.raw):
		s.opts.Refuse(nc, fmt.Sprintf("connections may take %d of the process's file descriptors (ulimit -n)", s.fds))
	case !s.add(c):
		s.opts.Refuse(nc, fmt.Sprintf("at most %d connections at once", s.opts.Max))
	default:
		return c
	}
	return nil
}
