package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"raftq/client"
)

// printValue prints something as one line of JSON.
func (s *session) printValue(v any) error { return json.NewEncoder(s.out()).Encode(v) }

func topicListCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List topics",
		Long: `List topics by name, with the offsets that they hold and their size on each node. With
-o json it is an object a line.`,
		Example: `  raftq topic append news 'it rains'
  raftq topic list
  raftq topic list --prefix ne -o json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			options, err := readOptions(cmd)
			if err != nil {
				return err
			}
			s, err := newSession(cmd)
			if err != nil {
				return err
			}
			defer s.Close()
			rows := [][]string{}
			for t, err := range s.Topics(cmd.Context(), textFlag(cmd, "prefix"), options...) {
				if err != nil {
					return withCode(err)
				}
				if s.json {
					if err := s.printValue(map[string]any{"topic": t.Topic, "first_offset": t.FirstOffset, "next_offset": t.NextOffset, "bytes": t.Bytes, "cursors": t.Cursors, "version": t.Version}); err != nil {
						return err
					}
					continue
				}
				keeps := "-"
				if t.Configured {
					keeps = "configured"
				}
				rows = append(rows, []string{printable([]byte(t.Topic)), strconv.FormatUint(t.FirstOffset, 10), strconv.FormatUint(t.NextOffset, 10), formatSize(t.Bytes), strconv.Itoa(t.Cursors), keeps})
			}
			if s.json {
				return nil
			}
			return table(s.out(), []string{"TOPIC", ">FIRST", ">NEXT", ">BYTES", ">CURSORS", "NOTE"}, rows)
		},
	}
	f := cmd.Flags()
	f.String("prefix", "", "only topics whose names begin so")
	kinds(cmd, "text", "prefix")
	readFlags(cmd)
	f.SortFlags = false
	return cmd
}

func topicConfigureCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "configure TOPIC",
		Short: "Say what a topic keeps",
		Long: `Say what a topic keeps: what is not given is the default. The oldest messages go first.
The topic is made if need be.`,
		Example: `  raftq topic configure news --max-age 7d --max-bytes 256MiB
  raftq topic configure numbers --max-count 100000`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: completeNothing,
		RunE: func(cmd *cobra.Command, args []string) error {
			var config client.TopicConfig
			var err error
			count, err := offsetFlag(cmd, "max-count", 0)
			if err != nil {
				return err
			}
			config.MaxCount = count
			if text := textFlag(cmd, "max-bytes"); text != "" {
				if config.MaxBytes, err = parseSize(text); err != nil {
					return &exitError{exitUsage, fmt.Errorf("max-bytes: %w", err)}
				}
			}
			if textFlag(cmd, "max-age") != "" {
				if config.MaxAge, err = durationFlag(cmd, "max-age"); err != nil {
					return err
				}
			}
			config.Consistency = client.Consistency(textFlag(cmd, "default-consistency"))
			timeout, err := durationFlag(cmd, "timeout")
			if err != nil {
				return err
			}
			s, err := newSession(cmd)
			if err != nil {
				return err
			}
			defer s.Close()
			version, err := s.ConfigureTopic(cmd.Context(), args[0], config, client.Timeout(timeout))
			if err != nil {
				return withCode(err)
			}
			if s.json {
				return s.printValue(map[string]any{"topic": args[0], "version": version})
			}
			_, err = fmt.Fprintf(s.out(), "%s is configured, version %d\n", printable([]byte(args[0])), version)
			return err
		},
	}
	f := cmd.Flags()
	f.String("max-count", "", "keep at most so many messages (default: no limit)")
	f.String("max-bytes", "", "keep at most so many bytes (default 1GiB)")
	f.String("max-age", "", "keep messages for so long (default: no limit)")
	f.String("default-consistency", "", "of requests that do not say one (default: the node's)")
	kinds(cmd, kindNumber, "max-count")
	kinds(cmd, kindSize, "max-bytes")
	kinds(cmd, kindDuration, "max-age")
	kinds(cmd, kindConsistency, "default-consistency")
	completeWords(cmd, "default-consistency", "strong", "fast")
	timeoutFlag(cmd)
	f.SortFlags = false
	return cmd
}

func topicDeleteCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "delete TOPIC",
		Short: "Delete a topic, or its messages before an offset",
		Long: `Delete a topic with its messages and cursors. With --before only the messages with lower
