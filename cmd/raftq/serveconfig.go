package main

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"raftq/fsm"
	"raftq/raftnode"
)

// serveConfig is all that serve can be told, checked.
type serveConfig struct {
	node         raftnode.Config // without Version and Logger
	listenClient string
	resp         respConfig
	maxBody      int64
	join         []string // client addresses of members, to join their cluster
	replace      bool     // a dead member of the same name
	standby      bool     // with join: no vote until it is promoted; of a node that comes back as what it was
	rejoin       bool     // a damaged log is set aside, and the node comes back as a new member
	fast         bool     // consistency of requests that do not say one
	logLevel     zapcore.Level
	logFormat    string   // json | text
	lignum       []string // keys of Lignum's in the file, that mean nothing here
}

// serveFlags defines the flags. Their values are read through loadSettings
// alone, so all are text; the type shows in the help.
func serveFlags(fs *pflag.FlagSet) {
	text := func(name, kind, def, usage string) {
		v := typedText{kind: kind, text: def}
		f := fs.VarPF(&v, name, "", usage)
		if kind == kindBool {
			f.NoOptDefVal = "true"
		}
	}
	text("name", "string", "n1", "name of the node, unique in its cluster")
	text("data-dir", "dir", "./raftq-data", "where everything is kept")
	text("listen-client", "host:port", "127.0.0.1:8080", "REST for clients")
	text("listen-resp", "host:port", "127.0.0.1:7711", "Disque's protocol for clients; empty = off")
	text("listen-peer", "host:port", "127.0.0.1:9080", "the other nodes")
	text("advertise-client", "host:port", "", "how others reach listen-client (default: listen-client)")
	text("advertise-resp", "host:port", "", "how others reach listen-resp (default: listen-resp)")
	text("advertise-peer", "URL", "", "how others reach listen-peer (default: as in initial-cluster, else http://listen-peer)")
	text("initial-cluster", "list", "", "first members, the same list on each: n1=http://h1:9080,n2=… (default: this node alone)")
	text("join", "list", "", "client addresses of members of a running cluster to join: h1:8080,h2:8080 (only looked at while data-dir is empty)")
	text("replace", kindBool, "false", "with join: take the place of a dead member of this name")
	text("recover", "rejoin", "", "rejoin: when the log is damaged or lost its end, set it aside and come back as a new member")
	text("cluster-token", "string", "raftq", "tells clusters apart that could reach each other; the same on each node")
	text("tick", "duration", "10ms", "unit of the replica's clock")
	text("heartbeat", "duration", "100ms", "the leader's sign of life")
	text("election-timeout", "duration", "1s", "silence after which a new leader is sought")
	text("snapshot-bytes", "size", "64MiB", "log since the last snapshot that brings the next one about")
	text("snapshot-entries", "number", "0", "the same in entries, 0 = by bytes alone")
	text("segment-bytes", "size", "64MiB", "size of the log's files; room for two more is taken ahead")
	text("max-memory", "size", "0", "limit of the queues' memory, the smallest of all nodes counts: at 90 % fast enqueues are refused, at 95 % all; 0 = none")
	text("max-body", "size", "1MiB", "largest job body, at most "+formatSize(fsm.BodyMax))
	text("consistency", "strong|fast", "strong", "consistency of requests that do not say one")
	text("resp-unixsocket", "file", "", "Disque's protocol on this socket, too")
	text("resp-unixsocketperm", "octal", "700", "permissions of resp-unixsocket")
	text("resp-password", "string", "", "what AUTH must say before anything else is done over RESP; better in the environment or the file")
	text("resp-debug", kindBool, "false", "allow DEBUG FLUSHALL, which deletes all queues")
	text("disque-conf", "file", "", "a disque.conf: what applies is used where nothing else says it, the rest is named in a warning")
	text("wal-archive", "dir", "", "keep released log segments there instead of deleting them (for tests)")
	text("insecure", kindBool, "false", "allow listen-client on an address that others can reach, although nobody is authenticated")
	text("log-level", "level", "info", "debug, info, warn or error")
	text("log-format", "format", "text", "text or json")
	text(configKey, "file", "", "YAML file with any of these, without the dashes in front")
}

const kindBool = "bool"

// typedText is a flag's value as text; its type is for the help.
type typedText struct{ kind, text string }

func (t *typedText) String() string     { return t.text }
func (t *typedText) Set(s string) error { t.text = s; return nil }
func (t *typedText) Type() string       { return t.kind }

