package client

import (
	"crypto/tls"
	"errors"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"sync/atomic"
	"time"
)

// Defaults of a client.
const (
	attemptDefault  = 10 * time.Second
	retryForDefault = time.Minute
	dialTimeout     = 2 * time.Second
	idleConns       = 256              // kept open to one node
	idleTimeout     = 60 * time.Second // below the server's, so that it is this side that closes
)

// Client calls the nodes of one raftq cluster. It is safe for concurrent use;
// make one and share it. Close it to close its connections.
type Client struct {
	nodes         *nodes
	transport     http.RoundTripper
	own           *http.Transport // to be closed; nil when the user gave another
	log           *slog.Logger
	userAgent     []string
	authorization []string
	opts          clientOptions
	now           func() time.Time
	keyless       atomic.Int64 // no keys are made until then, ns since 1970
}

type clientOptions struct {
	policy      Policy
	consistency Consistency
	attempt     time.Duration
	retryFor    time.Duration
	keys        bool
	tls         *tls.Config
	transport   http.RoundTripper
	token       string
	userAgent   string
	log         *slog.Logger
	rng         *rand.Rand
	now         func() time.Time
}

// Option is an option of New.
type Option func(*clientOptions)

// WithPolicy says which node is asked first: Spread (the default) or Ordered.
func WithPolicy(p Policy) Option { return func(o *clientOptions) { o.policy = p } }

// WithConsistency is the consistency of calls that do not name one. Without it
// the queue's counts, then the node's.
func WithConsistency(c Consistency) Option { return func(o *clientOptions) { o.consistency = c } }

// WithAttemptTimeout is how long one node may take for a request, 10 s unless
// set, at most 55 s. It is longer than an election, so that a node can ride one
// out. After it another node is asked, if that is safe.
func WithAttemptTimeout(d time.Duration) Option { return func(o *clientOptions) { o.attempt = d } }

// WithRetryFor is how long a call may be tried again, 1 min unless set; 0 means
// that each node is asked at most once. A call's context may end it sooner.
func WithRetryFor(d time.Duration) Option { return func(o *clientOptions) { o.retryFor = d } }

// WithoutKeys makes the client send no Idempotency-Key of its own. The servers
// remember a key for an hour, which takes up to a KiB of memory on each node; who
// makes very many single enqueues saves that, and has to expect errors with Applied
// Unknown when a node dies. Batches have one key for all their jobs.
func WithoutKeys() Option { return func(o *clientOptions) { o.keys = false } }

// WithToken sends "Authorization: Bearer TOKEN" with each request.
func WithToken(token string) Option { return func(o *clientOptions) { o.token = token } }

// WithTLS speaks HTTPS to all endpoints. The configuration is not changed.
func WithTLS(config *tls.Config) Option { return func(o *clientOptions) { o.tls = config } }

// WithTransport sends requests through a transport of the caller's, who closes
// it; WithTLS cannot be set with it. It must not repeat requests by itself.
func WithTransport(t http.RoundTripper) Option { return func(o *clientOptions) { o.transport = t } }

// WithUserAgent is put before the client's own User-Agent.
func WithUserAgent(name string) Option { return func(o *clientOptions) { o.userAgent = name } }

// WithLogger tells of nodes that fail and of what a consumer bears in silence.
// Nothing is logged unless set. Bodies are never logged.
func WithLogger(l *slog.Logger) Option { return func(o *clientOptions) { o.log = l } }

// New returns a client of the cluster that the endpoints belong to: one or more
// host:port or URLs, with commas between. It connects to none of them yet.
func New(endpoints string, options ...Option) (*Client, error) {
	o := clientOptions{attempt: attemptDefault, retryFor: retryForDefault, keys: true, now: time.Now}
	for _, f := range options {
		f(&o)
	}
	switch {
	case o.attempt <= 0 || o.attempt > timeoutMax:
		return nil, errors.New("raftq: WithAttemptTimeout: want more than 0 and at most 55s")
	case o.retryFor < 0:
		return nil, errors.New("raftq: WithRetryFor: want 0 or more")
	case o.consistency != "" && o.consistency != Strong && o.consistency != Fast:
		return nil, errors.New("raftq: WithConsistency: want Strong or Fast")
	case o.transport != nil && o.tls != nil:
		return nil, errors.New("raftq: WithTLS: the transport given by WithTransport has its own")
	}
	if o.rng == nil {
		o.rng = rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64()))
	}
	nodes, err := newNodes(endpoints, o.policy, o.tls != nil, o.now, o.rng)
	if err != nil {
		return nil, err
	}
	c := &Client{nodes: nodes, transport: o.transport, log: o.log, opts: o, now: o.now}
	if c.log == nil {
		c.log = slog.New(slog.DiscardHandler)
	}
	if c.transport == nil {
		c.own = newTransport(o.tls)
		c.transport = c.own
	}
	agent := userAgent
	if o.userAgent != "" {
		agent = o.userAgent + " " + userAgent
	}
	c.userAgent = []string{agent}
	if o.token != "" {
		c.authorization = []string{"Bearer " + o.token}
	}
	return c, nil
}

const userAgent = "raftq-go/1"

// newTransport makes a transport that keeps connections. Keep-alive probes find a
// machine that vanished while a long poll waits.
func newTransport(config *tls.Config) *http.Transport {
	dialer := &net.Dialer{
		Timeout:         dialTimeout,
		KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 5 * time.Second, Interval: 2 * time.Second, Count: 3},
	}
	var protocols http.Protocols
	protocols.SetHTTP1(true) // what the servers speak
	if config != nil {
		config = config.Clone()
	}
	return &http.Transport{
		DialContext:         dialer.DialContext,
		TLSClientConfig:     config,
		TLSHandshakeTimeout: dialTimeout,
		Protocols:           &protocols,
		MaxIdleConns:        0, // no limit over all nodes
		MaxIdleConnsPerHost: idleConns,
		IdleConnTimeout:     idleTimeout,
		DisableCompression:  true,
		WriteBufferSize:     16 << 10,
		ReadBufferSize:      16 << 10,
	}
}

// Close closes the connections that are idle, and others when their request
// ends. A Consumer is ended by its own context, before.
func (c *Client) Close() {
	if c.own != nil {
		c.own.CloseIdleConnections()
	}
}

// Endpoints returns the addresses of the nodes, in the order of New.
func (c *Client) Endpoints() []string {
	all := make([]string, len(c.nodes.all))
	for i, n := range c.nodes.all {
		all[i] = n.addr
	}
	return all
}
