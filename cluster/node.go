package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
)

// Node is one member: where it is, and its process while there is one.
type Node struct {
	Name               string
	Client, Resp, Peer string // host:port
	PeerVia            string // host:port by which the others reach Peer; set before any start
	DataDir, LogFile   string
	Args               []string // further flags of serve; may be changed between starts
	Env                []string // added to its environment; may be changed between starts
	Binary             string   // path of raftq; may be changed between starts
	Joins              bool     // it joins the cluster of the others instead of being a first member; may be changed between starts
	Disk               *Disk    // of an isolated node, else nil

	cluster   *Cluster
	namespace string // of an isolated node

	mu   sync.Mutex
	proc *process // the last one started, nil before
}

// process is one run of a node.
type process struct {
	cmd   *exec.Cmd
	ended chan struct{} // closed after err is set
	err   error         // of Wait
}

func (p *process) running() bool {
	if p == nil {
		return false
	}
	select {
	case <-p.ended:
		return false
	default:
		return true
	}
}

func (n *Node) current() *process {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.proc
}

// Running tells whether the node's process is there.
func (n *Node) Running() bool { return n.current().running() }

// Pid returns the process id, 0 when the node does not run.
func (n *Node) Pid() int {
	if p := n.current(); p.running() {
		return p.cmd.Process.Pid
	}
	return 0
}

// Start starts the node's process and does not wait until it serves.
func (n *Node) Start() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.proc.running() {
		return fmt.Errorf("%s runs already (pid %d)", n.Name, n.proc.cmd.Process.Pid)
	}
	// Somebody else's node would be taken for this one.
	for _, addr := range []string{n.Client, n.Resp, n.Peer} {
		if n.namespace != "" {
			break // nobody else is there
		}
		if err := portFree(addr); err != nil {
			return fmt.Errorf("start %s: %w", n.Name, err)
		}
	}
	log, err := os.OpenFile(n.LogFile, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer log.Close() // the child has its own descriptor

	cmd := exec.Command(n.Binary, n.flags()...)
	if n.namespace != "" {
		// nsenter becomes the node: the process id stays, and so does the death signal.
		cmd = exec.Command("nsenter", append([]string{"--net=/run/netns/" + n.namespace, n.Binary}, n.flags()...)...)
	}
	cmd.Stdout, cmd.Stderr = log, log
	cmd.Env = append(cleanEnv(os.Environ()), n.Env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := n.cluster.spawner.start(cmd); err != nil {
		return fmt.Errorf("start %s: %w", n.Name, err)
	}
	p := &process{cmd: cmd, ended: make(chan struct{})}
	n.proc = p
	err = n.cluster.pids.add(n.Name, cmd.Process.Pid, startTime(cmd.Process.Pid))
	go func() {
		p.err = cmd.Wait()
		n.cluster.pids.remove(n.Name)
		close(p.ended)
	}()
	return err
}

// flags are those of serve.
func (n *Node) flags() []string {
	who := []string{"--initial-cluster", n.cluster.initialCluster()}
	if n.Joins {
		who = []string{"--join", n.cluster.others(n)}
	}
	return slices.Concat([]string{
		"serve",
		"--name", n.Name,
		"--data-dir", n.DataDir,
		"--listen-client", n.Client,
		"--listen-resp", n.Resp,
		"--listen-peer", n.Peer,
		"--advertise-peer", "http://" + n.peerVia(),
	}, who, n.Args)
}

func (n *Node) peerVia() string {
	if n.PeerVia != "" {
		return n.PeerVia
	}
	return n.Peer
}

// cleanEnv drops raftq's own variables: what the parent was told is not for
// the nodes.
func cleanEnv(env []string) []string {
	var kept []string
	for _, e := range env {
		if !strings.HasPrefix(e, "RAFTQ_") {
			kept = append(kept, e)
		}
	}
	return kept
}

// Signal sends a signal to the node's process; no process is no error.
func (n *Node) Signal(sig os.Signal) error {
	p := n.current()
	if !p.running() {
		return nil
	}
	if err := p.cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("signal %v to %s: %w", sig, n.Name, err)
	}
	return nil
}

// Kill9 ends the node's process the hard way and returns when it is gone: two
// processes must never share a data directory.
func (n *Node) Kill9() {
	p := n.current()
	if p == nil {
		return
	}
	_ = n.Signal(syscall.SIGKILL) // fails only when the process has ended
	<-p.ended
}

// Stop asks the node to end (SIGTERM) and waits until it did. When ctx ends
// first the process is killed, and the error says so.
func (n *Node) Stop(ctx context.Context) error {
	p := n.current()
	if !p.running() {
		return nil
	}
	if err := n.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	select {
	case <-p.ended:
	case <-ctx.Done():
		n.Kill9()
		return fmt.Errorf("%s did not end in time after SIGTERM and was killed\n%s", n.Name, n.logTail())
	}
	return n.endedErr(p)
}

// Wait returns when the node's process has ended, nil when with status 0.
func (n *Node) Wait(ctx context.Context) error {
	p := n.current()
	if p == nil {
		return fmt.Errorf("%s was never started", n.Name)
	}
	select {
	case <-p.ended:
		return n.endedErr(p)
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Ended is closed when the process that runs now has ended.
func (n *Node) Ended() <-chan struct{} {
	if p := n.current(); p != nil {
		return p.ended
	}
	closed := make(chan struct{})
	close(closed)
	return closed
}

func (n *Node) endedErr(p *process) error {
	if p.err == nil {
		return nil
	}
	return fmt.Errorf("%s ended: %w\n%s", n.Name, p.err, n.logTail())
}
