package main

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"raftq/client"
)

// completeMax is how long a shell may wait for the names of queues.
const completeMax = time.Second

// completeQueues completes the first so many arguments as names of queues, all
// of them when n is negative.
func completeQueues(n int) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
		// Behind -- stands another program's line. cobra does not tell: it parses with a
		// "--" of its own.
		if n >= 0 && len(args) >= n || slices.Contains(os.Args, "--") {
			return nil, cobra.ShellCompDirectiveDefault
		}
		return queueNames(cmd, begun), cobra.ShellCompDirectiveNoFileComp
	}
}

// queueNames asks any node for queues whose names begin so. A shell that gets no
// answer offers nothing; there is nobody to tell why.
func queueNames(cmd *cobra.Command, begun string) []string {
	c, err := client.New(endpointsOf(cmd), client.WithRetryFor(0), client.WithAttemptTimeout(completeMax/2))
	if err != nil {
		return nil
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(context.Background(), completeMax)
	defer cancel()
	query := url.Values{"limit": {"100"}, "consistency": {"fast"}}
	if begun != "" {
		query.Set("prefix", begun)
	}
	ans, err := c.Do(ctx, client.Request{Method: http.MethodGet, Path: "/v1/queues", Query: query, Repeat: client.RepeatAlways, Attempt: completeMax / 2})
	var page struct {
		Queues []struct {
			Queue string `json:"queue"`
		} `json:"queues"`
	}
	if err != nil || json.Unmarshal(ans.Body, &page) != nil {
		return nil
	}
	var names []string
	for _, q := range page.Queues {
		if !strings.ContainsAny(q.Queue, "\n\t") { // the shell's separators
			names = append(names, q.Queue)
		}
	}
	return names
}

// completeNothing: an argument that a shell cannot know, and not a file.
func completeNothing(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	return nil, cobra.ShellCompDirectiveNoFileComp
}

// completeWords completes the value of a flag.
func completeWords(cmd *cobra.Command, flag string, words ...string) {
	err := cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp))
	if err != nil {
		panic("BUG: " + err.Error()) // no such flag
	}
}

// completeQueueFlag completes the value of a flag that names a queue.
func completeQueueFlag(cmd *cobra.Command, flag string) {
	err := cmd.RegisterFlagCompletionFunc(flag, func(cmd *cobra.Command, _ []string, begun string) ([]string, cobra.ShellCompDirective) {
		return queueNames(cmd, begun), cobra.ShellCompDirectiveNoFileComp
	})
	if err != nil {
		panic("BUG: " + err.Error()) // no such flag
	}
}
