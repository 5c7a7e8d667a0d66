package httpapi

import (
	"bytes"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"raftq/fsm"
)

// valueKind says where a value was written: a query's text may be anything, in
// JSON each type has its own form.
type valueKind uint8

const (
	isText valueKind = iota // of a query
	isString
	isNumber
	isBool
	isNull
	isCompound
)

// value is an option as the client wrote it. Its bytes are the request's.
type value struct {
	kind valueKind
	b    []byte
}

func (v value) text(name string) ([]byte, error) {
	if v.kind != isText && v.kind != isString {
		return nil, invalid(name, "want a string")
	}
	return v.b, nil
}

func (v value) boolean(name string) (bool, error) {
	if v.kind == isText || v.kind == isBool {
		switch string(v.b) {
		case "true":
			return true, nil
		case "false":
			return false, nil
		}
	}
	return false, invalid(name, "want true or false")
}

func (v value) whole(f *optionFact) (uint64, error) {
	if v.kind == isText || v.kind == isNumber {
		if n, ok := parseUint(v.b); ok && n >= uint64(f.low) && n <= uint64(f.high) {
			return n, nil
		}
	}
	return 0, invalid(f.name, "want a whole number from %d to %d", f.low, f.high)
}

// bounded copies a text.
func (v value) bounded(f *optionFact) (string, error) {
	b, err := v.text(f.name)
	switch {
	case err != nil:
	case int64(len(b)) > f.high:
		err = invalid(f.name, "at most %d bytes, this one has %d", f.high, len(b))
	case int64(len(b)) < f.low:
		err = invalid(f.name, "must not be empty")
	}
	return string(b), err
}

// word returns the place of a word among those of the option.
func (v value) word(f *optionFact) (uint64, error) {
	if v.kind == isText || v.kind == isString {
		for i, w := range f.words {
			if string(v.b) == w {
				return uint64(i), nil
			}
		}
	}
	return 0, invalid(f.name, "want %s", strings.Join(f.words, " or "))
}

// states reads states with commas between.
func (v value) states(f *optionFact) (all fsm.StateSet, err error) {
	b, err := v.text(f.name)
	if err != nil {
		return 0, err
	}
	for name := range bytes.SplitSeq(b, []byte{','}) {
		s, ok := fsm.ParseState(string(name))
		if !ok {
			return 0, invalid(f.name, "%q is no state; they are %s", name, strings.Join(f.words, ", "))
		}
		all |= s
	}
	return all, nil
}

// queue checks and copies a queue's name.
func (v value) queue(f *optionFact) (string, error) {
	b, err := v.text(f.name)
	if err != nil {
		return "", err
	}
	return queueName(f.name, b)
}

// topic checks and copies a topic's name.
func (v value) topic(f *optionFact) (string, error) {
	b, err := v.text(f.name)
	if err != nil {
		return "", err
	}
	return topicName(f.name, b)
}

// backoff reads {"min","max"}.
func (v value) backoff(f *optionFact) (low, high int64, err error) {
	if v.kind != isCompound || v.b[0] != '{' {
		return 0, 0, invalid(f.name, `want an object such as {"min":"1s","max":"5m"}`)
	}
	seen := 0
	r := jsonReader{b: v.b}
	err = r.members(func(name []byte) error {
		val, err := r.value()
		if err != nil {
			return err
		}
		end := optionFact{name: f.name + "." + string(name), low: 1, high: f.high}
		switch string(name) {
		case "min":
			low, err = val.duration(&end)
		case "max":
			high, err = val.duration(&end)
		default:
			err = invalid(end.name, "unknown here; known are min, max")
		}
		seen++
		return err
	})
	switch {
	case err != nil:
	case low == 0 || high == 0 || seen != 2:
		err = invalid(f.name, "has a min and a max")
	case low > high:
		err = invalid(f.name, "min is longer than max")
	}
	return low, high, err
}

// duration returns milliseconds, rounded up: nothing ends early.
func (v value) duration(f *optionFact) (int64, error) {
	if v.kind != isText && v.kind != isString {
		return 0, invalid(f.name, `want a duration with a unit, such as "250ms", "30s" or "7d"`)
	}
	ms, ok := parseDuration(v.b)
	if !ok {
		return 0, invalid(f.name, `%q is no duration; write it with a unit (ms, s, m, h, d), such as 250ms, 30s or 7d`, v.b)
	}
	if ms < f.low || ms > f.high {
		return 0, invalid(f.name, "%s is outside %s to %s", v.b, formatDuration(f.low), formatDuration(f.high))
	}
	return ms, nil
}

// time returns Unix milliseconds of an RFC 3339 time, rounded up.
func (v value) time(name string) (int64, error) {
	if v.kind == isText || v.kind == isString {
		if t, err := time.Parse(time.RFC3339Nano, string(v.b)); err == nil {
			ms := t.UnixMilli()
			if t.Nanosecond()%1e6 != 0 {
				ms++
			}
			return ms, nil
		}
	}
	return 0, invalid(name, `want an RFC 3339 time such as 2030-01-31T12:00:00Z (in a query, + is written %%2B)`)
}

