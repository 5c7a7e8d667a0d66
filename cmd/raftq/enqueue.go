package main

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/spf13/cobra"
)

func enqueueCmd() *cobra.Command {
	var headers []string
	cmd := &cobra.Command{
		Use:   "enqueue QUEUE [BODY]",
		Short: "Put a job into a queue and print its id",
		Long: `Put a job into a queue and print its id. The body is BODY, or all of standard
input when BODY is missing or "-".

When the answer gets lost after the request was sent, the job is not sent again,
since that could make two of it; the exit code is 6.

With --consistency fast the answer may come before the commit; standard error
then names the batch, and "raftq fate" tells what became of it.`,
		Args: cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			s, err := newSession(cmd)
			if err != nil {
				return err
			}
			var body []byte
			if len(args) == 2 && args[1] != "-" {
				body = []byte(args[1])
			} else if body, err = io.ReadAll(cmd.InOrStdin()); err != nil {
				return fmt.Errorf("read the body: %w", err)
			}
			query := url.Values{}
			optionFlags(cmd, query, "priority", "delay", "at", "ttl", "lease", "at-most-once", "max-failures", "timeout", "consistency")
			for _, h := range headers {
				name, value, ok := strings.Cut(h, "=")
				if !ok {
					return &exitError{exitUsage, fmt.Errorf("header: %q is not name=value", h)}
				}
				query.Set("header."+name, value)
			}
			var job struct {
				ID string `json:"id"`
			}
			printed, err := s.call(request{method: http.MethodPost, path: queuePath(args[0], "/enqueue"), query: query, body: body}, &job)
			if err != nil || printed {
				return err
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), job.ID)
			return err
		},
	}
	f := cmd.Flags()
	f.String("priority", "4", "0 to 9, higher first")
	f.String("delay", "", "first delivery after this time (30s, 5m, 7d)")
	f.String("at", "", "first delivery at this time (RFC 3339)")
	f.String("ttl", "", "the job is dropped after this time")
	f.String("lease", "", "how long a worker may keep the job before it is given to another")
	f.Bool("at-most-once", false, "never deliver the job twice, rather lose it")
	f.String("max-failures", "", "the job is dead after so many failures, 0 = never")
	writeFlags(cmd)
	f.StringArrayVar(&headers, "header", nil, "a header, name=value (may be repeated)")
	return cmd
}
