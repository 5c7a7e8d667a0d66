package main

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
)

// The life of a queue from the command line, on a real node: configured, paused,
// with jobs that die and come back, emptied and deleted.
func TestQueueLife(t *testing.T) {
	c := commonNode(t)
	left := func(queue string, ready, delayed, held, dead int) {
		t.Helper()
		q := queueOf(t, c, queue)
		if q.Ready != ready || q.Delayed != delayed || q.Held != held || q.Dead != dead {
			t.Errorf("%s: %d ready, %d delayed, %d held, %d dead; want %d, %d, %d, %d", queue, q.Ready, q.Delayed, q.Held, q.Dead, ready, delayed, held, dead)
		}
	}
	mustRun(t, c, "queue", "configure", "orders", "--max-failures", "1", "--dead-letter", "orders.dead", "--lease", "90s")
	if out := mustRun(t, c, "queue", "show", "orders"); !strings.Contains(out, "max-failures") || !strings.Contains(out, "orders.dead") || !strings.Contains(out, "90s") {
		t.Errorf("queue show:\n%s", out)
	}

	// Two die, and are found in the other queue with where they came from.
	mustRunIn(t, c, "one\ntwo\n", "enqueue", "orders", "--lines")
	mustRun(t, c, "nack", first(mustRun(t, c, "dequeue", "orders")), "--error", "no stock")
	mustRun(t, c, "reject", first(mustRun(t, c, "dequeue", "orders")), "--error", "no order")
	left("orders", 0, 0, 0, 0)
	left("orders.dead", 2, 0, 0, 0)
	out := mustRun(t, c, "peek", "orders.dead")
	if !strings.Contains(out, "from orders, max_failures: no stock") || !strings.Contains(out, "from orders, rejected: no order") {
		t.Errorf("peek:\n%s", out)
	}
	if out := mustRun(t, c, "redrive", "orders.dead", "--reason", "rejected"); out != "1 job is ready again\n" {
		t.Errorf("redrive: %q", out)
	}
	left("orders", 1, 0, 0, 0)
	left("orders.dead", 1, 0, 0, 0)
	mustRun(t, c, "redrive", "orders.dead", "--to", "elsewhere")
	left("elsewhere", 1, 0, 0, 0)

	// Paused: nothing comes out until resumed; nothing goes in.
	mustRun(t, c, "pause", "orders", "--out", "--for", "10m")
	if out := mustRun(t, c, "queues", "--prefix", "orders"); !strings.Contains(out, "paused out for 9m") && !strings.Contains(out, "paused out for 10m") || !strings.Contains(out, "configured") {
		t.Errorf("queues:\n%s", out)
	}
	if code, _, _ := raftqRun(t, "", "dequeue", "orders", "--endpoints", c.Endpoints()); code != exitNothing {
		t.Errorf("dequeue of a paused queue: exit code %d", code)
	}
	mustRun(t, c, "pause", "orders", "--in")
	if code, _, errs := raftqRun(t, "", "enqueue", "orders", "x", "--endpoints", c.Endpoints()); code != exitUnavailable || !strings.Contains(errs, "raftq resume") {
		t.Errorf("enqueue into a paused queue: exit code %d\n%s", code, errs)
	}
	mustRun(t, c, "resume", "orders")
	taken := mustRun(t, c, "dequeue", "orders", "--consumer", "ann", "--lease", "1h")

	// What a consumer holds is seen, and given back.
	if out := mustRun(t, c, "consumers", "show", "ann"); !strings.Contains(out, idOf(first(taken))) {
		t.Errorf("consumers show:\n%s", out)
	}
	if out := mustRun(t, c, "consumers", "release", "ann"); out != "1 job is given back\n" {
		t.Errorf("consumers release: %q", out)
	}
	left("orders", 1, 0, 0, 0)

	// Single jobs: held, requeued, deleted, waited for.
	id := first(mustRun(t, c, "enqueue", "orders", "later", "--delay", "1h"))
	left("orders", 1, 1, 0, 0)
	mustRun(t, c, "job", "hold", id)
	left("orders", 1, 0, 1, 0)
	mustRun(t, c, "job", "requeue", id)
	left("orders", 2, 0, 0, 0)
	waited := make(chan string, 1)
	go func() {
		_, out, errs := raftqRun(t, "", "job", "wait", id, "--endpoints", c.Endpoints())
		waited <- out + errs
	}()
	mustRun(t, c, "job", "delete", id)
	select {
	case got := <-waited:
		if got != "done\n" {
			t.Errorf("job wait: %q", got)
		}
	case <-time.After(20 * time.Second):
		t.Error("job wait does not end")
	}

	// Only what is meant goes.
	if code, _, errs := raftqRun(t, "", "queue", "delete", "orders", "--endpoints", c.Endpoints()); code != exitRefused || !strings.Contains(errs, "--force") {
		t.Errorf("delete of a queue with jobs: exit code %d\n%s", code, errs)
	}
	if out := mustRun(t, c, "purge", "orders"); out != "1 job is dropped\n" {
		t.Errorf("purge: %q", out)
	}
	mustRun(t, c, "queue", "delete", "orders")
	if code, _, _ := raftqRun(t, "", "queue", "show", "orders", "--endpoints", c.Endpoints()); code != exitNothing {
		t.Errorf("queue show of a deleted queue: exit code %d", code)
	}
}

