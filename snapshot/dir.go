package snapshot

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"time"
)

const (
	// tmpPrefix begins the names of files being written, ours and those that the
	// transport receives.
	tmpPrefix = "tmp"
	// staleAfter is how long a temporary file may lie unchanged before Prune takes
	// it for abandoned. A snapshot being received or written under a throttle
	// changes all the time.
	staleAfter = time.Hour
)

// Info is a snapshot file by its name. Whether it is whole, Verify tells.
type Info struct {
	Path  string
	Index uint64
	Size  int64
}

// Path is the name that the transport gives to received files too.
func Path(dir string, index uint64) string {
	return filepath.Join(dir, fmt.Sprintf("%016x.snap.db", index))
}

func parseName(name string) (uint64, bool) {
	var index uint64
	if n, err := fmt.Sscanf(name, "%016x.snap.db", &index); err != nil || n != 1 {
		return 0, false
	}
	return index, name == filepath.Base(Path("", index))
}

// List gives the snapshot files of dir, newest first.
func List(dir string) ([]Info, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("snapshot: list: %w", err)
	}
	var out []Info
	for _, e := range entries {
		index, ok := parseName(e.Name())
		if !ok || !e.Type().IsRegular() {
			continue
		}
		info, err := e.Info()
		if errors.Is(err, os.ErrNotExist) {
			continue // pruned meanwhile
		}
		if err != nil {
			return nil, fmt.Errorf("snapshot: list: %w", err)
		}
		out = append(out, Info{Path: filepath.Join(dir, e.Name()), Index: index, Size: info.Size()})
	}
	sort.Slice(out, func(i, j int) bool { return out[i].Index > out[j].Index })
	return out, nil
}

// Prune deletes all snapshots but the newest keep (at least one) and those that
// held names, and temporary files that nobody has written to for an hour. It
// returns what it deleted. A file may be held because it is being sent or
// restored from.
func Prune(dir string, keep int, held func(index uint64) bool) ([]string, error) {
	files, err := List(dir)
	if err != nil {
		return nil, err
	}
	var names []string
	for i, f := range files {
		if i < max(keep, 1) || held != nil && held(f.Index) {
			continue
		}
		names = append(names, f.Path)
	}
	stale, err := temporary(dir, staleAfter)
	if err != nil {
		return nil, err
	}
	return remove(dir, append(names, stale...))
}

// Clean deletes all temporary files. It is for the boot, before anything writes
// or receives.
func Clean(dir string) ([]string, error) {
	names, err := temporary(dir, 0)
	if err != nil {
		return nil, err
	}
	return remove(dir, names)
}

func temporary(dir string, age time.Duration) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("snapshot: list: %w", err)
	}
	var names []string
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), tmpPrefix) || !e.Type().IsRegular() {
			continue
		}
		if info, err := e.Info(); err == nil && (age == 0 || time.Since(info.ModTime()) > age) {
			names = append(names, filepath.Join(dir, e.Name()))
		}
	}
	return names, nil
}

func remove(dir string, names []string) (done []string, err error) {
	for _, n := range names {
		if e := os.Remove(n); e != nil {
			if !errors.Is(e, os.ErrNotExist) {
				err = errors.Join(err, e)
			}
			continue
		}
		done = append(done, n)
	}
	if len(done) > 0 {
		err = errors.Join(err, syncDir(dir))
	}
	if err != nil {
		return done, fmt.Errorf("snapshot: prune: %w", err)
	}
	return done, nil
}
