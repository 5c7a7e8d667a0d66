package main

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/spf13/cobra"
)

func purgeCmd() *cobra.Command {
	var states string
	cmd := &cobra.Command{
		Use:   "purge QUEUE",
		Short: "Drop jobs of a queue",
		Long: `Drop the jobs of a queue that are in certain states now; jobs that come while it runs
are spared. The queue and its configuration stay. On a terminal it asks before.`,
		Example: `  seq 5 | raftq enqueue scratch --lines --quiet
  raftq purge scratch                       # what is ready or delayed
  raftq purge scratch --state dead
  raftq purge scratch --state all --yes`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: completeQueues(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			s, err := newSession(cmd)
			if err != nil {
				return err
			}
			defer s.Close()
			question := fmt.Sprintf("Drop all jobs of %s", printable([]byte(args[0])))
			if states != "all" {
				question += " that are " + strings.ReplaceAll(states, ",", " or ")
			}
			if err := confirm(cmd, question+"?"); err != nil {
				return err
			}
			// Once only: jobs that came meanwhile are not meant.
			r, err := s.write(http.MethodDelete, queuePath(args[0], "/jobs"), url.Values{"state": {statesOf(states)}})
			if err != nil {
				return err
			}
			return s.sweep(r, "dropped")
		},
	}
	cmd.Flags().StringVar(&states, "state", "ready,delayed", "delayed, ready, leased, held, dead, several of them, or all")
	completeWords(cmd, "state", append(stateNames, "all")...)
	kinds(cmd, "states", "state")
	yesFlag(cmd)
	sweepFlag(cmd)
	return cmd
}
