package main

import (
	"fmt"

	"raftq/httpapi"
	"raftq/raftnode"
	"raftq/respapi"
)

// replica makes a node into what httpapi needs. The node has all of it but
// the status in the words of the API.
type replica struct{ *raftnode.Node }

var _ httpapi.Replica = replica{}

// Cluster is the node's status with the names and the spelling of the API:
// ids and hashes in 16 hexadecimal digits.
func (r replica) Cluster() httpapi.Cluster {
	s := r.Status()
	c := httpapi.Cluster{
		ClusterID:    hex16(s.ClusterID),
		Leader:       s.Leader,
		Term:         s.Term,
		CommitIndex:  s.Commit,
		FeatureLevel: s.FeatureLevel,
		Nodes:        make([]httpapi.ClusterNode, 0, len(s.Nodes)),
	}
	for _, n := range s.Nodes {
		role := "voter"
		if n.Learner {
			role = "learner"
		}
		c.Nodes = append(c.Nodes, httpapi.ClusterNode{
			Name: n.Name, ID: hex16(n.ID), Role: role, Leader: n.Leader,
			Client: n.Client, Peer: n.Peer,
			MatchIndex: n.Match, AppliedIndex: n.Applied,
			Chain:   httpapi.Chain{Index: n.ChainIndex, Hash: hex16(n.ChainHash)},
			Version: n.Version, Alive: n.Alive, Standby: n.Standby, Draining: n.Draining,
		})
	}
	return c
}

// respReplica makes a node into what respapi needs. rest is the URL of its own REST
// API.
type respReplica struct {
	*raftnode.Node
	rest string
}

var _ respapi.Replica = respReplica{}

func (r respReplica) Members() respapi.Members {
	s := r.Status()
	m := respapi.Members{Self: r.ID(), Nodes: make([]respapi.Member, 0, len(s.Nodes))}
	for _, n := range s.Nodes {
		if n.Leader {
			m.Leader = n.ID
		}
		m.Nodes = append(m.Nodes, respapi.Member{ID: n.ID, Name: n.Name, RESP: n.Resp, Learner: n.Learner, Leaving: n.Retreat || n.Draining, Alive: n.Alive})
	}
	return m
}

func (r respReplica) SetLeaving(on bool) { r.Retreat(on) }

func hex16(v uint64) string { return fmt.Sprintf("%016x", v) }
