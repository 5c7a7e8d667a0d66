package main

import (
	"errors"
	"net/http"

	"github.com/spf13/cobra"

	"raftq/client"
)

// each carries out what a command does to one of several jobs, and notes a refusal
// that is this job's alone.
func (s *session) each(r client.Request, id, done string, failed *itemsError) error {
	var got struct{}
	_, err := s.call(r, &got)
	var refused *client.Error
	if r.Method == http.MethodDelete && errors.As(err, &refused) && refused.Applied == client.Unknown && refused.Code == client.ErrJobGone {
		err = nil // by an attempt whose answer got lost
	}
	if err != nil && errors.As(err, &refused) && refused.Status >= 400 && refused.Status < 500 && refused.Applied == client.NotApplied {
		failed.add(id, &itemResult{Status: refused.Status, Code: string(refused.Code), Detail: refused.Detail})
		return nil
	}
	if err != nil || s.json {
		return err
	}
	_, err = s.out().Write([]byte(id + " " + done + "\n"))
	return err
}

func jobRequeueCmd() *cobra.Command {
	return jobVerb("requeue", "Make jobs ready now",
		`Make jobs ready now: delayed and held ones in their old place, dead ones behind what
waits. A job that somebody holds is taken away from them.`,
		`  id=$(raftq enqueue mail 'not before tomorrow' --delay 1d)
  raftq job requeue $id`,
		"is ready", http.MethodPost, "/requeue")
}

func jobHoldCmd() *cobra.Command {
	return jobVerb("hold", "Keep jobs from being handed out",
		`Keep jobs from being handed out until "raftq job requeue". A job that somebody holds is
taken away from them.`,
		`  id=$(raftq enqueue mail 'is this right?')
  raftq job hold $id
  raftq job requeue $id`,
		"is held", http.MethodPost, "/hold")
}

func jobCancelCmd() *cobra.Command {
	return jobVerb("cancel", "Ask whoever works on jobs to stop",
		`Ask whoever works on jobs to stop: they learn it when they extend their lease, and
"raftq work" ends its command then and acks the job. A job that nobody works on is
deleted.`,
		`  id=$(raftq enqueue reports 'of the whole year')
  raftq dequeue reports --lease 1h
  raftq job cancel $id`,
		"is cancelled", http.MethodPost, "/cancel")
}

func jobDeleteCmd() *cobra.Command {
	return jobVerb("delete", "Delete jobs, whatever their state",
		`Delete jobs, whatever their state. Who holds one loses it.`,
		`  id=$(raftq enqueue mail 'a mistake')
  raftq job delete $id`,
		"is deleted", http.MethodDelete, "")
}
