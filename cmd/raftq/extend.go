package main

import (
	"time"

	"github.com/spf13/cobra"
)

func extendCmd() *cobra.Command {
	var lease string
	cmd := settleCmd("extend", "Take a new lease on jobs, from now on",
		`Take a new lease on jobs, from now on, whatever was left of the old one.`)
	cmd.Example = `  raftq enqueue mail hello
  raftq extend $(raftq dequeue mail --lease 30s | cut -f 1) --lease 10m`
	cmd.RunE = settleRun("extend", func(i *item) { i.Lease = lease }, func(r *itemResult) string {
		text := "yours until " + r.LeaseUntil.Format(time.RFC3339)
		if r.Cancel {
			text += ", but somebody cancelled it: stop working on it and ack it"
		}
		return text
	})
	cmd.Flags().StringVar(&lease, "lease", "", "length of the new lease (default: as before)")
	kinds(cmd, kindDuration, "lease")
	writeFlags(cmd)
	return cmd
}
