package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

func configCmd() *cobra.Command {
	return family("config", "Check the configuration of a node", configCheckCmd())
}

func configCheckCmd() *cobra.Command {
	var all bool
	// The settings in a set of their own: this command's flags are none.
	settings := pflag.NewFlagSet("serve", pflag.ContinueOnError)
	serveFlags(settings)
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Read and check what serve would read, and start nothing",
		Long: `Read flags, environment and YAML file as serve would, check them, and say which
values count and where they come from. Nothing is started, opened or written. The
exit code is 2 when serve would refuse them, and the error says why.`,
		Example: `  # before a restart, with the flags of the service
  raftq config check --name n1 --heartbeat 200ms

  # a file, with every setting
  printf 'name: n1\nmax-body: 4MiB\n' > raftq.yaml
  raftq config check --config raftq.yaml --all

  # for a program
  raftq config check -o json --config raftq.yaml`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			asJSON, err := outputFlag(cmd)
			if err != nil {
				return err
			}
			values, origins, err := settingsAndOrigins(settings, os.Environ())
			if err != nil {
				return &exitError{exitUsage, err}
			}
			if _, err := newServeConfig(values); err != nil {
				return &exitError{exitUsage, err}
			}
			return printSettings(cmd, values, origins, all, asJSON)
		},
	}
	cmd.Flags().AddFlagSet(settings)
	cmd.Flags().SortFlags = false
	cmd.Flags().BoolVar(&all, "all", false, "show defaults, too")
	addOutputFlag(cmd)
	return cmd
}

// setting is a value that counts and where it comes from.
type setting struct {
	Name  string `json:"name"`
	Value string `json:"value"`
	From  string `json:"from"`
}

// isSecret tells whether a setting is nobody's to see.
func isSecret(name string) bool {
	return strings.Contains(name, "password") || strings.Contains(name, "secret")
}

func printSettings(cmd *cobra.Command, values, origins map[string]string, all, asJSON bool) error {
	list, rows := []setting{}, [][]string{}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		if origins[name] == "" || origins[name] == originDefault && !all && !asJSON {
			continue
		}
		value := values[name]
		if isSecret(name) && value != "" {
			value = "(set)"
		}
		list = append(list, setting{name, value, origins[name]})
		rows = append(rows, []string{name, printable([]byte(value)), origins[name]})
	}
	out := cmd.OutOrStdout()
	if asJSON {
		return json.NewEncoder(out).Encode(map[string][]setting{"settings": list})
	}
	if len(rows) == 0 {
		_, err := fmt.Fprintln(out, "good: all settings are defaults (--all shows them)")
		return err
	}
	if err := table(out, []string{"SETTING", "VALUE", "FROM"}, rows); err != nil {
		return err
	}
	_, err := fmt.Fprintln(out, "good: serve would start with these")
	return err
}
