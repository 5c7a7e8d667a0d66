package main

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"raftq/client"
	"raftq/fsm"
)

func enqueueCmd() *cobra.Command {
	var headers []string
	var file string
	var lines, quiet bool
	cmd := &cobra.Command{
		Use:   "enqueue QUEUE [BODY]",
		Short: "Put a job into a queue and print its id",
		Long: `Put a job into a queue and print its id. The body is BODY, or the content of --file,
or all of standard input. With --lines each line of the input is a job of its own;
empty lines are skipped, and an id is printed for each job, in order.

A request whose answer got lost is sent again under the same key, which makes the
servers do it once. With an --idempotency-key of your own that also holds over several
runs within an hour: --lines may be run again with the same key and the same input,
and puts in what was missing. With --lines, --retry-for is 1m unless it is said.

With --consistency fast the answer may come before the commit; standard error
then names the batch, and "raftq fate" tells what became of it.`,
		Example: `  raftq enqueue mail 'to: ann'
  raftq enqueue mail --priority 9 --ttl 2h --header tenant=t1 'to: bob'

  # from a pipe, later; never twice within 5 minutes
  date | raftq enqueue reports --delay 10m --dedup-id "report-$(date +%F)"

  # a file is a body
  printf '\x00\x01' > picture
  raftq enqueue pictures --file picture

  # each line is a job; again after a failure, with the same key
  seq 1000 | raftq enqueue numbers --lines --idempotency-key import-7 > ids`,
		Args:              cobra.RangeArgs(1, 2),
		ValidArgsFunction: completeQueues(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			options, err := jobOptions(cmd, headers)
			if err != nil {
				return err
			}
			in, err := jobInput(cmd, args, file)
			if err != nil {
				return err
			}
			defer in.Close()
			if lines {
				return enqueueLines(cmd, args[0], in, options, quiet)
			}
			s, err := newSession(cmd)
			if err != nil {
				return err
			}
			defer s.Close()
			body, err := io.ReadAll(io.LimitReader(in, fsm.BodyMax+1))
			switch {
			case err != nil:
				return fmt.Errorf("read the body: %w", err)
			case len(body) > fsm.BodyMax:
				return &exitError{exitRefused, fmt.Errorf("the body is larger than %s, the largest that there can be", formatSize(fsm.BodyMax))}
			}
			return s.enqueue(args[0], body, options, quiet)
		},
	}
	f := cmd.Flags()
	f.StringVarP(&file, "file", "f", "", "the body is this file, or with --lines its lines; - is standard input")
	f.BoolVar(&lines, "lines", false, "each line is a job")
	f.BoolVarP(&quiet, "quiet", "q", false, "print no ids")
	jobFlags(cmd)
	f.StringArrayVar(&headers, "header", nil, "a header, name=value (may be repeated)")
	keyFlag(cmd)
	writeFlags(cmd)
	kinds(cmd, kindFile, "file")
	kinds(cmd, "name=value", "header")
	f.SortFlags = false
	return cmd
}

// jobFlagNames are the options of a job by their flags; the API's names have _ for -.
var jobFlagNames = []string{
	"priority", "delay", "at", "lease", "ttl", "at-most-once", "max-failures",
	"group", "dedup-id", "dedup-ttl", "unique-key", "max-len", "replicate",
}

func jobFlags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.String("priority", "4", "0 to 9, higher first")
	f.String("delay", "", "first delivery after this time (30s, 5m, 7d)")
	f.String("at", "", "first delivery at this time (RFC 3339)")
	f.String("lease", "", "how long a worker may keep the job before it is given to another")
	f.String("ttl", "", "the job is dropped after this time")
	f.Bool("at-most-once", false, "never deliver the job twice, rather lose it")
	f.String("max-failures", "", "the job is dead after so many failures, 0 = never (default: the queue's)")
	f.String("group", "", "jobs of a group are worked on one at a time")
	f.String("dedup-id", "", "a second job with this id is not put in, the first one's id is printed")
	f.String("dedup-ttl", "", "how long the dedup id is remembered (default 5m)")
	f.String("unique-key", "", "refused while another job with this key is not done")
	f.String("max-len", "", "refused when the queue holds so many jobs")
	f.String("replicate", "", "wait until so many nodes have it on disk (default: a majority)")
	kinds(cmd, kindNumber, "priority", "max-failures", "max-len", "replicate")
	kinds(cmd, kindDuration, "delay", "lease", "ttl", "dedup-ttl")
	kinds(cmd, kindTime, "at")
	kinds(cmd, "id", "dedup-id")
	kinds(cmd, "key", "unique-key")
	kinds(cmd, "name", "group")
}

// jobOptions returns the options of a job that were given, by the names of the API.
func jobOptions(cmd *cobra.Command, headers []string) (url.Values, error) {
	options := url.Values{}
	optionFlags(cmd, options, jobFlagNames...)
	for _, h := range headers {
		name, value, ok := strings.Cut(h, "=")
		if !ok || name == "" {
			return nil, &exitError{exitUsage, fmt.Errorf("header: %q is not name=value", h)}
		}
		options.Set("header."+name, value)
	}
	return options, nil
}

// jobInput opens what the body is read from.
func jobInput(cmd *cobra.Command, args []string, file string) (io.ReadCloser, error) {
	switch {
	case len(args) == 2 && file != "":
		return nil, &exitError{exitUsage, fmt.Errorf("the body stands in the command line and in --file: give one of them")}
	case len(args) == 2 && args[1] != "-":
		return io.NopCloser(strings.NewReader(args[1])), nil
	case file != "" && file != "-":
		f, err := os.Open(file)
		if err != nil {
			return nil, &exitError{exitUsage, err}
		}
		return f, nil
	}
	if f, ok := cmd.InOrStdin().(*os.File); ok && terminalOf(f).isTerminal() {
		fmt.Fprintln(cmd.ErrOrStderr(), "raftq: reading from the terminal; Ctrl-D on an empty line ends it")
	}
	return io.NopCloser(cmd.InOrStdin()), nil
}

// enqueue puts one job in.
func (s *session) enqueue(queue string, body []byte, options url.Values, quiet bool) error {
	r, err := s.write(http.MethodPost, queuePath(queue, "/enqueue"), options)
	if err != nil {
		return err
	}
	r.Body, r.ContentType = body, "application/octet-stream"
	var job client.Enqueued
	if _, err := s.call(r, &job); err != nil {
		return err
	}
	if job.Duplicate {
		fmt.Fprintf(s.cmd.ErrOrStderr(), "raftq: not put in again: the dedup id is that of job %s\n", job.ID)
	}
	if s.json || quiet {
		return nil
	}
	_, err = fmt.Fprintln(s.out(), job.ID)
	return err
}
