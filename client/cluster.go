package client

import (
	"context"
	"net/http"
)

// ClusterInfo is the cluster as one node knows it.
type ClusterInfo struct {
	ClusterID    string   `json:"cluster_id"`
	Leader       string   `json:"leader"` // "" when none is known
	Term         uint64   `json:"term"`
	CommitIndex  uint64   `json:"commit_index"`
	FeatureLevel int      `json:"feature_level"`
	Nodes        []Member `json:"nodes"`
}

// Member is a node of the cluster.
type Member struct {
	Name         string `json:"name"`
	ID           string `json:"id"`
	Role         string `json:"role"` // voter or learner
	Leader       bool   `json:"leader"`
	Client       string `json:"client"` // its address for clients
	Peer         string `json:"peer"`   // its address for the other nodes
	MatchIndex   uint64 `json:"match_index"`
	AppliedIndex uint64 `json:"applied_index"`
	Chain        struct {
		Index uint64 `json:"index"`
		Hash  string `json:"hash"`
	} `json:"chain"` // over all that it applied up to the index
	Version  string `json:"version"`
	Alive    bool   `json:"alive"`
	Standby  bool   `json:"standby"`  // a learner that is not to become a voter by itself
	Draining bool   `json:"draining"` // it serves nobody
}

// Cluster shows the cluster as the node knows it that happens to be asked.
func (c *Client) Cluster(ctx context.Context) (ClusterInfo, error) {
	var o call
	var got ClusterInfo
	_, err := c.send(ctx, &o, &Request{Method: http.MethodGet, Path: "/v1/cluster", Repeat: RepeatAlways}, &got)
	return got, err
}

// Fate is what became of a fast answer.
type Fate string

// Fates. Committed and Lost are final.
const (
	Committed Fate = "committed"
	Lost      Fate = "lost"
	Pending   Fate = "pending"
)

// Fate tells what became of a fast answer, by its Meta.Batch.
func (c *Client) Fate(ctx context.Context, batch string, opts ...ReadOption) (Fate, error) {
	var o call
	o.set("batch", batch)
	r := c.read(ctx, opts, &o, "/v1/log/fate")
	var got struct {
		Fate Fate `json:"fate"`
	}
	_, err := c.send(ctx, &o, r, &got)
	return got.Fate, err
}
