package main

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"raftq/client"
)

// memberCmd shows and changes who belongs to the cluster.
func memberCmd() *cobra.Command {
	return family("member", "Show and change the members of the cluster", memberListCmd(), memberAddCmd(), memberPromoteCmd(), memberRemoveCmd())
}

func memberListCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "Show the members, with their ids",
		Long: `Show the members, as the node knows them that is asked. A learner has no vote; it becomes
a voter when it has caught up, a standby only when it is promoted. BEHIND is how many
entries of the log a node has not applied yet.`,
		Example: `  raftq member list
  raftq member list -o json`,
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
			slices.SortFunc(c.Nodes, func(a, b client.Member) int { return strings.Compare(a.Name, b.Name) })
			rows := make([][]string, 0, len(c.Nodes))
			for i := range c.Nodes {
				n := &c.Nodes[i]
				rows = append(rows, []string{n.Name, n.ID, roleOf(n), stateOf(n), n.Client, n.Peer, total(c.CommitIndex - min(c.CommitIndex, n.AppliedIndex)), n.Version})
			}
			return table(cmd.OutOrStdout(), []string{"NODE", "ID", "ROLE", "STATE", "CLIENT", "PEER", ">BEHIND", "VERSION"}, rows)
		},
	}
}

func roleOf(n *client.Member) string {
	switch {
	case n.Leader:
		return "leader"
	case n.Standby:
		return "standby"
	}
	return n.Role
}

func stateOf(n *client.Member) string {
	switch {
	case !n.Alive:
		return "DOWN"
	case n.Draining:
		return "draining"
	}
	return "up"
}

func memberAddCmd() *cobra.Command {
	var learner, replace bool
	cmd := &cobra.Command{
		Use:   "add NAME PEER-URL",
		Short: "Announce a node that is to join",
		Long: `Announce a node before it joins, so that its name and address are taken. That is
not needed: "raftq serve --join" asks by itself. It is a way to say what the node
cannot: with --learner it stays without a vote until it is promoted.`,
		Example: `  raftq member add n4 http://10.0.0.4:9080 --learner
  raftq member remove n4`,
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			body := map[string]any{"name": args[0], "peer": args[1]}
			if learner {
				body["role"] = "learner"
			}
			if replace {
				body["replace"] = true
			}
			m, printed, err := changeMembers(cmd, http.MethodPost, "/members", body)
			if err != nil || printed {
				return err
			}
			return say(cmd, "%s is member %s. Start it on an empty data directory, with the cluster's --cluster-token:\n\n  raftq serve --name %s --advertise-peer %s --listen-peer HOST:PORT --listen-client HOST:PORT --join %s\n",
				m.Member.Name, m.Member.ID, shellWord(m.Member.Name), shellWord(m.Member.Peer), shellWord(endpointsOf(cmd)))
		},
	}
	cmd.Flags().BoolVar(&learner, "learner", false, "no vote until it is promoted")
	cmd.Flags().BoolVar(&replace, "replace", false, "take the place of a dead member of this name")
	changeFlags(cmd)
	return cmd
}

func memberPromoteCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "promote NAME|ID",
		Short: "Make a learner that has caught up a voter",
		Long: `Make a learner that has caught up a voter. Learners become voters by themselves,
unless they were added with --learner.`,
		Example:           "  raftq member promote n2",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: completeNothing,
		RunE: func(cmd *cobra.Command, args []string) error {
			m, printed, err := changeMembers(cmd, http.MethodPost, "/members/"+url.PathEscape(args[0])+"/promote", nil)
			if err != nil || printed {
				return err
			}
			return say(cmd, "%s is a voter\n", m.Member.Name)
		},
	}
	changeFlags(cmd)
	return cmd
}

func memberRemoveCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "remove NAME|ID",
		Short: "Remove a member, alive or dead",
		Long: `Remove a member. A living one first finishes what it does for its clients, the
leader hands over first. It is refused when too few voters would be left alive. When
this returns the node's machine may go: it ends by itself, with status 7, and does
not start again. On an empty data directory it may join as a new member. When the
answer gets lost the removal may have been done or not (exit code 6): asked again by
the id, which the hint names, it goes on where it was cut short.`,
		Example: `  raftq member add n4 http://10.0.0.4:9080
  raftq member remove n4`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: completeNothing,
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := memberID(cmd, args[0])
			if err != nil {
				return err
			}
			_, printed, err := changeMembers(cmd, http.MethodDelete, "/members/"+url.PathEscape(id), nil)
			if mayBeDone(err) {
				return &hinted{err, fmt.Sprintf("it may be removed or not: \"raftq member remove %s\" goes on and tells; until then the node may serve nobody", id)}
			}
			if err != nil || printed {
				return err
			}
			return say(cmd, "%s is removed\n", args[0])
		},
	}
	changeFlags(cmd)
	return cmd
}

func transferCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "transfer-leader [NODE]",
		Short: "Move leadership to another node",
		Long:  `Move leadership to a voter, or without a name to the one whose log is longest.`,
		Example: `  raftq transfer-leader n2
  raftq transfer-leader`,
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: completeNothing,
		RunE: func(cmd *cobra.Command, args []string) error {
			body := map[string]any{}
			if len(args) == 1 {
				body["to"] = args[0]
			}
			var got struct {
				Leader string `json:"leader"`
			}
			printed, err := changeCluster(cmd, http.MethodPost, "/transfer-leader", body, &got)
			if err != nil || printed {
				return err
			}
			return say(cmd, "%s leads\n", got.Leader)
		},
	}
	changeFlags(cmd)
	return cmd
}

func drainCmd() *cobra.Command {
	var undo bool
	cmd := &cobra.Command{
		Use:   "drain NODE",
		Short: "Let a node serve nobody, so that it can be stopped",
		Long: `Let a node serve nobody: leadership moves away, what it does for its clients is
finished, new requests are refused with an error that sends clients elsewhere, and
/readyz says no. It stays a member and keeps its vote. --undo lets it serve again,
and so does a restart.`,
		Example: `  raftq drain n2
  raftq drain n2 --undo`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: completeNothing,
		RunE: func(cmd *cobra.Command, args []string) error {
			var got struct {
				Node     string `json:"node"`
				Draining bool   `json:"draining"`
			}
			printed, err := changeCluster(cmd, http.MethodPost, "/drain", map[string]any{"node": args[0], "undo": undo}, &got)
			if err != nil || printed {
				return err
			}
			if got.Draining {
				return say(cmd, "%s is drained: it may be stopped\n", got.Node)
			}
			return say(cmd, "%s serves again\n", got.Node)
		},
	}
	cmd.Flags().BoolVar(&undo, "undo", false, "let it serve again")
	changeFlags(cmd)
	return cmd
}

func say(cmd *cobra.Command, format string, args ...any) error {
	_, err := fmt.Fprintf(cmd.OutOrStdout(), format, args...)
	return err
}

// changeFlags adds what commands share that change the cluster.
func changeFlags(cmd *cobra.Command) {
	cmd.Flags().String("timeout", "30s", "how long it may take, at most 55s")
	kinds(cmd, kindDuration, "timeout")
}

func changeMembers(cmd *cobra.Command, method, path string, body any) (m client.MembersChanged, printed bool, err error) {
	printed, err = changeCluster(cmd, method, path, body, &m)
	return m, printed, err
}

// memberID is the id of a member that may be given by its name. A removal is asked by
// the id: when its answer gets lost and it is asked again, the name is not known any
// more, and may be another node's by then.
func memberID(cmd *cobra.Command, member string) (string, error) {
	s, err := newSession(cmd)
	if err != nil {
		return "", err
	}
	defer s.Close()
	var c client.ClusterInfo
	if _, err := s.fetch(s.read("/v1/cluster", nil), &c); err != nil {
		return "", err
	}
	for i := range c.Nodes {
		if c.Nodes[i].Name == member {
			return c.Nodes[i].ID, nil
		}
	}
	return member, nil // an id, or a name that the asked node does not know yet
}

// mayBeDone tells whether a request that failed may have been carried out.
func mayBeDone(err error) bool {
	var e *client.Error
	return errors.As(err, &e) && e.Applied == client.Unknown
}

// changeCluster asks any node for a change. What is done already is answered as
// done, so it may be asked again.
func changeCluster(cmd *cobra.Command, method, path string, body, out any) (printed bool, err error) {
	s, err := newSession(cmd)
	if err != nil {
		return false, err
	}
	defer s.Close()
	timeout, err := durationFlag(cmd, "timeout")
	if err != nil {
		return false, err
	}
	r := client.Request{Method: method, Path: "/v1/cluster" + path, Query: url.Values{"timeout": {textFlag(cmd, "timeout")}}, Repeat: client.RepeatAlways,
		Attempt: timeout + changeGrace}
	if body != nil {
		r = withJSON(r, body)
	}
	_, err = s.call(r, out)
	if mayBeDone(err) {
		err = &hinted{err, `it may have been done or not: "raftq member list" shows it, and the same command may be given again`}
	}
	return s.json, err
}

// changeGrace is how much longer than its own time a node that passes a request on
// may take.
const changeGrace = 5 * time.Second
