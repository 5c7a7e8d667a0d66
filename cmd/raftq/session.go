package main

import (
	"cmp"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"raftq/client"
)

const endpointsDefault = "127.0.0.1:8080"

// Time limits of one request.
const (
	// timeoutDefault is how long a node may take for a write, unless --timeout
	// says another. An election fits in.
	timeoutDefault = 10 * time.Second
	// answerGrace is how much longer than the node's own time its answer is
	// awaited: it says more than a broken connection.
	answerGrace = time.Second
)

// clientFlags adds what all client commands share.
func clientFlags(cmd *cobra.Command) {
	endpointFlags(cmd)
	addOutputFlag(cmd)
}

// endpointFlags adds the flags that say whom to ask.
func endpointFlags(cmd *cobra.Command) {
	cmd.Flags().String("endpoints", "", "nodes to ask, one after the other: host:port,… (default: RAFTQ_ENDPOINTS, else "+endpointsDefault+")")
	kinds(cmd, "list", "endpoints")
	if cmd.Flags().Lookup("retry-for") == nil { // work has its own
		cmd.Flags().String("retry-for", "0s", "when no node can do it now, try again for so long")
		kinds(cmd, kindDuration, "retry-for")
	}
}

// readFlags adds what all commands that read share.
func readFlags(cmd *cobra.Command) {
	cmd.Flags().String("consistency", "", "fast: what the asked node has, also without a leader (default: the node's, strong unless set)")
	cmd.Flags().String("max-stale", "", "with --consistency fast: refuse an answer older than this")
	kinds(cmd, kindConsistency, "consistency")
	kinds(cmd, kindDuration, "max-stale")
	completeWords(cmd, "consistency", "strong", "fast")
}

// timeoutFlag adds what all commands that write share.
func timeoutFlag(cmd *cobra.Command) {
	cmd.Flags().String("timeout", timeoutDefault.String(), "how long a node may take to commit, at most 55s")
	kinds(cmd, kindDuration, "timeout")
}

// sweepFlag is timeoutFlag for what may concern very many jobs: nodes do as much
// as the time allows.
func sweepFlag(cmd *cobra.Command) {
	cmd.Flags().String("timeout", "55s", "how long a node may take for one request, at most 55s")
	kinds(cmd, kindDuration, "timeout")
}

// writeFlags adds what commands share whose writes may be fast.
func writeFlags(cmd *cobra.Command) {
	timeoutFlag(cmd)
	cmd.Flags().String("consistency", "", "fast: answered before the commit (default: the queue's, else the node's, strong unless set)")
	kinds(cmd, kindConsistency, "consistency")
	completeWords(cmd, "consistency", "strong", "fast")
}

// keyFlag adds the flag of commands that may be run again as the same.
func keyFlag(cmd *cobra.Command) {
	cmd.Flags().String("idempotency-key", "", "run again with the same key within an hour, it is done once and answered as the first time")
	kinds(cmd, "key", "idempotency-key")
}

// session is what a client command works with.
type session struct {
	*client.Client
	cmd  *cobra.Command
	json bool // -o json
}

// endpointsOf returns whom to ask: the flag, else the environment, else a node
// on this machine.
func endpointsOf(cmd *cobra.Command) string {
	return cmp.Or(textFlag(cmd, "endpoints"), os.Getenv("RAFTQ_ENDPOINTS"), endpointsDefault)
}

