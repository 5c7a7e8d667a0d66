package client

import (
	"encoding/binary"
	"errors"
)

// A frame is one job among several whose bodies are any bytes: the length of a
// JSON object (4 bytes, big-endian), the object, the length of the body, the body.
// The object has the job's options or facts and may be empty (length 0).

func appendFrame(b, head, body []byte) []byte {
	b = binary.BigEndian.AppendUint32(b, uint32(len(head)))
	b = append(b, head...)
	b = binary.BigEndian.AppendUint32(b, uint32(len(body)))
	return append(b, body...)
}

var errFrameShort = errors.New("a frame is cut short")

// cutFrame cuts off the first frame; head and body are slices of b.
func cutFrame(b []byte) (head, body, rest []byte, err error) {
	if head, b, err = cutPart(b); err != nil {
		return nil, nil, nil, err
	}
	if body, rest, err = cutPart(b); err != nil {
		return nil, nil, nil, err
	}
	return head, body, rest, nil
}

func cutPart(b []byte) (part, rest []byte, err error) {
	if len(b) < 4 {
		return nil, nil, errFrameShort
	}
	n := uint64(binary.BigEndian.Uint32(b))
	if uint64(len(b)-4) < n {
		return nil, nil, errFrameShort
	}
	return b[4 : 4+n : 4+n], b[4+n:], nil
}
