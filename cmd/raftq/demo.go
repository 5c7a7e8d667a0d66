package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"raftq/client"
	"raftq/cluster"
)

const (
	demoQueue = "demo"
	demoLease = "3s"             // short, so that jobs of a dead client come again soon
	drainMax  = 30 * time.Second // after the last job was sent
)

// demoPlan is what the demonstration does.
type demoPlan struct {
	binary   string
	env      []string // of the nodes
	nodes    int
	jobs     int
	duration time.Duration
}

func demoCmd() *cobra.Command {
	var p demoPlan
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Kill the leader of a cluster under load and show that nothing is lost",
		Long: `Start a cluster on this machine in a temporary directory, put jobs through it
from clients on every node, kill -9 the leader in the middle, start it again, and
say what happened. The exit code is 1 when a job was lost or doubled, or when a
client of a node that was not killed saw an error. Nothing is left behind.`,
		Example: `  raftq demo --jobs 5000 --duration 20s`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if p.nodes < 3 || p.jobs < 1 || p.duration < time.Second {
				return &exitError{exitUsage, fmt.Errorf("need at least 3 nodes, 1 job and 1s")}
			}
			var err error
			if p.binary, err = os.Executable(); err != nil {
				return err
			}
			ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			return demo(ctx, p, cmd.OutOrStdout())
		},
	}
	f := cmd.Flags()
	f.IntVar(&p.nodes, "nodes", 3, "how many nodes")
	f.IntVar(&p.jobs, "jobs", 1000, "how many jobs")
	f.DurationVar(&p.duration, "duration", 10*time.Second, "over what time they are sent")
	kinds(cmd, kindNumber, "nodes", "jobs")
	return cmd
}

// demo carries the plan out. Its files are kept only when it found a fault.
func demo(ctx context.Context, p demoPlan, out io.Writer) (err error) {
	dir, err := os.MkdirTemp("", "raftq-demo-")
	if err != nil {
		return err
	}
	fault := false
	defer func() {
		if fault {
			fmt.Fprintln(out, "data and logs are kept in", dir)
		} else if e := os.RemoveAll(dir); err == nil {
			err = e
		}
	}()
	c, err := cluster.New(cluster.Options{Binary: p.binary, Env: p.env, Dir: dir, Nodes: p.nodes})
	if err != nil {
		return err
	}
	defer c.Close()

	fmt.Fprintf(out, "raftq demo: %d nodes on this machine, %d jobs in %v from clients on every node\n", p.nodes, p.jobs, p.duration)
	leader, err := startDemo(ctx, c)
	if err != nil {
		return err
	}
	d := newDemoRun(p, c, leader, out)
	d.say("%d nodes run, %s leads", p.nodes, c.Nodes[leader].Name)
	if err := d.run(ctx); err != nil {
		return err
	}
	sum := d.ledger.sum(p.jobs)
	d.print(sum)
	if err := c.Stop(ctx); err != nil {
		fault = true
		return err
	}
	if bad := sum.verdict(); bad != "" {
		fault = true
		return fmt.Errorf("demo: %s", bad)
	}
	fmt.Fprintln(out, "\nNo job was lost or doubled.")
	return nil
}

func startDemo(ctx context.Context, c *cluster.Cluster) (leader int, err error) {
	ctx, cancel := context.WithTimeout(ctx, startMax)
	defer cancel()
	if err := c.Start(ctx); err != nil {
		return 0, err
	}
	return c.Leader(ctx)
}

// demoRun is one run: the cluster, its clients, and what they saw.
type demoRun struct {
	plan    demoPlan
	cluster *cluster.Cluster
	out     io.Writer
	victim  int // index of the node to be killed
	start   time.Time
	ledger  *ledger
}

func newDemoRun(p demoPlan, c *cluster.Cluster, leader int, out io.Writer) *demoRun {
	return &demoRun{
		plan: p, cluster: c, out: out, victim: leader, start: time.Now(),
		ledger: newLedger(c.Nodes[leader].Name),
	}
}

// say prints a line with the time since the start.
func (d *demoRun) say(format string, args ...any) {
	fmt.Fprintf(d.out, "%6.2f s  %s\n", time.Since(d.start).Seconds(), fmt.Sprintf(format, args...))
}

// run sends, takes and acks jobs while the leader is killed and comes back,
// then waits until the queue is empty.
func (d *demoRun) run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	var producers, consumers sync.WaitGroup
	defer func() {
		cancel()
		producers.Wait()
		consumers.Wait()
	}()
	load := newDemoLoad(d)
	for home := range d.cluster.Nodes {
		for range producersPerNode {
			producers.Go(func() { load.produce(ctx, home) })
		}
		for range consumersPerNode {
			consumers.Go(func() { load.consume(ctx, home) })
		}
	}
	if err := d.killLeader(ctx); err != nil {
		return err
	}
	producers.Wait()
	if ctx.Err() != nil {
		return fmt.Errorf("demo: interrupted")
	}
	d.say("all jobs are sent")
	d.drain(ctx)
	return nil
}

// killLeader waits for two fifths of the time, kills the leader, and starts it
// again a fifth later.
func (d *demoRun) killLeader(ctx context.Context) error {
	n := d.cluster.Nodes[d.victim]
	if err := until(ctx, d.start.Add(d.plan.duration*2/5)); err != nil {
		return err
	}
	pid := n.Pid()
	d.ledger.markKill()
	n.Kill9()
	d.say("kill -9 %s, the leader (process %d)", n.Name, pid)
	lctx, cancel := context.WithTimeout(ctx, startMax)
	defer cancel()
	i, err := d.cluster.Leader(lctx)
	if err != nil {
		return err
	}
	d.say("%s leads", d.cluster.Nodes[i].Name)
	if err := until(ctx, d.start.Add(d.plan.duration*3/5)); err != nil {
		return err
	}
	if err := n.Start(); err != nil {
		return err
	}
	d.say("%s is started again", n.Name)
	rctx, cancel := context.WithTimeout(ctx, startMax)
	defer cancel()
	if err := n.WaitReady(rctx); err != nil {
		return err
	}
	d.say("%s is ready again", n.Name)
	return nil
}

// drain waits until every answered enqueue was acked and the queue is empty,
// or long enough: what is missing then is lost.
func (d *demoRun) drain(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, drainMax)
	defer cancel()
	c, err := client.New(d.cluster.Endpoints())
	if err != nil {
		d.say("cannot look at the queue: %v", err)
		return
	}
	defer c.Close()
	for ctx.Err() == nil {
		left, err := queueLeft(ctx, c)
		if err == nil && left == 0 && d.ledger.open() == 0 {
			d.say("the queue is empty")
			return
		}
		_ = until(ctx, time.Now().Add(50*time.Millisecond)) // the loop looks at ctx
	}
	d.say("gave up waiting for an empty queue")
}

// until waits for a point in time.
func until(ctx context.Context, t time.Time) error {
	timer := time.NewTimer(time.Until(t))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("demo: %w", context.Cause(ctx))
	}
}
