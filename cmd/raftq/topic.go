package main

import (
	"encoding/json"
	"fmt"
	"strconv"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"raftq/client"
)

func topicCmd() *cobra.Command {
	return family("topic", "Append to topics and read them; their messages stay", topicAppendCmd(), topicReadCmd(), topicTailCmd(), topicListCmd(), topicConfigureCmd(), topicDeleteCmd(), topicCursorCmd())
}

// writeOptions are the options of a write that were given.
func writeOptions(cmd *cobra.Command) ([]client.WriteOption, error) {
	timeout, err := durationFlag(cmd, "timeout")
	if err != nil {
		return nil, err
	}
	options := []client.WriteOption{client.Timeout(timeout)}
	if f := cmd.Flags().Lookup("consistency"); f != nil && f.Changed {
		options = append(options, client.Consistency(f.Value.String()))
	}
	if f := cmd.Flags().Lookup("idempotency-key"); f != nil && f.Changed {
		options = append(options, client.IdempotencyKey(f.Value.String()))
	}
	return options, nil
}

// readOptions are the options of a read that were given.
func readOptions(cmd *cobra.Command) (options []client.ReadOption, err error) {
	if f := cmd.Flags().Lookup("consistency"); f.Changed {
		options = append(options, client.Consistency(f.Value.String()))
	}
	if cmd.Flags().Changed("max-stale") {
		stale, err := durationFlag(cmd, "max-stale")
		if err != nil {
			return nil, err
		}
		options = append(options, client.MaxStale(stale))
	}
	return options, nil
}

// printMessage prints a message: its offset and body on a line, its bytes alone, or
// as JSON.
func (s *session) printMessage(m *client.Message, raw bool) (err error) {
	switch {
	case s.json:
		line := struct {
			client.Message
			Text   *string `json:"body,omitempty"`
			Binary []byte  `json:"body_base64,omitempty"`
		}{Message: *m}
		if text := string(m.Body); utf8.ValidString(text) {
			line.Text = &text
		} else {
			line.Binary = m.Body
		}
		err = json.NewEncoder(s.out()).Encode(line)
	case raw:
		_, err = fmt.Fprintf(s.out(), "%s\n", m.Body)
	default:
		_, err = fmt.Fprintf(s.out(), "%d\t%s\n", m.Offset, printable(m.Body))
	}
	return err
}

// offsetFlag reads a flag that is an offset; def when it is empty.
func offsetFlag(cmd *cobra.Command, name string, def int64) (int64, error) {
	text := textFlag(cmd, name)
	if text == "" {
		return def, nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 {
		return 0, &exitError{exitUsage, fmt.Errorf("%s: %q is not an offset", name, text)}
	}
	return n, nil
}
