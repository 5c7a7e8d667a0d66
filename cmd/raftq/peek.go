package main

import (
	"cmp"
	"fmt"
	"net/url"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"raftq/client"
)

// stateNames are the states of a job, in the order of its life.
var stateNames = []string{"delayed", "ready", "leased", "held", "dead"}

func peekCmd() *cobra.Command {
	var states, order string
	var limit int
	var raw bool
	cmd := &cobra.Command{
		Use:   "peek QUEUE",
		Short: "Look at the jobs of a queue without taking them",
		Long: `Look at the jobs of a queue without taking them: the ready ones in the order in which
they will be handed out, others in the order they came. Long bodies are cut, what is not
text is shown in hexadecimal; "raftq job show ID" shows one whole, --raw prints the
bodies as they are, each with a newline after it.`,
		Example: `  raftq enqueue mail 'to: ann'
  raftq peek mail
  raftq peek mail --state dead --limit 50        # with the last error
  raftq peek mail --state leased,delayed --order desc
  raftq peek mail --state all -o json | grep -c '"id"'`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: completeQueues(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if limit < 0 {
				return &exitError{exitUsage, fmt.Errorf("limit: %d is below 0", limit)}
			}
			s, err := newSession(cmd)
			if err != nil {
				return err
			}
			defer s.Close()
			query := url.Values{"state": {statesOf(states)}}
			if order != "asc" {
				query.Set("order", order)
			}
			items, ans, more, err := s.pages(queuePath(args[0], "/jobs"), "jobs", query, limit)
			if err != nil {
				return err
			}
			if s.json {
				return s.printList("jobs", items)
			}
			jobs, err := decodeAll[jobView](items)
			if err != nil {
				return err
			}
			if raw {
				return s.printTaken(jobs, true, false)
			}
			if err := s.printJobs(jobs, ans.Meta().Time); err != nil {
				return err
			}
			if more {
				fmt.Fprintf(cmd.ErrOrStderr(), "raftq: there are more; --limit %d shows them\n", max(10*limit, 100))
			}
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVar(&states, "state", "ready", "delayed, ready, leased, held, dead, several of them, or all")
	f.StringVar(&order, "order", "asc", "asc, or desc: from the end")
	f.IntVar(&limit, "limit", 10, "at most so many, 0 = all")
	f.BoolVar(&raw, "raw", false, "print the bodies alone")
	completeWords(cmd, "state", append(stateNames, "all")...)
	completeWords(cmd, "order", "asc", "desc")
	kinds(cmd, "states", "state")
	kinds(cmd, "asc|desc", "order")
	kinds(cmd, kindNumber, "limit")
	readFlags(cmd)
	f.SortFlags = false
	return cmd
}

// statesOf writes states as the API reads them.
func statesOf(text string) string {
	if text != "all" {
		return text
	}
	all := ""
	for _, name := range stateNames {
		all += "," + name
	}
	return all[1:]
}

// bodyWidth is how much of a body a table shows off a terminal.
const bodyWidth = 60

// printJobs prints a table of jobs, each with what matters in its state.
func (s *session) printJobs(jobs []jobView, now time.Time) error {
	rows := make([][]string, 0, len(jobs))
	for i := range jobs {
		j := &jobs[i]
		rows = append(rows, []string{
			j.ID, string(j.State), strconv.Itoa(j.Priority), formatAge(now.Sub(j.EnqueuedAt)),
			strconv.Itoa(j.Deliveries), strconv.Itoa(j.Failures), jobNote(j, now), "",
		})
	}
	head := []string{"ID", "STATE", ">PRIO", ">AGE", ">TAKEN", ">FAILED", "NOTE", "BODY"}
	width := bodyWidth
	if t := terminalOf(s.out()); t.isTerminal() {
		width = max(t.width-tableWidth(head, rows), 20)
	}
	for i := range jobs {
		rows[i][len(head)-1] = preview(jobs[i].body(), width)
	}
	return table(s.out(), head, rows)
}

// jobNote says what a person asks first of a job in its state.
func jobNote(j *jobView, now time.Time) string {
	switch j.State {
	case client.Delayed:
		return "ready " + formatWhen(j.DeliverAt, now)
	case client.Leased:
		note := "lease ends " + formatWhen(j.LeaseUntil, now)
		if j.Consumer != "" {
			note = clip(printable([]byte(j.Consumer)), 24) + ", " + note
		}
		if j.Cancel {
			note = "cancelled, " + note
		}
		return note
	}
	note := ""
	if j.SourceQueue != "" {
		note = "from " + clip(printable([]byte(j.SourceQueue)), 24) + ", "
	}
	note += j.DeadReason
	if j.LastError != "" {
		if j.DeadReason != "" {
			note += ": "
		}
		note += clip(printable([]byte(j.LastError)), 40)
	}
	return cmp.Or(note, "-")
}
