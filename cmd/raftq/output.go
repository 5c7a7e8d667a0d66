package main

import (
	"fmt"

	"github.com/spf13/cobra"
)

// addOutputFlag adds -o, which every command has that prints facts.
func addOutputFlag(cmd *cobra.Command) {
	cmd.Flags().StringP("output", "o", "text", "text is for people, json for programs")
	kinds(cmd, "text|json", "output")
	completeWords(cmd, "output", "text", "json")
}

// outputFlag tells whether -o json was given.
func outputFlag(cmd *cobra.Command) (asJSON bool, err error) {
	output := textFlag(cmd, "output")
	if output != "text" && output != "json" {
		return false, &exitError{exitUsage, fmt.Errorf("output: %q is neither text nor json", output)}
	}
	return output == "json", nil
}
