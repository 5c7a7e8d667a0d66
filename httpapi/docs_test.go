package httpapi

import (
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"raftq/fsm"
)

func readDoc(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile("../docs/rest.md")
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// fastReplica answers what was asked for fast as a leader would, with the batch.
type fastReplica struct{ *inProcess }

func (r fastReplica) Do(op fsm.Op, fast bool, timeout time.Duration, gone <-chan struct{}) (fsm.Result, error) {
	res, err := r.inProcess.Do(op, fast, timeout, gone)
	if fast && err == nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		res.Fast, res.Batch = true, fsm.BatchRef{Node: testOrigin, Epoch: testEpoch, Number: r.number - 1}
	}
	return res, err
}

// TestDocExamples proves that each example of docs/rest.md runs, in order, and
// that none is answered with an error.
func TestDocExamples(t *testing.T) {
	if _, err := exec.LookPath("curl"); err != nil {
		t.Skip("curl is not installed")
	}
	addr := listen(t, newServer(t, fastReplica{newInProcess(t)}, Options{}))
	dir := t.TempDir()
	for _, m := range regexp.MustCompile("(?s)```sh\n(.*?)```").FindAllStringSubmatch(readDoc(t), -1) {
		script := strings.ReplaceAll(m[1], "localhost:8080", addr)
		script = strings.ReplaceAll(script, "curl ", "curl -sS --fail-with-body --max-time 10 ")
		cmd := exec.Command("sh", "-ec", script)
		cmd.Dir = dir
		out, err := cmd.CombinedOutput()
		if err != nil || strings.Contains(string(out), `"code"`) {
			t.Errorf("%v in\n%s\n%s", err, m[1], out)
		}
	}
}

// TestDocCovers proves that docs/rest.md names each route, option and code.
func TestDocCovers(t *testing.T) {
	doc := readDoc(t)
	for i := range routes {
		path := routes[i].pattern
		for _, cut := range []string{"/v1/queues/{q}", "/{id}", "*"} {
			path = strings.TrimSuffix(strings.TrimPrefix(path, cut), cut)
		}
		if !strings.Contains(doc, path) {
			t.Errorf("no %s", routes[i].pattern)
		}
	}
	for o := optNone + 1; o < optionCount; o++ {
		if !strings.Contains(doc, o.String()) {
			t.Errorf("no option %s", o)
		}
	}
	for _, c := range fsm.Codes()[1:] {
		if !strings.Contains(doc, "`"+c.String()+"`") {
			t.Errorf("no code %s", c)
		}
	}
	for _, k := range []*kind{kindNoRoute, kindNoMethod, kindTimeout, kindHeaders, kindInternal} {
		if !strings.Contains(doc, "`"+k.code+"`") {
			t.Errorf("no code %s", k.code)
		}
	}
}
