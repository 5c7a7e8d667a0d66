package main

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// sortings are the orders of stats, by the largest first but for the name.
var sortings = map[string]func(a, b *queueView) int{
	"name":   func(a, b *queueView) int { return cmp.Compare(a.Queue, b.Queue) },
	"ready":  func(a, b *queueView) int { return cmp.Compare(b.Ready, a.Ready) },
	"leased": func(a, b *queueView) int { return cmp.Compare(b.Leased, a.Leased) },
	"dead":   func(a, b *queueView) int { return cmp.Compare(b.Dead, a.Dead) },
	"bytes":  func(a, b *queueView) int { return cmp.Compare(b.Bytes, a.Bytes) },
	"oldest": func(a, b *queueView) int { return cmp.Compare(b.OldestReadyMs, a.OldestReadyMs) },
}

var sortNames = []string{"name", "ready", "leased", "dead", "bytes", "oldest"}

func statsCmd() *cobra.Command {
	var prefix, order, every string
	var frames int
	cmd := &cobra.Command{
		Use:   "stats [QUEUE...]",
		Short: "Show the figures of queues, once or all the time",
		Long: `Show the figures of queues, of all when none is named. With --watch they are shown
again and again, with how many jobs a second come in, are handed out, are acked and fail,
until Ctrl-C. On a terminal they are drawn in place.

With -o json it is one JSON document, or with --watch one a line each time.`,
		Example: `  raftq enqueue mail hello
  raftq stats
  raftq stats mail
  raftq stats --prefix m --sort oldest
  raftq stats --watch                     # every 2 s, until Ctrl-C
  raftq stats mail --watch=500ms --frames 2`,
		ValidArgsFunction: completeQueues(-1),
		RunE: func(cmd *cobra.Command, args []string) error {
			by, ok := sortings[order]
			if !ok {
				return &exitError{exitUsage, fmt.Errorf("sort: %q is not one of %s", order, strings.Join(sortNames, ", "))}
			}
			if len(args) > 0 && prefix != "" {
				return &exitError{exitUsage, errors.New("prefix: stands for all queues that begin so; name none beside it")}
			}
			s, err := newSession(cmd)
			if err != nil {
				return err
			}
			defer s.Close()
			v := &statsView{session: s, names: args, prefix: prefix, by: by}
			if every == "" {
				return v.once()
			}
			d, err := parseDuration(every)
			if err != nil || d < 50*time.Millisecond {
				return &exitError{exitUsage, fmt.Errorf("watch: %q is not a time of 50ms or more", every)}
			}
			return v.watch(d, frames)
		},
	}
	f := cmd.Flags()
	f.StringVar(&prefix, "prefix", "", "only queues whose names begin so")
	f.StringVar(&order, "sort", "name", "by "+strings.Join(sortNames, ", "))
	f.StringVar(&every, "watch", "", "show them again each time it is over, 2s unless said: --watch=500ms")
	f.Lookup("watch").NoOptDefVal = "2s"
	f.IntVar(&frames, "frames", 0, "with --watch: end after so many, 0 = at Ctrl-C")
	completeWords(cmd, "sort", sortNames...)
	kinds(cmd, "text", "prefix")
	kinds(cmd, "order", "sort")
	kinds(cmd, kindDuration, "watch")
	kinds(cmd, kindNumber, "frames")
	readFlags(cmd)
	f.SortFlags = false
	return cmd
}

// statsView is what stats shows.
type statsView struct {
	*session
	names  []string
	prefix string
	by     func(a, b *queueView) int
}

// look reads the queues in the order they are shown.
func (v *statsView) look() (queues []queueView, at time.Time, err error) {
	queues, items, ans, err := v.queues(v.names, v.prefix)
	if err != nil {
		return nil, at, err
	}
	if v.json {
		if len(v.names) == 1 {
			return nil, at, v.print(ans)
		}
		return nil, at, v.printList("queues", items)
	}
	slices.SortStableFunc(queues, func(a, b queueView) int { return v.by(&a, &b) })
	return queues, time.Now(), nil
}

func (v *statsView) once() error {
	queues, _, err := v.look()
	if err != nil || v.json {
		return err
	}
	rows := make([][]string, 0, len(queues))
	for i := range queues {
		q := &queues[i]
		rows = append(rows, []string{
			printable([]byte(q.Queue)), count(q.Ready), count(q.Leased), count(q.Delayed), count(q.Held), count(q.Dead),
			count(q.Waiters), q.oldest(), formatSize(q.Bytes),
			total(q.EnqueuedTotal), total(q.DeliveredTotal), total(q.AckedTotal), total(q.FailedTotal),
		})
	}
	return table(v.out(), []string{"QUEUE", ">READY", ">LEASED", ">DELAYED", ">HELD", ">DEAD", ">WAITERS", ">OLDEST", ">BYTES",
		">ENQUEUED", ">DELIVERED", ">ACKED", ">FAILED"}, rows)
}
