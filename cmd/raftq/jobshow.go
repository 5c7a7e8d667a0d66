package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

func jobShowCmd() *cobra.Command {
	var raw bool
	cmd := &cobra.Command{
		Use:   "show ID",
		Short: "Show all that is known of a job, and its body",
		Long: `Show all that is known of a job, and its body: text as it is, of anything else a dump of
the beginning. With --raw the body alone is printed, as it is. The exit code is 3 when
the job never was or is gone.`,
		Example: `  id=$(raftq enqueue mail 'to: ann' --header tenant=t1)
  raftq job show $id
  raftq job show $id --raw`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: completeNothing,
		RunE: func(cmd *cobra.Command, args []string) error {
			s, err := newSession(cmd)
			if err != nil {
				return err
			}
			defer s.Close()
			var j jobView
			ans, err := s.call(s.read(jobPath(idOf(args[0]), ""), nil), &j)
			if err != nil || s.json {
				return err
			}
			if raw {
				_, err := s.out().Write(j.body())
				return err
			}
			if err := facts(s.out(), jobFacts(&j, ans.Meta().Time)...); err != nil {
				return err
			}
			_, err = io.WriteString(s.out(), "\n"+readable(j.body()))
			return err
		},
	}
	cmd.Flags().BoolVar(&raw, "raw", false, "print the body alone, as it is")
	readFlags(cmd)
	return cmd
}

// failures says how often a job failed, and how.
func failures(j *jobView) string {
	if j.Failures == 0 {
		return ""
	}
	text := fmt.Sprintf("%d times: %d by nack, %d leases were over", j.Failures, j.Nacks, j.Failures-j.Nacks)
	if j.Redriven > 0 {
		text += fmt.Sprintf("; redriven %d times", j.Redriven)
	}
	return text
}

// idOf takes a receipt for the id that it begins with.
func idOf(arg string) string {
	id, _, _ := strings.Cut(arg, ".")
	return id
}

// jobFacts are names and values of what is known of a job.
func jobFacts(j *jobView, now time.Time) []string {
	when := func(t time.Time) string {
		if t.IsZero() {
			return ""
		}
		return fmt.Sprintf("%s (%s)", t.Format(time.RFC3339), formatWhen(t, now))
	}
	flag := func(set bool, text string) string {
		if set {
			return text
		}
		return ""
	}
	pairs := []string{
		"id", j.ID,
		"queue", printable([]byte(j.Queue)),
		"state", string(j.State) + flag(j.Cancel, ", asked to stop"),
		"priority", count(j.Priority),
		"group", printable([]byte(j.Group)),
		"enqueued", when(j.EnqueuedAt),
		"ready", when(j.DeliverAt),
		"taken", fmt.Sprintf("%d times", j.Deliveries),
		"failed", failures(j),
		"lease ends", when(j.LeaseUntil),
		"consumer", printable([]byte(j.Consumer)),
		"dropped", when(j.ExpiresAt),
		"delivery", flag(j.AtMostOnce, "at most once"),
		"last error", printable([]byte(j.LastError)),
		"dead", when(j.DeadAt),
		"dead because", j.DeadReason,
		"died in", printable([]byte(j.SourceQueue)),
		"dedup id", printable([]byte(j.DedupID)),
		"unique key", printable([]byte(j.UniqueKey)),
	}
	for _, name := range slices.Sorted(maps.Keys(j.Headers)) {
		pairs = append(pairs, "header "+name, printable([]byte(j.Headers[name])))
	}
	return append(pairs, "body", formatSize(int64(len(j.body()))))
}
