package respapi

import (
	"errors"
	"io"
	"net"
	"runtime/debug"
	"sync"
	"time"

	"github.com/tidwall/redcon"
	"go.uber.org/zap"

	"raftq/hangup"
)

// session is one client's connection.
type session struct {
	s      *Server
	number int64
	nc     net.Conn     // what is read and written: TLS, if there is any, or conn
	conn   *hangup.Conn // the socket
	in     reader

	args    [][]byte // memory for those of a train
	train   []request
	out     []byte // replies not written yet
	authed  bool
	closing bool   // after what is in out
	queue   string // the last queue's name, so that it is copied once

	since, at time.Time // it came; the command at hand did

	mu   sync.Mutex // guards what CLIENT LIST of other sessions shows
	name string
	last string    // command
	used time.Time // when it came
}

// request is one command as it arrived.
type request struct {
	cmd  *command
	args [][]byte // with the command's name
	bad  *refusal // its answer: the command is unknown or has too few arguments
}

// serve answers commands until the client or the server leaves.
func (c *session) serve() {
	defer c.s.sessions.remove(c)
	defer c.nc.Close()
	for {
		n, err := c.collect()
		if n > 0 {
			c.run()
		}
		if err != nil {
			c.out = redcon.AppendError(c.out, "ERR "+err.Error())
			c.conn.Linger()
			c.closing = true
		}
		if c.flush() != nil || c.closing {
			return
		}
		if n > 0 {
			continue // there may be more of them
		}
		if c.s.leaving.Load() {
			return
		}
		if t := c.s.live.idle(); t > 0 {
			_ = c.nc.SetReadDeadline(time.Now().Add(t)) //nolint:errcheck // then the read fails
		} else {
			_ = c.nc.SetReadDeadline(time.Time{}) //nolint:errcheck // then the read fails
		}
		n, err = c.in.fill()
		c.s.stats.read(c.at, n)
		if err != nil {
			var broken *errProtocol
			if errors.As(err, &broken) {
				c.out = redcon.AppendError(c.out, "ERR "+err.Error())
				c.conn.Linger()
				_ = c.flush()
			} else if err != io.EOF {
				c.s.log.Debug("connection ends", zap.String("client", c.addr()), zap.Error(err))
			}
			return
		}
	}
}

// collect takes the commands that are there whole, up to a train's length.
func (c *session) collect() (n int, err error) {
	c.train = c.train[:0]
	spare := c.args[:0]
	for len(c.train) < trainMax {
		args, ok, err := c.in.next(spare)
		if err != nil || !ok {
			return len(c.train), err
		}
		if len(args) == 0 {
			continue // an empty line, or *0
		}
		if len(args) <= cap(spare) {
			spare = spare[len(args):len(args):cap(spare)]
		} else if n := 2 * cap(c.args); n <= argsKept {
			c.args = make([][]byte, 0, n) // for the next train
		}
		c.train = append(c.train, c.s.look(args))
	}
	return len(c.train), nil
}

// run executes the train.
func (c *session) run() {
	defer func() {
		if r := recover(); r != nil {
			c.s.log.Error("panic in a command", zap.Any("panic", r), zap.ByteString("stack", debug.Stack()))
			c.conn.Abandon()
			c.fail(errInternal)
			c.closing = true
		}
	}()
	for left := c.train; len(left) > 0 && !c.closing; {
		left = left[c.step(left):]
		if len(c.out) > flushAt && c.flush() != nil {
			c.closing = true
		}
	}
}

// step executes the first command, and those behind it that it takes along.
func (c *session) step(left []request) (taken int) {
	r := &left[0]
	began := time.Now()
	c.at = began
	switch {
	case r.bad != nil:
		c.fail(r.bad)
		taken = 1
	case !c.authed && c.s.live.password() != "" && r.cmd.flags&beforeAuth == 0:
		c.fail(errNoAuth)
		taken = 1
	case r.cmd.flags&whileLoading == 0 && c.s.replica.Started() != nil:
		c.fail(errLoading)
		taken = 1
	default:
		c.note(r.cmd.name, began)
		taken = r.cmd.run(c, left)
		for i := range taken {
			c.s.monitors.show(c, &left[i], began)
		}
	}
	c.observe(left[:taken], time.Since(began))
	return taken
}

// single makes a command that is executed alone.
func single(f func(c *session, args [][]byte)) func(*session, []request) int {
	return func(c *session, left []request) int {
		f(c, left[0].args)
		return 1
	}
}

// alike is how many requests at the front are of the first's command and sound.
func alike(left []request) int {
	n := 1
	for n < len(left) && left[n].cmd == left[0].cmd && left[n].bad == nil {
		n++
	}
	return n
}

// flush writes what is in out.
func (c *session) flush() error {
	if len(c.out) == 0 {
		return nil
	}
	n, err := c.nc.Write(c.out)
	c.s.stats.wrote(c.at, n)
	if c.out = c.out[:0]; cap(c.out) > bufferKept {
		c.out = nil
	}
	if err != nil {
		c.closing = true
	}
	return err
}

func (c *session) note(cmd string, at time.Time) {
	c.mu.Lock()
	c.last, c.used = cmd, at
	c.mu.Unlock()
}

func (c *session) addr() string { return c.nc.RemoteAddr().String() }

// queueName copies a queue's name, once for commands that repeat it.
func (c *session) queueName(b []byte) (string, error) {
	if string(b) == c.queue {
		return c.queue, nil
	}
	name, err := queueName(b)
	if err == nil {
		c.queue = name
	}
	return name, err
}
