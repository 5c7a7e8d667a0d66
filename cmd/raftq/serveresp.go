package main

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"raftq/raftnode"
	"raftq/respapi"
)

// respConfig is what serve is told of the front end for Disque's clients.
type respConfig struct {
	listen     string // host:port, "" = off
	advertise  string // of the node
	socket     string // path, "" = none
	socketMode fs.FileMode
	debug      bool
	disqueConf string // file, "" = none
	live       respapi.Config
	rename     map[string]string
	ignored    []string // directives of disqueConf that mean nothing here
}

func (r *settingsReader) resp() respConfig {
	c := respConfig{
		advertise:  r.text("advertise-resp"),
		socket:     r.text("resp-unixsocket"),
		debug:      r.oneOf("resp-debug", "true", "false") == "true",
		disqueConf: r.text("disque-conf"),
	}
	if r.settings["listen-resp"] != "" {
		c.listen = r.address("listen-resp")
	}
	mode, err := strconv.ParseUint(r.settings["resp-unixsocketperm"], 8, 9)
	if err != nil {
		r.fail("resp-unixsocketperm", fmt.Errorf("%q is not octal permissions", r.settings["resp-unixsocketperm"]))
	}
	c.socketMode = fs.FileMode(mode)
	c.live.Password = r.text("resp-password")
	if c.disqueConf != "" {
		d, err := readDisqueConf(c.disqueConf)
		r.fail("disque-conf", err)
		c.live.Idle, c.live.MaxClients, c.live.SlowerThan, c.live.SlowlogLen = d.idle, d.maxClients, d.slowerThan, d.slowlogLen
		c.rename, c.ignored = d.rename, d.ignored
	}
	return c
}

// check checks what the settings mean together and fills in what follows from
// others.
func (c *respConfig) check(n *raftnode.Config, insecure bool) error {
	if c.listen == "" {
		if c.advertise != "" {
			return errors.New("advertise-resp: there is no listen-resp")
		}
		return nil
	}
	if !insecure && !isLoopback(c.listen) && c.live.Password == "" {
		return fmt.Errorf("listen-resp: %s can be reached by others and nobody is authenticated; set --resp-password, or say --insecure if that is meant", c.listen)
	}
	switch {
	case c.advertise != "":
	case isWildcard(c.listen):
		host, _, _ := net.SplitHostPort(n.AdvertiseClient) //nolint:errcheck // it was checked
		_, port, _ := net.SplitHostPort(c.listen)          //nolint:errcheck // it was checked
		c.advertise = net.JoinHostPort(host, port)
	default:
		c.advertise = c.listen
	}
	if _, _, err := net.SplitHostPort(c.advertise); err != nil {
		return fmt.Errorf("advertise-resp: %q is not host:port", c.advertise)
	}
	n.AdvertiseResp = c.advertise
	return nil
}

// listenAll opens what clients of Disque's protocol come by.
func (c *respConfig) listenAll() (lns []net.Listener, err error) {
	defer func() {
		if err != nil {
			for _, ln := range lns {
				_ = ln.Close() // nobody came
			}
		}
	}()
	if c.listen != "" {
		ln, err := net.Listen("tcp", c.listen)
		if err != nil {
			return lns, fmt.Errorf("listen-resp: %w", err)
		}
		lns = append(lns, ln)
	}
	if c.socket != "" {
		ln, err := listenUnix(c.socket, c.socketMode)
		if err != nil {
			return lns, fmt.Errorf("resp-unixsocket: %w", err)
		}
		lns = append(lns, ln)
	}
	return lns, nil
}

// listenUnix makes a socket, in the place of one that a killed process left.
func listenUnix(path string, mode fs.FileMode) (net.Listener, error) {
	if info, err := os.Lstat(path); err == nil && info.Mode().Type() == fs.ModeSocket {
		if nc, err := net.DialTimeout("unix", path, time.Second); err == nil {
			_ = nc.Close() // only to see
			return nil, fmt.Errorf("%s is in use", path)
		}
		if err := os.Remove(path); err != nil {
			return nil, err
		}
	}
	ln, err := net.Listen("unix", path)
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(path, mode); err != nil {
		return nil, errors.Join(err, ln.Close())
	}
	return ln, nil
}

// newRespServer makes the front end. shutdown is what SHUTDOWN does.
func newRespServer(cfg serveConfig, node *raftnode.Node, log *zap.Logger, level *zap.AtomicLevel, shutdown func()) *respapi.Server {
	c := cfg.resp
	c.live.Level = level
	host, port, _ := net.SplitHostPort(c.listen) //nolint:errcheck // then there is none
	facts := map[string]string{
		"port":                 port,
		"bind":                 host,
		"unixsocket":           c.socket,
		"unixsocketperm":       strconv.FormatUint(uint64(c.socketMode), 8),
		"dir":                  cfg.node.DataDir,
		"maxmemory":            strconv.FormatInt(cfg.node.MaxMemory, 10),
		"cluster-node-timeout": strconv.FormatInt(cfg.node.ElectionTimeout.Milliseconds(), 10),
		"hz":                   strconv.FormatInt(int64(time.Second/cfg.node.Tick), 10),
		"daemonize":            "no",
	}
	return respapi.New(respReplica{node, ownREST(cfg.listenClient)}, respapi.Options{
		Config:     c.live,
		MaxBody:    int(cfg.maxBody),
		Version:    version(),
		Registry:   prometheus.DefaultRegisterer,
		Logger:     log,
		Debug:      c.debug,
		ConfigFile: c.disqueConf,
		Rename:     c.rename,
		Facts:      facts,
		Shutdown:   shutdown,
	})
}
