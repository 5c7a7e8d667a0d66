package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
)

// bashWords is how the script of cobra splits the line: with a function of the package
// bash-completion. bashWordsAlone does without, where that is not installed.
const (
	bashWords = `    _get_comp_words_by_ref "$@" cur prev words cword
`
	bashWordsAlone = `    if declare -F _get_comp_words_by_ref >/dev/null; then
        _get_comp_words_by_ref "$@" cur prev words cword
        return
    fi
    local line=${COMP_LINE:0:COMP_POINT}
    read -ra words <<<"$line"
    if [[ $line == *[[:space:]] ]]; then
        words+=("")
    fi
    cword=$((${#words[@]} - 1)) cur=${words[${#words[@]} - 1]} prev=
    if ((cword > 0)); then
        prev=${words[cword - 1]}
    fi
`
)

func completionCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "completion SHELL",
		Short: "Print what makes a shell complete raftq's command lines",
		Long: `Print a script that makes bash, zsh or fish complete commands, flags, values and
the names of queues, which are asked of the cluster. It has to be read by the shell at
its start; the examples put it where that happens.`,
		Example: `  # bash, from the next shell on, if it has the package bash-completion; else source it
  # in ~/.bashrc, as below
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
				var script strings.Builder
				if err := root.GenBashCompletionV2(&script, true); err != nil {
					return err
				}
				_, err := io.WriteString(out, strings.Replace(script.String(), bashWords, bashWordsAlone, 1))
				return err
			case "zsh":
				return root.GenZshCompletion(out)
			case "fish":
				return root.GenFishCompletion(out, true)
			}
			return &exitError{exitUsage, fmt.Errorf("completion: %q is not one of bash, zsh, fish", args[0])}
		},
	}
}