// newServeConfig reads and checks the settings of loadSettings.
func newServeConfig(settings map[string]string) (serveConfig, error) {
	r := settingsReader{settings: settings}
	cfg := serveConfig{
		node: raftnode.Config{
			Name:            r.text("name"),
			DataDir:         r.text("data-dir"),
			ListenPeer:      r.address("listen-peer"),
			AdvertisePeer:   r.text("advertise-peer"),
			AdvertiseClient: r.text("advertise-client"),
			InitialCluster:  r.members("initial-cluster"),
			ClusterToken:    r.text("cluster-token"),
			Tick:            r.duration("tick"),
			Heartbeat:       r.duration("heartbeat"),
			ElectionTimeout: r.duration("election-timeout"),
			SnapshotBytes:   r.size("snapshot-bytes"),
			SnapshotEntries: r.number("snapshot-entries"),
			SegmentBytes:    r.size("segment-bytes"),
			MaxMemory:       r.size("max-memory"),
			WALArchive:      r.text("wal-archive"),
		},
		listenClient: r.address("listen-client"),
		resp:         r.resp(),
		maxBody:      r.size("max-body"),
		join:         r.addresses("join"),
		replace:      r.oneOf("replace", "true", "false") == "true",
		rejoin:       r.oneOf("recover", "", "rejoin") == "rejoin",
		fast:         r.oneOf("consistency", "strong", "fast") == "fast",
		logLevel:     r.level("log-level"),
		logFormat:    r.oneOf("log-format", "text", "json"),
	}
	cfg.lignum = r.lignum()
	insecure := r.oneOf("insecure", "true", "false") == "true"
	if r.err != nil {
		return cfg, r.err
	}
	switch {
	case cfg.join != nil && cfg.node.InitialCluster != nil && !cfg.rejoin:
		return cfg, errors.New("join: a node either joins a running cluster or is one of the first (initial-cluster)")
	case cfg.replace && cfg.join == nil:
		return cfg, errors.New("replace: needs join")
	}
	if !insecure && !isLoopback(cfg.listenClient) {
		return cfg, fmt.Errorf("listen-client: %s can be reached by others and nobody is authenticated; say --insecure if that is meant", cfg.listenClient)
	}
	if cfg.maxBody < 1 || cfg.maxBody > fsm.BodyMax {
		return cfg, fmt.Errorf("max-body: %s is not within 1 B and %s", settings["max-body"], formatSize(fsm.BodyMax))
	}
	if err := checkNode(&cfg.node, cfg.listenClient); err != nil {
		return cfg, err
	}
	return cfg, cfg.resp.check(&cfg.node, insecure)
}

// checkNode checks what the settings mean together and fills in what follows
// from others.
func checkNode(n *raftnode.Config, listenClient string) error {
	if n.Name == "" || len(n.Name) > fsm.NameMax || strings.ContainsAny(n.Name, "=,/ \t\n") {
		return fmt.Errorf("name: %q is not a node's name (no spaces, commas, slashes or equals signs)", n.Name)
	}
	if n.DataDir == "" {
		return errors.New("data-dir: must not be empty")
	}
	if n.Tick < time.Millisecond || n.Heartbeat < n.Tick || n.ElectionTimeout < 2*n.Heartbeat {
		return fmt.Errorf("tick (%v), heartbeat (%v) and election-timeout (%v): need 1ms ≤ tick ≤ heartbeat ≤ election-timeout/2", n.Tick, n.Heartbeat, n.ElectionTimeout)
	}
	there := raftnode.HasData(n.DataDir) // then the member table says who is where
	for _, m := range n.InitialCluster {
		if m.Name != n.Name {
			continue
		}
		if n.AdvertisePeer == "" {
			n.AdvertisePeer = m.Peer
		}
		if n.AdvertisePeer != m.Peer && !there {
			return fmt.Errorf("advertise-peer: is %s, but initial-cluster says %s=%s", n.AdvertisePeer, m.Name, m.Peer)
		}
	}
	if n.InitialCluster != nil && n.AdvertisePeer == "" && !there {
		return fmt.Errorf("initial-cluster: does not name this node, %s", n.Name)
	}
	if n.AdvertisePeer == "" {
		if isWildcard(n.ListenPeer) {
			return fmt.Errorf("advertise-peer: is needed, others cannot reach %s", n.ListenPeer)
		}
		n.AdvertisePeer = "http://" + n.ListenPeer
	}
	if err := checkPeerURL(n.AdvertisePeer); err != nil {
		return fmt.Errorf("advertise-peer: %w", err)
	}
	if n.AdvertiseClient == "" {
		if isWildcard(listenClient) {
			return fmt.Errorf("advertise-client: is needed, others cannot reach %s", listenClient)
		}
		n.AdvertiseClient = listenClient
	}
	if _, _, err := net.SplitHostPort(n.AdvertiseClient); err != nil {
		return fmt.Errorf("advertise-client: %q is not host:port", n.AdvertiseClient)
	}
	return nil
}

