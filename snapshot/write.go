package snapshot

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"

	"github.com/cespare/xxhash/v2"
	"github.com/klauspost/compress/zstd"
	"go.etcd.io/etcd/client/pkg/v3/fileutil"

	"raftq/failpoint"
)

const (
	// chunkBytes is what is written, hashed and throttled at a time.
	chunkBytes = 256 << 10
	// writebackBytes is how much may be dirty before the kernel is told to write
	// it; without that the last fsync would push the whole file out at once, and
	// the log's fsyncs would wait behind it.
	writebackBytes = 1 << 20
)

// Write makes the snapshot file of h.Index in dir from what encode writes. When
// it returns the file is durable under its name; it replaces one of the same
// name. After any error there is no file, only an older one if there was one.
//
// limit, if not nil, is called with the number of bytes before they are written
// and may sleep. encode must write the same bytes for the same state.
func Write(dir string, h Header, limit func(n int), encode func(io.Writer) error) (Info, error) {
	head, err := encodeHead(h)
	if err != nil {
		return Info{}, err
	}
	path := Path(dir, h.Index)
	f, err := os.CreateTemp(dir, tmpPrefix+filepath.Base(path)+"-")
	if err != nil {
		return Info{}, fmt.Errorf("snapshot: create: %w", err)
	}
	size, err := write(f, head, limit, encode)
	if err == nil && seeded != "snapshot-not-synced" {
		failpoint.Hit(failpoint.SnapshotWritten)
		err = fileutil.Fsync(f)
	}
	err = errors.Join(err, f.Close())
	if err == nil {
		failpoint.Hit(failpoint.SnapshotSynced)
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		os.Remove(f.Name()) // if that fails too, Prune or Clean will find it
		return Info{}, fmt.Errorf("snapshot: write %s: %w", path, err)
	}
	failpoint.Hit(failpoint.SnapshotRenamed)
	if seeded == "snapshot-name-not-synced" {
		return Info{Path: path, Index: h.Index, Size: size}, nil
	}
	if err := syncDir(dir); err != nil {
		return Info{}, fmt.Errorf("snapshot: publish %s: %w", path, err)
	}
	failpoint.Hit(failpoint.SnapshotDurable)
	return Info{Path: path, Index: h.Index, Size: size}, nil
}

func write(f *os.File, head []byte, limit func(n int), encode func(io.Writer) error) (int64, error) {
	out := &fileWriter{f: f, limit: limit, sum: xxhash.New()}
	if _, err := out.Write(head); err != nil {
		return 0, err
	}
	file := bufio.NewWriterSize(out, chunkBytes)
	// One goroutine, one level, one window: the bytes must not depend on timing.
	z, err := zstd.NewWriter(file, zstd.WithEncoderConcurrency(1), zstd.WithEncoderLevel(zstd.SpeedFastest),
		zstd.WithWindowSize(windowBytes), zstd.WithEncoderCRC(false))
	if err != nil {
		return 0, err
	}
	content := &contentWriter{w: z, sum: xxhash.New()}
	// Nor on how encode cuts its writes.
	buf := bufio.NewWriterSize(content, chunkBytes)
	if err := encode(onlyWriter{buf}); err != nil {
		z.Close()
		return 0, err
	}
	if err := buf.Flush(); err != nil {
		z.Close()
		return 0, err
	}
	if err := z.Close(); err != nil {
		return 0, err
	}
	if err := file.Flush(); err != nil {
		return 0, err
	}
	le := binary.LittleEndian
	var t []byte
	t = le.AppendUint64(t, uint64(out.n)-uint64(len(head)))
	t = le.AppendUint64(t, uint64(content.n))
	t = le.AppendUint64(t, content.sum.Sum64())
	out.sum.Write(t)
	t = le.AppendUint64(t, out.sum.Sum64())
	_, err = out.Write(t)
	return out.n, err
}

// onlyWriter hides bufio's ReadFrom, which would pass the buffer by.
type onlyWriter struct{ io.Writer }

type contentWriter struct {
	w   io.Writer
	sum *xxhash.Digest
	n   int64
}

func (c *contentWriter) Write(b []byte) (int, error) {
	c.sum.Write(b)
	c.n += int64(len(b))
	return c.w.Write(b)
}

// fileWriter throttles, hashes and keeps the kernel writing.
type fileWriter struct {
	f       *os.File
	limit   func(n int)
	sum     *xxhash.Digest
	n       int64
	started int64 // writeback was started up to here
}

func (w *fileWriter) Write(b []byte) (int, error) {
	done := 0
	for len(b) > 0 {
		c := b[:min(len(b), chunkBytes)]
		if w.limit != nil {
			w.limit(len(c))
		}
		n, err := w.f.Write(c)
		w.sum.Write(c[:n])
		w.n += int64(n)
		done += n
		if err != nil {
			return done, err
		}
		b = b[n:]
		w.writeback()
	}
	return done, nil
}

// Flags of sync_file_range(2).
const (
	waitBefore = 1
	startWrite = 2
	waitAfter  = 4
)

// writeback starts writing the newest stretch and waits for the one before. It
// is a wish, not a sync: an error shows up again at the fsync.
func (w *fileWriter) writeback() {
	if w.n-w.started < writebackBytes {
		return
	}
	fd := int(w.f.Fd())
	_ = syscall.SyncFileRange(fd, w.started, w.n-w.started, startWrite)
	if w.started > 0 {
		from := max(0, w.started-writebackBytes-chunkBytes)
		_ = syscall.SyncFileRange(fd, from, w.started-from, waitBefore|startWrite|waitAfter)
	}
	w.started = w.n
}

func syncDir(dir string) error {
	d, err := fileutil.OpenDir(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return fileutil.Fsync(d)
}
