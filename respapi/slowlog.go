package respapi

import (
	"fmt"
	"sync"
	"time"
)

// slowlog keeps the last commands that took long. A job's body is not kept.
type slowlog struct {
	mu      sync.Mutex
	entries []slowEntry // the newest last
	next    int64
}

type slowEntry struct {
	id   int64
	at   time.Time
	took time.Duration
	args []string
}

const slowArgs = 32

// shown is a command as people see it: without a job's body, without secrets.
func (r *request) shown() (args []string) {
	for i, a := range r.args {
		switch {
		case i == slowArgs-1 && len(r.args) > slowArgs:
			return append(args, fmt.Sprintf("... (%d more arguments)", len(r.args)-i))
		case r.cmd.name == "addjob" && i == 2:
			args = append(args, fmt.Sprintf("(%d bytes)", len(a)))
		case r.cmd.name == "auth" && i > 0, r.cmd.name == "config" && i == 3:
			args = append(args, "(secret)")
		default:
			args = append(args, shown(a))
		}
	}
	return args
}

func (l *slowlog) note(cfg *Config, r *request, took time.Duration) {
	if cfg.SlowerThan < 0 || took < cfg.SlowerThan || r.cmd.name == "getjob" {
		return // that waits, it is not slow
	}
	e := slowEntry{at: time.Now(), took: took, args: r.shown()}
	l.mu.Lock()
	defer l.mu.Unlock()
	e.id = l.next
	l.next++
	l.entries = append(l.entries, e)
	if n := len(l.entries) - cfg.SlowlogLen; n > 0 {
		l.entries = append(l.entries[:0], l.entries[n:]...)
	}
}

// slowlogCmd is SLOWLOG GET [n], LEN or RESET.
func slowlogCmd(c *session, args [][]byte) {
	l := &c.s.slow
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case is(args[1], "reset") && len(args) == 2:
		l.entries = nil
		c.ok()
	case is(args[1], "len") && len(args) == 2:
		c.integer(int64(len(l.entries)))
	case is(args[1], "get") && len(args) <= 3:
		n := int64(10)
		if len(args) == 3 {
			var ok bool
			if n, ok = integer(args[2]); !ok {
				c.fail(errNotInt)
				return
			}
		}
		if n < 0 || n > int64(len(l.entries)) {
			n = int64(len(l.entries))
		}
		c.array(int(n))
		for i := range int(n) {
			e := &l.entries[len(l.entries)-1-i]
			c.array(4)
			c.integer(e.id)
			c.integer(e.at.Unix())
			c.integer(e.took.Microseconds())
			c.array(len(e.args))
			for _, a := range e.args {
				c.bulk(a)
			}
		}
	default:
		c.fail(refuse("ERR", "SLOWLOG takes GET [count], LEN or RESET"))
	}
}
