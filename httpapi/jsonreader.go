package httpapi

import (
	"unicode/utf8"

	"raftq/fsm"
)

// jsonReader reads JSON strictly and without allocating: strings must be UTF-8
// with paired surrogates (bodies stay byte-identical), nothing may follow the
// value, keys come out one by one so that each caller refuses what it does not
// know. A string without escapes is a slice of the input.
type jsonReader struct {
	b       []byte
	i       int
	scratch []byte // unescaped strings; only grows, so earlier ones stay valid
}

func (r *jsonReader) fail(what string) *problem {
	return refuse(fsm.CodeInvalidRequest, "JSON: %s at byte %d", what, r.i)
}

// peek skips white space and returns the next byte, 0 at the end.
func (r *jsonReader) peek() byte {
	for ; r.i < len(r.b); r.i++ {
		switch c := r.b[r.i]; c {
		case ' ', '\t', '\n', '\r':
		default:
			return c
		}
	}
	return 0
}

func (r *jsonReader) open(c byte) error {
	if r.peek() != c {
		return r.fail("want " + string(rune(c)))
	}
	r.i++
	return nil
}

// more tells whether another element of the object or array follows, n being
// how many there were, and consumes the comma or the closing byte.
func (r *jsonReader) more(closing byte, n int) (bool, error) {
	switch c := r.peek(); {
	case c == closing:
		r.i++
		return false, nil
	case n == 0:
		return true, nil
	case c == ',':
		r.i++
		return true, nil
	}
	return false, r.fail("want , or " + string(rune(closing)))
}

// key reads a member's name and the colon.
func (r *jsonReader) key() ([]byte, error) {
	k, err := r.str()
	if err != nil {
		return nil, err
	}
	if r.peek() != ':' {
		return nil, r.fail("want :")
	}
	r.i++
	return k, nil
}

// members reads an object and calls member with each name, at its value. The
// caller refuses names that it does not know.
func (r *jsonReader) members(member func(name []byte) error) error {
	if err := r.open('{'); err != nil {
		return err
	}
	for n := 0; ; n++ {
		more, err := r.more('}', n)
		if !more || err != nil {
			return err
		}
		name, err := r.key()
		if err != nil {
			return err
		}
		if err := member(name); err != nil {
			return err
		}
	}
}

// elements reads an array and calls element at each value, counted from 0.
func (r *jsonReader) elements(element func(n int) error) error {
	if err := r.open('['); err != nil {
		return err
	}
	for n := 0; ; n++ {
		more, err := r.more(']', n)
		if !more || err != nil {
			return err
		}
		if err := element(n); err != nil {
			return err
		}
	}
}

// end checks that nothing is left.
func (r *jsonReader) end() error {
	if r.peek() != 0 || r.i < len(r.b) {
		return r.fail("nothing may follow the value")
	}
	return nil
}

// str reads a string.
func (r *jsonReader) str() ([]byte, error) {
	if r.peek() != '"' {
		return nil, r.fail("want a string")
	}
	r.i++
	start, ascii := r.i, true
	for ; r.i < len(r.b); r.i++ {
		c := r.b[r.i]
		switch {
		case plain[c]:
		case c == '"':
			s := r.b[start:r.i]
			if !ascii && !utf8.Valid(s) {
				r.i = start
				return nil, r.fail("not UTF-8 (use body_base64 for binary bodies)")
			}
			r.i++
			return s, nil
		case c == '\\':
			return r.unescape(start)
		case c < ' ':
			return nil, r.fail("a control character in a string")
		default:
			ascii = false
		}
	}
	return nil, r.fail("unfinished string")
}

// unescape goes on with a string whose first backslash is at r.i.
func (r *jsonReader) unescape(start int) ([]byte, error) {
	from := len(r.scratch)
	r.scratch = append(r.scratch, r.b[start:r.i]...)
	for r.i < len(r.b) {
		c := r.b[r.i]
		switch {
		case c == '"':
			s := r.scratch[from:len(r.scratch):len(r.scratch)]
			if !utf8.Valid(s) {
				r.i = start
				return nil, r.fail("not UTF-8 (use body_base64 for binary bodies)")
			}
			r.i++
			return s, nil
		case c == '\\':
			if err := r.escape(); err != nil {
				return nil, err
			}
			continue
		case c < ' ':
			return nil, r.fail("a control character in a string")
		}
		r.scratch = append(r.scratch, c)
		r.i++
	}
	return nil, r.fail("unfinished string")
}

