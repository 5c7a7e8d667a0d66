package consistency

import (
	"bytes"
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

// seededBug is a bug that a process can be given on purpose (seededbugs_test.go has
// the list). A build with the tag "seeded" reads its name from SEEDED_BUG; in every
// other build the name is an empty constant, and what asks for it compiles away. The
// tests are worth what they find of them.
type seededBug struct {
	name, what string
	block      *seededBlock // the cheapest that finds it
}

// seededBlock is a part of the tests. One build of its package serves all bugs.
type seededBlock struct {
	pkg, run, title string
	args            []string
	seeds           int  // of the simulator, until one finds it, in rounds of seedsOfRound
	process         bool // the bug is in the processes that are tested, not in the tests
}

const seedsOfRound = 10

// TestSeededBugs gives each bug to a build and wants the block that is meant for it
// to fail; with RAFTQ_SEEDED_BUGS=all it also says which parts of the suite find it.
// RAFTQ_SEEDED_REPORT names a file for the table. Without either it takes some, other
// ones each day, of one package. Blocks pass without a bug, which every other test
// run shows.
func TestSeededBugs(t *testing.T) {
	if testing.Short() {
		t.Skip("make seeded-bugs runs all")
	}
	mode := os.Getenv("RAFTQ_SEEDED_BUGS")
	bugs, builds := seededBugs, seededBuilds{dir: t.TempDir(), built: map[string]string{}}
	if mode == "" {
		bugs = bugsOfDay(time.Now().Unix() / (24 * 3600))
	}
	report := []string{"| bug | what it does | found by | in |", "|---|---|---|---|"}
	for _, bug := range bugs {
		t.Run(bug.name, func(t *testing.T) {
			test := builds.of(t, bug.block)
			found, took, out := bug.try(t, bug.block, test)
			if !found {
				t.Errorf("%s (%s): %s %s does not find it\n%s", bug.name, bug.what, bug.block.pkg, bug.block.run, out)
				return
			}
			t.Logf("%s: found by %s %s in %v: %s", bug.what, bug.block.pkg, bug.block.run, took.Round(time.Millisecond), why(out))
			report = append(report, fmt.Sprintf("| `%s` | %s | %s | %s |", bug.name, bug.what, bug.block.title, effort(took, out)))
			if mode != "all" {
				return
			}
			for _, b := range suiteBlocks {
				found, took, out := bug.try(t, b, builds.of(t, b))
				t.Logf("%s: %s: found %v, %v: %s", bug.name, b.run, found, took.Round(time.Second), why(out))
			}
		})
	}
	text := strings.Join(report, "\n") + "\n"
	t.Logf("%d of %d bugs were looked for, %d found\n%s", len(bugs), len(seededBugs), len(report)-2, text)
	if path := os.Getenv("RAFTQ_SEEDED_REPORT"); path != "" {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Error(err)
		}
	}
}

// bugsOfDay are a few that other days' runs do not take, all found by one package's
// cheap tests, so that one build does for them.
func bugsOfDay(day int64) (bugs []seededBug) {
	const some = 4
	var cheap []seededBug
	for _, bug := range seededBugs {
		if bug.block.pkg == blockMachine.pkg {
			cheap = append(cheap, bug)
		}
	}
	for i := range some {
		bugs = append(bugs, cheap[(int(day)*some+i)%len(cheap)])
	}
	return bugs
}

// TestSeededNames proves that each bug of the list is in the code, in one package
// alone, and each in the code on the list.
func TestSeededNames(t *testing.T) {
	files, err := filepath.Glob("../*/*.go")
	if err != nil {
		t.Fatal(err)
	}
	asked := regexp.MustCompile(`seeded [!=]= "([^"]*)"`)
	in := map[string]string{}
	for _, path := range files {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		src, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range asked.FindAllSubmatch(src, -1) {
			name, pkg := string(m[1]), filepath.Base(filepath.Dir(path))
			if was := cmp.Or(in[name], pkg); was != pkg {
				t.Errorf("%s is in %s and in %s", name, was, pkg)
			}
			in[name] = pkg
		}
	}
	for _, bug := range seededBugs {
		if in[bug.name] == "" {
			t.Errorf("%s is nowhere, or twice on the list", bug.name)
		}
		delete(in, bug.name)
	}
	for name, pkg := range in {
		t.Errorf("%s in %s is not on the list", name, pkg)
	}
}

