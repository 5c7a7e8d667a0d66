package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"raftq/client"
)

func workCmd() *cobra.Command {
	var p workPlan
	cmd := &cobra.Command{
		Use:   "work QUEUE... [flags] -- COMMAND [ARG...]",
		Short: "Run a command for each job",
		Long: `Run a command for each job of a queue, as several at once as --workers says. The job's
body is the command's standard input, facts are in its environment:

  RAFTQ_JOB_ID  RAFTQ_QUEUE  RAFTQ_RECEIPT  RAFTQ_PRIORITY  RAFTQ_GROUP
  RAFTQ_DELIVERIES  RAFTQ_FAILURES   hand-outs, this one too; failures before
  RAFTQ_ENQUEUED_AT  RAFTQ_FENCE     RFC 3339; a number that grows with each hand-out
  RAFTQ_HEADER_NAME                  each header; NAME in capitals, _ for what is no letter or digit
  RAFTQ_WORKER  RAFTQ_ENDPOINTS      number of the worker, from 1; for raftq within the command

When the command ends with 0 the job is acked. Else it is nacked, with the last line
that the command wrote to standard error as the job's error: it comes again, until it
has failed too often and is dead. With an exit code of --reject-exit it is dead at once,
with one of --release-exit it is given back uncounted.

The lease is extended while the command runs, so it may take as long as it likes.
When the lease is lost all the same, or somebody cancels the job ("raftq job cancel"),
the command and all of its process group get SIGTERM, and SIGKILL after --grace.

Ctrl-C or SIGTERM: no more jobs are taken, commands that run are awaited. Once more:
they are ended, and their jobs given back. Once more: they are killed. What
is not answered for when the cluster cannot be reached comes again after its lease.

The command's output is passed on; with several workers (or --prefix) line by line, with
the worker and the job in front. With -o json a line for each job stands on standard
output, and the commands' output goes to standard error.`,
		Example: `  seq 3 | raftq enqueue mail --lines --quiet
  raftq work mail --until-empty -- wc -c

  # four at once; every job has a minute at most; dead when it is not JSON (exit code 65)
  echo '{"to":"ann"}' | raftq enqueue mail
  raftq work mail --workers 4 --job-timeout 1m --reject-exit 65 --until-empty -- \
    sh -c 'grep -q to || exit 65; echo "job $RAFTQ_JOB_ID, delivery $RAFTQ_DELIVERIES"'

  # as a service: until SIGTERM, the urgent ones first
  raftq work urgent mail --workers 2 -- cat

  # a step that hands on to the next queue
  raftq enqueue in hello
  raftq work in --max 1 -- sh -c 'tr a-z A-Z | raftq enqueue out --dedup-id $RAFTQ_JOB_ID'
  raftq dequeue out --ack`,
		Args:              cobra.ArbitraryArgs, // below
		ValidArgsFunction: completeQueues(-1),

		DisableFlagsInUseLine: true, // it has them in their place
		RunE: func(cmd *cobra.Command, args []string) error {
			at := cmd.ArgsLenAtDash()
			if at < 1 || at == len(args) {
				return &exitError{exitUsage, errors.New("work: want QUEUE... -- COMMAND [ARG...]")}
			}
			p.queues, p.argv = args[:at], args[at:]
			if err := p.check(cmd); err != nil {
				return &exitError{exitUsage, err}
			}
			return runWork(cmd, p)
		},
	}
	f := cmd.Flags()
	f.IntVarP(&p.workers, "workers", "n", 1, "how many commands at once")
	f.String("lease", "", "how long a job is ours before it is extended; short ones come again sooner when this machine dies (default: the job's, else the queue's, else 1m)")
	f.String("job-timeout", "", "end a command that takes longer; counts as a failure")
	f.String("retry-delay", "", "a job that failed comes again after this time at the earliest (default: the queue's backoff)")
	f.IntSliceVar(&p.rejectExits, "reject-exit", nil, "exit codes that make the job dead at once: 65,66")
	f.IntSliceVar(&p.releaseExits, "release-exit", nil, "exit codes that give the job back uncounted: 75")
	f.String("grace", "5s", "between SIGTERM and SIGKILL")
	f.IntVar(&p.max, "max", 0, "end after so many jobs, 0 = never")
	f.BoolVar(&p.untilEmpty, "until-empty", false, "end when no job is ready, or no node answers (see --retry-for)")
	f.String("consumer", "", "beginning of this consumer's name (default: the host's)")
	f.Bool("prefix", false, "put worker and job before each line of output (default with several workers)")
	f.BoolVarP(&p.quiet, "quiet", "q", false, "say nothing of jobs that fail, and no summary")
	f.String("consistency", "", "fast: acks and hand-outs are answered before the commit (default: the queue's)")
	f.String("retry-for", "1m", "with --until-empty: end with exit code 5 when no node has answered for so long; else work goes on trying")
	completeWords(cmd, "consistency", "strong", "fast")
	kinds(cmd, kindNumber, "workers", "max")
	kinds(cmd, kindDuration, "lease", "job-timeout", "retry-delay", "grace", "retry-for")
	kinds(cmd, "codes", "reject-exit", "release-exit")
	kinds(cmd, "name", "consumer")
	kinds(cmd, kindConsistency, "consistency")
	f.SortFlags = false
	return cmd
}

