package main

import (
	"fmt"
	"net/url"

	"github.com/spf13/cobra"
)

func fateCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "fate BATCH",
		Short: "Say what became of a fast answer",
		Long: `Say what became of a fast answer, by the batch that it named: committed, lost
(both final) or pending. What was lost is called so only when the node that had
answered has started again; until then it is pending.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			s, err := newSession(cmd)
			if err != nil {
				return err
			}
			var got struct {
				Fate string `json:"fate"`
			}
			printed, err := s.call(get("/v1/log/fate", url.Values{"batch": {args[0]}}), &got)
			if err != nil || printed {
				return err
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), got.Fate)
			return err
		},
	}
}