// seededBuilds builds a package's tests once.
type seededBuilds struct {
	dir   string
	built map[string]string
}

func (b *seededBuilds) of(t *testing.T, block *seededBlock) string {
	t.Helper()
	if block.process {
		b.make(t, "raftq", "build", "-tags", "seeded", "./cmd/raftq")
		return b.make(t, "process-"+filepath.Base(block.pkg), "test", "-c", block.pkg)
	}
	return b.make(t, filepath.Base(block.pkg), "test", "-c", "-tags", "seeded", block.pkg)
}

func (b *seededBuilds) make(t *testing.T, name string, args ...string) string {
	t.Helper()
	path := filepath.Join(b.dir, name)
	if b.built[name] == "" {
		cmd := exec.Command("go", append(args[:len(args)-1:len(args)-1], "-o", path, args[len(args)-1])...)
		cmd.Dir = ".."
		if text, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", cmd.Args, err, text)
		}
		b.built[name] = path
	}
	return path
}

// try runs a block with the bug.
func (bug seededBug) try(t *testing.T, b *seededBlock, test string) (found bool, took time.Duration, out string) {
	t.Helper()
	begun := time.Now()
	for from := 1; ; from += seedsOfRound {
		cmd := exec.Command(test, append([]string{"-test.run", b.run, "-test.v", "-test.failfast", "-test.timeout", "5m"}, b.args...)...)
		cmd.Dir, cmd.Env = filepath.Join("..", b.pkg), append(os.Environ(), "SEEDED_BUG="+bug.name)
		if b.process {
			cmd.Env = append(cmd.Env, "RAFTQ_BINARY="+filepath.Join(filepath.Dir(test), "raftq"))
		}
		if b.seeds > 0 {
			cmd.Env = append(cmd.Env, fmt.Sprintf("RAFTQ_SIM_FROM=%d", from), fmt.Sprintf("RAFTQ_SIM_SEEDS=%d", seedsOfRound))
		}
		text, err := cmd.CombinedOutput()
		if err != nil {
			return true, time.Since(begun), string(text)
		}
		if from+seedsOfRound > b.seeds {
			if bytes.Contains(text, []byte("--- SKIP")) {
				t.Skipf("%s does not run here\n%s", b.run, text)
			}
			return false, time.Since(begun), string(text)
		}
	}
}

var (
	failedSeed = regexp.MustCompile(`FAIL seed (\d+)`)
	failedLog  = regexp.MustCompile(`failed after (\d+) tests`)
)

// effort says how much a block did until it found a bug.
func effort(took time.Duration, out string) string {
	least, what := 0, ""
	for _, m := range failedSeed.FindAllStringSubmatch(out, -1) {
		if n, _ := strconv.Atoi(m[1]); least == 0 || n < least {
			least, what = n, "seed"
		}
	}
	if m := failedLog.FindStringSubmatch(out); m != nil {
		least, _ = strconv.Atoi(m[1])
		least, what = least+1, "log"
	}
	text := fmt.Sprintf("%.1f s", took.Seconds())
	switch {
	case what == "":
		return text
	case least > 1:
		what += "s"
	}
	return fmt.Sprintf("%d %s, %s", least, what, text)
}

// why is the first line that says what a block has found.
func why(out string) string {
	for _, words := range [][]string{{": lost: ", "witness: ", "accounting: ", "FAIL seed", "panic:", "failed after"}, {"_test.go:"}} {
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
