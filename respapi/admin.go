package respapi

import (
	"crypto/sha256"
	"crypto/subtle"
	"fmt"
	"slices"
	"strings"
	"time"

	"raftq/fsm"
)

func ping(c *session, args [][]byte) {
	switch len(args) {
	case 1:
		c.status("PONG")
	case 2:
		c.bulkBytes(args[1])
	default:
		c.fail(refuse("ERR", "wrong number of arguments for 'ping' command"))
	}
}

func quit(c *session, _ [][]byte) {
	c.ok()
	c.closing = true
}

// auth is AUTH password. Hashes are compared, so that the time tells nothing of
// the password, not even its length.
func auth(c *session, args [][]byte) {
	password := c.s.live.password()
	got, want := sha256.Sum256(args[1]), sha256.Sum256([]byte(password))
	switch {
	case password == "":
		c.fail(refuse("ERR", "AUTH was sent, but no password is set"))
	case subtle.ConstantTimeCompare(got[:], want[:]) == 1:
		c.authed = true
		c.ok()
	default:
		c.authed = false
		c.fail(refuse("ERR", "that is not the password"))
	}
}

// timeCmd is TIME: seconds and microseconds of this node's clock.
func timeCmd(c *session, _ [][]byte) {
	now := time.Now()
	c.array(2)
	c.bulkInt(now.Unix())
	c.bulkInt(int64(now.Nanosecond() / 1000))
}

// commandCmd is COMMAND, COMMAND COUNT and COMMAND INFO name...
func commandCmd(c *session, args [][]byte) {
	switch {
	case len(args) == 1:
		var all []*command
		for _, cmd := range c.s.commands {
			all = append(all, cmd)
		}
		slices.SortFunc(all, func(a, b *command) int { return strings.Compare(a.name, b.name) })
		c.array(len(all))
		for _, cmd := range all {
			c.describe(cmd)
		}
	case is(args[1], "count") && len(args) == 2:
		c.integer(int64(len(c.s.commands)))
	case is(args[1], "info"):
		c.array(len(args) - 2)
		for _, name := range args[2:] {
			c.describe(c.s.commands[strings.ToLower(string(name))])
		}
	default:
		c.fail(refuse("ERR", "COMMAND takes nothing, COUNT, or INFO and names"))
	}
}

func (c *session) describe(cmd *command) {
	if cmd == nil {
		c.nilBulk()
		return
	}
	c.array(6)
	c.bulk(cmd.name)
	c.integer(int64(cmd.arity))
	n := 0
	for _, f := range flagNames {
		if cmd.flags&f.flag != 0 {
			n++
		}
	}
	c.array(n)
	for _, f := range flagNames {
		if cmd.flags&f.flag != 0 {
			c.status(f.name)
		}
	}
	c.integer(0) // there are no keys among the arguments
	c.integer(0)
	c.integer(0)
}

// client is CLIENT LIST, GETNAME, SETNAME, SETINFO, ID and KILL.
func client(c *session, args [][]byte) {
	switch sub, n := args[1], len(args); {
	case is(sub, "list") && n == 2:
		c.bulk(c.s.clientList())
	case is(sub, "getname") && n == 2:
		if name := c.consumer(); name != "" {
			c.bulk(name)
		} else {
			c.nilBulk()
		}
	case is(sub, "setname") && n == 3:
		c.setName(args[2])
	case is(sub, "setinfo") && n == 4:
		c.ok() // a library's name and version: nobody asks for them
	case is(sub, "id") && n == 2:
		c.integer(c.number)
	case is(sub, "kill") && n == 3:
		c.kill(string(args[2]))
	default:
		c.fail(refuse("ERR", "CLIENT takes LIST, GETNAME, SETNAME name, ID or KILL ip:port"))
	}
}

// consumer is the name that the client gave its connection; jobs that it takes
// carry it.
func (c *session) consumer() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.name
}

