package main

import (
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// What the values of flags are, as the help shows them.
const (
	kindDuration    = "duration"
	kindNumber      = "number"
	kindNumbers     = "numbers"
	kindSize        = "size"
	kindTime        = "time"
	kindFile        = "file"
	kindConsistency = "strong|fast"
)

// kindOf is a flag's value with another word for what it is.
type kindOf struct {
	pflag.Value
	kind string
}

func (k kindOf) Type() string { return k.kind }

// kinds says what the values of some flags are.
func kinds(cmd *cobra.Command, kind string, names ...string) {
	for _, name := range names {
		f := cmd.Flags().Lookup(name)
		f.Value = kindOf{f.Value, kind}
		if f.DefValue == "[]" {
			f.DefValue = "" // an empty list is no default to be shown
		}
	}
}

// textFlag reads a flag.
func textFlag(cmd *cobra.Command, name string) string { return cmd.Flags().Lookup(name).Value.String() }
