package consistency

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// seededBug is a bug that a build with the tag "seeded" can be given on purpose:
// each package has a variable of that name, which the linker sets, and which is an
// empty constant in every other build. The suite is worth what it finds of them.
type seededBug struct {
	name, pkg, what string
	block           seededBlock // the cheapest that finds it
}

// seededBlock is a part of the tests.
type seededBlock struct {
	pkg, run string
	args     []string
	rounds   int  // of 20 seeds of the simulator, until one finds it
	process  bool // the bug is in the processes that are tested, not in the tests
}

var (
	blockMachine   = seededBlock{pkg: "./fsm", run: "TestRandomEntries|TestScripts", args: []string{"-rapid.shrinktime=0s", "-rapid.nofailfile"}}
	blockSimulator = seededBlock{pkg: "./raftnode", run: "TestSim$", rounds: 20}
	blockLog       = seededBlock{pkg: "./wal", run: "."}
	blockFaults    = seededBlock{pkg: "./consistency", run: "TestFaults$", process: true}
	blockPowerCuts = seededBlock{pkg: "./consistency", run: "TestCoordinatedPowerCut", process: true}
	blockDamage    = seededBlock{pkg: "./consistency", run: "TestDamagedFilesOnAMinority", process: true}
)

var seededBugs = []seededBug{
	{"receipt-not-checked", "fsm", "an old receipt acks a job that somebody else holds", blockMachine},
	{"nack-to-tail", "fsm", "a job that comes back goes behind the others", blockMachine},
	{"dedup-not-in-snapshot", "fsm", "dedup ids are forgotten by a restart", blockMachine},
	{"failures-not-in-snapshot", "fsm", "a restart forgets how often a job failed", blockMachine},
	{"read-without-proof", "raftnode", "a strong read of a leader that was deposed", blockSimulator},
	{"read-before-commit", "raftnode", "a read of what may be lost", blockSimulator},
	{"own-term-not-awaited", "raftnode", "a new leader reads before the first entry of its term", blockSimulator},
	{"unknown-is-refused", "raftnode", "a request without an answer is said to have done nothing", blockSimulator},
	{"log-time-is-wall-time", "raftnode", "leases and delays follow the leader's wall clock", blockSimulator},
	{"note-not-read", "wal", "a log that lost promised entries is opened", blockLog},
	{"no-fsync", "wal", "answers before anything is on the disk", blockPowerCuts},
}

// suiteBlocks are the parts of the suite that a bug could be found by as well.
var suiteBlocks = []seededBlock{blockFaults, blockPowerCuts, blockDamage}

// TestSeededBugs gives each bug to a build and wants the block that is meant for it
// to fail, within its time; with RAFTQ_SEEDED_BUGS=all it also says which parts of
// the suite find it. Blocks pass without a bug, which every other test run shows.
func TestSeededBugs(t *testing.T) {
	mode := os.Getenv("RAFTQ_SEEDED_BUGS")
	if mode == "" {
		t.Skip("make seeded-bugs runs it")
	}
	for _, bug := range seededBugs {
		t.Run(bug.name, func(t *testing.T) {
			found, took, out := bug.try(t, bug.block)
			if !found {
				t.Errorf("%s (%s): %s %s does not find it\n%s", bug.name, bug.what, bug.block.pkg, bug.block.run, out)
				return
			}
			t.Logf("%s (%s): found by %s %s in %v: %s", bug.name, bug.what, bug.block.pkg, bug.block.run, took.Round(time.Millisecond), why(out))
			if mode != "all" {
				return
			}
			for _, b := range suiteBlocks {
				found, took, out := bug.try(t, b)
				t.Logf("%s: %s: found %v, %v: %s", bug.name, b.run, found, took.Round(time.Second), why(out))
			}
		})
	}
}

// try runs a block against a build with the bug. The time is that of the block, not
// of the build.
func (bug seededBug) try(t *testing.T, b seededBlock) (found bool, took time.Duration, out string) {
	t.Helper()
	dir := t.TempDir()
	flags := []string{"-tags", "seeded", "-ldflags", fmt.Sprintf("-X raftq/%s.seeded=%s", bug.pkg, bug.name)}
	test := filepath.Join(dir, "block.test")
	build := func(args ...string) {
		t.Helper()
		cmd := exec.Command("go", args...)
		cmd.Dir = ".."
		if text, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("go %v: %v\n%s", args, err, text)
		}
	}
	env := os.Environ()
	if b.process {
		raftq := filepath.Join(dir, "raftq")
		build(append(append([]string{"build"}, flags...), "-o", raftq, "./cmd/raftq")...)
		build("test", "-c", "-o", test, b.pkg)
		env = append(env, "RAFTQ_BINARY="+raftq)
	} else {
		build(append(append([]string{"test", "-c"}, flags...), "-o", test, b.pkg)...)
	}
	begun := time.Now()
	for round := range max(1, b.rounds) {
		cmd := exec.Command(test, append([]string{"-test.run", b.run, "-test.failfast", "-test.timeout", "5m"}, b.args...)...)
		cmd.Dir, cmd.Env = filepath.Join("..", b.pkg), env
		if b.rounds > 0 {
			cmd.Env = append(env, fmt.Sprintf("RAFTQ_SIM_FROM=%d", 20*round+1), "RAFTQ_SIM_SEEDS=20")
		}
		text, err := cmd.CombinedOutput()
		out = string(text)
		if err != nil {
			return true, time.Since(begun), out
		}
	}
	return false, time.Since(begun), out
}

// why is the first line that says what a block has found.
func why(out string) string {
	for _, words := range [][]string{{": lost: ", "witness: ", "accounting: ", "FAIL seed", "panic:"}, {"_test.go:"}} {
		for line := range strings.Lines(out) {
			for _, word := range words {
				if line = strings.TrimSpace(line); strings.Contains(line, word) {
					return line[:min(len(line), 240)]
				}
			}
		}
	}
	return ""
}
