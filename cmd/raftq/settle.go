package main

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/spf13/cobra"

	"raftq/client"
	"raftq/fsm"
)

// item is what ack, nack, release, reject and extend are told of one job.
type item struct {
	Receipt string `json:"receipt,omitempty"`
	ID      string `json:"id,omitempty"`
	Delay   string `json:"delay,omitempty"`
	Error   string `json:"error,omitempty"`
	Lease   string `json:"lease,omitempty"`
}

// itemResult is what became of one item of a batch.
type itemResult struct {
	client.Settled
	Status    int    `json:"status"`
	Code      string `json:"code,omitempty"`
	Detail    string `json:"detail,omitempty"`
	Duplicate bool   `json:"duplicate,omitempty"`
}

// itemFor: a receipt holds dots, an id does not.
func itemFor(arg string) item {
	if strings.Contains(arg, ".") {
		return item{Receipt: arg}
	}
	return item{ID: arg}
}

// settle posts items, no more than one request may have, to /v1/ack, /v1/nack, …
func (s *session) settle(verb string, items []item) ([]itemResult, *client.Answer, error) {
	r, err := s.write(http.MethodPost, "/v1/"+verb, nil)
	if err != nil {
		return nil, nil, err
	}
	if verb == "ack" || verb == "extend" {
		r.Repeat, r.Key = client.RepeatAlways, "" // the second time finds it done
	}
	var got struct {
		Results []itemResult `json:"results"`
	}
	ans, err := s.fetch(withJSON(r, map[string]any{"items": items}), &got)
	if err != nil {
		return nil, nil, err
	}
	if len(got.Results) != len(items) {
		return nil, nil, fmt.Errorf("%d results came for %d items", len(got.Results), len(items))
	}
	return got.Results, ans, nil
}

// add notes an item that was refused.
func (e *itemsError) add(name string, r *itemResult) {
	text := r.Code
	if r.Detail != "" {
		text = r.Detail + " (" + r.Code + ")"
	}
	e.lines = append(e.lines, name+": "+text)
	code := exitRefused
	if r.Status == http.StatusNotFound || r.Status == http.StatusGone {
		code = exitNothing
	} else if r.Status == http.StatusTooManyRequests || r.Status >= 500 {
		code = exitUnavailable
	}
	if e.code == "" {
		e.code = r.Code
	}
	e.exit = max(e.exit, code)
}

// orNil is nil when nothing was refused.
func (e *itemsError) orNil(total int) error {
	if len(e.lines) == 0 {
		return nil
	}
	e.total = total
	return &exitError{e.exit, e}
}

// settleRun is the body of ack, nack, release, reject and extend.
func settleRun(verb string, change func(*item), tell func(*itemResult) string) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		s, err := newSession(cmd)
		if err != nil {
			return err
		}
		defer s.Close()
		failed, total := &itemsError{}, 0
		err = batches(namesOf(cmd, args), fsm.BatchItemsMax, func(names []string) error {
			items := make([]item, len(names))
			for i, name := range names {
				items[i] = itemFor(name)
				change(&items[i])
			}
			total += len(items)
			results, ans, err := s.settle(verb, items)
			if err != nil {
				return err
			}
			if s.json {
				if err := s.print(ans); err != nil {
					return err
				}
			}
			for i := range results {
				r := &results[i]
				if r.Status >= 300 {
					failed.add(names[i], r)
				} else if !s.json {
					if _, err := fmt.Fprintf(s.out(), "%s %s\n", r.ID, tell(r)); err != nil {
						return err
					}
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
		return failed.orNil(total)
	}
}

const settleHelp = `A job is named by its receipt, or by its id alone; an id says nothing of who holds
the job now. "-" reads them from standard input, one a line, as dequeue prints them.`

// settleCmd makes one of the commands; what is particular to it is set after.
func settleCmd(verb, short, long string) *cobra.Command {
	cmd := &cobra.Command{
		Use:               verb + " RECEIPT...",
		Short:             short,
		Long:              long + "\n\n" + settleHelp,
		Args:              cobra.MinimumNArgs(1),
		ValidArgsFunction: completeNothing,
	}
	return cmd
}
