package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// shell is a command line that runs a script.
func shell(script string, grace time.Duration) *commandLine {
	return &commandLine{argv: []string{"/bin/sh", "-c", script}, grace: grace, spawn: newSpawner()}
}

// The body comes on standard input, facts in the environment; what the program
// says and how it ends is told as it is.
func TestCommandRun(t *testing.T) {
	for _, c := range []struct {
		name, script, body string
		stdout, stderr     string
		code               int
		text               string
	}{
		{"body and environment", `cat; echo " $FACT"`, "a\x00b\xff", "a\x00b\xff fact\n", "", 0, ""},
		{"body not read", `exec <&-; echo done`, strings.Repeat("x", 1<<20), "done\n", "", 0, ""},
		{"exit code, last words", `echo out; echo first >&2; echo " boom " >&2; echo >&2; exit 7`, "", "out\n", "first\n boom \n\n", 7, "boom (exit status 7)"},
		{"exit code, no words", `exit 3`, "", "", "", 3, "exit status 3"},
		{"words without a newline", `printf 'a\nb' >&2; exit 1`, "", "", "a\nb", 1, "b (exit status 1)"},
		{"words that are not text", `printf '\377\376x\n' >&2; exit 1`, "", "", "\xff\xfex\n", 1, "\uFFFDx (exit status 1)"},
		{"signal", `kill -9 $$`, "", "", "", -1, "signal: killed"},
		{"good with words", `echo warning >&2`, "", "", "warning\n", 0, ""},
		{"leaves somebody behind that holds its output", `sleep 30 & echo ok`, "", "ok\n", "", 0, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			var out, errs bytes.Buffer
			begun := time.Now()
			got := shell(c.script, time.Second).run(t.Context(), nil, []string{"FACT=fact", "PATH=" + os.Getenv("PATH")}, []byte(c.body), &out, &errs)
			if want := (ending{code: c.code, text: c.text}); got != want {
				t.Errorf("ending = %+v, want %+v", got, want)
			}
			if out.String() != c.stdout || errs.String() != c.stderr {
				t.Errorf("printed %q and %q, want %q and %q", out.String(), errs.String(), c.stdout, c.stderr)
			}
			if took := time.Since(begun); took > 10*time.Second {
				t.Errorf("took %v", took)
			}
		})
	}
}

// A long last line is cut to what the server keeps, within no character.
func TestEndingTextIsCut(t *testing.T) {
	got := shell(`head -c 3000 /dev/zero | sed 's/\x00/é/g' >&2; exit 9`, 0).run(t.Context(), nil, os.Environ(), nil, new(bytes.Buffer), new(bytes.Buffer))
	if len(got.text) > 1024 || len(got.text) < 1000 || !strings.HasPrefix(got.text, "éé") || !strings.HasSuffix(got.text, "é… (exit status 9)") {
		t.Errorf("text = %d bytes, %.20q … %q", len(got.text), got.text, got.text[max(0, len(got.text)-30):])
	}
}

// What cannot be started is told from what failed.
func TestCommandNotStarted(t *testing.T) {
	l := &commandLine{argv: []string{"/does/not/exist"}, spawn: newSpawner()}
	if got := l.run(t.Context(), nil, nil, nil, new(bytes.Buffer), new(bytes.Buffer)); got.notStarted == nil || got.stopped || got.code != 0 {
		t.Errorf("ending = %+v", got)
	}
}

// pidOf waits until a file holds a process id.
func pidOf(ctx context.Context, t *testing.T, path string) int {
	t.Helper()
	for {
		text, err := os.ReadFile(path)
		if err == nil && strings.HasSuffix(string(text), "\n") {
			pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
			if err != nil {
				t.Fatal(err)
			}
			return pid
		}
		if err := until(ctx, time.Now().Add(5*time.Millisecond)); err != nil {
			t.Fatalf("%s: no process id: %v", path, err)
		}
	}
}

// gone waits until a process has ended.
func gone(ctx context.Context, t *testing.T, pid int) {
	t.Helper()
	for {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if _, state, _ := strings.Cut(string(stat), ") "); err != nil || strings.HasPrefix(state, "Z") {
			return
		}
		if err := until(ctx, time.Now().Add(5*time.Millisecond)); err != nil {
			t.Fatalf("process %d is still there: %s", pid, stat)
		}
	}
}

