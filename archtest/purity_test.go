package archtest

import (
	"fmt"
	"go/ast"
	"go/build"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// orderless, on the line of a range over a map, says that somebody made sure of it.
const orderless = "order does not reach output"

// impure are packages whose results differ between nodes, or that wait for
// something outside.
var impure = []string{"os", "net", "sync", "context", "math/rand", "crypto/rand", "runtime", "syscall", "reflect", "log", "testing"}

// exceptions are imports that a file may have all the same.
var exceptions = map[string]string{
	"machine.go": "sync/atomic", // numbers copies; the numbers are compared and never written
}

// forbiddenFuncs of packages that are otherwise fine.
var forbiddenFuncs = map[string][]string{
	"time": {"Now", "Since", "Until", "Sleep", "After", "AfterFunc", "Tick", "NewTimer", "NewTicker"},
	"maps": {"All", "Keys", "Values", "Collect", "Insert", "Copy"}, // random order
}

// The machine is a function of the log: no clock, no chance, no goroutines, no
// floats, and no order of a map that reaches its output.
func TestMachineIsPure(t *testing.T) {
	faults, files := checkPurity(t, "../fsm", nil)
	for _, f := range faults {
		t.Error(f)
	}
	if files < 5 {
		t.Fatalf("only %d files were looked at", files)
	}
}

// The check finds each kind of impurity, and nothing else.
func TestPurityCheckFinds(t *testing.T) {
	const source = `package x

import (
	"maps"
	"math/rand"
	"time"
)

type set map[int]bool

func f(m map[string]int, s set, l []int) {
	_ = time.Now()                     // want
	go f(nil, nil, nil)                // want
	_ = rand.Int()                     // the import is the fault
	for range m {                      // want
	}
	for k := range s {                 // want
		_ = k
	}
	for k := range s { // order does not reach output
		_ = k
	}
	for range l {
	}
	for range maps.Keys(m) {           // want
	}
	_ = time.Duration(1)
	_ = 1.5 * float64(len(l))          // want
	select {}                          // want
	c := make(chan int)                // want
	_ = c
}
`
	faults, _ := checkPurity(t, "", map[string]string{"x.go": source})
	want := map[int]bool{5: true} // the import of math/rand
	for i, line := range strings.Split(source, "\n") {
		if strings.Contains(line, "// want") {
			want[i+1] = true
		}
	}
	got := map[int]bool{}
	for _, f := range faults {
		got[f.pos.Line] = true
		if !want[f.pos.Line] {
			t.Errorf("unexpected: %v", f)
		}
	}
	for line := range want {
		if !got[line] {
			t.Errorf("line %d was not found", line)
		}
	}
}

type fault struct {
	pos  token.Position
	what string
}

func (f fault) String() string { return fmt.Sprintf("%s: %s", f.pos, f.what) }

// checkPurity checks the sources of a directory, tests apart, or those given.
func checkPurity(t *testing.T, dir string, sources map[string]string) (faults []fault, count int) {
	t.Helper()
	fset := token.NewFileSet()
	var files []*ast.File
	add := func(name string, src any) {
		f, err := parser.ParseFile(fset, name, src, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, f)
	}
	if dir != "" {
		paths, err := filepath.Glob(filepath.Join(dir, "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range paths {
			// Files of other builds would declare the same names again.
			built, err := build.Default.MatchFile(dir, filepath.Base(p))
			if err != nil {
				t.Fatal(err)
			}
			if built && !strings.HasSuffix(p, "_test.go") {
				add(p, nil)
			}
		}
	}
	for name, src := range sources {
		add(name, src)
	}
	// With no test among them, the types of a directory that does not compile
	// are another test's fault to find.
	info := &types.Info{Types: map[ast.Expr]types.TypeAndValue{}, Uses: map[*ast.Ident]types.Object{}}
	conf := types.Config{Importer: importer.ForCompiler(fset, "gc", exports(t, files))}
	if _, err := conf.Check("x", fset, files, info); err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		faults = append(faults, impurities(fset, f, info)...)
	}
	return faults, len(files)
}

// exports finds the compiled form of what the files import.
func exports(t *testing.T, files []*ast.File) func(string) (io.ReadCloser, error) {
	t.Helper()
	args := []string{"-export", "-deps"}
	for _, f := range files {
		for _, imp := range f.Imports {
			args = append(args, strings.Trim(imp.Path.Value, `"`))
		}
	}
	where := map[string]string{}
	if len(args) > 2 {
		for _, p := range goList(t, args...) {
			where[p.ImportPath] = p.Export
		}
	}
	return func(path string) (io.ReadCloser, error) { return os.Open(where[path]) }
}

func impurities(fset *token.FileSet, f *ast.File, info *types.Info) (faults []fault) {
	allowed := map[int]bool{} // lines
	for _, group := range f.Comments {
		for _, c := range group.List {
			if strings.Contains(c.Text, orderless) {
				allowed[fset.Position(c.Pos()).Line] = true
			}
		}
	}
	report := func(n ast.Node, format string, args ...any) {
		faults = append(faults, fault{fset.Position(n.Pos()), fmt.Sprintf(format, args...)})
	}
	for _, imp := range f.Imports {
		for _, bad := range impure {
			if path := strings.Trim(imp.Path.Value, `"`); path == bad || strings.HasPrefix(path, bad+"/") {
				if exceptions[filepath.Base(fset.Position(f.Pos()).Filename)] != path {
					report(imp, "import of %s", path)
				}
			}
		}
	}
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt:
			report(n, "goroutine")
		case *ast.SelectStmt:
			report(n, "select")
		case *ast.ChanType:
			report(n, "channel")
		case *ast.RangeStmt:
			if _, ok := info.TypeOf(n.X).Underlying().(*types.Map); ok && !allowed[fset.Position(n.Pos()).Line] {
				report(n, "range over a map; sort first, or say on this line: // %s", orderless)
			}
		case *ast.SelectorExpr:
			fn, ok := info.Uses[n.Sel].(*types.Func)
			if !ok || fn.Pkg() == nil || fn.Signature().Recv() != nil {
				break
			}
			for _, bad := range forbiddenFuncs[fn.Pkg().Path()] {
				if fn.Name() == bad && !allowed[fset.Position(n.Pos()).Line] {
					report(n, "%s.%s", fn.Pkg().Path(), bad)
				}
			}
		}
		if e, ok := n.(ast.Expr); ok {
			if b, ok := info.TypeOf(e).(*types.Basic); ok && b.Info()&(types.IsFloat|types.IsComplex) != 0 {
				report(n, "floating point")
				return false
			}
		}
		return true
	})
	return faults
}
