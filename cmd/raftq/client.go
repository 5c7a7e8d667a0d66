package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"text/tabwriter"
	"unicode"
	"unicode/utf8"

	"github.com/spf13/cobra"
)

const endpointsDefault = "127.0.0.1:8080"

// clientFlags adds what all client commands share.
func clientFlags(cmd *cobra.Command) {
	cmd.Flags().String("endpoints", "", "nodes to ask, one after the other: host:port,… (default: RAFTQ_ENDPOINTS, else "+endpointsDefault+")")
	cmd.Flags().StringP("output", "o", "text", "text (for people) or json (what the API answered)")
}

// session is what a client command works with.
type session struct {
	*api
	cmd  *cobra.Command
	json bool // -o json
}

func newSession(cmd *cobra.Command) (*session, error) {
	endpoints, err := cmd.Flags().GetString("endpoints")
	if err != nil {
		return nil, err
	}
	if endpoints == "" {
		endpoints = os.Getenv("RAFTQ_ENDPOINTS")
	}
	if endpoints == "" {
		endpoints = endpointsDefault
	}
	a, err := newAPI(endpoints)
	if err != nil {
		return nil, &exitError{exitUsage, err}
	}
	output, err := cmd.Flags().GetString("output")
	if err != nil {
		return nil, err
	}
	if output != "text" && output != "json" {
		return nil, &exitError{exitUsage, fmt.Errorf("output: %q is neither text nor json", output)}
	}
	return &session{api: a, cmd: cmd, json: output == "json"}, nil
}

// call carries out a request and decodes its answer into out, unless -o json
// asks for the answer as it is, which it prints: then printed is true.
func (s *session) call(r request, out any) (printed bool, err error) {
	ans, err := s.do(s.cmd.Context(), r)
	if err != nil {
		return false, withCode(err)
	}
	s.tellBatch(ans)
	if s.json && len(ans.body) > 0 {
		if err := s.print(ans); err != nil {
			return false, err
		}
		printed = true
	}
	if len(ans.body) == 0 {
		return printed, nil
	}
	if err := json.Unmarshal(ans.body, out); err != nil {
		return printed, fmt.Errorf("the answer is not understood: %w", err)
	}
	return printed, nil
}

// print prints an answer as it is.
func (s *session) print(ans *answer) error {
	_, err := fmt.Fprintln(s.cmd.OutOrStdout(), strings.TrimSpace(string(ans.body)))
	return err
}

// tellBatch says of a fast answer that it is not committed, beside the output.
func (s *session) tellBatch(ans *answer) {
	if batch := ans.header.Get("Raftq-Batch"); batch != "" {
		fmt.Fprintf(s.cmd.ErrOrStderr(), "raftq: not committed yet; batch %s (ask: raftq fate %s)\n", batch, batch)
	}
}

// writeFlags adds what all commands that write share.
func writeFlags(cmd *cobra.Command) {
	cmd.Flags().String("timeout", "", "how long to wait for the commit")
	cmd.Flags().String("consistency", "", "strong, or fast: answered before the commit (default: the node's, strong unless set)")
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

func queuePath(queue, rest string) string { return "/v1/queues/" + url.PathEscape(queue) + rest }

// printable is a body on one line: as it is, or quoted when it would not fit.
func printable(body []byte) string {
	text := string(body)
	if !utf8.ValidString(text) || strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return strconv.Quote(text)
	}
	return text
}

// table prints rows in columns.
func table(w io.Writer, head []string, rows [][]string) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, row := range append([][]string{head}, rows...) {
		if _, err := fmt.Fprintln(t, strings.Join(row, "\t")); err != nil {
			return err
		}
	}
	return t.Flush()
}

func get(path string, query url.Values) request {
	return request{method: http.MethodGet, path: path, query: query, repeatable: true}
}
