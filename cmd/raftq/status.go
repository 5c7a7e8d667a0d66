package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
)

// clusterStatus is what the API shows of the cluster.
type clusterStatus struct {
	ClusterID   string          `json:"cluster_id"`
	Leader      string          `json:"leader"`
	Term        uint64          `json:"term"`
	CommitIndex uint64          `json:"commit_index"`
	Nodes       []clusterMember `json:"nodes"`
}

type clusterMember struct {
	Name         string `json:"name"`
	Role         string `json:"role"`
	Leader       bool   `json:"leader"`
	Client       string `json:"client"`
	Peer         string `json:"peer"`
	MatchIndex   uint64 `json:"match_index"`
	AppliedIndex uint64 `json:"applied_index"`
	Version      string `json:"version"`
	Alive        bool   `json:"alive"`
}

func clusterCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "cluster",
		Short: "Show the nodes of the cluster",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := newSession(cmd)
			if err != nil {
				return err
			}
			var c clusterStatus
			if printed, err := s.call(get("/v1/cluster", nil), &c); err != nil || printed {
				return err
			}
			leader := c.Leader
			if leader == "" {
				leader = "none"
			}
			out := cmd.OutOrStdout()
			if _, err := fmt.Fprintf(out, "cluster %s, leader %s, term %d, commit index %d\n", c.ClusterID, leader, c.Term, c.CommitIndex); err != nil {
				return err
			}
			slices.SortFunc(c.Nodes, func(a, b clusterMember) int { return strings.Compare(a.Name, b.Name) })
			rows := make([][]string, 0, len(c.Nodes))
			for _, n := range c.Nodes {
				role, state := n.Role, "up"
				if n.Leader {
					role = "leader"
				}
				if !n.Alive {
					state = "DOWN"
				}
				rows = append(rows, []string{n.Name, role, state, n.Client, n.Peer,
					strconv.FormatUint(n.MatchIndex, 10), strconv.FormatUint(n.AppliedIndex, 10), n.Version})
			}
			return table(out, []string{"NODE", "ROLE", "STATE", "CLIENT", "PEER", "MATCH", "APPLIED", "VERSION"}, rows)
		},
	}
}
