package respapi

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
)

// readAll reads all commands of a text, a byte at a time or as it comes.
func readAll(src io.Reader, most int) (cmds [][]string, err error) {
	r := reader{src: src, max: most}
	for {
		args, ok, err := r.next(nil)
		if err != nil {
			return cmds, err
		}
		if ok {
			var cmd []string
			for _, a := range args {
				cmd = append(cmd, string(a))
			}
			cmds = append(cmds, cmd)
			continue
		}
		if n, err := r.fill(); err == io.EOF {
			return cmds, nil
		} else if err != nil {
			return cmds, err
		} else if n == 0 {
			return cmds, io.ErrNoProgress
		}
	}
}

func TestReader(t *testing.T) {
	big := strings.Repeat("x", 100_000)
	for _, tc := range []struct {
		text string
		want [][]string
		err  string
	}{
		{text: "", want: nil},
		{text: "PING\r\nPING\n", want: [][]string{{"PING"}, {"PING"}}},
		{text: "\r\n\n  \r\nPING x\r\n", want: [][]string{nil, nil, nil, {"PING", "x"}}},
		{text: `a "b c" 'd' "\n\x"` + "\r\n", want: [][]string{{"a", "b c", "d", "\nx"}}},
		{text: "a\t\t\"\\x4a\\xg\\\"\\\\\" 'i\\'m \\n' \"\" b\"c\n", want: [][]string{{"a", "Jxg\"\\", "i'm \\n", "", "b\"c"}}},
		{text: "'a'b\n", err: "quotes"},
		{text: strings.Repeat("a ", 5000) + "\n", err: "4096"},
		{text: strings.Repeat(" ", inlineMax-1) + "\n", want: [][]string{nil}},
		{text: "*1\r\n$4\r\nPING\r\n*2\r\n$1\r\na\r\n$0\r\n\r\n", want: [][]string{{"PING"}, {"a", ""}}},
		{text: "*0\r\nPING\r\n", want: [][]string{nil, {"PING"}}},
		{text: "*1\r\n$100000\r\n" + big + "\r\nPING\r\n", want: [][]string{{big}, {"PING"}}},
		{text: "*1\r\n$4\r\nPIN", want: nil},
		{text: "*x\r\n", err: "multibulk"},
		{text: "*-1\r\n", err: "multibulk"},
		{text: "*4097\r\n", err: "0 to 4096"},
		{text: "*" + strings.Repeat("1", 100), err: "multibulk"},
		{text: "*1\r\n:1\r\n", err: "expected '$'"},
		{text: "*1\r\n$x\r\n", err: "bulk length"},
		{text: "*1\r\n$-1\r\n", err: "bulk length"},
		{text: "*1\r\n$-2\r\n", err: "bulk length"},
		{text: "*1\r\n$-3\r\n$$", err: "bulk length"},
		{text: "*1\r\n$9223372036854775807\r\n", err: "bulk length"},
		{text: "*1\r\n$9223372036854775800\r\nabcdefghijklmnop", err: "bulk length"},
		{text: "*1\r\n$2\r\nabc\r\n", err: "bulk length"},
		{text: "*1\n", err: "multibulk"},
		{text: "*\r\n", err: "multibulk"},
		{text: "*1\r\n$01\r\na\r\n", err: "bulk length"},
		{text: "*1\r\n$+1\r\na\r\n", err: "bulk length"},
		{text: "$4\r\nPING\r\n", err: "expected '*'"},
		{text: "a \"b\r\n", err: "nbalanced"},
		{text: strings.Repeat("y", inlineMax+10), err: "inline"},
		{text: "*1\r\n$400000\r\n" + strings.Repeat("z", 400_000), err: "0 to 200000"},
	} {
		name := tc.text[:min(len(tc.text), 30)]
		sources := []io.Reader{strings.NewReader(tc.text), iotest.HalfReader(strings.NewReader(tc.text)), iotest.DataErrReader(strings.NewReader(tc.text))}
		if len(tc.text) < 1000 {
			sources = append(sources, iotest.OneByteReader(strings.NewReader(tc.text)))
		}
		for _, src := range sources {
			got, err := readAll(src, 200_000)
			if !slices.EqualFunc(got, tc.want, slices.Equal) {
				t.Errorf("%q: %.80q, want %.80q", name, got, tc.want)
			}
			if tc.err == "" && err != nil || tc.err != "" && (err == nil || !strings.Contains(err.Error(), tc.err) || !strings.HasPrefix(err.Error(), "Protocol error: ")) {
				t.Errorf("%q: error %v, want %q", name, err, tc.err)
			}
		}
	}
}

// A buffer that had to be large is let go, and views are sound until the next fill.
func TestReaderBuffer(t *testing.T) {
	text := append(packed("a", strings.Repeat("b", 150_000)), bytes.Repeat(packed("PING"), 1000)...)
	r := reader{src: bytes.NewReader(text), max: 200_000}
	n := 0
	for {
		if _, ok, err := r.next(nil); err != nil {
			t.Fatal(err)
		} else if ok {
			n++
			continue
		}
		if _, err := r.fill(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	if n != 1001 || len(r.buf) > bufferKept {
		t.Errorf("%d commands, a buffer of %d bytes", n, len(r.buf))
	}
}

// Whatever comes: no panic, the same commands however it is cut, and what it was
// is written again.
func FuzzReader(f *testing.F) {
	for _, s := range []string{"PING\r\n", "*1\r\n$4\r\nPING\r\n", "*2\r\n$1\r\na\r\n$0\r\n\r\n", "*1\r\n$-2\r\n", "*1\r\n$9223372036854775807\r\n", "a \"b\" 'c'\r\n", "*0\r\n", "$1 x\r\n", "*1\r\n$-3\r\n\r\n\r\n"} {
		f.Add([]byte(s), uint8(3))
	}
	f.Fuzz(func(t *testing.T, text []byte, cut uint8) {
		whole, err1 := readAll(bytes.NewReader(text), 1<<16)
		parts, err2 := readAll(&cutting{r: bytes.NewReader(text), n: int(cut)%7 + 1}, 1<<16)
		if (err1 == nil) != (err2 == nil) || !slices.EqualFunc(whole, parts, slices.Equal) {
			t.Fatalf("%q, %v, but in pieces %q, %v", whole, err1, parts, err2)
		}
		var again []byte
		for _, cmd := range whole {
			args := make([]any, len(cmd))
			for i := range cmd {
				args[i] = cmd[i]
			}
			again = append(again, packed(args...)...)
		}
		back, err := readAll(bytes.NewReader(again), 1<<20)
		if err != nil || !slices.EqualFunc(whole, back, slices.Equal) {
			t.Fatalf("%q came back as %q, %v", whole, back, err)
		}
	})
}

// cutting gives at most n bytes at a time.
type cutting struct {
	r io.Reader
	n int
}

func (c *cutting) Read(p []byte) (int, error) { return c.r.Read(p[:min(len(p), c.n)]) }
