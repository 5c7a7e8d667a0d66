package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"raftq/client"
)

func clusterCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "cluster",
		Short: "Show the nodes of the cluster",
		Long: `Show the nodes of the cluster, as the node knows them that is asked. BEHIND is how many
entries of the log a node has not applied yet; of other nodes than the asked one it is
what they told last, up to a second ago.`,
		Example: `  raftq cluster
  raftq cluster -o json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := newSession(cmd)
			if err != nil {
				return err
			}
			defer s.Close()
			var c client.ClusterInfo
			if _, err := s.call(s.read("/v1/cluster", nil), &c); err != nil || s.json {
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
			slices.SortFunc(c.Nodes, func(a, b client.Member) int { return strings.Compare(a.Name, b.Name) })
			rows := make([][]string, 0, len(c.Nodes))
			for i := range c.Nodes {
				n := &c.Nodes[i]
				rows = append(rows, []string{n.Name, roleOf(n), stateOf(n), n.Client, n.Peer,
					total(n.MatchIndex), total(n.AppliedIndex), total(c.CommitIndex - min(c.CommitIndex, n.AppliedIndex)), n.Version})
			}
			return table(out, []string{"NODE", "ROLE", "STATE", "CLIENT", "PEER", ">MATCH", ">APPLIED", ">BEHIND", "VERSION"}, rows)
		},
	}
}
