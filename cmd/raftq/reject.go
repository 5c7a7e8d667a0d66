package main

import "github.com/spf13/cobra"

func rejectCmd() *cobra.Command {
	var reason string
	cmd := settleCmd("reject", "Make jobs dead that can never go well",
		`Make jobs dead at once, whatever failures they might still have. They stay in their
queue, or go to its dead-letter queue; "raftq redrive" moves them back.`)
	cmd.Example = `  raftq enqueue mail 'not even an address'
  raftq reject $(raftq dequeue mail | cut -f 1) --error 'no address in it'`
	cmd.RunE = settleRun("reject", func(i *item) { i.Error = reason }, func(*itemResult) string { return "dead" })
	cmd.Flags().StringVar(&reason, "error", "", "what is wrong with them; kept with the job")
	kinds(cmd, "text", "error")
	writeFlags(cmd)
	return cmd
}
