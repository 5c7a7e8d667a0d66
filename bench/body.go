package bench

import "math/rand/v2"

// A job's body begins with fixed columns of hex digits, printable so that JSON
// answers need no escapes: the run's tag (8), the job's number (16), and when
// it was sent, in nanoseconds since the run began (16). Letters follow.
const (
	bodyTagSize  = 8
	bodyHeadSize = bodyTagSize + 16 + 16
)

const hexDigits = "0123456789abcdef"

// newBody returns a body of a size with the tag in place.
func newBody(tag string, size int, rng *rand.Rand) []byte {
	b := make([]byte, size)
	for i := range b {
		b[i] = 'a' + byte(rng.UintN(26))
	}
	copy(b, tag)
	return b
}

// stampBody writes number and sending time.
func stampBody(b []byte, seq, sentNs int64) {
	putHex(b[bodyTagSize:bodyTagSize+16], uint64(seq))
	putHex(b[bodyTagSize+16:bodyHeadSize], uint64(sentNs))
}

// readBody reads what stampBody wrote; ok is false for a body of another run.
func readBody(b []byte, tag string) (seq, sentNs int64, ok bool) {
	if len(b) < bodyHeadSize || string(b[:bodyTagSize]) != tag {
		return 0, 0, false
	}
	s, ok1 := getHex(b[bodyTagSize : bodyTagSize+16])
	t, ok2 := getHex(b[bodyTagSize+16 : bodyHeadSize])
	return int64(s), int64(t), ok1 && ok2
}

func putHex(b []byte, v uint64) {
	for i := len(b) - 1; i >= 0; i-- {
		b[i] = hexDigits[v&15]
		v >>= 4
	}
}

func getHex(b []byte) (v uint64, ok bool) {
	for _, c := range b {
		switch {
		case c >= '0' && c <= '9':
			v = v<<4 | uint64(c-'0')
		case c >= 'a' && c <= 'f':
			v = v<<4 | uint64(c-'a'+10)
		default:
			return 0, false
		}
	}
	return v, true
}
