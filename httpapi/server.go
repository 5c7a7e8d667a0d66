package httpapi

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/valyala/fasthttp"
	"go.uber.org/zap"

	"raftq/fsm"
	"raftq/hangup"
)

// Options of a Server. Zero values mean the default.
type Options struct {
	MaxBody  int    // bytes of one job's body: 1 MiB, at most 16 MiB
	MaxConns int    // connections at once: 65536
	Fast     bool   // consistency of requests that do not say one
	Version  string // shown by /version
	// Registry gets this package's metrics. It is what /metrics shows when it
	// gathers as well, as every *prometheus.Registry does.
	Registry prometheus.Registerer
	TLS      *tls.Config // nil: plain HTTP
	Logger   *zap.Logger
}

// Server is the HTTP front end of one replica.
type Server struct {
	replica   Replica
	opts      Options
	log       *zap.Logger
	tree      *segment
	http      *fasthttp.Server
	stats     *stats
	pages     pages
	document  func() ([]byte, error) // /openapi.json
	conns     *hangup.Conns
	forwarder *fasthttp.Client
	nameField []byte // the node's name as a header field

	broken  error          // why New failed; Serve returns it
	tails   atomic.Int64   // answers that go on
	leaving atomic.Bool    // Close was called
	mu      sync.Mutex     // guards closed and lns
	closed  bool           // no further Serve
	lns     []net.Listener // of Serve
	serving sync.WaitGroup
	ended   sync.Once
}

// New returns a server. What is wrong with opts is reported by Serve. Close
// must be called even if Serve never was.
func New(replica Replica, opts Options) *Server {
	if opts.MaxBody == 0 {
		opts.MaxBody = maxBodyDefault
	}
	if opts.MaxConns == 0 {
		opts.MaxConns = connsDefault
	}
	if opts.Registry == nil {
		opts.Registry = prometheus.NewRegistry()
	}
	if opts.Logger == nil {
		opts.Logger = zap.NewNop()
	}
	table := slices.Clone(routes)
	s := &Server{
		replica:   replica,
		opts:      opts,
		log:       opts.Logger,
		tree:      buildTree(table),
		stats:     newStats(replica, table),
		pages:     newPages(opts.Registry),
		document:  documentOf(table),
		forwarder: newForwarder(),
		nameField: appendField(nil, replica.Name()),
	}
	if opts.MaxBody < 0 || opts.MaxBody > fsm.BodyMax {
		s.broken = fmt.Errorf("httpapi: max-body %d is outside 1 to %d bytes", opts.MaxBody, fsm.BodyMax)
	}
	var err error
	s.conns, err = hangup.New(hangup.Options{
		Max:      opts.MaxConns,
		Refuse:   s.refuseConn,
		Written:  &s.stats.written,
		GiveBack: s.giveBack,
	})
	if err != nil {
		s.broken = fmt.Errorf("httpapi: %w", err)
	}
	for _, c := range append(s.conns.Metrics("http"), s.stats) {
		if err := opts.Registry.Register(c); err != nil {
			s.broken = fmt.Errorf("httpapi: register metrics: %w", err)
		}
	}
	s.http = &fasthttp.Server{
		Handler:                      s.serve,
		ErrorHandler:                 s.serveBroken,
		Logger:                       zapLogger{s.log},
		Concurrency:                  opts.MaxConns + 1, // ours refuses first, as a problem
		ReadBufferSize:               headBytesMax,
		WriteBufferSize:              writeBuffer,
		ReadTimeout:                  readTimeout,
		IdleTimeout:                  idleTimeout,
		MaxRequestBodySize:           requestBytesMax(opts.MaxBody),
		DisablePreParseMultipartForm: true,
		NoDefaultServerHeader:        true,
		NoDefaultContentType:         true,
		SecureErrorLogMessage:        true,
		CloseOnShutdown:              true,
		LazyRequestTime:              true,
		StreamRequestBody:            false,
	}
	return s
}

// Serve answers the connections of ln until Close. It may be called for
// several listeners.
func (s *Server) Serve(ln net.Listener) error {
	s.mu.Lock()
	if s.broken != nil || s.closed {
		s.mu.Unlock()
		return errors.Join(s.broken, ln.Close())
	}
	l := s.conns.Listen(ln)
	s.lns = append(s.lns, l)
	s.serving.Add(1)
	s.mu.Unlock()
	defer s.serving.Done()

	wrapped := l
	if s.opts.TLS != nil {
		wrapped = tls.NewListener(wrapped, s.opts.TLS)
	}
	return s.http.Serve(wrapped)
}

