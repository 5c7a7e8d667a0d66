package main

import (
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

func queuesCmd() *cobra.Command {
	var limit int
	cmd := &cobra.Command{
		Use:   "queues",
		Short: "List queues",
		Long: `List queues by name, with how many jobs they hold and whether they are paused.
"raftq stats" shows their figures, "raftq queue show QUEUE" the configuration of one.`,
		Example: `  raftq enqueue mail hello
  raftq queues
  raftq queues --prefix m --min-len 1
  raftq queues -o json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := newSession(cmd)
			if err != nil {
				return err
			}
			defer s.Close()
			query := url.Values{}
			optionFlags(cmd, query, "prefix", "min-len", "max-len")
			items, ans, _, err := s.pages("/v1/queues", "queues", query, limit)
			if err != nil {
				return err
			}
			if s.json {
				return s.printList("queues", items)
			}
			queues, err := decodeAll[queueView](items)
			if err != nil {
				return err
			}
			rows := make([][]string, 0, len(queues))
			for i := range queues {
				q := &queues[i]
				rows = append(rows, []string{
					printable([]byte(q.Queue)), strconv.Itoa(q.Ready), strconv.Itoa(q.Leased), strconv.Itoa(q.Delayed),
					strconv.Itoa(q.Held), strconv.Itoa(q.Dead), formatSize(q.Bytes), q.note(ans.Meta().Time),
				})
			}
			return table(s.out(), []string{"QUEUE", ">READY", ">LEASED", ">DELAYED", ">HELD", ">DEAD", ">BYTES", "NOTE"}, rows)
		},
	}
	f := cmd.Flags()
	f.String("prefix", "", "only queues whose names begin so")
	f.String("min-len", "", "only queues with so many ready jobs at least")
	f.String("max-len", "", "only queues with so many ready jobs at most")
	f.IntVar(&limit, "limit", 0, "at most so many, 0 = all")
	kinds(cmd, "text", "prefix")
	kinds(cmd, kindNumber, "min-len", "max-len", "limit")
	readFlags(cmd)
	f.SortFlags = false
	return cmd
}

// note says what is particular to a queue.
func (q *queueView) note(now time.Time) string {
	var notes []string
	if text := q.Paused.text(now); text != "" {
		notes = append(notes, "paused "+text)
	}
	if q.Configured {
		notes = append(notes, "configured")
	}
	if notes == nil {
		return "-"
	}
	return strings.Join(notes, ", ")
}
