package main

import "github.com/spf13/cobra"

func nackCmd() *cobra.Command {
	var delay, reason string
	cmd := settleCmd("nack", "Give jobs back as failed",
		`Give jobs back as failed. The failure is counted, and a job that has had as many
as it may is dead.`)
	cmd.Example = `  raftq enqueue mail hello
  raftq nack $(raftq dequeue mail | cut -f 1) --delay 30s --error 'mailbox full'`
	cmd.RunE = settleRun("nack", func(i *item) { i.Delay, i.Error = delay, reason }, func(r *itemResult) string {
		if r.Dead {
			return "dead after its last failure"
		}
		return "given back"
	})
	cmd.Flags().StringVar(&delay, "delay", "", "next delivery after this time at the earliest (default: the queue's backoff)")
	cmd.Flags().StringVar(&reason, "error", "", "what went wrong; kept with the job")
	kinds(cmd, kindDuration, "delay")
	kinds(cmd, "text", "error")
	writeFlags(cmd)
	return cmd
}
