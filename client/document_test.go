package client

import (
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// document is what the test reads of a node's /openapi.json.
type document struct {
	Paths      map[string]map[string]operation
	Components struct{ Schemas map[string]schema }
}

type operation struct {
	Parameters []struct{ Name, In string }
	Responses  map[string]struct {
		Content map[string]struct{ Schema schema }
	}
}

type schema struct {
	Properties map[string]schema
	Enum       []any
	AllOf      []schema
}

// UnmarshalJSON takes true for a schema, which allows anything.
func (s *schema) UnmarshalJSON(b []byte) error {
	if b[0] != '{' {
		return nil
	}
	type plain schema
	return json.Unmarshal(b, (*plain)(s))
}

func getDocument(t *testing.T, c *Client) *document {
	t.Helper()
	ans, err := c.Do(t.Context(), Request{Method: "GET", Path: "/openapi.json", Repeat: RepeatAlways})
	if err != nil {
		t.Fatal(err)
	}
	var d document
	if err := json.Unmarshal(ans.Body, &d); err != nil {
		t.Fatal(err)
	}
	return &d
}

// find returns the operation of a request, by its escaped path.
func (d *document) find(method, path string) (operation, bool) {
	parts := strings.Split(path, "/")
	for pattern, methods := range d.Paths {
		names := strings.Split(pattern, "/")
		if slices.EqualFunc(names, parts, func(name, part string) bool { return name == part || strings.HasPrefix(name, "{") }) {
			op, ok := methods[strings.ToLower(method)]
			return op, ok
		}
	}
	return operation{}, false
}

func (o *operation) has(in, name string) bool {
	for _, p := range o.Parameters {
		if p.In == in && strings.EqualFold(p.Name, name) {
			return true
		}
	}
	return false
}

// What the client asks for, reads and compares is in the document of the node that
// it talks to: routes, parameters, fields of answers, codes.
func TestDocument(t *testing.T) {
	if testing.Short() {
		t.Skip("a real node")
	}
	c := newTestClient(t, Endpoints())
	d := getDocument(t, c)

	for _, tc := range wireCases(t.Context()) {
		f := startFakes(t, 1, answer{status: 200, body: tc.answer})
		if err := tc.call(fakeClient(t, f)); err != nil {
			t.Fatal(err)
		}
		got := f.requests()[0]
		op, ok := d.find(got.method, got.path)
		if !ok {
			t.Errorf("%s: there is no %s %s", tc.name, got.method, got.path)
			continue
		}
		for name := range mustURL("/?" + got.query).Query() {
			if !op.has("query", name) && !(strings.HasPrefix(name, headerField) && op.has("query", "headers")) {
				t.Errorf("%s: %s %s has no option %s", tc.name, got.method, got.path, name)
			}
		}
		for _, name := range []string{"Idempotency-Key", "If-Match", "If-None-Match"} {
			if got.header.Get(name) != "" && !op.has("header", name) {
				t.Errorf("%s: %s %s takes no %s", tc.name, got.method, got.path, name)
			}
		}
	}

	for _, x := range []struct {
		read any
		from []string
	}{
		{Job{}, []string{"Job", "Delivered"}}, {jobJSON{}, []string{"Job", "Delivered"}}, {Enqueued{}, []string{"Enqueued"}}, {Appended{}, []string{"Appended"}}, {Message{}, []string{"Message"}}, {TopicInfo{}, []string{"Topic"}}, {topicConfigJSON{}, []string{"Keeping"}}, {Cursor{}, []string{"Cursor"}}, {itemResult{}, []string{"Result", "Problem"}},
		{QueueInfo{}, []string{"Queue"}}, {Paused{}, []string{"Pausing"}}, {configJSON{}, []string{"Settings"}}, {Ending{}, []string{"Ended"}},
		{ClusterInfo{}, []string{"Cluster"}}, {Member{}, []string{"Node"}}, {MembersChanged{}, []string{"MembersChanged"}}, {MemberLine{}, []string{"Member"}}, {problem{}, []string{"Problem"}},
	} {
		for _, field := range fieldsOf(reflect.TypeOf(x.read)) {
			if !slices.ContainsFunc(x.from, func(name string) bool { _, ok := d.Components.Schemas[name].Properties[field]; return ok }) {
				t.Errorf("%T: %q is no field of %v", x.read, field, x.from)
			}
		}
	}

	ours, missing := codesOf(t), map[string]string{}
	for path, methods := range d.Paths {
		for method, op := range methods {
			for _, res := range op.Responses {
				for _, content := range res.Content {
					for _, part := range content.Schema.AllOf {
						for _, code := range part.Properties["code"].Enum {
							if name, ok := code.(string); !ok || !ours[name] {
								missing[fmt.Sprint(code)] = method + " " + path
							}
						}
					}
				}
			}
		}
	}
	for code, where := range missing {
		t.Errorf("%s may answer %s, which has no constant", where, code)
	}
}

// fieldsOf lists the JSON names that a struct is read from.
func fieldsOf(typ reflect.Type) (names []string) {
	for i := range typ.NumField() {
		f := typ.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case f.Anonymous:
			names = append(names, fieldsOf(f.Type)...)
		case name != "-" && name != "":
			names = append(names, name)
		}
	}
	return names
}

// codesOf lists the package's constants of type Code.
func codesOf(t *testing.T) map[string]bool {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "errors.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	codes := map[string]bool{}
	ast.Inspect(file, func(n ast.Node) bool {
		if call, ok := n.(*ast.CallExpr); ok {
			if fn, ok := call.Fun.(*ast.Ident); ok && fn.Name == "Code" {
				if lit, ok := call.Args[0].(*ast.BasicLit); ok {
					code, err := strconv.Unquote(lit.Value)
					if err != nil {
						t.Fatal(err)
					}
					codes[code] = true
				}
			}
		}
		return true
	})
	if len(codes) < 20 {
		t.Fatalf("only %d codes were found", len(codes))
	}
	return codes
}