// cut copies the beginning of a long text: a worker's stack trace must not be why
// its nack fails.
func (v value) cut(f *optionFact) (string, error) {
	b, err := v.text(f.name)
	if int64(len(b)) > f.high {
		b = b[:f.high]
		for !utf8.Valid(b) {
			b = b[:len(b)-1]
		}
	}
	return string(b), err
}

// queueName checks a queue's name and copies it.
func queueName(option string, b []byte) (string, error) { return nameOf("queue", option, b) }

// topicName checks a topic's name and copies it.
func topicName(option string, b []byte) (string, error) { return nameOf("topic", option, b) }

func nameOf(what, option string, b []byte) (string, error) {
	switch {
	case len(b) == 0:
		return "", invalid(option, "a %s's name has at least one byte", what)
	case len(b) > fsm.NameMax:
		return "", invalid(option, "a %s's name has at most %d bytes, this one %d", what, fsm.NameMax, len(b))
	case b[0] == '$':
		return "", invalid(option, "names that begin with $ are reserved")
	}
	return string(b), nil
}

// header checks one user header of a job and copies it. Names are HTTP tokens
// and values hold no control characters, so both can travel as header fields.
func header(name, val []byte) (fsm.Header, error) {
	if len(name) == 0 || len(name) > headerNameMax {
		return fsm.Header{}, invalid("headers", "a header's name has 1 to %d bytes", headerNameMax)
	}
	for _, c := range name {
		if !token[c] {
			return fsm.Header{}, invalid("headers", "%q is no header name: use letters, digits and !#$%%&'*+-.^_`|~", name)
		}
	}
	for _, c := range val {
		if c < ' ' && c != '\t' || c == 0x7f {
			return fsm.Header{}, invalid("header."+string(name), "a header's value has no control characters")
		}
	}
	if !utf8.Valid(val) {
		return fsm.Header{}, invalid("header."+string(name), "a header's value is UTF-8 text")
	}
	return fsm.Header{Name: string(name), Value: string(val)}, nil
}

var token = func() (t [256]bool) {
	for _, c := range "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ!#$%&'*+-.^_`|~" {
		t[c] = true
	}
	return t
}()

func parseUint(b []byte) (n uint64, ok bool) {
	if len(b) == 0 || len(b) > 20 {
		return 0, false
	}
	for _, c := range b {
		d := uint64(c - '0')
		if d > 9 || n > (1<<64-1-d)/10 {
			return 0, false
		}
		n = n*10 + d
	}
	return n, true
}

// units of durations in microseconds, so that fractions stay whole.
func unitMicros(u []byte) (int64, bool) {
	switch string(u) {
	case "ms":
		return 1e3, true
	case "s":
		return 1e6, true
	case "m":
		return 60e6, true
	case "h":
		return 3600e6, true
	case "d":
		return 86400e6, true
	}
	return 0, false
}

// parseDuration reads 250ms, 30s, 1h30m, 1.5d or 0 as milliseconds, rounded up.
func parseDuration(b []byte) (ms int64, ok bool) {
	if string(b) == "0" {
		return 0, true
	}
	const micros = 1 << 61 // more than any limit
	total, i := int64(0), 0
	for i < len(b) {
		whole, digits := int64(0), 0
		for ; i < len(b) && b[i] >= '0' && b[i] <= '9'; i++ {
			if digits++; digits > 15 {
				return 0, false
			}
			whole = whole*10 + int64(b[i]-'0')
		}
		frac, scale := int64(0), int64(1)
		if digits > 0 && i+1 < len(b) && b[i] == '.' {
			for i++; i < len(b) && b[i] >= '0' && b[i] <= '9'; i++ {
				if scale < 1e6 {
					frac, scale = frac*10+int64(b[i]-'0'), scale*10
				}
			}
			if scale == 1 {
				return 0, false
			}
		}
		start := i
		for i < len(b) && b[i] >= 'a' && b[i] <= 'z' {
			i++
		}
		unit, known := unitMicros(b[start:i])
		if digits == 0 || !known || whole > (micros-total)/unit {
			return 0, false
		}
		total += whole*unit + (frac*unit+scale-1)/scale
	}
	return (total + 999) / 1000, len(b) > 0
}

func formatDuration(ms int64) string {
	for _, u := range [...]struct {
		ms   int64
		name string
	}{{86400_000, "d"}, {3600_000, "h"}, {60_000, "m"}, {1000, "s"}} {
		if ms > 0 && ms%u.ms == 0 {
			return strconv.FormatInt(ms/u.ms, 10) + u.name
		}
	}
	return strconv.FormatInt(ms, 10) + "ms"
}

func unhex(c byte) int {
	switch {
	case c >= '0' && c <= '9':
		return int(c - '0')
	case c|0x20 >= 'a' && c|0x20 <= 'f':
		return int(c|0x20-'a') + 10
	}
	return -1
}
