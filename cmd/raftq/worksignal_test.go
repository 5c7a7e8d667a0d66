package main

import (
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"raftq/cluster"
)

// startWork runs raftq work as a process of its own.
func startWork(t *testing.T, c *cluster.Cluster, args ...string) (*exec.Cmd, *watchedBuffer) {
	t.Helper()
	cmd := exec.Command(self(t), append([]string{"work", "--endpoints", c.Endpoints()}, args...)...)
	cmd.Env = append(cleanEnviron(), beRaftq)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	out := &watchedBuffer{want: "awaited", seen: make(chan struct{})}
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() }) // an error when it has ended
	return cmd, out
}

// ctrlC is what a terminal does: a signal to the whole process group.
func ctrlC(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	if err := syscall.Kill(-cmd.Process.Pid, syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
}

// endsWell waits for the end of a process.
func endsWell(t *testing.T, cmd *exec.Cmd, out *watchedBuffer) {
	t.Helper()
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	select {
	case err := <-ended:
		if err != nil {
			t.Fatalf("ended with %v\n%s", err, out)
		}
	case <-time.After(20 * time.Second):
		t.Fatalf("does not end\n%s", out)
	}
}

// Ctrl-C: the command that runs is finished and acked, and no other job is taken.
func TestWorkDrains(t *testing.T) {
	c, q := commonNode(t), t.Name()
	mustRunIn(t, c, "one\ntwo\n", "enqueue", q, "--lines")
	dir := t.TempDir()
	cmd, out := startWork(t, c, q, "--", "sh", "-c", `echo $$ >"$0/pid"; until test -e "$0/go"; do sleep 0.02; done; cat; echo`, dir)
	ctx := within(t, 20*time.Second)
	pidOf(ctx, t, filepath.Join(dir, "pid"))
	ctrlC(t, cmd)
	<-out.seen
	if info := queueOf(t, c, q); info.Leased != 1 || info.Ready != 1 {
		t.Errorf("after Ctrl-C: %+v", info.QueueInfo)
	}
	touchWith(t, filepath.Join(dir, "go"), "")
	endsWell(t, cmd, out)
	if info := queueOf(t, c, q); info.AckedTotal != 1 || info.Ready != 1 || info.Leased != 0 || info.DeliveredTotal != 1 || info.FailedTotal != 0 {
		t.Errorf("at the end: %+v\n%s", info.QueueInfo, out)
	}
	if text := out.String(); !strings.Contains(text, "\none\n") && !strings.HasPrefix(text, "one\n") || !strings.Contains(text, "1 command runs and is awaited") || !strings.Contains(text, "1 done in ") {
		t.Errorf("printed\n%s", text)
	}
}

// Ctrl-C while nothing is there to do ends at once.
func TestWorkEndsIdle(t *testing.T) {
	c, q := commonNode(t), t.Name()
	mustRun(t, c, "enqueue", q, "x")
	mustRun(t, c, "dequeue", q, "--ack")
	cmd, out := startWork(t, c, q, "--", "cat")
	waitForWaiter(within(t, 20*time.Second), t, c, q)
	begun := time.Now()
	ctrlC(t, cmd)
	endsWell(t, cmd, out)
	if took := time.Since(begun); took > 5*time.Second {
		t.Errorf("took %v", took)
	}
	if info := queueOf(t, c, q); info.Waiters != 0 {
		t.Errorf("a waiter is left: %+v", info.QueueInfo)
	}
}

// Ctrl-C twice ends the command and its children, and gives the job back without
// a failure; three times does not wait for one that does not listen.
func TestWorkCtrlCTwice(t *testing.T) {
	c := commonNode(t)
	for name, script := range map[string]string{
		"listens":         `sh -c 'echo $$ >"$0/child"; exec sleep 300' "$0" & echo $$ >"$0/pid"; wait`,
		"does not listen": `trap '' TERM; sh -c 'echo $$ >"$0/child"; exec sleep 300' "$0" & echo $$ >"$0/pid"; while :; do sleep 1; done`,
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			id := mustRun(t, c, "enqueue", name, "x")
			cmd, out := startWork(t, c, name, "--grace", "1h", "--", "sh", "-c", script, dir)
			ctx := within(t, 20*time.Second)
			pid, child := pidOf(ctx, t, filepath.Join(dir, "pid")), pidOf(ctx, t, filepath.Join(dir, "child"))
			ctrlC(t, cmd)
			<-out.seen
			ctrlC(t, cmd)
			if name == "does not listen" {
				for !strings.Contains(out.String(), "kills them") {
					if err := until(ctx, time.Now().Add(5*time.Millisecond)); err != nil {
						t.Fatalf("%v\n%s", err, out)
					}
				}
				ctrlC(t, cmd)
			}
			endsWell(t, cmd, out)
			gone(ctx, t, pid)
			gone(ctx, t, child)
			if j := jobOf(t, c, id); j.State != "ready" || j.Failures != 0 {
				t.Errorf("job = %+v\n%s", j.Job, out)
			}
			if !strings.Contains(out.String(), "0 done, 1 given back in ") {
				t.Errorf("printed\n%s", out)
			}
		})
	}
}

