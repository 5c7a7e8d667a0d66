package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	"github.com/spf13/cobra"
)

// item is what ack, nack and extend are told of one job.
type item struct {
	Receipt string `json:"receipt,omitempty"`
	ID      string `json:"id,omitempty"`
	Delay   string `json:"delay,omitempty"`
	Error   string `json:"error,omitempty"`
	Lease   string `json:"lease,omitempty"`
}

// itemResult is what became of it.
type itemResult struct {
	ID         string `json:"id"`
	Status     int    `json:"status"`
	Code       string `json:"code"`
	Detail     string `json:"detail"`
	Late       bool   `json:"late"`
	Already    bool   `json:"already"`
	LeaseUntil string `json:"lease_until"`
}

// itemFor: a receipt holds dots, an id does not.
func itemFor(arg string) item {
	if strings.Contains(arg, ".") {
		return item{Receipt: arg}
	}
	return item{ID: arg}
}

// settle posts items to /v1/ack, /v1/nack or /v1/extend.
func (s *session) settle(verb string, items []item) ([]itemResult, error) {
	var got struct {
		Results []itemResult `json:"results"`
	}
	ans, err := s.do(s.cmd.Context(), request{
		method: http.MethodPost, path: "/v1/" + verb, json: map[string]any{"items": items},
		repeatable: true, // the second time finds the lease lost, or the ack done
	})
	if err != nil {
		return nil, withCode(err)
	}
	if err := json.Unmarshal(ans.body, &got); err != nil {
		return nil, fmt.Errorf("the answer is not understood: %w", err)
	}
	if len(got.Results) != len(items) {
		return nil, fmt.Errorf("%d results came for %d items", len(got.Results), len(items))
	}
	return got.Results, nil
}

// failedItems is nil when all items went well.
func failedItems(items []item, results []itemResult) error {
	var failed []string
	code := exitNothing
	for i, r := range results {
		if r.Status < 300 {
			continue
		}
		name := items[i].Receipt + items[i].ID
		text := r.Code
		if r.Detail != "" {
			text = r.Detail + " (" + r.Code + ")"
		}
		failed = append(failed, name+": "+text)
		if r.Status != http.StatusNotFound && r.Status != http.StatusGone {
			code = exitRefused
		}
	}
	if failed == nil {
		return nil
	}
	return &exitError{code, fmt.Errorf("%d of %d failed\n%s", len(failed), len(items), strings.Join(failed, "\n"))}
}

// settleRun is the body of ack, nack and extend.
func settleRun(verb string, change func(*item), tell func(itemResult) string) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		s, err := newSession(cmd)
		if err != nil {
			return err
		}
		items := make([]item, len(args))
		for i, arg := range args {
			items[i] = itemFor(arg)
			change(&items[i])
		}
		results, err := s.settle(verb, items)
		if err != nil {
			return err
		}
		out := cmd.OutOrStdout()
		if s.json {
			if err := json.NewEncoder(out).Encode(map[string]any{"results": results}); err != nil {
				return err
			}
			return failedItems(items, results)
		}
		for _, r := range results {
			if r.Status < 300 {
				if _, err := fmt.Fprintf(out, "%s %s\n", r.ID, tell(r)); err != nil {
					return err
				}
			}
		}
		return failedItems(items, results)
	}
}

func ackCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "ack RECEIPT...",
		Short: "Say that jobs are done",
		Args:  cobra.MinimumNArgs(1),
		RunE: settleRun("ack", func(*item) {}, func(r itemResult) string {
			switch {
			case r.Already:
				return "was acked before"
			case r.Late:
				return "acked, after its lease"
			}
			return "acked"
		}),
	}
}

func nackCmd() *cobra.Command {
	var delay, reason string
	cmd := &cobra.Command{
		Use:   "nack RECEIPT...",
		Short: "Give jobs back as failed",
		Args:  cobra.MinimumNArgs(1),
		RunE: settleRun("nack", func(i *item) { i.Delay, i.Error = delay, reason }, func(itemResult) string {
			return "given back"
		}),
	}
	cmd.Flags().StringVar(&delay, "delay", "", "next delivery after this time at the earliest")
	cmd.Flags().StringVar(&reason, "error", "", "what went wrong; kept with the job")
	return cmd
}

func extendCmd() *cobra.Command {
	var lease string
	cmd := &cobra.Command{
		Use:   "extend RECEIPT...",
		Short: "Take a new lease on jobs, from now on",
		Args:  cobra.MinimumNArgs(1),
		RunE: settleRun("extend", func(i *item) { i.Lease = lease }, func(r itemResult) string {
			return "yours until " + r.LeaseUntil
		}),
	}
	cmd.Flags().StringVar(&lease, "lease", "", "length of the new lease (default: as before)")
	return cmd
}
