package main

import (
	"bytes"
	"testing"
)

// Columns are as wide as their widest cell in characters, numbers stand to the
// right, and no line ends with spaces.
func TestTable(t *testing.T) {
	for _, c := range []struct {
		name string
		head []string
		rows [][]string
		want string
	}{
		{"no rows", []string{"A", ">B"}, nil, "A  B\n"},
		{"left and right", []string{"NAME", ">N", "NOTE"}, [][]string{{"a", "1", "x"}, {"longer", "1234", ""}},
			"NAME       N  NOTE\na          1  x\nlonger  1234\n"},
		{"characters, not bytes", []string{"NAME", ">N"}, [][]string{{"ééé", "1"}, {"abc", "22"}}, "NAME   N\nééé    1\nabc   22\n"},
		{"head is the widest", []string{">FAILED", "X"}, [][]string{{"1", "y"}}, "FAILED  X\n     1  y\n"},
	} {
		var out bytes.Buffer
		if err := table(&out, c.head, c.rows); err != nil || out.String() != c.want {
			t.Errorf("%s: %v\n%q, want\n%q", c.name, err, out.String(), c.want)
		}
	}
	var out bytes.Buffer
	if err := facts(&out, "id", "x", "empty", "", "last error", "boom"); err != nil || out.String() != "id          x\nlast error  boom\n" {
		t.Errorf("facts: %v, %q", err, out.String())
	}
}
