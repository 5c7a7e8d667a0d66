package snapshot

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/cespare/xxhash/v2"
	"go.etcd.io/raft/v3/raftpb"
)

// The file is: head (magic, version, header length, header, hash), zstd stream,
// trailer (sizes, hash of the content, hash of everything before).
const (
	magic         = "RQSNAP\r\n"
	formatVersion = 1

	headFixedBytes = 8 + 4 + 4 // magic, version, header length
	headSumBytes   = 8
	trailerBytes   = 8 + 8 + 8 + 8

	headerBytesMin = 4*8 + 4*4 + 1
	headerBytesMax = 1 << 20
	membersMax     = 1 << 14
)

// Header says what a snapshot is of.
type Header struct {
	ClusterID   uint64
	Index, Term uint64            // the last entry in it
	ConfState   *raftpb.ConfState // as of Index
	TimeMs      int64             // log time as of Index
}

// encodeHead gives magic to hash.
func encodeHead(h Header) ([]byte, error) {
	c := h.ConfState
	if c == nil || h.Index == 0 || h.Term == 0 {
		return nil, fmt.Errorf("snapshot: header without index, term or members: %+v", h)
	}
	le := binary.LittleEndian
	b := make([]byte, headFixedBytes, 256)
	copy(b, magic)
	le.PutUint32(b[8:], formatVersion)
	b = le.AppendUint64(b, h.ClusterID)
	b = le.AppendUint64(b, h.Index)
	b = le.AppendUint64(b, h.Term)
	b = le.AppendUint64(b, uint64(h.TimeMs))
	for _, ids := range [][]uint64{c.GetVoters(), c.GetLearners(), c.GetVotersOutgoing(), c.GetLearnersNext()} {
		if len(ids) > membersMax {
			return nil, fmt.Errorf("snapshot: %d members are too many", len(ids))
		}
		b = le.AppendUint32(b, uint32(len(ids)))
		for _, id := range ids {
			b = le.AppendUint64(b, id)
		}
	}
	if c.GetAutoLeave() {
		b = append(b, 1)
	} else {
		b = append(b, 0)
	}
	le.PutUint32(b[12:], uint32(len(b)-headFixedBytes))
	return le.AppendUint64(b, xxhash.Sum64(b)), nil
}

// headBytes gives the length of the whole head from its fixed part.
func headBytes(fixed []byte) (int, error) {
	le := binary.LittleEndian
	if len(fixed) < headFixedBytes || string(fixed[:8]) != magic {
		return 0, errors.New("not a snapshot file")
	}
	if v := le.Uint32(fixed[8:]); v != formatVersion {
		return 0, fmt.Errorf("format version %d, this program reads %d", v, formatVersion)
	}
	n := le.Uint32(fixed[12:])
	if n < headerBytesMin || n > headerBytesMax {
		return 0, fmt.Errorf("header of %d bytes", n)
	}
	return headFixedBytes + int(n) + headSumBytes, nil
}

var errHeader = errors.New("the header is damaged")

func decodeHead(b []byte) (Header, error) {
	n, err := headBytes(b)
	if err != nil {
		return Header{}, err
	}
	le := binary.LittleEndian
	if len(b) != n || xxhash.Sum64(b[:n-headSumBytes]) != le.Uint64(b[n-headSumBytes:]) {
		return Header{}, errHeader
	}
	p := b[headFixedBytes : n-headSumBytes]
	c := &raftpb.ConfState{}
	h := Header{
		ClusterID: le.Uint64(p), Index: le.Uint64(p[8:]), Term: le.Uint64(p[16:]),
		TimeMs: int64(le.Uint64(p[24:])), ConfState: c,
	}
	p = p[32:]
	for _, ids := range []*[]uint64{&c.Voters, &c.Learners, &c.VotersOutgoing, &c.LearnersNext} {
		if len(p) < 4 {
			return Header{}, errHeader
		}
		n := le.Uint32(p)
		p = p[4:]
		if n > membersMax || len(p) < int(n)*8 {
			return Header{}, errHeader
		}
		for ; n > 0; n-- {
			*ids = append(*ids, le.Uint64(p))
			p = p[8:]
		}
	}
	if len(p) != 1 || p[0] > 1 {
		return Header{}, errHeader
	}
	if p[0] == 1 {
		yes := true
		c.AutoLeave = &yes
	}
	return h, nil
}
