package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// A command line that is wrong gets exit code 2, what is wrong in the words of the
// command, and the help that tells more.
func TestUsageErrors(t *testing.T) {
	t.Setenv("RAFTQ_ENDPOINTS", deadNode(t))
	for _, c := range []struct {
		args, says, help string
	}{
		{"enque mail x", `unknown command "enque" for "raftq"; is enqueue meant?`, "raftq"},
		{"frobnicate", `unknown command "frobnicate" for "raftq"`, "raftq"},
		{"help frobnicate", `unknown command "frobnicate" for "raftq"`, "raftq help"},
		{"help enqueue more", `help: there is no command "enqueue more"`, "raftq help"},
		{"enqueue", "enqueue: want QUEUE [BODY]\n", "raftq enqueue"},
		{"enqueue mail to ann", "enqueue: want QUEUE [BODY], and there are 3 arguments; quote one that has spaces", "raftq enqueue"},
		{"queues mail", `queues: takes no arguments, not "mail"`, "raftq queues"},
		{"queue configure", "queue configure: want QUEUE\n", "raftq queue configure"},
		{"ack", "ack: want RECEIPT...\n", "raftq ack"},
		{"bench now", `bench: takes no arguments, not "now"`, "raftq bench"},
		{"enqueue mail --prio 3", "there is no flag --prio; is --priority meant?", "raftq enqueue"},
		{"enqueue mail --dealy 3s", "there is no flag --dealy; is --delay meant?", "raftq enqueue"},
		{"queue configure mail --max-failure 3", "there is no flag --max-failure; is --max-failures meant?", "raftq queue configure"},
		{"enqueue mail --frobnicate", "there is no flag --frobnicate\n", "raftq enqueue"},
		{"enqueue mail --delay", "delay: its value is missing (duration)", "raftq enqueue"},
		{"local --nodes two", `nodes: "two" is not a number`, "raftq local"},
		{"demo --jobs many", `jobs: "many" is not a number`, "raftq demo"},
		{"bench --duration 5", `duration: "5" is not a duration like`, "raftq bench"},
		{"bench --connections 1,x", `connections: "1,x" is not a list of numbers`, "raftq bench"},
		{"queue delete mail --force=perhaps", `force: strconv.ParseBool`, "raftq queue delete"},
	} {
		code, out, errs := raftqRun(t, "", strings.Fields(c.args)...)
		if code != exitUsage || out != "" || !strings.HasPrefix(errs, "raftq: ") || !strings.Contains(errs, c.says) || !strings.HasSuffix(errs, "\nhint: \""+c.help+" --help\" tells what there is\n") {
			t.Errorf("%s: exit code %d\n%s%s", c.args, code, out, errs)
		}
	}
}

func TestNearest(t *testing.T) {
	names := []string{"delay", "dedup-id", "dedup-ttl", "lease", "priority"}
	for word, want := range map[string]string{
		"prio": "priority", "dealy": "delay", "leas": "lease", "leese": "lease", "dedup": "dedup-id", "dedupid": "dedup-id",
		"x": "", "nothing": "", "d": "", "yield": "",
	} {
		if got := nearest(word, names); got != want {
			t.Errorf("%s: %q, want %q", word, got, want)
		}
	}
	for _, c := range []struct {
		a, b string
		want int
	}{{"", "", 0}, {"abc", "", 3}, {"", "ab", 2}, {"abc", "abc", 0}, {"abc", "acb", 2}, {"kitten", "sitting", 3}} {
		if got := distance(c.a, c.b); got != c.want {
			t.Errorf("%q to %q: %d, want %d", c.a, c.b, got, c.want)
		}
	}
}

// help, --help and --version are asked for, so they are results.
func TestHelpIsAResult(t *testing.T) {
	for _, args := range [][]string{{"help", "queue", "configure"}, {"queue", "configure", "--help"}, {"--help"}, {"help"}, {}} {
		code, out, errs := raftqRun(t, "", args...)
		if code != exitOK || !strings.Contains(out, "Usage:") || !strings.Contains(out, "-h, --help") || errs != "" {
			t.Errorf("%q: exit code %d\n%s%s", args, code, out, errs)
		}
	}
	_, want, _ := raftqRun(t, "", "version")
	if code, out, _ := raftqRun(t, "", "--version"); code != exitOK || out != want || !strings.HasPrefix(out, "raftq ") {
		t.Errorf("exit code %d, %q, want %q", code, out, want)
	}
}

// Without the package bash-completion the script splits the line itself.
func TestCompletionWithoutPackage(t *testing.T) {
	if _, err := exec.LookPath("bash"); err != nil {
		t.Skip("bash is not installed")
	}
	bin := t.TempDir()
	if err := os.Symlink(self(t), filepath.Join(bin, "raftq")); err != nil {
		t.Fatal(err)
	}
	const script = `set -u
COLUMNS=80
compopt() { :; }
source <(raftq completion bash)
complete_line() {
	COMP_LINE=$1 COMP_POINT=${#1} COMP_TYPE=9 COMPREPLY=()
	__start_raftq
	echo "$1: ${COMPREPLY[*]}"
}
complete_line 'raftq stat'
complete_line 'raftq stats --sort o'
complete_line 'raftq dequeue mail --consistency=f'
complete_line 'raftq bench --workload cy'
complete_line 'raftq help queue sh'
complete_line 'raftq queue '`
	cmd := exec.Command("bash", "--norc", "-c", script)
	cmd.Env = append(cleanEnviron(), beRaftq, "PATH="+bin+":"+os.Getenv("PATH"), "RAFTQ_ENDPOINTS="+deadNode(t))
	out, err := cmd.CombinedOutput()
	for _, want := range []string{"raftq stat: stats", "raftq stats --sort o: oldest\n", "--consistency=f: fast\n", "--workload cy: cycle\n", "raftq help queue sh: show", "raftq queue : configure"} {
		if err != nil || !strings.Contains(string(out), want) {
			t.Fatalf("%v, completed\n%s, want %q", err, out, want)
		}
	}
}

// local says how to find raftq where the shell does not.
func TestPathLine(t *testing.T) {
	bin := filepath.Join(t.TempDir(), "with space")
	binary := filepath.Join(bin, "raftq")
	t.Setenv("PATH", "/nowhere")
	if got, want := pathLine(binary), "  export PATH='"+bin+"':$PATH\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if got := pathLine(filepath.Join(bin, "another")); got != "" {
		t.Errorf("for a program of another name: %q", got)
	}
	if err := os.MkdirAll(bin, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(binary, nil, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin)
	if got := pathLine(binary); got != "" {
		t.Errorf("where the shell finds it: %q", got)
	}
}
