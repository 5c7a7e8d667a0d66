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

// commitsBack is how far back the earlier build is when nobody says.
const commitsBack = 20

// earlierBuild is another build of raftq: the one that RAFTQ_OLD_BINARY names, else
// one of the commit that RAFTQ_OLD_COMMIT names, or of the last tag, or of some commits
// ago, if the history is there.
func earlierBuild(t *testing.T) (path, what string) {
	t.Helper()
	if given := os.Getenv("RAFTQ_OLD_BINARY"); given != "" {
		return given, given
	}
	git := func(args ...string) (string, error) {
		cmd := exec.Command("git", args...)
		cmd.Dir = ".."
		out, err := cmd.Output()
		return strings.TrimSpace(string(out)), err
	}
	commit := os.Getenv("RAFTQ_OLD_COMMIT")
	if commit == "" {
		var err error
		if commit, err = git("describe", "--tags", "--abbrev=0", "HEAD~1"); err != nil {
			if commit, err = git("rev-parse", "--verify", "--quiet", fmt.Sprintf("HEAD~%d", commitsBack)); err != nil {
				t.Skip("no earlier build: neither RAFTQ_OLD_BINARY nor a history to build one from")
			}
		}
	}
	dir := filepath.Join(binaries, "earlier")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	archive := filepath.Join(binaries, "earlier.tar")
	if _, err := git("archive", "-o", archive, commit); err != nil {
		t.Fatalf("the sources of %s: %v", commit, err)
	}
	if out, err := exec.Command("tar", "-xf", archive, "-C", dir).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	path = filepath.Join(binaries, "raftq-earlier")
	build := exec.Command("go", "build", "-o", path, "./cmd/raftq")
	build.Dir = dir
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build %s: %v\n%s", commit, err, out)
	}
	return path, commit
}

// TestRollingUpgrade takes three nodes from an earlier build to this one and back,
// one after the other, under load: politely and by kill -9, with a minority and a
// majority of each build, led by either.
func TestRollingUpgrade(t *testing.T) {
	if suiteMode() == "" || suiteMode() == "quick" && os.Getenv("RAFTQ_OLD_BINARY") == "" {
		t.Skip("part of make consistency and consistency-long; of consistency-quick with RAFTQ_OLD_BINARY")
	}
	earlier, what := earlierBuild(t)
	t.Logf("the earlier build is %s", what)
	w := layOutWorld(t, 3)
	names := map[string]string{earlier: "the earlier build", binary: "this build"}
	for _, n := range w.c.Nodes {
		n.Binary = earlier
	}
	w.start()
	w.startLoad()
	steps := 0
	for range byMode(1, 1, 1, 4) {
		for _, to := range []string{binary, earlier} {
			for _, i := range w.rng.Perm(3) {
				begun := time.Now()
				w.load.await(100)
				n := w.c.Nodes[i]
				w.ended(fmt.Sprintf("restart of %s with %s", n.Name, names[to]), []int{i}, func() {
					if w.rng.IntN(2) == 0 {
						n.Kill9()
					} else {
						w.must(n.Stop(w.ctx))
					}
					n.Binary = to
					w.must(n.Start())
				})
				w.alive()
				// Each build leads once among this mix.
				for _, lead := range []string{earlier, binary} {
					w.lead(lead)
				}
				steps++
				t.Logf("%s runs %s: %v", n.Name, names[to], time.Since(begun).Round(time.Millisecond))
			}
		}
	}
	least := leastOf(steps)
	least.Events, least.Terms = []string{"with this build", "with the earlier build", "led by this build", "led by the earlier build"}, steps/2
	w.verdict(t.Name(), least)
}

// lead lets a node of a build lead, if there is one, and the load go on.
func (w *world) lead(build string) {
	w.t.Helper()
	for _, i := range w.others() {
		if w.c.Nodes[i].Binary != build {
			continue
		}
		w.eventually(20*time.Second, "a leader of another build", func() bool {
			if w.leader() == i {
				return true
			}
			w.transfer(i)
			return false
		})
		what := "this build"
		if build != binary {
			what = "the earlier build"
		}
		w.during(i, false, "led by "+what, func() { w.load.await(100) })
		return
	}
}
