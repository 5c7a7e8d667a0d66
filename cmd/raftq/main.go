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
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		return exitOK
	}
	if !started { // cobra refused the command line
		err = &exitError{code: exitUsage, err: commandComplaint(err)}
	}
	fmt.Fprint(stderr, complain(err))
	code := exitCode(err)
	if code == exitUsage {
		fmt.Fprintf(stderr, "hint: %q tells what there is\n", cmd.CommandPath()+" --help")
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
		Version:       versionLine(),
		SilenceErrors: true,
		SilenceUsage:  true,
		PersistentPreRun: func(*cobra.Command, []string) {
			*started = true
		},
	}
	root.CompletionOptions.DisableDefaultCmd = true // completion is ours
	root.SetVersionTemplate("{{.Version}}\n")
	root.SetHelpCommand(helpCmd())
	root.AddGroup(
		&cobra.Group{ID: "server", Title: "Servers:"},
		&cobra.Group{ID: "jobs", Title: "Jobs:"},
		&cobra.Group{ID: "topics", Title: "Topics:"},
		&cobra.Group{ID: "queues", Title: "Queues and the cluster:"},
	)
	add := func(group string, speaks bool, commands ...*cobra.Command) {
		for _, c := range commands {
			c.GroupID = group
			root.AddCommand(c)
			if speaks {
				forEachLeaf(c, clientFlags)
			}
		}
	}
	add("server", false, serveCmd(), localCmd(), demoCmd(), configCmd())
	add("jobs", true, enqueueCmd(), dequeueCmd(), ackCmd(), nackCmd(), releaseCmd(), rejectCmd(), extendCmd(), settleManyCmd(), workCmd(), peekCmd(), jobCmd())
	add("topics", true, topicCmd())
	add("queues", true, queuesCmd(), queueCmd(), statsCmd(), pauseCmd(), resumeCmd(), purgeCmd(), redriveCmd(), consumersCmd(), fateCmd(), clusterCmd(), memberCmd(), transferCmd(), drainCmd())
	add("queues", false, benchCmd())
	root.AddCommand(completionCmd(), versionCmd())
	speakPlainly(root)
	return root
}

// forEachLeaf calls f for each command that does something.
func forEachLeaf(c *cobra.Command, f func(*cobra.Command)) {
	if !c.HasSubCommands() {
		f(c)
	}
	for _, sub := range c.Commands() {
		forEachLeaf(sub, f)
	}
}
