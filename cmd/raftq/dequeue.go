package main

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"net/url"

	"github.com/spf13/cobra"
)

// delivered is a job as the answer of a dequeue has it.
type delivered struct {
	ID         string  `json:"id"`
	Receipt    string  `json:"receipt"`
	Queue      string  `json:"queue"`
	Body       *string `json:"body"`
	BodyBase64 *string `json:"body_base64"`
	Deliveries int     `json:"deliveries"`
}

func (d *delivered) bytes() ([]byte, error) {
	switch {
	case d.Body != nil:
		return []byte(*d.Body), nil
	case d.BodyBase64 != nil:
		return base64.StdEncoding.DecodeString(*d.BodyBase64)
	}
	return nil, nil
}

type deliveredList struct {
	Jobs []delivered `json:"jobs"`
}

func dequeueCmd() *cobra.Command {
	var ack bool
	cmd := &cobra.Command{
		Use:   "dequeue QUEUE",
		Short: "Take jobs and print their receipts and bodies",
		Long: `Take jobs of a queue and print a line for each: receipt, tab, body. Ack the
receipts when the work is done, else the jobs come again after their lease.

With --ack the jobs are acked once they are printed, and the bodies alone are
printed, as they are, each with a newline after it. Without --ack a body that is
not a line of text is quoted.

With --consistency fast the answer may come before the commit; standard error
then names the batch, and "raftq fate" tells what became of it. The exit code is
3 when no job came.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			s, err := newSession(cmd)
			if err != nil {
				return err
			}
			query := url.Values{}
			optionFlags(cmd, query, "max", "wait", "lease", "consumer", "timeout", "consistency")
			var got deliveredList
			// A job that was taken and never seen comes again after its lease.
			printed, err := s.call(request{method: http.MethodPost, path: queuePath(args[0], "/dequeue"), query: query, repeatable: true}, &got)
			if err != nil {
				return err
			}
			if len(got.Jobs) == 0 {
				return &exitError{code: exitNothing}
			}
			if !printed {
				if err := printDelivered(cmd, got.Jobs, ack); err != nil {
					return err
				}
			}
			if !ack {
				return nil
			}
			items := make([]item, len(got.Jobs))
			for i, d := range got.Jobs {
				items[i].Receipt = d.Receipt
			}
			results, _, err := s.settle("ack", items, nil)
			if err != nil {
				return err
			}
			return failedItems(items, results)
		},
	}
	f := cmd.Flags()
	f.String("max", "1", "at most so many jobs")
	f.String("wait", "", "wait so long for a job (at most 55s)")
	f.String("lease", "", "how long the jobs are yours")
	f.String("consumer", "", "your name, shown to people")
	writeFlags(cmd)
	f.BoolVar(&ack, "ack", false, "ack the jobs once they are printed")
	return cmd
}

func printDelivered(cmd *cobra.Command, jobs []delivered, bare bool) error {
	for i := range jobs {
		body, err := jobs[i].bytes()
		if err != nil {
			return fmt.Errorf("body of %s: %w", jobs[i].ID, err)
		}
		if bare {
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s\n", body)
		} else {
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s\t%s\n", jobs[i].Receipt, printable(body))
		}
		if err != nil {
			return err
		}
	}
	return nil
}