// escape reads one escape sequence into the scratch.
func (r *jsonReader) escape() error {
	if r.i+1 >= len(r.b) {
		return r.fail("unfinished string")
	}
	c := r.b[r.i+1]
	switch c {
	case '"', '\\', '/':
	case 'b':
		c = '\b'
	case 'f':
		c = '\f'
	case 'n':
		c = '\n'
	case 'r':
		c = '\r'
	case 't':
		c = '\t'
	case 'u':
		return r.escapeRune()
	default:
		return r.fail("unknown escape")
	}
	r.scratch = append(r.scratch, c)
	r.i += 2
	return nil
}

func (r *jsonReader) escapeRune() error {
	v, ok := r.hex4(r.i + 2)
	if !ok {
		return r.fail("want four hex digits after \\u")
	}
	n := 6
	if v >= 0xd800 && v < 0xe000 {
		low, ok := rune(0), false
		if v < 0xdc00 && r.i+7 < len(r.b) && r.b[r.i+6] == '\\' && r.b[r.i+7] == 'u' {
			low, ok = r.hex4(r.i + 8)
		}
		if !ok || low < 0xdc00 || low >= 0xe000 {
			return r.fail("half a surrogate pair")
		}
		v, n = (v-0xd800)<<10+(low-0xdc00)+0x10000, 12
	}
	r.scratch = utf8.AppendRune(r.scratch, v)
	r.i += n
	return nil
}

func (r *jsonReader) hex4(at int) (v rune, ok bool) {
	if at+4 > len(r.b) {
		return 0, false
	}
	for _, c := range r.b[at : at+4] {
		d := unhex(c)
		if d < 0 {
			return 0, false
		}
		v = v<<4 | rune(d)
	}
	return v, true
}

// value reads a scalar for an option, or the raw text of an array or object.
func (r *jsonReader) value() (value, error) {
	switch c := r.peek(); {
	case c == '"':
		s, err := r.str()
		return value{isString, s}, err
	case c == '{', c == '[':
		raw, err := r.raw()
		return value{isCompound, raw}, err
	case c == 't', c == 'f':
		raw, err := r.raw()
		return value{isBool, raw}, err
	case c == 'n':
		raw, err := r.raw()
		return value{isNull, raw}, err
	}
	raw, err := r.raw()
	return value{isNumber, raw}, err
}

// raw checks a value of any type and returns its text.
func (r *jsonReader) raw() ([]byte, error) {
	r.peek()
	start := r.i
	err := r.skip(0)
	return r.b[start:r.i], err
}

func (r *jsonReader) skip(depth int) error {
	if depth > jsonDepth {
		return r.fail("nested too deeply")
	}
	switch c := r.peek(); {
	case c == '"':
		keep := len(r.scratch)
		_, err := r.str()
		r.scratch = r.scratch[:keep]
		return err
	case c == '{':
		r.i++
		for n := 0; ; n++ {
			more, err := r.more('}', n)
			if !more || err != nil {
				return err
			}
			keep := len(r.scratch)
			if _, err := r.key(); err != nil {
				return err
			}
			r.scratch = r.scratch[:keep]
			if err := r.skip(depth + 1); err != nil {
				return err
			}
		}
	case c == '[':
		r.i++
		for n := 0; ; n++ {
			more, err := r.more(']', n)
			if !more || err != nil {
				return err
			}
			if err := r.skip(depth + 1); err != nil {
				return err
			}
		}
	case c == 't':
		return r.word("true")
	case c == 'f':
		return r.word("false")
	case c == 'n':
		return r.word("null")
	case c == '-', c >= '0' && c <= '9':
		return r.number()
	case c == 0 && r.i >= len(r.b):
		return r.fail("unexpected end")
	}
	return r.fail("want a value")
}

func (r *jsonReader) word(w string) error {
	if len(r.b)-r.i < len(w) || string(r.b[r.i:r.i+len(w)]) != w {
		return r.fail("want a value")
	}
	r.i += len(w)
	return nil
}

func (r *jsonReader) number() error {
	if r.b[r.i] == '-' {
		r.i++
	}
	first := r.i
	n := r.digits()
	if n == 0 || n > 1 && r.b[first] == '0' {
		return r.fail("malformed number")
	}
	if r.i < len(r.b) && r.b[r.i] == '.' {
		r.i++
		if r.digits() == 0 {
			return r.fail("malformed number")
		}
	}
	if r.i < len(r.b) && r.b[r.i]|0x20 == 'e' {
		r.i++
		if r.i < len(r.b) && (r.b[r.i] == '+' || r.b[r.i] == '-') {
			r.i++
		}
		if r.digits() == 0 {
			return r.fail("malformed number")
		}
	}
	return nil
}

func (r *jsonReader) digits() (n int) {
	for ; r.i < len(r.b) && r.b[r.i] >= '0' && r.b[r.i] <= '9'; r.i++ {
		n++
	}
	return n
}
