package main

import (
	"fmt"
	"net/url"
	"time"

	"github.com/spf13/cobra"
)

func jobWaitCmd() *cobra.Command {
	var limit string
	cmd := &cobra.Command{
		Use:   "wait ID",
		Short: "Wait until a job is done or dead",
		Long: `Wait until a job is done, expired or dead, and say which: it was acked or deleted, its
time to live was over, or it failed too often. The exit code is 0 for done, 4 for expired
and dead, and 5 when --limit is over before.`,
		Example: `  id=$(raftq enqueue urgent hello)
  raftq dequeue urgent --ack &
  raftq job wait $id --limit 30s`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: completeNothing,
		RunE: func(cmd *cobra.Command, args []string) error {
			left, err := parseDuration(limit)
			if err != nil {
				return &exitError{exitUsage, fmt.Errorf("limit: %w", err)}
			}
			s, err := newSession(cmd)
			if err != nil {
				return err
			}
			defer s.Close()
			return s.waitForEnd(idOf(args[0]), left)
		},
	}
	cmd.Flags().StringVar(&limit, "limit", "1h", "wait so long at most")
	kinds(cmd, kindDuration, "limit")
	return cmd
}

// waitForEnd asks again and again, each time as long as a request may take.
func (s *session) waitForEnd(id string, left time.Duration) error {
	for {
		wait := min(left, pollMax)
		r := s.read(jobPath(id, "/wait"), url.Values{"for": {"done"}, "timeout": {wait.String()}})
		r.Attempt = wait + pollGrace
		var got struct {
			State     string `json:"state"`
			Reason    string `json:"dead_reason"`
			LastError string `json:"last_error"`
		}
		ans, err := s.fetch(r, &got)
		if err != nil {
			return err
		}
		if left -= wait; len(ans.Body) == 0 {
			if left <= 0 {
				return &exitError{exitUnavailable, fmt.Errorf("%s is neither done nor dead yet", id)}
			}
			continue
		}
		if s.json {
			err = s.print(ans)
		} else {
			_, err = fmt.Fprintln(s.out(), got.State)
		}
		switch {
		case err != nil || got.State == "done":
			return err
		case got.State == "dead":
			return &exitError{exitRefused, fmt.Errorf("%s is dead of %s: %s", id, got.Reason, printable([]byte(got.LastError)))}
		}
		return &exitError{exitRefused, fmt.Errorf("%s is %s", id, got.State)}
	}
}
