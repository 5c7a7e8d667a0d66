package main

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"raftq/client"
	"raftq/fsm"
)

func topicAppendCmd() *cobra.Command {
	var headers []string
	var file string
	var lines, quiet bool
	cmd := &cobra.Command{
		Use:   "append TOPIC [BODY]",
		Short: "Append a message to a topic and print its offset",
		Long: `Append a message to a topic and print its offset. The body is BODY, or the content of
--file, or all of standard input. With --lines each line of the input is a message of its
own; empty lines are skipped, and the offset of the first line of each request is printed
with how many follow. The topic is made by its first message.

A request whose answer got lost is sent again under the same key, which makes the servers
do it once. With --lines and an --idempotency-key of your own the same command with the
same input may be run again within an hour, and appends what was missing.`,
		Example: `  raftq topic append news 'it rains'
  date | raftq topic append news --header lang=en

  # each line is a message
  seq 1000 | raftq topic append numbers --lines --idempotency-key import-9`,
		Args:              cobra.RangeArgs(1, 2),
		ValidArgsFunction: completeNothing,
		RunE: func(cmd *cobra.Command, args []string) error {
			options, err := writeOptions(cmd)
			if err != nil {
				return err
			}
			message := client.NewMessage{}
			for _, h := range headers {
				name, value, ok := strings.Cut(h, "=")
				if !ok || name == "" {
					return &exitError{exitUsage, fmt.Errorf("header: %q is not name=value", h)}
				}
				if message.Headers == nil {
					message.Headers = map[string]string{}
				}
				message.Headers[name] = value
			}
			in, err := jobInput(cmd, args, file)
			if err != nil {
				return err
			}
			defer in.Close()
			var retry []client.Option
			if lines && !cmd.Flags().Changed("retry-for") {
				retry = append(retry, client.WithRetryFor(time.Minute)) // half of an input is worse than a pause
			}
			s, err := newSession(cmd, retry...)
			if err != nil {
				return err
			}
			defer s.Close()
			a := appendRun{session: s, topic: args[0], like: message, options: options, quiet: quiet}
			if lines {
				return a.lines(in)
			}
			if message.Body, err = io.ReadAll(io.LimitReader(in, fsm.BodyMax+1)); err != nil {
				return fmt.Errorf("read the body: %w", err)
			}
			return a.append([]client.NewMessage{message}, options)
		},
	}
	f := cmd.Flags()
	f.StringVarP(&file, "file", "f", "", "the body is this file, or with --lines its lines; - is standard input")
	f.BoolVar(&lines, "lines", false, "each line is a message")
	f.BoolVarP(&quiet, "quiet", "q", false, "print nothing")
	f.StringArrayVar(&headers, "header", nil, "a header, name=value (may be repeated)")
	keyFlag(cmd)
	writeFlags(cmd)
	kinds(cmd, kindFile, "file")
	kinds(cmd, "name=value", "header")
	f.SortFlags = false
	return cmd
}

// appendRun is one topic append.
type appendRun struct {
	*session
	topic   string
	like    client.NewMessage // headers of each
	options []client.WriteOption
	quiet   bool
}

func (a *appendRun) append(messages []client.NewMessage, options []client.WriteOption) error {
	var meta client.Meta
	got, err := a.AppendBatch(a.cmd.Context(), a.topic, messages, append(options, client.Into(&meta))...)
	if err != nil {
		return withCode(err)
	}
	if meta.Batch != "" {
		fmt.Fprintf(a.cmd.ErrOrStderr(), "raftq: not committed yet; batch %s (ask: raftq fate %s)\n", meta.Batch, meta.Batch)
	}
	switch {
	case a.quiet:
	case a.json:
		return a.printValue(got)
	case !got.Committed: // its offset is not known yet
	case got.Count == 1:
		_, err = fmt.Fprintln(a.out(), got.Offset)
	default:
		_, err = fmt.Fprintf(a.out(), "%d\t%d messages\n", got.Offset, got.Count)
	}
	return err
}

// lines appends each line of an input, in requests of many. A key of the user's is
// that of the run: each request has its own by the line that it begins with.
func (a *appendRun) lines(input io.Reader) error {
	key := textFlag(a.cmd, "idempotency-key")
	in := newLineReader(input, fsm.BodyMax, key != "")
	for {
		batch, err := in.batch()
		if len(batch) > 0 {
			messages := make([]client.NewMessage, len(batch))
			for i := range batch {
				messages[i] = client.NewMessage{Body: batch[i].text, Headers: a.like.Headers}
			}
			options := a.options[:len(a.options):len(a.options)]
			if key != "" {
				options = append(options, client.IdempotencyKey(fmt.Sprintf("%s/%d", key, batch[0].number)))
			}
			if err := a.append(messages, options); err != nil {
				return fmt.Errorf("from line %d on nothing is known to be appended: %w", batch[0].number, err)
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
	}
}
