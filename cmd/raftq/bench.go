package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"raftq/bench"
)

// benchPlan is one command line of bench: runs for each consistency and each
// number of connections.
type benchPlan struct {
	cfg           bench.Config
	endpoints     string
	consistencies []string
	connections   []int
	size          string
	title         string
	json, html    string
}

func benchCmd() *cobra.Command {
	var p benchPlan
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Measure a running cluster",
		Long: "Put load on a running cluster and say how fast it answers.\n\n" + workloadHelp() + `
--consistency and --connections take lists: there is a run for each
combination, one after the other, side by side in the table and the report.
Queues named bench-… are made for it and deleted at the end.

Without --rate each connection sends again when it was answered (closed loop).
With --rate requests have fixed sending times, and latencies count from those:
what a slow server keeps from being sent is counted as slow (open loop).

The exit code is 1 when requests failed or --check found a fault.

docs/performance.md explains each row and column. To put runs beside each other,
such as an echo run and one of a cluster, write each with --json and give the files
to "raftq bench render".`,
		Example: `  # of raftq local, in another terminal
  E=127.0.0.1:8080,127.0.0.1:8081,127.0.0.1:8082

  # enqueue, dequeue and ack, fast beside strong and beside a bare HTTP server
  raftq bench --endpoints $E --workload compare

  # strong against fast, and a report to look at
  raftq bench --endpoints $E --consistency strong,fast --connections 1,16,64 --html bench.html

  # the whole life of a job, and proof that each came once
  raftq bench --endpoints $E --workload cycle --connections 32 --check

  # latency at a fixed load of 2000 requests a second
  raftq bench --endpoints $E --connections 64 --rate 2000 --duration 30s

  # batches of 100 jobs; what an empty server could do at best
  raftq bench --endpoints $E --workload batch --batch 100 --connections 8
  raftq bench --workload echo

  # the two side by side
  raftq bench --endpoints $E --json raftq.json
  raftq bench --workload echo --json echo.json
  raftq bench render raftq.json echo.json --html compare.html`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if p.endpoints == "" {
				p.endpoints = os.Getenv("RAFTQ_ENDPOINTS")
			}
			if p.endpoints == "" {
				p.endpoints = endpointsDefault
			}
			if err := refuseZeros(cmd); err != nil {
				return &exitError{exitUsage, err}
			}
			if p.cfg.Workload == bench.WorkCompare && cmd.Flags().Changed("consistency") {
				return &exitError{exitUsage, fmt.Errorf("consistency: %s has both", bench.WorkCompare)}
			}
			size, err := parseSize(p.size)
			if err != nil {
				return &exitError{exitUsage, fmt.Errorf("size: %w", err)}
			}
			p.cfg.Size = int(size)
			ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			return p.carryOut(ctx, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	p.flags(cmd)
	cmd.AddCommand(benchReportCmd(), benchRenderCmd(), echoServerCmd())
	return cmd
}

// refuseZeros: a zero in a bench.Config means its default, but nobody who
// writes one means that.
func refuseZeros(cmd *cobra.Command) error {
	for _, name := range []string{"connections", "pipeline", "batch", "queues", "duration", "timeout"} {
		f := cmd.Flags().Lookup(name)
		if !f.Changed {
			continue
		}
		for v := range strings.SplitSeq(strings.Trim(f.Value.String(), "[]"), ",") {
			if v == "0" || v == "0s" {
				return fmt.Errorf("%s: %s is not above 0", name, v)
			}
		}
	}
	return nil
}

func workloadHelp() string {
	var b strings.Builder
	b.WriteString("Workloads:\n")
	for _, w := range bench.Workloads {
		fmt.Fprintf(&b, "  %-8s %s\n", w.Name, w.Does)
	}
	return b.String()
}

func (p *benchPlan) flags(cmd *cobra.Command) {
	f, c := cmd.Flags(), &p.cfg
	f.StringVar(&p.endpoints, "endpoints", "", "nodes, connections spread over them: host:port,… (default: RAFTQ_ENDPOINTS, else "+endpointsDefault+")")
	f.BoolVar(&c.LeaderOnly, "leader-only", false, "all connections to the leader's node")
	f.StringVar(&c.Workload, "workload", bench.WorkEnqueue, "what to do, see above")
	f.StringSliceVar(&p.consistencies, "consistency", []string{bench.Strong}, "strong, fast, or both: strong,fast")
	f.IntSliceVar(&p.connections, "connections", []int{1}, "how many, or several numbers: 1,16,64")
	f.IntVar(&c.Producers, "producers", 0, "cycle: so many of the connections enqueue; waiters: so many more (default 1)")
	f.IntVar(&c.Pipeline, "pipeline", 1, "requests written together on a connection")
	f.IntVar(&c.Batch, "batch", 0, "jobs in a request (default 1; batch and backlog: 100)")
	f.StringVar(&p.size, "size", "100B", "of a job's body, at least 40B")
	f.IntVar(&c.Queues, "queues", 1, "spread over so many queues")
	f.Float64Var(&c.Rate, "rate", 0, "requests a second of all connections together (default: as fast as they are answered)")
	f.IntVar(&c.Cap, "cap", 0, "cycle with --producers: at most so many unacked jobs (default: twice the connections)")
	f.IntVar(&c.Jobs, "jobs", 0, "dequeue: put in first (default 50000); backlog: size of the backlog (default 100000)")
	f.Int64Var(&c.Requests, "requests", 0, "end after so many (default: when the time is over)")
	f.DurationVar((*time.Duration)(&c.Duration), "duration", 10*time.Second, "measured time, after the warm-up; backlog: at most so long for each half")
	f.DurationVar((*time.Duration)(&c.Warmup), "warmup", time.Second, "not counted")
	f.DurationVar((*time.Duration)(&c.Timeout), "timeout", 30*time.Second, "for one answer")
	f.BoolVar(&c.Check, "check", false, "at the end, see that every job was delivered and acked once")
	f.BoolVar(&c.Keep, "keep", false, "leave the queues in place")
	f.StringVar(&p.title, "title", "raftq bench", "of the report")
	f.StringVar(&p.json, "json", "", "write all numbers to this file")
	f.StringVar(&p.html, "html", "", "write a report with charts to this file")
	kinds(cmd, "list", "endpoints")
	kinds(cmd, "name", "workload")
	kinds(cmd, "strong|fast,…", "consistency")
	kinds(cmd, kindNumbers, "connections")
	kinds(cmd, kindNumber, "producers", "pipeline", "batch", "queues", "rate", "cap", "jobs", "requests")
	kinds(cmd, kindSize, "size")
	kinds(cmd, "text", "title")
	kinds(cmd, kindFile, "json", "html")
	names := make([]string, 0, len(bench.Workloads))
	for _, w := range bench.Workloads {
		names = append(names, w.Name)
	}
	completeWords(cmd, "workload", names...)
	completeWords(cmd, "consistency", "strong", "fast", "strong,fast")
	f.SortFlags = false
}

// configs are the runs that the command line asks for. echo is the address of an
// echo server, where one is needed.
func (p *benchPlan) configs(echo string) ([]bench.Config, error) {
	base := p.cfg
	for _, e := range strings.Split(p.endpoints, ",") {
		if e = strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(e), "http://")); e != "" {
			base.Endpoints = append(base.Endpoints, strings.TrimSuffix(e, "/"))
		}
	}
	if base.Workload == bench.WorkEcho {
		base.Endpoints = []string{echo}
	}
	var all []bench.Config
	for _, connections := range p.connections {
		c := base
		c.Connections = connections
		if c.Producers > 0 && c.Cap == 0 {
			c.Cap = 2 * connections
		}
		if c.Workload == bench.WorkCompare {
			all = append(all, bench.Comparison(c, echo)...)
			continue
		}
		for _, consistency := range p.consistencies {
			c.Consistency = consistency
			all = append(all, c)
		}
	}
	if len(all) == 0 {
		return nil, &exitError{exitUsage, errors.New("no consistency or no connections")}
	}
	for i := range all {
		if err := all[i].Complete(); err != nil {
			return nil, &exitError{exitUsage, err}
		}
	}
	return all, nil
}

