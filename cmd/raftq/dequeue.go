package main

import (
	"crypto/rand"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/spf13/cobra"

	"raftq/client"
)

// Long polls: as long as common proxies let a request be, and how long the answer
// may take after that.
const (
	pollMax   = 50 * time.Second
	pollGrace = 7 * time.Second
)

// jobList is an answer that has jobs.
type jobList struct {
	Jobs       []jobView `json:"jobs"`
	NextCursor string    `json:"next_cursor,omitempty"`
}

// jobView is a job as the API shows it, with its body in one of two members.
type jobView struct {
	client.Job
	Nacks    int     `json:"nacks"`
	Redriven int     `json:"redriven"`
	Text     *string `json:"body,omitempty"`
	Binary   []byte  `json:"body_base64,omitempty"`
}

func (j *jobView) body() []byte {
	if j.Text != nil {
		return []byte(*j.Text)
	}
	return j.Binary
}

func dequeueCmd() *cobra.Command {
	var ack, raw bool
	cmd := &cobra.Command{
		Use:   "dequeue QUEUE...",
		Short: "Take jobs and print their receipts and bodies",
		Long: `Take jobs and print a line for each: receipt, tab, body. Of several queues the first
one that has jobs gives them. Ack the receipts when the work is done, else the jobs
come again after their lease.

With --ack the jobs are acked once they are printed, and the bodies alone are
printed, as they are, each with a newline after it. With --raw there is no newline
either, and without --ack the receipts go to standard error. Else a body that is not a
line of text is quoted.

With --consistency fast the answer may come before the commit; standard error
then names the batch, and "raftq fate" tells what became of it. The exit code is
3 when no job came.`,
		Example: `  raftq enqueue mail 'to: ann'
  raftq dequeue mail --ack

  # wait for one, of the first queue that has any
  raftq enqueue mail 'to: bob' --delay 100ms
  raftq dequeue urgent mail --wait 20s --ack

  # several, for ten minutes, in a script
  seq 3 | raftq enqueue mail --lines --quiet
  raftq dequeue mail --max 10 --lease 10m | while IFS=$'\t' read -r receipt body; do
    echo "working on $body" && raftq ack "$receipt"
  done

  # exactly its bytes
  head -c 1000 /dev/urandom | raftq enqueue pictures
  raftq dequeue pictures --raw --ack > picture`,
		Args:              cobra.MinimumNArgs(1),
		ValidArgsFunction: completeQueues(-1),
		RunE: func(cmd *cobra.Command, args []string) error {
			s, err := newSession(cmd)
			if err != nil {
				return err
			}
			defer s.Close()
			jobs, err := s.dequeue(args)
			if err != nil {
				return err
			}
			if len(jobs) == 0 {
				if terminalOf(cmd.ErrOrStderr()).isTerminal() { // scripts have the exit code
					fmt.Fprintln(cmd.ErrOrStderr(), "raftq: no job came")
				}
				return &exitError{code: exitNothing}
			}
			if !s.json {
				if err := s.printTaken(jobs, ack, raw); err != nil {
					return err
				}
			}
			if !ack {
				return nil
			}
			return s.ackAll(jobs)
		},
	}
	f := cmd.Flags()
	f.String("max", "1", "at most so many jobs, 1000 at most")
	f.String("wait", "0s", "wait so long for a job")
	f.String("lease", "", "how long the jobs are yours (default: the job's, else the queue's, else 1m)")
	f.String("consumer", "", "your name, shown to people; raftq consumers takes it")
	f.String("attempt-id", "", "the same id again gives the same jobs, while their lease lives")
	f.BoolVar(&ack, "ack", false, "ack the jobs once they are printed")
	f.BoolVar(&raw, "raw", false, "print the bodies as they are, nothing else")
	writeFlags(cmd)
	kinds(cmd, kindNumber, "max")
	kinds(cmd, kindDuration, "wait", "lease")
	kinds(cmd, "name", "consumer")
	kinds(cmd, "id", "attempt-id")
	f.SortFlags = false
	return cmd
}

// dequeue takes jobs of the first queue that has any. It prints the answer, with -o
// json.
func (s *session) dequeue(queues []string) ([]jobView, error) {
	left, err := durationFlag(s.cmd, "wait")
	if err != nil {
		return nil, err
	}
	for {
		wait := min(left, pollMax)
		query := url.Values{}
		optionFlags(s.cmd, query, "max", "lease", "consumer", "attempt-id")
		if wait > 0 {
			query.Set("wait", wait.String())
		}
		if !query.Has("attempt_id") {
			query.Set("attempt_id", rand.Text())
		}
		path := "/v1/dequeue"
		if len(queues) == 1 {
			path = queuePath(queues[0], "/dequeue")
		}
		r, err := s.write(http.MethodPost, path, query)
		if err != nil {
			return nil, err
		}
		if len(queues) > 1 {
			r = withJSON(r, map[string]any{"queues": queues})
		}
		// The attempt's id does what a key does for others.
		r.Repeat, r.Key = client.RepeatAlways, ""
		r.Attempt = max(r.Attempt, wait+pollGrace)
		var got jobList
		if _, err := s.call(r, &got); err != nil {
			return nil, err
		}
		if left -= wait; len(got.Jobs) > 0 || left <= 0 {
			return got.Jobs, nil
		}
	}
}

// printTaken prints jobs that were handed out, and their receipts unless they are
// about to be acked.
func (s *session) printTaken(jobs []jobView, acked, raw bool) error {
	for i := range jobs {
		j := &jobs[i]
		var err error
		switch {
		case raw:
			if !acked {
				fmt.Fprintln(s.cmd.ErrOrStderr(), j.Receipt)
			}
			_, err = s.out().Write(j.body())
		case acked:
			_, err = fmt.Fprintf(s.out(), "%s\n", j.body())
		default:
			_, err = fmt.Fprintf(s.out(), "%s\t%s\n", j.Receipt, printable(j.body()))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// ackAll acks jobs that were just taken.
func (s *session) ackAll(jobs []jobView) error {
	items := make([]item, len(jobs))
	for i := range jobs {
		items[i].Receipt = jobs[i].Receipt
	}
	results, _, err := s.settle("ack", items)
	if err != nil {
		return err
	}
	failed := &itemsError{}
	for i := range results {
		if results[i].Status >= 300 {
			failed.add(items[i].Receipt, &results[i])
		}
	}
	return failed.orNil(len(jobs))
}
