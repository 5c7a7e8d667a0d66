package raftnode

import (
	"time"

	"go.uber.org/zap"
)

// Config says what one replica is. Zero values are filled in by Open.
type Config struct {
	Name            string
	DataDir         string
	ListenPeer      string        // host:port
	AdvertisePeer   string        // URL, default http:// + ListenPeer
	AdvertiseClient string        // host:port, travels by node start
	InitialCluster  []Member      // first members, the same list on each; default: this node alone
	ClusterToken    string        // default "raftq"
	Tick            time.Duration // 10 ms
	Heartbeat       time.Duration // 100 ms
	ElectionTimeout time.Duration // 1 s
	SnapshotBytes   int64         // log bytes between snapshots, default 64 MiB
	SnapshotEntries uint64        // 0 = by bytes alone
	SegmentBytes    int64         // of the log's files, default 64 MiB
	MaxMemory       int64
	WALArchive      string // released log segments are moved here instead of deleted
	Version         string
	Logger          *zap.Logger
}

// Member is one of the first members.
type Member struct{ Name, Peer string }
