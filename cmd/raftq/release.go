package main

import "github.com/spf13/cobra"

func releaseCmd() *cobra.Command {
	cmd := settleCmd("release", "Give jobs back, not as failed",
		`Give jobs back for others, in their old places. No failure is counted.`)
	cmd.Example = `  raftq enqueue mail hello
  raftq release $(raftq dequeue mail | cut -f 1)`
	cmd.RunE = settleRun("release", func(*item) {}, func(*itemResult) string { return "given back" })
	writeFlags(cmd)
	return cmd
}
