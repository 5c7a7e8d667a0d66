package main

import (
	"fmt"

	"github.com/spf13/cobra"
)

func completionCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "completion SHELL",
		Short: "Print what makes a shell complete raftq's command lines",
		Long: `Print a script that makes bash, zsh or fish complete commands, flags, values and
the names of queues, which are asked of the cluster. It has to be read by the shell at
its start; the examples put it where that happens.`,
		Example: `  # bash, from the next shell on (needs the package bash-completion)
  mkdir -p ~/.local/share/bash-completion/completions
  raftq completion bash > ~/.local/share/bash-completion/completions/raftq

  # zsh: a directory of $fpath
  mkdir -p ~/.zfunc && raftq completion zsh > ~/.zfunc/_raftq

  # fish
  mkdir -p ~/.config/fish/completions
  raftq completion fish > ~/.config/fish/completions/raftq.fish

  # this bash alone
  source <(raftq completion bash)`,
		ValidArgs:             []string{"bash", "zsh", "fish"},
		Args:                  cobra.ExactArgs(1),
		DisableFlagsInUseLine: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			root, out := cmd.Root(), cmd.OutOrStdout()
			switch args[0] {
			case "bash":
				return root.GenBashCompletionV2(out, true)
			case "zsh":
				return root.GenZshCompletion(out)
			case "fish":
				return root.GenFishCompletion(out, true)
			}
			return &exitError{exitUsage, fmt.Errorf("completion: %q is not one of bash, zsh, fish", args[0])}
		},
	}
}