func (c *session) setName(name []byte) {
	if len(name) > fsm.ConsumerMax {
		c.fail(refuse("ERR", "a client's name has at most %d bytes", fsm.ConsumerMax))
		return
	}
	for _, b := range name {
		if b <= ' ' || b > '~' {
			c.fail(refuse("ERR", "a client's name has no spaces, line breaks or special characters"))
			return
		}
	}
	c.mu.Lock()
	c.name = string(name)
	c.mu.Unlock()
	c.ok()
}

func (s *Server) clientList() string {
	all := s.sessions.all()
	slices.SortFunc(all, func(a, b *session) int { return int(a.number - b.number) })
	now := time.Now()
	var b strings.Builder
	for _, c := range all {
		c.mu.Lock()
		name, last, used := c.name, c.last, c.used
		c.mu.Unlock()
		if last == "" {
			last, used = "NULL", c.since
		}
		fmt.Fprintf(&b, "id=%d addr=%s name=%s age=%d idle=%d flags=N cmd=%s\n",
			c.number, c.addr(), name, int64(now.Sub(c.since).Seconds()), int64(now.Sub(used).Seconds()), last)
	}
	return b.String()
}

func (c *session) kill(addr string) {
	for _, o := range c.s.sessions.all() {
		if o.addr() != addr {
			continue
		}
		c.ok()
		if o == c {
			c.closing = true
		} else {
			_ = o.conn.Close() //nolint:errcheck // its own goroutine sees it
		}
		return
	}
	c.fail(refuse("ERR", "no such client"))
}

// shutdown is SHUTDOWN [REWRITE-AOF]: the node stops gracefully. There is no
// reply; the connection ends.
func shutdown(c *session, args [][]byte) {
	if len(args) > 2 || len(args) == 2 && !is(args[1], "rewrite-aof") {
		c.fail(errSyntax)
		return
	}
	if c.s.opts.Shutdown == nil {
		c.fail(refuse("ERR", "this node cannot be stopped from here"))
		return
	}
	if c.flush() != nil {
		return
	}
	if len(args) == 2 {
		if err := c.s.replica.Snapshot(timeoutDefault); err != nil {
			c.failDetail(err)
			return
		}
	}
	c.s.log.Info("a client asks for a stop")
	c.closing = true
	c.s.opts.Shutdown()
}

// bgrewriteaof starts a snapshot.
func bgrewriteaof(c *session, _ [][]byte) {
	if c.flush() != nil {
		return
	}
	if err := c.s.replica.Snapshot(0); err != nil {
		c.failDetail(err)
		return
	}
	c.status("Background append only file rewriting started")
}

// latency is LATENCY, which is a matter of the metrics.
func latency(c *session, _ [][]byte) {
	c.fail(refuse("ERR", "there is no latency monitor: see SLOWLOG, and /metrics on the HTTP port"))
}

// loadjob is how Disque reads its own files.
func loadjob(c *session, _ [][]byte) {
	c.fail(refuse("ERR", "LOADJOB is Disque's way to read its files; jobs are added by ADDJOB"))
}

// debugCmd is DEBUG FLUSHALL: all queues with all their jobs are deleted.
func debugCmd(c *session, args [][]byte) {
	switch {
	case !is(args[1], "flushall") || len(args) != 2:
		c.fail(refuse("ERR", "DEBUG takes FLUSHALL"))
		return
	case !c.s.opts.Debug:
		c.fail(refuse("ERR", "DEBUG FLUSHALL deletes everything; it is only allowed on a node started with --resp-debug"))
		return
	}
	for after, more := "", true; more; {
		var page []fsm.QueueInfo
		if _, err := c.read(func(m *fsm.Machine) { page, after = m.Queues(fsm.QueueFilter{MaxLen: -1}, "", pageMax) }); err != nil {
			c.fail(err)
			return
		}
		more = after != ""
		for i := range page {
			res, err := c.s.replica.Do(&fsm.DeleteQueue{Queue: page[i].Queue, Force: true}, false, timeoutDefault, nil)
			if err == nil && res.Code != fsm.CodeOK && res.Code != fsm.CodeQueueNotFound {
				err = ofCode(res.Code)
			}
			if err != nil {
				c.fail(err)
				return
			}
		}
	}
	c.ok()
}
