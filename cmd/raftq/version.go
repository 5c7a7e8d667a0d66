package main

import (
	"encoding/json"
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// buildVersion is set by the Makefile.
var buildVersion string

// version names this build: what the Makefile said, else the commit that Go
// recorded, else "dev".
func version() string {
	if buildVersion != "" {
		return buildVersion
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" && len(s.Value) >= 12 {
				return s.Value[:12]
			}
		}
	}
	return "dev"
}

// versionLine is what a person is told.
func versionLine() string {
	return fmt.Sprintf("raftq %s %s %s", version(), runtime.Version(), platform)
}

const platform = runtime.GOOS + "/" + runtime.GOARCH

func versionCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Long:  `Print the version of this program. "raftq cluster" shows those of the nodes.`,
		Example: `  raftq version
  raftq version -o json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			asJSON, err := outputFlag(cmd)
			if err != nil {
				return err
			}
			if asJSON {
				return json.NewEncoder(cmd.OutOrStdout()).Encode(map[string]string{"name": "raftq", "version": version(), "go": runtime.Version(), "platform": platform})
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), versionLine())
			return err
		},
	}
	addOutputFlag(cmd)
	return cmd
}