// A process that slept through its lease ends its command when it wakes: somebody
// else has the job by then.
func TestWorkLosesLease(t *testing.T) {
	c, q := commonNode(t), t.Name()
	id := strings.TrimSpace(mustRun(t, c, "enqueue", q, "x"))
	dir := t.TempDir()
	cmd, out := startWork(t, c, q, "--lease", "500ms", "--grace", "1h", "--", "sh", "-c", `echo $$ >"$0/pid"; exec sleep 300`, dir)
	ctx := within(t, 30*time.Second)
	pid := pidOf(ctx, t, filepath.Join(dir, "pid"))
	if err := cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	taken := mustRun(t, c, "dequeue", q, "--wait", "20s", "--lease", "1h")
	if !strings.HasPrefix(taken, id+".2.") {
		t.Fatalf("taken: %q", taken)
	}
	if err := cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	gone(ctx, t, pid)
	ctrlC(t, cmd)
	endsWell(t, cmd, out)
	if !strings.Contains(out.String(), id+" lease lost after ") || !strings.Contains(out.String(), "0 done, 1 with a lost lease in ") {
		t.Errorf("printed\n%s", out)
	}
	if j := jobOf(t, c, id); j.State != "leased" || j.Deliveries != 2 {
		t.Errorf("job = %+v", j.Job)
	}
}

// Nothing outlives a work that is killed: the command must not go on while the job
// is given to another.
func TestWorkKilled(t *testing.T) {
	c, q := commonNode(t), t.Name()
	mustRun(t, c, "enqueue", q, "x")
	dir := t.TempDir()
	cmd, _ := startWork(t, c, q, "--", "sh", "-c", `echo $$ >"$0/pid"; exec sleep 300`, dir)
	ctx := within(t, 20*time.Second)
	pid := pidOf(ctx, t, filepath.Join(dir, "pid"))
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	gone(ctx, t, pid)
}

// Somebody cancels the job: the command is ended, and the job is gone.
func TestWorkCancel(t *testing.T) {
	c, q := commonNode(t), t.Name()
	id := strings.TrimSpace(mustRun(t, c, "enqueue", q, "x"))
	dir := t.TempDir()
	cmd, out := startWork(t, c, q, "--lease", "600ms", "--max", "1", "--", "sh", "-c", `echo $$ >"$0/pid"; exec sleep 300`, dir)
	ctx := within(t, 20*time.Second)
	pid := pidOf(ctx, t, filepath.Join(dir, "pid"))
	mustRun(t, c, "job", "cancel", id)
	gone(ctx, t, pid)
	endsWell(t, cmd, out)
	if code, _, errs := raftqRun(t, "", "job", "show", id, "--endpoints", c.Endpoints()); code != exitNothing || !strings.Contains(errs, "job_gone") {
		t.Errorf("job show: exit code %d\n%s", code, errs)
	}
	if !strings.Contains(out.String(), id+" cancelled after ") || !strings.Contains(out.String(), "0 done, 1 cancelled in ") {
		t.Errorf("printed\n%s", out)
	}
}