// newSession makes a session of a command's flags. Its end closes it.
func newSession(cmd *cobra.Command, options ...client.Option) (*session, error) {
	s := &session{cmd: cmd}
	retryFor, err := durationFlag(cmd, "retry-for")
	if err != nil {
		return nil, err
	}
	options = append([]client.Option{
		client.WithPolicy(client.Ordered), client.WithRetryFor(retryFor), client.WithAttemptTimeout(timeoutDefault), client.WithUserAgent("raftq/" + version()),
	}, options...)
	if s.Client, err = client.New(endpointsOf(cmd), options...); err != nil {
		return nil, &exitError{exitUsage, clientError{err}}
	}
	if cmd.Flags().Lookup("output") != nil {
		if s.json, err = outputFlag(cmd); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// out is where a command prints.
func (s *session) out() io.Writer { return s.cmd.OutOrStdout() }

// call carries a request out and decodes its answer into out, unless -o json
// asks for the answer as it is: then it is printed.
func (s *session) call(r client.Request, out any) (*client.Answer, error) {
	ans, err := s.fetch(r, out)
	if err == nil && s.json {
		err = s.print(ans)
	}
	return ans, err
}

// fetch carries a request out and decodes its answer into out.
func (s *session) fetch(r client.Request, out any) (*client.Answer, error) {
	ans, err := s.Do(s.cmd.Context(), r)
	if err != nil {
		return nil, withCode(err)
	}
	s.tellBatch(ans)
	if len(ans.Body) == 0 {
		return ans, nil
	}
	if err := json.Unmarshal(ans.Body, out); err != nil {
		return nil, fmt.Errorf("the answer of %s is not understood: %w", ans.Node, err)
	}
	return ans, nil
}

// print prints an answer as it is.
func (s *session) print(ans *client.Answer) error {
	if len(ans.Body) == 0 {
		return nil
	}
	_, err := fmt.Fprintln(s.out(), strings.TrimSpace(string(ans.Body)))
	return err
}

// tellBatch says of a fast answer that it is not committed, beside the output.
func (s *session) tellBatch(ans *client.Answer) {
	if batch := ans.Header.Get("Raftq-Batch"); batch != "" {
		fmt.Fprintf(s.cmd.ErrOrStderr(), "raftq: not committed yet; batch %s (ask: raftq fate %s)\n", batch, batch)
	}
}

// read is a request that changes nothing.
func (s *session) read(path string, query url.Values) client.Request {
	if query == nil {
		query = url.Values{}
	}
	if s.cmd.Flags().Lookup("max-stale") != nil {
		optionFlags(s.cmd, query, "consistency", "max-stale")
	}
	return client.Request{Method: http.MethodGet, Path: path, Query: query, Repeat: client.RepeatAlways}
}

// write is a request that changes something, with the options that all of them
// have. It is sent again only under a key, unless the caller knows better.
func (s *session) write(method, path string, query url.Values) (client.Request, error) {
	if query == nil {
		query = url.Values{}
	}
	timeout, err := durationFlag(s.cmd, "timeout")
	if err != nil {
		return client.Request{}, err
	}
	if s.cmd.Flags().Lookup("consistency") != nil {
		optionFlags(s.cmd, query, "consistency")
	}
	query.Set("timeout", textFlag(s.cmd, "timeout"))
	r := client.Request{Method: method, Path: path, Query: query, Attempt: timeout + answerGrace}
	if method == http.MethodPost {
		r.Repeat, r.Key = client.RepeatKeyed, rand.Text()
		if f := s.cmd.Flags().Lookup("idempotency-key"); f != nil && f.Changed {
			r.Key = f.Value.String()
		}
	}
	return r, nil
}

// withJSON gives a request a body.
func withJSON(r client.Request, v any) client.Request {
	body, err := json.Marshal(v)
	if err != nil {
		panic("BUG: " + err.Error()) // of strings, numbers and lists
	}
	r.Body, r.ContentType = body, "application/json"
	return r
}

// optionFlags copies the flags that were given into a query, by the names of
// the API (at-most-once is at_most_once).
func optionFlags(cmd *cobra.Command, query url.Values, names ...string) {
	for _, name := range names {
		if f := cmd.Flags().Lookup(name); f.Changed {
			query.Set(strings.ReplaceAll(name, "-", "_"), f.Value.String())
		}
	}
}

// durationFlag reads a flag that is a duration with a unit.
func durationFlag(cmd *cobra.Command, name string) (time.Duration, error) {
	d, err := parseDuration(textFlag(cmd, name))
	if err != nil {
		return 0, &exitError{exitUsage, fmt.Errorf("%s: %w", name, err)}
	}
	return d, nil
}

func queuePath(queue, rest string) string { return "/v1/queues/" + url.PathEscape(queue) + rest }

func jobPath(id, rest string) string { return "/v1/jobs/" + url.PathEscape(id) + rest }
