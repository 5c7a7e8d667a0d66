package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"raftq/cluster"
)

// startMax is how long the nodes of local and demo may take until they serve.
const startMax = 60 * time.Second

func localCmd() *cobra.Command {
	var o cluster.Options
	cmd := &cobra.Command{
		Use:   "local [-- SERVE-FLAGS]",
		Short: "Run a whole cluster in this terminal",
		Long: `Run a whole cluster on this machine, a process for each node, and stop it with
Ctrl-C. Data, logs and a file "pids" (a line "pid starttime name" for each
process) are kept below --data-dir; started there again, the cluster goes on
where it stopped. What follows "--" is handed to every node's serve.

When a node ends, the others go on, and the command that starts it again is
printed, for another terminal. A node started so is not stopped by Ctrl-C here.`,
		Example: `  raftq local
  raftq local --nodes 5 --data-dir ./five -- --heartbeat 50ms`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if cmd.ArgsLenAtDash() != 0 && len(args) > 0 {
				return &exitError{exitUsage, fmt.Errorf("unexpected %q; flags of serve stand behind --", args[0])}
			}
			if o.Nodes < 1 {
				return &exitError{exitUsage, fmt.Errorf("nodes: %d is not above 0", o.Nodes)}
			}
			binary, err := os.Executable()
			if err != nil {
				return err
			}
			o.Binary, o.Args = binary, args
			signals := make(chan os.Signal, 2)
			signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
			defer signal.Stop(signals)
			return local(cmd.Context(), o, signals, cmd.OutOrStdout())
		},
	}
	f := cmd.Flags()
	f.IntVar(&o.Nodes, "nodes", 3, "how many nodes")
	f.StringVar(&o.Dir, "data-dir", "./raftq-local", "where everything is kept")
	f.IntVar(&o.ClientPort, "client-port", 8080, "REST of the first node; the others count up")
	f.IntVar(&o.RespPort, "resp-port", 7711, "port of the first node for clients of Disque's protocol; counted up")
	f.IntVar(&o.PeerPort, "peer-port", 9080, "port of the first node for the others; counted up")
	kinds(cmd, kindNumber, "nodes", "client-port", "resp-port", "peer-port")
	kinds(cmd, "dir", "data-dir")
	f.SortFlags = false
	return cmd
}

// local runs a cluster until a signal comes or a node ends.
func local(ctx context.Context, o cluster.Options, signals <-chan os.Signal, out io.Writer) error {
	c, err := cluster.New(o)
	if err != nil {
		return err
	}
	defer c.Close()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()

	ready := make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(ctx, startMax)
		defer cancel()
		ready <- startLocal(ctx, c)
	}()
	select {
	case err := <-ready:
		if errors.Is(err, syscall.EADDRINUSE) {
			return fmt.Errorf("%w; --client-port, --resp-port and --peer-port take others", err)
		}
		if err != nil {
			return err
		}
	case <-signals:
		cancel() // and then the processes are ended by Close
		<-ready
		return &exitError{code: exitFailed}
	}
	usage(out, o.Binary, c)

	ended := make(chan *cluster.Node, len(c.Nodes))
	for _, n := range c.Nodes {
		go func() {
			<-n.Ended()
			ended <- n
		}()
	}
	for running := len(c.Nodes); running > 0; {
		select {
		case s := <-signals:
			fmt.Fprintf(out, "\n%v: stopping %d nodes (once more: at once)\n", s, running)
			return stopLocal(ctx, c, signals)
		case n := <-ended:
			running--
			if wasRemoved(n.Wait(ctx)) {
				fmt.Fprintf(out, "%s was removed from the cluster; %d of %d nodes run. It does not start again; its data may go: %s\n\n", n.Name, running, len(c.Nodes), n.DataDir)
				continue
			}
			fmt.Fprintf(out, "%s ended; %d of %d nodes run. See %s\nTo start it again:\n\n  %s\n\n", n.Name, running, len(c.Nodes), n.LogFile, serveLine(o.Binary, c, n))
		}
	}
	return fmt.Errorf("all nodes ended")
}

