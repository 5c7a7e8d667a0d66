package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"raftq/bench"
	"raftq/cluster"
)

// reportPlan is one command line of bench report.
type reportPlan struct {
	docs, html, json, dir string
	measured, limit       time.Duration
	set                   func(endpoints []string, echo string, measured time.Duration) []bench.SuiteGroup
}

func benchReportCmd() *cobra.Command {
	p := reportPlan{set: bench.StandardSet}
	cmd := &cobra.Command{
		Use:   "report",
		Short: "Start a cluster, run the standard set, write tables and charts",
		Long: `Start three nodes on this machine with fresh data in a temporary directory, run
the standard set (enqueue, cycle, dequeue, batches, hand-off, open loop, backlog;
strong and fast; and a bare echo server beside them), and write the results.
Nothing is left behind but the files that were asked for.`,
		Example: `  raftq bench report --html report.html --json report.json`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if p.measured < 100*time.Millisecond || p.measured > time.Minute {
				return &exitError{exitUsage, fmt.Errorf("duration: %v is not within 100ms to 1m", p.measured)}
			}
			ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			return p.carryOut(ctx, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	f := cmd.Flags()
	f.StringVar(&p.docs, "docs", "", "Markdown file whose tables, between the markers, are replaced")
	f.StringVar(&p.html, "html", "", "write a report with charts to this file")
	f.StringVar(&p.json, "json", "", "write all numbers to this file")
	f.StringVar(&p.dir, "dir", os.TempDir(), "where the nodes' data goes for that time")
	f.DurationVar(&p.measured, "duration", 4*time.Second, "measured time of each run")
	f.DurationVar(&p.limit, "limit", 5*time.Minute, "of everything; what does not fit in is left out")
	kinds(cmd, kindFile, "docs", "html", "json")
	kinds(cmd, "dir", "dir")
	f.SortFlags = false
	return cmd
}

func (p *reportPlan) carryOut(ctx context.Context, out, progress io.Writer) (err error) {
	if err := placesFor(p.docs, p.json, p.html); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, p.limit)
	defer cancel()
	self, err := os.Executable()
	if err != nil {
		return err
	}
	env := bench.ThisMachine() // before there is load
	dir, err := os.MkdirTemp(p.dir, "raftq-bench-")
	if err != nil {
		return err
	}
	env.Disk = bench.FileSystem(dir)
	defer func() {
		if e := os.RemoveAll(dir); err == nil {
			err = e
		}
	}()
	c, err := cluster.New(cluster.Options{Binary: self, Dir: dir, Nodes: 3})
	if err != nil {
		return err
	}
	defer c.Close()
	if _, err := startDemo(ctx, c); err != nil {
		return err
	}
	echo, err := startEcho(context.WithoutCancel(ctx))
	if err != nil {
		return err
	}
	defer echo.Close()

	rep := &bench.Report{Title: "raftq: the standard set", Time: time.Now(), Command: "make bench-report", Environment: env}
	set := p.set(strings.Split(c.Endpoints(), ","), echo.Addr, p.measured)
	runErr := bench.RunSuite(ctx, set, bench.NewTeller(progress), rep)
	if err := errors.Join(rep.WriteTable(out), p.write(rep, out)); err != nil {
		return err
	}
	if runErr != nil {
		return &exitError{exitFailed, fmt.Errorf("bench: not complete: %w", runErr)}
	}
	for _, g := range rep.Groups {
		if err := faults(g.Runs); err != nil {
			return err
		}
	}
	return nil
}

// write writes the files that were asked for.
func (p *reportPlan) write(rep *bench.Report, out io.Writer) error {
	if err := writeReport(rep, p.json, p.html); err != nil {
		return err
	}
	if p.docs != "" {
		doc, err := os.ReadFile(p.docs)
		if err != nil {
			return err
		}
		if doc, err = rep.ReplaceTables(doc); err != nil {
			return fmt.Errorf("%s: %w", p.docs, err)
		}
		if err := os.WriteFile(p.docs, doc, 0o644); err != nil {
			return err
		}
	}
	for _, path := range []string{p.docs, p.html, p.json} {
		if path == "" {
			continue
		}
		if abs, err := filepath.Abs(path); err == nil {
			path = abs
		}
		fmt.Fprintln(out, "written:", path)
	}
	return nil
}
