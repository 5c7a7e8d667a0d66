package snapshot

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/cespare/xxhash/v2"
	"github.com/klauspost/compress/zstd"
)

// windowBytes is the most that a reader needs to remember of the content.
const windowBytes = 1 << 20

// file is an open snapshot whose head was read.
type file struct {
	f      *os.File
	path   string
	header Header
	head   []byte
	size   int64

	// From the trailer, once verified.
	bodySize, rawSize int64
	rawSum            uint64
}

// ReadHeader reads and checks the head alone.
func ReadHeader(path string) (Header, error) {
	s, err := open(path)
	if err != nil {
		return Header{}, err
	}
	defer s.f.Close()
	return s.header, nil
}

// Verify reads the whole file and checks every byte.
func Verify(path string) (Header, error) {
	s, err := open(path)
	if err != nil {
		return Header{}, err
	}
	defer s.f.Close()
	if err := s.verify(); err != nil {
		return Header{}, err
	}
	return s.header, nil
}

// Read verifies the whole file, then hands the content to decode, which must
// read to its end. What decode made is to be dropped if Read returns an error.
// An error of decode comes back wrapped.
func Read(path string, decode func(Header, io.Reader) error) (Header, error) {
	s, err := open(path)
	if err != nil {
		return Header{}, err
	}
	defer s.f.Close()
	if err := s.verify(); err != nil {
		return Header{}, err
	}
	z, err := zstd.NewReader(io.NewSectionReader(s.f, int64(len(s.head)), s.bodySize),
		zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(windowBytes))
	if err != nil {
		return Header{}, fmt.Errorf("snapshot: read %s: %w", path, err)
	}
	defer z.Close()
	r := &contentReader{r: z, left: s.rawSize, sum: xxhash.New()}
	if err := decode(s.header, r); err != nil {
		if system := (*os.PathError)(nil); errors.As(r.err, &system) {
			return Header{}, fmt.Errorf("snapshot: read %s: %w", path, r.err)
		}
		if r.err != nil {
			return Header{}, s.damaged(r.err.Error()) // the file changed under us
		}
		return Header{}, fmt.Errorf("snapshot: decode %s: %w", path, err)
	}
	if left := r.left; left > 0 {
		return Header{}, fmt.Errorf("snapshot: decode %s: %d bytes were not read", path, left)
	}
	if n, err := r.Read(make([]byte, 1)); n != 0 || err != io.EOF {
		return Header{}, s.damaged("the content is longer than the trailer says")
	}
	if r.sum.Sum64() != s.rawSum {
		return Header{}, s.damaged("the content does not match its hash")
	}
	return s.header, nil
}

func open(path string) (*file, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("snapshot: open: %w", err)
	}
	s := &file{f: f, path: path}
	if err := s.readHead(); err != nil {
		f.Close()
		return nil, err
	}
	return s, nil
}

func (s *file) readHead() error {
	info, err := s.f.Stat()
	if err != nil {
		return fmt.Errorf("snapshot: open: %w", err)
	}
	s.size = info.Size()
	s.head = make([]byte, headFixedBytes)
	if err := s.readAt(s.head, 0); err != nil {
		return err
	}
	n, err := headBytes(s.head)
	if err != nil {
		return s.damaged(err.Error())
	}
	s.head = make([]byte, n)
	if err := s.readAt(s.head, 0); err != nil {
		return err
	}
	if s.header, err = decodeHead(s.head); err != nil {
		return s.damaged(err.Error())
	}
	if index, ok := parseName(filepath.Base(s.path)); ok && index != s.header.Index {
		return s.damaged(fmt.Sprintf("it is of index %d", s.header.Index))
	}
	return nil
}

func (s *file) readAt(b []byte, off int64) error {
	_, err := s.f.ReadAt(b, off)
	if err == io.EOF {
		return s.damaged("it is too short")
	}
	if err != nil {
		return fmt.Errorf("snapshot: read %s: %w", s.path, err)
	}
	return nil
}

func (s *file) verify() error {
	end := s.size - 8
	if end < int64(len(s.head))+trailerBytes-8 {
		return s.damaged("it is too short")
	}
	sum := xxhash.New()
	if n, err := io.CopyBuffer(sum, io.NewSectionReader(s.f, 0, end), make([]byte, chunkBytes)); err != nil {
		return fmt.Errorf("snapshot: read %s: %w", s.path, err)
	} else if n != end {
		return s.damaged("it is too short")
	}
	var t [trailerBytes]byte
	if err := s.readAt(t[:], s.size-trailerBytes); err != nil {
		return err
	}
	le := binary.LittleEndian
	if le.Uint64(t[24:]) != sum.Sum64() && seeded != "snapshot-not-verified" {
		return s.damaged("it does not match its hash")
	}
	s.bodySize, s.rawSize, s.rawSum = int64(le.Uint64(t[:])), int64(le.Uint64(t[8:])), le.Uint64(t[16:])
	if s.bodySize != s.size-int64(len(s.head))-trailerBytes || s.rawSize < 0 {
		return s.damaged("the sizes in the trailer are wrong")
	}
	return nil
}

func (s *file) damaged(what string) error { return &DamageError{s.path, what} }

// contentReader hashes, counts, and remembers errors of the stream, so that they
// are not taken for the decoder's.
type contentReader struct {
	r    io.Reader
	left int64
	sum  *xxhash.Digest
	err  error
}

func (c *contentReader) Read(b []byte) (int, error) {
	n, err := c.r.Read(b)
	c.sum.Write(b[:n])
	c.left -= int64(n)
	switch {
	case err == io.EOF && c.left > 0:
		err = errors.New("the content is shorter than the trailer says")
		c.err = err
	case err != nil && err != io.EOF:
		c.err = err
	case c.left < 0:
		err = errors.New("the content is longer than the trailer says")
		c.err = err
	}
	return n, err
}
