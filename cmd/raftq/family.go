package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

// family is a command that only holds others. Alone it shows its help; a word
// that names none of them is an error.
func family(name, short string, members ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{
		Use:   name,
		Short: short,
		Args:  cobra.ArbitraryArgs, // refused below, with the names that there are
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return cmd.Help()
			}
			names := make([]string, 0, len(members))
			for _, m := range members {
				names = append(names, m.Name())
			}
			return &exitError{exitUsage, fmt.Errorf("%s: %q is not one of %s", cmd.CommandPath(), args[0], strings.Join(names, ", "))}
		},
	}
	cmd.AddCommand(members...)
	return cmd
}
