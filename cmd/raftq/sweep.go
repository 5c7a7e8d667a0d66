package main

import (
	"fmt"

	"raftq/client"
)

// swept is what became of a request that concerns many jobs.
type swept struct {
	Purged   int  `json:"purged"`
	Redriven int  `json:"redriven"`
	Released int  `json:"released"`
	More     bool `json:"more"` // its time was over before all were done
}

// jobsAre begins a sentence about so many jobs.
func jobsAre(n int) string {
	if n == 1 {
		return "1 job is"
	}
	return fmt.Sprintf("%d jobs are", n)
}

// sweep carries such a request out and prints what was done with how many.
func (s *session) sweep(r client.Request, done string) error {
	var got swept
	if _, err := s.call(r, &got); err != nil {
		return err
	}
	n := got.Purged + got.Redriven + got.Released
	if !s.json {
		if _, err := fmt.Fprintf(s.out(), "%s %s\n", jobsAre(n), done); err != nil {
			return err
		}
	}
	if got.More {
		return &exitError{exitUnavailable, fmt.Errorf("the time was over and there are more: run it again")}
	}
	return nil
}
