package respapi

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"raftq/fsm"
	"raftq/hangup"
)

// Options of a Server. Zero values mean the default.
type Options struct {
	Config         // what CONFIG SET can change
	MaxBody    int // bytes of one job's body: 1 MiB, at most 16 MiB
	Version    string
	Registry   prometheus.Registerer
	TLS        *tls.Config // nil: plain
	Logger     *zap.Logger
	Debug      bool   // allow DEBUG FLUSHALL
	ConfigFile string // what CONFIG REWRITE writes; "" = none
	// Facts are further lines of CONFIG GET that nobody can set here.
	Facts map[string]string
	// Rename gives commands, by name, other names; "" takes one away.
	Rename map[string]string
	// Shutdown asks the process to stop gracefully. nil: SHUTDOWN is refused.
	Shutdown func()
}

// Server is the RESP front end of one replica.
type Server struct {
	replica  Replica
	opts     Options
	log      *zap.Logger
	live     live
	commands map[string]*command
	stats    *stats
	slow     slowlog
	cursors  cursors
	imports  imports
	monitors monitors
	conns    *hangup.Conns
	sessions sessions
	members  membersCache
	started  time.Time
	runID    string

	broken    error       // why New failed; Serve returns it
	leaving   atomic.Bool // Close was called
	retreat   atomic.Bool // CLUSTER LEAVING yes
	mu        sync.Mutex  // guards closed and lns
	closed    bool        // no further Serve
	lns       []net.Listener
	accepting sync.WaitGroup
	ended     sync.Once
}

// New returns a server. What is wrong with opts is reported by Serve. Close must
// be called even if Serve never was.
func New(replica Replica, opts Options) *Server {
	if opts.MaxBody == 0 {
		opts.MaxBody = maxBodyDefault
	}
	if opts.Registry == nil {
		opts.Registry = prometheus.NewRegistry()
	}
	if opts.Logger == nil {
		opts.Logger = zap.NewNop()
	}
	s := &Server{replica: replica, opts: opts, log: opts.Logger, started: time.Now()}
	s.live.set(opts.Config.withDefaults())
	s.stats = newStats(s)
	s.commands = commandTable(s.stats)
	s.broken = rename(s.commands, opts.Rename)
	s.members.replica = replica
	var id [20]byte
	_, _ = rand.Read(id[:]) // never fails
	s.runID = hex.EncodeToString(id[:])
	if opts.MaxBody < 0 || opts.MaxBody > fsm.BodyMax {
		s.broken = fmt.Errorf("respapi: max-body %d is outside 1 to %d bytes", opts.MaxBody, fsm.BodyMax)
	}
	var err error
	if s.conns, err = hangup.New(hangup.Options{
		Max:      connsMax,
		Refuse:   s.refuseConn,
		Written:  &s.stats.written,
		GiveBack: s.giveBack,
	}); err != nil {
		s.broken = fmt.Errorf("respapi: %w", err)
	}
	for _, c := range append(s.conns.Metrics("resp"), s.stats) {
		if err := opts.Registry.Register(c); err != nil {
			s.broken = fmt.Errorf("respapi: register metrics: %w", err)
		}
	}
	return s
}

// Serve answers the connections of ln until Close. It may be called for several
// listeners.
func (s *Server) Serve(ln net.Listener) error {
	s.mu.Lock()
	if s.broken != nil || s.closed {
		s.mu.Unlock()
		return errors.Join(s.broken, ln.Close())
	}
	l := s.conns.Listen(ln)
	s.lns = append(s.lns, l)
	s.accepting.Add(1)
	s.mu.Unlock()
	defer s.accepting.Done()
	if s.opts.TLS != nil {
		l = tls.NewListener(l, s.opts.TLS)
	}
	for {
		nc, err := l.Accept()
		if s.leaving.Load() {
			if err == nil {
				_ = nc.Close() //nolint:errcheck // it asked nothing
			}
			return nil
		}
		if err != nil {
			if errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) || errors.Is(err, syscall.ECONNABORTED) {
				time.Sleep(acceptPause) // out of descriptors, or the client left
				continue
			}
			return err
		}
		s.accept(nc)
	}
}

