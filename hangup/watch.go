package hangup

import (
	"fmt"
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// watcher tells waiting dequeues that their client hung up. A socket enters
// its epoll set with the first dequeue that waits and stays until it is closed:
// a FIN comes once and is final, so a connection has one channel for life and
// a wait costs no system call. The set is edge-triggered and asks for hang-ups
// alone, so bytes that arrive meanwhile wake nobody.
type watcher struct {
	file *os.File // the epoll set; Go's own poller waits for it
	raw  syscall.RawConn
	done chan struct{}

	mu      sync.Mutex
	conns   map[uint64]*Conn // by token; tokens are never reused, as descriptors are
	token   uint64
	leaving bool
}

// watch is a conn's part of it, guarded by watcher.mu.
type watch struct {
	token uint64 // 0 = not in the set
	gone  chan struct{}
	ended bool // gone is closed
}

func newWatcher() (*watcher, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("make an epoll set: %w", err)
	}
	if err := unix.SetNonblock(fd, true); err != nil {
		_ = unix.Close(fd) //nolint:errcheck // nothing was in it
		return nil, fmt.Errorf("make an epoll set: %w", err)
	}
	w := &watcher{file: os.NewFile(uintptr(fd), "epoll"), done: make(chan struct{}), conns: map[uint64]*Conn{}}
	if w.raw, err = w.file.SyscallConn(); err != nil {
		_ = w.file.Close() //nolint:errcheck // nothing was in it
		return nil, fmt.Errorf("poll an epoll set: %w", err)
	}
	go w.run()
	return w, nil
}

// run closes the channels of sockets that hung up, until the set is closed.
func (w *watcher) run() {
	defer close(w.done)
	events := make([]unix.EpollEvent, 128)
	for {
		n := 0
		err := w.raw.Read(func(fd uintptr) bool {
			var err error
			n, err = unix.EpollWait(int(fd), events, 0)
			return n > 0 || err != nil && err != unix.EINTR
		})
		if err != nil {
			return // closed
		}
		w.mu.Lock()
		for _, e := range events[:max(n, 0)] {
			if c := w.conns[tokenOf(e)]; c != nil {
				c.watched.end()
			}
		}
		w.mu.Unlock()
	}
}

// gone returns the channel that is closed when c's client hangs up, or when
// the server leaves.
func (w *watcher) gone(c *Conn) <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	if c.watched.gone == nil {
		c.watched.gone = make(chan struct{})
		w.add(c)
	}
	if w.leaving {
		c.watched.end()
	}
	return c.watched.gone
}

func (w *watcher) add(c *Conn) {
	w.token++
	c.watched.token = w.token
	w.conns[w.token] = c
	if c.raw == nil {
		return
	}
	e := unix.EpollEvent{Events: unix.EPOLLRDHUP | unix.EPOLLET, Fd: int32(w.token), Pad: int32(w.token >> 32)}
	var addErr error
	err := c.raw.Control(func(fd uintptr) {
		addErr = w.raw.Control(func(set uintptr) {
			if err := unix.EpollCtl(int(set), unix.EPOLL_CTL_ADD, int(fd), &e); err != nil {
				c.watched.end() // unwatched it could wait for a client that left
			}
		})
	})
	if err != nil || addErr != nil {
		c.watched.end()
	}
}

func tokenOf(e unix.EpollEvent) uint64 { return uint64(uint32(e.Fd)) | uint64(uint32(e.Pad))<<32 }

// end closes the channel, once. The watcher's lock is held.
func (w *watch) end() {
	if w.gone != nil && !w.ended {
		w.ended = true
		close(w.gone)
	}
}

// forget drops a conn that is being closed; the kernel drops its socket.
func (w *watcher) forget(c *Conn) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if c.watched.token != 0 {
		delete(w.conns, c.watched.token)
		c.watched.token = 0
		c.watched.end()
	}
}

// leave ends all waits, now and to come.
func (w *watcher) leave() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.leaving = true
	for _, c := range w.conns {
		c.watched.end()
	}
}

// close ends the goroutine, once.
func (w *watcher) close() {
	_ = w.file.Close() //nolint:errcheck // an epoll set has nothing to flush
	<-w.done
}