// carryOut does the runs and shows them.
func (p *benchPlan) carryOut(ctx context.Context, out, progress io.Writer) error {
	if err := placesFor(p.json, p.html); err != nil {
		return err
	}
	echo := ""
	if p.cfg.Workload == bench.WorkEcho || p.cfg.Workload == bench.WorkCompare {
		server, err := startEcho(ctx)
		if err != nil {
			return err
		}
		defer server.Close()
		echo = server.Addr
	}
	configs, err := p.configs(echo)
	if err != nil {
		return err
	}
	rep := &bench.Report{Title: p.title, Time: time.Now(), Command: "raftq " + strings.Join(os.Args[1:], " "), Environment: bench.ThisMachine()}
	runs, runErr := bench.RunAll(ctx, configs, bench.NewTeller(progress))
	if runErr != nil && len(runs) == 0 && ctx.Err() == nil {
		return &exitError{exitUnavailable, runErr} // nothing to show
	}
	rep.Groups = []bench.Group{{Runs: runs}}
	rep.Bars = bench.Ratios(runs)
	if err := errors.Join(rep.WriteTable(out), writeReport(rep, p.json, p.html)); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return errors.New("bench: interrupted; what is shown was measured until then")
	}
	if runErr != nil {
		return &exitError{exitUnavailable, runErr}
	}
	return faults(runs)
}

