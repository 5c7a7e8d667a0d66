package fsm

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"strconv"
	"strings"
	"testing"
)

// TestPure proves that the machine has nothing in reach that could differ
// between nodes: no clock, chance, goroutine, lock, file or float, and no
// import beyond these.
func TestPure(t *testing.T) {
	allowed := map[string]bool{
		"cmp": true, "encoding/binary": true, "errors": true, "fmt": true, "io": true, "slices": true, "strings": true,
		"unsafe":                       true, // views of entry data, bodies behind their jobs
		"sync/atomic":                  true, // stamps, which reach no output
		"github.com/tidwall/btree":     true,
		"github.com/cespare/xxhash/v2": true,
	}
	files, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	set := token.NewFileSet()
	looked := 0
	for _, f := range files {
		if !strings.HasSuffix(f.Name(), ".go") || strings.HasSuffix(f.Name(), "_test.go") {
			continue
		}
		looked++
		file, err := parser.ParseFile(set, f.Name(), nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, i := range file.Imports {
			if path, _ := strconv.Unquote(i.Path.Value); !allowed[path] {
				t.Errorf("%s imports %s", f.Name(), path)
			}
		}
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.GoStmt, *ast.SelectStmt, *ast.ChanType:
				t.Errorf("%s: concurrency", set.Position(n.Pos()))
			case *ast.Ident:
				if n.Name == "float64" || n.Name == "float32" {
					t.Errorf("%s: a float", set.Position(n.Pos()))
				}
			case *ast.BasicLit:
				if n.Kind == token.FLOAT {
					t.Errorf("%s: a float", set.Position(n.Pos()))
				}
			}
			return true
		})
	}
	if looked < 20 {
		t.Fatalf("only %d files were looked at", looked)
	}
}
