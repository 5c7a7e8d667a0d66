package httpapi

import (
	"bytes"
	"encoding/binary"

	"raftq/fsm"
)

// A frame is one job or message among several whose bodies are any bytes: the length of
// a JSON object (4 bytes, big-endian), the object, the length of the body, the
// body. The object has its options or facts and may be empty (length 0).

// readFrames reads jobs from frames.
func (l *jobList) readFrames() error {
	rest := l.body
	for n := 0; len(rest) > 0; n++ {
		var head, body []byte
		var ok bool
		if head, rest, ok = cutFrame(rest); ok {
			body, rest, ok = cutFrame(rest)
		}
		if !ok {
			return refuse(fsm.CodeInvalidRequest, "the frame is cut short").at(l.what, n)
		}
		o := options{}
		if err := o.frameHead(head, l.allowed); err != nil {
			return asProblem(err).at(l.what, n)
		}
		o.job.Body = body
		if err := l.add(&o); err != nil {
			return asProblem(err).at(l.what, n)
		}
	}
	return nil
}

// cutFrame cuts off a length and that many bytes.
func cutFrame(b []byte) (part, rest []byte, ok bool) {
	if len(b) < 4 {
		return nil, nil, false
	}
	n := uint64(binary.BigEndian.Uint32(b))
	if uint64(len(b)-4) < n {
		return nil, nil, false
	}
	return b[4 : 4+n : 4+n], b[4+n:], true
}

func (o *options) frameHead(head []byte, allowed optionSet) error {
	if len(bytes.TrimSpace(head)) == 0 {
		return nil
	}
	r := jsonReader{b: head}
	if err := o.object(&r, allowed); err != nil {
		return err
	}
	return r.end()
}

// object reads options from a JSON object.
func (o *options) object(r *jsonReader, allowed optionSet) error {
	return r.members(func(name []byte) error {
		v, err := r.value()
		if err != nil {
			return err
		}
		return o.set(name, v, allowed)
	})
}

// appendFrame appends a frame whose object is written by head.
func appendFrame(b []byte, body string, head func([]byte) []byte) []byte {
	at := len(b)
	b = head(append(b, 0, 0, 0, 0))
	binary.BigEndian.PutUint32(b[at:], uint32(len(b)-at-4))
	b = binary.BigEndian.AppendUint32(b, uint32(len(body)))
	return append(b, body...)
}
