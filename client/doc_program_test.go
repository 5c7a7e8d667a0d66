package client

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// The program of docs/client.md is built in a module of its own, as the lines in front
// of it say, and does on real nodes what it says.
func TestDocProgram(t *testing.T) {
	if testing.Short() {
		t.Skip("builds a program")
	}
	doc, err := os.ReadFile("../docs/client.md")
	if err != nil {
		t.Fatal(err)
	}
	program := regexp.MustCompile("(?s)```go\n(package main\n.*?)```").FindSubmatch(doc)
	setUp := regexp.MustCompile("(?s)```sh\nmkdir mailer && cd mailer && (.*?) && go run").FindSubmatch(doc)
	if program == nil || setUp == nil {
		t.Fatal("docs/client.md has no program, or does not say how to build it")
	}
	c := startCluster(t, 3)
	source := strings.Replace(string(program[1]), "127.0.0.1:8080,127.0.0.1:8081,127.0.0.1:8082", c.Endpoints(), 1)
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "main.go"), []byte(source), 0o644); err != nil {
		t.Fatal(err)
	}
	root, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	script := strings.Replace(string(setUp[1]), "../raftq", root, 1) + " && go build -o app ."
	build := exec.Command("sh", "-ec", script)
	build.Dir = dir
	// Without a network: what it needs is in the cache, where our go.sum vouches for it.
	build.Env = append(os.Environ(), "GOPROXY=off", "GOSUMDB=off", "GOFLAGS=")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s\n%s", err, script, out)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	app := exec.CommandContext(ctx, filepath.Join(dir, "app"))
	out := &strings.Builder{}
	app.Stdout, app.Stderr = out, out
	if err := app.Start(); err != nil {
		t.Fatal(err)
	}
	me := newTestClient(t, c.Endpoints())
	eventually(t, 20*time.Second, "an ack", func() bool {
		q, err := me.Queue(ctx, "mail")
		return err == nil && q.AckedTotal == 1
	})
	if err := app.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err := app.Wait(); err != nil || !strings.Contains(out.String(), "put in: D-") || !strings.Contains(out.String(), "to: ann, delivery 1\n") {
		t.Errorf("ended with %v, printed\n%s", err, out)
	}
}