func (s *Server) accept(nc net.Conn) {
	now := time.Now()
	c := &session{s: s, nc: nc, conn: hangup.Of(nc), since: now, at: now, args: make([][]byte, 0, 64)}
	c.in = reader{src: nc, max: max(s.opts.MaxBody, maxBodyDefault) + commandSlack}
	if !s.sessions.add(c, s.live.get().MaxClients) {
		s.refuseConn(nc, "")
		return
	}
	s.stats.accepted.add(1)
	go c.serve()
}

// refuseConn answers a connection too many, if that takes no waiting.
func (s *Server) refuseConn(nc net.Conn, _ string) {
	s.stats.refused.add(1)
	if s.opts.TLS == nil {
		_ = nc.SetWriteDeadline(time.Now().Add(time.Millisecond))         //nolint:errcheck // then it is not answered
		_, _ = nc.Write([]byte("-ERR max number of clients reached\r\n")) //nolint:errcheck // a courtesy
	}
	_ = nc.Close() //nolint:errcheck // nothing was promised
}

// giveBack returns hand-outs whose answer was not written.
func (s *Server) giveBack(items []fsm.Item) {
	s.stats.undelivered.Add(uint64(len(items)))
	s.replica.GiveBack(items)
}

// Close stops accepting, ends waiting GETJOBs with LEAVING, and waits until every
// command under way is answered. When ctx is over before, connections are cut:
// what was handed out and not written is given back.
func (s *Server) Close(ctx context.Context) error {
	s.leaving.Store(true)
	s.mu.Lock()
	s.closed = true
	var failed error
	for _, l := range s.lns {
		failed = errors.Join(failed, l.Close())
	}
	s.mu.Unlock()
	s.accepting.Wait()
	if s.conns == nil {
		return failed
	}
	s.conns.Leave()
	defer s.ended.Do(func() {
		s.opts.Registry.Unregister(s.stats)
		s.conns.Stop()
	})
	t := time.NewTicker(closePause)
	defer t.Stop()
	for {
		// Sessions that wait for a command wake up. Again and again, because one
		// may have been about to set another deadline.
		if s.sessions.wake() == 0 {
			return failed
		}
		select {
		case <-t.C:
		case <-s.sessions.empty():
		case <-ctx.Done():
			s.conns.Close(func(*hangup.Conn) bool { return true })
			return errors.Join(failed, fmt.Errorf("respapi: connections were cut: %w", ctx.Err()))
		}
	}
}

// sessions are the open ones.
type sessions struct {
	mu     sync.Mutex
	m      map[int64]*session
	last   int64
	gone   chan struct{} // closed when m is empty; nil when nobody waits for it
	blocks atomic.Int64  // sessions that wait in GETJOB
}

func (s *sessions) add(c *session, most int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.m) >= most {
		return false
	}
	if s.m == nil {
		s.m = map[int64]*session{}
	}
	s.last++
	c.number = s.last
	s.m[c.number] = c
	return true
}

func (s *sessions) remove(c *session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.m, c.number)
	if len(s.m) == 0 && s.gone != nil {
		close(s.gone)
		s.gone = nil
	}
}

// wake ends reads, and returns how many sessions there are.
func (s *sessions) wake() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.m {
		_ = c.conn.Conn.SetReadDeadline(time.Unix(1, 0)) //nolint:errcheck // a closed one is ending
	}
	return len(s.m)
}

// empty is closed when the last session is gone.
func (s *sessions) empty() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.gone == nil {
		s.gone = make(chan struct{})
		if len(s.m) == 0 {
			close(s.gone)
			g := s.gone
			s.gone = nil
			return g
		}
	}
	return s.gone
}

func (s *sessions) len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.m)
}

func (s *sessions) all() []*session {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]*session, 0, len(s.m))
	for _, c := range s.m {
		all = append(all, c)
	}
	return all
}
