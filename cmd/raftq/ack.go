package main

import "github.com/spf13/cobra"

func ackCmd() *cobra.Command {
	cmd := settleCmd("ack", "Say that jobs are done",
		`Say that jobs are done: they are gone then. An ack by id removes the job whatever its
state: also one that is delayed, dead, or held by somebody else.`)
	cmd.Example = `  raftq enqueue mail hello
  receipt=$(raftq dequeue mail | cut -f 1)
  raftq ack $receipt

  # all of a pipe, once the work is done
  seq 5 | raftq enqueue mail --lines --quiet
  raftq dequeue mail --max 5 > taken
  raftq ack - < taken`
	cmd.RunE = settleRun("ack", func(*item) {}, func(r *itemResult) string {
		switch {
		case r.Already:
			return "was acked before"
		case r.Late:
			return "acked, after its lease"
		}
		return "acked"
	})
	writeFlags(cmd)
	return cmd
}
