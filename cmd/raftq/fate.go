package main

import (
	"fmt"
	"net/url"

	"github.com/spf13/cobra"
)

func fateCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "fate BATCH",
		Short: "Say what became of a fast answer",
		Long: `Say what became of a fast answer, by the batch that it named: committed, lost
(both final) or pending. What was lost is called so only when the node that had
answered has started again; until then it is pending.`,
		Example: `  batch=$(raftq enqueue mail hello --consistency fast 2>&1 >id | sed -n 's/.*raftq fate \(.*\))/\1/p')
  test -z "$batch" || raftq fate $batch   # no batch: it was committed before it was answered`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: completeNothing,
		RunE: func(cmd *cobra.Command, args []string) error {
			s, err := newSession(cmd)
			if err != nil {
				return err
			}
			defer s.Close()
			var got struct {
				Fate string `json:"fate"`
			}
			if _, err := s.call(s.read("/v1/log/fate", url.Values{"batch": {args[0]}}), &got); err != nil || s.json {
				return err
			}
			_, err = fmt.Fprintln(s.out(), got.Fate)
			return err
		},
	}
	readFlags(cmd)
	return cmd
}
