package main

import "github.com/spf13/cobra"

func queueCmd() *cobra.Command {
	return family("queue", "Look at one queue, configure or delete it", queueShowCmd(), queueConfigureCmd(), queueDeleteCmd())
}
