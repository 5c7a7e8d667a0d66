package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

func queueShowCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "show QUEUE",
		Short: "Show the figures and the configuration of a queue",
		Long: `Show the figures and the configuration of a queue, as it holds: with the defaults of what
nobody set. What is off is left out.`,
		Example: `  raftq enqueue mail hello
  raftq queue show mail
  raftq queue show mail -o json`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: completeQueues(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			s, err := newSession(cmd)
			if err != nil {
				return err
			}
			defer s.Close()
			var q queueView
			ans, err := s.call(s.read(queuePath(args[0], ""), nil), &q)
			if err != nil || s.json {
				return err
			}
			pairs, err := queueFacts(&q, ans.Meta().Time)
			if err != nil {
				return err
			}
			return facts(s.out(), pairs...)
		},
	}
	readFlags(cmd)
	return cmd
}

// queueFacts are names and values of what is known of a queue.
func queueFacts(q *queueView, now time.Time) ([]string, error) {
	ready := count(q.Ready)
	if q.Ready > 0 {
		ready += ", the oldest waits for " + q.oldest()
	}
	pairs := []string{
		"queue", printable([]byte(q.Queue)),
		"ready", ready,
		"leased", count(q.Leased),
		"delayed", count(q.Delayed),
		"held", count(q.Held),
		"dead", count(q.Dead),
		"bytes", formatSize(q.Bytes),
		"waiters", count(q.Waiters),
		"so far", fmt.Sprintf("%d put in, %d handed out, %d acked, %d failures, %d expired, %d died",
			q.EnqueuedTotal, q.DeliveredTotal, q.AckedTotal, q.FailedTotal, q.ExpiredTotal, q.DeadTotal),
		"paused", q.Paused.text(now),
	}
	settings, err := settingPairs("", q.Config)
	if err != nil {
		return nil, err
	}
	version := "-"
	if q.Configured {
		version = total(q.Version)
	}
	return append(append(pairs, settings...), "version", version), nil
}

// settingPairs flattens a configuration as the API writes it into names and values,
// by the flags of queue configure. What is off has no value.
func settingPairs(prefix string, config json.RawMessage) ([]string, error) {
	if len(config) == 0 {
		return nil, nil
	}
	dec := json.NewDecoder(strings.NewReader(string(config)))
	if _, err := dec.Token(); err != nil {
		return nil, fmt.Errorf("the configuration is not understood: %w", err)
	}
	var pairs []string
	for dec.More() {
		var value json.RawMessage
		key, err := dec.Token()
		if err == nil {
			err = dec.Decode(&value)
		}
		if err != nil {
			return nil, fmt.Errorf("the configuration is not understood: %w", err)
		}
		name := prefix + strings.ReplaceAll(fmt.Sprint(key), "_", "-")
		if strings.HasPrefix(string(value), "{") {
			inner, err := settingPairs(name+"-", value)
			if err != nil {
				return nil, err
			}
			pairs = append(pairs, inner...)
			continue
		}
		var text string
		if json.Unmarshal(value, &text) != nil {
			text = string(value) // a number or a bool
		}
		if text == "false" || text == "0" && strings.HasPrefix(name, "max-") && name != "max-failures" {
			text = ""
		}
		pairs = append(pairs, name, printable([]byte(text)))
	}
	return pairs, nil
}