// Close stops accepting, answers waiting dequeues with leaving, and waits until
// every answer is written. When ctx is over before, connections are cut: what
// was handed out and not written is given back.
func (s *Server) Close(ctx context.Context) error {
	s.leaving.Store(true)
	s.mu.Lock()
	s.closed = true
	var failed error
	for _, l := range s.lns {
		failed = errors.Join(failed, l.Close())
	}
	s.mu.Unlock()
	defer s.ended.Do(func() {
		s.opts.Registry.Unregister(s.stats)
		if s.conns != nil {
			s.conns.Stop()
		}
		s.forwarder.CloseIdleConnections()
	})
	if s.conns != nil {
		s.conns.Leave()
		// fasthttp gives a new connection five seconds for its first request.
		s.conns.Close(func(c *hangup.Conn) bool { return !c.Heard() })
	}
	if err := s.http.ShutdownWithContext(ctx); err != nil {
		s.conns.Close(func(*hangup.Conn) bool { return true })
		return fmt.Errorf("httpapi: connections were cut: %w", err)
	}
	s.serving.Wait()
	return failed
}

// refuseConn answers a connection too many, if that takes no waiting.
func (s *Server) refuseConn(nc net.Conn, limit string) {
	if s.opts.TLS == nil {
		p := &problem{kind: kindConnsLimit, detail: limit}
		body := appendProblem(nil, p, nil)
		_ = nc.SetWriteDeadline(time.Now().Add(time.Millisecond)) //nolint:errcheck // then it is not answered
		_, _ = fmt.Fprintf(nc, "HTTP/1.1 503 Service Unavailable\r\nContent-Type: %s\r\nContent-Length: %d\r\nRetry-After: %d\r\nRaftq-Node: %s\r\nConnection: close\r\n\r\n%s",
			typeProblem, len(body), p.kind.retryAfter(), s.nameField, body) //nolint:errcheck // a courtesy
	}
	_ = nc.Close() //nolint:errcheck // nothing was promised
}

// giveBack returns hand-outs whose answer was not written.
func (s *Server) giveBack(items []fsm.Item) {
	s.stats.undelivered.Add(uint64(len(items)))
	s.replica.GiveBack(items)
}

// serve handles one request.
func (s *Server) serve(ctx *fasthttp.RequestCtx) {
	start := time.Now()
	c := calls.Get().(*call)
	c.s, c.ctx, c.conn = s, ctx, hangup.Of(ctx.Conn())
	c.run()
	index := -1
	if c.route != nil {
		index = c.route.index
	}
	if c.conn != nil {
		// Our conn ignores the deadline; fasthttp now flushes this answer on
		// its own, instead of holding it back while another request is buffered.
		_ = ctx.SetWriteDeadline(time.Time{}) //nolint:errcheck // a closed conn fails the write
	}
	s.stats.observe(index, ctx.Response.StatusCode(), time.Since(start))
	c.release()
}

func (c *call) run() {
	defer func() {
		if r := recover(); r != nil {
			c.s.log.Error("panic in a handler", zap.Any("panic", r), zap.ByteString("method", c.ctx.Method()),
				zap.ByteString("path", c.ctx.URI().PathOriginal()), zap.ByteString("stack", debug.Stack()))
			if c.conn != nil {
				c.conn.Abandon()
			}
			c.answerProblem(&problem{kind: kindInternal, detail: "see the node's log", unknown: true})
			c.finish()
		}
	}()
	err := c.findRoute()
	if err == nil && c.route.query != anyOption {
		err = c.begin()
	}
	done := false
	if err == nil && c.opts.fast {
		done, err = c.forward()
	}
	if err == nil && !done {
		err = c.route.handle(c)
	}
	if err != nil {
		c.answerProblem(err)
	}
	c.finish()
}

// serveBroken answers what fasthttp could not read as a request.
func (s *Server) serveBroken(ctx *fasthttp.RequestCtx, err error) {
	p := refuse(fsm.CodeInvalidRequest, "not HTTP as this server reads it: %v", err)
	var small *fasthttp.ErrSmallBuffer
	var netErr net.Error
	switch {
	case errors.As(err, &small):
		p = &problem{kind: kindHeaders, detail: fmt.Sprintf("request line and header fields take at most %d bytes; send long options in a JSON body", headBytesMax)}
	case errors.Is(err, fasthttp.ErrBodyTooLarge):
		p = refuse(fsm.CodeBodyTooLarge, "a request has at most %d bytes, a job's body at most %d (max-body)", s.http.MaxRequestBodySize, s.opts.MaxBody)
	case errors.As(err, &netErr) && netErr.Timeout():
		p = &problem{kind: kindTimeout, detail: fmt.Sprintf("a request must arrive within %s", readTimeout)}
	}
	c := calls.Get().(*call)
	c.s, c.ctx, c.conn = s, ctx, hangup.Of(ctx.Conn())
	if c.conn != nil {
		c.conn.Linger()
	}
	c.answerProblem(p)
	c.finish()
	s.stats.observe(-1, p.kind.status, 0)
	c.release()
}

// zapLogger is fasthttp's way to our log. It tells of single connections.
type zapLogger struct{ log *zap.Logger }

func (l zapLogger) Printf(format string, args ...any) {
	l.log.Debug("http: " + fmt.Sprintf(format, args...))
}
