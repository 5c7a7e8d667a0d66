package main

import (
	"fmt"
	"net/http"

	"github.com/spf13/cobra"
)

func redriveCmd() *cobra.Command {
	var to, reason string
	var most int
	cmd := &cobra.Command{
		Use:   "redrive QUEUE",
		Short: "Make dead jobs ready again",
		Long: `Make the dead jobs of a queue ready again, behind what waits there, with their counts of
failures reset. Jobs that came into a dead-letter queue go back to the queue they died
in, unless --to names one. On a terminal it asks before.`,
		Example: `  raftq enqueue orders 'try this' --max-failures 1
  raftq nack $(raftq dequeue orders | cut -f 1) --error 'no stock'
  raftq peek orders --state dead
  raftq redrive orders --max 100 --reason max_failures
  raftq redrive orders --to orders.again`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: completeQueues(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			s, err := newSession(cmd)
			if err != nil {
				return err
			}
			defer s.Close()
			if err := confirm(cmd, fmt.Sprintf("Make the dead jobs of %s ready again?", printable([]byte(args[0])))); err != nil {
				return err
			}
			r, err := s.write(http.MethodPost, queuePath(args[0], "/redrive"), nil)
			if err != nil {
				return err
			}
			options := map[string]any{}
			if to != "" {
				options["to"] = to
			}
			if reason != "" {
				options["reason"] = reason
			}
			if most != 0 {
				options["max"] = most
			}
			return s.sweep(withJSON(r, options), "ready again")
		},
	}
	f := cmd.Flags()
	f.IntVar(&most, "max", 0, "at most so many, the oldest first; 0 = all")
	f.StringVar(&reason, "reason", "", "only those that died of this: max_failures, rejected, at_most_once")
	f.StringVar(&to, "to", "", "into this queue (default: the one they died in)")
	completeWords(cmd, "reason", "max_failures", "rejected", "at_most_once")
	completeQueueFlag(cmd, "to")
	kinds(cmd, kindNumber, "max")
	kinds(cmd, "queue", "to")
	kinds(cmd, "reason", "reason")
	yesFlag(cmd)
	sweepFlag(cmd)
	f.SortFlags = false
	return cmd
}
