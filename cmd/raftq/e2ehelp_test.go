package main

import (
	"bytes"
	"math/rand/v2"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// watchedBuffer tells when a text was written to it.
type watchedBuffer struct {
	want string
	seen chan struct{}

	mu  sync.Mutex
	buf bytes.Buffer
}

func (w *watchedBuffer) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	before := strings.Contains(w.buf.String(), w.want)
	n, err := w.buf.Write(p)
	if !before && strings.Contains(w.buf.String(), w.want) {
		close(w.seen)
	}
	return n, err
}

func (w *watchedBuffer) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.buf.String()
}

// portRange finds n free ports in a row, below those that the kernel gives to
// whoever asks for any.
func portRange(t *testing.T, n int) int {
	t.Helper()
	for range 1000 {
		first := 10000 + rand.IntN(20000)
		if allFree(first, n) {
			return first
		}
	}
	t.Fatal("no free ports")
	return 0
}

func allFree(first, n int) bool {
	for port := first; port < first+n; port++ {
		ln, err := net.Listen("tcp", "127.0.0.1:"+strconv.Itoa(port))
		if err != nil {
			return false
		}
		ln.Close()
	}
	return true
}
