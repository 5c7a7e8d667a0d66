package respapi

import (
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// monitors are the sessions that watch all commands.
type monitors struct {
	n  atomic.Int32
	mu sync.Mutex
	m  map[chan string]bool
}

// monitorLines is how many lines a slow watcher may be behind; it misses others.
const monitorLines = 1024

// show tells the watchers of a command, without job bodies and passwords.
func (m *monitors) show(c *session, r *request, at time.Time) {
	if m.n.Load() == 0 {
		return
	}
	var b strings.Builder
	us := strconv.Itoa(1_000_000 + at.Nanosecond()/1000)
	b.WriteString("+" + strconv.FormatInt(at.Unix(), 10) + "." + us[1:] + " [" + c.addr() + "]")
	for _, a := range r.shown() {
		b.WriteString(" " + strconv.Quote(a))
	}
	b.WriteString("\r\n")
	line := b.String()
	m.mu.Lock()
	defer m.mu.Unlock()
	for ch := range m.m {
		select {
		case ch <- line:
		default:
		}
	}
}

// monitor is MONITOR: from now on the connection shows what all clients of this
// node ask for, until it is closed.
func monitor(c *session, _ [][]byte) {
	c.ok()
	if c.flush() != nil {
		return
	}
	m := &c.s.monitors
	lines := make(chan string, monitorLines)
	m.mu.Lock()
	if m.m == nil {
		m.m = map[chan string]bool{}
	}
	m.m[lines] = true
	m.mu.Unlock()
	m.n.Add(1)
	defer func() {
		m.n.Add(-1)
		m.mu.Lock()
		delete(m.m, lines)
		m.mu.Unlock()
	}()
	c.closing = true // when this is over
	gone := c.conn.Gone()
	for {
		select {
		case line := <-lines:
			c.out = append(c.out, line...)
			if len(lines) == 0 && c.flush() != nil {
				return
			}
		case <-gone:
			return
		}
	}
}
