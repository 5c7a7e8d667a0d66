package main

import (
	"net/http"

	"github.com/spf13/cobra"

	"raftq/client"
)

func jobCmd() *cobra.Command {
	return family("job", "Look at single jobs, and change them",
		jobShowCmd(), jobWaitCmd(), jobRequeueCmd(), jobHoldCmd(), jobCancelCmd(), jobDeleteCmd())
}

// jobVerb makes a command that does one thing to each job that is named. The
// first flags are its own.
func jobVerb(verb, short, long, example, done, method, path string) *cobra.Command {
	cmd := &cobra.Command{
		Use:               verb + " ID...",
		Short:             short,
		Long:              long + "\n\n\"-\" reads the ids from standard input, one a line.",
		Example:           example,
		Args:              cobra.MinimumNArgs(1),
		ValidArgsFunction: completeNothing,
		RunE: func(cmd *cobra.Command, args []string) error {
			s, err := newSession(cmd)
			if err != nil {
				return err
			}
			defer s.Close()
			failed, total := &itemsError{}, 0
			for name, err := range namesOf(cmd, args) {
				if err != nil {
					return err
				}
				id := idOf(name)
				total++
				r, err := s.write(method, jobPath(id, path), nil)
				if err != nil {
					return err
				}
				if method == http.MethodDelete {
					r.Repeat = client.RepeatAlways // the second time finds it gone
				}
				if err := s.each(r, id, done, failed); err != nil {
					return err
				}
			}
			return failed.orNil(total)
		},
	}
	timeoutFlag(cmd)
	return cmd
}
