package main

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"
)

// yesFlag adds the flag that answers confirm beforehand.
func yesFlag(cmd *cobra.Command) {
	cmd.Flags().BoolP("yes", "y", false, "do not ask, on a terminal")
}

// confirm asks a person at a terminal whether something that cannot be undone is
// meant. A program is not asked.
func confirm(cmd *cobra.Command, question string) error {
	if yes, err := cmd.Flags().GetBool("yes"); err != nil || yes {
		return err
	}
	in, ok := cmd.InOrStdin().(*os.File)
	if !ok || !terminalOf(in).isTerminal() || !terminalOf(cmd.ErrOrStderr()).isTerminal() {
		return nil
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "%s [y/N] ", question)
	line, _ := bufio.NewReader(in).ReadString('\n') // an end of the input is a no
	if word := strings.ToLower(strings.TrimSpace(line)); word == "y" || word == "yes" {
		return nil
	}
	return &exitError{exitFailed, errors.New("nothing was done")}
}
