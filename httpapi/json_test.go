package httpapi

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

// TestJSONStrings proves that strings are read and written without loss.
func TestJSONStrings(t *testing.T) {
	for _, s := range []string{"", "plain", `quote " and \ `, "\x00\x1f\n\r\t\x7f", "é€😀", "<script>", " ", strings.Repeat("é", 500)} {
		for _, text := range []string{string(appendString(nil, s)), marshal(t, s)} {
			r := jsonReader{b: []byte(text)}
			got, err := r.str()
			if err != nil || string(got) != s || r.end() != nil {
				t.Errorf("%s: read %q, %v", text, got, err)
			}
		}
		var back string
		if err := json.Unmarshal(appendString(nil, s), &back); err != nil || back != s {
			t.Errorf("%q written as %s: %v", s, appendString(nil, s), err)
		}
	}
	if got := string(appendString(nil, "a\xffb")); got != "\"a\ufffdb\"" {
		t.Errorf("bad UTF-8 written as %q", got)
	}
}

func marshal(t *testing.T, v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// TestTimes proves that times are written as package time does.
func TestTimes(t *testing.T) {
	for _, ms := range []int64{0, 1, 999, 951782400_000, 1_700_000_000_123, 4102444799_999, 253402300799_999, -1, -62135596800_000} {
		want := time.UnixMilli(ms).UTC().Format("2006-01-02T15:04:05.000Z")
		if got := string(appendRFC3339(nil, ms)); got != want {
			t.Errorf("%d: %s, want %s", ms, got, want)
		}
	}
}

// TestJSONRefused proves that what a lenient reader would change is refused.
func TestJSONRefused(t *testing.T) {
	for _, text := range []string{
		"", `"`, `"a`, `"\`, `"\u12"`, `"\ud800"`, `"\ud800A"`, `"\udc00"`, "\"\xff\"", "\"\\n\xff\"", "\"\n\"", `"\x"`,
		`{`, `{"a"}`, `{"a":}`, `{"a":1,}`, `{,}`, `[1,]`, `[1 2]`, `01`, `-`, `1.`, `1e`, `.5`, `+1`, `tru`, `nul`, `'a'`, `{"a":1}}`, `1 2`,
		strings.Repeat("[", 70) + strings.Repeat("]", 70),
	} {
		r := jsonReader{b: []byte(text)}
		_, err := r.raw()
		if err == nil {
			err = r.end()
		}
		if err == nil {
			t.Errorf("%q was accepted", text)
		}
	}
}

// FuzzJSON proves that the reader takes nothing that encoding/json refuses,
// never panics, and reads strings as it does.
func FuzzJSON(f *testing.F) {
	for _, s := range []string{`{"a":[1,-2.5e+3,"x\u00e9\ud83d\ude00",true,false,null]}`, `"\"\\\/\b\f\n\r\t"`, `[{}]`, "\"\xff\""} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		r := jsonReader{b: b}
		_, err := r.raw()
		if err == nil {
			err = r.end()
		}
		if err == nil && !json.Valid(b) {
			t.Fatalf("%q was accepted", b)
		}
		if err != nil && json.Valid(b) && utf8.Valid(b) && !strings.Contains(string(b), `\u`) && !strings.Contains(err.Error(), "deep") {
			t.Fatalf("%q was refused: %v", b, err)
		}
		r = jsonReader{b: b}
		if s, err := r.str(); err == nil && r.end() == nil {
			var want string
			if json.Unmarshal(b, &want) != nil || want != string(s) {
				t.Fatalf("%q was read as %q, want %q", b, s, want)
			}
		}
	})
}
