package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"raftq/fsm"
)

// commandLine is the program that work runs for each job.
type commandLine struct {
	argv  []string
	grace time.Duration // between SIGTERM and SIGKILL
	spawn func(*exec.Cmd) error
}

// ending is how the program ended for one job.
type ending struct {
	notStarted error // it could not be started: says nothing of the job
	stopped    bool  // by us, because ctx ended
	code       int   // exit code; -1: by a signal
	text       string
}

// outputLeft is how long output is awaited once the program has ended: a
// process that it left behind may keep the pipe open for ever.
const outputLeft = 500 * time.Millisecond

// run runs the program with body as its standard input, in a process group of
// its own, so that a Ctrl-C meant for us does not reach it. When ctx ends, the
// whole group gets SIGTERM, and SIGKILL after the grace or when kill is closed;
// run returns when the program is gone.
func (l *commandLine) run(ctx context.Context, kill <-chan struct{}, env []string, body []byte, stdout, stderr io.Writer) ending {
	said := &lastLine{}
	cmd := exec.Command(l.argv[0], l.argv[1:]...)
	cmd.Env = env
	cmd.Stdin = bytes.NewReader(body)
	cmd.Stdout, cmd.Stderr = stdout, io.MultiWriter(stderr, said)
	cmd.WaitDelay = outputLeft
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := l.spawn(cmd); err != nil {
		return ending{notStarted: err}
	}
	group := -cmd.Process.Pid
	ended := make(chan struct{})
	go func() {
		awaitEnd(cmd.Process.Pid)
		close(ended)
	}()
	stopped := false
	select {
	case <-ended:
	case <-ctx.Done():
		if stopped = !hasEnded(cmd.Process.Pid); stopped {
			l.stop(group, ended, kill)
		}
	}
	err := cmd.Wait()
	if errors.Is(err, exec.ErrWaitDelay) {
		err = nil // it ended well, only somebody kept its output
	}
	return ending{stopped: stopped, code: cmd.ProcessState.ExitCode(), text: endingText(err, said.line())}
}

// stop ends a process group. Its leader is not reaped before ended is closed
// and run goes on, so the number cannot be another group's by now.
func (l *commandLine) stop(group int, ended, kill <-chan struct{}) {
	_ = unix.Kill(group, unix.SIGTERM) // no such process: all ended by themselves
	patience := time.NewTimer(l.grace)
	defer patience.Stop()
	select {
	case <-ended:
	case <-patience.C:
	case <-kill:
	}
	_ = unix.Kill(group, unix.SIGKILL) // what did not listen, and what the leader left behind
	<-ended
}

// awaitEnd returns when a child has ended, and leaves it to be reaped.
func awaitEnd(pid int) {
	for unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil) == unix.EINTR {
	}
}

// hasEnded tells whether a child that was not reaped yet has ended.
func hasEnded(pid int) bool {
	var info unix.Siginfo
	err := unix.Waitid(unix.P_PID, pid, &info, unix.WEXITED|unix.WNOWAIT|unix.WNOHANG, nil)
	return err == nil && info.Signo != 0
}

// endingText is what is told of a program that failed: its last words and how
// it ended; empty when it did not fail.
func endingText(err error, last string) string {
	if err == nil {
		return ""
	}
	text := err.Error()
	if last != "" {
		text = fmt.Sprintf("%s (%s)", clipBytes(last, fsm.ErrorTextMax-len(text)-3), text)
	}
	return text
}

// newSpawner returns a function that starts processes from one operating
// system thread that never ends: Linux sends the parent-death signal when the
// thread that forked ends, and Go ends threads as it likes. So nothing that
// work started outlives it, even after kill -9.
func newSpawner() func(*exec.Cmd) error {
	type spawning struct {
		cmd  *exec.Cmd
		done chan error
	}
	in := make(chan spawning)
	go func() {
		runtime.LockOSThread()
		for s := range in {
			s.done <- s.cmd.Start()
		}
	}()
	return func(cmd *exec.Cmd) error {
		s := spawning{cmd, make(chan error, 1)}
		in <- s
		return <-s.done
	}
}
