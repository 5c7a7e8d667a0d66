package main

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"raftq/client"
)

// queueSettings are the settings of a queue by their flags.
var queueSettings = []struct {
	flag, member string // member: of the API's config; a.b stands inside a
	kind         string // number, size and bool are such in JSON, all else is text
	usage        string
}{
	{"lease", "lease", kindDuration, "how long a hand-out lasts that does not say (default 1m)"},
	{"ttl", "ttl", kindDuration, "jobs that do not say are dropped after this time (default never)"},
	{"delay", "delay", kindDuration, "first delivery of jobs that do not say after this time (default 0s)"},
	{"max-failures", "max_failures", kindNumber, "jobs that do not say are dead after so many failures, 0 = never (default 20)"},
	{"dead-letter", "dead_letter", "queue", "queue that dead jobs move to (default: they stay)"},
	{"dead-ttl", "dead_ttl", kindDuration, "dead jobs are dropped after this time (default 14d)"},
	{"backoff-min", "backoff.min", kindDuration, "a job that failed comes again after this time, doubled with each failure (default 0s)"},
	{"backoff-max", "backoff.max", kindDuration, "and after this time at most"},
	{"max-len", "max_len", kindNumber, "at most so many jobs, dead ones not counted, 0 = no limit (default)"},
	{"max-bytes", "max_bytes", kindSize, "at most so many bytes of jobs, 0 = no limit (default)"},
	{"overflow", "overflow", "reject|drop_oldest", "what a full queue does (default reject)"},
	{"aging", "aging", kindDuration, "the priority of a ready job rises by one each time this is over (default never)"},
	{"group-limit", "group_limit", kindNumber, "so many jobs of a group at once (default 1)"},
	{"fair", "fair", kindBool, "groups take turns"},
	{"default-consistency", "consistency", kindConsistency, "of requests that do not say one (default: the node's)"},
}

func queueConfigureCmd() *cobra.Command {
	var reset bool
	var ifVersion string
	cmd := &cobra.Command{
		Use:   "configure QUEUE",
		Short: "Change settings of a queue",
		Long: `Change settings of a queue, those that are given; the others stay as they are, or with
--reset go back to their defaults. The queue is made if need be, and a configured queue
stays when it is empty.

An empty value puts a setting back to its default (--dead-letter ''). --if-version changes
nothing unless the configuration is still of that version, which is printed here and by
"raftq queue show"; a queue that was never configured has 0.`,
		Example: `  # failures come again after 10 s, 20 s, 40 s … 10 m, and go to another queue after 5
  raftq queue configure mail --max-failures 5 --backoff-min 10s --backoff-max 10m --dead-letter mail.dead

  # at most 10,000 jobs: more are refused (or with drop_oldest push out the oldest)
  raftq queue configure mail --max-len 10000 --overflow reject

  # tenants take turns, two jobs of each at once
  raftq queue configure reports --fair --group-limit 2

  # all defaults again
  raftq queue configure mail --reset`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: completeQueues(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			config, err := settingsOfFlags(cmd)
			if err != nil {
				return &exitError{exitUsage, err}
			}
			if len(config) == 0 && !reset {
				return &exitError{exitUsage, errors.New("no setting is given")}
			}
			s, err := newSession(cmd)
			if err != nil {
				return err
			}
			defer s.Close()
			method := http.MethodPatch
			if reset {
				method = http.MethodPut
			}
			r, err := s.write(method, queuePath(args[0], ""), nil)
			if err != nil {
				return err
			}
			r.Repeat = client.RepeatAlways // twice is as good as once
			if ifVersion != "" {
				r.Header = http.Header{"If-Match": {strconv.Quote(ifVersion)}}
			}
			var got struct {
				Version uint64 `json:"version"`
			}
			if _, err := s.call(withJSON(r, config), &got); err != nil || s.json {
				return err
			}
			_, err = fmt.Fprintf(s.out(), "%s is configured, version %d\n", printable([]byte(args[0])), got.Version)
			return err
		},
	}
	f := cmd.Flags()
	for _, q := range queueSettings {
		if q.kind == kindBool {
			f.Bool(q.flag, false, q.usage)
		} else {
			f.String(q.flag, "", q.usage)
			kinds(cmd, q.kind, q.flag)
		}
	}
	f.BoolVar(&reset, "reset", false, "settings that are not given go back to their defaults")
	f.StringVar(&ifVersion, "if-version", "", "only if the configuration still has this version")
	kinds(cmd, kindNumber, "if-version")
	completeWords(cmd, "overflow", "reject", "drop_oldest")
	completeWords(cmd, "default-consistency", "strong", "fast")
	completeQueueFlag(cmd, "dead-letter")
	timeoutFlag(cmd)
	f.SortFlags = false
	return cmd
}

// settingsOfFlags returns the settings that were given, as the API reads them.
func settingsOfFlags(cmd *cobra.Command) (map[string]any, error) {
	if low, high := cmd.Flags().Lookup("backoff-min"), cmd.Flags().Lookup("backoff-max"); low.Changed != high.Changed || (low.Value.String() == "") != (high.Value.String() == "") {
		return nil, errors.New("--backoff-min and --backoff-max go together")
	}
	config := map[string]any{}
	for _, q := range queueSettings {
		f := cmd.Flags().Lookup(q.flag)
		if !f.Changed {
			continue
		}
		var value any = f.Value.String()
		var err error
		if value == "" {
			value = nil // the default
		} else {
			value, err = settingValue(q.kind, f.Value.String())
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", q.flag, err)
		}
		outer, inner, ok := strings.Cut(q.member, ".")
		if !ok {
			config[outer] = value
			continue
		}
		if value == nil {
			config[outer] = nil
			continue
		}
		part, ok := config[outer].(map[string]any)
		if !ok {
			part = map[string]any{}
			config[outer] = part
		}
		part[inner] = value
	}
	return config, nil
}

// settingValue turns a flag's text into a value of JSON.
func settingValue(kind, text string) (any, error) {
	switch kind {
	case kindNumber:
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("%q is not a whole number", text)
		}
		return n, nil
	case kindSize:
		return parseSize(text)
	case kindBool:
		return text == "true", nil
	}
	return text, nil
}
