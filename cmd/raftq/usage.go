package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// speakPlainly makes the complaints of all commands about their command lines those
// of this file.
func speakPlainly(root *cobra.Command) {
	root.SetFlagErrorFunc(flagComplaint)
	complainOfArgs(root)
}

func complainOfArgs(c *cobra.Command) {
	if check := c.Args; check != nil {
		c.Args = func(cmd *cobra.Command, args []string) error {
			if check(cmd, args) == nil {
				return nil
			}
			return argsComplaint(cmd, args)
		}
	}
	for _, sub := range c.Commands() {
		complainOfArgs(sub)
	}
}

// argsComplaint says which arguments a command takes.
func argsComplaint(cmd *cobra.Command, args []string) error {
	name := strings.TrimPrefix(cmd.CommandPath(), cmd.Root().Name()+" ")
	want := strings.TrimSpace(strings.TrimPrefix(cmd.Use, cmd.Name()))
	switch {
	case want == "":
		return fmt.Errorf("%s: takes no arguments, not %q", name, args[0])
	case len(args) == 0:
		return fmt.Errorf("%s: want %s", name, want)
	}
	return fmt.Errorf("%s: want %s, and there are %d arguments; quote one that has spaces", name, want, len(args))
}

// flagComplaint says what is wrong with a flag, and which one may be meant.
func flagComplaint(cmd *cobra.Command, err error) error {
	var unknown *pflag.NotExistError
	var value *pflag.InvalidValueError
	var missing *pflag.ValueRequiredError
	switch {
	case errors.As(err, &unknown) && unknown.GetSpecifiedShortnames() == "":
		var names []string
		cmd.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
		text := fmt.Sprintf("there is no flag --%s", unknown.GetSpecifiedName())
		if near := nearest(unknown.GetSpecifiedName(), names); near != "" {
			text += "; is --" + near + " meant?"
		}
		return errors.New(text)
	case errors.As(err, &value) && value.GetFlag().Value.Type() == kindNumber:
		return fmt.Errorf("%s: %q is not a number, or too large", value.GetFlag().Name, value.GetValue())
	case errors.As(err, &value) && value.GetFlag().Value.Type() == kindNumbers:
		return fmt.Errorf("%s: %q is not a list of numbers like 1,16,64", value.GetFlag().Name, value.GetValue())
	case errors.As(err, &value) && value.GetFlag().Value.Type() == kindDuration:
		return fmt.Errorf("%s: %q is not a duration like 250ms, 30s or 5m", value.GetFlag().Name, value.GetValue())
	case errors.As(err, &value):
		return fmt.Errorf("%s: %w", value.GetFlag().Name, value.Unwrap())
	case errors.As(err, &missing):
		return fmt.Errorf("%s: its value is missing (%s)", missing.GetFlag().Name, missing.GetFlag().Value.Type())
	}
	return err
}

// commandComplaint puts what cobra says of an unknown command, with its guess a list
// below, into a line.
func commandComplaint(err error) error {
	text, guesses, ok := strings.Cut(err.Error(), "\n\nDid you mean this?\n")
	if !ok {
		return err
	}
	return fmt.Errorf("%s; is %s meant?", text, strings.Join(strings.Fields(guesses), " or "))
}

// nearest returns the name that somebody may have meant, "" when none is like it: one
// that begins so, or has at most a third of its letters wrong.
func nearest(word string, names []string) string {
	best, bestAt := "", max((len(word)+1)/3, 1)+1
	for _, name := range slices.Sorted(slices.Values(names)) {
		if len(word) > 1 && strings.HasPrefix(name, word) {
			return name
		}
		if d := distance(word, name); d < bestAt {
			best, bestAt = name, d
		}
	}
	return best
}

// distance is how many letters have to be put in, taken out or changed to make one
// word of the other.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, diagonal+1, row[j]+1)
		}
	}
	return row[len(b)]
}

// helpCmd is cobra's, but that what is no command is an error.
func helpCmd() *cobra.Command {
	return &cobra.Command{
		Use:     "help [COMMAND]",
		Short:   "Tell everything of a command",
		Long:    `Tell everything of a command, as its --help does.`,
		Example: "  raftq help enqueue\n  raftq help queue configure",
		Args:    cobra.ArbitraryArgs, // below
		ValidArgsFunction: func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			var names []string
			if of, rest, err := cmd.Root().Find(args); err == nil && len(rest) == 0 {
				for _, c := range of.Commands() {
					if c.IsAvailableCommand() {
						names = append(names, c.Name()+"\t"+c.Short)
					}
				}
			}
			return names, cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			of, rest, err := cmd.Root().Find(args)
			if err == nil && len(rest) > 0 {
				err = fmt.Errorf("help: there is no command %q", strings.Join(args, " "))
			}
			if err != nil {
				return &exitError{exitUsage, commandComplaint(err)}
			}
			of.InitDefaultHelpFlag() // cobra adds it when a command runs
			return of.Help()
		},
	}
}
