package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"raftq/cluster"
)

// exampleShell is what the examples run in. A line that fails ends the example,
// but for the exit code of "nothing there". raftq is a function, so that what runs until
// Ctrl-C is interrupted once it is at work and has to end well, and what takes long
// is kept short.
const exampleShell = `set -euo pipefail
raftq() {
	case "$1" in
	serve) endless 'node runs' "$@" ;;
	local) endless 'Kill one' local --client-port "$LOCAL_CLIENT" --peer-port "$LOCAL_PEER" --resp-port "$LOCAL_RESP" "${@:2}" ;;
	demo) command raftq "$@" --jobs 60 --duration 1s ;;
	bench)
		case "${2-}" in
		report) command raftq "$@" --duration 100ms --limit 5s || test $? = 1 -a -s report.html ;; # in part
		render) command raftq "$@" ;;
		*) command raftq "$@" --duration 200ms --warmup 50ms ;;
		esac ;;
	work)
		case "$*" in
		*--until-empty*|*--max*) command raftq "$@" ;;
		*) endless 'taking jobs' "$@" ;;
		esac ;;
	stats)
		case "$*" in
		*--watch*--frames*) command raftq "$@" ;;
		*--watch*) endless 'QUEUE' "$@" ;;
		*) command raftq "$@" ;;
		esac ;;
	*) command raftq "$@" ;;
	esac
}
endless() {
	local begun=$1 out pid
	shift
	out=$(mktemp)
	command raftq "$@" >"$out" 2>&1 &
	pid=$!
	until grep -q "$begun" "$out"; do
		kill -0 $pid 2>/dev/null || { cat "$out"; wait $pid; return 1; }
		sleep 0.05
	done
	kill -INT $pid
	wait $pid || { cat "$out"; return 1; }
}
`

// leaves returns each command that somebody may run.
func leaves(c *cobra.Command) []*cobra.Command {
	var all []*cobra.Command
	if c.Runnable() && !c.Hidden && !c.HasAvailableSubCommands() {
		all = append(all, c)
	}
	for _, sub := range c.Commands() {
		if sub.Hidden {
			continue
		}
		if sub.Runnable() && sub.HasAvailableSubCommands() && sub.Example != "" {
			all = append(all, sub) // does something itself, as bench
		}
		all = append(all, leaves(sub)...)
	}
	return all
}

// Every command has an example in its help, and every example runs, as it stands,
// on a real cluster.
func TestExamples(t *testing.T) {
	if testing.Short() {
		t.Skip("takes half a minute")
	}
	for _, tool := range []string{"bash", "jq"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("%s is not installed", tool)
		}
	}
	c := startNodes(t, 3)
	bin := t.TempDir()
	if err := os.Symlink(self(t), filepath.Join(bin, "raftq")); err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, cmd := range leaves(newRoot(new(bool))) {
		if seen[cmd.CommandPath()] {
			continue
		}
		seen[cmd.CommandPath()] = true
		t.Run(strings.ReplaceAll(cmd.CommandPath(), " ", "_"), func(t *testing.T) {
			if strings.TrimSpace(cmd.Example) == "" {
				t.Fatal("its help has no example")
			}
			runExample(t, c, bin, cmd.Example)
		})
	}
	if len(seen) < 20 {
		t.Errorf("only %d commands were found", len(seen))
	}
}

func runExample(t *testing.T, c *cluster.Cluster, bin, example string) {
	t.Helper()
	dir := t.TempDir()
	addresses := strings.NewReplacer("127.0.0.1:8080", c.Nodes[0].Client, "127.0.0.1:8081", c.Nodes[1].Client, "127.0.0.1:8082", c.Nodes[2].Client)
	cmd := exec.CommandContext(within(t, time.Minute), "bash", "-c", exampleShell+addresses.Replace(example))
	cmd.Dir = dir
	cmd.WaitDelay = time.Second
	cmd.Env = append(cleanEnviron(), beRaftq, "HOME="+dir, "PATH="+bin+":"+os.Getenv("PATH"), "RAFTQ_ENDPOINTS="+c.Endpoints(),
		fmt.Sprintf("LOCAL_CLIENT=%d", portRange(t, 5)), fmt.Sprintf("LOCAL_PEER=%d", portRange(t, 5)),
		fmt.Sprintf("LOCAL_RESP=%d", portRange(t, 5)),
		// serve without flags takes these instead of the usual ports.
		"RAFTQ_LISTEN_CLIENT="+deadNode(t), "RAFTQ_LISTEN_PEER="+deadNode(t), "RAFTQ_LISTEN_RESP="+deadNode(t))
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s\n--- printed\n%s", err, example, out)
	}
	t.Logf("%s\n--- printed\n%s", example, out)
}

// What docs/cli.md shows runs, all of it, in order.
func TestCommandLineDoc(t *testing.T) {
	if testing.Short() {
		t.Skip("takes some seconds")
	}
	c := startNodes(t, 3)
	bin := t.TempDir()
	if err := os.Symlink(self(t), filepath.Join(bin, "raftq")); err != nil {
		t.Fatal(err)
	}
	doc, err := os.ReadFile("../../docs/cli.md")
	if err != nil {
		t.Fatal(err)
	}
	var script strings.Builder
	blocks := regexp.MustCompile("(?s)```sh\n(.*?)```").FindAllStringSubmatch(string(doc), -1)
	for _, b := range blocks {
		script.WriteString(b[1])
	}
	if len(blocks) < 6 {
		t.Fatalf("%d blocks", len(blocks))
	}
	runExample(t, c, bin, script.String())
}

// The exit codes that docs/cli.md tells are those of the help.
func TestExitCodesDoc(t *testing.T) {
	doc, err := os.ReadFile("../../docs/cli.md")
	if err != nil {
		t.Fatal(err)
	}
	codes := regexp.MustCompile(`(?m)^  (\d)  (.*)$`).FindAllStringSubmatch(exitHelp, -1)
	if len(codes) != 8 {
		t.Fatalf("%d codes in the help", len(codes))
	}
	for _, c := range codes {
		if !strings.Contains(string(doc), "| "+c[1]+" | "+c[2]+" |\n") {
			t.Errorf("docs/cli.md does not say %q of %s", c[2], c[1])
		}
	}
}

// touchWith makes a file.
func touchWith(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}
