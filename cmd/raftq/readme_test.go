package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// Every command of the README's bash blocks works on a real cluster. A curl
// that is answered with an error status ends the block.
func TestReadmeExamples(t *testing.T) {
	for _, tool := range []string{"bash", "curl"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("%s is not installed", tool)
		}
	}
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?s)```bash\n(.*?)```").FindAllStringSubmatch(string(readme), -1)
	if len(blocks) < 2 {
		t.Fatalf("%d bash blocks in the README, want curl and raftq", len(blocks))
	}
	c := startNodes(t, 3)
	bin := t.TempDir()
	if err := os.Symlink(self(t), filepath.Join(bin, "raftq")); err != nil {
		t.Fatal(err)
	}
	addresses := strings.NewReplacer("127.0.0.1:8080", c.Nodes[0].Client, "127.0.0.1:8081", c.Nodes[1].Client, "127.0.0.1:8082", c.Nodes[2].Client)
	const strict = `set -euo pipefail
curl() { command curl -sS --fail-with-body "$@"; echo; }
`
	for _, b := range blocks {
		script := addresses.Replace(b[1])
		cmd := exec.CommandContext(within(t, time.Minute), "bash", "-c", strict+script)
		cmd.Env = append(os.Environ(), beRaftq, "PATH="+bin+":"+os.Getenv("PATH"))
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Errorf("%v\n%s\n--- printed\n%s", err, script, out)
		}
		if strings.Contains(script, "curl") {
			for _, want := range []string{`"committed":true`, `"body":"to: bob"`, `"receipt":"D-`, `"lease_until":"`, `"queue":"mail","ready":`, `"leader":"n`, "raftq_raft_term "} {
				if !strings.Contains(string(out), want) {
					t.Errorf("no %s in what the examples printed:\n%s", want, out)
				}
			}
		}
	}
}
