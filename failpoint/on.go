//go:build failpoints

package failpoint

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

const pollEvery = 3 * time.Millisecond

var (
	point string
	nth   = int64(1)
	hits  atomic.Int64
	off   atomic.Int64 // ns
)

func init() {
	point = take("RAFTQ_FAILPOINT")
	name, n, numbered := strings.Cut(point, ":")
	if numbered {
		var err error
		if nth, err = strconv.ParseInt(n, 10, 64); err != nil || nth < 1 {
			end("failpoint %q: the number of hits is no number", point)
		}
	}
	if point = name; point != "" && !slices.Contains(Points, point) {
		end("failpoint %q is none of %v", point, Points)
	}
	if path := take("RAFTQ_CLOCK_OFFSET_FILE"); path != "" {
		follow(path)
		go func() {
			for range time.Tick(pollEvery) {
				follow(path)
			}
		}()
	}
}

// take reads a variable and hides it from the settings.
func take(name string) string {
	v := os.Getenv(name)
	_ = os.Unsetenv(name) // the name is a valid one
	return v
}

func end(format string, args ...any) {
	fmt.Fprintf(os.Stderr, format+"\n", args...)
	os.Exit(Status)
}

// follow takes the offset that a file says. One that cannot be read is being written.
func follow(path string) {
	text, _ := os.ReadFile(path)
	ms, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	if err == nil && off.Swap(ms*1e6) != ms*1e6 {
		fmt.Fprintf(os.Stderr, "failpoint: the wall clock is off by %d ms\n", ms)
	}
}

// Hit ends the process if it was asked to end here.
func Hit(name string) {
	if name == point && hits.Add(1) == nth {
		end("failpoint %s, hit %d", name, nth)
	}
}

// WallOffset is how wrong the wall clock is, in ns.
func WallOffset() int64 { return off.Load() }