// startLocal starts all nodes and waits until they are ready, but for those that were
// removed in an earlier run.
func startLocal(ctx context.Context, c *cluster.Cluster) error {
	for _, n := range c.Nodes {
		if err := n.Start(); err != nil {
			return err
		}
	}
	removed := 0
	for _, n := range c.Nodes {
		err := n.WaitReady(ctx)
		if wasRemoved(err) {
			if removed++; removed < len(c.Nodes) {
				continue
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// wasRemoved tells whether a node ended because its cluster removed it.
func wasRemoved(err error) bool {
	var exit *exec.ExitError
	return errors.As(err, &exit) && exit.ExitCode() == exitRemoved
}

// serveLine is the command that starts a node again by hand.
func serveLine(binary string, c *cluster.Cluster, n *cluster.Node) string {
	members := make([]string, 0, len(c.Nodes))
	for _, m := range c.Nodes {
		members = append(members, m.Name+"=http://"+m.Peer)
	}
	words := append([]string{binary, "serve", "--name", n.Name, "--data-dir", n.DataDir, "--listen-client", n.Client, "--listen-resp", n.Resp, "--listen-peer", n.Peer,
		"--initial-cluster", strings.Join(members, ",")}, n.Args...)
	return shellWords(words)
}

// joinLine is the command that adds one more node, by a member: its ports count up.
func joinLine(binary string, c *cluster.Cluster, member *cluster.Node) string {
	last := c.Nodes[len(c.Nodes)-1]
	next := func(addr string) string {
		port, err := strconv.Atoi(portOf(addr))
		if err != nil {
			panic("BUG: a node listens on " + addr)
		}
		return strings.TrimSuffix(addr, portOf(addr)) + strconv.Itoa(port+1)
	}
	name := fmt.Sprintf("n%d", len(c.Nodes)+1)
	return shellWords([]string{binary, "serve", "--name", name, "--data-dir", filepath.Join(c.Dir(), name), "--listen-client", next(last.Client),
		"--listen-resp", next(last.Resp), "--listen-peer", next(last.Peer), "--join", member.Client})
}

func shellWords(words []string) string {
	for i := range words {
		words[i] = shellWord(words[i])
	}
	return strings.Join(words, " ")
}

var plainWord = regexp.MustCompile(`^[A-Za-z0-9_@%+=:,./-]+$`)

// shellWord quotes what a shell would not take as it is.
func shellWord(s string) string {
	if plainWord.MatchString(s) {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

func portOf(addr string) string { return addr[strings.LastIndexByte(addr, ':')+1:] }

func stopLocal(ctx context.Context, c *cluster.Cluster, signals <-chan os.Signal) error {
	ctx, cancel := context.WithTimeout(ctx, shutdownMax+5*time.Second)
	defer cancel()
	stopped := make(chan error, 1)
	go func() { stopped <- c.Stop(ctx) }()
	select {
	case err := <-stopped:
		return err
	case <-signals:
		return fmt.Errorf("ended at once")
	}
}

// usage says what runs and how to use it.
func usage(out io.Writer, binary string, c *cluster.Cluster) {
	var run []*cluster.Node // those that were not removed
	rows := make([][]string, 0, len(c.Nodes))
	for _, n := range c.Nodes {
		if !n.Running() {
			continue
		}
		run = append(run, n)
		rows = append(rows, []string{n.Name, "http://" + n.Client, n.Resp, fmt.Sprint(n.Pid()), n.LogFile})
	}
	fmt.Fprintf(out, "%d nodes run; Ctrl-C stops them.\n\n", len(rows))
	if len(run) == 0 {
		return // they ended meanwhile, which is told next
	}
	_ = table(out, []string{"NODE", "CLIENTS", "RESP", "PID", "LOG"}, rows) // to a terminal
	first, last := run[0], run[len(run)-1]
	fmt.Fprintf(out, `
Any node takes any request:

  curl -X POST http://%[1]s/v1/queues/mail/enqueue -d 'hello'
  curl -X POST 'http://%[2]s/v1/queues/mail/dequeue?wait=5s'
  curl -X POST http://%[1]s/v1/ack -d '{"items":[{"receipt":"RECEIPT"}]}'
  curl http://%[2]s/v1/cluster

or with this program:

%[8]s  export RAFTQ_ENDPOINTS=%[3]s
  raftq enqueue mail hello
  raftq dequeue mail --wait 5s --ack
  raftq stats
  raftq cluster

Clients of Disque work as well:

  redis-cli -p %[5]s ADDJOB mail hello 0
  redis-cli -p %[6]s GETJOB FROM mail

One more node, from another terminal:

  %[7]s
  raftq member list

Kill one and see: kill -9 $(awk '$3=="%[9]s"{print $1}' %[4]s)
`, first.Client, last.Client, c.Endpoints(), filepath.Join(c.Dir(), "pids"), portOf(first.Resp), portOf(last.Resp), joinLine(binary, c, first), pathLine(binary), first.Name)
}

// pathLine is the line that lets a shell find this program by its name, "" when it
// does already.
func pathLine(binary string) string {
	if _, err := exec.LookPath("raftq"); err == nil || filepath.Base(binary) != "raftq" {
		return ""
	}
	return "  export PATH=" + shellWord(filepath.Dir(binary)) + ":$PATH\n"
}
