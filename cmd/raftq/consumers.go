package main

import (
	"net/http"
	"net/url"

	"github.com/spf13/cobra"

	"raftq/client"
)

func consumersCmd() *cobra.Command {
	return family("consumers", "Look at what a consumer holds, and give it back", consumersShowCmd(), consumersReleaseCmd())
}

func consumerPath(name string) string { return "/v1/consumers/" + url.PathEscape(name) }

func consumersShowCmd() *cobra.Command {
	var limit int
	cmd := &cobra.Command{
		Use:   "show CONSUMER",
		Short: "List the jobs that a consumer holds",
		Long: `List the jobs that a consumer holds, by the name that it took them with: that of
"raftq dequeue --consumer", or the one that "raftq work" says at its start.`,
		Example: `  raftq enqueue mail hello
  raftq dequeue mail --consumer ann
  raftq consumers show ann`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: completeNothing,
		RunE: func(cmd *cobra.Command, args []string) error {
			s, err := newSession(cmd)
			if err != nil {
				return err
			}
			defer s.Close()
			items, ans, _, err := s.pages(consumerPath(args[0]), "jobs", url.Values{}, limit)
			if err != nil {
				return err
			}
			if s.json {
				return s.printList("jobs", items)
			}
			jobs, err := decodeAll[jobView](items)
			if err != nil {
				return err
			}
			return s.printJobs(jobs, ans.Meta().Time)
		},
	}
	cmd.Flags().IntVar(&limit, "limit", 0, "at most so many, 0 = all")
	kinds(cmd, kindNumber, "limit")
	readFlags(cmd)
	return cmd
}

func consumersReleaseCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "release CONSUMER",
		Short: "Give back all jobs that a consumer holds",
		Long: `Give back all jobs that a consumer holds, without counting failures: when its machine
died, so that nobody waits for the leases. Jobs that are delivered at most once stay.`,
		Example: `  raftq enqueue mail hello
  raftq dequeue mail --consumer ann --lease 1h
  raftq consumers release ann`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: completeNothing,
		RunE: func(cmd *cobra.Command, args []string) error {
			s, err := newSession(cmd)
			if err != nil {
				return err
			}
			defer s.Close()
			r, err := s.write(http.MethodDelete, consumerPath(args[0]), nil)
			if err != nil {
				return err
			}
			r.Repeat = client.RepeatAlways // the second time finds nothing
			return s.sweep(r, "given back")
		},
	}
	sweepFlag(cmd)
	return cmd
}