// When its time is over the whole process group ends: asked first, killed after
// the grace or when asked to hurry. The program's children go, too.
func TestCommandStop(t *testing.T) {
	const child = `sh -c 'echo $$ >"$0"; exec sleep 300' "$DIR/child" & echo $$ >"$DIR/pid"; `
	for _, c := range []struct {
		name, script string
		grace        time.Duration
		hurry        bool
		code         int
		within       time.Duration
	}{
		{"listens", child + `wait`, time.Minute, false, -1, 20 * time.Second},
		{"ends well when asked", `trap 'exit 0' TERM; ` + child + `wait`, time.Minute, false, 0, 20 * time.Second},
		{"does not listen", `trap '' TERM; ` + child + `while :; do sleep 1; done`, 100 * time.Millisecond, false, -1, 20 * time.Second},
		{"does not listen, in a hurry", `trap '' TERM; ` + child + `while :; do sleep 1; done`, time.Hour, true, -1, 20 * time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			kill := make(chan struct{})
			done := make(chan ending, 1)
			var out, errs bytes.Buffer
			go func() {
				done <- shell(c.script, c.grace).run(ctx, kill, append(os.Environ(), "DIR="+dir), nil, &out, &errs)
			}()
			waiting := within(t, 20*time.Second)
			pid, grandchild := pidOf(waiting, t, filepath.Join(dir, "pid")), pidOf(waiting, t, filepath.Join(dir, "child"))
			if group, err := unix.Getpgid(pid); err != nil || group != pid {
				t.Errorf("process group %d, %v; want one of its own, %d", group, err, pid)
			}
			cancel()
			if c.hurry {
				close(kill)
			}
			select {
			case got := <-done:
				if !got.stopped || got.code != c.code {
					t.Errorf("ending = %+v, want stopped with code %d", got, c.code)
				}
			case <-time.After(c.within):
				t.Fatal("it goes on")
			}
			gone(waiting, t, pid)
			gone(waiting, t, grandchild)
		})
	}
}

// What a program printed as it was stopped is still passed on, and one that
// ended before it was asked counts as done.
func TestCommandEndsInTime(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	var out bytes.Buffer
	cmd := shell(`echo done`, time.Second)
	start := cmd.spawn
	cmd.spawn = func(c *exec.Cmd) error {
		err := start(c)
		awaitEnd(c.Process.Pid)
		cancel()
		return err
	}
	if got := cmd.run(ctx, nil, os.Environ(), nil, &out, new(bytes.Buffer)); got.stopped || got.code != 0 || out.String() != "done\n" {
		t.Errorf("ending = %+v, printed %q", got, out.String())
	}
}

// Lines of several programs are not mixed; each has its prefix.
func TestPrefixer(t *testing.T) {
	var out bytes.Buffer
	a, b := &prefixer{w: &out, prefix: "a| "}, &prefixer{w: &out, prefix: "b| "}
	for _, w := range []struct {
		p    *prefixer
		text string
	}{{a, "one\ntw"}, {b, "x"}, {a, "o\n\nthree"}, {b, "y\n"}, {a, ""}, {a, " end"}} {
		if n, err := w.p.Write([]byte(w.text)); n != len(w.text) || err != nil {
			t.Fatalf("Write = %d, %v", n, err)
		}
	}
	for _, p := range []*prefixer{a, b} {
		if err := p.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if want := "a| one\na| two\na| \nb| xy\na| three end\n"; out.String() != want {
		t.Errorf("printed %q, want %q", out.String(), want)
	}
	out.Reset()
	if _, err := a.Write(bytes.Repeat([]byte("x"), lineMax+1)); err != nil || out.Len() != lineMax+1+len("a| \n") {
		t.Errorf("an endless line: %d bytes written, %v", out.Len(), err)
	}
}

// The last line that says something, however it comes in pieces.
func TestLastLine(t *testing.T) {
	for in, want := range map[string]string{
		"":                   "",
		"\n\n":               "",
		"a":                  "a",
		"a\nb\n":             "b",
		"a\n  b  \n\n \n":    "b",
		"a\nhalf":            "half",
		"a\n\xffb\n":         "\uFFFDb",
		"x\r\n":              "x",
		"one\ntwo\nthree \t": "three",
	} {
		for size := 1; size <= 4; size++ {
			l := &lastLine{}
			for rest := []byte(in); len(rest) > 0; {
				n := min(size, len(rest))
				_, _ = l.Write(rest[:n]) // never fails
				rest = rest[n:]
			}
			if got := l.line(); got != want {
				t.Errorf("%q in pieces of %d: %q, want %q", in, size, got, want)
			}
		}
	}
	l := &lastLine{}
	for range 100 {
		_, _ = l.Write(bytes.Repeat([]byte("x"), lineMax/10))
	}
	if len(l.rest) > lineMax {
		t.Errorf("%d bytes are kept of an endless line", len(l.rest))
	}
}
