package raftnode

import (
	"fmt"
	"net/url"
	"time"

	"go.uber.org/zap"
)

// Config says what one replica is. Zero values are filled in by Open.
type Config struct {
	Name            string // default "n1"
	DataDir         string
	ListenPeer      string        // host:port
	AdvertisePeer   string        // URL, default http:// + ListenPeer
	AdvertiseClient string        // host:port, travels by node start
	AdvertiseResp   string        // host:port for clients of Disque's protocol, "" = none; told to the other members
	InitialCluster  []Member      // first members, the same list on each; default: this node alone
	ClusterToken    string        // default "raftq"
	Tick            time.Duration // 10 ms
	Heartbeat       time.Duration // 100 ms
	ElectionTimeout time.Duration // 1 s
	SnapshotBytes   int64         // log bytes between snapshots, default 64 MiB
	SnapshotEntries uint64        // 0 = by bytes alone
	SegmentBytes    int64         // of the log's files, default 64 MiB
	MaxMemory       int64
	// DiskUsed says how full a directory's filesystem is, in percent; default: statfs.
	DiskUsed   func(dir string) (percent float64, err error)
	WALArchive string // released log segments are moved here instead of deleted
	Version    string
	Logger     *zap.Logger

	diskEvery time.Duration // 1 s; other in tests
}

// Member is one of the first members.
type Member struct{ Name, Peer string }

func (cfg Config) withDefaults() (Config, error) {
	setDefault(&cfg.Name, "n1")
	setDefault(&cfg.DataDir, "raftq-data")
	setDefault(&cfg.ListenPeer, "127.0.0.1:9080")
	setDefault(&cfg.AdvertisePeer, "http://"+cfg.ListenPeer)
	setDefault(&cfg.ClusterToken, "raftq")
	setDefault(&cfg.Tick, 10*time.Millisecond)
	setDefault(&cfg.Heartbeat, 100*time.Millisecond)
	setDefault(&cfg.ElectionTimeout, time.Second)
	setDefault(&cfg.SnapshotBytes, 64<<20)
	setDefault(&cfg.SegmentBytes, 64<<20)
	setDefault(&cfg.diskEvery, diskEvery)
	if cfg.DiskUsed == nil {
		cfg.DiskUsed = diskUsed
	}
	if cfg.Logger == nil {
		cfg.Logger = zap.NewNop()
	}
	if len(cfg.InitialCluster) == 0 {
		cfg.InitialCluster = []Member{{cfg.Name, cfg.AdvertisePeer}}
	}
	switch {
	case cfg.Heartbeat < cfg.Tick:
		return cfg, fmt.Errorf("heartbeat %v is shorter than tick %v", cfg.Heartbeat, cfg.Tick)
	case cfg.ElectionTimeout < 2*cfg.Heartbeat:
		return cfg, fmt.Errorf("election-timeout %v is shorter than two heartbeats of %v", cfg.ElectionTimeout, cfg.Heartbeat)
	}
	if err := checkPeer(cfg.AdvertisePeer); err != nil {
		return cfg, fmt.Errorf("advertise-peer: %w", err)
	}
	return cfg, nil
}

func checkPeer(peer string) error {
	if u, err := url.Parse(peer); err != nil || u.Host == "" || u.Scheme != "http" {
		return fmt.Errorf("%q is not http://host:port", peer)
	}
	return nil
}

// checkGenesis checks the first members. Once there is a data directory they are
// not looked at any more: the member table says who is where.
func (cfg Config) checkGenesis() error {
	names := map[string]bool{}
	for _, m := range cfg.InitialCluster {
		if err := checkPeer(m.Peer); err != nil {
			return fmt.Errorf("initial-cluster: peer address of %q: %w", m.Name, err)
		}
		if m.Name == "" || names[m.Name] {
			return fmt.Errorf("initial-cluster: name %q is empty or there twice", m.Name)
		}
		names[m.Name] = true
		if m.Name == cfg.Name && m.Peer != cfg.AdvertisePeer {
			return fmt.Errorf("initial-cluster says %q for this node %q, advertise-peer says %q", m.Peer, m.Name, cfg.AdvertisePeer)
		}
	}
	if !names[cfg.Name] {
		return fmt.Errorf("initial-cluster does not name this node %q", cfg.Name)
	}
	if len(names) > membersMax {
		return fmt.Errorf("initial-cluster has %d members, a cluster has at most %d", len(names), membersMax)
	}
	return nil
}

func setDefault[T comparable](v *T, to T) {
	var zero T
	if *v == zero {
		*v = to
	}
}
