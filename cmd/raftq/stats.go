package main

import (
	"net/url"
	"strconv"
	"time"

	"github.com/spf13/cobra"
)

// queueStats is a queue as the API shows it.
type queueStats struct {
	Queue            string `json:"queue"`
	Ready            int    `json:"ready"`
	Delayed          int    `json:"delayed"`
	Leased           int    `json:"leased"`
	Held             int    `json:"held"`
	Dead             int    `json:"dead"`
	Bytes            int64  `json:"bytes"`
	Waiters          int    `json:"waiters"`
	OldestReadyAgeMs int64  `json:"oldest_ready_age_ms"`
	EnqueuedTotal    uint64 `json:"enqueued_total"`
	DeliveredTotal   uint64 `json:"delivered_total"`
	AckedTotal       uint64 `json:"acked_total"`
}

func statsCmd() *cobra.Command {
	var prefix string
	cmd := &cobra.Command{
		Use:   "stats [QUEUE]",
		Short: "Show queues",
		Long: `Show one queue or all of them. With -o json and no QUEUE each page of the list
is printed as the API answered it.`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			s, err := newSession(cmd)
			if err != nil {
				return err
			}
			if len(args) == 1 {
				var q queueStats
				if printed, err := s.call(get(queuePath(args[0], ""), nil), &q); err != nil || printed {
					return err
				}
				return printQueues(cmd, []queueStats{q})
			}
			var all []queueStats
			query := url.Values{}
			if prefix != "" {
				query.Set("prefix", prefix)
			}
			for {
				var page struct {
					Queues     []queueStats `json:"queues"`
					NextCursor string       `json:"next_cursor"`
				}
				if _, err := s.call(get("/v1/queues", query), &page); err != nil {
					return err
				}
				all = append(all, page.Queues...)
				if page.NextCursor == "" {
					break
				}
				query.Set("cursor", page.NextCursor)
			}
			if s.json {
				return nil
			}
			return printQueues(cmd, all)
		},
	}
	cmd.Flags().StringVar(&prefix, "prefix", "", "only queues whose names begin so")
	return cmd
}

func printQueues(cmd *cobra.Command, queues []queueStats) error {
	rows := make([][]string, 0, len(queues))
	for _, q := range queues {
		oldest := "-"
		if q.Ready > 0 {
			oldest = (time.Duration(q.OldestReadyAgeMs) * time.Millisecond).Round(time.Millisecond).String()
		}
		rows = append(rows, []string{
			printable([]byte(q.Queue)), strconv.Itoa(q.Ready), strconv.Itoa(q.Leased), strconv.Itoa(q.Delayed), strconv.Itoa(q.Dead),
			strconv.Itoa(q.Waiters), oldest, formatSize(q.Bytes),
			strconv.FormatUint(q.EnqueuedTotal, 10), strconv.FormatUint(q.DeliveredTotal, 10), strconv.FormatUint(q.AckedTotal, 10),
		})
	}
	return table(cmd.OutOrStdout(),
		[]string{"QUEUE", "READY", "LEASED", "DELAYED", "DEAD", "WAITERS", "OLDEST", "BYTES", "ENQUEUED", "DELIVERED", "ACKED"}, rows)
}
