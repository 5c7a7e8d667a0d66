package archtest

import (
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"path"
	"slices"
	"strings"
	"testing"
)

const module = "raftq"

// rule says what a package may import, tests apart.
type rule struct {
	// ours are packages of this module, by their path below it.
	ours []string
	// third are the only packages of others it may import, nil for any.
	third []string
}

// none: no package of others.
var none = []string{}

// rules has a line for each package, by its path below the module.
var rules = map[string]rule{
	"fsm":      {third: []string{"github.com/tidwall/btree", "github.com/cespare/xxhash/v2"}},
	"wal":      {ours: []string{"failpoint"}},
	"snapshot": {ours: []string{"failpoint"}},
	"raftnode": {ours: []string{"failpoint", "fsm", "wal", "snapshot"}},
	// Empty in every build but a test's.
	"failpoint": {third: none},
	"hangup":    {ours: []string{"fsm"}, third: []string{"github.com/prometheus/client_golang/prometheus", "golang.org/x/sys/unix"}},
	// The front ends know ops and results, and a replica through an interface of
	// their own.
	"httpapi": {ours: []string{"fsm", "hangup"}},
	"respapi": {ours: []string{"fsm", "hangup"}},
	// These speak HTTP.
	"client":  {third: none},
	"bench":   {},
	"cluster": {third: []string{"golang.org/x/sys/unix"}},
	// Everything meets here.
	"cmd/raftq":   {ours: []string{"fsm", "wal", "snapshot", "raftnode", "httpapi", "respapi", "client", "bench", "cluster"}},
	"consistency": {ours: []string{"failpoint", "fsm", "wal", "snapshot", "raftnode", "httpapi", "client", "cluster"}},
	"archtest":    {third: none},
}

// pkg is what go list says of a package.
type pkg struct {
	ImportPath string
	Standard   bool
	Export     string
	Imports    []string
}

func goList(t *testing.T, args ...string) []pkg {
	t.Helper()
	cmd := exec.Command("go", append([]string{"list", "-json=ImportPath,Standard,Export,Imports"}, args...)...)
	cmd.Dir = ".."
	out, err := cmd.Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			t.Fatalf("go list: %v\n%s", err, exit.Stderr)
		}
		t.Fatal(err)
	}
	var all []pkg
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p pkg
		if err := dec.Decode(&p); err == io.EOF {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
}

// Packages import what their rule names and nothing else.
func TestImports(t *testing.T) {
	standard := map[string]bool{}
	for _, p := range goList(t, "std") {
		standard[p.ImportPath] = true
	}
	seen := 0
	for _, p := range goList(t, "./...") {
		name := strings.TrimPrefix(p.ImportPath, module+"/")
		r, ok := ruleOf(name)
		if !ok {
			t.Errorf("package %s has no rule: say in this test what it may import", name)
			continue
		}
		seen++
		for _, imp := range p.Imports {
			switch ours, mine := strings.CutPrefix(imp, module+"/"); {
			case standard[imp] || imp == "C":
			case mine && !slices.Contains(r.ours, ours) && !strings.HasPrefix(ours, name+"/"):
				t.Errorf("%s imports %s; of ours it may import %v", name, ours, r.ours)
			case !mine && r.third != nil && !slices.Contains(r.third, imp):
				t.Errorf("%s imports %s; of others it may import %v", name, imp, r.third)
			}
		}
	}
	if seen < 5 {
		t.Fatalf("only %d packages were looked at", seen)
	}
}

// ruleOf returns the rule of a package, or of the one it stands below.
func ruleOf(name string) (rule, bool) {
	for ; name != "."; name = path.Dir(name) {
		if r, ok := rules[name]; ok {
			return r, true
		}
	}
	return rule{}, false
}

// Names that say nothing are refused.
func TestPackageNames(t *testing.T) {
	for _, p := range goList(t, "./...") {
		if base := path.Base(p.ImportPath); slices.Contains([]string{"util", "utils", "common", "types", "models", "helpers", "misc"}, base) {
			t.Errorf("%s: a package named %s holds anything", p.ImportPath, base)
		}
	}
}