offsets go, and the topic stays. On a terminal it asks before.`,
		Example: `  seq 10 | raftq topic append scratch --lines --quiet
  raftq topic delete scratch --before 5
  raftq topic delete scratch --yes`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: completeNothing,
		RunE: func(cmd *cobra.Command, args []string) error {
			options, err := writeOptions(cmd)
			if err != nil {
				return err
			}
			before, err := offsetFlag(cmd, "before", -1)
			if err != nil {
				return err
			}
			s, err := newSession(cmd)
			if err != nil {
				return err
			}
			defer s.Close()
			name := printable([]byte(args[0]))
			what, done := "Delete "+name+"?", name+" is deleted, and"
			if before >= 0 {
				what, done = fmt.Sprintf("Drop the messages of %s before offset %d?", name, before), name+":"
			}
			if err := confirm(cmd, what); err != nil {
				return err
			}
			var n int
			if before >= 0 {
				n, err = s.PurgeTopic(cmd.Context(), args[0], uint64(before), options...)
			} else {
				n, err = s.DeleteTopic(cmd.Context(), args[0], options...)
			}
			if err != nil {
				return withCode(err)
			}
			if s.json {
				return s.printValue(map[string]any{"topic": args[0], "messages": n})
			}
			_, err = fmt.Fprintf(s.out(), "%s %d messages are gone\n", done, n)
			return err
		},
	}
	cmd.Flags().String("before", "", "only the messages with lower offsets")
	kinds(cmd, kindNumber, "before")
	yesFlag(cmd)
	timeoutFlag(cmd)
	return cmd
}

func topicCursorCmd() *cobra.Command {
	var forget bool
	var ifVersion string
	cmd := &cobra.Command{
		Use:   "cursor TOPIC [NAME [OFFSET]]",
		Short: "Show or set the position of a consumer",
		Long: `Show or set the position of a consumer in a topic: the offset that it reads next.
Without NAME all positions are listed; with OFFSET it is set. --if-version changes nothing
unless the position is still of that version, which is printed; one never set has 0.`,
		Example: `  seq 10 | raftq topic append numbers --lines --quiet
  raftq topic cursor numbers billing 5
  raftq topic read numbers --from "$(raftq topic cursor numbers billing | cut -f 1)" --limit 2
  raftq topic cursor numbers
  raftq topic cursor numbers billing --delete`,
		Args:              cobra.RangeArgs(1, 3),
		ValidArgsFunction: completeNothing,
		RunE: func(cmd *cobra.Command, args []string) error {
			timeout, err := durationFlag(cmd, "timeout")
			if err != nil {
				return err
			}
			options := []client.ConfigOption{client.Timeout(timeout)}
			if ifVersion != "" {
				version, err := offsetFlag(cmd, "if-version", 0)
				if err != nil {
					return err
				}
				options = append(options, client.IfMatch(uint64(version)))
			}
			s, err := newSession(cmd)
			if err != nil {
				return err
			}
			defer s.Close()
			switch {
			case forget && len(args) != 2:
				return &exitError{exitUsage, errors.New("--delete takes a topic and a name")}
			case forget:
				return withCode(s.DeleteCursor(cmd.Context(), args[0], args[1], options...))
			case len(args) == 1:
				return s.printCursors(args[0])
			}
			var at client.Cursor
			if len(args) == 2 {
				at, err = s.Cursor(cmd.Context(), args[0], args[1])
			} else {
				offset, bad := strconv.ParseUint(args[2], 10, 63)
				if bad != nil {
					return &exitError{exitUsage, fmt.Errorf("%q is not an offset", args[2])}
				}
				at, err = s.SetCursor(cmd.Context(), args[0], args[1], offset, options...)
			}
			switch {
			case err != nil:
				return withCode(err)
			case s.json:
				return s.printValue(at)
			}
			_, err = fmt.Fprintf(s.out(), "%d\tversion %d\n", at.Offset, at.Version)
			return err
		},
	}
	f := cmd.Flags()
	f.BoolVar(&forget, "delete", false, "forget the position")
	f.StringVar(&ifVersion, "if-version", "", "only if the position still has this version")
	kinds(cmd, kindNumber, "if-version")
	timeoutFlag(cmd)
	f.SortFlags = false
	return cmd
}

func (s *session) printCursors(topic string) error {
	all, err := s.Cursors(s.cmd.Context(), topic)
	if err != nil {
		return withCode(err)
	}
	rows := [][]string{}
	for i := range all {
		if s.json {
			if err := s.printValue(all[i]); err != nil {
				return err
			}
		}
		rows = append(rows, []string{printable([]byte(all[i].Cursor)), strconv.FormatUint(all[i].Offset, 10), strconv.FormatUint(all[i].Version, 10)})
	}
	if s.json {
		return nil
	}
	return table(s.out(), []string{"CURSOR", ">OFFSET", ">VERSION"}, rows)
}
