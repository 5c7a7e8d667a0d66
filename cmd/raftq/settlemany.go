package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/spf13/cobra"

	"raftq/fsm"
)

func settleManyCmd() *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use:   "settle",
		Short: "Ack some jobs, nack others: a list of what to do with each",
		Long: `Do what each line of standard input (or --file) says with one job, as in the API's
/v1/settle: a JSON object with "op" (ack, nack, release, reject, extend), "receipt" or "id",
and what the op takes: "delay", "error", "lease". A line is printed for each, with
-o json the API's result.`,
		Example: `  seq 2 | raftq enqueue mail --lines --quiet
  raftq dequeue mail --max 2 -o json |
    jq -c '.jobs[] | {op: (if .body == "1" then "ack" else "nack" end), receipt, delay: "1m"} | if .op == "ack" then del(.delay) else . end' |
    raftq settle`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			in, err := jobInput(cmd, nil, file)
			if err != nil {
				return err
			}
			defer in.Close()
			s, err := newSession(cmd)
			if err != nil {
				return err
			}
			defer s.Close()
			return s.settleLines(in)
		},
	}
	cmd.Flags().StringVarP(&file, "file", "f", "", "read this file; - is standard input")
	kinds(cmd, kindFile, "file")
	keyFlag(cmd)
	writeFlags(cmd)
	return cmd
}

// settleLines settles what stands in lines of an input, in batches.
func (s *session) settleLines(in io.Reader) error {
	failed, total := &itemsError{}, 0
	lines := newLineReader(in, fsm.HeadersMax, true)
	for {
		batch, err := lines.batch()
		if len(batch) == 0 {
			if !errors.Is(err, io.EOF) {
				return fmt.Errorf("read the list: %w", err)
			}
			return failed.orNil(total)
		}
		items := make([]json.RawMessage, len(batch))
		for i, line := range batch {
			if !json.Valid(line.text) || bytes.TrimSpace(line.text)[0] != '{' {
				return &exitError{exitUsage, fmt.Errorf("line %d is not a JSON object; %d were done", line.number, total)}
			}
			items[i] = line.text
		}
		r, err := s.write(http.MethodPost, "/v1/settle", nil)
		if err != nil {
			return err
		}
		if f := s.cmd.Flags().Lookup("idempotency-key"); f.Changed {
			r.Key += fmt.Sprintf(".%d", batch[0].number)
		}
		var got struct {
			Results []itemResult `json:"results"`
		}
		ans, err := s.call(withJSON(r, map[string]any{"items": items}), &got)
		switch {
		case err != nil:
			return err
		case len(got.Results) != len(batch):
			return fmt.Errorf("%s sent %d results for %d items", ans.Node, len(got.Results), len(batch))
		}
		total += len(batch)
		for i := range got.Results {
			res := &got.Results[i]
			if res.Status >= 300 {
				failed.add(fmt.Sprintf("line %d", batch[i].number), res)
			} else if !s.json {
				if _, err := fmt.Fprintf(s.out(), "%s settled\n", res.ID); err != nil {
					return err
				}
			}
		}
	}
}