// settingsReader reads settings one by one and keeps the first error.
type settingsReader struct {
	settings map[string]string
	err      error
}

func (r *settingsReader) fail(key string, err error) {
	if err != nil && r.err == nil {
		r.err = fmt.Errorf("%s: %w", key, err)
	}
}

func (r *settingsReader) text(key string) string { return r.settings[key] }

func (r *settingsReader) duration(key string) time.Duration {
	d, err := parseDuration(r.settings[key])
	r.fail(key, err)
	return d
}

func (r *settingsReader) size(key string) int64 {
	n, err := parseSize(r.settings[key])
	r.fail(key, err)
	return n
}

func (r *settingsReader) number(key string) uint64 {
	n, err := strconv.ParseUint(r.settings[key], 10, 63)
	if err != nil {
		r.fail(key, fmt.Errorf("%q is not a whole number", r.settings[key]))
	}
	return n
}

func (r *settingsReader) oneOf(key string, allowed ...string) string {
	for _, a := range allowed {
		if r.settings[key] == a {
			return a
		}
	}
	r.fail(key, fmt.Errorf("%q is not one of %s", r.settings[key], strings.Join(allowed, ", ")))
	return ""
}

func (r *settingsReader) level(key string) zapcore.Level {
	r.oneOf(key, "debug", "info", "warn", "error")
	l, err := zap.ParseAtomicLevel(r.settings[key])
	r.fail(key, err)
	if err != nil {
		return zapcore.InfoLevel
	}
	return l.Level()
}

func (r *settingsReader) address(key string) string {
	a := r.settings[key]
	_, port, err := net.SplitHostPort(a)
	if err != nil {
		r.fail(key, fmt.Errorf("%q is not host:port", a))
	} else if n, err := strconv.Atoi(port); err != nil || n < 1 || n > 65535 {
		r.fail(key, fmt.Errorf("%q has no port within 1 and 65535", a))
	}
	return a
}

// addresses reads h1:8080,h2:8080.
func (r *settingsReader) addresses(key string) (all []string) {
	if r.settings[key] == "" {
		return nil
	}
	for item := range strings.SplitSeq(r.settings[key], ",") {
		a := strings.TrimPrefix(strings.TrimSpace(item), "http://")
		if _, port, err := net.SplitHostPort(a); err != nil || port == "" {
			r.fail(key, fmt.Errorf("%q is not host:port", item))
			return nil
		}
		all = append(all, a)
	}
	return all
}

// members reads n1=http://h1:9080,n2=http://h2:9080.
func (r *settingsReader) members(key string) []raftnode.Member {
	if r.settings[key] == "" {
		return nil
	}
	var all []raftnode.Member
	seen := map[string]bool{}
	for item := range strings.SplitSeq(r.settings[key], ",") {
		name, peer, ok := strings.Cut(strings.TrimSpace(item), "=")
		if !ok || name == "" {
			r.fail(key, fmt.Errorf("%q is not name=URL", item))
			return nil
		}
		if err := checkPeerURL(peer); err != nil {
			r.fail(key, err)
			return nil
		}
		if seen[name] || seen[peer] {
			r.fail(key, fmt.Errorf("%q is there twice", item))
			return nil
		}
		seen[name], seen[peer] = true, true
		all = append(all, raftnode.Member{Name: name, Peer: peer})
	}
	return all
}

func checkPeerURL(s string) error {
	u, err := url.Parse(s)
	if err != nil || u.Scheme != "http" || u.Hostname() == "" || u.Port() == "" || u.Path != "" {
		return fmt.Errorf("%q is not a URL like http://host:9080", s)
	}
	return nil
}

// isLoopback tells whether only this machine can reach an address.
func isLoopback(address string) bool {
	h, _, err := net.SplitHostPort(address)
	ip := net.ParseIP(h)
	return err == nil && (h == "localhost" || ip != nil && ip.IsLoopback())
}

// isWildcard tells whether an address stands for all of the machine's.
func isWildcard(address string) bool {
	h, _, err := net.SplitHostPort(address)
	ip := net.ParseIP(h)
	return err == nil && (h == "" || ip != nil && ip.IsUnspecified())
}