// faults is an error when a run had some.
func faults(runs []*bench.Result) error {
	for _, r := range runs {
		if bad := r.Faulty(); bad != "" {
			return fmt.Errorf("bench: %s: %s", r.Config.Name, bad)
		}
	}
	return nil
}

// placesFor sees that files can be written where they are wanted, before there is
// something to write that took minutes.
func placesFor(files ...string) error {
	for _, path := range files {
		if path == "" {
			continue
		}
		if _, err := os.Stat(filepath.Dir(path)); err != nil {
			return &exitError{exitUsage, fmt.Errorf("%s cannot be written: %w", path, err)}
		}
	}
	return nil
}

// writeReport writes the files that were asked for.
func writeReport(rep *bench.Report, jsonFile, htmlFile string) error {
	for _, f := range []struct {
		path  string
		write func(io.Writer) error
	}{{jsonFile, rep.WriteJSON}, {htmlFile, rep.WriteHTML}} {
		if f.path == "" {
			continue
		}
		file, err := os.Create(f.path)
		if err != nil {
			return err
		}
		if err := errors.Join(f.write(file), file.Close()); err != nil {
			return fmt.Errorf("write %s: %w", f.path, err)
		}
	}
	return nil
}

// benchRenderCmd makes a report of runs that were measured before.
func benchRenderCmd() *cobra.Command {
	var title, html string
	cmd := &cobra.Command{
		Use:   "render FILE…",
		Short: "Make one report of several --json files",
		Example: `  raftq bench --json before.json   # then change something
  raftq bench --json after.json
  raftq bench render before.json after.json --html compare.html`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			rep := &bench.Report{Title: title}
			for _, path := range args {
				r, err := bench.ReadReport(path)
				if err != nil {
					return err
				}
				name := strings.TrimSuffix(filepath.Base(path), ".json")
				if len(args) == 1 {
					name = ""
				}
				rep.Add(name, r)
			}
			return errors.Join(rep.WriteTable(cmd.OutOrStdout()), writeReport(rep, "", html))
		},
	}
	cmd.Flags().StringVar(&title, "title", "raftq bench", "of the report")
	cmd.Flags().StringVar(&html, "html", "", "write a report with charts to this file")
	kinds(cmd, "text", "title")
	kinds(cmd, kindFile, "html")
	return cmd
}

// echoServerCmd is the process behind the workload echo.
func echoServerCmd() *cobra.Command {
	return &cobra.Command{
		Use:    "echo-server",
		Short:  "Answer every request at once, until the input ends",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ln, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				return err
			}
			fmt.Fprintln(cmd.OutOrStdout(), ln.Addr())
			go func() {
				_, _ = io.Copy(io.Discard, cmd.InOrStdin()) // its end is all that matters
				_ = ln.Close()
			}()
			return bench.ServeEcho(ln)
		},
	}
}

// startEcho starts this program again as an echo server.
func startEcho(ctx context.Context) (*bench.EchoProcess, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	return bench.StartEcho(ctx, self, "bench", "echo-server")
}
