package main

import (
	"context"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"
)

func main() {
	os.Exit(run(context.Background(), os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// run runs one command line and returns its exit code.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	started := false
	root := newRoot(&started)
	root.SetArgs(args)
	root.SetIn(stdin)
	root.SetOut(stdout)
	root.SetErr(stderr)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return exitOK
	}
	if !started { // cobra refused the command line
		err = &exitError{code: exitUsage, err: err}
	}
	if msg := err.Error(); msg != "" {
		fmt.Fprintln(stderr, "raftq: "+msg)
	}
	code := exitCode(err)
	if code == exitUsage {
		fmt.Fprintln(stderr, "raftq: see --help")
	}
	return code
}

func newRoot(started *bool) *cobra.Command {
	root := &cobra.Command{
		Use:   "raftq",
		Short: "A job queue replicated with Raft",
		Long: `raftq is a job queue replicated with Raft. Every node takes every request, and
an answer means that the job is on the disks of a majority, unless --consistency
fast was asked for.

` + exitHelp,
		SilenceErrors: true,
		SilenceUsage:  true,
		PersistentPreRun: func(*cobra.Command, []string) {
			*started = true
		},
	}
	root.CompletionOptions.HiddenDefaultCmd = true
	root.AddGroup(
		&cobra.Group{ID: "server", Title: "Servers:"},
		&cobra.Group{ID: "client", Title: "Clients:"},
	)
	for _, c := range []*cobra.Command{serveCmd(), localCmd(), demoCmd()} {
		c.GroupID = "server"
		root.AddCommand(c)
	}
	for _, c := range []*cobra.Command{enqueueCmd(), dequeueCmd(), ackCmd(), nackCmd(), releaseCmd(), extendCmd(), fateCmd(), statsCmd(), clusterCmd()} {
		c.GroupID = "client"
		clientFlags(c)
		root.AddCommand(c)
	}
	b := benchCmd()
	b.GroupID = "client"
	root.AddCommand(b, versionCmd())
	return root
}
