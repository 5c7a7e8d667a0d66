package main

import (
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/spf13/cobra"

	"raftq/client"
)

func pauseCmd() *cobra.Command {
	var in, out bool
	var length, until string
	cmd := &cobra.Command{
		Use:   "pause QUEUE",
		Short: "Close a queue: nothing goes in, or nothing comes out",
		Long: `Close a queue for the whole cluster: --in refuses new jobs and holds back retries, --out
hands out nothing; both, when neither is said. What was paused before in another way is
open then. A queue that is not there is made. Acks always work. "raftq resume" opens it again, and so does the end of --for
or --until.`,
		Example: `  raftq pause mail --out --for 10m     # while the mail server is down
  raftq pause mail --in                # let it run empty
  raftq resume mail`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: completeQueues(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			s, err := newSession(cmd)
			if err != nil {
				return err
			}
			defer s.Close()
			p := queuePaused{In: in || !out, Out: out || !in}
			if p.Until, err = s.pauseEnd(length, until); err != nil {
				return err
			}
			switch err := s.isThere(args[0]); {
			case errors.Is(err, client.ErrQueueNotFound): // it may be a slip of the pen
				fmt.Fprintf(cmd.ErrOrStderr(), "raftq: there was no queue %s; it is made\n", printable([]byte(args[0])))
			case err != nil:
				return err
			}
			return s.pause(args[0], p)
		},
	}
	f := cmd.Flags()
	f.BoolVar(&in, "in", false, "refuse new jobs")
	f.BoolVar(&out, "out", false, "hand out nothing")
	f.StringVar(&length, "for", "", "open again after this time")
	f.StringVar(&until, "until", "", "open again at this time (RFC 3339)")
	kinds(cmd, kindDuration, "for")
	kinds(cmd, kindTime, "until")
	timeoutFlag(cmd)
	f.SortFlags = false
	return cmd
}

func resumeCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:               "resume QUEUE",
		Short:             "Open a queue that was paused",
		Long:              `Open a queue that was paused, both ways.`,
		Example:           "  raftq pause mail\n  raftq resume mail",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: completeQueues(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			s, err := newSession(cmd)
			if err != nil {
				return err
			}
			defer s.Close()
			if err := s.isThere(args[0]); err != nil {
				return err
			}
			return s.pause(args[0], queuePaused{})
		},
	}
	timeoutFlag(cmd)
	return cmd
}

// isThere is client.ErrQueueNotFound for a queue that is not: pausing makes one.
func (s *session) isThere(queue string) error {
	var q struct{}
	_, err := s.fetch(s.read(queuePath(queue, ""), nil), &q)
	return err
}

// pauseEnd returns when a pause ends, zero when it does not. It is counted in the
// cluster's time, which may lag behind ours.
func (s *session) pauseEnd(length, until string) (end time.Time, err error) {
	switch {
	case length != "" && until != "":
		return end, &exitError{exitUsage, errors.New("--for and --until say the same: give one of them")}
	case until != "":
		if end, err = time.Parse(time.RFC3339, until); err != nil {
			return end, &exitError{exitUsage, fmt.Errorf("until: %q is not a time like 2030-01-31T12:00:00Z", until)}
		}
	case length != "":
		d, err := parseDuration(length)
		if err != nil {
			return end, &exitError{exitUsage, fmt.Errorf("for: %w", err)}
		}
		var page struct{}
		ans, err := s.fetch(s.read("/v1/queues", map[string][]string{"limit": {"1"}}), &page)
		if err != nil {
			return end, err
		}
		end = ans.Meta().Time.Add(d)
	}
	return end, nil
}

// pause sets what is closed.
func (s *session) pause(queue string, p queuePaused) error {
	r, err := s.write(http.MethodPut, queuePath(queue, "/pause"), nil)
	if err != nil {
		return err
	}
	r.Repeat = client.RepeatAlways // twice is as good as once
	var got struct{}
	ans, err := s.call(withJSON(r, p), &got)
	if err != nil || s.json {
		return err
	}
	text := "is open"
	if p.In || p.Out {
		text = "is paused " + p.text(ans.Meta().Time)
	}
	_, err = fmt.Fprintf(s.out(), "%s %s\n", printable([]byte(queue)), text)
	return err
}
