package bench

import (
	"encoding/binary"
	"errors"
)

const framesType = "application/vnd.raftq.frames"

var errFrames = errors.New("the frames of the answer are cut short")

// appendFrame appends one job as a frame: the length of a JSON object (4 bytes,
// big-endian), the object, the length of the body, the body. The object is
// empty: the job has no options.
func appendFrame(b, body []byte) []byte {
	b = append(b, 0, 0, 0, 0)
	b = binary.BigEndian.AppendUint32(b, uint32(len(body)))
	return append(b, body...)
}

// framesSize is the length of n frames with bodies of a size.
func framesSize(n, size int) int { return n * (8 + size) }

// cutFrame cuts the first frame off.
func cutFrame(b []byte) (head, body, rest []byte, err error) {
	if head, rest, err = cutPart(b); err != nil {
		return nil, nil, nil, err
	}
	if body, rest, err = cutPart(rest); err != nil {
		return nil, nil, nil, err
	}
	return head, body, rest, nil
}

func cutPart(b []byte) (part, rest []byte, err error) {
	if len(b) < 4 {
		return nil, nil, errFrames
	}
	n := uint64(binary.BigEndian.Uint32(b))
	if uint64(len(b)-4) < n {
		return nil, nil, errFrames
	}
	return b[4 : 4+n], b[4+n:], nil
}