// workPlan is one command line of work.
type workPlan struct {
	queues, argv              []string
	workers, max              int
	lease, timeout            time.Duration
	retryDelay                *time.Duration
	rejectExits, releaseExits []int
	grace                     time.Duration
	untilEmpty, prefix, quiet bool
	consumer                  string
	consistency               client.Consistency
}

// check reads what the flags have as text, and looks for what would go wrong with
// every job.
func (p *workPlan) check(cmd *cobra.Command) error {
	for name, d := range map[string]*time.Duration{"lease": &p.lease, "job-timeout": &p.timeout, "grace": &p.grace} {
		if text := textFlag(cmd, name); text != "" {
			var err error
			if *d, err = parseDuration(text); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
	}
	if text := textFlag(cmd, "retry-delay"); text != "" {
		d, err := parseDuration(text)
		if err != nil {
			return fmt.Errorf("retry-delay: %w", err)
		}
		p.retryDelay = &d
	}
	if p.workers < 1 || p.max < 0 {
		return errors.New("work: want at least one worker, and no negative number of jobs")
	}
	if p.max > 0 {
		p.workers = min(p.workers, p.max)
	}
	path, err := exec.LookPath(p.argv[0])
	if err != nil {
		return fmt.Errorf("the command cannot be run: %w", err)
	}
	p.argv = append([]string{path}, p.argv[1:]...)
	if p.prefix = textFlag(cmd, "prefix") == "true"; !cmd.Flags().Changed("prefix") {
		p.prefix = p.workers > 1
	}
	if p.consumer = textFlag(cmd, "consumer"); p.consumer == "" {
		host, err := os.Hostname()
		if err != nil {
			host = "work"
		}
		p.consumer = host
	}
	p.consistency = client.Consistency(textFlag(cmd, "consistency"))
	return nil
}

// pollWait is how long a long poll of work lasts. With --until-empty an empty one
// is the end.
const (
	workPollWait  = 20 * time.Second
	emptyPollWait = 100 * time.Millisecond
)

// runWork takes jobs until a signal, or what the plan says.
func runWork(cmd *cobra.Command, p workPlan) error {
	stderr := &shared{w: cmd.ErrOrStderr()}
	s, err := newSession(cmd, client.WithLogger(newComplaints(stderr, p.quiet)))
	if err != nil {
		return err
	}
	defer s.Close()
	w := newWorker(s, p, stderr)
	consumer, err := w.newConsumer()
	if err != nil {
		return withCode(err)
	}
	taking, stopTaking := context.WithCancel(cmd.Context())
	defer stopTaking()
	w.stopTaking = stopTaking

	signals := make(chan os.Signal, 3)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(signals)
	ended := make(chan struct{})
	go w.heed(signals, ended)
	if p.untilEmpty {
		go w.stopWhenEmpty(taking, consumer)
	}
	w.say("taking jobs of %s as %s", nameList(p.queues), consumer.Name())
	err = consumer.Run(taking)
	close(ended)
	w.summary(consumer.Stats())
	switch {
	case err != nil:
		return withCode(err)
	case w.gaveUp.Load():
		return &exitError{exitUnavailable, fmt.Errorf("no node could give jobs for %s (--retry-for); what is left is in its queue", textFlag(cmd, "retry-for"))}
	}
	return nil
}
