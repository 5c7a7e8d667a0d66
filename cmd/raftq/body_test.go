package main

import (
	"strings"
	"testing"
	"unicode/utf8"
)

// A preview is one line of printable characters, never wider than asked for,
// whatever the body holds.
func TestPreview(t *testing.T) {
	for _, c := range []struct {
		body  string
		width int
		want  string
	}{
		{"", 20, "(empty)"},
		{"hello", 20, "hello"},
		{"hello", 5, "hello"},
		{"hello!", 5, "hell…"},
		{"two\nlines", 20, `"two\nlines"`},
		{"\x1b[31mred", 20, `"\x1b[31mred"`},
		{"right\u202eleft", 30, `"right\u202eleft"`},
		{strings.Repeat("é", 30), 5, "éééé…"},
		{"\xff\x00\x01", 40, "(3 B of binary) ff0001"},
		{"zero\x00", 40, "(5 B of binary) 7a65726f00"},
		{strings.Repeat("\xff", 5000), 60, "(4.9 KiB of binary) ffffffffffffffffffffffffffffffff…"},
		{strings.Repeat("\xff", 5000), 10, "(4.9 KiB …"},
	} {
		if got := preview([]byte(c.body), c.width); got != c.want {
			t.Errorf("preview(%.20q, %d) = %q, want %q", c.body, c.width, got, c.want)
		}
	}
	long := strings.Repeat("line of ünïcödé\n", 100_000)
	for width := 1; width < 200; width++ {
		got := preview([]byte(long), width)
		if n := utf8.RuneCountInString(got); n > width || !strings.HasSuffix(got, "…") {
			t.Errorf("width %d: %d characters, %q", width, n, got)
		}
	}
}

// What a person reads of a body acts on no terminal, and text keeps its lines.
func TestReadable(t *testing.T) {
	for in, want := range map[string]string{
		"":                   "",
		"hello":              "hello\n",
		"two\nlines\n":       "two\nlines\n",
		"a\tb\r\x1b[2Jc":     "a\tb\\r\\x1b[2Jc\n",
		"\xff\xfe":           "00000000  ff fe                                             |..|\n",
		"quote' \" ü \u202e": "quote' \" ü \\u202e\n",
	} {
		if got := readable([]byte(in)); got != want {
			t.Errorf("readable(%q) = %q, want %q", in, got, want)
		}
	}
	got := readable(make([]byte, 300))
	if !strings.HasSuffix(got, "… 300 B in all; --raw prints them\n") || strings.Count(got, "\n") > 20 {
		t.Errorf("a large binary: %q", got)
	}
}

func TestPrintable(t *testing.T) {
	for in, want := range map[string]string{"plain ü": "plain ü", "a\nb": `"a\nb"`, "\xff": `"\xff"`, "": "", "tab\t": `"tab\t"`} {
		if got := printable([]byte(in)); got != want {
			t.Errorf("printable(%q) = %q, want %q", in, got, want)
		}
	}
}
