package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// item is what ack, nack, release and extend are told of one job.
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
	Dead       bool   `json:"dead"`
	LeaseUntil string `json:"lease_until"`
}

// itemFor: a receipt holds dots, an id does not.
func itemFor(arg string) item {
	if strings.Contains(arg, ".") {
		return item{Receipt: arg}
	}
	return item{ID: arg}
}

// settle posts items to /v1/ack, /v1/nack, /v1/release or /v1/extend. It returns
// the answer as it came, too.
func (s *session) settle(verb string, items []item, query url.Values) ([]itemResult, *answer, error) {
	var got struct {
		Results []itemResult `json:"results"`
	}
	ans, err := s.do(s.cmd.Context(), request{
		method: http.MethodPost, path: "/v1/" + verb, query: query, json: map[string]any{"items": items},
		repeatable: repeatable(verb, items),
	})
	if err != nil {
		return nil, nil, withCode(err)
	}
	s.tellBatch(ans)
	if err := json.Unmarshal(ans.body, &got); err != nil {
		return nil, nil, fmt.Errorf("the answer is not understood: %w", err)
	}
	if len(got.Results) != len(items) {
		return nil, nil, fmt.Errorf("%d results came for %d items", len(got.Results), len(items))
	}
	return got.Results, ans, nil
}

// repeatable: the second time finds the ack done or the lease lost. A nack or a
// release by id would hit whoever has the job by then.
func repeatable(verb string, items []item) bool {
	return verb == "ack" || verb == "extend" || !slices.ContainsFunc(items, func(i item) bool { return i.ID != "" })
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

// settleRun is the body of ack, nack, release and extend.
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
		query := url.Values{}
		optionFlags(cmd, query, "timeout", "consistency")
		results, ans, err := s.settle(verb, items, query)
		if err != nil {
			return err
		}
		out := cmd.OutOrStdout()
		if s.json {
			if err := s.print(ans); err != nil {
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

const settleHelp = `A job is named by its receipt, or by its id alone; an id says nothing of who holds
the job now.`

func ackCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "ack RECEIPT...",
		Short: "Say that jobs are done",
		Long: `Say that jobs are done: they are gone then.

` + settleHelp + ` An ack by id removes the job whatever its
state: also one that is delayed, dead, or held by somebody else.`,
		Args: cobra.MinimumNArgs(1),
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
	writeFlags(cmd)
	return cmd
}

func nackCmd() *cobra.Command {
	var delay, reason string
	cmd := &cobra.Command{
		Use:   "nack RECEIPT...",
		Short: "Give jobs back as failed",
		Long: `Give jobs back as failed. The failure is counted, and a job that has had as many
as it may is dead.

` + settleHelp,
		Args: cobra.MinimumNArgs(1),
		RunE: settleRun("nack", func(i *item) { i.Delay, i.Error = delay, reason }, func(r itemResult) string {
			if r.Dead {
				return "dead after its last failure"
			}
			return "given back"
		}),
	}
	cmd.Flags().StringVar(&delay, "delay", "", "next delivery after this time at the earliest")
	cmd.Flags().StringVar(&reason, "error", "", "what went wrong; kept with the job")
	writeFlags(cmd)
	return cmd
}

func releaseCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "release RECEIPT...",
		Short: "Give jobs back, not as failed",
		Long: `Give jobs back for others. No failure is counted.

` + settleHelp,
		Args: cobra.MinimumNArgs(1),
		RunE: settleRun("release", func(*item) {}, func(itemResult) string { return "given back" }),
	}
	writeFlags(cmd)
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
	writeFlags(cmd)
	return cmd
}
