package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"raftq/httpapi"
	"raftq/raftnode"
	"raftq/respapi"
	"raftq/wal"
)

// shutdownMax is how long a graceful stop may take; systemd kills after 90 s.
const shutdownMax = 30 * time.Second

func serveCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run a node",
		Long: `Run a node. Without flags it is a durable single node in ./raftq-data, REST on
127.0.0.1:8080, Disque's protocol on 127.0.0.1:7711.

A flag wins over the environment (--data-dir is RAFTQ_DATA_DIR), the environment
over the YAML file of --config (data-dir: /var/lib/raftq), the file over the
default. A key that does not exist stops the start. Durations and sizes need
units: 250ms, 30s, 7d, 64MiB.

A node whose log is damaged, or lost what was promised to be on the disk, does not
start: it must not vote or serve. With --recover=rejoin it sets the log aside within
--data-dir, where it stays, and comes back as a new member, which takes its place
and becomes a voter by itself. With a log that is whole the flag changes nothing.

With --join and an empty --data-dir the node asks a member of a running cluster to
take it in, fetches its state, and becomes a voter when it has caught up. Started
again it finds its cluster by itself. A node that was removed from its cluster ends
with status 7 and does not start again.

SIGTERM and SIGINT stop gracefully: no new requests, leadership handed over,
requests under way finished. A second signal ends at once.`,
		Example: `  # a durable single node, for development
  raftq serve

  # with a file; what stands in the command line wins
  printf 'name: n1\ndata-dir: ./n1\nheartbeat: 50ms\n' > raftq.yaml
  raftq serve --config raftq.yaml --log-format json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			settings, err := loadSettings(cmd.Flags(), os.Environ())
			if err != nil {
				return &exitError{exitUsage, err}
			}
			cfg, err := newServeConfig(settings)
			if err != nil {
				return &exitError{exitUsage, err}
			}
			signals := make(chan os.Signal, 2)
			signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
			defer signal.Stop(signals)
			tuneGC()
			log, level := newLogger(cfg)
			return serve(cfg, log, level, signals)
		},
	}
	serveFlags(cmd.Flags())
	cmd.Flags().SortFlags = false
	return cmd
}

// serve runs a node until a signal, or until it fails.
func serve(cfg serveConfig, log *zap.Logger, level *zap.AtomicLevel, signals <-chan os.Signal) error {
	defer func() { _ = log.Sync() }() // stderr cannot always be synced
	if !isLoopback(cfg.listenClient) || !isLoopback(cfg.node.ListenPeer) {
		log.Warn("clients and nodes are not authenticated: keep strangers off these addresses",
			zap.String("listen-client", cfg.listenClient), zap.String("listen-peer", cfg.node.ListenPeer))
	}
	// First of all, so that a taken port is noticed before the data is touched.
	ln, err := net.Listen("tcp", cfg.listenClient)
	if err != nil {
		return fmt.Errorf("listen-client: %w", err)
	}
	defer ln.Close() // closed twice after a good end
	respLns, err := cfg.resp.listenAll()
	if err != nil {
		return err
	}
	for _, ln := range respLns {
		defer ln.Close() // closed twice after a good end
	}
	// Reading the log, or joining, may take long: nobody shall wait for that unanswered.
	lent := []*lentListener{lend(ln, httpapi.NewLoading(cfg.node.Name, int(cfg.maxBody), log).Answer)}
	for _, ln := range respLns {
		lent = append(lent, lend(ln, respapi.AnswerLoading))
	}
	if len(cfg.resp.ignored) > 0 {
		log.Warn("directives of disque-conf that mean nothing here", zap.Strings("directives", cfg.resp.ignored))
	}

	if len(cfg.lignum) > 0 {
		log.Warn("keys of Lignum's configuration that mean nothing here", zap.Strings("keys", cfg.lignum))
	}

	cfg.node.Version = version()
	cfg.node.Logger = log
	node, err := openNode(cfg, log, signals)
	if err != nil {
		return removed(err)
	}
	server, err := newServer(cfg, node, log)
	if err != nil {
		return errors.Join(err, node.Close(context.Background()))
	}
	asked := make(chan struct{}, 1)
	resp := newRespServer(cfg, node, log, level, func() {
		select {
		case asked <- struct{}{}:
		default: // it stops already
		}
	})
	for _, l := range lent {
		if err := l.takeBack(); err != nil {
			return errors.Join(err, closeFronts(context.Background(), server, resp), node.Close(context.Background()))
		}
	}
	served := make(chan error, 1+len(respLns))
	go func() { served <- server.Serve(ln) }()
	for _, ln := range respLns {
		go func() { served <- resp.Serve(ln) }()
	}
	log.Info("node runs", zap.String("name", cfg.node.Name), zap.String("version", version()), zap.Int("pid", os.Getpid()),
		zap.String("client", ln.Addr().String()), zap.String("resp", cfg.resp.listen), zap.String("peer", cfg.node.ListenPeer), zap.String("data-dir", cfg.node.DataDir))

	var failed error
	select {
	case s := <-signals:
		log.Info("stopping; a second signal ends at once", zap.Stringer("signal", s))
	case <-asked:
		log.Info("stopping, because a client asked for it")
	case <-node.Done():
		failed = fmt.Errorf("the node stopped: %w", orClosed(node.Err()))
	case err := <-served:
		failed = fmt.Errorf("serve clients: %w", orClosed(err))
	}
	if failed != nil {
		log.Error("stopping", zap.Error(failed))
	}
	ctx, cancel := context.WithTimeout(context.Background(), shutdownMax)
	defer cancel()
	stopped := make(chan error, 1)
	go func() {
		// The order matters: requests under way need the node.
		stopped <- errors.Join(closeFronts(ctx, server, resp), node.Close(ctx))
	}()
	select {
	case err = <-stopped:
	case s := <-signals:
		return fmt.Errorf("second signal (%v): ended at once", s)
	}
	switch {
	case failed != nil:
		return removed(failed)
	case err != nil:
		return fmt.Errorf("stop: %w", err)
	}
	log.Info("stopped")
	return nil
}

// openNode opens the replica, whose data directory it makes first when the node is
// to join a cluster, or to come back to its own.
func openNode(cfg serveConfig, log *zap.Logger, signals <-chan os.Signal) (*raftnode.Node, error) {
	back, err := raftnode.Rejoining(cfg.node.DataDir)
	switch {
	case err != nil:
		return nil, err
	case back != nil && !cfg.rejoin:
		return nil, fmt.Errorf("this node is on its way back as a new member, because its log was damaged (it is in %s): go on with --recover=rejoin", back.Aside)
	case back != nil:
		return rejoin(cfg, back, log, signals)
	case cfg.join != nil && cfg.node.InitialCluster == nil:
		if err := joinCluster(cfg, log, signals); err != nil {
			return nil, fmt.Errorf("join %s: %w", strings.Join(cfg.join, ","), err)
		}
	}
	node, err := raftnode.Open(cfg.node)
	if cfg.rejoin && wal.IsLoss(err) {
		return setAside(cfg, err, log, signals)
	}
	if err != nil {
		return nil, fmt.Errorf("start the node: %w", err)
	}
	return node, nil
}

// removed gives an error its exit code when the node was removed from its cluster.
func removed(err error) error {
	if errors.Is(err, raftnode.ErrRemoved) {
		return &exitError{exitRemoved, err}
	}
	return err
}

// closeFronts closes both at the same time: each waits for its clients.
func closeFronts(ctx context.Context, server *httpapi.Server, resp *respapi.Server) error {
	closed := make(chan error, 1)
	go func() { closed <- resp.Close(ctx) }()
	return errors.Join(server.Close(ctx), <-closed)
}

// newServer makes the front end. /metrics shows the process's own registry,
// where etcd's packages keep their figures.
func newServer(cfg serveConfig, node *raftnode.Node, log *zap.Logger) (*httpapi.Server, error) {
	registry, ok := prometheus.DefaultRegisterer.(*prometheus.Registry)
	if !ok {
		return nil, fmt.Errorf("BUG: the default registry is a %T", prometheus.DefaultRegisterer)
	}
	if err := registry.Register(node); err != nil {
		return nil, fmt.Errorf("register metrics: %w", err)
	}
	return httpapi.New(replica{node}, httpapi.Options{
		MaxBody:  int(cfg.maxBody),
		Fast:     cfg.fast,
		Version:  version(),
		Registry: registry,
		Logger:   log,
	}), nil
}

// orClosed stands in for the error of something that ended without one.
func orClosed(err error) error {
	if err == nil {
		return errors.New("closed by itself")
	}
	return err
}

// newLogger also returns what changes its level.
func newLogger(cfg serveConfig) (*zap.Logger, *zap.AtomicLevel) {
	enc := zap.NewProductionEncoderConfig()
	enc.EncodeTime = zapcore.RFC3339NanoTimeEncoder
	enc.TimeKey = "time"
	encoder := zapcore.NewJSONEncoder(enc)
	if cfg.logFormat == "text" {
		enc.EncodeLevel = zapcore.CapitalLevelEncoder
		enc.EncodeTime = zapcore.TimeEncoderOfLayout("2006-01-02T15:04:05.000Z07:00")
		enc.ConsoleSeparator = " "
		encoder = zapcore.NewConsoleEncoder(enc)
	}
	level := zap.NewAtomicLevelAt(cfg.logLevel)
	return zap.New(zapcore.NewCore(encoder, zapcore.Lock(os.Stderr), level)), &level
}
