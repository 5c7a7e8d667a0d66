package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"raftq/client"
)

func topicReadCmd() *cobra.Command {
	var limit int
	var raw bool
	cmd := &cobra.Command{
		Use:   "read TOPIC",
		Short: "Read the messages of a topic",
		Long: `Read the messages of a topic: offset, tab and body a line, with -o json an object a
line, with --raw the bodies as they are, each with a newline after it. It ends where the
topic ends; "raftq topic tail" goes on.`,
		Example: `  seq 100 | raftq topic append numbers --lines --quiet
  raftq topic read numbers --limit 3
  raftq topic read numbers --from 10 --to 12
  raftq topic read numbers --since 2024-01-31T12:00:00Z -o json | tail -n 1
  raftq topic read numbers --raw --consistency fast | sort -n | tail -n 1`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: completeNothing,
		RunE: func(cmd *cobra.Command, args []string) error {
			m, options, err := rangeOfFlags(cmd)
			if err != nil {
				return err
			}
			s, err := newSession(cmd)
			if err != nil {
				return err
			}
			defer s.Close()
			for n := 0; limit == 0 || n < limit; {
				if limit > 0 {
					m.Limit = min(limit-n, pageMax)
				}
				messages, next, err := s.Messages(cmd.Context(), args[0], m, options...)
				if err != nil {
					return withCode(err)
				}
				for i := range messages {
					if err := s.printMessage(&messages[i], raw); err != nil {
						return err
					}
				}
				if n += len(messages); len(messages) == 0 || m.To > 0 && next >= m.To {
					return nil
				}
				m.From, m.Since = int64(next), time.Time{}
			}
			return nil
		},
	}
	f := cmd.Flags()
	f.String("from", "", "the offset to begin at (default: the oldest message)")
	rangeFlags(cmd, &raw)
	f.IntVar(&limit, "limit", 0, "at most so many, 0 = all")
	kinds(cmd, kindNumber, "from", "limit")
	readFlags(cmd)
	f.SortFlags = false
	return cmd
}

func topicTailCmd() *cobra.Command {
	var count int
	var raw bool
	cmd := &cobra.Command{
		Use:   "tail TOPIC",
		Short: "Print the messages of a topic as they come",
		Long: `Print the messages of a topic as they come, those to come unless --from or --since say
otherwise, until Ctrl-C. When a node fails it goes on at another one, without a gap and
without a message twice.`,
		Example: `  raftq topic append news 'it rains'
  raftq topic append news 'it rains no more'
  raftq topic tail news --from 0 --count 2

  # work on what comes
  (sleep 0.2; raftq topic append news 'sun') &
  raftq topic tail news --count 1 --raw | while read -r line; do echo "news: $line"; done`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: completeNothing,
		RunE: func(cmd *cobra.Command, args []string) error {
			m, options, err := rangeOfFlags(cmd)
			if err != nil {
				return err
			}
			var retry []client.Option
			if !cmd.Flags().Changed("retry-for") {
				retry = append(retry, client.WithRetryFor(time.Minute))
			}
			s, err := newSession(cmd, retry...)
			if err != nil {
				return err
			}
			defer s.Close()
			ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			if m.From == client.Oldest && m.Since.IsZero() {
				info, err := s.Topic(ctx, args[0], options...)
				if err != nil {
					return withCode(err)
				}
				m.From = int64(info.NextOffset)
			}
			n := 0
			for message, err := range s.Tail(ctx, args[0], m, options...) {
				switch {
				case err != nil && errors.Is(err, context.Canceled) && cmd.Context().Err() == nil:
					return nil // Ctrl-C is its normal end
				case err != nil:
					return withCode(err)
				}
				if err := s.printMessage(&message, raw); err != nil {
					return err
				}
				if n++; n == count {
					return nil
				}
			}
			return nil
		},
	}
	f := cmd.Flags()
	f.String("from", "", "the offset to begin at (default: what comes from now on)")
	rangeFlags(cmd, &raw)
	f.IntVar(&count, "count", 0, "end after so many, 0 = never")
	kinds(cmd, kindNumber, "from", "count")
	readFlags(cmd)
	f.SortFlags = false
	return cmd
}

// rangeFlags adds the flags that read and tail share.
func rangeFlags(cmd *cobra.Command, raw *bool) {
	f := cmd.Flags()
	f.String("to", "", "the offset to end before (default: none)")
	f.String("since", "", "instead of --from: messages appended at this time or later (RFC 3339)")
	f.BoolVar(raw, "raw", false, "print the bodies alone")
	kinds(cmd, kindNumber, "to")
	kinds(cmd, kindTime, "since")
}

// rangeOfFlags reads what rangeFlags and readFlags added.
func rangeOfFlags(cmd *cobra.Command) (m client.MessageRange, options []client.ReadOption, err error) {
	if m.From, err = offsetFlag(cmd, "from", client.Oldest); err != nil {
		return m, nil, err
	}
	to, err := offsetFlag(cmd, "to", 0)
	if err != nil {
		return m, nil, err
	}
	m.To = uint64(to)
	if since := textFlag(cmd, "since"); since != "" {
		if m.Since, err = time.Parse(time.RFC3339Nano, since); err != nil {
			return m, nil, &exitError{exitUsage, fmt.Errorf("since: %q is not an RFC 3339 time such as 2030-01-31T12:00:00Z", since)}
		}
		if m.From != client.Oldest {
			return m, nil, &exitError{exitUsage, errors.New("since: either --from or --since, not both")}
		}
	}
	options, err = readOptions(cmd)
	return m, options, err
}
