package cluster

import (
	"errors"
	"os/exec"
	"runtime"
)

// spawner starts processes from one operating system thread that lives as long
// as the cluster: Linux sends the parent-death signal when the thread that
// forked ends, not the process, and Go ends threads as it likes.
type spawner struct {
	in   chan spawning
	quit chan struct{}
}

// spawning is one process to start.
type spawning struct {
	cmd  *exec.Cmd
	done chan error
}

func newSpawner() *spawner {
	s := &spawner{in: make(chan spawning), quit: make(chan struct{})}
	go s.run()
	return s
}

func (s *spawner) run() {
	runtime.LockOSThread() // and end the thread with the goroutine: no child is left by then
	for {
		select {
		case sp := <-s.in:
			sp.done <- sp.cmd.Start()
		case <-s.quit:
			return
		}
	}
}

func (s *spawner) start(cmd *exec.Cmd) error {
	sp := spawning{cmd, make(chan error, 1)}
	select {
	case s.in <- sp:
		return <-sp.done
	case <-s.quit:
		return errors.New("the cluster is closed")
	}
}
