package main

import (
	"io"
	"net"
	"net/http"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// No connection is lost while a listener changes hands: each is answered by one
// side or the other, and by the second one alone afterwards.
func TestLend(t *testing.T) {
	for range 20 {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		say := func(text string) func(net.Conn) {
			return func(nc net.Conn) { _, _ = io.WriteString(nc, text); nc.Close() }
		}
		l := lend(ln, say("loading"))
		ask := func() string {
			nc, err := net.Dial("tcp", ln.Addr().String())
			if err != nil {
				return err.Error()
			}
			defer nc.Close()
			_ = nc.SetDeadline(time.Now().Add(10 * time.Second))
			b, err := io.ReadAll(nc)
			if err != nil {
				return err.Error()
			}
			return string(b)
		}
		if got := ask(); got != "loading" {
			t.Fatal(got)
		}
		var asked sync.WaitGroup
		for range 20 {
			asked.Go(func() {
				if got := ask(); got != "loading" && got != "open" {
					t.Error(got)
				}
			})
		}
		if err := l.takeBack(); err != nil {
			t.Fatal(err)
		}
		served := make(chan struct{})
		go func() {
			defer close(served)
			for answer := say("open"); ; {
				nc, err := ln.Accept()
				if err != nil {
					return
				}
				answer(nc)
			}
		}()
		asked.Wait()
		if got := ask(); got != "open" {
			t.Fatal(got)
		}
		ln.Close()
		<-served
	}
}

// A node that waits to be taken into a cluster answers its clients at once, over
// both protocols, and stops when it is told to.
func TestServeWhileJoining(t *testing.T) {
	first := portRange(t, 4)
	addr := func(i int) string { return "127.0.0.1:" + strconv.Itoa(first+i) }
	cmd := exec.Command(self(t), "serve", "--name", "n4", "--data-dir", t.TempDir(), "--listen-client", addr(0), "--listen-peer", addr(1),
		"--listen-resp", addr(2), "--join", addr(3)) // where nobody is
	cmd.Env = append(cleanEnviron(), beRaftq)
	out := &watchedBuffer{want: "never written", seen: make(chan struct{})}
	cmd.Stderr = out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	defer func() { _ = cmd.Process.Kill() }()

	deadline := time.Now().Add(startMax)
	for {
		nc, err := net.Dial("tcp", addr(2))
		if err == nil {
			_ = nc.SetDeadline(deadline)
			_, _ = io.WriteString(nc, "PING\r\n")
			if b, err := io.ReadAll(nc); err != nil || !strings.HasPrefix(string(b), "-LOADING ") {
				t.Errorf("%q, %v\n%s", b, err, out.String())
			}
			nc.Close()
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("%v\n%s", err, out.String())
		}
		time.Sleep(10 * time.Millisecond) // nothing tells of a port that is opened
	}
	ask := func(method, path, body string) (int, string) {
		req, err := http.NewRequestWithContext(within(t, 10*time.Second), method, "http://"+addr(0)+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		b, err := io.ReadAll(res.Body)
		if err != nil {
			t.Fatal(err)
		}
		return res.StatusCode, string(b)
	}
	if status, body := ask("GET", "/livez", ""); status != 200 {
		t.Errorf("livez: %d %s", status, body)
	}
	for _, path := range []string{"/readyz", "/startupz"} {
		if status, body := ask("GET", path, ""); status != 503 || !strings.Contains(body, `"code":"loading"`) {
			t.Errorf("%s: %d %s", path, status, body)
		}
	}
	if status, body := ask("POST", "/v1/queues/q/enqueue", "x"); status != 503 || !strings.Contains(body, `"applied":"no"`) {
		t.Errorf("enqueue: %d %s", status, body)
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-ended:
		if err == nil || !strings.Contains(out.String(), "before the node has joined") {
			t.Errorf("%v\n%s", err, out.String())
		}
	case <-time.After(startMax):
		t.Errorf("it goes on\n%s", out.String())
	}
}