// first is the first word of a line.
func first(line string) string { return strings.Fields(line)[0] }

// A configuration is changed only in the version that was looked at.
func TestConfigureVersion(t *testing.T) {
	c := commonNode(t)
	out := mustRun(t, c, "queue", "configure", "versions", "--max-len", "5")
	version := strings.TrimSpace(strings.TrimPrefix(out, "versions is configured, version "))
	mustRun(t, c, "queue", "configure", "versions", "--max-len", "6", "--if-version", version)
	code, _, errs := raftqRun(t, "", "queue", "configure", "versions", "--max-len", "7", "--if-version", version, "--endpoints", c.Endpoints())
	if code != exitRefused || !strings.Contains(errs, "etag_mismatch") || !strings.Contains(errs, "raftq queue show") {
		t.Errorf("exit code %d\n%s", code, errs)
	}
	if q := mustRun(t, c, "queue", "show", "versions", "-o", "json"); !strings.Contains(q, `"max_len":6`) {
		t.Errorf("%s", q)
	}
}

// A person at a terminal is asked before what cannot be undone; only a yes does it.
func TestConfirm(t *testing.T) {
	for answer, done := range map[string]bool{"y\n": true, "YES\n": true, "n\n": false, "\n": false, "yess\n": false} {
		tty, keyboard, seen := openKeyboard(t, 24, 80)
		t.Setenv("TERM", "xterm")
		node, calls := fakeNode(t, answerJSON(200, `{"queue":"q","purged":1}`))
		if _, err := keyboard.WriteString(answer); err != nil {
			t.Fatal(err)
		}
		code := run(t.Context(), []string{"purge", "q", "--endpoints", node}, tty, tty, tty)
		if (code == exitOK) != done || (calls.Load() == 1) != done {
			t.Errorf("%q: exit code %d, %d requests\n%s", answer, code, calls.Load(), seen)
		}
	}
	tty, _ := openTerminal(t, 24, 80)
	node, calls := fakeNode(t, answerJSON(200, `{"queue":"q","purged":1}`))
	if code := run(t.Context(), []string{"purge", "q", "--yes", "--endpoints", node}, tty, tty, tty); code != exitOK || calls.Load() != 1 {
		t.Errorf("--yes: exit code %d, %d requests", code, calls.Load())
	}
}

// A person at a terminal is told what a script knows: that the body is read from the
// keyboard, and that no job came.
func TestTerminalIsTold(t *testing.T) {
	t.Setenv("TERM", "xterm")
	for _, c := range []struct {
		args         string
		status, code int
		typed, told  string
	}{
		{"dequeue q", 204, exitNothing, "", "raftq: no job came"},
		{"enqueue q", 201, exitOK, "hi\n\x04", "raftq: reading from the terminal; Ctrl-D"},
	} {
		node, _ := fakeNode(t, func(w http.ResponseWriter, _ *http.Request) {
			if w.WriteHeader(c.status); c.status == 201 {
				_, _ = io.WriteString(w, `{"id":"D-1"}`) // a test's server
			}
		})
		args := append(strings.Fields(c.args), "--endpoints", node)
		tty, keyboard, seen := openKeyboard(t, 24, 80)
		if _, err := keyboard.WriteString(c.typed); err != nil {
			t.Fatal(err)
		}
		code := run(t.Context(), args, tty, tty, tty)
		for end := time.Now().Add(10 * time.Second); !strings.Contains(seen.String(), c.told) && time.Now().Before(end); {
			time.Sleep(time.Millisecond)
		}
		if code != c.code || !strings.Contains(seen.String(), c.told) {
			t.Errorf("%s: exit code %d, told\n%s", c.args, code, seen)
		}
		if code, _, errs := raftqRun(t, "hi", args...); code != c.code || errs != "" {
			t.Errorf("%s in a script: exit code %d, told\n%s", c.args, code, errs)
		}
	}
}
