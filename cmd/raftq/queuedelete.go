package main

import (
	"fmt"
	"net/http"
	"net/url"

	"github.com/spf13/cobra"
)

func queueDeleteCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "delete QUEUE",
		Short: "Delete a queue",
		Long: `Delete a queue and its configuration. One that holds jobs is refused, unless --force
drops them as well, dead ones too.`,
		Example: `  raftq enqueue scratch hello
  raftq queue delete scratch --force`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: completeQueues(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			s, err := newSession(cmd)
			if err != nil {
				return err
			}
			defer s.Close()
			if err := confirm(cmd, fmt.Sprintf("Delete %s?", printable([]byte(args[0])))); err != nil {
				return err
			}
			query := url.Values{}
			optionFlags(cmd, query, "force")
			// Once only: the second time might find a queue that was made anew.
			r, err := s.write(http.MethodDelete, queuePath(args[0], ""), query)
			if err != nil {
				return err
			}
			var got struct {
				Deleted int `json:"deleted"`
			}
			if _, err := s.call(r, &got); err != nil || s.json {
				return err
			}
			with := ""
			switch {
			case got.Deleted == 1:
				with = ", and a job with it"
			case got.Deleted > 1:
				with = fmt.Sprintf(", and %d jobs with it", got.Deleted)
			}
			_, err = fmt.Fprintf(s.out(), "%s is deleted%s\n", printable([]byte(args[0])), with)
			return err
		},
	}
	cmd.Flags().Bool("force", false, "also when it holds jobs")
	yesFlag(cmd)
	timeoutFlag(cmd)
	return cmd
}
