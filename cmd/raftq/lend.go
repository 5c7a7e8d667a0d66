package main

import (
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"time"
)

// lentMax is how many connections of a lent listener are answered at once;
// a loading node has few descriptors to spare, and the others are closed.
const lentMax = 256

// lentListener is a listener whose connections get a short answer and are closed
// until those who should serve them are ready. It owns nothing: the listener stays
// open.
type lentListener struct {
	ln    net.Listener
	taken atomic.Bool
	ended chan struct{}
}

// lend begins; answer closes its connection within seconds.
func lend(ln net.Listener, answer func(net.Conn)) *lentListener {
	l := &lentListener{ln: ln, ended: make(chan struct{})}
	go l.run(answer)
	return l
}

func (l *lentListener) run(answer func(net.Conn)) {
	defer close(l.ended)
	free := make(chan struct{}, lentMax)
	for {
		nc, err := l.ln.Accept()
		switch {
		case err == nil:
		case l.taken.Load() || errors.Is(err, net.ErrClosed):
			return
		default: // out of descriptors, or the client left
			time.Sleep(10 * time.Millisecond)
			continue
		}
		select {
		case free <- struct{}{}:
			go func() {
				answer(nc)
				<-free
			}()
		default:
			_ = nc.Close() // nothing was promised
		}
	}
}

// takeBack ends it. Connections that are answered yet are not waited for.
func (l *lentListener) takeBack() error {
	d, ok := l.ln.(interface{ SetDeadline(time.Time) error })
	if !ok {
		return fmt.Errorf("BUG: a %T has no deadline", l.ln)
	}
	l.taken.Store(true)
	// A deadline that is over wakes Accept up without closing anything.
	if err := d.SetDeadline(time.Unix(1, 0)); err != nil {
		return err
	}
	<-l.ended
	return d.SetDeadline(time.Time{})
}
