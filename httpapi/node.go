package httpapi

import (
	"bytes"
	"encoding/json"
)

// node is a JSON object whose members stay in the order they were written.
type node []member

type member struct {
	key string
	val any
}

// MarshalJSON implements json.Marshaler.
func (n node) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	b.WriteByte('{')
	for i, m := range n {
		if i > 0 {
			b.WriteByte(',')
		}
		b.Write(appendString(nil, m.key))
		b.WriteByte(':')
		var v bytes.Buffer
		enc := json.NewEncoder(&v)
		enc.SetEscapeHTML(false)
		if err := enc.Encode(m.val); err != nil {
			return nil, err
		}
		b.Write(bytes.TrimSpace(v.Bytes()))
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}
